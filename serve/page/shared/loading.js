// Parts of the page that show what the server answers: only the answer to the latest request, or why it failed; and lists that are loaded page by page.

import { problemLine } from "./api.js";
import { el, moreButton } from "./dom.js";

const newest = new WeakMap();

/** The outcome of `request`, which fills `holder`; none, ever, if another request for `holder` begins before that. */
export const latest = (holder, request) => new Promise((resolve, reject) => {
  newest.set(holder, request);
  const ifNewest = (settle) => (outcome) => newest.get(holder) === request && settle(outcome);
  request.then(ifNewest(resolve), ifNewest(reject));
});

/** Show the nodes that `load()` returns in `holder`, or why it failed; a hint until then. */
export async function fill(holder, load) {
  holder.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    holder.replaceChildren(...(await latest(holder, load())));
  } catch (problem) {
    holder.replaceChildren(problemLine(problem));
  }
}

/** A button that appends the rows `load(offset)` to a list, below the reason if that fails; without the button if the list has `total` rows. */
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
