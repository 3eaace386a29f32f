// Draws nodes at given positions with sigma.js (WebGL); without WebGL, callers show a note or a list instead.

import { cut } from "../shared/dom.js";
import { ROW } from "./trees.js";

/** The note in place of a drawing without WebGL. */
export const NEEDS_WEBGL = "The graph needs WebGL, which this browser does not support.";
const { Sigma, graphology } = globalThis;
const LABEL_GAP = 5;
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawings = new Set();

/** Draw the tree of trees.pathTree in `holder`, with edges that run down and then right; a click on a passage calls `open(passage)`. */
export function drawTree(holder, rows, open) {
  const height = rows.length * ROW;
  const nodes = rows.map((each) => ({ ...each, y: height - (each.row + 0.5) * ROW, side: "right" }));
  const byKey = new Map(nodes.map((each) => [each.key, each]));
  const edges = [];
  for (const each of nodes.filter((node) => node.parent)) {
    const corner = { key: `corner-${each.key}`, kind: "corner", label: "", x: byKey.get(each.parent).x, y: each.y, side: "none" };
    nodes.push(corner);
    edges.push({ source: each.parent, target: corner.key }, { source: corner.key, target: each.key });
  }
  return draw(holder, { height, nodes, edges }, (node) => node.passage && open(node.passage));
}

/**
 * Draw nodes with x, y and a side for their labels in a canvas of the holder's width; a click calls `open(node)`. Return the drawing, or null without
 * WebGL.
 */
export function draw(holder, { height, nodes, edges }, open) {
  holder.style.height = `${height}px`;
  const width = holder.clientWidth;
  const graph = new graphology.MultiGraph();
  const colors = colorsOf(holder);
  for (const node of nodes) {
    const size = node.kind === "corner" ? 0.1 : node.center || node.kind === "question" ? 7 : 5;
    graph.addNode(node.key, { of: node, label: node.label, x: node.x, y: node.y, size, color: colors[node.kind] });
  }
  for (const { source, target } of edges) graph.addEdge(source, target, { size: 2, color: colors.edge });
  try {
    const sigma = new Sigma(graph, holder, settingsFor(colors, width));
    sigma.setCustomBBox({ x: [0, width], y: [0, height] });
    sigma.refresh();
    sigma.on("clickNode", ({ node }) => open(graph.getNodeAttribute(node, "of")));
    sigma.on("enterNode", ({ node }) => holder.classList.toggle("pointing", canOpen(graph.getNodeAttribute(node, "of"))));
    sigma.on("leaveNode", () => holder.classList.remove("pointing"));
    drawings.add({ sigma, holder });
    return sigma;
  } catch {
    holder.style.height = "";
    return null;
  }
}

/**
 * Draw nodes {key, kind, label, x, y, links} with zoom and drag; a click calls `open(key)`. Return {zoom(factor), showWhole(), choose(key)},
 * or null without WebGL. `showWhole()` resets the zoom; `choose(key)` highlights a node and its neighbours and zooms to them,
 * `choose(null)` removes the highlight.
 */
