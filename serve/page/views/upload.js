// Adds files to the index, if the server accepts them. They can be dropped anywhere on the page, or chosen in a dialog. Up to four are sent at a time,
// so that the server can index them together; a panel shows how many are done, and why any were refused.

import { ResponseError, sentence, upload } from "../shared/api.js";
import { button, byId, count, el, withCode } from "../shared/dom.js";

/** The event that is dispatched to the window after the collection has changed. */
export const COLLECTION_CHANGED = "collection-changed";
const PARALLEL_UPLOADS = 4;
const REASONS = {
  bad_extension: "this kind of file cannot be read; text, Markdown, HTML, PDF, Office, EPUB, e-mail, CSV, notebooks and source code can",
  being_written: "the index is busy with other changes; try again in a minute",
  empty_document: "it has no text",
  not_allowed: "your key may not add documents",
  not_yours: "your key may not add documents with this name",
  read_only: "this server does not accept documents",
  too_long_body: "it is too large for this server",
};
const queue = { waiting: [], running: 0, total: 0, done: 0 };
let accepted = false;
let panel = null;

/** Set whether the server accepts documents. */
export const setAcceptsDocuments = (accepts) => {
  accepted = accepts;
};

/** Whether the server accepts documents; if so, readers can also delete them. */
export const acceptsDocuments = () => accepted;

/** A button that opens the browser's file picker; "" if the server accepts no documents. */
export function uploadButton() {
  if (!accepted) return "";
  const field = el("input", { type: "file", multiple: true, hidden: true, onchange: () => {
    send(Array.from(field.files, withName));
    field.value = "";
  } });
  return el("span", {}, field, button("Add documents", () => field.click(), { class: "primary" }));
}

/** A note on how to add documents to an empty collection. */
export function emptyNote() {
  const note = (text) => el("p", {}, ...withCode(text));
  if (accepted) return el("div", { class: "empty" }, note("This collection is empty. Drop files or folders anywhere on this page, or choose some."), uploadButton());
  return el("div", { class: "empty" }, note("This collection is empty. Documents are added on the server, with `modegraph index FOLDER --out INDEX`, or here if it is started with `--writable`."));
}

/** Upload files dropped anywhere on the page, if the server accepts documents. The browser never opens a dropped file in place of the page. */
export function startUploads() {
  const overlay = byId("drop");
  const withFiles = (listener) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    listener(event);
  };
  addEventListener("dragover", withFiles((event) => {
    event.dataTransfer.dropEffect = accepted ? "copy" : "none";
    overlay.hidden = !accepted;
  }));
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) overlay.hidden = true;
  });
  addEventListener("drop", withFiles(async (event) => {
    overlay.hidden = true;
    if (accepted) send(await droppedFiles(event.dataTransfer));
  }));
}

/** A file with the name that its document will have. */
const withName = (file) => ({ file, name: file.webkitRelativePath || file.name });

/** The dropped files, including those in folders but not hidden ones; if one cannot be read, its `file` is null. */
async function droppedFiles(transfer) {
  const items = Array.from(transfer.items).filter((item) => item.kind === "file");
  const found = await Promise.all(items.map((item) => {
    const entry = item.webkitGetAsEntry?.();
    return entry ? filesIn(entry) : [withName(item.getAsFile())];
  }));
  return found.flat();
}

async function filesIn(entry) {
  if (entry.name.startsWith(".")) return [];
  const name = entry.fullPath.slice(1);
  try {
    if (entry.isFile) return [{ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), name }];
    const reader = entry.createReader();
    const inside = [];
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) break;
      inside.push(...some);
    }
    return (await Promise.all(inside.map(filesIn))).flat();
  } catch {
    return [{ file: null, name }];
  }
}

function send(files) {
  if (!files.length) return;
  panel ??= addPanel();
  if (!queue.running) {
    Object.assign(queue, { total: 0, done: 0 });
    panel.failed.replaceChildren();
  }
  queue.waiting.push(...files);
  queue.total += files.length;
  showProgress();
  while (queue.running < PARALLEL_UPLOADS && queue.waiting.length) work();
}

async function work() {
  queue.running += 1;
  for (let next = queue.waiting.shift(); next; next = queue.waiting.shift()) {
    try {
      if (!next.file) throw new ResponseError(0, "unreadable", "the browser cannot read it");
      const form = new FormData();
      form.append("files", next.file, next.name);
      await upload("v1/documents/files", form);
    } catch (problem) {
      panel.failed.append(el("li", {}, el("strong", {}, next.name), `: ${reasonOf(problem, next.name)}`));
    }
    queue.done += 1;
    showProgress();
  }
  queue.running -= 1;
  if (!queue.running) finish();
}

/** Why a file was refused, without the file's name. */
function reasonOf(problem, name) {
  if (!(problem instanceof ResponseError) || problem.status === 429) return sentence(problem);
  if (REASONS[problem.code]) return REASONS[problem.code];
  return problem.message.startsWith(name) ? problem.message.slice(name.length).replace(/^[:,]?\s+/, "") : problem.message;
}

function finish() {
  const refused = panel.failed.children.length;
  panel.bar.hidden = true;
  panel.close.hidden = false;
  panel.status.textContent = `${count(queue.total - refused, "file")} indexed${refused ? `, ${refused} refused:` : "."}`;
  dispatchEvent(new CustomEvent(COLLECTION_CHANGED));  // even a refused file may be stored
}

function showProgress() {
  panel.element.hidden = false;
  panel.close.hidden = true;
  Object.assign(panel.bar, { hidden: false, max: queue.total, value: queue.done });
  panel.status.textContent = `Indexing: ${queue.done} of ${count(queue.total, "file")} done.`;
}

function addPanel() {
  const bar = el("progress", { "aria-label": "Indexing", max: "1", value: "0" });
  const status = el("p", { role: "status" });
  const failed = el("ul", { class: "problem" });
  const close = button("Close", () => {
    element.hidden = true;
  }, { hidden: true });
  const element = el("aside", { class: "upload", "aria-label": "Uploads" }, status, bar, failed, close);
  document.body.append(element);
  return { element, bar, status, failed, close };
}
