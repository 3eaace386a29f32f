// The view that asks: one question, its options, and from one to three columns that answer it.

import { byId, el } from "./dom.js";
import { whenLooksChange } from "./drawing.js";
import { Column } from "./column.js";

const MOST_COLUMNS = 3;

/** Wire the form; `choices` has the modes and models to choose from. */
export function startAsk(choices) {
  const form = byId("ask-form");
  const question = byId("question");
  const columns = [];

  const show = () => {
    byId("columns").replaceChildren(...columns.map((column) => column.element));
    byId("columns").style.setProperty("--columns", columns.length);
    for (const column of columns) column.remove.hidden = columns.length === 1;
    byId("compare").disabled = columns.length >= MOST_COLUMNS;
    for (const column of columns) column.drawPaths();
  };
  const remove = (column) => {
    column.stop();
    column.clear();
    columns.splice(columns.indexOf(column), 1);
    show();
    byId("compare").focus();
  };
  const add = () => {
    const column = new Column(choices, remove);
    columns.push(column);
    show();
    return column;
  };

  const ask = async () => {
    const text = question.value.trim();
    if (!text) return question.focus();
    const where = byId("where").value.split(",").map((each) => each.trim()).filter(Boolean);
    const k = Number(byId("k").value);
    const options = { ...(k ? { k } : {}), ...(where.length ? { where } : {}) };
    working(true);
    await Promise.allSettled(columns.map((column) => column.ask(text, options)));
    working(false);
  };
  let running = 0;
  const working = (begun) => {
    running += begun ? 1 : -1;
    byId("ask-button").textContent = running ? "Stop" : "Ask";
    byId("ask-button").classList.toggle("stop", running > 0);
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) columns.forEach((column) => column.stop());
    else ask();
  });
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (running) columns.forEach((column) => column.stop());
    ask();
  });
  question.addEventListener("input", () => grow(question));
  byId("compare").addEventListener("click", () => add().mode.field.focus());
  whenLooksChange(() => columns.forEach((column) => column.drawPaths()));
  add();
  byId("columns").append(el("p", { class: "hint welcome" }, "Answers come with the passages they rest on. Enter asks."));
  question.focus();
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}
