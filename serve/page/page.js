// Starts the page: loads the server's models and modes, and shows the view that the URL names.

import { collection, get, problemLine, sentence } from "./shared/api.js";
import { startAsk } from "./ask/ask.js";
import { setAcceptsFeedback } from "./shared/feedback.js";
import { openBrowse, startBrowse } from "./views/browse.js";
import { byId, count, decodePart, el } from "./shared/dom.js";
import { startKey } from "./shared/key.js";
import { latest } from "./shared/loading.js";
import { openDocuments, startDocuments } from "./views/documents.js";
import { openGraph, startGraph } from "./views/graph.js";
import { openRuns } from "./views/runs.js";
import { openReader, startReader } from "./views/reader.js";
import { COLLECTION_CHANGED, setAcceptsDocuments, startUploads } from "./views/upload.js";
import { openQuestions } from "./questions/questions.js";
import { startHistory } from "./conversations/history.js";

const RETRY_MS = 5000;
const VIEWS = ["ask", "documents", "browse", "graph", "questions", "runs"];
let conversation = null;
let retry = 0;

/** The models (those of the page's collection, if the URL names one) and the modes to choose from. */
async function modelsAndModes() {
  const [models, openapi] = await Promise.all([get("v1/models"), get("openapi.json")]);
  const modes = openapi.components.schemas.RetrieveRequest.properties.mode.anyOf.find((each) => each.enum).enum;
  const chosen = collection();
  const ids = models.data.map((model) => model.id);
  return { models: chosen === null ? ids : ids.filter((id) => id.endsWith(`@${chosen}`) || !id.includes("@")), modes };
}

/**
 * If the server has several collections, show a field to choose one; the page's URL then always names the chosen collection. If the URL names none,
 * reload the page with the name of the first collection, and return false.
 */
async function chooseCollection() {
  const names = (await get("v1/vector_stores", { collection: null })).data.map((store) => store.id);
  if (names.length < 2) return true;
  if (collection() === null) {
    location.search = new URLSearchParams({ collection: names[0] });
    return false;
  }
  document.querySelector("nav a[href=docs]").search = location.search;
  const field = byId("collection");
  field.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  field.value = collection();
  field.hidden = false;
  field.addEventListener("change", () => location.assign(`?${new URLSearchParams({ collection: field.value })}`));
  return true;
}

/** Show the size of the collections, and allow what the server allows; try again after RETRY_MS while the model does not answer. */
async function showStatus() {
  clearTimeout(retry);
  try {
    const ready = await latest(byId("status"), get("ready"));
    allow(ready);
    const size = `${count(ready.documents, "document")}, ${count(ready.passages, "passage")}`;
    byId("status").textContent = ready.models.length ? size : `${size}, no model`;
  } catch (problem) {
    const isLoading = problem.status === 503 && problem.code !== "stopping";
    if (problem.content?.collections) allow(problem.content);
    byId("status").textContent = isLoading ? "The model does not answer; search works" : sentence(problem);
    if (isLoading) retry = setTimeout(showStatus, RETRY_MS);
  }
}

/** Allow feedback, uploads and the view of runs if the server does. */
function allow({ feedback, collections, writable, runs }) {
  setAcceptsFeedback(feedback, collections);
  setAcceptsDocuments(writable);
  byId("runs-link").hidden = !runs;
}

function route() {
  const [view, kind, id] = location.hash.slice(1).split("/");
  const shown = VIEWS.includes(view) ? view : "ask";
  for (const each of VIEWS) byId(`view-${each}`).hidden = each !== shown;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (byId("reader").open) byId("reader").close();
  if (view === "documents") openDocuments();
  if (view === "graph") openGraph();
  if (view === "questions") openQuestions();
  if (view === "runs") openRuns(kind === undefined ? undefined : decodePart(kind));
  if (view === "browse") openBrowse(kind, id === undefined ? undefined : decodePart(id));
  if (view === "read" && id) openReader(placeIn(decodePart(kind), id));
  if (view === "ask" && kind) conversation.open(kind);
}

/** The location in a document that a URL fragment names: #read/SOURCE/START-END. */
function placeIn(source, span) {
  const [start, end] = span.split("-").map((each) => Number(each) || 0);
  return { source, start, end };
}

async function start() {
  startReader();
  startBrowse();
  startGraph();
  startKey();
  startUploads();
  try {
    if (!(await chooseCollection())) return;
    const [options] = await Promise.all([modelsAndModes(), showStatus()]);
    conversation = startAsk(options);
    startHistory(conversation.forget);
  } catch (problem) {
    byId("columns").replaceChildren(problemLine(problem));
    return;
  }
  startDocuments();
  addEventListener(COLLECTION_CHANGED, showStatus);
  addEventListener("hashchange", route);
  route();
}

start();
