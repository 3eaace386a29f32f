// Creates elements. Text becomes text nodes, never markup, so that documents and models cannot inject any.

/** An element with attributes (`on…` are listeners, true is a bare attribute, null, undefined and false are omitted) and children. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A button of the class "quiet"; `attributes` adds attributes or replaces the default ones. */
export const button = (label, onclick, attributes = {}) => el("button", { type: "button", class: "quiet", onclick, ...attributes }, label);

/** A button that shows more of a list; `left` rows are not shown yet. "" if all are shown. */
export const moreButton = (left, onclick) => (left > 0 ? button(`More (${left.toLocaleString("en")})`, onclick, { class: "quiet more" }) : "");

/** Open a dialog with a title, and return it; it is removed when it is closed. */
export function openDialog({ id, title, wide = false }, ...children) {
  const dialog = el("dialog", { class: wide ? "small-dialog wide" : "small-dialog", id, "aria-labelledby": `${id}-title`, onclose: () => dialog.remove() },
    el("h2", { id: `${id}-title` }, title), ...children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Let the browser save `text` as a file. */
export function saveFile(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** The pieces of `text`; those between backticks become code elements. */
export const withCode = (text) => text.split(/`([^`]+)`/).map((piece, place) => (place % 2 ? el("code", {}, piece) : piece));

export const byId = (id) => document.getElementById(id);

/** A number with its noun: "1 passage", "2 passages", "1,234 passages". */
export const count = (number, noun, plural = `${noun}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;

/** Text cut to at most `length` code points, with “…” at the end if it is cut; each run of white space becomes one space. */
export function cut(text, length) {
  const characters = Array.from(text.replace(/\s+/g, " ").trim());
  return characters.length > length ? `${characters.slice(0, length - 1).join("").trimEnd()}…` : characters.join("");
}

/** The beginning of a passage, at most `length` code points, without a heading that repeats its title. */
export function snippet({ title, text }, length) {
  const body = text.replace(/^#+\s*/, "").trim();
  return cut(title && body.startsWith(title) && body !== title ? body.slice(title.length) : body, length);
}

/** The URL fragment at which this page shows a node of the graph. */
export const nodeAddress = (kind, id) => `#browse/${kind}/${encodeURIComponent(id)}`;

/** A part of a URL with its percent escapes decoded; unchanged if they are malformed. */
export function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
