// Import: files are sent in pieces, so that one sees how far it is and a break costs one piece. Without this script the
// form sends them all at once.

const form = document.getElementById("import-form");
const field = document.getElementById("import-files");
const zone = document.getElementById("drop-zone");
const progress = document.getElementById("import-progress");
const problem = document.getElementById("import-problem");
const TRIES = 5;
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

function post(address, body, headers = {}) {
  const token = form.elements.csrfmiddlewaretoken.value;
  return fetch(address, { method: "POST", body, headers: { "X-CSRFToken": token, ...headers } });
}

// A piece that did not arrive is sent again; the answer says how much of the file is there.
async function sendPiece(address, file, offset) {
  const size = Number(form.dataset.piece);
  for (let tried = 0; ; tried += 1) {
    try {
      const piece = file.slice(offset, offset + size);
      const answer = await post(`${address}?offset=${offset}`, piece, { "Content-Type": "application/octet-stream" });
      if (answer.ok || answer.status === 409) return (await answer.json()).size;
      if (answer.status < 500) throw new Error((await answer.json()).error);
    } catch (error) {
      if (!(error instanceof TypeError) || tried >= TRIES) throw error;
    }
    if (tried >= TRIES) throw new TypeError();
    await pause(500 * 2 ** tried);
  }
}

async function sendAll(files) {
  const named = new FormData();
  for (const file of files) {
    named.append("name", file.name);
    named.append("size", file.size);
  }
  const begun = await post(form.dataset.begin, named);
  const job = await begun.json();
  if (!begun.ok) throw new Error(job.error);
  const total = files.reduce((sum, file) => sum + file.size, 0);
  let before = 0;
  for (const [place, file] of files.entries()) {
    for (let sent = 0; sent < file.size; ) {
      sent = await sendPiece(`${job.pieces}${place}/`, file, sent);
      show(before + sent, total);
    }
    before += file.size;
  }
  await post(job.start, new FormData());
  isSending = false;
  location.assign(job.page);
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
    tell(error instanceof TypeError ? form.dataset.failed : error.message || form.dataset.failed);
    isSending = false;
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
