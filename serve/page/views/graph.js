// The view of the whole collection as a graph: its best-connected documents and entities, with zoom, a search, and the details of a node.

import { get, problemLine } from "../shared/api.js";
import { button, byId, count, el, nodeAddress } from "../shared/dom.js";
import { latest } from "../shared/loading.js";
import { drawMap, erase, onAppearanceChange } from "./drawing.js";
import { documentLink, openReader } from "./reader.js";
import { spread } from "./trees.js";
import { COLLECTION_CHANGED, emptyNote } from "./upload.js";

const MAX_NODES = 300;
const LISTED = 50;
let graph = null;
let map = null;

/** Wire the view: it is reloaded after a change of the collection, and redrawn after a change of the colour scheme or the window's width. */
export function startGraph() {
  addEventListener(COLLECTION_CHANGED, () => {
    graph = null;
    if (!byId("view-graph").hidden) openGraph();
  });
  onAppearanceChange(redraw);
}

export async function openGraph() {
  if (graph) return map ?? redraw();
  const view = byId("view-graph");
  erase(view);
  view.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    graph = await latest(view, get("v1/graph/overview", { limit: MAX_NODES }));
  } catch (problem) {
    view.replaceChildren(problemLine(problem));
    return;
  }
  if (!graph.nodes.length) return view.replaceChildren(emptyNote());
  const links = new Map();
  for (const key of graph.edges.flatMap((each) => [each.source, each.target])) links.set(key, (links.get(key) ?? 0) + 1);
  const places = spread(graph.nodes, graph.edges);
  graph.nodes.forEach((each, row) => Object.assign(each, { x: places[row][0], y: places[row][1], links: links.get(each.key) ?? 0 }));
  view.replaceChildren(...parts());
  redraw();
  showList();
}

function parts() {
  const kinds = ["document", "entity"].map((kind) => el("li", { class: `kind-${kind}` }, kind));
  return [
    el("div", { class: "library-head" }, el("h2", {}, "Graph"), el("p", { class: "hint", role: "status" }, extent())),
    el("div", { class: "map-tools" },
      el("label", {}, "Find ", el("input", { id: "graph-field", type: "search", spellcheck: "false", oninput: showList })),
      el("div", { class: "buttons" }, button("−", () => map?.zoom(1 / 1.5), { "aria-label": "Zoom out" }),
        button("+", () => map?.zoom(1.5), { "aria-label": "Zoom in" }), button("Show all", showAll, { "aria-label": "Show all" })),
      el("ul", { class: "legend", "aria-label": "Colours" }, ...kinds)),
    el("div", { class: "map" },
      el("div", { id: "map", class: "graph", "aria-hidden": "true" }),
      el("article", { id: "graph-node", class: "node", tabindex: "-1", "aria-label": "Nodes" }))];
}

/** The part of the collection that is drawn, in words. */
function extent() {
  const shareOf = (kind, all, plural) => {
    const some = graph.nodes.filter((each) => each.kind === kind).length;
    return some < all ? `${some} of ${count(all, kind, plural)}` : count(all, kind, plural);
  };
  const part = graph.nodes.length < graph.documents + graph.entities ? "The best-connected: " : "";
  return `${part}${shareOf("document", graph.documents, "documents")}, ${shareOf("entity", graph.entities, "entities")}. A line means that the document mentions the entity.`;
}

/** Draw the graph again; while the view is hidden, only erase it: it is drawn when the view is opened. */
function redraw() {
  const holder = byId("map");
  if (!graph || !holder) return;
  map = null;
  erase(holder);
  holder.replaceChildren();
  if (!holder.clientWidth) return;
  map = drawMap(holder, graph, (key) => choose(graph.nodes.find((each) => each.key === key), true));
  if (!map) holder.replaceChildren(el("p", { class: "hint" }, "The drawing needs WebGL; the list shows the same nodes."));
}

function showAll() {
  map?.choose(null);
  map?.showWhole();
  byId("graph-field").value = "";
  showList();
}

/** List the nodes whose names contain the searched text, the best-connected first. */
function showList() {
  const sought = byId("graph-field").value.trim().toLowerCase();
  const found = graph.nodes.filter((each) => each.label.toLowerCase().includes(sought)).sort((one, other) => other.links - one.links);
  const lines = found.slice(0, LISTED).map((each) => el("li", {}, button(each.label, () => choose(each), { class: `link kind-${each.kind}` })));
  const left = found.length - lines.length;
  byId("graph-node").replaceChildren(
    lines.length ? el("ul", { class: "names" }, ...lines) : el("p", { class: "hint" }, "No node with that name is drawn."),
    left > 0 ? el("p", { class: "hint" }, `${count(left, "more node")} not listed: search by name.`) : "");
}

/** Show a node among its neighbours; `open` also opens its text, if the node is a document. */
async function choose(node, open = false) {
  const holder = byId("graph-node");
  const openDocument = () => openReader({ source: node.id, title: node.label });
  const head = [el("p", { class: "kind" }, node.kind), el("h2", {}, node.label)];
  const ways = el("div", { class: "ways" },
    node.kind === "document" ? button("Open the document", openDocument) : null,
    el("a", { href: nodeAddress(node.kind, node.id) }, "Connections"),
    button("Back", () => {
      showAll();
      holder.focus();
    }));
  map?.choose(node.key);
  const listing = el("div", {});
  holder.replaceChildren(...head, ways, listing);
  holder.focus({ preventScroll: innerWidth > 760 });
  if (node.kind === "document" && open) openDocument();
  if (node.kind !== "entity") return;
  try {
    const { documents, total } = await get("v1/documents", { entity: node.id, limit: LISTED });
    const lines = documents.map((each) => el("li", {}, documentLink(each)));
    listing.replaceChildren(el("h3", {}, count(total, "document mentions it", "documents mention it")), el("ul", { class: "names" }, ...lines),
      total > lines.length ? el("p", { class: "hint" }, `${count(total - lines.length, "more document")} not shown.`) : "");
  } catch (problem) {
    listing.replaceChildren(problemLine(problem));
  }
}
