// Sends feedback on answers to /v1/feedback, if the server accepts it: under a random name stored in this browser, and with the reader's
// decision whether it may become training data.

import { get, post, remove, sentence } from "./api.js";
import { count, el } from "./dom.js";
import { randomName } from "./random.js";

const STORAGE_KEY = "modegraph-reader";
let accepted = false;

/** Set whether the server accepts feedback. */
export const setAcceptsFeedback = (accepts) => {
  accepted = accepts;
};

/** Whether the server accepts feedback. */
export const acceptsFeedback = () => accepted;

/** Send an entry; returns whether it was sent. Asks for consent first, unless the reader has already decided. */
export async function sendFeedback(entry) {
  const reader = readerOf() ?? (await askConsent());
  if (!reader) return false;
  await post("v1/feedback", { ...reader, ...entry });
  return true;
}

/** A note on the stored feedback of this reader, and a button to delete it; empty without feedback. */
export function feedbackNote() {
  const reader = readerOf();
  if (!reader || !accepted) return el("div", {});
  const status = el("p", { class: "hint", role: "status" }, "Your feedback is stored on the server.");
  const button = el("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      const { deleted } = await remove(`v1/feedback/${reader.user}`);
      localStorage.removeItem(STORAGE_KEY);
      status.textContent = `${count(deleted, "entry", "entries")} deleted from the server.`;
      button.hidden = true;
    } catch (problem) {
      status.textContent = sentence(problem);
    }
  } }, "Delete my feedback");
  const use = reader.consent ? "and may become training data" : "and will not become training data";
  get(`v1/feedback/${reader.user}`).then(({ entries }) => {
    if (!button.hidden) status.textContent = `${count(entries.length, "entry of yours is", "entries of yours are")} stored on the server, ${use}.`;
  }, (problem) => {
    status.textContent = sentence(problem);
  });
  return el("div", { class: "mine" }, el("h3", {}, "Feedback"), status, button);
}

function readerOf() {
  try {
    const { user, consent } = JSON.parse(localStorage.getItem(STORAGE_KEY));
    return typeof user === "string" && typeof consent === "boolean" ? { user, consent } : null;
  } catch {
    return null;
  }
}

/** Ask once whether feedback may become training data; null if the reader cancels. */
function askConsent() {
  return new Promise((resolve) => {
    let reader = null;
    const decide = (consent) => {
      reader = { user: randomName(), consent };
      localStorage.setItem(STORAGE_KEY, JSON.stringify(reader));
      dialog.close();
    };
    const dialog = el("dialog", { class: "small-dialog", id: "consent", "aria-labelledby": "consent-title" },
      el("h2", { id: "consent-title" }, "May models learn from your feedback?"),
      el("p", {}, "Your feedback is stored on this server together with the question and the answers, under a random name that only this browser knows. You can delete it under History."),
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
        el("button", { type: "button", class: "quiet", onclick: () => decide(false) }, "Save, but do not train"),
        el("button", { type: "button", class: "primary", onclick: () => decide(true) }, "Yes")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(reader);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
