// The dialog for corrections: another answer, the passages that support it, or both.

import { sentence } from "../shared/api.js";
import { button, el, openDialog, snippet } from "../shared/dom.js";
import { sendFeedback } from "../shared/feedback.js";

/** Ask for the right answer of a turn and its passages, and send them as feedback; `showStatus` is called with the outcome. */
export function correct(turn, showStatus) {
  const { answer: text } = turn.answer.reply;
  const field = el("textarea", { id: "right-answer", rows: "3", required: true }, text);
  const boxes = turn.evidence.passages().map((each) => ({
    id: each.id,
    box: el("input", { type: "checkbox", value: each.id }),
    words: el("span", {}, el("span", { class: "title" }, each.title || each.source), " ", snippet(each, 140)),
  }));
  const problem = el("p", { class: "problem", role: "alert" });
  const save = el("button", { class: "primary", type: "submit" }, "Save");
  const sent = new Set();  // the passages already sent, if sending a later one failed
  const send = async (event) => {
    event.preventDefault();
    const right = boxes.filter(({ box }) => box.checked).map(({ id }) => id);
    const entries = entriesOf(turn, field.value.trim(), right, boxes.map(({ id }) => id));
    if (!entries.length) {
      problem.textContent = "Write another answer, or choose the passages that contain the right one.";
      return;
    }
    save.disabled = true;
    try {
      for (const each of entries.filter(({ passage_id: id }) => !sent.has(id))) {
        if (!(await sendFeedback(each))) return;
        sent.add(each.passage_id);
      }
      dialog.close();
      showStatus("Saved. Thank you.");
    } catch (failed) {
      problem.textContent = sentence(failed);
    } finally {
      save.disabled = false;
    }
  };
  const dialog = openDialog({ id: "correct", title: "What is the right answer?", wide: true },
    el("form", { onsubmit: send, autocomplete: "off" },
      el("p", {}, turn.question),
      el("label", { for: "right-answer" }, "The right answer"), field,
      boxes.length ? el("fieldset", {}, el("legend", {}, "Passages that support it"),
        ...boxes.map(({ box, words }) => el("label", { class: "choice" }, box, words))) : null,
      problem,
      el("div", { class: "buttons" },
        button("Cancel", () => dialog.close()),
        save)));
}

/** A correction if the answer was changed, otherwise an entry for each right passage. */
function entriesOf({ searchQuery: question, feedbackAnswer, answer }, corrected, right, shown) {
  if (corrected && corrected !== answer.reply.answer.trim()) {
    return [{ kind: "correction", question, answer: feedbackAnswer, corrected, passage_ids: right }];
  }
  return right.map((each) => ({ kind: "passage", question, passage_id: each, shown_ids: shown }));
}
