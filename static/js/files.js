// Attachments: picked, pasted or dropped, they all end in the file field, which htmx sends by itself.

const field = document.getElementById("composer-pick");
const chat = document.getElementById("chat");
let depth = 0; // every element that is entered is also left

function attach(files) {
  if (!files.length) return false;
  const list = new DataTransfer();
  for (const file of files) list.items.add(file);
  field.files = list.files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
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
  field.addEventListener("htmx:afterRequest", () => {
    field.value = "";
    document.dispatchEvent(new CustomEvent("parley:focus-lost"));
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-remove]")) return;
    event.target.closest(".chip").remove();
    document.dispatchEvent(new CustomEvent("parley:focus-lost"));
  });
}
