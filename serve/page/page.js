// The start of the page: what the server offers, and which of the two views the address names.

import { get, sentence } from "./api.js";
import { startAsk } from "./ask.js";
import { openBrowse, startBrowse } from "./browse.js";
import { byId, count, el } from "./dom.js";
import { startKey } from "./key.js";
import { openReader, startReader } from "./reader.js";

async function choices() {
  const [models, described] = await Promise.all([get("v1/models"), get("openapi.json")]);
  const modes = described.components.schemas.RetrieveRequest.properties.mode.anyOf.find((each) => each.enum).enum;
  return { models: models.data.map((model) => model.id), modes };
}

async function tellStatus() {
  try {
    const ready = await get("ready");
    const held = `${count(ready.documents, "document")}, ${count(ready.passages, "passage")}`;
    byId("status").textContent = ready.models.length ? held : `${held}, no model`;
  } catch (problem) {
    byId("status").textContent = problem.status === 503 ? "The model does not answer; search does" : sentence(problem);
  }
}

function route() {
  const [view, kind, id] = location.hash.slice(1).split("/");
  const browsing = view === "browse";
  byId("view-ask").hidden = browsing;
  byId("view-browse").hidden = !browsing;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === (browsing ? "#browse" : "#ask")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (byId("reader").open) byId("reader").close();
  if (browsing) openBrowse(kind, id === undefined ? undefined : decoded(id));
  if (view === "read" && id) openReader(placeIn(decoded(kind), id));
}

/** A place in a document from an address: #read/SOURCE/START-END. */
function placeIn(source, span) {
  const [start, end] = span.split("-").map((each) => Number(each) || 0);
  return { source, start, end: end || 0 };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function start() {
  startReader();
  startBrowse();
  startKey();
  try {
    startAsk(await choices());
  } catch (problem) {
    byId("columns").replaceChildren(el("p", { class: "problem", role: "alert" }, sentence(problem)));
    return;
  }
  addEventListener("hashchange", route);
  route();
  await tellStatus();
}

start();
