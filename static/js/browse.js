// History page: keep selected sessions across reloads, select a range with Shift, remove notices after their time.
// The page works without this script.

const KEPT = "parley-picked";
const all = (selector) => [...document.querySelectorAll(selector)];
let lastPicked = null;

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) || [];
  } catch {
    return [];
  }
}

function keep() {
  const shown = new Map(all(".pick").map((box) => [box.value, box.checked]));
  const elsewhere = kept().filter((id) => !shown.has(id));
  const ticked = [...shown].filter(([, checked]) => checked).map(([id]) => id);
  sessionStorage.setItem(KEPT, JSON.stringify([...elsewhere, ...ticked]));
  show();
}

function show() {
  const ids = new Set(kept());
  for (const box of all(".pick")) box.checked = ids.has(box.value);
  const number = new Set(all(".pick:checked").map((box) => box.value)).size;
  for (const count of all(".many-count")) {
    count.textContent = number ? count.dataset.words.replace("{number}", number) : "";
  }
}

function pickBetween(box) {
  const boxes = all(".pick");
  const [from, to] = [boxes.findIndex((other) => other.value === lastPicked), boxes.indexOf(box)].sort((a, b) => a - b);
  if (from >= 0) for (const other of boxes.slice(from, to + 1)) other.checked = box.checked;
}

document.addEventListener("click", (event) => {
  const box = event.target.closest?.(".pick");
  if (!box) return;
  if (event.shiftKey) pickBetween(box);
  lastPicked = box.value;
});

document.addEventListener("change", (event) => {
  const box = event.target;
  if (!box.matches(".pick")) return;
  // A session with matches on several result pages appears once on each.
  for (const other of all(".pick")) if (other.value === box.value) other.checked = box.checked;
  keep();
});

// The form of the selected sessions returns to the address shown when it is sent.
document.addEventListener("submit", (event) => {
  if (event.target.id !== "pick-form") return;
  event.target.elements.next.value = location.pathname + location.search;
  // Archived or unarchived sessions must not be selected where they appear next.
  if (/archive\/$/.test(event.submitter?.formAction ?? "")) sessionStorage.removeItem(KEPT);
});

function removeLater(notice) {
  const seconds = Number(notice.dataset.goneAfter);
  delete notice.dataset.goneAfter;
  setTimeout(() => notice.remove(), seconds * 1000);
}

document.addEventListener("htmx:afterSettle", () => {
  show();
  all("[data-gone-after]").forEach(removeLater);
});

// An update of a session refreshes the list in place. A reader who has scrolled down has older pages loaded; the list is
// refreshed when they are back at the top.

let hasNews = false;

function refresh() {
  if (hasNews && scrollY <= innerHeight / 2) htmx.trigger("#found", "history:stale");
}

// Not sent while another request runs: its response may not have the newest changes.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "found") hasNews = false;
});
document.addEventListener("htmx:afterRequest", () => setTimeout(refresh));

document.addEventListener("parley:sessions-changed", () => {
  hasNews = true;
  refresh();
});
document.addEventListener("scroll", refresh, { passive: true });

// The sheet of narrow screens is closed on wide ones.
matchMedia("(min-width: 56.01rem)").addEventListener("change", (event) => {
  const facets = document.getElementById("facets");
  if (event.matches && facets.matches(":popover-open")) facets.hidePopover();
});

show();
all("[data-gone-after]").forEach(removeLater);
