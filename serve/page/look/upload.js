// Uploads files into the index, if the server accepts them: a few at a time, since it indexes waiting files together, with the outcome of each.

import { sentence, upload } from "../shared/api.js";
import { count, el } from "../shared/dom.js";

const AT_ONCE = 4;
let taken = false;

/** Set whether the server accepts documents. */
export const takeDocuments = (does) => {
  taken = does;
};

/** The upload form; `done()` is called when new documents are in use. Empty if the server accepts none. */
export function uploadForm(done) {
  if (!taken) return el("div", {});
  const field = el("input", { id: "upload-files", type: "file", multiple: true });
  const bar = el("progress", { "aria-label": "Indexing", max: "1", value: "0", hidden: true });
  const status = el("p", { class: "hint", role: "status" });
  const failed = el("ul", { class: "problem" });
  const send = async (files) => {
    if (!files.length || field.disabled) return;
    field.disabled = true;
    failed.replaceChildren();
    Object.assign(bar, { hidden: false, max: files.length, value: 0 });
    const waiting = [...files];
    let indexed = 0;
    const showProgress = () => {
      status.textContent = `Indexing: ${bar.value} of ${count(files.length, "file")} done.`;
    };
    const work = async () => {
      for (let file = waiting.shift(); file; file = waiting.shift()) {
        const form = new FormData();
        const name = file.webkitRelativePath || file.name;
        form.append("files", file, name);
        try {
          await upload("v1/documents/files", form);
          indexed += 1;
        } catch (problem) {
          failed.append(el("li", {}, problem.message.startsWith(name) ? problem.message : `${name}: ${sentence(problem)}`));
        }
        bar.value += 1;
        showProgress();
      }
    };
    showProgress();
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    field.disabled = false;
    field.value = "";
    bar.hidden = true;
    status.textContent = `${count(indexed, "file")} indexed${failed.children.length ? `, ${failed.children.length} refused:` : "."}`;
    if (indexed && !failed.children.length) done();
  };
  field.addEventListener("change", () => send(field.files));
  const form = el("form", { class: "upload" }, el("label", { for: "upload-files" }, "Add documents"), field, bar, status, failed);
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    send(event.dataTransfer.files);
  });
  return form;
}
