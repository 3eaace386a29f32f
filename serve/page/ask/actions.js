// Actions on a finished answer: copy it, share it, or give feedback on it.

import { button, el, saveFile } from "../shared/dom.js";
import { correct } from "./correct.js";
import { acceptsFeedback, choiceButtons } from "../shared/feedback.js";

const RATINGS = [["up", "Good"], ["down", "Not good"]];

/** The buttons below the answer of a turn. */
export function actionsOf(turn) {
  const status = el("p", { class: "hint", role: "status" });
  const showStatus = (line) => {
    status.textContent = line;
  };
  const copyButton = button("Copy", async () => showStatus((await copy(asText(turn))) ? "Copied with its sources." : "The browser does not allow this page to copy text."));
  const shareButton = button("Share", async () => showStatus(await share(turn)));
  const feedbackButtons = acceptsFeedback() && turn.feedbackAnswer ? feedbackButtonsOf(turn, showStatus) : [];
  return el("div", {}, el("div", { class: "actions", role: "group", "aria-label": "This answer" }, copyButton, shareButton, ...feedbackButtons), status);
}

function feedbackButtonsOf(turn, showStatus) {
  const entryOf = (rating) => ({ kind: "vote", question: turn.searchQuery, answer: turn.feedbackAnswer, rating });
  return [...choiceButtons(RATINGS, entryOf, showStatus), button("Correct…", () => correct(turn, showStatus))];
}

/** Question, answer and the sources of its citations, as plain text. */
function asText({ question, answer }) {
  const { answer: text, reason, citations } = answer.reply;
  const sources = [...citations].sort((one, other) => one.number - other.number).map((each) => {
    const place = [each.title, each.source, each.page ? `p. ${each.page}` : "", each.source ? addressOf(each) : "", each.attributed ? "not cited by the model" : ""];
    return `[${each.number}] ${place.filter(Boolean).join(", ")}`;
  });
  return [question, text || reason, sources.join("\n")].filter(Boolean).join("\n\n");
}

/** The URL at which this page opens a passage. */
const addressOf = ({ source, start, end }) =>
  new URL(`#read/${encodeURIComponent(source)}/${start}-${end}`, location.href.split("#")[0]).href;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Share with the browser's own dialog if it has one, otherwise as a file; return a message for the reader. */
async function share(turn) {
  const text = asText(turn);
  if (navigator.share) {
    try {
      await navigator.share({ title: turn.question, text });
      return "";
    } catch (problem) {
      if (problem.name === "AbortError") return "";
    }
  }
  saveFile("answer.txt", text, "text/plain");
  return "Saved as answer.txt, with its sources.";
}
