// The list of all documents, each with a preview and some facts, in an order that the reader chooses; opens and deletes documents.

import { documentPath, get, problemLine, remove, sentence } from "../shared/api.js";
import { button, byId, count, el, nodeAddress, openDialog, snippet } from "../shared/dom.js";
import { latest, moreRows } from "../shared/loading.js";
import { documentLink } from "./reader.js";
import { acceptsDocuments, COLLECTION_CHANGED, emptyNote, uploadButton } from "./upload.js";

const PAGE = 50;
const MAX_LABELS = 6;
const ORDERS = {
  title: { name: "Name", ways: ["A to Z", "Z to A"], descending: false },
  date: { name: "Date", ways: ["oldest first", "newest first"], descending: true },
  size: { name: "Size", ways: ["shortest first", "longest first"], descending: true },
};
const HIDDEN_METADATA = ["date", "page_starts"];
const THIS_VIEW = "documents";
let order = "title";
let descending = false;

/** Reload the list, while it is visible, after each change of the collection that did not come from this view. */
export const startDocuments = () => addEventListener(COLLECTION_CHANGED, (event) => {
  if (!byId("view-documents").hidden && event.detail !== THIS_VIEW) openDocuments(shown());
});

/** The number of documents in the list. */
const shown = () => document.querySelectorAll("#view-documents .documents > li").length;

/** Show the view with the first `rows` documents (at least a full page, at most 1,000); `note`, if given, replaces the counts in its heading. */
export async function openDocuments(rows = PAGE, note = "") {
  const view = byId("view-documents");
  if (!view.hasChildNodes()) view.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    const listed = await latest(view, page(0, Math.max(rows, PAGE)));
    const list = el("ul", { class: "documents" }, ...listed.documents.map(line));
    const next = async (offset) => (await page(offset)).documents.map(line);
    const parts = listed.total ? [sortButtons(), list, moreRows(list, listed.total, next)] : [emptyNote()];
    view.replaceChildren(head(listed, note), ...parts);
  } catch (problem) {
    view.replaceChildren(problemLine(problem));
  }
}

const page = (offset, limit = PAGE) => get("v1/documents", { sort: order, descending, offset, limit: Math.min(limit, 1000) });

function head({ total, total_passages: passages }, note) {
  return el("div", { class: "library-head" },
    el("h2", { id: "documents-title", tabindex: "-1" }, "Documents"),
    el("p", { class: "hint", role: "status" }, note || `${count(total, "document")}, ${count(passages, "passage")}`),
    total ? uploadButton() : "");
}

function sortButtons() {
  const buttons = Object.entries(ORDERS).map(([key, { name, ways, descending: down }]) => {
    const pressed = key === order;
    const sort = async () => {
      [order, descending] = [key, pressed ? !descending : down];
      await openDocuments(shown());
      byId(`sort-${key}`)?.focus();
    };
    const label = pressed ? `${name}, ${ways[Number(descending)]}` : name;
    return button(label, sort, { id: `sort-${key}`, class: null, "aria-pressed": String(pressed) });
  });
  return el("div", { class: "tabs", role: "group", "aria-label": "Sort by" }, ...buttons);
}

function line(each) {
  const name = each.title || each.source;
  const labels = Object.entries(each.metadata).filter(([key]) => !HIDDEN_METADATA.includes(key)).slice(0, MAX_LABELS);
  const item = el("li", {},
    el("div", { class: "document-text" },
      documentLink(each, "link title"),
      name === each.source ? null : el("span", { class: "place" }, each.source),
      el("p", { class: "snippet" }, snippet({ title: each.title, text: each.preview }, 220)),
      labels.length ? el("ul", { class: "labels", "aria-label": "Labels" }, ...labels.map(([key, value]) => el("li", {}, `${key}: ${[value].flat().join(", ")}`))) : null),
    el("dl", { class: "document-facts" },
      ...(each.date ? fact("Date", each.date) : []),
      ...fact("Size", `${count(each.passages, "passage")}, ${count(each.characters, "character")}`),
      ...fact("State", each.unread ? `${each.unread} of ${count(each.passages, "passage")} without statements` : "ready")),
    el("div", { class: "document-actions" },
      el("a", { href: nodeAddress("document", each.source), "aria-label": `Connections of ${name}` }, "Connections"),
      acceptsDocuments() ? button("Delete", () => confirmDelete(each, name, item), { "aria-label": `Delete ${name}` }) : null));
  return item;
}

const fact = (name, value) => [el("dt", {}, name), el("dd", {}, value)];

function confirmDelete({ source, passages }, name, item) {
  const place = Array.from(item.parentElement.children).indexOf(item);
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const confirm = button("Delete", async () => {
    confirm.disabled = true;
    try {
      await remove(documentPath(source)).catch((error) => {
        if (error.code !== "no_such_document") throw error;
      });
      dialog.close();
      dispatchEvent(new CustomEvent(COLLECTION_CHANGED, { detail: THIS_VIEW }));
      await openDocuments(shown(), `${name} was deleted.`);
      (document.querySelectorAll(".documents [aria-label^='Delete ']")[place] ?? byId("documents-title"))?.focus();
    } catch (error) {
      problem.textContent = sentence(error);
      problem.hidden = false;
      confirm.disabled = false;
      if (dialog.open) return;
      document.body.append(dialog);  // the reader has closed it
      dialog.showModal();
    }
  }, { class: "primary" });
  const dialog = openDialog({ id: "delete", title: `Delete ${name}?` },
    el("p", {}, `It will be removed from the index for everyone, with its ${count(passages, "passage")}. Saved answers keep their quotations. This cannot be undone.`),
    problem,
    el("div", { class: "buttons" }, button("Cancel", () => dialog.close()), confirm));
}
