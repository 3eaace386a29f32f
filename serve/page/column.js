// One column: a mode and a model, and what they make of the question: evidence first, then the answer as it is written.

import { post, sentence, stream } from "./api.js";
import { count, cut, el, nodeAddress } from "./dom.js";
import { drawTree, erase } from "./drawing.js";
import { cited, parts } from "./prose.js";
import { openReader } from "./reader.js";
import { pathTree } from "./trees.js";

let made = 0;

/** A column with its selects; `ask(question, options)` fills it, `stop()` ends that. */
export class Column {
  constructor(choices, remove) {
    made += 1;
    this.mode = select(`mode-${made}`, "Mode", [["", "server’s default"], ...choices.modes.map((name) => [name, name])]);
    this.model = select(`model-${made}`, "Model", choices.models.map((name) => [name, name]));
    this.remove = el("button", { type: "button", class: "quiet remove", onclick: () => remove(this) }, "Remove");
    this.status = el("p", { class: "progress", role: "status" });
    this.body = el("div", { class: "column-body" });
    const head = el("div", { class: "column-head" }, this.mode.label, this.model.label, this.remove);
    this.element = el("section", { class: "column", "aria-label": `Answer ${made}` }, head, this.status, this.body);
    this.drawn = null;
  }

  /** Free the drawing. */
  clear() {
    erase(this.element);
    this.body.replaceChildren();
    this.drawn = null;
  }

  stop() {
    this.control?.abort();
  }

  /** Search, show what was found, then have the model write. What fails is told in the column. */
  async ask(question, options) {
    this.stop();
    this.clear();
    this.control = new AbortController();
    const { signal } = this.control;
    const retrieval = { ...options, ...(this.mode.value ? { mode: this.mode.value } : {}) };
    const answer = el("div", { class: "answer", "aria-live": "polite" });
    this.body.append(answer);
    try {
      this.tell("Searching…");
      const evidence = await post("v1/retrieve", { query: question, ...retrieval }, signal);
      this.showEvidence(evidence, []);
      this.tell("Reading…");
      const body = { model: this.model.value, stream: true, stream_options: { include_usage: true }, retrieval,
        messages: [{ role: "user", content: question }] };
      await this.write(stream("v1/chat/completions", body, signal), answer, evidence, performance.now());
    } catch (problem) {
      this.tell("");
      if (signal.aborted) answer.append(el("p", { class: "hint" }, "Stopped."));
      else answer.append(el("p", { class: "problem", role: "alert" }, sentence(problem)));
    }
  }

  async write(events, answer, evidence, started) {
    const told = { text: "", citations: [], removed: [], usage: null, reason: null, answer: null, length: false };
    for await (const event of events) {
      const choice = event.choices?.[0];
      told.usage = event.usage ?? told.usage;
      told.text += choice?.delta?.content ?? "";
      told.length ||= choice?.finish_reason === "length";
      if (choice?.delta?.citations) Object.assign(told, choice.delta);
      if (told.text) this.tell("Writing…");
      this.showAnswer(answer, told, false);
    }
    this.tell("");
    this.showAnswer(answer, told, true);
    this.showEvidence(evidence, told.citations);
    this.body.append(el("p", { class: "cost" }, cost(evidence, told.usage, performance.now() - started)));
  }

  tell(line) {
    if (this.status.textContent !== line) this.status.textContent = line;
  }

  showAnswer(holder, told, done) {
    const shown = told.answer === null ? parts(told.text) : { reason: told.reason, answer: told.answer };
    const lines = [];
    if (shown.answer) lines.push(el("p", { class: "answer-text" }, ...cited(shown.answer, told.citations, openCitation)));
    if (shown.reason) lines.push(el("p", { class: "reason" }, ...cited(shown.reason, told.citations, openCitation)));
    if (done && !shown.answer && !shown.reason) lines.push(el("p", { class: "hint" }, "The model wrote nothing."));
    if (done && told.length) lines.push(el("p", { class: "hint" }, "Cut: the model reached the longest answer."));
    if (told.removed.length) {
      const what = told.removed.length === 1 ? "A citation was" : `${told.removed.length} citations were`;
      lines.push(el("p", { class: "hint" }, `${what} removed: no such passage was read.`));
    }
    holder.replaceChildren(...lines);
  }

