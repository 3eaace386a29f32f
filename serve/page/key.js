// The key of a server that wants one: asked for once, kept in this tab's session storage, forgotten with the tab.

import { byId } from "./dom.js";

const PLACE = "modegraph-key";
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

function open(refused, resolve) {
  const dialog = byId("key-dialog");
  const field = byId("key-field");
  byId("key-told").textContent = refused
    ? "The server did not take that key. Try another."
    : "It is kept in this tab until you close it, and sent to this server alone.";
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
