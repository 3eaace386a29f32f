// Layouts for drawings: the tree from a question to its passages, a node with its neighbours, and a whole graph.

import { cut } from "../shared/dom.js";

export const ROW = 30;
const GOLDEN_ANGLE = Math.PI * (3 - Math.sqrt(5));
const ROUNDS = 200;
const EDGE_PULL = 0.05;
const CENTRE_PULL = 0.02;
const INDENT = 26;
const MARGIN = 14;

/**
 * The paths of a retrieval as a tree, one row per node, deeper nodes further right.
 * Paths with the same first steps share those nodes. Returns [{key, kind, label, x, row, parent, passage}].
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
    rows.push({ key: `r${each.row}`, kind: each.kind, label: each.text, x: MARGIN + depth * INDENT, row: each.row,
      parent: each.parent ? `r${each.parent.row}` : null, passage: each.passage ?? null });
    for (const child of each.children) lay(child, depth + 1);
  };
  lay(root, 0);
  return rows;
}

function node(kind, text, parent) {
  return { kind, text: cut(text, 160), parent, children: [], row: 0 };
}

/**
 * A node between its neighbours: half of them on the right, half on the left, or all on the right if `width` is small. Lengths are in pixels.
 * Returns {height, nodes: [{key, kind, label, x, y, side, id}], edges: [{source, target, weight}]}.
 */
export function starOf({ center, nodes, edges }, width) {
  const others = nodes.filter((each) => each.key !== center.key);
  const narrow = width < 560;
  const onRight = narrow ? others.length : Math.ceil(others.length / 2);
  const rows = Math.max(onRight, 3);
  const height = rows * ROW + MARGIN;
  const place = (each, index) => {
    const right = index < onRight;
    const column = right ? index : index - onRight;
    const inColumn = right ? onRight : others.length - onRight;
    const y = height / 2 + ((inColumn - 1) / 2 - column) * ROW;
    const reach = narrow ? width * 0.16 : width * 0.14;
    const x = narrow ? MARGIN + reach : width / 2 + (right ? reach : -reach);
    return { ...drawingNode(each), x, y, side: right ? "right" : "left" };
  };
  const middle = { ...drawingNode(center), x: narrow ? MARGIN : width / 2, y: height / 2, side: "none", center: true };
  return { height, nodes: [middle, ...others.map(place)], edges };
}

const drawingNode = (each) => ({ key: each.key, kind: each.kind, id: each.id, label: cut(each.label, 160) });

/**
 * Positions for the nodes of a graph, as [x, y]: nodes repel one another, edges attract (Fruchterman and Reingold 1991), and all nodes are pulled to
 * the centre. The same graph always gets the same positions.
 */
export function spread(nodes, edges) {
  const row = new Map(nodes.map((each, place) => [each.key, place]));
  const ends = edges.map((each) => [row.get(each.source), row.get(each.target)]);
  const places = nodes.map((_, place) => [Math.sqrt(place + 1) * Math.cos(place * GOLDEN_ANGLE), Math.sqrt(place + 1) * Math.sin(place * GOLDEN_ANGLE)]);
  for (let round = 0; round < ROUNDS; round += 1) {
    const moves = places.map(([x, y]) => [-x * CENTRE_PULL, -y * CENTRE_PULL]);
    const move = (one, other, strength) => {
      for (const axis of [0, 1]) {
        const step = (places[other][axis] - places[one][axis]) * strength;
        moves[one][axis] += step;
        moves[other][axis] -= step;
      }
    };
    const apart = (one, other) => Math.hypot(places[one][0] - places[other][0], places[one][1] - places[other][1]) + 0.01;
    for (let one = 0; one < nodes.length; one += 1) {
      for (let other = 0; other < one; other += 1) move(one, other, -1 / apart(one, other) ** 2);
    }
    for (const [one, other] of ends) move(one, other, apart(one, other) * EDGE_PULL);
    const longest = Math.sqrt(nodes.length) * 0.2 * (1 - round / ROUNDS);
    moves.forEach(([x, y], place) => {
      const part = Math.min(1, longest / (Math.hypot(x, y) + 1e-9));
      places[place][0] += x * part;
      places[place][1] += y * part;
    });
  }
  return places;
}
