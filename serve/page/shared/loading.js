// Shows the response to the latest request for a part of the page, or the reason why it failed, and loads lists page by page.

import { problemLine } from "./api.js";
import { el, moreButton } from "./dom.js";

const newest = new WeakMap();

/** The outcome of `request`, which fills `holder`; pending forever if another request for `holder` begins first. */
export const latest = (holder, request) => new Promise((resolve, reject) => {
  newest.set(holder, request);
  const ifNewest = (settle) => (outcome) => newest.get(holder) === request && settle(outcome);
  request.then(ifNewest(resolve), ifNewest(reject));
});

/** Show a hint in `holder`, then the nodes that `load()` returns, or the reason why it failed. */
export async function fill(holder, load) {
  holder.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    holder.replaceChildren(...(await latest(holder, load())));
  } catch (problem) {
    holder.replaceChildren(problemLine(problem));
  }
}

/** A button that appends the rows of `load(offset)` to a list, and a line above it for errors; no button if the list already contains `total` rows. */
export function moreRows(list, total, load) {
  const first = list.children.length;
  const reason = el("div", {});
  const more = moreButton(total - first, async () => {
    try {
      const rows = await latest(list, load(first));
      const isFocused = more === document.activeElement;
      list.append(...rows);
      holder.replaceWith(rows.length ? moreRows(list, total, load) : "");
      if (isFocused) rows[0]?.querySelector("a, button").focus();
    } catch (problem) {
      reason.replaceChildren(problemLine(problem));
    }
  });
  const holder = el("div", {}, reason, more);
  return holder;
}
