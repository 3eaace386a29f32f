// An answer while it is written and when it is whole: the text, the reasoning that can be folded away, what was removed or cut.

import { count, el } from "../shared/dom.js";
import { openCitation } from "./evidence.js";
import { prose } from "../text/prose.js";

const SHOWN_MS = 50;

/** The place of one answer; `write(events, tell)` fills it from a stream, `telling` what goes on. */
export class AnswerView {
  constructor() {
    this.text = el("div", { class: "answer-text" });
    this.reasoning = el("div", { class: "prose" });
    this.reason = el("details", { class: "reason", hidden: true, open: true }, el("summary", {}, "Reasoning"), this.reasoning);
    this.notes = el("div", {});
    this.element = el("div", { class: "answer", "aria-live": "polite" }, this.text, this.reason, this.notes);
    this.told = { answer: "", reason: "", citations: [], removed: [], unsupported: [], usage: null, retrieval: null, length: false };
  }

  /** Take the events of a completion; what they told in the end. */
  async write(events, tell) {
    const told = this.told;
    let shown = 0;
    for await (const event of events) {
      const choice = event.choices?.[0];
      told.usage = event.usage ?? told.usage;
      told.retrieval = event.retrieval ?? told.retrieval;
      told.answer += choice?.delta?.content ?? "";
      told.reason += choice?.delta?.reasoning_content ?? "";
      told.length ||= choice?.finish_reason === "length";
      told.citations = choice?.delta?.citations ?? told.citations;
      told.removed = choice?.delta?.removed ?? told.removed;
      told.unsupported = choice?.delta?.unsupported ?? told.unsupported;
      if (told.answer || told.reason) tell("Writing…");
      if (performance.now() - shown < SHOWN_MS) continue;
      this.show();
      shown = performance.now();
    }
    this.finish();
    return told;
  }

  /** Fill it with what was kept of an answer. */
  restore(told) {
    Object.assign(this.told, told);
    this.finish();
  }

  finish() {
    this.show();
    this.reason.open = !this.told.answer || !this.text.querySelector(".cite");
    this.note(notes(this.told));
  }

  show() {
    const { answer, reason, citations } = this.told;
    this.text.replaceChildren(...prose(answer, citations, openCitation));
    this.reasoning.replaceChildren(...prose(reason, citations, openCitation));
    this.reason.hidden = !reason;
  }

  /** Add lines below the answer. */
  note(lines) {
    this.notes.append(...lines.map((line) => el("p", { class: "hint" }, line)));
  }

  /** Tell below it what went wrong. */
  fail(problem) {
    this.notes.append(el("p", { class: "problem", role: "alert" }, problem));
  }
}

function notes({ answer, reason, length, removed, unsupported, retrieval }) {
  const lines = [];
  if (retrieval?.absence?.abstained) {
    const sure = Math.round(100 * retrieval.absence.probability);
    lines.push(`The documents hold nothing on this, at a probability of ${sure} %; no model was asked.`);
  }
  if (retrieval?.left_out) {
    lines.push(`Left out: ${count(retrieval.left_out, "passage")} found, which the model’s window does not hold.`);
  }
  if (!answer && !reason) {
    lines.push(unsupported.length ? "Nothing is left of what the model wrote." : "The model wrote nothing.");
  }
  if (length) lines.push("Cut: the model reached the longest answer.");
  if (removed.length) {
    const what = removed.length === 1 ? "A citation was" : `${removed.length} citations were`;
    lines.push(`${what} removed: no such passage was read.`);
  }
  for (const { part, text, start, end, cited, missing } of unsupported) {
    const where = cited.map((number) => `[${number}]`).join(" ") || "the passages";
    const of = part === "content" ? "" : " of the reasoning";
    const what = start === end ? `Left out${of}: not` : `Not${of && `,${of},`}`;
    lines.push(`${what} supported by ${where}${missing.length ? ` (not there: ${missing.join(", ")})` : ""}: “${text}”`);
  }
  return lines;
}
