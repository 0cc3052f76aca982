// Updates for pages with a list of sessions and no conversation: sends `parley:sessions-changed` when a session has changed,
// at most once a second. A hidden page gets it once, when it is shown. The list decides what to do.

const EVERY = 1_000; // milliseconds; a program may store many entries a second
const LONGEST = 30_000; // milliseconds between two attempts to connect
let tries = 0;
let again = 0; // timer of the next attempt
let timer = 0;
let toldAt = 0;
let hasNews = false;

function tell() {
  hasNews = true;
  if (document.hidden) return;
  timer ||= setTimeout(
    () => {
      timer = 0;
      if (document.hidden) return;
      hasNews = false;
      toldAt = Date.now();
      document.dispatchEvent(new CustomEvent("parley:sessions-changed"));
    },
    Math.max(0, toldAt + EVERY - Date.now()),
  );
}

function connect() {
  clearTimeout(again);
  again = 0;
  const socket = new WebSocket(new URL("/ws/lists/", location.href.replace(/^http/, "ws")));
  socket.onmessage = tell;
  socket.onopen = () => {
    if (tries) tell(); // for changes made meanwhile
    tries = 0;
    document.documentElement.dataset.listUpdates = "open";
  };
  socket.onclose = ({ code }) => {
    delete document.documentElement.dataset.listUpdates;
    if (code >= 4100) return; // the user is signed out: connecting again is useless
    again = setTimeout(connect, Math.min(LONGEST, 500 * 2 ** tries++) * (0.5 + Math.random() / 2));
  };
}

function hurry() {
  if (again) connect();
}

window.addEventListener("online", hurry);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  hurry();
  if (hasNews) tell();
});
connect();
