/** Teach: make classes, drop a few photos in each, learn. */

import { askAboutUnlabelled, refusals } from "./ask.js";
import { ClassCard } from "./classes.js";
import { button, count, h, listed } from "./dom.js";
import { newClassForm } from "./labels.js";
import { setUpLearning } from "./learning.js";
import { setUpModel } from "./model.js";
import { announce, attempt, notify } from "./notices.js";
import { acceptDrops, choose, inFolders } from "./pick.js";
import { setUpReport } from "./report.js";
import { addClass, addPhotos, classOf, space, subscribe } from "./workspace.js";

const STEPS = ["Name two or more classes", "Add a few photos to each", "Press Learn", "Ask it about other photos"];
const parts = {};
const cards = new Map(); // class id to ClassCard

/** Set up the view inside of its section; `onAsk` shows the other view. */
export function setUpTeach(root, { onAsk }) {
  parts.lead = h("p", { class: "lead" });
  parts.cards = h("ul", { class: "class-cards" });
  parts.steps = h("ol", { class: "steps", "aria-label": "Steps" }, STEPS.map((words) => h("li", {}, words)));
  parts.adding = h("p", { class: "adding", role: "status" });
  parts.fresh = freshCard();
  parts.cards.append(parts.fresh);
  root.append(
    h("h1", {}, "Teach"),
    parts.lead,
    parts.steps,
    parts.adding,
    parts.cards,
    folderHint(),
    setUpLearning({ onAsk }),
    setUpReport(addPicked),
    setUpModel(),
  );
  parts.onAsk = onAsk;
  acceptDrops(root, (picked) => addPicked(picked, inFolders(picked) ? { folders: "true" } : {}));
  subscribe(update);
}

function folderHint() {
  const pick = async () => addPicked(await choose({ folder: true }), { folders: "true" });
  return h(
    "p",
    { class: "soft folder-hint" },
    "Are your photos sorted already, one folder per class? ",
    button("Choose the folder", pick, { icon: "folder", class: "quiet" }),
    " or drop it here.",
  );
}

/** Add files that were pasted: to the class whose card has the focus, otherwise to the photos without a class. */
export function pasteIntoTeach(picked) {
  const key = document.activeElement?.closest(".class-card")?.dataset.key;
  return addPicked(picked, key && key !== "none" && cards.has(key) ? { class: key } : {});
}

/** Add photos, say how far it is, and which were not taken. */
async function addPicked(picked, where) {
  if (!picked.length) return;
  const tell = (done) => { parts.adding.textContent = `Adding photos: ${done} of ${picked.length} …`; };
  tell(0);
  const total = await attempt(() => addPhotos(picked, where, (_, done) => tell(done)));
  parts.adding.textContent = "";
  if (!total) return;
  const { added, known, refused } = total;
  const places = listed([...new Set(known.map(classOf).filter(Boolean))]);
  const there = `there already${places && `, in ${places}`}`;
  const twice = known.length ? ` ${count(known.length, "photo")} ${known.length === 1 ? "was" : "were"} ${there}.` : "";
  if (added.length || !known.length) announce(`${count(added.length, "photo")} added.${twice}`);
  if (known.length) notify(`${count(added.length, "photo")} added.${twice}`);
  if (refused.length) notify(refusals(refused), { fault: true });
}

/** The last card: a field for the name of a new class; photos that are dropped on it make one. */
function freshCard() {
  const form = newClassForm((name) => attempt(async () => {
    await addClass(name);
    announce(`The class ${name} was made. Add photos to it.`);
  }), { words: "Name of a new class", action: "Add class" });
  const card = h("li", { class: "class-card fresh" }, h("h2", { class: "card-title" }, "New class"), form);
  acceptDrops(card, (picked) => {
    const input = form.querySelector("input");
    const name = input.value.trim() || unusedName();
    input.value = "";
    return addPicked(picked, inFolders(picked) ? { folders: "true" } : { class_name: name });
  });
  return card;
}

function unusedName() {
  const names = new Set(space.state?.classes.map(({ name }) => name));
  for (let number = names.size + 1; ; number += 1) if (!names.has(`Class ${number}`)) return `Class ${number}`;
}

let lastVersion = null; // state that the cards were brought in line with

function update(state) {
  if (parts.cards.closest(".view").hidden) return;
  const classes = state?.classes ?? [];
  const shown = [...classes];
  if (state?.unlabelled) shown.push({ id: "none", photos: state.unlabelled });
  for (const [id, card] of cards) {
    if (shown.some((entry) => entry.id === id) && lastVersion?.id === state?.id) continue;
    card.element.remove();
    cards.delete(id);
  }
  const numbers = new Map(lastVersion?.classes.map((entry) => [entry.id, entry.photos]));
  const sameNumbers = lastVersion?.photos === state?.photos && classes.every(({ id, photos }) => numbers.get(id) === photos);
  for (const entry of shown) {
    const card = cards.get(entry.id) ?? cardOf(entry.id);
    card.update(entry, sameNumbers && lastVersion.version !== state.version); // photos may have changed places
  }
  lastVersion = state;
  parts.lead.textContent = state?.model
    ? "Add photos or classes at any time, then let it learn again."
    : "Show it a few photos of each kind, and it learns to tell them apart.";
  markStep(state, classes);
}

/** Mark the step that is next; once there is a model, nobody needs the list. */
function markStep(state, classes) {
  const ready = classes.filter(({ photos }) => photos > 0).length;
  const next = classes.length < 2 ? 0 : ready < classes.length ? 1 : 2;
  parts.steps.hidden = Boolean(state?.model);
  [...parts.steps.children].forEach((step, index) => {
    step.classList.toggle("done", index < next);
    if (index === next) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  });
}

function cardOf(id) {
  const card = new ClassCard(id, addPicked, () => {
    parts.onAsk();
    return askAboutUnlabelled();
  });
  card.element.dataset.key = id;
  cards.set(id, card);
  if (card.isClass) parts.fresh.before(card.element); // classes come in their order
  else parts.fresh.after(card.element);
  return card;
}
