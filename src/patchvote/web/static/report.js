/** What the last learning found: how accurate it is, its mistakes, and what would make it better. */

import { likeliestOf } from "./answers.js";
import { bar, button, count, h, listed, percent } from "./dom.js";
import { classChoice, giveClass } from "./labels.js";
import { look } from "./look.js";
import { announce, attempt } from "./notices.js";
import { choose } from "./pick.js";
import { classOf, listPhotos, onModelChange, removePhotos, report as readReport, space, subscribe } from "./workspace.js";

const MOST = 12; // photos per list, until all are asked for

let section = null;
let onPicked = null;
let shownFor = null; // workspace whose report is shown
let found = null; // the report
let photos = new Map(); // of the workspace, by id
const unfolded = new Set(); // lists that are shown in full

/** Return the section of the report, which is hidden until there is one; `whenPicked(picked, where)` adds photos. */
export function setUpReport(whenPicked) {
  onPicked = whenPicked;
  section = h("section", { class: "report", "aria-label": "What it found", hidden: true });
  subscribe((state) => {
    if (section.closest(".view")?.hidden ?? true) return;
    if (state?.has_report && shownFor?.id !== state.id) attempt(load);
    else if (found && shownFor.version !== state?.version) attempt(reread);
    section.hidden = !state?.has_report || !found;
  });
  onModelChange(() => attempt(load));
  return section;
}

async function load() {
  found = null;
  const reading = (shownFor = { id: space.state.id, version: space.state.version });
  const report = space.state.has_report ? await readReport() : null;
  if (reading !== shownFor) return; // of another workspace, or of an earlier model
  found = report;
  await reread();
}

/** Read the photos again: those that went or got another class need no care any more. */
async function reread() {
  const reading = (shownFor = { id: space.state.id, version: space.state.version });
  const list = found ? await listPhotos() : [];
  if (reading !== shownFor) return; // they were asked for again, later
  photos = new Map(list.map((photo) => [photo.id, photo]));
  render();
}

function render() {
  section.hidden = !found;
  if (!found) return;
  const focus = section.contains(document.activeElement);
  const findings = [accuracy(), byClass(), more(), mistakes(), suspects(), alike(), suggestions(), skipped()];
  section.replaceChildren(...findings.filter(Boolean));
  if (focus) section.querySelector("button")?.focus();
}

function accuracy() {
  const { held_out: heldOut, mode } = found;
  if (!heldOut) {
    const why = mode === "add"
      ? "Photos were added to an opened model, so none was left to measure it on."
      : "There were too few photos to leave some out and measure it on them.";
    return h("div", { class: "headline" }, h("h2", {}, "How good is it?"), h("p", {}, why));
  }
  const [low, high] = heldOut.interval;
  const right = Math.round(heldOut.accuracy * heldOut.images);
  const many = `${Math.round(100 * low)} to ${Math.round(100 * high)} % (95 % confidence)`;
  const scale = { "--low": low, "--high": high, "--v": heldOut.accuracy };
  return h(
    "div",
    { class: "headline" },
    h("h2", {}, "How good is it?"),
    h("p", { class: "big" }, percent(heldOut.accuracy)),
    h("p", {}, `It named ${right} of ${count(heldOut.images, "photo")} rightly that it had not learned from. `
      + `Of many more such photos, expect ${many}.`),
    h("div", { class: "scale", "aria-hidden": "true", vars: scale }, h("i"), h("b")),
    h("p", { class: "ends soft", "aria-hidden": "true" }, h("span", {}, "0 %"), h("span", {}, "100 %")),
  );
}

function byClass() {
  const rows = Object.entries(found.held_out?.classes ?? {}).sort((a, b) => a[1].found - b[1].found);
  if (!rows.length) return null;
  const heads = ["Class", "Photos", "of them found", "right when named"].map((words) => h("th", { scope: "col" }, words));
  const words = (share) => h("span", { class: "share" }, h("span", {}, percent(share)), bar(share));
  const cell = (share) => h("td", {}, share === null ? "–" : words(share));
  return h(
    "details",
    { class: "by-class" },
    h("summary", {}, "Class by class"),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, rows.map(([name, row]) => h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        h("td", {}, String(row.images)),
        cell(row.found),
        cell(row.right),
      ))),
    ),
  );
}

function more() {
  const { more_photos: advice } = found;
  const few = Object.entries(advice?.few ?? {}).slice(0, 4);
  const needy = space.state.classes.find(({ name }) => name === advice?.class);
  if (!advice?.sentence && !few.length && !needy) return null;
  const add = async () => onPicked(await choose(), { class: needy.id });
  const numbers = listed(few.map(([name, number]) => `${name} (${number})`));
  return h(
    "div",
    {},
    h("h3", {}, "Would more photos help?"),
    advice.sentence && h("p", {}, advice.sentence),
    needy && h(
      "p",
      { class: "row" },
      `It needs photos of ${needy.name} most.`,
      button("Add some", add, { class: "quiet", "aria-label": `Add some photos of ${needy.name}` }),
    ),
    few.length > 0 && h("p", {}, `Ten or more different photos per class make its answers steadier. Fewest have ${numbers}.`),
  );
}

