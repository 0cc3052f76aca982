// Ctrl+K or Cmd+K on every page: a text box with a list of sessions, messages and pages. Focus stays in the box; the
// arrow keys move in the list, a listbox for screen readers.

const palette = document.getElementById("palette");
const box = document.getElementById("palette-words");
const options = () => [...palette.querySelectorAll("a[role=option]")];
const chosen = () => palette.querySelector("[aria-selected=true]");

let requested = ""; // the words of the latest request
let isFresh = false; // the list shows the results for the text in the box
let opensWhenFresh = false; // Enter was pressed before the list was there

function open() {
  isFresh = opensWhenFresh = false;
  palette.showModal();
  box.select();
  htmx.trigger(box, "palette:open");
}

function choose(option) {
  chosen()?.setAttribute("aria-selected", "false");
  option?.setAttribute("aria-selected", "true");
  option?.scrollIntoView({ block: "nearest" });
  if (option) box.setAttribute("aria-activedescendant", option.id);
  else box.removeAttribute("aria-activedescendant");
}

function step(by) {
  const all = options();
  if (all.length) choose(all[(all.indexOf(chosen()) + by + all.length) % all.length]);
}

document.addEventListener("keydown", (event) => {
  const isOurs = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  if (!isOurs) return;
  event.preventDefault();
  if (palette.open) palette.close();
  else if (!document.querySelector("dialog[open]")) open();
});

box.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) step(steps[event.key]);
  else if (event.key === "Enter") openChosen();
  else return;
  event.preventDefault();
});

/** A person who types quickly presses Enter before the list follows: what is open then belongs to other words. */
function openChosen() {
  if (isFresh) chosen()?.click();
  else opensWhenFresh = true;
}

box.addEventListener("input", () => (isFresh = opensWhenFresh = false));
box.addEventListener("htmx:configRequest", () => (requested = box.value));
palette.addEventListener("htmx:afterSettle", () => {
  choose(options()[0]);
  isFresh = requested === box.value;
  if (isFresh && opensWhenFresh) openChosen();
});
palette.addEventListener("close", () => (opensWhenFresh = false));

// A link to an entry of the current page does not load a page, so the palette is closed here.
palette.addEventListener("click", (event) => {
  if (event.target.closest("a[role=option]")) palette.close();
});

if (/Mac|iPhone|iPad/.test(navigator.platform)) {
  for (const hint of document.querySelectorAll("[data-palette-keys]")) hint.textContent = "⌘ K";
  for (const key of document.querySelectorAll("[data-command]")) key.textContent = "⌘";
}
