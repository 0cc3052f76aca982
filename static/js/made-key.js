// A key that was just made: one press copies it.

for (const button of document.querySelectorAll("[data-copy-value]")) {
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copyValue);
    field.select();
    // Without https a browser has no clipboard of its own to offer.
    await (navigator.clipboard?.writeText(field.value) ?? document.execCommand("copy"));
    button.textContent = button.dataset.copied;
  });
}
