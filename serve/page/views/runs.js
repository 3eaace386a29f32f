// The view of training runs, for the operator of a server with --show-runs: a list, and one run with its curves and its figures before and after tuning.

import { get } from "../shared/api.js";
import { byId, count, cut, el } from "../shared/dom.js";
import { fill } from "../shared/loading.js";

const WIDTH = 420;
const HEIGHT = 150;
const LEFT_MARGIN = 52;
const MARGIN = 12;
const LISTED_FIGURES = 3;
const FIGURE_ORDER = ["eval_f1", "eval_loss", "train_loss", "loss", "f1_tuned", "f1_untuned"];
const MINUTE = 60;

/** Show the list, or the run with the given name. */
export async function openRuns(name) {
  await fill(byId("view-runs"), async () => (name ? course(await get("v1/runs/course", { name })) : list(await get("v1/runs"))));
  byId("runs-title")?.focus({ preventScroll: true });
}

const head = (title, note) => el("div", { class: "library-head" }, el("h2", { id: "runs-title", tabindex: "-1" }, title), el("p", { class: "hint" }, note));

function list({ total, runs }) {
  if (!total) return [head("Runs", "No runs yet in the folder given with --show-runs.")];
  const lines = runs.map((run) => el("li", {},
    el("div", { class: "document-text" },
      el("a", { class: "title", href: `#runs/${encodeURIComponent(run.name)}` }, run.name),
      el("span", { class: "place" }, figures(run.figures))),
    el("dl", { class: "document-facts" }, ...facts(run))));
  const note = runs.length < total ? `${count(total, "run")}; the latest ${runs.length.toLocaleString("en")} are listed` : count(total, "run");
  return [head("Runs", note), el("ul", { class: "documents" }, ...lines)];
}

function facts(run) {
  const when = new Date(run.ended * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return [["Stage", run.stage], ["State", state(run)], ["Last written", when]].flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
}

function state({ state: name, seconds, step, steps, seconds_left: left }) {
  if (name === "finished") return seconds === null ? name : `finished in ${duration(seconds)}`;
  return [steps === null ? name : `${name} at step ${step.toLocaleString("en")} of ${steps.toLocaleString("en")}`,
    name === "running" && left ? `about ${duration(left)} left` : ""].filter(Boolean).join(", ");
}

const duration = (seconds) => (seconds < MINUTE ? `${Math.round(seconds)} s` : seconds < 60 * MINUTE ? `${Math.round(seconds / MINUTE)} min` : `${(seconds / MINUTE / 60).toFixed(1)} h`);
const number = (value) => (value === 0 || Math.abs(value) >= 1e-3 ? String(Number(value.toPrecision(3))) : value.toExponential(1));

function figures(values) {
  const rank = (name) => (FIGURE_ORDER.includes(name) ? FIGURE_ORDER.indexOf(name) : FIGURE_ORDER.length);
  const named = Object.entries(values).sort(([one], [other]) => rank(one) - rank(other));
  return named.slice(0, LISTED_FIGURES).map(([name, value]) => `${name} ${number(value)}`).join(", ");
}

function course({ run, settings, curves, best_step: best, changes }) {
  const losses = ["loss", "eval_loss"].filter((name) => curves[name]);
  const others = Object.keys(curves).filter((name) => !losses.includes(name)).sort((one, other) => FIGURE_ORDER.indexOf(other) - FIGURE_ORDER.indexOf(one));
  const charts = [...(losses.length ? [losses] : []), ...others.map((name) => [name])].map((names) => chart(names, curves, best));
  const dump = Object.entries(settings).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, cut(JSON.stringify(value), 200))]);
  return [
    el("p", {}, el("a", { class: "back", href: "#runs" }, "All runs")),
    head(run.name, ""),
    el("dl", { class: "document-facts" }, ...facts(run), ...(best === null ? [] : [el("dt", {}, "Best"), el("dd", {}, `checkpoint of step ${best.toLocaleString("en")}, by F1 on dev rows`)])),
    changes.length ? table(changes) : "",
    charts.length ? el("div", { class: "charts" }, ...charts) : el("p", { class: "hint" }, "The run logged no losses or dev figures."),
    el("details", {}, el("summary", {}, "Figures and settings"),
      el("p", { class: "place" }, Object.entries(run.figures).map(([name, value]) => `${name} ${number(value)}`).join(", ")),
      el("dl", { class: "document-facts" }, ...dump))];
}

function table(changes) {
  const rows = changes.map((each) => el("tr", {}, el("th", { scope: "row" }, `${each.figure}, ${each.of}`),
    ...[each.before, each.after].map((value) => el("td", {}, number(value)))));
  return el("table", { class: "changes" }, el("caption", {}, "Before and after"),
    el("thead", {}, el("tr", {}, ...["Figure", "Untuned", "Tuned"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows));
}

/** A chart of some curves, described in words below it. */
function chart(names, curves, best) {
  const points = names.flatMap((name) => curves[name]);
  const [steps, values] = [points.map(([step]) => step), points.map(([, value]) => value)];
  const [first, last, low, high] = [Math.min(...steps), Math.max(...steps), Math.min(...values), Math.max(...values)];
  const x = (step) => LEFT_MARGIN + ((step - first) / (last - first || 1)) * (WIDTH - LEFT_MARGIN - MARGIN);
  const y = (value) => MARGIN + (1 - (value - low) / (high - low || 1)) * (HEIGHT - 3 * MARGIN);
  const line = (name, place) => {
    const corners = curves[name].map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    if (corners.length > 1) return shape("polyline", { points: corners.join(" "), class: `curve curve-${place}` });
    return shape("circle", { cx: x(curves[name][0][0]), cy: y(curves[name][0][1]), r: 3, class: `dot curve-${place}` });
  };
  const words = (at, text, end) => Object.assign(shape("text", { ...at, "text-anchor": end ? "end" : "start" }), { textContent: text });
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    ...[low, high].map((value) => words({ x: LEFT_MARGIN - 8, y: y(value) + 4 }, number(value), true)),
    words({ x: LEFT_MARGIN, y: HEIGHT - 2 }, `step ${first}`), words({ x: WIDTH - MARGIN, y: HEIGHT - 2 }, `step ${last}`, true),
    best === null ? "" : shape("line", { x1: x(best), x2: x(best), y1: 0, y2: HEIGHT - 2 * MARGIN, class: "best" }),
    ...names.map(line));
  const legend = names.map((name, place) => el("li", { class: `key-${place}` }, inWords(name, curves[name])));
  return el("figure", {}, picture, el("figcaption", {}, el("ul", {}, ...legend)));
}

function inWords(name, points) {
  const [[, first], [step, last]] = [points[0], points.at(-1)];
  return points.length > 1 ? `${name}: from ${number(first)} to ${number(last)} at step ${step.toLocaleString("en")}` : `${name}: ${number(last)} at step ${step.toLocaleString("en")}`;
}

function shape(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
