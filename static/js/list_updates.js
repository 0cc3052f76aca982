// For pages that show a list of sessions and no conversation: when one of them has changed, `parley:sessions-changed` is told, at most
// once a second, and to a page that nobody looks at once, when somebody does. What becomes of it is the list's own
// business.

const EVERY = 1_000; // a program may store many entries a second; a list need not keep up with each
const LONGEST = 30_000; // between two tries to connect again
let tries = 0;
let again = 0; // the next of them, while there is none
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
    if (code >= 4100) return; // the user is signed out; below, connecting again helps
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
