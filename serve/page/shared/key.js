// The key of a server that requires one: asked for once, stored in this tab's session storage until the tab is closed.

import { byId, el } from "./dom.js";

const STORAGE_KEY = "modegraph-key";
const STORAGE_NOTE = "It is stored in this tab until you close it, and sent only to this server.";
let asking = null;

/** The key in use, "" when there is none. */
export const key = () => sessionStorage.getItem(STORAGE_KEY) ?? "";

/** Ask for a key, once for all callers; returns whether one was entered. `refused`: the current key was rejected. */
export function askForKey(refused) {
  asking ??= new Promise((resolve) => open(refused, resolve)).finally(() => {
    asking = null;
  });
  return asking;
}

/** Show the button that changes the key, where there is one to change. */
export function startKey() {
  byId("key-button").hidden = !key();
  byId("key-button").addEventListener("click", async () => {
    if (await askForKey(false)) location.reload();
  });
}

function open(refused, resolve) {
  const dialog = byId("key-dialog") ?? addDialog();
  const field = byId("key-field");
  byId("key-message").textContent = refused ? "The server rejected that key. Try another." : STORAGE_NOTE;
  byId("key-message").classList.toggle("problem", refused);
  byId("key-button").hidden = false;
  field.value = "";
  let entered = false;
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(STORAGE_KEY, field.value.trim());
    entered = true;
    dialog.close();
  };
  byId("key-cancel").onclick = () => dialog.close();
  dialog.addEventListener("close", () => resolve(entered), { once: true });
  dialog.showModal();
  field.focus();
}

function addDialog() {
  const field = { id: "key-field", type: "password", required: true, autocomplete: "off", spellcheck: "false" };
  const form = el("form", { id: "key-form", autocomplete: "off" },
    el("h2", { id: "key-title" }, "This server requires a key"),
    el("p", { id: "key-message" }),
    el("label", { for: "key-field" }, "API key"),
    el("input", { ...field, pattern: "[ -~]+", title: "ASCII letters, digits and punctuation" }),
    el("div", { class: "buttons" },
      el("button", { id: "key-cancel", class: "quiet", type: "button" }, "Cancel"),
      el("button", { class: "primary", type: "submit" }, "Continue")));
  const dialog = el("dialog", { id: "key-dialog", class: "small-dialog", "aria-labelledby": "key-title" }, form);
  document.body.append(dialog);
  return dialog;
}
