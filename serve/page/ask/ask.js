// The view for questions, their options, and one to three columns of answers, each with its own conversation.

import { collection } from "../shared/api.js";
import { byId } from "../shared/dom.js";
import { onAppearanceChange } from "../views/drawing.js";
import { Column } from "./column.js";
import { duelOf } from "./duel.js";
import { startWith } from "./start.js";
import { conversationAddress } from "../conversations/history.js";
import { randomName } from "../shared/random.js";
import { saveConversation, conversationOf } from "../conversations/store.js";

const MAX_COLUMNS = 3;
const WORDS = {
  ask: { label: "Ask your documents", verb: "Ask", welcome: "Answers come with the passages they are based on. Press Enter to ask." },
  search: { label: "Search your documents", verb: "Search",
    welcome: "This server has no model: it shows the passages it finds and writes no answer. Press Enter to search." },
};

/**
 * Wire the form; `choices` lists the modes and models. Without a model, the form only searches. Return {open(id), forget(id)}: `open`
 * shows a saved conversation on the page of its collection; `forget` starts a new one if the deleted conversation is the one shown.
 */
export function startAsk(choices) {
  const words = choices.models.length ? WORDS.ask : WORDS.search;
  const form = byId("ask-form");
  const question = byId("question");
  const columns = [];
  let conversation = null;
  let latest = null;  // the latest question; null if its conversation is no longer shown

  const drawPaths = () => columns.forEach((column) => column.drawPaths());
  const show = () => {
    byId("columns").replaceChildren(...columns.map((column) => column.element));
    byId("columns").style.setProperty("--columns", columns.length);
    for (const [place, column] of columns.entries()) {
      column.remove.hidden = columns.length === 1;
      column.element.setAttribute("aria-label", `Answer ${place + 1}`);
    }
    byId("compare").disabled = columns.length >= MAX_COLUMNS;
    drawPaths();
  };
  const remove = (column) => {
    column.clear();
    columns.splice(columns.indexOf(column), 1);
    byId("duel").replaceChildren();
    show();
  };
  const removeOnClick = (column) => {
    remove(column);
    byId("compare").focus();
  };
  const add = () => {
    const column = new Column(choices, removeOnClick, () => conversation && save());
    columns.push(column);
    show();
    return column;
  };

  /** Place the form below the conversation if one has begun, otherwise at the top. */
  const placeForm = (hasBegun) => {
    byId("fresh").hidden = !hasBegun;
    byId("view-ask").classList.toggle("in-conversation", hasBegun);
    if (hasBegun === (form.previousElementSibling !== null)) return;
    if (hasBegun) byId("columns").after(form);
    else byId("columns").before(form);
    question.focus({ preventScroll: true });
  };
  const ask = async () => {
    const text = question.value.trim();
    if (!text) return question.focus();
    const where = byId("where").value.split(",").map((each) => each.trim()).filter(Boolean);
    const k = Number(byId("k").value);
    const options = { ...(k ? { k } : {}), ...(where.length ? { where } : {}) };
    if (choices.models.length) {
      placeForm(true);
      question.value = "";
      grow(question);
      byId("duel").replaceChildren();
    } else restart();  // a search replaces the previous one, and the opened conversation
    showRunning(true);
    const current = (latest = Symbol(text));
    await Promise.allSettled(columns.map((column) => column.ask(text, options)));
    showRunning(false);
    if (choices.models.length && current === latest) finish();
  };
  const showDuel = () => {
    const duel = duelOf(columns.map((column) => column.turns.at(-1)));
    byId("duel").replaceChildren(...(duel ? [duel] : []));
  };
  const save = () => {
    const saved = columns.map((column) => column.state);
    if (saved.some((column) => column.turns.length)) saveConversation({ ...conversation, at: new Date().toISOString(), columns: saved });
  };
  /** Ask the reader which of two answers is better, and save the conversation. */
  const finish = () => {
    showDuel();
    if (!columns.some((column) => column.state.turns.length)) return;
    conversation ??= { id: randomName(), title: columns[0].turns[0].question, collection: collection() };
    save();
    if (!byId("view-ask").hidden && location.hash !== conversationAddress(conversation)) history.replaceState(null, "", conversationAddress(conversation));
  };
  let running = 0;
  const showRunning = (hasBegun) => {
    running += hasBegun ? 1 : -1;
    byId("ask-button").textContent = running ? "Stop" : words.verb;
    byId("ask-button").classList.toggle("stop", running > 0);
    byId("ask-button").formNoValidate = running > 0;  // the question is empty while an answer runs
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) columns.forEach((column) => column.stop());
    else ask();
  });
  question.addEventListener("keydown", (event) => {
    if (event.keyCode !== 13 || event.shiftKey) return;  // 229 for an Enter that confirms an input method's conversion
    event.preventDefault();
    if (!event.repeat) ask();
  });
  question.addEventListener("input", () => grow(question));
  const clear = () => {
    for (const column of columns) column.clear();
    byId("duel").replaceChildren();
    conversation = null;
    latest = null;
  };
  const restart = () => {
    clear();
    if (/^#ask\/./.test(location.hash)) history.replaceState(null, "", "#ask");
    placeForm(false);
  };
  const open = (id) => {
    const saved = conversationOf(id);
    if (!saved || conversation?.id === id) return;
    const address = conversationAddress(saved);
    if (!address.startsWith("#")) return location.replace(address);
    clear();
    while (columns.length > 1) remove(columns.at(-1));
    while (columns.length < Math.min(saved.columns.length, MAX_COLUMNS)) add();
    saved.columns.slice(0, MAX_COLUMNS).forEach((each, index) => columns[index].restore(each));
    conversation = { id: saved.id, title: saved.title, collection: saved.collection };
    history.replaceState(null, "", address);
    placeForm(true);
    showDuel();
  };
  const forget = (id) => {
    if (conversation?.id === id) restart();
  };
  byId("fresh").addEventListener("click", () => {
    restart();
    question.focus();
  });
  // Compared answers need the same earlier turns, so a new column starts a new conversation.
  byId("compare").addEventListener("click", () => {
    restart();
    add().mode.field.focus();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    if (byId("view-ask").hidden) return addEventListener("hashchange", () => question.focus(), { once: true });
    event.preventDefault();
    question.focus();
  });
  onAppearanceChange(drawPaths);
  new MutationObserver(drawPaths).observe(byId("view-ask"), { attributeFilter: ["hidden"] });  // paths are not drawn while the view is hidden
  byId("question-label").textContent = words.label;
  byId("ask-button").textContent = words.verb;
  add();
  startWith(words.welcome, (text) => {
    question.value = text;
    form.requestSubmit();
  });
  if (document.activeElement === document.body) question.focus();
  return { open, forget };
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}
