// The key of a server that requires one: the reader enters it once, and it stays in this tab's session storage until the tab is closed.

import { button, byId, el, openDialog } from "./dom.js";

const STORAGE_KEY = "modegraph-key";
const STORAGE_NOTE = "It is stored in this tab until you close it, and sent only to this server.";
let asking = null;

/** The key in use, "" when there is none. */
export const key = () => sessionStorage.getItem(STORAGE_KEY) ?? "";

/** Ask for a key, in one dialog for all callers that wait; return whether one was entered. `refused`: the server rejected the current key. */
export function askForKey(refused) {
  asking ??= new Promise((resolve) => open(refused, resolve)).finally(() => {
    asking = null;
  });
  return asking;
}

/** Show the button that changes the key, if there is a key. */
export function startKey() {
  byId("key-button").hidden = !key();
  byId("key-button").addEventListener("click", async () => {
    if (await askForKey(false)) location.reload();
  });
}

function open(refused, resolve) {
  let entered = false;
  const field = el("input", { id: "key-field", type: "password", required: true, autocomplete: "off", spellcheck: "false",
    pattern: "[ -~]+", title: "ASCII letters, digits and punctuation", "aria-describedby": "key-message" });
  const enter = (event) => {
    event.preventDefault();
    sessionStorage.setItem(STORAGE_KEY, field.value.trim());
    entered = true;
    dialog.close();
  };
  const dialog = openDialog({ id: "key-dialog", title: "This server requires a key" },
    el("form", { id: "key-form", autocomplete: "off", onsubmit: enter },
      refused ? el("p", { id: "key-message", class: "problem", role: "alert" }, "The server rejected that key. Try another.")
        : el("p", { id: "key-message" }, STORAGE_NOTE),
      el("label", { for: "key-field" }, "API key"), field,
      el("div", { class: "buttons" },
        button("Cancel", () => dialog.close(), { id: "key-cancel" }),
        el("button", { class: "primary", type: "submit" }, "Continue"))));
  dialog.addEventListener("close", () => resolve(entered));
  byId("key-button").hidden = false;
  field.focus();
}
