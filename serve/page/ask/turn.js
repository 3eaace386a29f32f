// One question with its evidence and, if the server has a model, its answer.

import { actionsOf } from "./actions.js";
import { AnswerView } from "./answer.js";
import { post, sentence, stream } from "../shared/api.js";
import { count, el } from "../shared/dom.js";
import { EvidenceView } from "./evidence.js";

/** As much of `text` as /v1/feedback accepts. */
const longest = (text) => Array.from(text).slice(0, 20_000).join("");

/** A turn of a conversation. `messages` are its messages in the prompts of later turns: none until there is an answer. */
export class Turn {
  constructor(question) {
    this.question = question;
    this.control = new AbortController();
    this.status = el("p", { class: "progress", role: "status" });
    this.answer = new AnswerView();
    this.evidence = new EvidenceView();
    this.model = "";
    this.cost = "";
    this.element = el("article", { class: "turn" }, el("h2", { class: "turn-question" }, question), this.status, this.answer.element, this.evidence.element);
  }

  get messages() {
    const { answer } = this.answer.reply;
    if (!answer) return [];
    return [{ role: "user", content: this.question }, { role: "assistant", content: answer }];
  }

  /** The search query of the question. */
  get searchQuery() {
    return this.answer.reply.retrieval?.question ?? "";
  }

  /** The answer in the form of feedback; null if the turn is not a question about the documents or has no answer. */
  get feedbackAnswer() {
    const { answer, reason, retrieval } = this.answer.reply;
    if (!answer || !retrieval?.question || retrieval.intent !== "question") return null;
    const { context_ids, mode } = retrieval;
    return { model: this.model, text: longest(answer), reasoning: longest(reason), context_ids, mode };
  }

  /** The turn's state to save, as JSON. */
  get state() {
    const { question, model, cost } = this;
    return { question, model, cost, reply: this.answer.reply, evidence: this.evidence.state };
  }

  /** Restore a saved state. */
  restore({ model, cost, reply, evidence }) {
    this.model = model;
    this.answer.restore(reply);
    if (evidence) this.evidence.show(evidence, this.answer.reply.citations);
    this.close(cost);
  }

  /** Show the evidence for the question, without calling a model. */
  async search(retrieval) {
    await this.run(async () => this.end((await this.find(this.question, retrieval)).trace, null, null));
  }

  /** Let the model of `generation` answer, given the earlier turns; the evidence is shown before the answer if the search query is known by then. */
  async ask(generation, retrieval, before) {
    const { signal } = this.control;
    this.model = generation.model;
    await this.run(async () => {
      let evidence = before.length ? null : await this.find(this.question, retrieval);
      this.showStatus("Reading…");
      const messages = [...before, { role: "user", content: this.question }];
      const body = { ...generation, stream: true, stream_options: { include_usage: true }, retrieval, messages };
      const started = performance.now();
      const reply = await this.answer.write(stream("v1/chat/completions", body, signal), (line) => this.showStatus(line));
      const seconds = (performance.now() - started) / 1000;
      const query = reply.retrieval?.question ?? this.question;
      if (before.length && query) evidence = await this.find(query, retrieval).catch((problem) => this.report(problem));
      if (before.length && query && query !== this.question) this.answer.note([`Searched for: ${query}`]);
      if (evidence) this.evidence.show(evidence, this.answer.reply.citations);
      this.end(evidence?.trace, reply.usage, seconds);
    });
  }

  stop() {
    this.control.abort();
  }

  showStatus(line) {
    if (this.status.textContent !== line) this.status.textContent = line;
  }

  async find(question, retrieval) {
    this.showStatus("Searching…");
    const evidence = await post("v1/retrieve", { query: question, ...retrieval }, this.control.signal);
    this.evidence.show(evidence, []);
    return evidence;
  }

  async run(work) {
    try {
      await work();
    } catch (problem) {
      this.answer.show();
      this.report(problem);
    }
    this.showStatus("");
  }

  /** Show below the answer that the reader stopped the turn, or why it failed. */
  report(problem) {
    if (this.control.signal.aborted) this.answer.note(["Stopped."]);
    else this.answer.fail(sentence(problem));
  }

  end(trace, usage, seconds) {
    const parts = trace ? [trace.mode, `${(trace.seconds + trace.encoder_seconds).toFixed(2)} s search`] : ["no search"];
    if (seconds !== null) parts.push(`${seconds.toFixed(1)} s answer`);
    if (usage?.completion_tokens) parts.push(count(usage.completion_tokens, "token"));
    this.close(parts.join(" · "));
  }

  /** Add the last lines: actions on the answer, and its cost (mode, seconds and tokens). */
  close(cost) {
    this.cost = cost;
    if (this.answer.reply.answer || this.answer.reply.reason) this.answer.element.after(actionsOf(this));
    this.element.append(el("p", { class: "cost" }, cost));
  }
}
