/**
 * The workspace: classes, photos and a model, as the server keeps them.
 *
 * `space.state` is the last state that the server sent. Every function here that changes the workspace sends a request, takes the new
 * state from its answer, and tells those who subscribed. Nothing is kept in the page alone, so a reload loses nothing.
 */

import { call, formOf, portions } from "./api.js";

const PORTION = { files: 8, bytes: 24 << 20 }; // small, so that the first answers come soon
const PAGE = 200; // photos per list that the server sends
const LAST = "patchvote.workspace"; // key of the browser's storage: the workspace that was open last

export const space = {
  state: null, // STATE of docs/serve.md
  settings: {},
  models: [], // models that the server was started with
};

const listeners = new Set();
let making = null; // the request that makes the workspace, while it runs

/** Call a function now and after every change, with the state (null while there is no workspace). */
export function subscribe(listener) {
  listeners.add(listener);
  listener(space.state);
}

/** Call all those functions again: parts of the page that were hidden bring themselves up to date when they are shown. */
export function publish() {
  for (const listener of listeners) listener(space.state);
}

/** Read the settings and the models of the server. */
export async function readServer() {
  space.settings = await call("GET", "/v1/settings");
  space.models = (await call("GET", "/v1/models")).models;
  publish();
}

/** Take a state that the server sent, unless a later one is known. */
export function take(state) {
  if (!state || (space.state?.id === state.id && space.state.version > state.version)) return;
  space.state = state;
  try {
    localStorage.setItem(LAST, state.id);
  } catch { /* storage is switched off: the address still has the workspace */ }
  publish();
}

/** Return the id of the workspace that was open last in this browser, or null. */
export function lastWorkspace() {
  try {
    return localStorage.getItem(LAST);
  } catch {
    return null;
  }
}

export function forgetLast() {
  try {
    localStorage.removeItem(LAST);
  } catch { /* nothing was remembered */ }
}

/** Open a workspace by its id. */
export async function openWorkspace(id) {
  take(await call("GET", `/v1/workspaces/${id}`));
}

/** Read the state again. */
export async function refresh() {
  if (space.state) await openWorkspace(space.state.id);
}

/** Make a workspace if there is none yet; with a model of the server, if one is named. */
export async function ensure(model = null) {
  if (space.state) return;
  making ??= call("POST", "/v1/workspaces", model ? { model } : {}).finally(() => { making = null; });
  take(await making);
}

function path(rest = "") {
  return `/v1/workspaces/${space.state.id}${rest}`;
}

async function change(method, rest, body) {
  const reply = await call(method, path(rest), body);
  take(reply?.workspace);
  return reply;
}

export async function addClass(name) {
  await ensure();
  return change("POST", "/classes", { name });
}

export function renameClass(id, name) {
  return change("PATCH", `/classes/${id}`, { name });
}

export function removeClass(id, { withPhotos }) {
  return change("DELETE", `/classes/${id}?photos=${withPhotos ? "delete" : "keep"}`);
}

/**
 * Add photos, portion by portion; `onPortion(reply, done)` is called after each, in order.
 *
 * `fields` says where they belong: `{class: "c1"}`, `{class_name: "cat"}`, `{folders: "true"}`, or nothing for unlabelled ones.
 * Returns all that was added, was there already, and was refused.
 */
export async function addPhotos(picked, fields = {}, onPortion = () => {}) {
  await ensure();
  const refused = picked.map(({ file }) => ({ name: file.name, reason: fault(file) })).filter(({ reason }) => reason);
  const total = { added: [], known: [], refused };
  const sendable = picked.filter(({ file }) => !fault(file));
  let done = 0;
  if (refused.length) await onPortion({ added: [], known: [], refused }, (done += refused.length));
  for (const portion of portions(sendable, PORTION)) {
    const reply = await change("POST", "/photos", formOf(portion, fields));
    for (const name of Object.keys(total)) total[name].push(...reply[name]);
    done += portion.length;
    await onPortion(reply, done);
  }
  return total;
}

/** Say why a file need not be sent at all: films and the like inside of folders would take long. */
function fault(file) {
  const { endings = [], body_bytes: most = Infinity } = space.settings;
  const ending = /\.[^.]+$/.exec(file.name)?.[0].toLowerCase();
  const isForeign = ending && endings.length && !endings.includes(ending) && !file.type.startsWith("image/");
  if (isForeign) return "is not a photo of a format that is read.";
  const limit = 0.95 * most; // the request has a little besides the file
  return file.size > limit ? `is larger than ${Math.floor(limit / 1e6)} MB. Make it smaller.` : "";
}

/** Return photos in the order in which they came; at most `most`. */
export async function listPhotos({ most = Infinity, ...query } = {}) {
  const photos = [];
  for (;;) {
    const limit = Math.min(PAGE, most - photos.length);
    const words = new URLSearchParams({ ...query, offset: photos.length, limit });
    const reply = await call("GET", path(`/photos?${words}`));
    photos.push(...reply.photos);
    if (!reply.photos.length || photos.length >= Math.min(reply.total, most)) return photos;
  }
}

/** Give photos a class by its name (made if it is missing); null makes them unlabelled. */
export function label(ids, name) {
  return change("PATCH", "/photos", name === null ? { photos: ids, class: null } : { photos: ids, class_name: name });
}

export function removePhotos(ids) {
  return change("POST", "/photos/delete", { photos: ids });
}

/** Ask the model about photos of the workspace; returns them with their answers. */
export async function ask(ids) {
  return (await change("POST", "/answers", { photos: ids })).answers;
}

/** Return the evidence of a photo for a class (the likeliest if it is null), as maps of `width` by `height`. */
export function evidence(photo, name, { width, height }) {
  const words = new URLSearchParams({ width, height });
  if (name !== null) {
    words.set("label", name);
    words.set("labels", name);
  }
  return call("GET", path(`/photos/${photo}/evidence?${words}`));
}

export async function learn(options = {}) {
  const job = await call("POST", path("/learn"), options);
  await refresh();
  return job;
}

export function report() {
  return call("GET", path("/report"));
}

/** Open a model file, in this workspace or in a new one. */
export async function openModel(file) {
  const form = new FormData();
  form.append("file", file, file.name);
  const reply = space.state ? await call("PUT", path("/model"), form) : await call("POST", "/v1/models", form);
  take(reply.workspace ?? reply);
  modelChanged();
}

/** Remove the workspace; whoever calls this leaves the page, whose state is of no use any more. */
export async function removeWorkspace() {
  await call("DELETE", path());
  forgetLast();
}

/** Addresses of downloads. */
export const downloads = {
  csv: () => path("/answers.csv"),
  zip: () => path("/answers.zip"),
  model: () => `/v1/models/${space.state.id}/file`,
};

/** Names of all classes: those of the workspace, then those that only the model knows. */
export function classNames() {
  const names = space.state?.classes.map((entry) => entry.name) ?? [];
  return [...new Set([...names, ...(space.state?.model?.classes ?? [])])];
}

/** Name of the class of a photo, or null. */
export function classOf(photo) {
  return space.state?.classes.find((entry) => entry.id === photo.class)?.name ?? null;
}

const modelListeners = new Set();

/** Call a function whenever the model has become another one. */
export function onModelChange(listener) {
  modelListeners.add(listener);
}

export function modelChanged() {
  for (const listener of modelListeners) listener();
}
