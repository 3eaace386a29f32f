// The buttons below two answers to one question, with which the reader chooses the better one.

import { el } from "../shared/dom.js";
import { acceptsFeedback, choiceButtons } from "../shared/feedback.js";

const CHOICES = [["first", "First is better"], ["second", "Second is better"], ["neither", "No difference"]];

/** The buttons below two turns; null if the server accepts no feedback, or if the turns are not two different answers to one question. */
export function duelOf(turns) {
  if (!acceptsFeedback() || turns.length !== 2 || !turns.every((turn) => turn?.feedbackAnswer)) return null;
  const [first, second] = turns.map((turn) => turn.feedbackAnswer);
  if (turns[0].searchQuery !== turns[1].searchQuery || (first.text === second.text && first.reasoning === second.reasoning)) return null;
  const status = el("p", { class: "hint", role: "status" });
  const same = String(first.context_ids) === String(second.context_ids);
  if (!same) status.textContent = "The answers were written from different passages, so this choice is not used for training.";
  const entryOf = (better) => ({ kind: "preference", question: turns[0].searchQuery, first, second, better });
  const buttons = choiceButtons(CHOICES, entryOf, (line) => {
    status.textContent = line;
  });
  return el("div", { class: "duel" }, el("div", { class: "actions", role: "group", "aria-label": "Which answer is better?" },
    el("span", {}, "Which answer is better?"), ...buttons), status);
}
