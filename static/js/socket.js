// The page's socket: where it leads, what goes over it, and whether it still lives.

const EVERY = 20_000; // from one sign of life to the next
const PATIENCE = 10_000; // for the answer to it
const PANEL_EVERY = 1_000; // a program may store many entries a second; the panel need not keep up with each
const COMES_BACK = [1006, 1011, 1012, 1013]; // close codes after which the extension connects again by itself
const SIGNED_OUT = 4401;

const chat = document.getElementById("chat");
const line = document.getElementById("connection");
const panel = document.getElementById("panel");

let socket = null;
let wrapper = null; // the extension's handle on whichever socket is the current one
let wasOpen = false;
let ended = ""; // why there will be no connection any more: what is written stays in the text box
let pressedEarly = null; // a button of the conversation, before there was a connection
let isStale = false; // what is live on the page is from before the connection was lost
let heardAt = 0;
let waiting = 0;
let tries = 0;
let panelTimer = 0;
let panelAt = 0;
let focused = null; // where the person was before a message or another panel came

Idiomorph.defaults.ignoreActiveValue = true;
// Unfolded parts stay unfolded. The summary line that was clicked is not an input field.
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => name !== "open" || node.localName !== "details";
Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => {
  if (old.localName === "summary" && old === document.activeElement) old.innerHTML = fresh.innerHTML;
};
htmx.config.wsReconnectDelay = delay;
htmx.createWebSocket = connect;

function delay(tries) {
  return Math.min(8_000, 500 * 2 ** tries) * (0.5 + Math.random() / 2);
}

function connect(address) {
  const target = new URL(address);
  target.searchParams.set("shown", lastShown() ?? target.searchParams.get("shown") ?? "");
  socket = new WebSocket(target);
  // A lost network is no fault of the page: the line under the conversation says it, the console need not.
  Object.defineProperty(socket, "onerror", { set() {} });
  return socket;
}

function lastShown() {
  const numbers = [...document.querySelectorAll("#rows > [id^=m]")].map((row) => Number(row.id.slice(1)));
  return numbers.length ? Math.max(...numbers.filter(Number.isFinite)) : null;
}

function isOpen() {
  return socket?.readyState === WebSocket.OPEN;
}

/** @param {"" | "away" | "waiting" | "over" | "signed-out"} state */
function show(state) {
  if (!line) return;
  line.hidden = !state;
  for (const words of line.querySelectorAll("[class^=when-]")) words.hidden = words.className !== `when-${state}`;
}

// Life

function beat() {
  if (!isOpen() || waiting) return;
  socket.send(JSON.stringify({ type: "ping" }));
  const asked = Date.now();
  waiting = setTimeout(() => {
    waiting = 0;
    if (heardAt < asked) replace();
  }, PATIENCE);
}

/** A socket whose other end vanished without a word stays "open" for minutes. */
function replace() {
  if (!wrapper) return;
  socket.onclose = null;
  socket.close();
  lost("away");
  wrapper.reconnect();
}

function lost(state) {
  clearTimeout(waiting);
  waiting = 0;
  isStale = true;
  show(state);
}

function opened(event) {
  wrapper = event.detail.socketWrapper;
  wasOpen = true;
  tries = 0;
  heardAt = Date.now();
  show("");
  document.dispatchEvent(new CustomEvent("parley:open"));
}

function closed(event) {
  const { code } = event.detail.event;
  // 4000 to 4099: the server restarts, the database is away or this page read too slowly.
  if (code >= 4100) {
    ended = code === SIGNED_OUT ? "signed-out" : "over";
    lost(ended);
    return;
  }
  lost(document.querySelector("#composer[data-waiting]") ? "waiting" : "away");
  if (!COMES_BACK.includes(code)) setTimeout(() => wrapper?.reconnect(), delay(tries++));
}

function heard() {
  heardAt = Date.now();
  noteFocus();
  if (isOpen()) show("");
  // What the server sends first after a pause is all that is going on; what we had of it is out of date.
  if (isStale) for (const row of document.querySelectorAll("#rows > .live")) row.remove();
  isStale = false;
}

