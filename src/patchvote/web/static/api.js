/** Requests to the server of this page: JSON in and out, photos in portions, and patience when it is busy. */

const TRIES = 8; // while the server is busy, before a request is given up
const LONGEST_WAIT = 10; // seconds between two of them

/** A request that failed; `message` is a sentence for users. */
class Problem extends Error {
  constructor(status, code, message) {
    super(message.charAt(0).toUpperCase() + message.slice(1));
    Object.assign(this, { name: "Problem", status, code });
  }
}

let askForToken = null;

/** Set the function that gets a token from the user when the server wants one. */
export function whenTokenIsNeeded(ask) {
  askForToken = ask;
}

/**
 * Send a request and return the JSON of the answer (null for an empty one).
 *
 * A busy server is asked again after the time that it names, at most 10 seconds; a missing token is asked for.
 */
export async function call(method, path, body = undefined) {
  for (let tries = 1; ; tries += 1) {
    const reply = await send(method, path, body);
    if (reply.ok) return reply.status === 204 ? null : reply.json();
    const problem = await problemOf(reply);
    if (reply.status === 401 && askForToken) await askForToken();
    else if ((reply.status === 429 || reply.status === 503) && tries < TRIES) await sleep(waitOf(reply, tries));
    else throw problem;
  }
}

/** Send one request, without second tries. */
export async function send(method, path, body = undefined) {
  const isForm = body instanceof FormData;
  const headers = { Accept: "application/json" };
  if (body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, { method, headers, body: isForm || body === undefined ? body : JSON.stringify(body) });
  } catch {
    throw new Problem(0, "offline", "The server does not answer. Is “patchvote serve” still running?");
  }
}

/** Return what went wrong, from the answer to a request. */
export async function problemOf(reply) {
  const { error } = await reply.json().catch(() => ({}));
  const message = error?.message ?? `The server answered with status ${reply.status}.`;
  return new Problem(reply.status, error?.code ?? "unknown", message);
}

/** Cut a list of picked files into portions that one request may carry. */
export function* portions(picked, { files, bytes }) {
  let portion = [];
  let size = 0;
  for (const item of picked) {
    if (portion.length && (portion.length === files || size + item.file.size > bytes)) {
      yield portion;
      portion = [];
      size = 0;
    }
    portion.push(item);
    size += item.file.size;
  }
  if (portion.length) yield portion;
}

/** Put photos and fields about them into a form; the fields come first, so that they are known when the photos arrive. */
export function formOf(picked, fields = {}) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  for (const { file, path } of picked) form.append("files", file, path);
  return form;
}

function waitOf(reply, tries) {
  const seconds = Number(reply.headers.get("Retry-After")) || tries;
  return Math.min(seconds, LONGEST_WAIT);
}

function sleep(seconds) {
  return new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });
}
