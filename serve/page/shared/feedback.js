// The reader's feedback on answers. If the server accepts feedback, it is sent to /v1/feedback under a random name that this browser stores, with the
// reader's decision on whether it may become training data. A note shows how many entries are stored; a button deletes them.

import { get, post, remove, sentence } from "./api.js";
import { button, count, el, openDialog } from "./dom.js";
import { randomName } from "./random.js";

const STORAGE_KEY = "modegraph-reader";
let accepted = false;
let collections = [];

/** Set whether the server accepts feedback, and the names of its collections; feedback is stored separately for each. */
export const setAcceptsFeedback = (accepts, names) => {
  accepted = accepts;
  collections = names;
};

/** Whether the server accepts feedback. */
export const acceptsFeedback = () => accepted;

/** Send an entry, and return whether it was sent. First ask for consent, unless the reader has already decided. */
export async function sendFeedback(entry) {
  const reader = readerOf() ?? (await askConsent());
  if (!reader) return false;
  await post("v1/feedback", { ...reader, ...entry });
  return true;
}

/**
 * Buttons for the `choices` [[value, label]]; at most one is pressed. `entryOf(value)` is the entry to send; `showStatus` is called with a message about
 * the outcome.
 */
export function choiceButtons(choices, entryOf, showStatus) {
  const buttons = choices.map(([value, label]) => button(label, async () => {
    try {
      if (!(await sendFeedback(entryOf(value)))) return;
      choices.forEach(([each], place) => buttons[place].setAttribute("aria-pressed", String(each === value)));
      showStatus("Saved. Thank you.");
    } catch (problem) {
      showStatus(sentence(problem));
    }
  }, { "aria-pressed": "false" }));
  return buttons;
}

/** A note on this reader's feedback in all collections, and a button to delete it; empty if the reader has sent none or the server accepts none. */
export function feedbackNote() {
  const reader = readerOf();
  if (!reader || !accepted) return el("div", {});
  const status = el("p", { class: "hint", role: "status" }, "Your feedback is stored on the server.");
  const inEach = (call) => Promise.all(collections.map((collection) => call(`v1/feedback/${reader.user}`, { collection })));
  const deleteButton = button("Delete my feedback", async () => {
    try {
      const deleted = sum((await inEach(remove)).map((each) => each.deleted));
      localStorage.removeItem(STORAGE_KEY);
      status.textContent = `${count(deleted, "entry", "entries")} deleted from the server.`;
      deleteButton.hidden = true;
    } catch (problem) {
      status.textContent = sentence(problem);
    }
  });
  const use = reader.consent ? "and may become training data" : "and will not become training data";
  inEach(get).then((found) => {
    const stored = sum(found.map((each) => each.entries.length));
    if (!deleteButton.hidden) status.textContent = `${count(stored, "feedback entry is", "feedback entries are")} stored on the server, ${use}.`;
  }, (problem) => {
    status.textContent = sentence(problem);
  });
  return el("div", { class: "mine" }, el("h3", {}, "Feedback"), status, deleteButton);
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

function readerOf() {
  try {
    const { user, consent } = JSON.parse(localStorage.getItem(STORAGE_KEY));
    return typeof user === "string" && typeof consent === "boolean" ? { user, consent } : null;
  } catch {
    return null;
  }
}

/** Ask whether feedback may become training data, and store the decision; the result is {user, consent}, or null if the reader cancels. */
function askConsent() {
  return new Promise((resolve, reject) => {
    let reader = null;
    const decide = (consent) => {
      reader = { user: randomName(), consent };
      try {
        localStorage.setItem(STORAGE_KEY, JSON.stringify(reader));
      } catch {
        reject(new Error("this browser’s storage is full: delete conversations under History, then try again."));
      }
      dialog.close();
    };
    const dialog = openDialog({ id: "consent", title: "May models learn from your feedback?" },
      el("p", {}, "Your feedback is stored on this server together with the question and the answers, under a random name. You can delete it under History."),
      el("div", { class: "buttons" },
        button("Cancel", () => dialog.close()),
        button("Save, but do not use for training", () => decide(false)),
        button("Yes", () => decide(true), { class: "primary" })));
    dialog.addEventListener("close", () => resolve(reader));
  });
}
