// A model's text for a reader: each citation that the server has verified is a button that knows its sentence.

import { sentences } from "./closest.js";
import { el } from "../shared/dom.js";
import { markdown } from "./markdown.js";

/** The nodes of a text; a click on a citation calls `open(citation, statement)`. */
export const prose = (text, citations, open) => markdown(text, (piece) => cited(piece, citations, open));

/** Text nodes and, for every [n] with a citation, a button. Any other bracket stays text. */
export function cited(text, citations, open) {
  const byNumber = new Map(citations.map((citation) => [citation.number, citation]));
  return text.split(/(\[\d{1,4}\])/).filter(Boolean).map((piece) => {
    const citation = /^\[\d+\]$/.test(piece) ? byNumber.get(Number(piece.slice(1, -1))) : undefined;
    if (!citation) return piece;
    const label = `Citation ${citation.number}: ${citation.title || citation.source || "summary"}`;
    const opens = (event) => open(citation, statementOf(event.currentTarget));
    return el("button", { type: "button", class: "cite", "aria-label": label, title: label, onclick: opens }, String(citation.number));
  });
}

/** The sentence that a citation's button stands in or follows, without the citations. */
export function statementOf(button) {
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
