// The card of one question: its text, its answers, the sentences that answer it, and buttons. Each edit is stored immediately.

import { button, cut, el } from "../shared/dom.js";
import { choosePassage, hasAnswer, openQuote, withAnswer } from "./passage.js";
import { change, isUnanswerable, missingPart } from "./store.js";

let cardCount = 0;

/** The card of an item; `onChange()` is called after each change, `approve(card)` and `discard(card)` when their buttons are clicked. */
export function cardOf(item, { onChange, approve, discard }) {
  const { row } = item;
  const number = cardCount++;
  const id = (part) => `${part}-${number}`;
  const edit = (fields) => {
    change(item, fields);
    refresh();
    onChange();
  };
  const question = area({ id: id("question"), rows: "2", class: "question-text" }, row.question, (text) => edit({ question: text }));
  const answers = area({ id: id("answers"), rows: "1", "aria-describedby": id("answers-note") }, row.answers.join("\n"), (text) =>
    edit({ answers: text.split("\n").map((line) => line.trim()).filter(Boolean) }));
  const unanswerableBox = el("input", { type: "checkbox", onchange: () => edit(unanswerableBox.checked ? { answers: [], gold_ids: [], evidence: [], type: "unanswerable" } : { type: null }) });
  const evidence = el("div", { class: "quotes" });
  const note = el("p", { id: id("answers-note"), class: "hint" });
  const missingNote = el("p", { class: "hint", role: "status" });
  const approveButton = button(item.approved ? "Back to review" : "Approve", () => {
    if (!item.approved && missingPart(item)) missingNote.textContent = missingPart(item);
    else approve(card);
  }, { class: item.approved ? "quiet" : "quiet approve" });
  const discardButton = button("Discard", () => discard(card));
  const chooseButton = button("", () => choosePassage(row.question, row.answers, (quote) => {
    edit({ gold_ids: [quote.id], evidence: [quote] });
    chooseButton.focus();
  }), { class: "quiet choose" });
  const answerFields = el("div", { class: "question-answer" },
    el("label", { for: answers.id }, "Answer (one per line if several are right)"), answers, note, evidence);
  const card = el("li", {}, el("article", {},
    el("label", { for: question.id }, "Question"), question,
    item.own || row.type === "unanswerable" ? el("label", { class: "choice" }, unanswerableBox, "The documents do not answer it") : null,
    answerFields, el("div", { class: "actions" }, approveButton, discardButton, chooseButton), missingNote));

  function refresh() {
    const quotes = row.evidence ?? [];
    const unanswerable = isUnanswerable(row);
    unanswerableBox.checked = unanswerable;
    answerFields.hidden = unanswerable;
    chooseButton.hidden = unanswerable;
    if (unanswerable) answers.value = "";
    if (item.approved || !missingPart(item)) missingNote.textContent = missingPart(item);
    evidence.replaceChildren(...quotes.map((each) => quotation(each, row.answers)));
    if (!quotes.length) evidence.append(...(row.gold_ids ?? []).map((source) => link(source, { id: source, quote: "" })));
    chooseButton.textContent = row.gold_ids?.length ? "Choose another sentence…" : "Choose the sentence that answers it…";
    const isQuoted = !row.answers.length || !quotes.length || quotes.some((each) => hasAnswer(each.quote, row.answers));
    note.textContent = isQuoted ? "" : "The sentence does not contain the answer word for word.";
    const name = cut(row.question, 80) || "the new question";
    card.firstChild.setAttribute("aria-label", name);
    approveButton.setAttribute("aria-label", `${approveButton.textContent}: ${name}`);
    discardButton.setAttribute("aria-label", `Discard: ${name}`);
    chooseButton.setAttribute("aria-label", `${chooseButton.textContent.replace("…", "")}: ${name}`);
  }
  refresh();
  return card;
}

/** A text area; `onEdit(text)` is called on each edit. */
function area(attributes, text, onEdit) {
  const field = el("textarea", { ...attributes, spellcheck: "true", oninput: () => onEdit(field.value) });
  field.value = text;
  return field;
}

/** A sentence with the answer marked, and the document it is from. */
const quotation = (quoted, answers) =>
  el("blockquote", {}, el("p", {}, ...withAnswer(quoted.quote, answers)), link(quoted.id, quoted));

const link = (name, quoted) => button(name, () => openQuote(quoted), { class: "link place", "aria-label": `Open ${name}` });
