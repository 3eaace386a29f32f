// Conversations in this browser's local storage, latest first; the oldest are dropped if there are more than MAX_CONVERSATIONS or the storage is full.
// One that is too large for the storage is not saved.

const STORAGE_KEY = "modegraph-talks";
const MAX_CONVERSATIONS = 100;

/** All saved conversations: [{id, at, title, collection, columns: [{mode, model, settings, turns}]}]. */
export function savedConversations() {
  try {
    const saved = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(saved) ? saved.filter((each) => each?.id && Array.isArray(each.columns)) : [];
  } catch {
    return [];
  }
}

/** A saved conversation; undefined if there is none. */
export const conversationOf = (id) => savedConversations().find((each) => each.id === id);

/** Save a conversation, replacing its earlier state. */
export function saveConversation(conversation) {
  write([conversation, ...savedConversations().filter((each) => each.id !== conversation.id)].slice(0, MAX_CONVERSATIONS));
}

/** Delete a saved conversation. */
export const forgetConversation = (id) => write(savedConversations().filter((each) => each.id !== id));

/** Delete all saved conversations. */
export const forgetAll = () => localStorage.removeItem(STORAGE_KEY);

function write(saved) {
  if (!saved.length) forgetAll();
  for (let n = saved.length; n; n -= 1) {
    try {
      return localStorage.setItem(STORAGE_KEY, JSON.stringify(saved.slice(0, n)));
    } catch {
      // Try without the oldest.
    }
  }
}
