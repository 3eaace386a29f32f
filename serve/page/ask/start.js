// The start page, before the first question: questions that the collection answers, and some of its documents.

import { get, sentence } from "../shared/api.js";
import { button, byId, count, el } from "../shared/dom.js";
import { latest } from "../shared/loading.js";
import { documentLink } from "../views/reader.js";
import { acceptsDocuments, COLLECTION_CHANGED, emptyNote } from "../views/upload.js";

const SHOWN_DOCUMENTS = 3;

/** Fill the start page, now and after each change of the collection; `ask(question)` is called when a question is chosen. */
export function startWith(welcome, ask) {
  const fill = async () => {
    const first = el("p", { class: "hint welcome" }, welcome);
    try {
      const newest = get("v1/documents", { sort: "date", descending: true, limit: SHOWN_DOCUMENTS });
      const [{ questions }, listed] = await latest(byId("start"), Promise.all([get("v1/suggestions"), newest]));
      if (listed.total) byId("start").replaceChildren(first, suggested(questions, ask), contents(listed));
      else byId("start").replaceChildren(emptyNote());
    } catch (problem) {
      byId("start").replaceChildren(first, el("p", { class: "hint" }, sentence(problem)));
    }
  };
  byId("start").replaceChildren(el("p", { class: "hint welcome" }, welcome));
  addEventListener(COLLECTION_CHANGED, fill);
  fill();
}

function suggested(questions, ask) {
  if (!questions.length) return "";
  const buttons = questions.map((each) => el("li", {}, button(each, () => ask(each), { class: "suggestion" })));
  return el("section", { "aria-labelledby": "try-title" }, el("h2", { id: "try-title" }, "Try one of these"), el("ul", {}, ...buttons));
}

function contents({ documents, total, total_passages: passages }) {
  const dated = documents.filter((each) => each.date);
  const lines = (dated.length ? dated : documents).map((each) => el("li", {}, documentLink(each),
    each.date ? el("span", { class: "place" }, ` ${each.date}`) : null));
  return el("section", { "aria-labelledby": "contents-title" },
    el("h2", { id: "contents-title" }, "In this collection"),
    el("p", {}, `${count(total, "document")}, ${count(passages, "passage")}. `, el("a", { href: "#documents" }, "See all documents")),
    acceptsDocuments() ? el("p", { class: "drop-note" }, "Drop files or folders anywhere on this page to add them.") : null,
    el("p", { class: "place" }, dated.length ? "Newest:" : total > documents.length ? "Some of them:" : "All of them:"),
    el("ul", { class: "newest" }, ...lines));
}
