// The form for trying a route: a field for each parameter, and for POST a box for the JSON body. Routes that delete or accept files have no form.

import { getResponse, postResponse, sentence } from "../shared/api.js";
import { el } from "../shared/dom.js";
import { example, resolve } from "./schema.js";

const MAX_OUTPUT_CHARS = 100_000;

/** The form for a route; null if it cannot be tried here. */
export function tryForm({ method, path, operation }, openapi) {
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  if (method !== "get" && !(method === "post" && schema)) return null;
  const box = method === "post" ? jsonBox(path, schema, openapi) : null;
  const inputs = (operation.parameters ?? []).map((each) => [each, input(each, openapi)]);
  const status = el("p", { class: "place", role: "status" });
  const output = el("pre", { class: "answered", tabindex: "0", "aria-label": "Response", hidden: true });
  const button = el("button", { class: "primary", type: "submit" }, "Try");
  const form = el("form", { class: "try", autocomplete: "off" },
    ...inputs.map(([each, field]) => el("label", {}, each.name, field)), box && el("label", {}, "Body", box), button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    status.textContent = "Waiting for the response…";
    const started = performance.now();
    try {
      const response = await callRoute(path, inputs, box);
      const text = await response.text();
      status.textContent = `${response.status}, ${Math.round(performance.now() - started)} ms`;
      output.textContent = indentJson(text).slice(0, MAX_OUTPUT_CHARS);
      output.hidden = false;
    } catch (problem) {
      status.textContent = [problem.status, problem instanceof SyntaxError ? `The body is not valid JSON: ${problem.message}.` : sentence(problem)].filter(Boolean).join(": ");
      output.hidden = true;
    } finally {
      button.disabled = false;
    }
  });
  return el("div", {}, el("h3", {}, "Try"), form, status, output);
}

/** Call a route with the values in the form; URLs are relative to the page. */
function callRoute(path, inputs, box) {
  let address = path.slice(1);
  const values = {};
  for (const [parameter, field] of inputs) {
    if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(field.value));
    else if (parameter.in === "query") values[parameter.name] = field.value;
  }
  return box ? postResponse(address, JSON.parse(box.value), undefined, values) : getResponse(address, values);
}

function input(parameter, openapi) {
  const schema = resolve(parameter.schema, openapi);
  const name = { "data-parameter": parameter.name, required: Boolean(parameter.required) };
  if (schema.enum) return el("select", name, ...schema.enum.map((each) => el("option", {}, String(each))));
  const numeric = schema.type === "integer" || schema.type === "number";
  const placeholder = schema.default === undefined ? "" : String(schema.default);
  const limits = numeric ? { min: schema.minimum, max: schema.maximum } : { maxlength: schema.maxLength };
  return el("input", { ...name, ...limits, type: numeric ? "number" : "text", placeholder, spellcheck: "false" });
}

function jsonBox(path, schema, openapi) {
  const text = JSON.stringify(example(schema, openapi), null, 2);
  return el("textarea", { rows: Math.min(12, text.split("\n").length + 1), spellcheck: "false", "data-body": path }, text);
}

/** A JSON text with line breaks and indentation; any other text unchanged. */
function indentJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
