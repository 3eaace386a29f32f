// The view to browse the index: lists of summaries, documents and entities, and one node with its neighbours.

import { get, problemLine } from "../shared/api.js";
import { button, byId, count, cut, el, moreButton, nodeAddress, snippet } from "../shared/dom.js";
import { draw, erase, onAppearanceChange } from "./drawing.js";
import { openReader } from "./reader.js";
import { starOf } from "./trees.js";
import { COLLECTION_CHANGED } from "./upload.js";

const PAGE = 50;
const EDGES = { has: "Document and passages", next: "Previous and next passages", states: "Passages and statements", mentions: "Statements and entities",
  called: "Document title and entity", synonym: "Other spellings", "sums up": "Members and summaries", similar: "Similar" };
let shown = null;

const shelfShown = () => document.querySelector("[data-shelf][aria-pressed=true]").dataset.shelf;
const tabs = () => document.querySelectorAll("[data-shelf]");

/** Make each tab open its list, and reload the open list when the collection changes. */
export function startBrowse() {
  for (const tab of tabs()) tab.addEventListener("click", () => openShelf(tab.dataset.shelf));
  addEventListener(COLLECTION_CHANGED, () => byId("shelf").hasChildNodes() && openShelf(shelfShown()));
  onAppearanceChange(drawShown);
}

/** Show the view: a node, if the URL names one, and the first list if no list is open yet. */
export async function openBrowse(kind, id) {
  if (!byId("shelf").hasChildNodes()) openShelf("summaries");
  if (kind) await openNode(kind, id);
  else if (!shown) byId("node").replaceChildren(el("p", { class: "hint" }, "Choose an item in a list to see its connections."));
}

async function openShelf(name) {
  for (const tab of tabs()) tab.setAttribute("aria-pressed", String(tab.dataset.shelf === name));
  const shelf = byId("shelf");
  shelf.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  let content;
  try {
    content = await { summaries, documents, entities }[name]();
  } catch (problem) {
    content = [problemLine(problem)];
  }
  if (shelfShown() === name) shelf.replaceChildren(...content);
}

async function summaries() {
  const layers = await get("v1/graph/layers");
  if (!layers.length) return [el("p", { class: "hint" }, "This index has no summaries. Browse its documents or entities.")];
  return layers.reverse().map((each, place) => {
    const name = each.layer === 0 ? "Layer 0, chunks" : `Layer ${each.layer}, communities`;
    const list = el("div", {});
    const layer = el("details", { ontoggle: () => layer.open && !list.hasChildNodes() && fill() },
      el("summary", {}, name, el("span", { class: "amount" }, String(each.summaries))), list);
    const page = (offset) => get("v1/graph/summaries", { layer: each.layer, limit: PAGE, offset });
    const fill = () => appendPage(list, each.summaries, page);
    layer.open = place === 0;
    return layer;
  });
}

async function documents() {
  const list = el("div", {});
  const page = async (offset) => {
    const found = await get("v1/documents", { limit: PAGE, offset });
    return found.documents.map((each) => ({ kind: "document", id: each.source, label: each.title || each.source }));
  };
  const { total } = await get("v1/documents", { limit: 1 });
  await appendPage(list, total, page);
  return [list];
}

async function entities() {
  const list = el("div", {});
  let timer = 0;
  const search = async () => {
    const q = field.value;
    try {
      const found = await get("v1/graph/entities", { q, limit: PAGE });
      if (q === field.value) list.replaceChildren(nodeList(found));
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

/** Append the next page to a list, and a button that appends another if more nodes are left. */
async function appendPage(holder, total, page) {
  const found = await page(holder.querySelectorAll("li").length);
  holder.querySelector(".more")?.remove();
  holder.append(nodeList(found));
  const left = total - holder.querySelectorAll("li").length;
  if (found.length) holder.append(moreButton(left, () => appendPage(holder, total, page)));
}

function nodeList(nodes) {
  if (!nodes.length) return el("p", { class: "hint" }, "None found.");
  return el("ul", { class: "nodes" }, ...nodes.map((each) => el("li", {}, nodeLink(each))));
}

function nodeLink(each) {
  const name = each.kind === "summary" || each.kind === "proposition" ? cut(each.text, 180) : each.label;
  const text = each.kind === "passage" ? el("span", { class: "snippet" }, snippet({ title: each.label.replace(/ · \d+$/, ""), text: each.text }, 180)) : null;
  return el("a", { href: nodeAddress(each.kind, each.id) }, el("span", { class: text ? "title" : "line" }, name || each.id), text);
}

async function openNode(kind, id) {
  const holder = byId("node");
  erase(holder);
  shown = null;
  holder.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  for (const link of document.querySelectorAll("#shelf a")) {
    if (link.hash === nodeAddress(kind, id)) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  try {
    const neighbourhood = await get("v1/graph/neighbourhood", { kind, id, limit: 40 });
    showNode(holder, neighbourhood);
  } catch (problem) {
    holder.replaceChildren(problemLine(problem));
  }
  holder.focus({ preventScroll: innerWidth > 760 });
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
  if (!draw(shown.graph, star, open)) shown.graph.replaceChildren(el("p", { class: "hint" }, "The graph needs WebGL, which this browser does not support."));
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
