// The dialog that asks what would have been right: another answer, the passages that say so, or both.

import { sentence } from "../shared/api.js";
import { el, snippet } from "../shared/dom.js";
import { say } from "../shared/feedback.js";

/** Ask for the right answer of a turn and its passages, and send what is said; `tell` gets what became of it. */
export function correct(turn, tell) {
  const { answer: text } = turn.answer.told;
  const field = el("textarea", { id: "right-answer", rows: "3", required: true }, text);
  const boxes = turn.evidence.passages().map((each) => ({
    id: each.id,
    box: el("input", { type: "checkbox", value: each.id }),
    words: el("span", {}, el("span", { class: "title" }, each.title || each.source), " ", snippet(each, 140)),
  }));
  const problem = el("p", { class: "problem", role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    const right = boxes.filter(({ box }) => box.checked).map(({ id }) => id);
    const entries = entriesOf(turn, field.value.trim(), right, boxes.map(({ id }) => id));
    if (!entries.length) {
      problem.textContent = "Write another answer, or choose the passages that hold the right one.";
      return;
    }
    try {
      for (const each of entries) if (!(await say(each))) return;
      dialog.close();
      tell("Kept. Thank you.");
    } catch (failed) {
      problem.textContent = sentence(failed);
    }
  };
  const dialog = el("dialog", { class: "small-dialog wide", id: "correct", "aria-labelledby": "correct-title" },
    el("form", { onsubmit: send, autocomplete: "off" },
      el("h2", { id: "correct-title" }, "What is right?"),
      el("p", {}, turn.question),
      el("label", { for: "right-answer" }, "The right answer"), field,
      boxes.length ? el("fieldset", {}, el("legend", {}, "Passages that say so"),
        ...boxes.map(({ box, words }) => el("label", { class: "choice" }, box, words))) : null,
      problem,
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
        el("button", { class: "primary", type: "submit" }, "Keep"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A correction where the answer was changed; where it was not, an entry for each right passage. */
function entriesOf({ searched, given, answer }, corrected, right, shown) {
  const question = searched;
  if (corrected && corrected !== answer.told.answer.trim()) {
    return [{ kind: "correction", question, answer: given, corrected, passage_ids: right }];
  }
  return right.map((each) => ({ kind: "passage", question, passage_id: each, shown_ids: shown }));
}
