// The dialog in which a reader searches for the sentence that answers a question; also opens a sentence in its document.

import { documentPath, get, post, sentence } from "../shared/api.js";
import { button, el, openDialog } from "../shared/dom.js";
import { latest } from "../shared/loading.js";
import { openReader } from "../views/reader.js";
import { sentences } from "../text/closest.js";

const RESULTS = 8;

/**
 * Open the dialog with a search for `question`; `onChoose({id, quote})` is called with the clicked sentence and its document's id. In each sentence, the
 * first of the `answers` that it contains is marked.
 */
export function choosePassage(question, answers, onChoose) {
  const status = el("p", { class: "hint", role: "status" });
  const list = el("ul", { class: "found" });
  const field = el("input", { id: "passage-query", type: "search", required: true });
  field.value = question.trim();
  const search = async (event) => {
    event?.preventDefault();
    status.textContent = "Searching…";
    try {
      const { passages } = await latest(list, post("v1/retrieve", { query: field.value, k: RESULTS }));
      list.replaceChildren(...passages.map((each) => passage(each, answers, choose)));
      status.textContent = passages.length ? "Click the sentence that answers the question." : "No passage was found.";
    } catch (problem) {
      list.replaceChildren();
      status.textContent = sentence(problem);
    }
  };
  const choose = (quote) => {
    dialog.close();
    onChoose(quote);
  };
  const dialog = openDialog({ id: "passage", title: "Which sentence answers the question?", wide: true },
    question.trim() ? el("p", {}, question) : null,
    el("form", { class: "search-line", onsubmit: search, autocomplete: "off" },
      el("label", { for: "passage-query" }, "Search the documents"), field,
      el("button", { class: "primary", type: "submit" }, "Search")),
    status, list,
    el("div", { class: "buttons" }, button("Cancel", () => dialog.close())));
  field.focus();
  if (field.value) search();
}

function passage({ source, title, text }, answers, choose) {
  const lines = sentencesOf(text).map((quote) => el("li", {},
    el("button", { type: "button", class: "sentence", onclick: () => choose({ id: source, quote }) }, ...withAnswer(quote, answers))));
  return el("li", {}, el("p", { class: "title" }, title || source), title ? el("p", { class: "place" }, source) : null, el("ul", {}, ...lines));
}

const escaped = (words) => words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The first match of an answer in `text`, ignoring case; null if the text does not contain it. */
const matchIn = (text, answer) => new RegExp(escaped(answer), "iu").exec(text);

/** Whether `text` contains one of the answers, ignoring case. */
export const hasAnswer = (text, answers) => answers.some((each) => matchIn(text, each));

/** The nodes for `text`, with the first answer that it contains marked. */
export function withAnswer(text, answers) {
  const match = answers.map((each) => matchIn(text, each)).find((each) => each?.[0]);
  if (!match) return [text];
  return [text.slice(0, match.index), el("mark", {}, match[0]), text.slice(match.index + match[0].length)];
}

/** The sentences of a passage, verbatim; one may span several lines of a paragraph. Headings and pieces without letters are left out. */
export function sentencesOf(text) {
  const flat = text.replace(/(?<=[^\n])\n(?=[^\n#>|*\-\d])/g, " ");
  return sentences(flat).map(({ text: piece, from }) => text.slice(from, from + piece.length).trim()).filter((each) => /^(?!#).*\p{L}/su.test(each));
}

/** Open a document with a quote from it marked; without marks if no passage of the document contains the quote. */
export async function openQuote({ id: source, quote }) {
  let place = null;
  try {
    place = placeOf((await get(documentPath(source))).passages, quote);
  } catch {
    // The panel shows why the document cannot be read.
  }
  openReader({ source, ...place });
}

/** The position of a quote in a document, in code points; null if none of its passages contains the quote. White space may differ. */
export function placeOf(passages, quote) {
  const pattern = new RegExp(quote.trim().split(/\s+/).map(escaped).join("\\s+"), "u");
  for (const { text, start } of quote.trim() ? passages : []) {
    const found = pattern.exec(text);
    if (!found) continue;
    const first = start + Array.from(text.slice(0, found.index)).length;
    return { start: first, end: first + Array.from(found[0]).length };
  }
  return null;
}