export function drawMap(holder, { nodes, edges }, open) {
  const graph = new graphology.Graph();
  const colors = colorsOf(holder);
  const scale = Math.min(1, Math.sqrt(holder.clientWidth / 900));
  for (const { key, kind, label, x, y, links } of nodes) {
    graph.addNode(key, { label: cut(label, 40), x, y, size: scale * Math.min(3 + Math.sqrt(links), 12), color: colors[kind] });
  }
  for (const { source, target } of edges) graph.addEdge(source, target, { size: 1, color: colors.edge });
  let chosen = null;
  const isEmphasized = (key) => chosen === null || key === chosen || graph.areNeighbors(key, chosen);
  const reducers = {
    nodeReducer: (key, data) => (isEmphasized(key) ? { ...data, zIndex: 1, highlighted: key === chosen, forceLabel: chosen !== null }
      : { ...data, zIndex: 0, color: colors.line, size: 3 * scale, label: null }),
    edgeReducer: (key, data) => (chosen === null || graph.hasExtremity(key, chosen) ? data : { ...data, hidden: true }),
  };
  const label = (context, data) => {
    if (!data.label) return;
    context.font = `400 13px ${colors.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.lineWidth = 3;
    context.strokeStyle = colors.paper;
    context.fillStyle = colors.ink;
    for (const write of ["strokeText", "fillText"]) context[write](data.label, data.x + data.size + LABEL_GAP, data.y);
  };
  try {
    const hover = (context, data) => drawHover(context, data, colors, label);
    const sigma = new Sigma(graph, holder, { ...reducers, allowInvalidContainer: true, enableCameraRotation: false, minCameraRatio: 0.05, maxCameraRatio: 2,
      zIndex: true, labelRenderedSizeThreshold: 6 * scale, labelGridCellSize: 120, stagePadding: 40, defaultDrawNodeLabel: label, defaultDrawNodeHover: hover });
    const camera = sigma.getCamera();
    const duration = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : 250;
    sigma.on("clickNode", ({ node }) => open(node));
    sigma.on("enterNode", () => holder.classList.add("pointing"));
    sigma.on("leaveNode", () => holder.classList.remove("pointing"));
    drawings.add({ sigma, holder });
    return {
      zoom: (factor) => camera.animate({ ratio: camera.getBoundedRatio(camera.ratio / factor) }, { duration }),
      showWhole: () => camera.animate({ x: 0.5, y: 0.5, ratio: 1 }, { duration }),
      choose: (key) => {
        chosen = key;
        sigma.refresh();
        if (key === null) return;
        const { x, y } = sigma.getNodeDisplayData(key);
        const reaches = graph.mapNeighbors(key, (other) => sigma.getNodeDisplayData(other)).map((at) => Math.hypot(at.x - x, at.y - y));
        camera.animate({ x, y, ratio: Math.min(1, Math.max(0.1, 2.5 * Math.max(0, ...reaches))) }, { duration });
      },
    };
  } catch {
    return null;
  }
}

/** Free the drawings inside `holder`. */
export function erase(holder) {
  for (const each of drawings) {
    if (!holder.contains(each.holder)) continue;
    each.sigma.kill();
    drawings.delete(each);
  }
}

const canOpen = (node) => Boolean(node.passage || node.id) && !node.center;

function settingsFor(colors, width) {
  const label = (context, data) => drawLabel(context, data, colors, width);
  return {
    stagePadding: 0,
    allowInvalidContainer: true,
    enableCameraZooming: false,
    enableCameraPanning: false,
    enableCameraRotation: false,
    labelDensity: 1000,
    labelGridCellSize: 1,
    labelRenderedSizeThreshold: 0,
    minEdgeThickness: 1,
    defaultDrawNodeLabel: label,
    defaultDrawNodeHover: (context, data) => drawHover(context, data, colors, label),
  };
}

function drawLabel(context, data, colors, width) {
  const { kind, side } = data.of;
  if (side === "none") return;
  const right = side === "right";
  const gap = data.size + LABEL_GAP;
  const labelWidth = (right ? width - data.x : data.x) - gap - 4;
  context.font = `${kind === "question" || kind === "cited" ? 600 : 400} 13px ${colors.font}`;
  context.fillStyle = kind === "step" ? colors.soft : colors.ink;
  context.textAlign = right ? "left" : "right";
  context.textBaseline = "middle";
  context.fillText(fit(context, data.label, labelWidth), data.x + (right ? gap : -gap), data.y);
}

function drawHover(context, data, colors, label) {
  context.beginPath();
  context.arc(data.x, data.y, data.size + 4, 0, 2 * Math.PI);
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.stroke();
  label(context, data);
}

/** `text`, cut with “…” if it does not fit `labelWidth` pixels; "" if not even one character fits. */
function fit(context, text, labelWidth) {
  if (context.measureText(text).width <= labelWidth) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(`${text.slice(0, middle)}…`).width <= labelWidth) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low).trimEnd()}…` : "";
}

function colorsOf(holder) {
  const style = getComputedStyle(holder);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const [accent, ink, soft] = [color("accent"), color("ink"), color("soft")];
  const muted = color("node");
  return { accent, ink, soft, paper: color("paper"), line: color("line"), edge: color("edge"), corner: color("edge"), font: style.fontFamily, question: ink, cited: accent, passage: muted,
    step: color("line-strong"), document: ink, summary: accent, entity: muted, proposition: color("line-strong") };
}

/** Call `redraw` shortly after the colour scheme or the width of the window changes. */
export function onAppearanceChange(redraw) {
  let width = innerWidth;
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(redraw, 120);
  };
  dark.addEventListener("change", soon);
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    soon();
  });
}
