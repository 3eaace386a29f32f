// The page at /docs: the routes of openapi.json by tag, each with its request, responses and, unless it deletes something or accepts files, a form to try it.

import { get, problemLine } from "../shared/api.js";
import { byId, count, decodePart, el, withCode } from "../shared/dom.js";
import { startKey } from "../shared/key.js";
import { fields, kind, line } from "./schema.js";
import { tryForm } from "./try.js";

const JSON_TYPE = "application/json";
const PLACES = [["path", "In the path"], ["query", "In the query"], ["header", "In a header"]];

/** The routes in the order of openapi.json. */
function routesOf(openapi) {
  return Object.entries(openapi.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })));
}

function byTag(routes) {
  const groups = new Map();
  for (const route of routes) {
    const tag = route.operation.tags?.[0] ?? "other";
    groups.set(tag, [...(groups.get(tag) ?? []), route]);
  }
  return groups;
}

function routeDetails(route, openapi) {
  const { method, path, operation } = route;
  const address = `${method}${path}`.replace(/[^a-z0-9]+/gi, "-").replace(/-$/, "").toLowerCase();
  const details = el("details", { class: "route", id: address, "data-path": path, "data-method": method },
    el("summary", {},
      el("span", { class: `method ${method}` }, method.toUpperCase()),
      el("code", { class: "path" }, path),
      el("span", { class: "summary" }, operation.summary ?? "")),
    el("div", { class: "inside" },
      ...(operation.description ?? "").split(/\n\s*\n/).filter(Boolean).map((part) => el("p", {}, ...withCode(part))),
      ...parameters(operation, openapi),
      ...body(operation, openapi),
      ...responses(operation, openapi),
      tryForm(route, openapi)));
  details.addEventListener("toggle", () => {
    if (details.open) history.replaceState(null, "", `#${address}`);
  });
  return details;
}

function parameters(operation, openapi) {
  return PLACES.flatMap(([place, title]) => {
    const matching = (operation.parameters ?? []).filter((each) => each.in === place);
    const lines = matching.map((each) => line(each.name, each.schema, each.required, each.description, openapi));
    return lines.length ? [el("h3", {}, title), el("ul", { class: "fields" }, ...lines)] : [];
  });
}

function body(operation, openapi) {
  const content = operation.requestBody?.content ?? {};
  return Object.entries(content).flatMap(([type, { schema }]) => [
    el("h3", {}, "Body ", el("span", { class: "type" }, type === JSON_TYPE ? "JSON" : type)),
    ...fieldsOrKind(schema, openapi),
  ]);
}

function responses(operation, openapi) {
  return Object.entries(operation.responses ?? {}).flatMap(([status, response]) => {
    const [[type, content] = []] = Object.entries(response.content ?? {});
    const typeName = type === JSON_TYPE ? "JSON" : (type ?? "");
    return [
      el("h3", {}, "Response ", el("span", { class: "type" }, [status, response.description, typeName].filter(Boolean).join(" · "))),
      ...(content?.schema ? fieldsOrKind(content.schema, openapi) : []),
    ];
  });
}

/** A schema's fields, preceded by the schema's kind if it is a list or has no fields. */
function fieldsOrKind(schema, openapi) {
  const lists = fields(schema, openapi);
  const head = schema.type === "array" || !lists.length ? [el("p", { class: "kind" }, kind(schema, openapi))] : [];
  return [...head, ...lists];
}

function openTarget() {
  const target = byId(decodePart(location.hash.slice(1)));
  if (!(target instanceof HTMLDetailsElement)) return;
  target.open = true;
  target.scrollIntoView();
}

async function start() {
  startKey();
  for (const link of document.querySelectorAll("nav a")) link.search = location.search;
  const place = byId("routes");
  try {
    const openapi = await get("openapi.json");
    const routes = routesOf(openapi);
    place.replaceChildren(
      el("div", { class: "intro" },
        el("h2", {}, "API"),
        el("p", {}, openapi.info.description ?? ""),
        el("p", { class: "place" }, `Version ${openapi.info.version} · `, el("a", { href: "openapi.json" }, "openapi.json"))),
      ...[...byTag(routes)].map(([tag, group]) =>
        el("section", { "aria-label": tag }, el("h2", {}, tag), ...group.map((route) => routeDetails(route, openapi)))));
    byId("status").textContent = count(routes.length, "route");
    addEventListener("hashchange", openTarget);
    openTarget();
  } catch (problem) {
    place.replaceChildren(problemLine(problem));
  }
}

start();
