// Settings of a column: temperature, longest answer, and when to abstain. Empty fields are not sent.

import { el } from "../shared/dom.js";

const ABSTAIN_OPTIONS = [["", "server’s default"], ["0.9", "decline if very likely missing"], ["0.5", "decline if likely missing"], ["1", "always answer"]];

/** The settings of one column, collapsed at first; their names and values are those of the API. */
export class Settings {
  constructor(number) {
    this.fields = {
      temperature: numeric(`temperature-${number}`, "Temperature", { min: 0, max: 2, step: 0.1, placeholder: "0" }),
      max_tokens: numeric(`max-tokens-${number}`, "Longest answer, in tokens", { min: 1, max: 1_000_000, placeholder: "auto" }),
      abstain: select(`abstain-${number}`, "If the answer may be missing", ABSTAIN_OPTIONS),
    };
    this.line = el("summary", {});
    this.element = el("details", { class: "settings", onchange: () => this.show() }, this.line,
      el("div", { class: "fields" }, ...Object.values(this.fields).map((each) => each.label)));
    this.show();
  }

  /** The values, "" for the server's default. */
  get state() {
    return Object.fromEntries(Object.entries(this.fields).map(([name, field]) => [name, field.value]));
  }

  restore(state) {
    for (const [name, field] of Object.entries(this.fields)) field.choose(state[name] ?? "");
    this.show();
  }

  fold() {
    this.element.open = false;
  }

  /** The fields of a request that go to the model. */
  get generation() {
    return this.numbers("temperature", "max_tokens");
  }

  /** The fields of a request that go to the search. */
  get retrieval() {
    return this.numbers("abstain");
  }

  numbers(...names) {
    return Object.fromEntries(names.filter((name) => this.fields[name].value !== "").map((name) => [name, Number(this.fields[name].value)]));
  }

  /** List the settings that differ from the server's defaults; the list stays visible while the settings are folded. */
  show() {
    const { temperature, max_tokens: longest, abstain } = this.state;
    const declines = abstain && ABSTAIN_OPTIONS.find(([value]) => value === abstain)[1];
    const changed = [temperature && `temperature ${temperature}`, longest && `at most ${longest} tokens`, declines];
    this.line.textContent = ["Settings", changed.filter(Boolean).join(", ")].filter(Boolean).join(": ");
  }
}

/** A labelled list of options [value, text]; `choose(value)` selects one, if it exists. */
export function select(id, label, options) {
  const field = el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  return { label: el("label", { for: id }, el("span", {}, label), field), field, get value() { return field.value; },
    choose: (value) => { if (options.some(([each]) => each === value)) field.value = value; } };
}

function numeric(id, label, limits) {
  const field = el("input", { id, type: "number", inputmode: "decimal", ...limits });
  return { label: el("label", { for: id }, el("span", {}, label), field), get value() { return field.value; },
    choose: (value) => { field.value = value; } };
}
