// One column: a mode, a model, and the conversation with them.

import { el } from "../shared/dom.js";
import { Turn } from "./turn.js";

const HISTORY_TURNS = 20;
let columnCount = 0;

/** A column with its selects; `ask(question, options)` adds a turn, `stop()` ends it. Without a model each search replaces the last one. */
export class Column {
  constructor(choices, remove) {
    columnCount += 1;
    this.turns = [];
    this.mode = select(`mode-${columnCount}`, "Mode", [["", "server’s default"], ...choices.modes.map((name) => [name, name])]);
    this.model = choices.models.length ? select(`model-${columnCount}`, "Model", choices.models.map((name) => [name, name])) : null;
    this.remove = el("button", { type: "button", class: "quiet remove", onclick: () => remove(this) }, "Remove");
    this.body = el("div", { class: "column-body" });
    const head = el("div", { class: "column-head" }, this.mode.label, this.model?.label ?? null, this.remove);
    this.element = el("section", { class: "column", "aria-label": `Answer ${columnCount}` }, head, this.body);
  }

  /** Forget the conversation and free its drawings. */
  clear() {
    this.stop();
    for (const turn of this.turns) turn.evidence.clear();
    this.turns = [];
    this.body.replaceChildren();
  }

  stop() {
    this.turns.at(-1)?.stop();
  }

  /** The column's state to save, as JSON. */
  get state() {
    return { mode: this.mode.value, model: this.model?.value ?? "", turns: this.turns.filter((turn) => turn.cost).map((turn) => turn.state) };
  }

  /** Restore a saved state; a mode or model that the server lacks is not selected. */
  restore({ mode, model, turns }) {
    this.mode.choose(mode);
    this.model?.choose(model);
    for (const each of turns) {
      for (const turn of this.turns) turn.evidence.fold();
      const turn = new Turn(each.question);
      this.turns.push(turn);
      this.body.append(turn.element);
      turn.restore(each);
    }
  }

  /** Search, show the evidence, then let the model answer. Errors are shown in the turn. */
  async ask(question, options) {
    const retrieval = { ...options, ...(this.mode.value ? { mode: this.mode.value } : {}) };
    this.stop();
    if (!this.model) this.clear();
    for (const turn of this.turns) turn.evidence.fold();
    const before = this.turns.slice(-HISTORY_TURNS).flatMap((turn) => turn.messages);
    const turn = new Turn(question);
    this.turns.push(turn);
    this.body.append(turn.element);
    turn.element.scrollIntoView({ block: "start" });
    await (this.model ? turn.ask(this.model.value, retrieval, before) : turn.search(retrieval));
  }

  drawPaths() {
    for (const turn of this.turns) turn.evidence.drawPaths();
  }
}

function select(id, label, options) {
  const field = el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  return { label: el("label", { for: id }, el("span", {}, label), field), field, get value() { return field.value; },
    choose: (value) => { if (options.some(([each]) => each === value)) field.value = value; } };
}
