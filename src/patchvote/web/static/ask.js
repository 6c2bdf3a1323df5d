/** Ask: drop photos, and read what each is, in the order in which they came. */

import { fillCard, fillWaiting, finalLabel, isUnsure, leadOf } from "./answers.js";
import { takePhotos } from "./camera.js";
import { button, count, h, listed, reconcile } from "./dom.js";
import { giveClass } from "./labels.js";
import { look } from "./look.js";
import { announce, attempt, confirmed, notify } from "./notices.js";
import { acceptDrops, choose } from "./pick.js";
import { addPhotos, ask, downloads, ensure, listPhotos, onModelChange, removePhotos, space, subscribe } from "./workspace.js";

const NAMED = 3; // reasons, and files of each, that a notice names: more would hide the page
const AT_ONCE = 8; // photos per request for answers; few, so that the first answers come soon

const entries = new Map(); // key to {key, name, photo}; the photo is null until it has arrived at the server
const parts = {}; // elements of the view
let order = "arrival"; // or "unsure"
let shown = ""; // class whose answers are shown; "" is all
let waiting = 0; // numbers the keys of photos that have no id yet
let asking = Promise.resolve(); // requests for answers follow one another
let loaded = null; // id of the workspace whose answers are shown
let readings = 0; // times that the answers were read

/** Set up the view inside of its section; `onTeach` shows the other view. */
export function setUpAsk(root, { onTeach }) {
  parts.lead = h("p", { class: "lead" });
  parts.drop = h(
    "div",
    { class: "drop" },
    h("p", { class: "drop-words" }, h("strong", {}, "Drop photos here"), h("span", {}, ", or paste them")),
    h(
      "p",
      { class: "buttons" },
      button("Choose photos", async () => askAbout(await choose()), { icon: "photo", class: "primary" }),
      button("Use the camera", () => takePhotos(askAbout, "Each photo gets its answer at once."), { icon: "camera" }),
    ),
  );
  parts.model = h("select", { "aria-label": "Model to ask", onchange: () => update(space.state) });
  parts.first = h(
    "div",
    { class: "first" },
    h("p", {}, "It has to learn before it can answer."),
    button("Teach it", onTeach, { class: "primary" }),
  );
  parts.stale = h("p", { class: "hint" });
  parts.tools = h("div", { class: "list-tools" }, ordering(), filter(), exports());
  parts.list = h("ol", { class: "answers", "aria-label": "Answers" });
  root.append(h("h1", {}, "Ask"), parts.lead, parts.model, parts.first, parts.drop, parts.stale, parts.tools, parts.list);
  parts.onTeach = onTeach;
  acceptDrops(root, askAbout);
  subscribe(update);
  onModelChange(() => attempt(reload));
}

/** Ask about picked files. */
export function askAbout(picked) {
  if (!picked.length) return undefined;
  return attempt(async () => {
    await ensure(served()?.name);
    if (!space.state.model) return notify("It has to learn before it can answer. Add photos to two classes and press Learn.");
    const keys = picked.map(({ file }) => put({ key: `waiting ${(waiting += 1)}`, name: file.name, photo: null }));
    render();
    try {
      const { refused } = await addPhotos(picked, {}, ({ added, known, refused: not }) => {
        for (const key of keys.splice(0, added.length + known.length + not.length)) entries.delete(key);
        arrived([...added, ...known]);
      });
      if (refused.length) notify(refusals(refused), { fault: true });
    } finally {
      for (const key of keys) entries.delete(key);
      render();
    }
    return asking;
  });
}

/** Ask about those photos without a class that have no answer yet. */
export function askAboutUnlabelled() {
  return attempt(async () => {
    const photos = await listPhotos({ class: "none" });
    arrived(photos.filter(({ answer }) => !answer));
  });
}

/** Show photos that are at the server now, before those that still have to get there, and ask about them. */
function arrived(photos) {
  const later = [...entries.values()].filter(({ photo }) => photo === null);
  for (const { key } of later) entries.delete(key);
  for (const photo of photos) {
    if (!entries.has(photo.id)) put({ key: photo.id, name: photo.name, photo: { ...photo, answer: null } });
  }
  later.forEach(put);
  render();
  request(photos.map(({ id }) => id));
}

