// The panel of earlier conversations: open one, delete one, delete all.

import { collection } from "../shared/api.js";
import { button, byId, el } from "../shared/dom.js";
import { feedbackNote } from "../shared/feedback.js";
import { forgetAll, forgetConversation, savedConversations } from "./store.js";

/** The URL of a conversation: on this page, or on the page of its collection if that is a different one. */
export function conversationAddress({ id, collection: name }) {
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
  const saved = savedConversations();
  const lines = saved.map((each) => line(each, onDelete));
  const none = el("p", { class: "hint" }, "No conversations yet. Conversations are stored only in this browser.");
  const all = () => {
    forgetAll();
    for (const each of saved) onDelete(each.id);
    fill(onDelete);
    byId("history-close").focus();
  };
  byId("history-list").replaceChildren(
    lines.length ? el("ul", { class: "nodes conversations" }, ...lines) : none,
    lines.length ? button("Delete all conversations", all) : "",
    feedbackNote());
}

function line(conversation, onDelete) {
  const when = new Date(conversation.at);
  const time = el("time", { datetime: conversation.at }, when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
  const remove = button("Delete", () => {
    forgetConversation(conversation.id);
    onDelete(conversation.id);
    const next = item.nextElementSibling ?? item.previousElementSibling;
    if (next) {
      item.remove();
      next.querySelector("button").focus();
    } else {
      fill(onDelete);
      byId("history-close").focus();
    }
  }, { "aria-label": `Delete ${conversation.title}` });
  const place = el("span", { class: "place" }, conversation.collection ? `${conversation.collection} · ` : "", time);
  const link = el("a", { href: conversationAddress(conversation) }, el("span", { class: "line" }, conversation.title), place);
  const item = el("li", {}, link, remove);
  return item;
}
