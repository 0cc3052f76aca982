// Scroll position: stays at the end while the conversation grows there, otherwise at the entry in view.

const talk = document.getElementById("talk");
const column = talk.querySelector(".column");
const toEnd = document.getElementById("to-end");
const NEAR = 80; // pixels from the end that count as the end

let anchor = null;
let anchorTop = 0;

/** The list is set from its end, so that is where scrollTop is 0. */
function isAtEnd() {
  return talk.scrollTop > -NEAR && !document.querySelector("#newer[hx-get]");
}

function remember() {
  const box = talk.getBoundingClientRect();
  const row = document.elementFromPoint(box.left + box.width / 2, box.top + 24)?.closest("#rows > *");
  anchor = isAtEnd() ? null : (row ?? anchor);
  anchorTop = anchor?.getBoundingClientRect().top ?? 0;
  if (toEnd) toEnd.hidden = isAtEnd();
  if (isAtEnd()) toEnd?.removeAttribute("data-new");
}

function restore() {
  if (!anchor?.isConnected) {
    if (talk.scrollTop > -NEAR && isAtEnd()) talk.scrollTop = 0;
    return;
  }
  const moved = anchor.getBoundingClientRect().top - anchorTop;
  if (Math.abs(moved) >= 1) talk.scrollTop += moved;
}

function goToEnd(event) {
  if (document.querySelector("#newer[hx-get]")) return; // the link loads what follows
  event?.preventDefault();
  talk.scrollTop = 0;
  remember();
}

/** Something was said or is being written at the end, as against pages that are loaded. */
function isNews(records) {
  const rows = document.getElementById("rows");
  const atEnd = ({ target, addedNodes, nextSibling }) => target === rows && addedNodes.length && !nextSibling;
  return !document.querySelector("#newer[hx-get]") && records.some((it) => atEnd(it) || it.target.closest?.(".live"));
}

if (toEnd) {
  talk.addEventListener("scroll", remember, { passive: true });
  new ResizeObserver(restore).observe(column);
  const news = new MutationObserver((records) => toEnd.hidden || (isNews(records) && (toEnd.dataset.new = "")));
  news.observe(document.getElementById("transcript").parentElement, { childList: true, subtree: true });
  toEnd.addEventListener("click", goToEnd);
  document.addEventListener("parley:sent", () => goToEnd());
  remember();
}

// A long answer that was watched to its end is stored shortened, so the rest is loaded at once. Its reader stays at the
// same place, measured from the end.

const MOST_LOADED = 1_000_000; // bytes
let watchedAt = null; // position of the reader in a live answer

document.addEventListener("htmx:wsBeforeMessage", () => {
  watchedAt = document.querySelector("#rows > .live") ? talk.scrollTop : null;
});

document.addEventListener("htmx:wsAfterMessage", () => {
  if (watchedAt === null || document.querySelector("#rows > .live")) return;
  const answer = [...document.querySelectorAll("#rows > .answer")].at(-1);
  const more = answer?.querySelector(".cut [data-size]");
  if (!more || Number(more.dataset.size) > MOST_LOADED) return;
  const place = watchedAt;
  answer.addEventListener("htmx:afterSettle", () => (talk.scrollTop = place), { once: true });
  more.click();
});

// An on-screen keyboard takes part of the page; not every browser resizes the layout.

const shown = window.visualViewport;

function fit() {
  const isZoomed = shown.scale > 1.01;
  document.documentElement.style.setProperty("--visible-height", isZoomed ? "100dvh" : `${shown.height}px`);
  if (!isZoomed) window.scrollTo(0, 0);
}

if (shown && matchMedia("(hover: none)").matches) shown.addEventListener("resize", fit);
