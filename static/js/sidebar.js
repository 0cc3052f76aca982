// The list of sessions: what HTML and htmx cannot do. The list works without this script.

const sidebar = document.getElementById("sidebar");
const find = (selector) => sidebar.querySelector(selector);
const all = (selector) => [...sidebar.querySelectorAll(selector)];

// Selection of several sessions survives a reload of list and page; Shift selects a range.

const KEPT = "parley-selected";
let lastPicked = null;

function selection() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) || { on: false, ids: [] };
  } catch {
    return { on: false, ids: [] };
  }
}

function keepSelection() {
  const shown = new Map(all(".sidebar-pick").map((box) => [box.value, box.checked]));
  const elsewhere = selection().ids.filter((id) => !shown.has(id));
  const on = find("#sidebar-selecting").checked;
  const ids = on ? [...elsewhere, ...[...shown].filter(([, checked]) => checked).map(([id]) => id)] : [];
  sessionStorage.setItem(KEPT, JSON.stringify({ on, ids }));
  showSelection();
}

function showSelection() {
  const { on, ids } = selection();
  find("#sidebar-selecting").checked = on;
  for (const box of all(".sidebar-pick")) box.checked = ids.includes(box.value);
  const number = all(".sidebar-pick:checked").length;
  const count = find(".sidebar-count");
  count.textContent = number ? count.dataset.words.replace("{number}", number) : "";
}

function pickBetween(box) {
  const boxes = all(".sidebar-pick");
  const [from, to] = [boxes.findIndex((other) => other.value === lastPicked), boxes.indexOf(box)].sort((a, b) => a - b);
  if (from >= 0) for (const other of boxes.slice(from, to + 1)) other.checked = box.checked;
}

sidebar.addEventListener("click", (event) => {
  const box = event.target.closest(".sidebar-pick");
  if (!box) return;
  if (event.shiftKey) pickBetween(box);
  lastPicked = box.value;
});

sidebar.addEventListener("change", (event) => {
  if (event.target.matches(".sidebar-pick, #sidebar-selecting")) keepSelection();
});

// After an action nothing is selected: the next click on a session opens it. An update may replace the list and its button
// before the response arrives; then htmx sends no event that reaches the document.
document.addEventListener("htmx:beforeRequest", ({ detail: { elt, xhr } }) => {
  if (!elt.closest(".sidebar-many")) return;
  xhr.addEventListener("load", () => {
    if (xhr.status >= 300) return;
    sessionStorage.removeItem(KEPT);
    showSelection();
  });
});

// Menus: arrow keys move in them. Place one beside its button where the browser cannot.

sidebar.addEventListener(
  "toggle",
  (event) => {
    const menu = event.target;
    if (!menu.matches?.(".sidebar-menu")) return;
    if (event.newState === "open" && !CSS.supports("position-area", "bottom")) placeBesideButton(menu);
    // A menu inside a sheet does not return the focus.
    const isLost = document.activeElement === document.body || menu.contains(document.activeElement);
    if (event.newState === "closed" && isLost) menu.parentElement?.querySelector(".sidebar-dots").focus();
  },
  true,
);

function placeBesideButton(menu) {
  const button = menu.parentElement.querySelector(".sidebar-dots").getBoundingClientRect();
  const fitsBelow = button.bottom + menu.offsetHeight < innerHeight;
  menu.style.margin = "0";
  menu.style.top = `${fitsBelow ? button.bottom : button.top - menu.offsetHeight}px`;
  menu.style.left = `${Math.max(8, Math.min(button.left, innerWidth - menu.offsetWidth - 8))}px`;
}

sidebar.addEventListener("keydown", (event) => {
  if (event.key === "Escape") cancelRename(event);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const menu = event.target.closest(".sidebar-menu") || openMenuOf(event.target);
  if (!step || !menu) return;
  const items = [...menu.querySelectorAll("a, button")];
  const place = items.indexOf(document.activeElement);
  items[place < 0 && step < 0 ? items.length - 1 : (place + step + items.length) % items.length].focus();
  event.preventDefault();
});

function openMenuOf(button) {
  return button.matches(".sidebar-dots") ? button.parentElement.querySelector(".sidebar-menu:popover-open") : null;
}

function cancelRename(event) {
  const form = event.target.closest(".sidebar-rename");
  if (!form) return;
  event.preventDefault(); // on a narrow screen it would close the sheet too
  form.querySelector("[data-cancel]").click();
}

// Content that htmx has just put into the list.

sidebar.addEventListener("htmx:afterSettle", (event) => {
  showSelection();
  const row = document.getElementById(event.detail.target?.id);
  if (row?.matches("li") && sidebar.contains(row)) focusIn(row);
  all("[data-gone-after]").forEach(removeLater);
});

function focusIn(row) {
  const field = row.querySelector("input[name=title]");
  field?.select();
  if (document.activeElement === document.body) (field || row.querySelector(".sidebar-undo, .sidebar-link"))?.focus();
}

function removeLater(notice) {
  const seconds = Number(notice.dataset.goneAfter);
  delete notice.dataset.goneAfter;
  setTimeout(() => {
    notice.remove();
    catchUp();
  }, seconds * 1000);
}

// Sharing: a dialog on top of the page.

