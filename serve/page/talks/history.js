// The panel of earlier conversations: open one, delete one, delete all.

import { collection } from "../shared/api.js";
import { button, byId, el } from "../shared/dom.js";
import { feedbackNote } from "../shared/feedback.js";
import { forgetAll, forgetTalk, talks } from "./talks.js";

/** The address of a conversation: inside this page, or in the page of its collection if that is another one. */
export function talkAddress({ id, collection: name }) {
  const page = name && name !== collection() ? `?${new URLSearchParams({ collection: name })}` : "";
  return `${page}#ask/${id}`;
}

/** Wire the panel; `onDelete(id)` is called for a conversation that is deleted. */
export function startHistory(onDelete) {
  const dialog = byId("history");
  byId("history-button").disabled = false;
  byId("history-button").addEventListener("click", () => {
    fill(onDelete);
    dialog.showModal();
  });
  byId("history-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("a")) dialog.close();
  });
}

function fill(onDelete) {
  const saved = talks();
  const lines = saved.map((each) => line(each, onDelete));
  const none = el("p", { class: "hint" }, "No conversation yet. Conversations are stored only in this browser.");
  const all = () => {
    forgetAll();
    for (const each of saved) onDelete(each.id);
    fill(onDelete);
    byId("history-close").focus();
  };
  byId("history-list").replaceChildren(
    lines.length ? el("ul", { class: "nodes talks" }, ...lines) : none,
    lines.length ? button("Delete all conversations", all) : "",
    feedbackNote());
}

function line(talk, onDelete) {
  const when = new Date(talk.at);
  const time = el("time", { datetime: talk.at }, when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
  const remove = button("Delete", () => {
    forgetTalk(talk.id);
    onDelete(talk.id);
    const next = item.nextElementSibling ?? item.previousElementSibling;
    if (next) {
      item.remove();
      next.querySelector("button").focus();
    } else {
      fill(onDelete);
      byId("history-close").focus();
    }
  }, { "aria-label": `Delete ${talk.title}` });
  const place = el("span", { class: "place" }, talk.collection ? `${talk.collection} · ` : "", time);
  const link = el("a", { href: talkAddress(talk) }, el("span", { class: "line" }, talk.title), place);
  const item = el("li", {}, link, remove);
  return item;
}
