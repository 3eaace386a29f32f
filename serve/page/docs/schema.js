// A JSON schema for readers: its type in words, its limits and its fields as a list, with references resolved.

import { count, el, withCode } from "../shared/dom.js";

const KINDS = { integer: "whole number", number: "number", string: "text", boolean: "true or false", null: "null", object: "object" };
const LIMITS = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"]];
const EMPTY_DEFAULTS = ["null", '""', "[]", "{}"];
const LENGTHS = [["minLength", "maxLength", "character"], ["minItems", "maxItems", "item"]];

/** The target of a `$ref` in `openapi` (an OpenAPI document); any other schema unchanged. */
export function resolve(schema, openapi) {
  if (schema.$ref === undefined) return schema;
  return schema.$ref.replace(/^#\//, "").split("/").reduce((inside, name) => inside[name], openapi);
}

/** The type of a schema in words, such as "list (whole number)". */
export function kind(schema, openapi) {
  const found = resolve(schema, openapi);
  if (found.anyOf ?? found.oneOf) {
    return [...new Set((found.anyOf ?? found.oneOf).map((each) => kind(each, openapi)))].join(" or ");
  }
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.enum) return found.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (found.type === "array") return found.items ? `list (${kind(found.items, openapi)})` : "list";
  if (found.contentMediaType || found.format === "binary") return "file";
  if (found.type === "object" && found.additionalProperties?.type && !found.properties) {
    return `object (${kind(found.additionalProperties, openapi)})`;
  }
  if (found.properties && found.title) return found.title;
  return KINDS[found.type] ?? "anything";
}

/** The limits of a schema, of its alternatives and of its items, then its default, as texts: ["≥ 1", "≤ 100", "default 5"]. */
export function limits(schema, openapi) {
  const found = resolve(schema, openapi);
  const texts = LIMITS.filter(([name]) => found[name] !== undefined).map(([name, sign]) => `${sign} ${formatNumber(found[name])}`);
  for (const [least, most, unit] of LENGTHS) {
    if (found[most] !== undefined) texts.push(`${formatNumber(found[least] ?? 0)} to ${count(found[most], unit)}`);
    else if (found[least] !== undefined) texts.push(`at least ${count(found[least], unit)}`);
  }
  if (found.pattern) texts.push(`pattern ${found.pattern}`);
  for (const choice of found.anyOf ?? found.oneOf ?? []) texts.push(...limits(choice, openapi));
  if (found.type === "array" && found.items && !found.items.$ref) {
    texts.push(...limits(found.items, openapi).map((each) => `each ${each}`));
  }
  const defaultText = JSON.stringify(found.default);
  if (defaultText !== undefined && !EMPTY_DEFAULTS.includes(defaultText)) texts.push(`default ${defaultText}`);
  return texts;
}

/** One line of a list of parameters or fields, with its nested fields below. */
export function line(name, schema, required, description, openapi, above = []) {
  return el("li", { class: "field" },
    el("code", { class: "name" }, name),
    el("span", { class: "kind" }, kind(schema, openapi)),
    required ? el("span", { class: "required" }, "required") : null,
    el("span", { class: "limits" }, limits(schema, openapi).join(", ")),
    description ? el("span", { class: "about" }, ...withCode(description)) : null,
    ...fields(schema, openapi, above));
}

/** The lists of fields below a schema: none for a plain value, several for alternatives. A type nested in itself is not expanded again. */
export function fields(schema, openapi, above = []) {
  const found = resolve(schema, openapi);
  if (schema.$ref && above.includes(schema.$ref)) return [el("span", { class: "about" }, "(as above)")];
  const inside = schema.$ref ? [...above, schema.$ref] : above;
  const within = [...(found.anyOf ?? found.oneOf ?? []), ...(found.type === "array" && found.items ? [found.items] : [])];
  if (!found.properties) return within.flatMap((each) => fields(each, openapi, inside));
  const lines = Object.entries(found.properties).map(([name, each]) =>
    line(name, each, found.required?.includes(name), each.description ?? "", openapi, inside));
  return [el("ul", { class: "fields" }, ...lines)];
}

/**
 * An initial value for a schema: its first example, or its default if truthy; otherwise its first alternative, constant or permitted value, a list of one
 * item, an object of its required fields, an integer's minimum, or an empty value.
 */
export function example(schema, openapi) {
  const found = resolve(schema, openapi);
  if (found.examples ?? found.default) return found.examples?.[0] ?? found.default;
  if (found.anyOf ?? found.oneOf) return example((found.anyOf ?? found.oneOf)[0], openapi);
  if (found.const !== undefined || found.enum) return found.const ?? found.enum[0];
  if (found.type === "array") return found.items ? [example(found.items, openapi)] : [];
  if (found.properties) {
    const required = Object.entries(found.properties).filter(([name]) => found.required?.includes(name));
    return Object.fromEntries(required.map(([name, each]) => [name, example(each, openapi)]));
  }
  return { string: "", integer: found.minimum ?? 0, number: 0, boolean: false, object: {} }[found.type] ?? null;
}

const formatNumber = (number) => (Math.abs(number) >= 1e15 ? String(number) : number.toLocaleString("en"));
