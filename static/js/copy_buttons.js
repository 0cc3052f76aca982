// Copy buttons: each copies the field or the code block beside it.

const DONE = 1_600;

/** Selects the text first, so that it can still be copied by hand where the browser refuses. */
async function copy(source) {
  if (source.matches("input, textarea")) source.select();
  else window.getSelection().selectAllChildren(source);
  // Browsers offer the clipboard on https and localhost only.
  if (navigator.clipboard && window.isSecureContext) await navigator.clipboard.writeText(source.value ?? source.textContent);
  else document.execCommand("copy");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy-beside]");
  if (!button) return;
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  await copy(button.parentElement.querySelector("input, pre"));
  button.textContent = button.dataset.copied;
  setTimeout(() => {
    button.textContent = label;
  }, DONE);
});
