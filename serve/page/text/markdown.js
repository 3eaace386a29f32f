// Renders the Markdown that models commonly write: paragraphs, headings, lists, code, emphasis, rules. Everything else becomes text nodes, whatever it
// contains: no link is live, no image is loaded, and other Markdown is shown as it was written.

import { el } from "../shared/dom.js";

const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*$/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const ITEM = /^( *)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const INLINE = /(`[^`\n]+`|\*\*[^\s*](?:[^*\n]|\*(?!\*))*\*\*|(?<![\w*])\*[^\s*][^*\n]*\*(?!\w)|(?<!\w)_[^\s_][^_\n]*_(?!\w))/;
const MAX_DEPTH = 6;

/** The nodes for `text`; `plain` makes the nodes for text outside code. Elements that contain a line of text have the class "prose-line". */
export function markdown(text, plain) {
  const proseLine = (name, words, options = {}) => el(name, { ...options, class: "prose-line" }, ...inline(words, plain));
  const nodes = [];
  const lines = text.split("\n");
  let paragraph = [];
  const close = () => {
    if (paragraph.length) nodes.push(proseLine("p", paragraph.join("\n")));
    paragraph = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence) {
      close();
      const end = endOfFence(lines, at + 1, fence[1]);
      nodes.push(el("pre", { tabindex: "0" }, el("code", {}, lines.slice(at + 1, end).join("\n"))));
      at = end;
    } else if (heading) {
      close();
      nodes.push(proseLine(`h${Math.min(6, heading[1].length + 2)}`, heading[2]));
    } else if (RULE.test(line)) {
      close();
      nodes.push(el("hr"));
    } else if (ITEM.test(line)) {
      close();
      const end = endOfList(lines, at);
      nodes.push(...lists(lines.slice(at, end), proseLine));
      at = end - 1;
    } else if (line.trim()) paragraph.push(line.trim());
    else close();
  }
  close();
  return nodes;
}

function endOfFence(lines, from, mark) {
  const found = lines.findIndex((line, at) => at >= from && line.trim().startsWith(mark));
  return found < 0 ? lines.length : found;
}

/** The index of the first line after a list. A list consists of items and of indented lines that continue them; one empty line may precede each. */
function endOfList(lines, from) {
  let at = from;
  while (at < lines.length) {
    const next = lines[at].trim() ? at : at + 1;
    const goesOn = ITEM.test(lines[next] ?? "") || (/^\s+\S/.test(lines[next] ?? "") && !FENCE.test(lines[next]));
    if (!goesOn || RULE.test(lines[next])) return at;
    at = next + 1;
  }
  return at;
}

/** The lists of these lines, nested by the indentation of their items. */
function lists(lines, proseLine) {
  const outermost = [];
  const open = [];
  let item = null;
  const finish = () => item?.holder.append(proseLine("span", item.words.join("\n")));
  for (const line of lines.filter((each) => each.trim())) {
    const [, space, number, words] = ITEM.exec(line) ?? [];
    if (space === undefined) {
      item.words.push(line.trim());
      continue;
    }
    finish();
    while (open.length && (open.at(-1).indent > space.length || open.length > MAX_DEPTH)) open.pop();
    const name = number === undefined ? "ul" : "ol";
    const inside = !open.length || open.at(-1).indent + 1 < space.length;
    if (inside || open.at(-1).list.localName !== name) {
      if (!inside) open.pop();
      const list = el(name, number > 1 ? { start: number } : {});
      if (open.length) open.at(-1).list.lastElementChild.append(list);
      else outermost.push(list);
      open.push({ list, indent: space.length });
    }
    const holder = el("li");
    open.at(-1).list.append(holder);
    item = { holder, words: [words] };
  }
  finish();
  return outermost;
}

function inline(text, plain) {
  return text.split(INLINE).flatMap((piece, place) => {
    if (place % 2 === 0) return piece ? plain(piece) : [];
    if (piece.startsWith("`")) return [el("code", {}, piece.slice(1, -1))];
    if (piece.startsWith("**")) return [el("strong", {}, ...inline(piece.slice(2, -2), plain))];
    return [el("em", {}, ...inline(piece.slice(1, -1), plain))];
  });
}
