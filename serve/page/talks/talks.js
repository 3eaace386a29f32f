// Conversations in this browser's local storage, latest first; the oldest are dropped when there are more than MOST, or when the storage is full.

const STORAGE_KEY = "modegraph-talks";
const MOST = 100;

/** All saved conversations: [{id, at, title, collection, columns: [{mode, model, settings, turns}]}]. */
export function talks() {
  try {
    const saved = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(saved) ? saved.filter((each) => each?.id && Array.isArray(each.columns)) : [];
  } catch {
    return [];
  }
}

/** A saved conversation; undefined if there is none. */
export const talkOf = (id) => talks().find((each) => each.id === id);

/** Save a conversation, replacing its earlier state. */
export function saveTalk(talk) {
  write([talk, ...talks().filter((each) => each.id !== talk.id)].slice(0, MOST));
}

/** Delete a saved conversation. */
export const forgetTalk = (id) => write(talks().filter((each) => each.id !== id));

/** Delete all saved conversations. */
export const forgetAll = () => localStorage.removeItem(STORAGE_KEY);

function write(saved) {
  const left = [...saved];
  for (;;) {
    try {
      if (left.length) localStorage.setItem(STORAGE_KEY, JSON.stringify(left));
      else forgetAll();
      return;
    } catch {
      if (!left.length) return;
      left.pop();
    }
  }
}
