// The panel that shows a document's text with a place in it marked. Offsets count code points, as the index counts them.

import { get, sentence } from "./api.js";
import { byId, count, el } from "./dom.js";

/** Open `source` at characters start to end. */
export async function openReader({ source, title, start, end }) {
  const dialog = byId("reader");
  const text = byId("reader-text");
  byId("reader-title").textContent = title || source;
  byId("reader-place").textContent = placeOf({ source, start, end });
  text.replaceChildren(el("p", { class: "hint" }, "Opening…"));
  if (!dialog.open) dialog.showModal();
  try {
    const address = source.split("/").map(encodeURIComponent).join("/");
    const found = await get(`v1/documents/${address}`);
    text.replaceChildren(...marked(found.passages, start, end));
    byId("reader-title").textContent = found.title || source;
    byId("reader-place").textContent = `${placeOf({ source, start, end })} · ${count(found.passages.length, "passage")}`;
    text.querySelector("mark")?.scrollIntoView({ block: "center" });
  } catch (problem) {
    text.replaceChildren(el("p", { class: "problem" }, sentence(problem)));
  }
  text.focus({ preventScroll: true });
}

/** A place in words. */
const placeOf = ({ source, start, end }) =>
  end ? `${source}, characters ${start.toLocaleString("en")}–${end.toLocaleString("en")}` : source;

/** The document's text from its passages, in order: plain text, and a <mark> over what lies between start and end. */
export function marked(passages, start, end) {
  const nodes = [];
  let at = 0;
  for (const passage of [...passages].sort((one, other) => one.start - other.start)) {
    if (passage.start > at && at > 0) nodes.push(passage.start - at > 1 ? "\n\n" : " ");
    const from = Math.max(at, passage.start);
    const characters = Array.from(passage.text);
    const piece = (first, last) => {
      const low = Math.max(first, from);
      return characters.slice(low - passage.start, Math.max(low, last) - passage.start).join("");
    };
    const inside = piece(start, Math.min(end, passage.end));
    nodes.push(piece(from, Math.min(start, passage.end)));
    if (inside) nodes.push(el("mark", {}, inside));
    nodes.push(piece(Math.max(end, from), passage.end));
    at = Math.max(at, passage.end);
  }
  return nodes.filter((node) => node !== "");
}

/** Wire the panel's own buttons. */
export function startReader() {
  const dialog = byId("reader");
  byId("reader-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
