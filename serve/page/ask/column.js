// One column: a mode, a model with its settings, and the conversation with the model.

import { button, el } from "../shared/dom.js";
import { Settings, select } from "./settings.js";
import { Turn } from "./turn.js";

const HISTORY_TURNS = 20;
let columnCount = 0;

/** A column with its settings; `ask(question, options)` adds a turn, `stop()` ends it, and `changed()` is called when a setting changes. */
export class Column {
  constructor(choices, remove, changed) {
    columnCount += 1;
    this.turns = [];
    this.mode = select(`mode-${columnCount}`, "Mode", [["", "server’s default"], ...choices.modes.map((name) => [name, name])]);
    this.model = choices.models.length ? select(`model-${columnCount}`, "Model", choices.models.map((name) => [name, name])) : null;
    this.remove = button("Remove", () => remove(this), { class: "quiet remove" });
    this.body = el("div", { class: "column-body" });
    this.settings = this.model && new Settings(columnCount);
    const head = el("div", { class: "column-head", onchange: changed }, this.mode.label, this.model?.label ?? null, this.settings?.element ?? null, this.remove);
    this.element = el("section", { class: "column" }, head, this.body);
  }

  /** Remove the conversation and free its drawings. */
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
    return { mode: this.mode.value, model: this.model?.value ?? "", settings: this.settings?.state ?? {}, turns: this.turns.filter((turn) => turn.cost).map((turn) => turn.state) };
  }

  /** Restore a saved state; a mode or model that the server lacks is not selected. */
  restore({ mode, model, settings = {}, turns }) {
    this.mode.choose(mode);
    this.model?.choose(model);
    this.settings?.restore(settings);
    for (const each of turns) this.add(each.question).restore(each);
  }

  /** Add a turn below the others, and collapse their evidence. */
  add(question) {
    for (const turn of this.turns) turn.evidence.fold();
    const turn = new Turn(question);
    this.turns.push(turn);
    this.body.append(turn.element);
    return turn;
  }

  /** Ask a question in a new turn: search, and let the model answer if there is one. Errors are shown in the turn. */
  async ask(question, options) {
    const retrieval = { ...options, ...(this.mode.value ? { mode: this.mode.value } : {}), ...this.settings?.retrieval };
    this.stop();
    this.settings?.fold();
    const before = this.turns.slice(-HISTORY_TURNS).flatMap((turn) => turn.messages);
    const turn = this.add(question);
    turn.element.scrollIntoView({ block: "start" });
    await (this.model ? turn.ask({ model: this.model.value, ...this.settings.generation }, retrieval, before) : turn.search(retrieval));
  }

  drawPaths() {
    for (const turn of this.turns) turn.evidence.drawPaths();
  }
}