/** Ask the model about photos of the workspace, portion by portion, after those that were asked for before. */
function request(ids) {
  for (let start = 0; start < ids.length; start += AT_ONCE) {
    const portion = ids.slice(start, start + AT_ONCE);
    asking = asking.then(() => attempt(async () => {
      const answered = await ask(portion);
      for (const photo of answered) if (entries.has(photo.id)) put({ key: photo.id, name: photo.name, photo });
      render();
      announce(spoken(answered));
    }));
  }
}

function spoken(photos) {
  if (photos.length > 3) return `${count(photos.length, "answer")} more.`;
  return photos.map((photo) => `${photo.name}: ${photo.answer.error ? "no answer" : photo.answer.label}.`).join(" ");
}

function put(entry) {
  entries.set(entry.key, entry);
  return entry.key;
}

/** Read the answers of the workspace again, and ask again about those that an earlier model gave. */
export async function reload() {
  if (!space.state) return;
  if (loaded !== space.state.id) entries.clear();
  loaded = space.state.id;
  const before = new Map(entries);
  const reading = (readings += 1);
  const photos = space.state.answered ? await listPhotos({ answered: true }) : [];
  if (reading !== readings) return; // they were asked for again, later
  const now = [...entries.values()];
  const gone = new Set([...before.keys()].filter((key) => !entries.has(key)));
  entries.clear();
  for (const photo of photos) if (!gone.has(photo.id)) put({ key: photo.id, name: photo.name, photo });
  for (const entry of now) {
    const isNews = entry.photo?.answer ? before.get(entry.key) !== entry : !entries.has(entry.key);
    if (isNews) put(entry);
  }
  render();
  const outdated = photos.filter((photo) => photo.class === null && !photo.answer.current);
  if (space.state.model) request(outdated.map(({ id }) => id));
}

function update(state) {
  drawModels(state);
  const model = state?.model ?? (state ? null : served());
  parts.first.hidden = Boolean(model);
  parts.drop.hidden = !model;
  parts.lead.textContent = model
    ? `It can tell apart ${model.classes.length > 12 ? count(model.classes.length, "class") : listed(model.classes)}.`
    : "Which photo shows what? It tells you, and shows where it sees it.";
  drawStale(state);
  if (state && loaded !== state.id) attempt(reload);
  else render();
}

/** Say that there is something new to learn. */
function drawStale(state) {
  parts.stale.replaceChildren();
  if (!state?.model?.stale || state.job) return;
  const corrected = [...entries.values()].some(({ photo }) => photo?.class);
  parts.stale.append(
    corrected ? "You have given photos a class since it learned. " : "Photos or classes have changed since it learned. ",
    button("Learn again", parts.onTeach, { class: "quiet" }),
  );
}

/** The model of the server that is asked while there is no workspace. */
function served() {
  return space.models.find(({ name }) => name === parts.model.value) ?? space.models[0];
}

function drawModels(state) {
  parts.model.hidden = Boolean(state) || space.models.length < 2;
  if (parts.model.children.length === space.models.length) return;
  parts.model.replaceChildren(...space.models.map(({ name }) => h("option", { value: name }, name)));
}

function render() {
  const all = [...entries.values()];
  const some = all.filter(({ photo }) => !shown || (photo?.answer && finalLabel(photo) === shown));
  if (order === "unsure") some.sort((a, b) => rank(a) - rank(b));
  reconcile(parts.list, some, ({ key }) => key, () => h("li", { class: "answer" }), drawEntry);
  parts.tools.hidden = !all.length;
  parts.drop.classList.toggle("slim", all.length > 0);
  drawFilter(all);
  const unsure = all.filter(({ photo }) => photo?.answer && !photo.class && isUnsure(photo)).length;
  parts.unsure.textContent = unsure ? `Unsure first (${unsure})` : "Unsure first";
}

function rank({ photo }) {
  if (!photo?.answer) return 3;
  return photo.class === null ? leadOf(photo) : 2; // a class that the user gave is certain
}

const drawn = new WeakMap(); // card to what it shows

