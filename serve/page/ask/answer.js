// An answer, in progress or finished: the text, the verdict of the check, the collapsible reasoning, and notes.

import { count, el } from "../shared/dom.js";
import { openCitation } from "./evidence.js";
import { labelCitations, prose } from "../text/prose.js";

const REFRESH_MS = 50;
const CHECKS = ["citations", "removed", "unsupported", "not_checked"];

/** The view of one answer; `write(events, showStatus)` fills it from a stream and reports progress. */
export class AnswerView {
  constructor() {
    this.text = el("div", { class: "answer-text" });
    this.reasoning = el("div", { class: "prose" });
    this.reason = el("details", { class: "reason", hidden: true, open: true }, el("summary", {}, "Reasoning"), this.reasoning);
    this.notes = el("div", {});
    this.verdict = el("p", { class: "verdict", hidden: true });
    this.element = el("div", { class: "answer", "aria-live": "polite" }, this.text, this.verdict, this.reason, this.notes);
    this.reply = { answer: "", reason: "", citations: [], removed: [], unsupported: [], not_checked: [], usage: null, retrieval: null, length: false };
  }

  /** Read the events of a completion; return the whole reply. */
  async write(events, showStatus) {
    const reply = this.reply;
    let shown = 0;
    for await (const event of events) {
      const choice = event.choices?.[0];
      const delta = choice?.delta ?? {};
      reply.usage = event.usage ?? reply.usage;
      reply.retrieval = event.retrieval ?? reply.retrieval;
      reply.answer += delta.content ?? "";
      reply.reason += delta.reasoning_content ?? "";
      reply.length ||= choice?.finish_reason === "length";
      for (const name of CHECKS) reply[name] = delta[name] ?? reply[name];
      if ("checked" in delta) reply.checked = delta.checked;
      if (reply.answer || reply.reason) showStatus("Writing…");
      if (performance.now() - shown < REFRESH_MS) continue;
      this.show(true);
      shown = performance.now();
    }
    this.finish();
    return reply;
  }

  /** Fill the view with a saved reply. */
  restore(reply) {
    Object.assign(this.reply, reply);
    this.finish();
  }

  finish() {
    this.show();
    for (const part of [this.text, this.reasoning]) labelCitations(part, this.reply.citations);
    const verdict = verdictOf(this.reply);
    this.verdict.hidden = !verdict;
    if (verdict) this.verdict.replaceChildren(el("strong", { class: `badge ${verdict.kind}` }, verdict.name), ` ${verdict.why}`);
    this.reason.open = !this.reply.answer || !this.text.querySelector(".cite");
    this.note(notes(this.reply));
  }

  /** Show the reply; screen readers announce it once it is no longer in progress. */
  show(inProgress = false) {
    this.element.setAttribute("aria-busy", String(inProgress));
    const { answer, reason, citations } = this.reply;
    this.text.replaceChildren(...prose(answer, citations, openCitation));
    this.reasoning.replaceChildren(...prose(reason, citations, openCitation));
    this.reason.hidden = !reason;
  }

  /** Add lines below the answer. */
  note(lines) {
    this.notes.append(...lines.map((line) => el("p", { class: "hint" }, line)));
  }

  /** Show an error below the answer. */
  fail(problem) {
    this.notes.append(el("p", { class: "problem", role: "alert" }, problem));
  }
}

/**
 * The verdict of the check of a reply's sentences, as {kind, name, why}; null for a reply that the server does not check, such as a reply to a remark,
 * and for one without a sentence to check.
 */
function verdictOf({ answer, reason, retrieval, checked, unsupported, not_checked: unchecked }) {
  const marked = unsupported.filter(({ start, end }) => start < end).length;
  const sentences = (number) => count(number, "sentence");
  if (!retrieval?.excerpts || checked === undefined || !(answer || reason)) return null;
  if (checked === null) return { kind: "unchecked", name: "Not checked", why: "The check is off." };
  if (marked) return { kind: "unsupported", name: "Not supported", why: `The passages do not seem to support ${marked} of ${sentences(checked)}.` };
  if (!checked) return unchecked.length ? { kind: "unchecked", name: "Not checked", why: "No sentence could be judged." } : null;
  if (checked === unsupported.length) return null;  // all were left out, which the notes say
  const passed = `check found nothing unsupported in ${sentences(checked - unsupported.length)}. It is a cheap check, not proof.`;
  if (!unchecked.length) return { kind: "checked", name: "Checked", why: `The ${passed}` };
  return { kind: "partly", name: "Partly checked", why: `${sentences(unchecked.length)} could not be judged; the ${passed}` };
}

function notes({ answer, reason, length, removed, unsupported, not_checked: unchecked, retrieval }) {
  const lines = [];
  if (retrieval?.absence?.abstained) {
    const probability = Math.round(100 * retrieval.absence.probability);
    lines.push(`The documents probably do not cover this question (probability ${probability}%); the model was not called.`);
  }
  if (retrieval?.left_out) {
    lines.push(`Left out: ${count(retrieval.left_out, "passage")} that did not fit the model’s context window.`);
  }
  if (!answer && !reason) lines.push("The model wrote nothing.");
  if (length) lines.push("Cut off: the answer reached the maximum length.");
  if (removed.length) {
    const what = removed.length === 1 ? "A citation was removed: its number belongs" : `${removed.length} citations were removed: their numbers belong`;
    lines.push(`${what} to no passage that the model read.`);
  }
  for (const { part, text, start, end, cited, missing, probability } of unsupported) {
    const where = cited.map((number) => `[${number}]`).join(" ") || "the passages";
    const isReasoning = part !== "content";
    const what = start === end ? `Left out${isReasoning ? " of the reasoning" : ""}: not` : isReasoning ? "In the reasoning: not" : "Not";
    const lacking = missing.length ? `; missing: ${missing.join(", ")}` : "";
    lines.push(`${what} supported by ${where} (probability ${probability.toFixed(2)}${lacking}): “${text}”`);
  }
  for (const { text, because } of unchecked) lines.push(`Not checked: “${text}” ${because}.`);
  return lines;
}
