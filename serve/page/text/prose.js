// Shows a model's text: each citation of a passage that the model read becomes a button that opens the passage.

import { closestSentences, sentences } from "./closest.js";
import { cut, el } from "../shared/dom.js";
import { markdown } from "./markdown.js";

/** The nodes for `text`; a click on a citation calls `open(citation, statement)`. */
export const prose = (text, citations, open) => markdown(text, (piece) => withCitations(piece, citations, open));

/** Text nodes and, for every [n] with a citation, a button. Other text in brackets stays text. */
function withCitations(text, citations, open) {
  const byNumber = new Map(citations.map((citation) => [citation.number, citation]));
  return text.split(/(\[\d{1,4}\])/).filter(Boolean).map((piece) => {
    const citation = /^\[\d+\]$/.test(piece) ? byNumber.get(Number(piece.slice(1, -1))) : undefined;
    if (!citation) return piece;
    const opens = (event) => open(citation, statementOf(event.currentTarget));
    return el("button", { type: "button", class: "cite", onclick: opens }, String(citation.number));
  });
}

/** Label the citations in a finished text with the passage's title, page and closest sentence, which appear on hover and focus. */
export function labelCitations(container, citations) {
  for (const button of container.querySelectorAll(".cite")) {
    const citation = citations.find(({ number }) => String(number) === button.textContent);
    const [span] = spansFor(citation, statementOf(button));
    const place = [citation.title || citation.source || "summary", citation.page ? `p. ${citation.page}` : ""].filter(Boolean).join(", ");
    const sentence = span ? ` “${cut(Array.from(citation.text).slice(span.start, span.end).join(""), 300)}”` : "";
    button.dataset.sentence = `${place}${sentence && `:${sentence}`}`;
    button.setAttribute("aria-label", `Citation ${citation.number}: ${button.dataset.sentence}`);
  }
}

/** The spans of a citation's text that fit a statement: the server's quotes for it, otherwise the sentences that share the most words with it. */
export function spansFor({ text, quotes = [] }, statement) {
  const plain = (some) => some.replace(/\[\d+\]/g, " ").replace(/[^\p{L}\p{N}]+/gu, " ").trim().toLowerCase();
  const matching = quotes.filter((each) => plain(each.statement) === plain(statement));
  return matching.length ? matching : closestSentences(statement, text);
}

/** The sentence that contains a citation's button or precedes it, without the citations. */
function statementOf(button) {
  let text = "";
  let at = 0;
  const walk = (node) => {
    if (node === button) at = text.length;
    else if (node.nodeType === Node.TEXT_NODE) text += node.data;
    else if (!node.classList.contains("cite")) node.childNodes.forEach(walk);
  };
  walk(button.closest(".prose-line"));
  const found = sentences(text);
  const before = found.filter((each) => each.from < at && each.text.trim());
  return (before.at(-1) ?? found[0])?.text.replace(/\s+([.,;:!?…]|$)/g, "$1").replace(/\s+/g, " ").trim() ?? "";
}