function drawEntry(card, { name, photo }) {
  const face = JSON.stringify([name, photo, space.state?.classes.map((entry) => [entry.id, entry.name])]);
  if (drawn.get(card) === face) return;
  drawn.set(card, face);
  if (!photo?.answer) {
    fillWaiting(card, name, photo?.thumbnail);
    return;
  }
  fillCard(card, photo, {
    onLook: () => {
      const shownPhotos = [...parts.list.children].map(({ dataset }) => entries.get(dataset.key)?.photo);
      const photos = shownPhotos.filter((item) => item?.answer);
      look(photos, photos.findIndex(({ id }) => id === photo.id), { onChange: change, onRemoved: drop });
    },
    onClass: async (label) => {
      const changed = await giveClass(photo, label, { onUndone: change });
      if (!changed) return;
      change(changed);
      card.querySelector(".corrections button")?.focus();
    },
    onRemove: () => attempt(async () => {
      const neighbour = card.nextElementSibling ?? card.previousElementSibling;
      await removePhotos([photo.id]);
      drop(photo);
      announce(`${photo.name} was removed.`);
      (neighbour?.querySelector("button") ?? parts.drop.querySelector("button")).focus();
    }),
  });
}

/** Show a photo that has changed. */
function change(photo) {
  put({ key: photo.id, name: photo.name, photo });
  update(space.state);
}

/** Show a photo no more. */
function drop({ id }) {
  entries.delete(id);
  render();
}

function ordering() {
  const radio = (value, words) => h(
    "label",
    {},
    h("input", { type: "radio", name: "order", value, checked: value === order, onchange: () => { order = value; render(); } }),
    words,
  );
  parts.unsure = h("span", {}, "Unsure first");
  return h(
    "fieldset",
    { class: "segments" },
    h("legend", { class: "hidden-words" }, "Order of the answers"),
    radio("arrival", h("span", {}, "As they came")),
    radio("unsure", parts.unsure),
  );
}

function filter() {
  parts.filter = h("select", { "aria-label": "Answers to show", onchange: () => { shown = parts.filter.value; render(); } });
  return parts.filter;
}

function drawFilter(all) {
  const labels = [...new Set(all.map(({ photo }) => (photo?.answer ? finalLabel(photo) : "")).filter(Boolean))].sort();
  if (shown && !labels.includes(shown)) shown = "";
  const face = JSON.stringify(labels);
  if (parts.filter.dataset.face !== face) {
    parts.filter.dataset.face = face;
    const options = labels.map((label) => h("option", { value: label }, `Only ${label}`));
    parts.filter.replaceChildren(h("option", { value: "" }, "All answers"), ...options);
  }
  parts.filter.value = shown;
}

function exports() {
  const link = (words, address, name) => button(words, () => {
    const anchor = h("a", { href: address(), download: true });
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
  }, { icon: "download", class: "quiet", title: name });
  return h(
    "div",
    { class: "row" },
    link("Table (CSV)", downloads.csv, "Download a table of the answers (CSV)"),
    link("Folders (ZIP)", downloads.zip, "Download the photos in a folder per class (ZIP)"),
    button("Clear", clear, { class: "quiet", "aria-label": "Clear the list of answers" }),
  );
}

async function clear() {
  const asked = [...entries.values()].map(({ photo }) => photo).filter((photo) => photo?.answer && photo.class === null);
  const agreed = await confirmed({
    title: "Clear the list?",
    text: `${count(asked.length, "photo")} without a class and the answers go. Photos that you gave a class stay training `
      + "photos. Your own files are not touched.",
    action: "Clear",
  });
  if (!agreed) return;
  await attempt(async () => {
    if (asked.length) await removePhotos(asked.map(({ id }) => id));
    await reload();
    parts.drop.querySelector("button").focus();
  });
}

/** Say which files were not taken, and why: files with the same reason together, a few of each by their names. */
export function refusals(refused) {
  const names = new Map();
  for (const { name, reason } of refused) names.set(reason, [...(names.get(reason) ?? []), name]);
  const reasons = [...names].slice(0, NAMED).map(([reason, files]) => {
    const others = files.length > NAMED ? [count(files.length - NAMED, "other file")] : [];
    return `${listed([...files.slice(0, NAMED), ...others])}: ${reason}`;
  });
  const rest = [...names.values()].slice(NAMED).flat().length;
  return [...reasons, ...(rest ? [`${count(rest, "other file")} could not be read either.`] : [])].join(" ");
}
