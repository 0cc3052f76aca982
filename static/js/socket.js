// The page's websocket: address, messages and connection state.

const EVERY = 20_000; // milliseconds between two pings
const PATIENCE = 10_000; // milliseconds to wait for the pong
const PANEL_EVERY = 1_000; // milliseconds; a program may store many entries a second
const COMES_BACK = [1006, 1011, 1012, 1013]; // close codes after which the extension reconnects
const SIGNED_OUT = 4401;

const chat = document.getElementById("chat");
const line = document.getElementById("connection");
const panel = document.getElementById("panel");

let socket = null;
let wrapper = null; // the extension's handle of the current socket
let wasOpen = false;
let ended = ""; // why the page will not reconnect; drafts stay in the text box
let pressedEarly = null; // a button that was clicked before the socket was open
let isStale = false; // the live answer on the page is from before the connection was lost
let heardAt = 0;
let waiting = 0;
let tries = 0;
let panelTimer = 0;
let panelAt = 0;
let focused = null; // the focused element before a message or panel was swapped in

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
  // The line under the conversation shows a lost network; keep it out of the console.
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

// Connection state

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
  // 4000 to 4099: the server restarts, the database is down or this page read too slowly.
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
  // The first frames after a pause are complete; older live content is outdated.
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

// Commands

const sent = new WeakSet();

function aboutToSend(event) {
  const { detail } = event;
  const cause = detail.triggeringEvent;
  // The extension may find an element twice and would send twice.
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
  // Without any socket the form is sent as a normal request. Otherwise it waits: sent twice it would be two messages.
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

// On a phone the panel covers the conversation: close it to show the result.

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
