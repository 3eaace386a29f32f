// The view to browse the index: lists of summaries, documents and entities, and one node with its neighbours.

import { get, problemLine } from "../shared/api.js";
import { button, byId, count, cut, el, nodeAddress, snippet } from "../shared/dom.js";
import { fill, latest, moreRows } from "../shared/loading.js";
import { draw, erase, NEEDS_WEBGL, onAppearanceChange } from "./drawing.js";
import { openReader } from "./reader.js";
import { starOf } from "./trees.js";
import { COLLECTION_CHANGED } from "./upload.js";

const PAGE = 50;
const EDGES = { has: "Document and passages", next: "Previous and next passages", states: "Passages and statements", mentions: "Statements and entities",
  called: "Document title and entity", synonym: "Other spellings", "sums up": "Members and summaries", similar: "Similar" };
let shown = null;

const shelfShown = () => document.querySelector("[data-shelf][aria-pressed=true]").dataset.shelf;
const tabs = () => document.querySelectorAll("[data-shelf]");

/** Make each tab open its list, and reload the open list and node when the collection changes. */
export function startBrowse() {
  for (const tab of tabs()) tab.addEventListener("click", () => openShelf(tab.dataset.shelf));
  addEventListener(COLLECTION_CHANGED, reload);
  onAppearanceChange(drawShown);
}

function reload() {
  const field = byId("entities-field");
  if (field) field.dispatchEvent(new Event("input"));
  else if (byId("shelf").hasChildNodes()) openShelf(shelfShown());
  if (shown) loadNode(shown.neighbourhood.center);
}

/** Show the view: a node, if the URL names one, and the first list if no list is open yet. */
export async function openBrowse(kind, id) {
  if (!byId("shelf").hasChildNodes()) openShelf("summaries");
  if (kind) await openNode({ kind, id });
  else if (shown) drawShown();
  else byId("node").replaceChildren(el("p", { class: "hint" }, "Choose an item in a list to see its connections."));
}

async function openShelf(name) {
  for (const tab of tabs()) tab.setAttribute("aria-pressed", String(tab.dataset.shelf === name));
  await fill(byId("shelf"), { summaries, documents, entities }[name]);
}

async function summaries() {
  const layers = await get("v1/graph/layers");
  if (!layers.length) return [el("p", { class: "hint" }, "This index has no summaries. Browse its documents or entities.")];
  return layers.reverse().map((each, place) => {
    const name = each.layer === 0 ? "Layer 0, chunks" : `Layer ${each.layer}, communities`;
    const list = el("div", {});
    const page = (offset) => get("v1/graph/summaries", { layer: each.layer, limit: PAGE, offset });
    const load = () => fill(list, () => pagedList(each.summaries, page));
    const layer = el("details", { ontoggle: () => layer.open && !list.querySelector("li") && load() },
      el("summary", {}, name, el("span", { class: "amount" }, String(each.summaries))), list);
    layer.open = place === 0;
    return layer;
  });
}

async function documents() {
  const page = async (offset) => {
    const found = await get("v1/documents", { limit: PAGE, offset });
    return found.documents.map((each) => ({ kind: "document", id: each.source, label: each.title || each.source }));
  };
  const { total } = await get("v1/documents", { limit: 1 });
  return total ? pagedList(total, page) : [nodeList([])];
}

async function entities() {
  const list = el("div", {});
  let timer = 0;
  const search = async () => {
    try {
      list.replaceChildren(nodeList(await latest(list, get("v1/graph/entities", { q: field.value, limit: PAGE }))));
    } catch (problem) {
      list.replaceChildren(problemLine(problem));
    }
  };
  const field = el("input", { id: "entities-field", type: "search", spellcheck: "false", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(search, 150);
  } });
  await search();
  return [el("label", { for: "entities-field" }, "Find an entity"), field, list];
}

/** A list of `total` nodes that begins with those of `page(0)`, and a button for more. */
async function pagedList(total, page) {
  const rows = async (offset) => (await page(offset)).map(line);
  const list = el("ul", { class: "nodes" }, ...(await rows(0)));
  return [list, moreRows(list, total, rows)];
}

function nodeList(nodes) {
  if (!nodes.length) return el("p", { class: "hint" }, "None found.");
  return el("ul", { class: "nodes" }, ...nodes.map(line));
}

const line = (each) => el("li", {}, nodeLink(each));

function nodeLink(each) {
  const name = each.kind === "summary" || each.kind === "proposition" ? cut(each.text, 180) : each.label;
  const text = each.kind === "passage" ? el("span", { class: "snippet" }, snippet({ title: each.label.replace(/ · \d+$/, ""), text: each.text }, 180)) : null;
  return el("a", { href: nodeAddress(each.kind, each.id) }, el("span", { class: text ? "title" : "line" }, name || each.id), text);
}

/** Show a node, and move the focus to it unless the reader moves the focus first. */
async function openNode({ kind, id }) {
  for (const link of document.querySelectorAll("#shelf a")) {
    if (link.hash === nodeAddress(kind, id)) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const loaded = loadNode({ kind, id });
  const focused = document.activeElement;
  await loaded;
  if ([focused, document.body].includes(document.activeElement)) byId("node").focus({ preventScroll: innerWidth > 760 });
}

async function loadNode({ kind, id }) {
  const holder = byId("node");
  erase(holder);
  shown = null;
  holder.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    showNode(holder, await latest(holder, get("v1/graph/neighbourhood", { kind, id, limit: 40 })));
  } catch (problem) {
    holder.replaceChildren(problemLine(problem));
  }
}

function showNode(holder, neighbourhood) {
  const { center } = neighbourhood;
  const { kind } = center;
  const summary = center.layer ? `Community, layer ${center.layer}` : "Chunk, layer 0";
  const place = { document: { source: center.id }, passage: center }[kind];
  const open = () => openReader({ ...place, title: center.label });
  const graph = el("div", { class: "graph", "aria-hidden": "true" });
  holder.replaceChildren(
    el("p", { class: "kind" }, kind === "summary" ? summary : kind),
    el("h2", { class: kind === "summary" ? "long" : null }, kind === "summary" || kind === "proposition" ? center.text : center.label),
    kind === "passage" ? el("p", { class: "node-text" }, center.text) : "",
    place ? button("Open the document", open) : "",
    graph, ...neighbours(neighbourhood));
  shown = { neighbourhood, graph };
  drawShown();
}

function drawShown() {
  if (!shown?.graph.isConnected || !shown.graph.clientWidth) return;
  erase(shown.graph);
  shown.graph.replaceChildren();
  const star = starOf(shown.neighbourhood, shown.graph.clientWidth);
  const open = (node) => !node.center && (location.hash = nodeAddress(node.kind, node.id));
  if (!draw(shown.graph, star, open)) shown.graph.replaceChildren(el("p", { class: "hint" }, NEEDS_WEBGL));
}

function neighbours({ center, nodes, edges, left_out: leftOut }) {
  const byKey = new Map(nodes.map((each) => [each.key, each]));
  const groups = new Map();
  for (const edge of edges) {
    const other = byKey.get(edge.source === center.key ? edge.target : edge.source);
    if (other) groups.set(edge.kind, (groups.get(edge.kind) ?? new Set()).add(other));
  }
  const lists = [...groups].map(([kind, others]) => el("section", {}, el("h3", {}, EDGES[kind] ?? kind), nodeList([...others])));
  if (leftOut) lists.push(el("p", { class: "hint" }, `${count(leftOut, "more neighbour")} not shown.`));
  return lists.length ? lists : [el("p", { class: "hint" }, "This node has no connections.")];
}
