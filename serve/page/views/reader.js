// The panel that shows a document's text with a span marked. Offsets count code points, as in the index.

import { documentPath, get, problemLine } from "../shared/api.js";
import { button, byId, count, cut, el } from "../shared/dom.js";
import { latest } from "../shared/loading.js";

/** A button that opens a document. */
export const documentLink = ({ source, title }, classes = "link") => button(title || source, () => openReader({ source, title }), { class: classes });

/**
 * Open `source` with the characters from start to end marked, or at its beginning if `end` is 0. Spans in `marks` are marked more strongly than the rest
 * of these characters; they are the sentences closest in wording to `statement`, a sentence of an answer, if one is given.
 */
export async function openReader({ source, title, start = 0, end = 0, page, statement = "", marks = [] }) {
  const dialog = byId("reader");
  const text = byId("reader-text");
  byId("reader-title").textContent = title || source;
  byId("reader-place").textContent = locationOf({ source, page, start, end });
  byId("reader-marked").textContent = statement && marksNote(statement, marks);
  text.replaceChildren(el("p", { class: "hint" }, "Opening…"));
  if (!dialog.open) dialog.showModal();
  try {
    const found = await latest(text, get(documentPath(source)));
    text.replaceChildren(...markedText(found.passages, start, end, marks, found.metadata.page_starts));
    byId("reader-title").textContent = found.title || source;
    byId("reader-place").textContent = `${locationOf({ source, page, start, end })} · ${count(found.passages.length, "passage")}`;
    text.querySelector("mark")?.scrollIntoView({ block: "center" });
  } catch (problem) {
    text.replaceChildren(problemLine(problem));
  }
  text.focus({ preventScroll: true });
}

/** A location in words. */
const locationOf = ({ source, page, start, end }) =>
  end ? `${source},${page ? ` p. ${page},` : ""} characters ${start.toLocaleString("en")}–${end.toLocaleString("en")}` : source;

/** A note that explains the marks. It claims no support: a sentence may share words with a statement without supporting it. */
function marksNote(statement, marks) {
  const quotation = `“${cut(statement, 160)}”`;
  if (!marks.length) return `The whole passage is marked: none of its sentences shares enough words with ${quotation}`;
  return `Marked: the passage’s ${marks.length === 1 ? "sentence" : "sentences"} closest in wording to ${quotation}`;
}

/**
 * The document's text from its passages, in order: plain text, with a <mark> around the characters from start to end; given `marks`,
 * <mark> surrounds these spans, and <span class="read"> the rest between start and end. `pages` are the offsets at which pages begin; each page's number is
 * shown there.
 */
export function markedText(passages, start, end, marks = [], pages = []) {
  const nodes = [];
  const marked = marks.length ? marks : [{ start, end }];
  const pageStarts = Array.isArray(pages) ? pages.filter(Number.isInteger) : [];
  const edges = [start, end, ...pageStarts, ...marked.flatMap((each) => [each.start, each.end])].sort((one, other) => one - other);
  const within = (at, spans) => spans.some((each) => each.start <= at && at < each.end);
  const node = (at, text) => {
    if (within(at, marked)) return el("mark", {}, text);
    return within(at, [{ start, end }]) ? el("span", { class: "read" }, text) : text;
  };
  let at = 0;
  let lastPage = 0;
  for (const passage of [...passages].sort((one, other) => one.start - other.start)) {
    if (passage.start > at && at > 0) nodes.push(passage.start - at > 1 ? "\n\n" : " ");
    const from = Math.max(at, passage.start);
    const characters = Array.from(passage.text);
    const cuts = [from, ...edges.filter((edge) => edge > from && edge < passage.end), passage.end];
    for (const [place, low] of cuts.slice(0, -1).entries()) {
      const text = characters.slice(low - passage.start, cuts[place + 1] - passage.start).join("");
      const page = pageStarts.findLastIndex((each) => each <= low) + 1;
      if (!text) continue;
      if (page > lastPage) nodes.push(el("span", { class: "page-number" }, `p. ${page}`));
      lastPage = Math.max(lastPage, page);
      nodes.push(node(low, text));
    }
    at = Math.max(at, passage.end);
  }
  return nodes;
}

/** Close the panel when its button or the area outside it is clicked. */
export function startReader() {
  const dialog = byId("reader");
  byId("reader-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
