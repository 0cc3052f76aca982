// Failed requests of htmx: the page says what happened and what to do. A refresh that the page starts by itself fails
// silently, because the next one follows.

const problem = document.getElementById("request-problem");
const BY_USER = new Set(["click", "submit", "change", "input", "keydown", "search"]);

/** @param {"" | "network" | "signed-out" | "gone" | "refused" | "failed"} what */
function show(what) {
  problem.hidden = !what;
  for (const text of problem.querySelectorAll("[data-when]")) text.hidden = text.dataset.when !== what;
}

function isByUser({ detail }) {
  const cause = detail.requestConfig?.triggeringEvent;
  return Boolean(cause && BY_USER.has(cause.type));
}

function whatHappened({ status }) {
  if (status === 401) return "signed-out";
  if (status === 404 || status === 410) return "gone";
  return status < 500 ? "refused" : "failed";
}

/** A request after the sign-in has ended is redirected to the sign-in page, which must not land inside this page. */
function isSignInPage(xhr) {
  return xhr.responseURL && new URL(xhr.responseURL).pathname === problem.dataset.signIn;
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (!isSignInPage(event.detail.xhr) || location.pathname === problem.dataset.signIn) return;
  event.detail.shouldSwap = false;
  show("signed-out");
});
document.addEventListener("htmx:responseError", (event) => isByUser(event) && show(whatHappened(event.detail.xhr)));
document.addEventListener("htmx:sendError", (event) => isByUser(event) && show("network"));
document.addEventListener("htmx:timeout", (event) => isByUser(event) && show("network"));
document.addEventListener("htmx:beforeRequest", (event) => isByUser(event) && show(""));
problem.querySelector("button").addEventListener("click", () => show(""));
