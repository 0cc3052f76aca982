// List of commands: a slash at the beginning opens it, typing narrows it.

const text = document.getElementById("composer-text");
const list = document.getElementById("commands");
const options = list ? [...list.querySelectorAll("[role=option]")] : [];

const open = () => options.filter((option) => !option.hidden);
const picked = () => options.find((option) => option.getAttribute("aria-selected") === "true");

function pick(option) {
  for (const other of options) other.setAttribute("aria-selected", String(other === option));
  if (option) text.setAttribute("aria-activedescendant", option.id);
  else text.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function close() {
  list.hidden = true;
  pick(null);
}

function narrow() {
  const typed = /^[/／]([\w-]*)$/.exec(text.value);
  if (!typed) {
    close();
    return;
  }
  for (const option of options) option.hidden = !option.dataset.name.startsWith(typed[1].toLowerCase());
  list.hidden = !open().length;
  pick(open()[0] ?? null);
}

function choose(option) {
  text.value = `/${option.dataset.name} `;
  close();
  text.focus();
  text.dispatchEvent(new Event("input"));
}

function pressed(event) {
  if (list.hidden || event.isComposing) return;
  const shown = open();
  const at = shown.indexOf(picked());
  if (event.key === "ArrowDown") pick(shown[(at + 1) % shown.length]);
  else if (event.key === "ArrowUp") pick(shown[(at - 1 + shown.length) % shown.length]);
  else if (event.key === "Escape") close();
  else if (event.key === "Tab" || (event.key === "Enter" && isHalfTyped())) choose(picked());
  else return;
  event.preventDefault();
}

/** A command that is written out is sent by Enter like anything else. */
function isHalfTyped() {
  return text.value.slice(1) !== picked()?.dataset.name;
}

if (list && text) {
  text.addEventListener("input", narrow);
  text.addEventListener("blur", () => setTimeout(close, 100));
  text.addEventListener("keydown", pressed, { capture: true });
  document.addEventListener("parley:sent", close);
  list.addEventListener("mousedown", (event) => {
    const option = event.target.closest("[role=option]");
    if (!option) return;
    event.preventDefault();
    choose(option);
  });
}
