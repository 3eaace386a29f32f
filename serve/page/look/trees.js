// Layouts of drawings: the tree from a question to its passages, and a node with its neighbours. Positions are in pixels.

import { cut } from "../shared/dom.js";

export const ROW = 30;
const STEP = 26;
const EDGE = 14;

/**
 * The paths of a retrieval as a tree, one row a node, deeper ones further right.
 * Paths that begin alike share their beginning. Returns {rows: [{key, kind, label, x, row, parent, passage}]}.
 */
export function pathTree(question, passages, citedIds) {
  const root = node("question", question, null);
  for (const passage of passages) {
    let at = root;
    for (const step of passage.path) {
      const known = at.children.find((child) => child.kind === "step" && child.text === step);
      at = known ?? at.children[at.children.push(node("step", step, at)) - 1];
    }
    const kind = citedIds.has(passage.id) ? "cited" : "passage";
    const name = `${passage.title || passage.source} · ${passage.order + 1}`;
    at.children.push({ ...node(kind, name, at), passage });
  }
  const rows = [];
  const lay = (each, depth) => {
    each.row = rows.length;
    rows.push({ key: `r${each.row}`, kind: each.kind, label: each.text, x: EDGE + depth * STEP, row: each.row,
      parent: each.parent ? `r${each.parent.row}` : null, passage: each.passage ?? null });
    for (const child of each.children) lay(child, depth + 1);
  };
  lay(root, 0);
  return { rows };
}

function node(kind, text, parent) {
  return { kind, text: cut(text, 160), parent, children: [], row: 0 };
}

/**
 * A node between its neighbours: half of them right, half left, or all right where it is narrow.
 * Returns {height, nodes: [{key, kind, label, x, y, side, id}], edges: [{source, target, weight}]}.
 */
export function starOf({ center, nodes, edges }, width) {
  const others = nodes.filter((each) => each.key !== center.key);
  const narrow = width < 560;
  const onRight = narrow ? others.length : Math.ceil(others.length / 2);
  const rows = Math.max(onRight, 3);
  const height = rows * ROW + EDGE;
  const place = (each, index) => {
    const right = index < onRight;
    const column = right ? index : index - onRight;
    const inColumn = right ? onRight : others.length - onRight;
    const y = height / 2 + ((inColumn - 1) / 2 - column) * ROW;
    const reach = narrow ? width * 0.16 : width * 0.14;
    const x = narrow ? EDGE + reach : width / 2 + (right ? reach : -reach);
    return { ...drawn(each), x, y, side: right ? "right" : "left" };
  };
  const middle = { ...drawn(center), x: narrow ? EDGE : width / 2, y: height / 2, side: "none", center: true };
  return { height, nodes: [middle, ...others.map(place)], edges };
}

const drawn = (each) => ({ key: each.key, kind: each.kind, id: each.id, label: cut(each.label, 160) });
