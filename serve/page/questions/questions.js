// The view of test questions. They are proposed from the documents, written by the user or read from a file; then corrected, approved and downloaded.

import { get, problemLine, sentence } from "../shared/api.js";
import { button, byId, count, el, moreButton, saveFile, withCode } from "../shared/dom.js";
import { randomName } from "../shared/random.js";
import { cardOf } from "./card.js";
import { fromLines, toLines } from "./file.js";
import { isReady, isStorageKey, isUnanswerable, missingPart, openStore, save, snapshot, currentState } from "./store.js";

const PROPOSED = 10;
const PAGE = 50;
const FILE = "questions.jsonl";
const ABOUT = "Test questions show how well models answer from these documents. Approve some here, download them, then pass the file to `modegraph tune --questions` or `modegraph eval`. Questions are stored in this browser only.";
const EMPTY_NOTES = {
  review: "Nothing to review. Propose questions, or add your own.",
  approved: "Nothing is approved yet.",
};
const STORAGE_FULL = "This browser’s storage is full: download the questions before you leave.";
let opened = false;
let parts = null;
let tab = "review";
let shown = PAGE;
let proposing = false;

export async function openQuestions() {
  const view = byId("view-questions");
  if (opened) return;
  opened = true;
  try {
    await openStore();
  } catch (problem) {
    opened = false;
    view.replaceChildren(problemLine(problem));
    return;
  }
  addEventListener("storage", async ({ key }) => {
    if (!isStorageKey(key)) return;
    await openStore();
    show();
    parts.undo.hidden = true;
  });
  build(view);
  show();
}

const itemsOf = (name) => currentState().items.filter((each) => each.approved === (name === "approved"));

function build(view) {
  const file = el("input", { type: "file", id: "questions-file", "aria-label": "Questions file", accept: ".jsonl,.json", hidden: true, onchange: async () => {
    const [chosen] = file.files;
    file.value = "";
    if (chosen) await addFile(chosen);
  } });
  const tabs = Object.fromEntries(["review", "approved"].map((name) => [name, button("", () => openTab(name), { class: "" })]));
  parts = {
    tabs,
    status: el("p", { class: "hint", role: "status" }),
    undo: button("Undo", () => {}),
    propose: button(`Propose ${PROPOSED}`, propose, { class: "primary" }),
    download: button("Download", download),
    list: el("ol", { class: "questions" }),
    more: el("div", {}),
    heading: el("h2", { tabindex: "-1" }, "Questions"),
  };
  view.replaceChildren(
    el("div", { class: "library-head" }, parts.heading, el("p", { class: "hint" }, ...withCode(ABOUT))),
    el("div", { class: "questions-tools" }, parts.propose, button("Add a question", add), button("Open a file…", () => file.click()), file, parts.download),
    el("div", { class: "questions-status" }, parts.status, parts.undo),
    el("div", { class: "tabs", role: "group", "aria-label": "Which questions" }, ...Object.values(tabs)),
    parts.list, parts.more);
  showMessage("");
}

function openTab(name) {
  [tab, shown] = [name, PAGE];
  show();
}

/** Refresh the list and the counts. */
function show() {
  const items = itemsOf(tab);
  shown = Math.max(PAGE, shown);
  parts.list.replaceChildren(...items.slice(0, shown).map((item) => cardOf(item, { onChange, approve: approver(item), discard: discarder(item) })));
  parts.more.replaceChildren(items.length ? "" : el("p", { class: "hint" }, EMPTY_NOTES[tab]), moreButton(items.length - shown, showMore), discardAllButton(items));
  showCounts();
}

function showMore() {
  const first = shown;
  shown += PAGE;
  show();
  parts.list.children[first]?.querySelector("textarea").focus();
}

/** A button that discards all `items`; "" if there are fewer than two. */
function discardAllButton(items) {
  if (items.length < 2) return "";
  return button(`Discard all ${items.length.toLocaleString("en")}`, () => {
    const undo = snapshot();
    drop(items);
    finish(`${count(items.length, "question")} discarded.`, undo);
    parts.undo.focus();
  }, { class: "quiet more" });
}

/** Remove items, and record that they are not to be proposed again. */
function drop(items) {
  const state = currentState();
  state.items = state.items.filter((each) => !items.includes(each));
  state.discarded.push(...items.map(({ row }) => row.id));
}

function showCounts() {
  const ready = itemsOf("approved").filter(isReady).length;
  parts.tabs.review.textContent = `To review (${itemsOf("review").length})`;
  parts.tabs.approved.textContent = `Approved (${itemsOf("approved").length})`;
  for (const [name, each] of Object.entries(parts.tabs)) each.setAttribute("aria-pressed", String(name === tab));
  parts.download.textContent = `Download (${ready})`;
  parts.download.disabled = !ready;
}

