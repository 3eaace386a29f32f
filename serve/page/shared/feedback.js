// What a reader says of answers, sent to /v1/feedback where the server takes it: under a random name that this browser keeps, and with the
// reader's word on whether it may become training data.

import { get, post, remove, sentence } from "./api.js";
import { count, el } from "./dom.js";
import { randomName } from "./random.js";

const PLACE = "modegraph-reader";
let taken = false;

/** Tell whether the server takes feedback. */
export const takeFeedback = (does) => {
  taken = does;
};

/** Whether the server takes feedback. */
export const takesFeedback = () => taken;

/** Send what is said; whether it was. Asks for consent first, if that was not asked yet. */
export async function say(said) {
  const reader = readerOf() ?? (await askConsent());
  if (!reader) return false;
  await post("v1/feedback", { ...reader, ...said });
  return true;
}

/** What is kept of this reader, and how to delete it; nothing for one who said nothing. */
export function feedbackNote() {
  const reader = readerOf();
  if (!reader || !taken) return el("div", {});
  const told = el("p", { class: "hint", role: "status" }, "Your feedback is kept on the server.");
  const button = el("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      const { deleted } = await remove(`v1/feedback/${reader.user}`);
      localStorage.removeItem(PLACE);
      told.textContent = `${count(deleted, "entry", "entries")} deleted from the server.`;
      button.hidden = true;
    } catch (problem) {
      told.textContent = sentence(problem);
    }
  } }, "Delete my feedback");
  const trained = reader.consent ? ", and may become training data." : ", and does not become training data.";
  get(`v1/feedback/${reader.user}`).then(({ entries }) => {
    if (!button.hidden) told.textContent = `${count(entries.length, "entry of yours is", "entries of yours are")} kept on the server${trained}`;
  }, (problem) => {
    told.textContent = sentence(problem);
  });
  return el("div", { class: "mine" }, el("h3", {}, "Feedback"), told, button);
}

function readerOf() {
  try {
    const { user, consent } = JSON.parse(localStorage.getItem(PLACE));
    return typeof user === "string" && typeof consent === "boolean" ? { user, consent } : null;
  } catch {
    return null;
  }
}

/** Ask once whether feedback may become training data; null when the reader would rather say nothing. */
function askConsent() {
  return new Promise((resolve) => {
    let reader = null;
    const decide = (consent) => {
      reader = { user: randomName(), consent };
      localStorage.setItem(PLACE, JSON.stringify(reader));
      dialog.close();
    };
    const dialog = el("dialog", { class: "small-dialog", id: "consent", "aria-labelledby": "consent-title" },
      el("h2", { id: "consent-title" }, "May models learn from it?"),
      el("p", {}, "What you say of answers is kept on this server together with the question and the answers, under a random name that only this browser knows. You can delete it under History."),
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
        el("button", { type: "button", class: "quiet", onclick: () => decide(false) }, "Keep it, train nothing"),
        el("button", { type: "button", class: "primary", onclick: () => decide(true) }, "Yes")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(reader);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
