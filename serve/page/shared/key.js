// The key of a server that wants one: asked for once, kept in this tab's session storage, forgotten with the tab.

import { byId, el } from "./dom.js";

const PLACE = "modegraph-key";
const KEPT = "It is kept in this tab until you close it, and sent to this server alone.";
let asking = null;

/** The key in use, "" when there is none. */
export const key = () => sessionStorage.getItem(PLACE) ?? "";

/** Ask for a key, once for all who want it; whether one was given. `refused` when the one in use did not do. */
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
  byId("key-told").textContent = refused ? "The server did not take that key. Try another." : KEPT;
  byId("key-told").classList.toggle("problem", refused);
  byId("key-button").hidden = false;
  field.value = "";
  let given = false;
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(PLACE, field.value.trim());
    given = true;
    dialog.close();
  };
  byId("key-cancel").onclick = () => dialog.close();
  dialog.addEventListener("close", () => resolve(given), { once: true });
  dialog.showModal();
  field.focus();
}

function addDialog() {
  const field = { id: "key-field", type: "password", required: true, autocomplete: "off", spellcheck: "false" };
  const form = el("form", { id: "key-form", autocomplete: "off" },
    el("h2", { id: "key-title" }, "This server wants a key"),
    el("p", { id: "key-told" }),
    el("label", { for: "key-field" }, "API key"),
    el("input", { ...field, pattern: "[ -~]+", title: "Letters, digits and signs of ASCII" }),
    el("div", { class: "buttons" },
      el("button", { id: "key-cancel", class: "quiet", type: "button" }, "Cancel"),
      el("button", { class: "primary", type: "submit" }, "Continue")));
  const dialog = el("dialog", { id: "key-dialog", class: "small-dialog", "aria-labelledby": "key-title" }, form);
  document.body.append(dialog);
  return dialog;
}