  /** The passages, cited ones first, and the way to each. */
  showEvidence(evidence, citations) {
    const numbers = new Map(citations.map((citation) => [citation.id, citation.number]));
    const listed = evidence.passages.map((passage) => ({ ...passage, number: numbers.get(passage.id) }));
    const among = new Set(listed.map((passage) => passage.id));
    const others = citations.filter((citation) => !among.has(citation.id));
    const first = [...listed.filter((each) => each.number), ...others].sort((one, other) => one.number - other.number);
    const section = el("div", { class: "evidence" });
    const rest = listed.filter((each) => !each.number);
    const paths = el("div", { class: "paths" });
    if (first.length) section.append(passageList("Cited", first), paths);
    if (rest.length) section.append(passageList(first.length ? "Also found" : "Found", rest));
    if (!first.length) section.append(listed.length ? paths : el("p", { class: "hint" }, "No passage was found."));
    erase(this.element);
    this.body.querySelector(".evidence")?.remove();
    this.body.append(section);
    this.drawn = listed.length ? { evidence, numbers, paths } : null;
    this.drawPaths();
  }

  /** Draw the paths, or draw them again, as after a change of colours. */
  drawPaths() {
    if (!this.drawn) return;
    const { evidence, numbers, paths } = this.drawn;
    const holder = el("div", { class: "graph", "aria-hidden": "true" });
    const wordsOpen = paths.querySelector("details")?.open ?? false;
    const words = el("details", { open: wordsOpen }, el("summary", {}, "In words"), inWords(evidence));
    erase(paths);
    paths.replaceChildren(el("h3", {}, "How it was found"), holder, words);
    const tree = pathTree(evidence.question, evidence.passages, new Set(numbers.keys()));
    if (drawTree(holder, tree, openReader)) return;
    holder.replaceWith(el("p", { class: "hint" }, "The graph needs WebGL, which this browser does not give."));
    words.open = true;
  }
}

function select(id, label, options) {
  const field = el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  return { label: el("label", { for: id }, el("span", {}, label), field), field, get value() { return field.value; } };
}

/** Open what a citation points at: a place in a document, or a summary among the communities. */
function openCitation(citation) {
  if (citation.source) openReader(citation);
  else location.hash = nodeAddress("summary", citation.id);
}

function passageList(heading, passages) {
  const items = passages.map((passage) => el("li", {},
    el("button", { type: "button", class: "passage", onclick: () => openCitation(passage) },
      passage.number ? el("span", { class: "number" }, String(passage.number)) : null,
      el("span", { class: "title" }, passage.title || passage.source || "Summary"),
      el("span", { class: "snippet" }, cut(passage.text, 220)),
      el("span", { class: "place" }, passage.source ? `${passage.source} · ${passage.start}–${passage.end}`
        : `from ${count(passage.members.length, "passage")}`))));
  return el("div", {}, el("h3", {}, heading), el("ul", { class: "passages" }, ...items));
}

function inWords(evidence) {
  const way = ({ path, score }) => (path.length ? path.join(" → ") : `scored ${score.toFixed(3)} by itself`);
  const lines = evidence.passages.map((each) => el("li", {}, `${each.title || each.source}: question → ${way(each)}`));
  const steps = evidence.trace.steps.map((step) => el("li", {}, step));
  return el("div", {}, el("ol", {}, ...lines), steps.length ? el("ul", {}, ...steps) : null);
}

function cost(evidence, usage, writing) {
  const { trace } = evidence;
  const searching = trace.seconds + trace.encoder_seconds;
  const told = [trace.mode, `${searching.toFixed(2)} s search`, `${(writing / 1000).toFixed(1)} s answer`];
  if (usage) told.push(count(usage.completion_tokens, "token"));
  return told.join(" · ");
}