function noteFocus() {
  focused = document.activeElement;
}

/** An element that a message replaces passes the focus on to its successor; one that is gone, to the text box. */
function keepFocus() {
  const isLost = document.activeElement === document.body && focused && focused !== document.body;
  if (!isLost) return;
  const successor = focused.id && document.getElementById(focused.id);
  if (successor) successor.focus();
  else document.dispatchEvent(new CustomEvent("parley:focus-lost"));
}

function followed() {
  const go = document.getElementById("go");
  if (go?.hasAttribute("href")) location.assign(go.href);
}

// Stored entries and the end of an answer change the panel. The end is announced once.

const STORED = / id="(?:announcer|m\d+)"/;

function refreshPanel(event) {
  if (panelTimer || !STORED.test(event.detail.message)) return;
  panelTimer = setTimeout(
    () => {
      panelTimer = 0;
      panelAt = Date.now();
      htmx.trigger("#panel", "panel:stale");
    },
    Math.max(0, panelAt + PANEL_EVERY - Date.now()),
  );
}

// Intents

const sent = new WeakSet();

function aboutToSend(event) {
  const { detail } = event;
  const cause = detail.triggeringEvent;
  // An element may be found twice by the extension, and would say everything twice.
  if (cause && sent.has(cause)) {
    event.preventDefault();
    return;
  }
  if (cause) sent.add(cause);
  detail.headers = null;
  delete detail.parameters.csrfmiddlewaretoken;
  const model = document.getElementById("composer-model");
  if (model && ["regenerate", "continue"].includes(detail.parameters.type)) detail.parameters.model = model.value;
  if ("attachment" in detail.parameters) detail.parameters.attachment = [detail.parameters.attachment].flat();
  if (isOpen()) return;
  event.preventDefault();
  if (ended) {
    show(ended);
    return;
  }
  const isMessage = event.target.id === "composer";
  // Where there never was a socket, the form goes the plain way. Else it waits: sent twice it would be two messages.
  if (!wasOpen && event.target.matches("form[action]")) {
    if (isMessage) document.dispatchEvent(new CustomEvent("parley:posted"));
    event.target.submit();
  } else if (isMessage) event.target.dataset.waiting = "";
  else if (!wasOpen) pressedEarly = event.target;
  show(isMessage ? "waiting" : "away");
}

function sendWhatWaits() {
  if (pressedEarly?.localName === "form") pressedEarly.requestSubmit();
  else pressedEarly?.click();
  pressedEarly = null;
  const composer = document.querySelector("#composer[data-waiting]");
  if (!composer) return;
  delete composer.dataset.waiting;
  composer.requestSubmit();
}

// On a phone the panel lies over the conversation, where one sees what becomes of it.

function uncover() {
  if (panel.matches(":popover-open")) panel.hidePopover();
}

if (chat?.hasAttribute("ws-connect")) {
  document.getElementById("compress").addEventListener("submit", uncover);
  chat.addEventListener("htmx:wsOpen", opened);
  chat.addEventListener("htmx:wsClose", closed);
  chat.addEventListener("htmx:wsBeforeMessage", heard);
  chat.addEventListener("htmx:wsAfterMessage", keepFocus);
  chat.addEventListener("htmx:wsAfterMessage", followed);
  chat.addEventListener("htmx:wsAfterMessage", refreshPanel);
  chat.addEventListener("htmx:wsConfigSend", aboutToSend);
  panel.addEventListener("htmx:beforeSwap", noteFocus);
  panel.addEventListener("htmx:afterSwap", keepFocus);
  document.addEventListener("parley:open", sendWhatWaits);
  setInterval(beat, EVERY);
  window.addEventListener("online", beat);
  window.addEventListener("offline", () => ended || show("away"));
  document.addEventListener("visibilitychange", () => document.hidden || beat());
}
