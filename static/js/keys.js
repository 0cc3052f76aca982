// One key each for what one does most, as long as nobody is writing; people who talk to their computer can switch it off.

const OFF = "parley-keys-off";
const dialog = document.getElementById("keys");
const single = document.getElementById("keys-single");

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

function press(selector) {
  (current() ?? entries().at(-1))?.querySelector(selector)?.click();
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

document.documentElement.toggleAttribute("data-panel-off", Boolean(localStorage.getItem(PANEL)));
hasColumn.addEventListener("change", () => panel?.hidePopover());
matchMedia("(min-width: 45.01rem)").addEventListener("change", () => document.getElementById("rail")?.hidePopover());

const ACTIONS = {
  "?": () => dialog?.showModal(),
  "/": () => document.getElementById("composer-text")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  c: () => press("[data-copy]"),
  e: () => press("[data-edit]"),
  r: () => press("[data-again]"),
  n: () => location.assign("/"),
  i: togglePanel,
  G: () => document.getElementById("to-end")?.click(),
};

function isWriting(element) {
  return element.isContentEditable || element.matches("input, textarea, select") || element.closest("dialog, [popover]:popover-open");
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (!(target instanceof Element) || isWriting(target) || localStorage.getItem(OFF)) return;
  const action = ACTIONS[key];
  if (!action) return;
  event.preventDefault();
  action();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-keys]")) dialog?.showModal();
  if (event.target.closest("[data-panel]")) togglePanel();
  if (event.target === dialog || event.target.closest("[data-close]")) dialog?.close();
});

if (single) {
  single.checked = !localStorage.getItem(OFF);
  single.addEventListener("change", () => {
    if (single.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "yes");
  });
}
