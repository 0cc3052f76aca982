// Keyboard shortcuts of every page. A single letter never costs money and never leaves the page, because users may type it
// when they think that they are in a text box. Single letters can be switched off for voice control.

const OFF = "parley-keys-off";
const dialog = document.getElementById("keys");
const single = document.getElementById("keys-single");
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

const entries = () => [...document.querySelectorAll("#rows > article")];
const current = () => document.activeElement?.closest("#rows > article");

function move(step) {
  const all = entries();
  const at = all.indexOf(current());
  const seen = at >= 0 ? at + step : all.length - 1;
  const next = all[Math.max(0, Math.min(all.length - 1, seen))];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

/** Letters act on the message that has the focus, and on nothing else. */
function press(selector) {
  current()?.querySelector(selector)?.click();
}

// The panel is a column that can be hidden, or a sheet; a sheet must not stay open when it becomes a column.

const PANEL = "parley-panel-off";
const panel = document.getElementById("panel");
const hasColumn = matchMedia("(min-width: 68.76rem)");

function togglePanel() {
  if (!panel) return;
  if (!hasColumn.matches) {
    panel.togglePopover();
    return;
  }
  const isOff = document.documentElement.toggleAttribute("data-panel-off");
  if (isOff) localStorage.setItem(PANEL, "yes");
  else localStorage.removeItem(PANEL);
}

/** Who read the session is at the end of the panel. */
function showReadings() {
  if (!hasColumn.matches) panel?.showPopover();
  else if (document.documentElement.hasAttribute("data-panel-off")) togglePanel();
  document.getElementById("who-read")?.scrollIntoView({ block: "center" });
}

document.documentElement.toggleAttribute("data-panel-off", Boolean(localStorage.getItem(PANEL)));
hasColumn.addEventListener("change", () => panel?.hidePopover());
matchMedia("(min-width: 45.01rem)").addEventListener("change", () => document.getElementById("sidebar")?.hidePopover());

// Single keys, outside text boxes

function writeOrSearch() {
  const field = document.querySelector("#composer-text, main input[type=search], #searchbar") ?? document.getElementById("sidebar-words");
  field?.focus();
}

const ACTIONS = {
  "?": () => dialog.showModal(),
  "/": writeOrSearch,
  j: () => move(1),
  k: () => move(-1),
  c: () => press("[data-copy]"),
  e: () => press("[data-edit]"),
  i: togglePanel,
  G: () => document.getElementById("to-end")?.click(),
};

// With Alt, also inside text boxes. On a Mac, Alt writes letters there.

const WITH_ALT = {
  KeyN: () => location.assign("/"),
  KeyR: () => (current() ?? entries().at(-1))?.querySelector("[data-again]")?.click(),
};

function isWriting(element) {
  return element.isContentEditable || element.matches("input, textarea, select") || element.closest("dialog, [popover]:popover-open");
}

function actionOf(event) {
  const { target, key, code } = event;
  const plain = !event.ctrlKey && !event.metaKey;
  if (key === "/" && !plain && !event.altKey) return () => dialog.open || dialog.showModal();
  if (event.altKey) return plain && !event.shiftKey && !(isMac && isWriting(target)) ? WITH_ALT[code] : null;
  return plain && !isWriting(target) && !localStorage.getItem(OFF) ? ACTIONS[key] : null;
}

document.addEventListener("keydown", (event) => {
  if (!(event.target instanceof Element) || event.isComposing || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  const action = actionOf(event);
  if (!action) return;
  event.preventDefault();
  action();
});

// Esc stops the answer from anywhere on the page, unless there is something to close or to clear first.

const OPEN = "dialog[open], :popover-open, details.menu[open], #commands:not([hidden])";

function closesSomething({ target }) {
  if (document.querySelector(OPEN)) return true;
  return Boolean(target.closest?.("form.edit, .sidebar-rename") || (target.matches?.("input[type=search]") && target.value));
}

document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || event.isComposing || event.keyCode === 229 || closesSomething(event)) return;
    const stop = document.querySelector("#composer-actions .stop");
    if (!stop) return;
    event.preventDefault();
    stop.click();
  },
  { capture: true }, // before other listeners close something
);

// A menu closes after a choice, a click elsewhere, or Esc.

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target) || event.target.closest(".menu-items")) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    if (menu.contains(event.target)) menu.querySelector("summary").focus();
  }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-keys]")) dialog.showModal();
  if (event.target.closest("[data-panel]")) togglePanel();
  if (event.target.closest("[data-readings]")) showReadings();
  if (event.target === dialog || event.target.closest("#keys [data-close]")) dialog.close();
});

single.checked = !localStorage.getItem(OFF);
single.addEventListener("change", () => {
  if (single.checked) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "yes");
});
