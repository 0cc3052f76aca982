// The message form: Enter sends, except when it ends a word of an input method. Drafts survive a reload.

const composer = document.getElementById("composer");
const text = document.getElementById("composer-text");
const files = document.getElementById("composer-files");
const problem = document.getElementById("composer-problem");
const byTouch = matchMedia("(hover: none) and (pointer: coarse)");

let lastSent = null; // { text, files, after }: restored if the server refuses it

/** @param {KeyboardEvent} event */
function endsComposition(event) {
  // Safari ends the composition before the key event, which has only this number.
  return event.isComposing || event.keyCode === 229;
}

document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (!field.matches?.("#composer-text, textarea[data-enter]") || endsComposition(event) || event.defaultPrevented) return;
  const plain = !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
  const asked = event.ctrlKey || event.metaKey;
  if (event.key === "Enter" && (asked || (plain && !byTouch.matches))) {
    event.preventDefault();
    field.form.requestSubmit();
  }
});

// Drafts

const key = (session) => `parley-draft-${session}`;

function keep() {
  const name = key(composer.dataset.session);
  if (text.value) localStorage.setItem(name, text.value);
  else localStorage.removeItem(name);
}

function put(words) {
  text.value = words;
  grow();
  keep();
}

function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

function restoreDraft() {
  const here = composer.dataset.session;
  if (here !== "new" && sessionStorage.getItem("parley-begun")) {
    sessionStorage.removeItem("parley-begun");
    localStorage.removeItem(key("new"));
  }
  // A message sent without the socket comes back with the page; a draft of it would be sent twice.
  const posted = sessionStorage.getItem("parley-posted");
  if (posted) localStorage.removeItem(posted);
  sessionStorage.removeItem("parley-posted");
  if (!text.value) put(localStorage.getItem(key(here)) ?? "");
}

// Sending

function hasSomething() {
  return Boolean(text.value.trim() || composer.querySelector("[name=attachment]"));
}

function isUploading() {
  return Boolean(composer.querySelector(".htmx-request"));
}

/** A file that was not accepted is part of what the person wants to send: it is removed by them, not by us. */
function tellRefusedFile() {
  const refused = files.querySelector(".chip.refused");
  problem.hidden = !refused;
  problem.textContent = refused ? problem.dataset.words : "";
  refused?.querySelector("[data-remove]").focus();
  return Boolean(refused);
}

function submitted(event) {
  const waitsForFiles = isUploading();
  if (waitsForFiles || !hasSomething() || tellRefusedFile()) {
    event.preventDefault();
    event.stopImmediatePropagation();
    composer.toggleAttribute("data-waits-for-files", waitsForFiles);
    if (problem.hidden) text.focus();
    return;
  }
  if (composer.hasAttribute("ws-send")) return;
  if (composer.dataset.isSent) event.preventDefault();
  composer.dataset.isSent = "yes";
  sessionStorage.setItem("parley-begun", "yes");
}

function sent(event) {
  if (event.target !== composer) return;
  lastSent = { text: text.value, files: [...files.children], after: document.getElementById("composer-after")?.value };
  files.replaceChildren();
  put("");
  document.dispatchEvent(new CustomEvent("parley:sent"));
}

/** What waited for its files is sent as soon as they are there. */
function uploaded() {
  if (!composer.hasAttribute("data-waits-for-files")) return;
  composer.removeAttribute("data-waits-for-files");
  composer.requestSubmit();
}

/** Refused: text and files go back into the box, unless something else is there already. */
function answered() {
  if (!lastSent) return;
  const isRefused = document.querySelector("#notices .error");
  if (isRefused && !text.value) put(lastSent.text);
  if (isRefused && !files.children.length) files.append(...lastSent.files);
  if (isRefused || document.getElementById("composer-after")?.value !== lastSent.after) lastSent = null;
}

// Keys in the text box

function pressed(event) {
  if (endsComposition(event) || event.defaultPrevented) return;
  if (event.key === "ArrowUp" && !text.value) {
    const edit = [...document.querySelectorAll("#rows .you [data-edit]")].at(-1);
    if (!edit) return;
    event.preventDefault();
    edit.click();
  } else if (event.key === "Escape") {
    // Nothing to stop and nothing to close (keyboard.js): move to the messages, where J and K work.
    const last = [...document.querySelectorAll("#rows > article")].at(-1);
    last?.focus({ preventScroll: true });
  }
}

// Focus: a session page opens in the text box, and every send returns there. On a touch screen that would open the
// keyboard over the answer.

function focusText() {
  if (!byTouch.matches) text.focus({ preventScroll: true });
}

/** A link to a message gives the focus to that message, where letters are shortcuts and not text. */
function focusAtStart() {
  if (document.activeElement.matches("body, :target")) focusText();
}

/** Summarising is started in the panel, where its button says how it goes. */
function returnAfterSend(event) {
  if (event.target.id !== "compress") focusText();
}

if (composer) {
  restoreDraft();
  focusAtStart();
  window.addEventListener("load", focusAtStart);
  document.addEventListener("htmx:wsAfterSend", returnAfterSend);
  document.addEventListener("parley:focus-lost", focusText);
  text.addEventListener("input", () => {
    grow();
    keep();
  });
  text.addEventListener("keydown", pressed);
  // Before htmx: an empty form is not sent.
  composer.addEventListener("submit", submitted, { capture: true });
  document.addEventListener("htmx:wsAfterSend", sent);
  document.addEventListener("parley:files-changed", () => {
    if (!files.querySelector(".chip.refused")) problem.hidden = true;
    focusText();
    uploaded();
  });
  document.addEventListener("parley:posted", () => sessionStorage.setItem("parley-posted", key(composer.dataset.session)));
  document.addEventListener("htmx:wsAfterMessage", answered);
  window.addEventListener("pageshow", () => delete composer.dataset.isSent);
}
