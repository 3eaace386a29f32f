// All requests of this page to its server: URLs relative to the page, the key in a header, errors as sentences.

import { el } from "./dom.js";
import { askForKey, key } from "./key.js";

/** A response with a status other than 2xx and its JSON `content`, or an error within a stream (status 200). */
export class ResponseError extends Error {
  constructor(status, code, message, content = {}) {
    super(message);
    Object.assign(this, { status, code, content });
  }
}

/** The collection that the URL of the page names, or null. */
export const collection = () => new URLSearchParams(location.search).get("collection");

/** The URL path of a document; with "/" escaped if browsers would resolve segments "." or ".." of the source. */
export const documentPath = (source) => {
  const path = encodeURIComponent(source);
  return `v1/documents/${/(^|\/)\.\.?(\/|$)/.test(source) ? path : path.replaceAll("%2F", "/")}`;
};

/** The JSON that a GET request returns. */
export const get = async (path, values = {}) => (await getResponse(path, values)).json();

/** The response to a GET request. */
export const getResponse = (path, values) => call(addressOf(path, values));

/** The JSON that a POST request with `body` as JSON returns. */
export const post = async (path, body, signal) => (await postResponse(path, body, signal)).json();

/** The response to a POST request with `body` as JSON. */
export const postResponse = (path, body, signal, values = {}) => call(addressOf(path, values), body, signal);

/** The JSON that a DELETE request returns. */
export const remove = async (path, values = {}) =>
  (await call(addressOf(path, values), undefined, undefined, "DELETE")).json();

/** The JSON that a POST request with a form and its files returns. */
export const upload = async (path, form) => (await call(addressOf(path), form)).json();

/** Send a POST request that is answered with server-sent events, and yield the object of each event. A ResponseError if it ends early. */
export async function* stream(path, body, signal) {
  const response = await postResponse(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ResponseError(200, "cut_off", "the connection closed before the answer was complete.");
    const events = (buffer + value).split("\n\n");
    buffer = events.pop();
    for (const event of events.filter(Boolean)) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const content = JSON.parse(data);
      if (content.error) throw new ResponseError(200, content.error.code, content.error.message);
      yield content;
    }
  }
}

/** The message for a reader about a failed call. */
export function sentence(problem) {
  if (problem.status === 429 && problem.code !== "too_often") return "The server is busy. Try again in a moment.";
  if (problem instanceof TypeError) return "The server cannot be reached.";
  return problem.message.charAt(0).toUpperCase() + problem.message.slice(1);
}

/** The message about a failed call, as a line that screen readers announce. */
export const problemLine = (problem) => el("p", { class: "problem", role: "alert" }, sentence(problem));

/** A path with the page's collection and `values` as its query; empty values are left out. */
function addressOf(path, values = {}) {
  const present = Object.entries({ collection: collection(), ...values }).filter(([, value]) => (value ?? "") !== "");
  return present.length ? `${path}?${new URLSearchParams(present)}` : path;
}

async function call(path, body, signal, method = body === undefined ? "GET" : "POST") {
  for (let tried = false; ; tried = true) {
    const sentKey = key();
    const headers = sentKey ? { Authorization: `Bearer ${sentKey}` } : {};
    const options = { method, headers, signal, credentials: "omit", referrerPolicy: "no-referrer" };
    if (body instanceof FormData) options.body = body;
    else if (body !== undefined) {
      options.body = JSON.stringify(body);
      headers["Content-Type"] = "application/json";
    }
    const response = await fetch(path, options);
    if (response.ok) return response;
    if (response.status === 401 && (key() !== sentKey || (await askForKey(tried || sentKey !== "")))) continue;
    throw await errorOf(response);
  }
}

async function errorOf(response) {
  try {
    const content = await response.json();
    return new ResponseError(response.status, content.error.code, content.error.message, content);
  } catch {
    return new ResponseError(response.status, "unknown", `the server answered with status ${response.status}`);
  }
}
