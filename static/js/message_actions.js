// Actions of a message: copy it or its code, edit it, answer a question.

const DONE = 1_600; // milliseconds for which a button shows that it has copied

/** Works on plain http too, where browsers keep the newer clipboard to themselves. */
async function copy(words) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(words);
    return;
  }
  const box = document.createElement("textarea");
  box.value = words;
  box.className = "visually-hidden";
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

async function wordsOf(button) {
  const entry = button.closest(".entry");
  const seen = () => [...(entry ?? document).querySelectorAll(".prose")].map((part) => part.innerText).join("\n\n");
  try {
    const response = await fetch(button.dataset.copy);
    return response.ok && !response.redirected ? await response.text() : seen();
  } catch {
    return seen();
  }
}

async function copyFrom(button) {
  const code = button.closest(".code")?.querySelector("pre");
  await copy(code ? code.innerText.replace(/\n$/, "") : await wordsOf(button));
  const use = button.querySelector("use");
  const [sprite] = use.getAttribute("href").split("#");
  button.dataset.done = "";
  use.setAttribute("href", `${sprite}#check`);
  setTimeout(() => {
    delete button.dataset.done;
    use.setAttribute("href", `${sprite}#copy`);
  }, DONE);
}

/** A button for each piece of code; the words on it come with the page. */
function addCopyButtons(root) {
  const template = document.getElementById("copy-code");
  if (!template) return;
  for (const head of root.querySelectorAll(".code-head:not(:has(button))")) {
    if (!head.closest(".live")) head.append(template.content.cloneNode(true));
  }
}

function dismiss(form) {
  const entry = form.closest(".entry");
  form.remove();
  entry?.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.matches("[data-copy], [data-copy-code]")) copyFrom(button);
  else if (button.matches("[data-dismiss]")) dismiss(button.form);
  else if (button.matches("[data-choice]")) {
    const form = button.closest("form");
    form.elements.text.value = button.textContent;
    form.requestSubmit();
  } else if (button.matches("[data-change-model]")) {
    const picker = document.getElementById("composer-model");
    picker?.focus();
    picker?.showPicker?.();
  }
});

document.addEventListener("keydown", (event) => {
  const form = event.target.closest?.("form.edit");
  if (form && event.key === "Escape" && !event.isComposing) dismiss(form);
});

// An entry has one edit form at a time.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.matches("[data-edit]") && event.target.closest(".entry")?.querySelector("form.edit")) {
    event.preventDefault();
  }
});
document.addEventListener("htmx:afterSwap", (event) => event.target.querySelector?.("form.edit textarea")?.focus());
document.addEventListener("htmx:wsAfterSend", (event) => {
  if (event.target.matches("form.edit")) event.target.remove();
});

document.addEventListener("htmx:load", (event) => addCopyButtons(event.detail.elt));
addCopyButtons(document);
