// The questions being edited, stored in this browser, separately for each collection: `items` is [{row, approved, own}], where `row` is a line of a
// questions file, and `own` is true for questions that the reader added and for unanswerable questions from files. `index` identifies the index of the
// last proposals, `offset` is the position of the next proposal, `discarded` lists the ids of questions not to be proposed again.

import { collection, get } from "../shared/api.js";

const KEY_PREFIX = "modegraph-questions";
const EMPTY = { items: [], index: "", offset: 0, discarded: [] };
/** Fields that describe how rules or a model made a question; they no longer apply once a reader corrects it. */
const MAKER_FIELDS = ["hops", "passage_ids", "chains", "bridges", "near", "writer"];
let storageKey = null;
let state = structuredClone(EMPTY);

/** Read the questions stored for the collection of the page. */
export async function openStore() {
  storageKey ??= `${KEY_PREFIX}-${collection() ?? (await get("v1/vector_stores")).data[0]?.id ?? ""}`;
  state = readState();
}

/** The state; `save` it after a change. */
export const currentState = () => state;

/** Whether these questions are stored under `key`. */
export const isStorageKey = (key) => key === storageKey;

/** Store the state; return false if the browser's storage is full. */
export function save() {
  try {
    localStorage.setItem(storageKey, JSON.stringify(state));
    return true;
  } catch {
    return false;
  }
}

/** Copy the current state; return a function that restores it, with the rows as they have been edited since. */
export function snapshot() {
  const before = { ...state, items: state.items.map((each) => ({ ...each })), discarded: [...state.discarded] };
  return () => {
    state = before;
  };
}

/** Change fields of an item's row and delete its MAKER_FIELDS; null deletes a field. If no value differs, nothing changes. */
export function change(item, fields) {
  const { row } = item;
  if (Object.entries(fields).every(([name, value]) => JSON.stringify(row[name] ?? null) === JSON.stringify(value))) return;
  for (const name of MAKER_FIELDS) delete row[name];
  for (const [name, value] of Object.entries(fields)) {
    if (value === null) delete row[name];
    else row[name] = value;
  }
}

/** Whether a question goes into the downloaded file. */
export const isReady = (item) => item.approved && !missingPart(item);

/** A sentence that asks for the missing part of a question; "" if the question can be approved. */
export function missingPart({ row }) {
  if (!row.question.trim()) return "Write the question.";
  if (isUnanswerable(row)) return "";
  if (!row.answers.length) return "Write the answer.";
  return row.gold_ids?.length ? "" : "Choose the sentence that answers it.";
}

/** Whether a question is marked as not answered by the documents. */
export const isUnanswerable = (row) => row.type === "unanswerable" && !row.answers.length;

function readState() {
  try {
    const saved = { ...structuredClone(EMPTY), ...JSON.parse(localStorage.getItem(storageKey) ?? "{}") };
    return Array.isArray(saved.items) && Array.isArray(saved.discarded) ? saved : structuredClone(EMPTY);
  } catch {
    return structuredClone(EMPTY);
  }
}
