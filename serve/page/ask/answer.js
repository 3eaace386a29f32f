// An answer, in progress or finished: the text, the reasoning that can be folded away, notes on what was removed or cut.

import { count, el } from "../shared/dom.js";
import { openCitation } from "./evidence.js";
import { prose } from "../text/prose.js";

const SHOWN_MS = 50;

/** The view of one answer; `write(events, showStatus)` fills it from a stream and reports progress. */
export class AnswerView {
  constructor() {
    this.text = el("div", { class: "answer-text" });
    this.reasoning = el("div", { class: "prose" });
    this.reason = el("details", { class: "reason", hidden: true, open: true }, el("summary", {}, "Reasoning"), this.reasoning);
    this.notes = el("div", {});
    this.element = el("div", { class: "answer", "aria-live": "polite" }, this.text, this.reason, this.notes);
    this.reply = { answer: "", reason: "", citations: [], removed: [], unsupported: [], not_checked: [], usage: null, retrieval: null, length: false };
  }

  /** Read the events of a completion; returns the whole reply. */
  async write(events, showStatus) {
    const reply = this.reply;
    let shown = 0;
    for await (const event of events) {
      const choice = event.choices?.[0];
      reply.usage = event.usage ?? reply.usage;
      reply.retrieval = event.retrieval ?? reply.retrieval;
      reply.answer += choice?.delta?.content ?? "";
      reply.reason += choice?.delta?.reasoning_content ?? "";
      reply.length ||= choice?.finish_reason === "length";
      reply.citations = choice?.delta?.citations ?? reply.citations;
      reply.removed = choice?.delta?.removed ?? reply.removed;
      reply.unsupported = choice?.delta?.unsupported ?? reply.unsupported;
      reply.not_checked = choice?.delta?.not_checked ?? reply.not_checked;
      if (reply.answer || reply.reason) showStatus("Writing…");
      if (performance.now() - shown < SHOWN_MS) continue;
      this.show();
      shown = performance.now();
    }
    this.finish();
    return reply;
  }

  /** Fill it with a saved reply. */
  restore(reply) {
    Object.assign(this.reply, reply);
    this.finish();
  }

  finish() {
    this.show();
    this.reason.open = !this.reply.answer || !this.text.querySelector(".cite");
    this.note(notes(this.reply));
  }

  show() {
    const { answer, reason, citations } = this.reply;
    this.text.replaceChildren(...prose(answer, citations, openCitation));
    this.reasoning.replaceChildren(...prose(reason, citations, openCitation));
    this.reason.hidden = !reason;
  }

  /** Add lines below the answer. */
  note(lines) {
    this.notes.append(...lines.map((line) => el("p", { class: "hint" }, line)));
  }

  /** Show an error below it. */
  fail(problem) {
    this.notes.append(el("p", { class: "problem", role: "alert" }, problem));
  }
}

function notes({ answer, reason, length, removed, unsupported, not_checked: unchecked, retrieval }) {
  const lines = [];
  if (retrieval?.absence?.abstained) {
    const probability = Math.round(100 * retrieval.absence.probability);
    lines.push(`The documents hold nothing on this, at a probability of ${probability} %; the model was not called.`);
  }
  if (retrieval?.left_out) {
    lines.push(`Left out: ${count(retrieval.left_out, "passage")} found, which do not fit the model’s window.`);
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
  for (const { text, because } of unchecked) lines.push(`Not checked: “${text}” ${because}.`);
  return lines;
}
