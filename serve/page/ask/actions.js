// What can be done with an answer that is whole: copy it, share it, and say what one thinks of it.

import { sentence } from "../shared/api.js";
import { el } from "../shared/dom.js";
import { correct } from "./correct.js";
import { say, takesFeedback } from "../shared/feedback.js";

/** The buttons below the answer of a turn. */
export function actionsOf(turn) {
  const told = el("p", { class: "hint", role: "status" });
  const tell = (line) => {
    told.textContent = line;
  };
  const button = (name, onclick, more = {}) => el("button", { type: "button", class: "quiet", onclick, ...more }, name);
  const copying = button("Copy", async () => tell((await copy(asText(turn))) ? "Copied with its sources." : "This browser does not let the page copy."));
  const sharing = button("Share", async () => tell(await share(turn)));
  const opinions = takesFeedback() && turn.given ? votes(turn, tell) : [];
  return el("div", {}, el("div", { class: "actions", role: "group", "aria-label": "This answer" }, copying, sharing, ...opinions), told);
}

function votes(turn, tell) {
  const pressed = { "aria-pressed": "false" };
  const vote = (rating) => async () => {
    try {
      if (!(await say({ kind: "vote", question: turn.searched, answer: turn.given, rating }))) return;
      for (const [name, each] of Object.entries(buttons)) each.setAttribute("aria-pressed", String(name === rating));
      tell("Kept. Thank you.");
    } catch (problem) {
      tell(sentence(problem));
    }
  };
  const buttons = {
    up: el("button", { type: "button", class: "quiet", onclick: vote("up"), ...pressed }, "Good"),
    down: el("button", { type: "button", class: "quiet", onclick: vote("down"), ...pressed }, "Not good"),
  };
  const correcting = el("button", { type: "button", class: "quiet", onclick: () => correct(turn, tell) }, "Correct…");
  return [buttons.up, buttons.down, correcting];
}

/** Question, answer and the sources of its citations, as plain text. */
export function asText({ question, answer }) {
  const { answer: text, reason, citations } = answer.told;
  const sources = [...citations].sort((one, other) => one.number - other.number).map((each) => {
    const place = [each.title, each.source, each.page ? `p. ${each.page}` : "", each.source ? addressOf(each) : ""];
    return `[${each.number}] ${place.filter(Boolean).join(", ")}`;
  });
  return [question, text || reason, sources.join("\n")].filter(Boolean).join("\n\n");
}

/** Where this page opens a passage. */
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

/** By the browser's own means where it has them, else as a file; what was done, in words. */
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
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  el("a", { href: address, download: "answer.txt" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  return "Saved as answer.txt, with its sources.";
}
