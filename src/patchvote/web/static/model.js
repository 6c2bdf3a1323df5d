/** The model: what it is, its file to download, another one to open, and a fresh start. */

import { button, count, h } from "./dom.js";
import { attempt, confirmed, notify } from "./notices.js";
import { choose } from "./pick.js";
import { downloads, openModel, removeWorkspace, space, subscribe } from "./workspace.js";

const parts = {};

/** Return the section about the model. */
export function setUpModel() {
  parts.words = h("p");
  parts.download = h("a", { class: "button", download: true }, "Download the model");
  parts.open = button("Open a model", open, { icon: "open" });
  parts.again = button("Start anew", startAnew, { class: "quiet" });
  parts.remove = button("Remove everything", removeAll, { class: "quiet" });
  subscribe(update);
  return h(
    "section",
    { class: "model", "aria-labelledby": "model-title" },
    h("h2", { id: "model-title" }, "The model"),
    parts.words,
    h("p", { class: "buttons" }, parts.download, parts.open, parts.again, parts.remove),
  );
}

/** Let the user choose a model file, and open it. */
export function open() {
  return attempt(async () => {
    const [picked] = await choose({ accept: ".patchvote", several: false });
    if (!picked) return;
    const declined = space.state?.model && !(await confirmed({
      title: "Open another model?",
      text: "It takes the place of the present one. Photos and classes stay.",
      action: "Open it",
    }));
    if (declined) return;
    await openModel(picked.file);
    notify(`The model is open. It knows ${count(space.state.model.classes.length, "class")}.`);
  });
}

function update(state) {
  const model = state?.model;
  parts.download.hidden = !model;
  parts.again.hidden = !state;
  parts.remove.hidden = !state;
  if (model) parts.download.href = downloads.model();
  else parts.download.removeAttribute("href");
  parts.words.textContent = model
    ? wordsOf(state)
    : "When it has learned, you can download the model as one file. Have you got one already? Open it.";
}

function wordsOf({ model, has_report: hasReport }) {
  const accuracy = hasReport || !model.accuracy ? "" : `${model.accuracy.replace(/\.*$/, ".")} `; // the report has it, too
  const facts = `${count(model.classes.length, "class")}, ${size(model.bytes)}, made on ${model.made}.`;
  return `${facts} ${accuracy}The file can be used without this page, too: patchvote predict.`;
}

function size(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

async function startAnew() {
  const agreed = await confirmed({
    title: "Start anew?",
    text: "An empty page opens. This one stays on the machine: its address brings it back, so keep it if you want to return.",
    action: "Start anew",
  });
  if (agreed) location.assign("/#new");
}

async function removeAll() {
  const agreed = await confirmed({
    title: "Remove everything?",
    text: "All classes, photos, answers and the model of this page go for good. Your own files are not touched.",
    action: "Remove everything",
  });
  if (agreed) await attempt(async () => { await removeWorkspace(); location.assign("/#new"); });
}
