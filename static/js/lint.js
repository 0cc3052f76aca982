// A button that copies the repaired version; without a script there is none, and the text can be selected.

const DONE = 1_600;

/** Works on plain http too, where browsers keep the newer clipboard to themselves. */
async function copy(shown) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(shown.textContent);
    return;
  }
  window.getSelection().selectAllChildren(shown);
  document.execCommand("copy");
  window.getSelection().removeAllRanges();
}

for (const button of document.querySelectorAll("[data-copy-json]")) {
  const words = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await copy(button.parentElement.querySelector("pre"));
    button.textContent = button.dataset.copied;
    setTimeout(() => {
      button.textContent = words;
    }, DONE);
  });
}