function mistakes() {
  const rows = found.mistakes.filter(({ photo }) => photos.has(photo));
  const draw = ({ photo, label, rejected, ...answer }) => tile(photo, [
    h("p", {}, h("b", {}, label), ", taken for ", h("b", {}, rejected ? "none of these" : answer.likeliest)),
    h("p", { class: "soft" }, rejected ? likeliestOf(answer) : percent(answer.likeliest_probability)),
  ]);
  return gallery("Mistakes", "Photos that it named wrongly when it had not learned from them.", rows, draw);
}

function suspects() {
  const kept = keptPhotos();
  const isOpen = ({ photo, label }) => photos.has(photo) && classOf(photos.get(photo)) === label && !kept.has(photo);
  const draw = ({ photo, label, finding, looks_like: other, details, others }) => tile(photo, [
    others.length > 0 && h("div", { class: "pictures" }, others.filter((id) => photos.has(id)).map(picture)),
    h("p", {}, h("b", {}, label), `: ${details}`),
    h(
      "div",
      { class: "choice" },
      finding !== "unreadable" && button(`It is ${label}`, () => keep(photo), { class: "chip" }),
      other && other !== label && button(`It is ${other}`, () => giveClass(photos.get(photo), other), { class: "chip" }),
      button("Remove", () => attempt(() => removePhotos([photo])), { class: "chip" }),
    ),
  ]);
  const rows = found.suspects.filter(isOpen);
  return gallery("Are these right?", "They may have the wrong class, or not belong here.", rows, draw);
}

function alike() {
  const groups = found.alike.map((group) => group.filter((id) => photos.has(id))).filter((group) => group.length > 1);
  const draw = (group) => {
    const remove = () => attempt(() => removePhotos(group.slice(1)));
    return h(
      "li",
      { class: "tile" },
      h("div", { class: "pictures" }, group.map(picture)),
      button(`Keep the first, remove ${count(group.length - 1, "other")}`, remove, { class: "chip" }),
    );
  };
  const sentence = "If they are copies of one photo, one is enough: copies teach nothing new.";
  return gallery("Nearly the same photo", sentence, groups, draw);
}

function suggestions() {
  const rows = found.suggestions.filter(({ photo }) => photos.get(photo)?.class === null);
  const draw = ({ photo, likeliest, runner_up: next }) => tile(photo, [
    h("p", { class: "soft" }, next ? `${likeliest} or ${next}?` : `${likeliest}?`),
    classChoice((name) => giveClass(photos.get(photo), name), { first: [likeliest, next] }),
  ]);
  return gallery("Label these next", "Of the photos without a class, these would teach it most.", rows, draw);
}

function skipped() {
  const rows = found.skipped.filter(({ photo }) => photos.has(photo));
  const draw = ({ photo, reason }) => tile(photo, [h("p", {}, reason)]);
  return gallery("Skipped", "These photos could not be used.", rows, draw);
}

/** A heading, a sentence and tiles; null where there is nothing to show. */
function gallery(title, sentence, rows, draw) {
  if (!rows.length) return null;
  const some = unfolded.has(title) ? rows : rows.slice(0, MOST);
  const unfold = () => { unfolded.add(title); render(); };
  return h(
    "div",
    {},
    h("h3", {}, `${title} (${rows.length})`),
    h("p", { class: "soft" }, sentence),
    h("ul", { class: "tiles" }, some.map(draw)),
    some.length < rows.length && button(`Show all ${rows.length}`, unfold, { class: "quiet" }),
  );
}

function tile(id, children) {
  return h("li", { class: "tile" }, picture(id), children);
}

function picture(id) {
  const photo = photos.get(id);
  return h(
    "button",
    { type: "button", class: "picture", "aria-label": `Look at ${photo.name}`, onclick: () => look([photo], 0) },
    h("img", { src: photo.thumbnail, alt: "", loading: "lazy", width: photo.width, height: photo.height }),
  );
}

function keptKey() {
  return `patchvote.kept.${space.state.id}`;
}

/** Photos whose class the user confirmed; the browser remembers them. */
function keptPhotos() {
  try {
    return new Set(JSON.parse(localStorage.getItem(keptKey()) ?? "[]"));
  } catch {
    return new Set();
  }
}

function keep(id) {
  try {
    localStorage.setItem(keptKey(), JSON.stringify([...keptPhotos(), id]));
  } catch { /* storage is switched off: it is asked again after a reload */ }
  found.suspects = found.suspects.filter(({ photo }) => photo !== id);
  announce("Kept.");
  render();
}
