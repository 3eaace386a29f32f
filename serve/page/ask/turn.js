// One question and what was made of it: evidence, and where there is a model an answer from it.

import { actionsOf } from "./actions.js";
import { AnswerView } from "./answer.js";
import { post, sentence, stream } from "../shared/api.js";
import { count, el } from "../shared/dom.js";
import { EvidenceView } from "./evidence.js";

/** A turn of a conversation. `messages` is what a later turn tells the model of it: nothing until there is an answer. */
export class Turn {
  constructor(question) {
    this.question = question;
    this.control = new AbortController();
    this.status = el("p", { class: "progress", role: "status" });
    this.answer = new AnswerView();
    this.evidence = new EvidenceView();
    this.model = "";
    this.cost = "";
    this.element = el("article", { class: "turn" }, el("h2", { class: "asked" }, question), this.status, this.answer.element, this.evidence.element);
  }

  get messages() {
    const { answer } = this.answer.told;
    if (!answer) return [];
    return [{ role: "user", content: this.question }, { role: "assistant", content: answer }];
  }

  /** The question as it was searched for. */
  get searched() {
    return this.answer.told.retrieval?.question ?? "";
  }

  /** The answer as feedback names it; null where the turn asked the documents nothing, or has no answer. */
  get given() {
    const { answer, reason, retrieval } = this.answer.told;
    if (!answer || !retrieval?.question || retrieval.intent !== "question") return null;
    const { context_ids, mode } = retrieval;
    return { model: this.model, text: answer, reasoning: reason, context_ids, mode };
  }

  /** What is kept of the turn, as JSON. */
  get kept() {
    const { question, model, cost } = this;
    return { question, model, cost, told: this.answer.told, evidence: this.evidence.kept };
  }

  /** Fill it with what was kept. */
  restore({ model, cost, told, evidence }) {
    this.model = model;
    this.answer.restore(told);
    if (evidence) this.evidence.show(evidence, told.citations);
    this.close(cost);
  }

  /** Show what is found for the question; no model is asked. */
  async search(retrieval) {
    await this.told(async () => this.end((await this.find(this.question, retrieval)).trace, null, null));
  }

  /** Have `model` answer after the turns before; what it reads is shown before it writes, once it is known what that is. */
  async ask(model, retrieval, before) {
    const { signal } = this.control;
    this.model = model;
    await this.told(async () => {
      let evidence = before.length ? null : await this.find(this.question, retrieval);
      this.tell("Reading…");
      const messages = [...before, { role: "user", content: this.question }];
      const body = { model, stream: true, stream_options: { include_usage: true }, retrieval, messages };
      const started = performance.now();
      const told = await this.answer.write(stream("v1/chat/completions", body, signal), (line) => this.tell(line));
      const seconds = (performance.now() - started) / 1000;
      const searched = told.retrieval?.question ?? this.question;
      if (before.length && searched) evidence = await this.find(searched, retrieval);
      if (before.length && searched && searched !== this.question) this.answer.note([`Searched for: ${searched}`]);
      if (evidence) this.evidence.show(evidence, told.citations);
      this.end(evidence?.trace, told.usage, seconds);
    });
  }

  stop() {
    this.control.abort();
  }

  tell(line) {
    if (this.status.textContent !== line) this.status.textContent = line;
  }

  async find(question, retrieval) {
    this.tell("Searching…");
    const evidence = await post("v1/retrieve", { query: question, ...retrieval }, this.control.signal);
    this.evidence.show(evidence, []);
    return evidence;
  }

  async told(work) {
    try {
      await work();
    } catch (problem) {
      this.answer.show();
      if (this.control.signal.aborted) this.answer.note(["Stopped."]);
      else this.answer.fail(sentence(problem));
    }
    this.tell("");
  }

  end(trace, usage, seconds) {
    const told = trace ? [trace.mode, `${(trace.seconds + trace.encoder_seconds).toFixed(2)} s search`] : ["no search"];
    if (seconds !== null) told.push(`${seconds.toFixed(1)} s answer`);
    if (usage) told.push(count(usage.completion_tokens, "token"));
    this.close(told.join(" · "));
  }

  /** The last lines: what can be done with the answer, and what it cost. */
  close(cost) {
    this.cost = cost;
    if (this.answer.told.answer || this.answer.told.reason) this.answer.element.after(actionsOf(this));
    this.element.append(el("p", { class: "cost" }, cost));
  }
}
