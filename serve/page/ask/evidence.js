// The evidence of a search: the passages, cited passages first, and the path to each, as a drawing and in words.

import { count, cut, el, nodeAddress, snippet } from "../shared/dom.js";
import { drawTree, erase, NEEDS_WEBGL } from "../views/drawing.js";
import { openReader } from "../views/reader.js";
import { pathTree } from "../views/trees.js";
import { spansFor } from "../text/prose.js";

/** The evidence of one question; `show` fills it, `fold` collapses it to one line. */
export class EvidenceView {
  constructor() {
    this.element = el("div", { class: "evidence" });
    this.drawing = null;
    this.found = null;
  }

  /** The passages in the order found. */
  passages() {
    return this.found?.passages ?? [];
  }

  /** The state to save, as JSON. */
  get state() {
    if (!this.found) return null;
    const { question, passages, summaries, trace } = this.found;
    return { question, passages, summaries, trace };
  }

  show(evidence, citations) {
    this.found = evidence;
    const numbers = new Map(citations.map((citation) => [citation.id, citation.number]));
    const attributed = citations.filter((citation) => citation.attributed);
    const quotes = new Map(attributed.map((citation) => [citation.id, citation.quotes]));
    const listed = evidence.passages.map((passage) => ({ ...passage, number: numbers.get(passage.id), quotes: quotes.get(passage.id) }));
    const listedIds = new Set(listed.map((passage) => passage.id));
    const others = citations.filter((citation) => !listedIds.has(citation.id));
    const first = [...listed.filter((each) => each.number), ...others].sort((one, other) => one.number - other.number);
    const rest = [...listed, ...(evidence.summaries ?? [])].filter((each) => !numbers.has(each.id));
    const paths = el("div", { class: "paths" });
    const lists = [];
    if (first.length) lists.push(passageList(attributed.length ? "Closest to the answer, not cited by the model" : "Cited", first), paths);
    if (rest.length) lists.push(passageList(first.length ? "Also found" : "Found", rest));
    if (!first.length && listed.length) lists.push(paths);
    if (!lists.length) lists.push(el("p", { class: "hint" }, "No passage was found."));
    erase(this.element);
    this.element.replaceChildren(...lists);
    this.drawing = listed.length ? { evidence, numbers, paths } : null;
    this.drawPaths();
  }

  /** Draw the paths, or redraw them, for example after a change of colours. */
  drawPaths() {
    if (!this.drawing?.paths.checkVisibility()) return;
    const { evidence, numbers, paths } = this.drawing;
    const holder = el("div", { class: "graph", "aria-hidden": "true" });
    const wordsOpen = paths.querySelector("details")?.open ?? false;
    const inWords = el("details", { open: wordsOpen }, el("summary", {}, "In words"), pathsInWords(evidence));
    erase(paths);
    paths.replaceChildren(el("h3", {}, "How it was found"), holder, inWords);
    const tree = pathTree(evidence.question, evidence.passages, new Set(numbers.keys()));
    if (drawTree(holder, tree, openReader)) return;
    holder.replaceWith(el("p", { class: "hint" }, NEEDS_WEBGL));
    inWords.open = true;
  }

  /** Collapse the passages to one line, as is done for earlier questions. */
  fold() {
    if (!this.drawing || this.element.localName === "details") return;
    erase(this.element);
    const { evidence } = this.drawing;
    const line = el("summary", {}, count(evidence.passages.length, "passage"));
    const folded = el("details", { class: "evidence folded", ontoggle: () => folded.open && this.drawPaths() }, line);
    folded.append(...this.element.childNodes);
    this.element.replaceWith(folded);
    this.element = folded;
  }

  /** Free the drawing. */
  clear() {
    erase(this.element);
    this.drawing = null;
  }
}

/** Open the passage of a citation, with marks on its sentences closest to `statement`, or on its quotes if there is no statement. A summary opens as a node. */
export function openCitation(citation, statement) {
  if (!citation.source) {
    location.hash = nodeAddress("summary", citation.id);
    return;
  }
  // The text of a proposition is not that of the document.
  if (Array.from(citation.text).length !== citation.end - citation.start) return openReader(citation);
  const spans = statement ? spansFor(citation, statement) : citation.quotes ?? [];
  const marks = spans.map(({ start, end }) => ({ start: citation.start + start, end: citation.start + end }));
  openReader({ ...citation, statement, marks });
}

function passageList(heading, passages) {
  const items = passages.map((passage) => el("li", {},
    el("button", { type: "button", class: "passage", onclick: () => openCitation(passage) },
      passage.number ? el("span", { class: "number" }, String(passage.number)) : null,
      el("span", { class: "title" }, passage.title || passage.source || "Summary"),
      el("span", { class: "snippet" }, passage.quotes?.length ? `“${cut(passage.quotes[0].text, 220)}”` : snippet(passage, 220)),
      el("span", { class: "place" }, passage.source ? locationText(passage)
        : `from ${count(passage.members.length, "passage")}`))));
  return el("div", {}, el("h3", {}, heading), el("ul", { class: "passages" }, ...items));
}

const locationText = ({ source, page, start, end }) => [source, page ? `p. ${page}` : "", `${start}–${end}`].filter(Boolean).join(" · ");

function pathsInWords(evidence) {
  const pathText = ({ path, score }) => (path.length ? path.join(" → ") : `score ${score.toFixed(3)}`);
  const lines = evidence.passages.map((each) => el("li", {}, `${each.title || each.source}: question → ${pathText(each)}`));
  const steps = evidence.trace.steps.map((step) => el("li", {}, step));
  return el("div", {}, el("ol", {}, ...lines), steps.length ? el("ul", {}, ...steps) : null);
}