/** Show a message about an action; `undo`, if given, undoes the action. */
function showMessage(text, undo = null) {
  parts.status.textContent = text;
  parts.undo.hidden = undo === null;
  parts.undo.onclick = () => {
    undo();
    finish("Undone.");
    parts.tabs[tab].focus();
  };
}

/** Store the questions and show the list and a message, after the list has changed. */
function finish(text, undo = null) {
  const stored = save();
  show();
  showMessage(stored ? text : STORAGE_FULL, undo);
}

/** Store the questions and refresh the counts after a change within a card. */
function onChange() {
  if (!save()) showMessage(STORAGE_FULL);
  showCounts();
}

const approver = (item) => (card) => removeCard(card, 0, () => {
  item.approved = !item.approved;
  return item.approved ? "Approved." : "Moved to review.";
});

const discarder = (item) => (card) => removeCard(card, 1, () => {
  drop([item]);
  return "Discarded.";
});

/**
 * Run an action that removes a card from the list. The focus moves to the button with the given index on the next card, or on the last card if there is
 * no next one; to the tab if the list is empty.
 */
function removeCard(card, buttonIndex, act) {
  const place = Array.from(parts.list.children).indexOf(card);
  const undo = snapshot();
  const text = act();
  finish(`${text} ${count(itemsOf("review").length, "question")} to review.`, undo);
  const next = parts.list.children[Math.min(place, parts.list.children.length - 1)];
  (next?.querySelectorAll(".actions button")[buttonIndex] ?? parts.tabs[tab]).focus();
}

async function propose() {
  if (proposing) return;
  proposing = true;
  showMessage("Reading the documents…");
  try {
    const found = await proposals();
    tab = "review";
    shown = Math.max(shown, itemsOf(tab).length);
    const none = currentState().offset ? "No more questions can be made from these documents. Add your own." : "No questions could be made from these documents: the rules that make them are written for English. Add your own.";
    finish(found ? `${count(found, "question")} proposed. Correct them where needed, then approve or discard them.` : none);
  } catch (problem) {
    showMessage(sentence(problem));
  }
  proposing = false;
}

/** Add up to PROPOSED new proposals; return how many were added. If the index has changed, start again from the first proposal. */
async function proposals() {
  const before = currentState();
  const known = knownIds();
  let { index, offset } = before;
  const rows = [];
  for (;;) {
    const found = await get("v1/questions", { count: PROPOSED, offset });
    const isOther = index !== found.index;
    index = found.index;
    if (isOther && offset) {
      offset = rows.length = 0;
      continue;
    }
    const fresh = found.questions.filter(({ id }) => !known.has(id)).slice(0, PROPOSED - rows.length);
    rows.push(...fresh);
    const last = fresh.at(-1);
    const isFull = rows.length === PROPOSED;
    offset += isFull ? found.questions.indexOf(last) + 1 : found.questions.length;
    if (isFull || offset >= found.total) break;
  }
  const state = currentState();  // another tab or a file may have changed it
  const knownNow = knownIds();
  const added = rows.filter(({ id }) => !knownNow.has(id));
  Object.assign(state, { index, offset });
  state.items.push(...added.map((row) => ({ row, approved: false, own: false })));
  return added.length;
}

/** The ids of the questions that are not to be proposed: those in the list, and those discarded. */
function knownIds() {
  const { items, discarded } = currentState();
  return new Set([...discarded, ...items.map(({ row }) => row.id)]);
}

function add() {
  currentState().items.unshift({ row: { id: randomName().slice(0, 16), question: "", answers: [] }, approved: false, own: true });
  tab = "review";
  finish("Write the question and its answer, and choose the sentence that answers it.");
  parts.list.querySelector("textarea").focus();
}

async function addFile(file) {
  let rows;
  try {
    rows = fromLines(await file.text());
  } catch (problem) {
    showMessage(`${file.name}: ${problem.message}`);
    return;
  }
  const undo = snapshot();
  const state = currentState();
  const ids = new Set(rows.map((row) => row.id));
  const added = rows.map((row) => ({ row, approved: false, own: isUnanswerable(row) }));
  for (const item of added) item.approved = !missingPart(item);
  state.items = [...state.items.filter(({ row }) => !ids.has(row.id)), ...added];
  if (!save()) {
    undo();
    showMessage(`${file.name} is too large for this browser’s storage. Nothing was added.`);
    return;
  }
  const lacking = added.filter((item) => !item.approved).length;
  tab = lacking ? "review" : "approved";
  finish(`${count(rows.length, "question")} from ${file.name}${lacking ? `: ${added.length - lacking} approved, ${lacking} to review because the answer or the document is missing` : ", approved"}.`, undo);
}

function download() {
  const rows = itemsOf("approved").filter(isReady).map(({ row }) => ({ ...row, question: row.question.trim() }));
  saveFile(FILE, toLines(rows), "application/jsonl");
  showMessage(`${count(rows.length, "question")} saved as ${FILE}.`);
}
