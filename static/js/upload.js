// Attachments: selected, pasted or dropped files go into the file field, which htmx sends.

const field = document.getElementById("composer-pick");
const chat = document.getElementById("chat");
let depth = 0; // number of entered elements that were not left yet

function attach(files) {
  if (!files.length) return false;
  const list = new DataTransfer();
  for (const file of files) list.items.add(file);
  field.files = list.files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}

/** Later than htmx, which marks the field until its request is over. */
function changed() {
  setTimeout(() => document.dispatchEvent(new CustomEvent("parley:files-changed")));
}

/** Files that did not arrive, or whose upload the server refused as a whole. */
function showRefused(files) {
  for (const file of files) {
    const chip = document.getElementById("refused-file").content.cloneNode(true);
    chip.querySelector(".chip-name").textContent = file.name;
    document.getElementById("composer-files").append(chip);
  }
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

function over(step) {
  depth = Math.max(0, depth + step);
  chat.toggleAttribute("data-drop", depth > 0);
}

if (field) {
  document.addEventListener("paste", (event) => {
    if (event.target.closest?.("#composer") && attach(event.clipboardData.files)) event.preventDefault();
  });
  chat.addEventListener("dragenter", (event) => hasFiles(event) && over(1));
  chat.addEventListener("dragleave", (event) => hasFiles(event) && over(-1));
  chat.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  chat.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(-depth);
    attach(event.dataTransfer.files);
  });
  field.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful) showRefused(field.files);
    field.value = "";
  });
  // After the swap, when the chips exist.
  field.addEventListener("htmx:afterOnLoad", changed);
  field.addEventListener("htmx:sendError", changed);
  field.addEventListener("htmx:responseError", changed);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-remove]")) return;
    event.target.closest(".chip").remove();
    changed();
  });
}