const dialog = document.getElementById("sidebar-dialog");

dialog.addEventListener("htmx:afterSettle", () => {
  if (!dialog.open) dialog.showModal();
  dialog.querySelector(".new input")?.select();
});

// A new title, from the form or the socket, is also the title of the page.

document.body.addEventListener("sidebar:renamed", (event) => {
  const { session, title } = event.detail;
  const head = document.getElementById("session-title");
  if (!head || !find(`#sidebar-${session} [aria-current]`)) return;
  head.textContent = title;
  nameWindow(head);
});

document.addEventListener("htmx:oobAfterSwap", () => {
  const head = document.getElementById("session-title");
  if (head) nameWindow(head);
});

/** A dot before the title says that an answer is being written: it can be seen from another tab. */
function nameWindow(head) {
  const site = document.title.slice(document.title.lastIndexOf(" · "));
  const isAnswering = document.querySelector("#composer-stop, #session-status .pulse");
  document.title = `${isAnswering ? "● " : ""}${head.textContent.trim()}${site}`;
}

// Update of one session, over the socket of the page: replace its row, or refresh the list when its position changed.
// Changes made on this page come back as updates, which wait until the change is shown.

document.addEventListener("htmx:oobAfterSwap", () => {
  const news = document.getElementById("sidebar-update");
  const session = news?.dataset.session;
  if (!session) return;
  delete news.dataset.session;
  const row = news.content.firstElementChild;
  setTimeout(() => (row ? showNews(row) : showGone(session)), 300);
});

/** What this page did itself comes back as news: the notice with its Undo stays until its time is over. */
function isSaidAlready(shown, row) {
  const isArchived = row.dataset.place.split(" ")[1] !== "";
  return shown?.matches(isArchived ? "[data-what=archived]" : "[data-what=unarchived]") ?? false;
}

function showNews(row) {
  const shown = document.getElementById(row.id);
  if (isSaidAlready(shown, row)) return;
  if (shown?.matches(".renaming, :has(:popover-open, :focus-visible)")) {
    refresh(); // waits until the user has finished
    return;
  }
  const focused = shown?.contains(document.activeElement) ? document.activeElement.id : "";
  shown?.replaceWith(row);
  htmx.process(row);
  showSelection();
  document.getElementById(focused)?.focus();
  if (shown?.dataset.place !== row.dataset.place) refresh();
}

function showGone(session) {
  if (!find(`#sidebar-${session}.sidebar-gone`)) refresh();
}

// Refresh after the page was hidden for a while, unless the user is busy with the list.

const STALE = 60_000;
let leftAt = 0;

document.addEventListener("visibilitychange", () => {
  if (document.hidden) leftAt = Date.now();
  else if (Date.now() - leftAt > STALE) refresh();
});

// Updates are not sent while there is no connection: an answer may have ended meanwhile.
let connections = 0;

document.addEventListener("parley:open", () => {
  connections += 1;
  if (connections > 1 || find(".sidebar-answering")) refresh();
});

// A page without a conversation gets no rows; an event says that sessions have changed.
document.addEventListener("parley:sessions-changed", refresh);

// The list must not move while it is used: a refresh waits until the user has finished.

const BUSY = ".renaming, :popover-open, #sidebar-words:focus, #sidebar-list :focus-visible, .sidebar-gone[data-what=unarchived]";
const PRESS = 300; // milliseconds after which a click that moves the focus has ended
let hasNews = false;

function refresh() {
  hasNews = true;
  catchUp();
}

// Requests of the user for another list, such as the archive. A refresh would replace the list that they belong to and
// lose their response.
let requests = 0;

sidebar.addEventListener("htmx:beforeRequest", ({ detail: { elt, target, xhr } }) => {
  if (target.id !== "sidebar-list" || elt.id === "sidebar-list") return;
  htmx.trigger("#sidebar-list", "htmx:abort");
  requests += 1;
  xhr.addEventListener("loadend", () => {
    requests -= 1;
    catchUp();
  });
});

function isBusy() {
  return requests > 0 || find(BUSY) || find("#sidebar-list > ul").scrollTop > 0;
}

function catchUp() {
  if (hasNews && !isBusy()) htmx.trigger("#sidebar-list", "sidebar:refresh");
}

// A menu that was opened while the list was loading stays open: the list is fetched again afterwards.
sidebar.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.triggeringEvent?.type !== "sidebar:refresh" || !isBusy()) return;
  detail.shouldSwap = false;
  hasNews = true;
});

// Updates that arrive while the list is loading are not in it.
sidebar.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "sidebar-list") hasNews = false;
});
sidebar.addEventListener("htmx:afterSettle", () => setTimeout(catchUp));
sidebar.addEventListener("focusout", () => setTimeout(catchUp, PRESS));
sidebar.addEventListener("toggle", () => setTimeout(catchUp, PRESS), true);
sidebar.addEventListener("scroll", catchUp, { capture: true, passive: true });

// The sheet of narrow screens is closed on wide ones.

matchMedia("(min-width: 45rem)").addEventListener("change", (event) => {
  if (event.matches && sidebar.matches(":popover-open")) sidebar.hidePopover();
});

showSelection();
all("[data-gone-after]").forEach(removeLater);
