// Import: send files in pieces, so that progress is visible and a broken connection costs one piece. Without this script
// the form sends them at once.

const form = document.getElementById("import-form");
const field = document.getElementById("import-files");
const zone = document.getElementById("drop-zone");
const progress = document.getElementById("import-progress");
const problem = document.getElementById("import-problem");
const TRIES = 5;
const LARGEST_PIECE = Number(form.dataset.piece);
const SMALLEST_PIECE = Math.min(64 * 1024, LARGEST_PIECE);
// Pieces grow while one takes less than a second, so that progress is visible on slow connections.
let piece = SMALLEST_PIECE;
let isSending = false;

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function tell(words) {
  problem.textContent = words;
  problem.hidden = !words;
}

function show(sent, total) {
  progress.hidden = false;
  const percent = total ? Math.floor((100 * sent) / total) : 0;
  progress.querySelector("progress").value = percent;
  progress.querySelector("[role=status]").textContent = `${percent} %`;
}

/** An answer that is not success. `message` is what the user reads. */
class Refused extends Error {}

/** A network fault rejects with TypeError. Everything the server answers is read here, so that no answer is ignored. */
async function post(address, { body, headers = {}, accepts = [] } = {}) {
  const token = form.elements.csrfmiddlewaretoken.value;
  const answer = await fetch(address, {
    method: "POST",
    // Some servers reject an empty FormData as a body; a POST without a body works.
    body,
    headers: { "X-CSRFToken": token, Accept: "application/json", ...headers },
  });
  if (answer.status >= 500) throw new TypeError(`status ${answer.status}`);
  const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
  if (!isJson) throw new Refused(answer.redirected ? form.dataset.signedOut : form.dataset.refused);
  const told = await answer.json();
  if (!answer.ok && !accepts.includes(answer.status)) throw new Refused(told.error || form.dataset.refused);
  return told;
}

/** A request that got no answer is sent again after a pause. */
async function postPatiently(address, options) {
  for (let tried = 0; ; tried += 1) {
    try {
      return await post(address, options);
    } catch (error) {
      if (error instanceof Refused || tried >= TRIES) throw error;
    }
    await pause(500 * 2 ** tried);
  }
}

/** 409 says how much of the file has arrived. */
async function sendPiece(address, file, offset) {
  const body = file.slice(offset, offset + piece);
  const headers = { "Content-Type": "application/octet-stream" };
  const began = performance.now();
  const { size } = await postPatiently(`${address}?offset=${offset}`, { body, headers, accepts: [409] });
  const seconds = (performance.now() - began) / 1000;
  if (seconds < 1) piece = Math.min(LARGEST_PIECE, piece * 2);
  else if (seconds > 4) piece = Math.max(SMALLEST_PIECE, piece / 2);
  return size;
}

async function sendAll(files) {
  const named = new FormData();
  for (const file of files) {
    named.append("name", file.name);
    named.append("size", file.size);
  }
  const job = await post(form.dataset.begin, { body: named });
  const total = files.reduce((sum, file) => sum + file.size, 0);
  let before = 0;
  for (const [place, file] of files.entries()) {
    for (let sent = 0; sent < file.size; ) {
      sent = await sendPiece(`${job.pieces}${place}/`, file, sent);
      show(before + sent, total);
    }
    before += file.size;
  }
  const { page } = await postPatiently(job.start);
  isSending = false;
  location.assign(page);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (isSending) return;
  const files = [...field.files];
  tell(files.reduce((sum, file) => sum + file.size, 0) > Number(form.dataset.most) ? form.dataset.tooLarge : "");
  if (!problem.hidden) return;
  isSending = true;
  form.querySelector("button").disabled = true;
  show(0, 1);
  try {
    await sendAll(files);
  } catch (error) {
    tell(error instanceof Refused ? error.message : form.dataset.failed);
    isSending = false;
    progress.hidden = true;
    form.querySelector("button").disabled = false;
  }
});

addEventListener("beforeunload", (event) => isSending && event.preventDefault());

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

zone.addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  zone.toggleAttribute("data-drop", true);
});
zone.addEventListener("dragleave", () => zone.toggleAttribute("data-drop", false));
zone.addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  zone.toggleAttribute("data-drop", false);
  field.files = event.dataTransfer.files;
});
