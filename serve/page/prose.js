// A model's text as a reader sees it: reason and answer apart, each citation that the server vouches for a button.

import { el } from "./dom.js";

const REASON = "###Reason:";
const ANSWER = "###Answer:";

/** What of a text still being written is reason and what is answer; a marker that is only begun is not shown. */
export function parts(text) {
  const whole = text.replace(/#{1,3}(R(e(a(s(on?)?)?)?)?|A(n(s(w(er?)?)?)?)?)?$/, "");
  const reasonAt = whole.indexOf(REASON);
  const answerAt = whole.indexOf(ANSWER);
  if (reasonAt < 0 && answerAt < 0) return { reason: "", answer: whole.trim() };
  const reason = reasonAt < 0 ? "" : whole.slice(reasonAt + REASON.length, answerAt < 0 ? undefined : answerAt);
  return { reason: reason.trim(), answer: answerAt < 0 ? "" : whole.slice(answerAt + ANSWER.length).trim() };
}

/** Text nodes and, for every [n] with a citation, a button. Any other bracket stays text. */
export function cited(text, citations, open) {
  const byNumber = new Map(citations.map((citation) => [citation.number, citation]));
  return text.split(/(\[\d{1,4}\])/).map((piece) => {
    const citation = /^\[\d+\]$/.test(piece) ? byNumber.get(Number(piece.slice(1, -1))) : undefined;
    if (!citation) return piece;
    const label = `Citation ${citation.number}: ${citation.title || citation.source || "summary"}`;
    return el("button", { type: "button", class: "cite", "aria-label": label, title: label, onclick: () => open(citation) },
      String(citation.number));
  });
}
