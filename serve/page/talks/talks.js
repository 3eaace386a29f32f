// Conversations as this browser keeps them: in its local storage, the latest first, the oldest given up when there is no room.

const PLACE = "modegraph-talks";
const MOST = 100;

/** All that are kept: [{id, at, title, columns: [{mode, model, turns}]}]. */
export function talks() {
  try {
    const kept = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => each?.id && Array.isArray(each.columns)) : [];
  } catch {
    return [];
  }
}

/** One of them; undefined for one that is not kept. */
export const talkOf = (id) => talks().find((each) => each.id === id);

/** Keep a conversation in place of its earlier state. */
export function keepTalk(talk) {
  write([talk, ...talks().filter((each) => each.id !== talk.id)].slice(0, MOST));
}

/** Forget one. */
export const forgetTalk = (id) => write(talks().filter((each) => each.id !== id));

/** Forget all. */
export const forgetAll = () => localStorage.removeItem(PLACE);

function write(kept) {
  const left = [...kept];
  for (;;) {
    try {
      if (left.length) localStorage.setItem(PLACE, JSON.stringify(left));
      else forgetAll();
      return;
    } catch {
      if (!left.length) return;
      left.pop();
    }
  }
}
