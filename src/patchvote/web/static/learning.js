/** Learning: the button, live progress, and cancelling. */

import { call } from "./api.js";
import { button, count, h, percent } from "./dom.js";
import { announce, attempt, notify } from "./notices.js";
import { learn, modelChanged, refresh, space, subscribe } from "./workspace.js";

const STAGES = {
  start: "Getting ready",
  extract: "Looking at the photos",
  learn: "Learning to tell them apart",
  check: "Checking the photos for mistakes",
  suggest: "Looking for photos worth a label",
};

const parts = {};
let followed = null; // id of the job whose events are listened to
let stage = ""; // that was announced last

/** Return the bar with the button; `onAsk` shows the view for asking. */
export function setUpLearning({ onAsk }) {
  parts.words = h("p", { class: "learn-words", id: "learn-words" });
  parts.progress = h("progress", { "aria-label": "Progress of learning", hidden: true });
  parts.learn = button("Learn", start, { icon: "spark", class: "primary", "aria-describedby": "learn-words" });
  parts.cancel = button("Cancel", cancel, { hidden: true });
  parts.ask = button("Ask it", onAsk, { class: "primary", hidden: true });
  parts.remember = h("input", { type: "checkbox", id: "remember" });
  parts.choices = h(
    "details",
    { class: "choices" },
    h("summary", {}, "Choices"),
    h("p", {}, h("label", { for: "remember" }, parts.remember, " Remember parts of the training photos")),
    h(
      "p",
      { class: "soft" },
      "Each answer then shows the training parts that it resembles. Answers take longer, and the model file is larger.",
    ),
  );
  parts.bar = h(
    "section",
    { class: "learn-bar", "aria-label": "Learning" },
    h("div", { class: "learn-state" }, parts.words, parts.progress, parts.choices),
    h("div", { class: "row" }, parts.cancel, parts.learn, parts.ask),
  );
  subscribe(update);
  return parts.bar;
}

function start() {
  return attempt(async () => {
    parts.learn.disabled = true;
    try {
      const remember = parts.remember.checked && !space.state.model?.opened;
      const job = await learn(remember ? { voter: "nbnn" } : {});
      if (followed !== job.id) follow(job); // it was over before the state was read again
      announce("Learning has started.");
      parts.cancel.focus();
    } finally {
      update(space.state);
    }
  });
}

function cancel() {
  return attempt(() => call("DELETE", `/v1/jobs/${space.state.job.id}`));
}

function update(state) {
  const job = state?.job ?? null;
  if (job && followed !== job.id) follow(job);
  const classes = state?.classes ?? [];
  const filled = classes.filter(({ photos }) => photos > 0);
  const enough = state?.model?.opened ? filled.some(({ photos, learned }) => photos > learned) : filled.length > 1;
  const isStale = !state?.model || state.model.stale;
  parts.learn.hidden = Boolean(job);
  parts.learn.disabled = !enough;
  parts.learn.classList.toggle("primary", isStale);
  parts.learn.lastElementChild.textContent = state?.model && !isStale ? "Learn again" : "Learn";
  parts.ask.hidden = Boolean(job) || !state?.model || isStale;
  parts.cancel.hidden = !job;
  parts.progress.hidden = !job;
  parts.choices.hidden = Boolean(job) || Boolean(state?.model?.opened);
  parts.bar.hidden = !classes.length && !state?.model;
  if (parts.remember.dataset.of !== state?.id) {
    parts.remember.dataset.of = state?.id;
    parts.remember.checked = Boolean(state?.model?.remembers);
  }
  if (job) tell(job);
  else parts.words.textContent = wordsOf(state, filled, enough, isStale);
}

function wordsOf(state, filled, enough, isStale) {
  const photos = count(filled.reduce((sum, entry) => sum + entry.photos, 0), "photo");
  if (!enough && state?.model?.opened) return "Add photos to teach the opened model more.";
  if (!enough) return "Two classes with photos are needed.";
  if (!state.model) return `${photos} in ${filled.length} classes. Ready to learn.`;
  if (isStale) return "There is something new to learn.";
  const { held_out: heldOut } = state.model;
  if (!heldOut) return "It has learned everything here.";
  return `It has learned: ${percent(heldOut.accuracy)} right on photos that it had not seen.`;
}

/** Show how far a job is. */
function tell(job) {
  const words = job.status === "waiting" ? `Waiting for ${count(job.position, "other job")}` : STAGES[job.stage] ?? "Learning";
  const far = job.total ? `: ${job.done} of ${job.total}` : " …";
  parts.words.textContent = `${words}${far}`;
  if (job.total) Object.assign(parts.progress, { max: job.total, value: job.done });
  else parts.progress.removeAttribute("value");
  if (words !== stage) announce(`${words}.`);
  stage = words;
}

/** Listen to the events of a job until it ends. */
function follow(job) {
  followed = job.id;
  const source = new EventSource(`/v1/jobs/${job.id}/events`);
  source.addEventListener("progress", (event) => tell(JSON.parse(event.data)));
  source.addEventListener("end", (event) => {
    source.close();
    attempt(() => finish(JSON.parse(event.data)));
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) attempt(lost); // otherwise, the browser connects again by itself
  });
}

/** The server knows the job no more, as after its restart: the workspace says what is true. */
async function lost() {
  await refresh();
  if (space.state.job) notify("The progress is not live any more. Reload the page to follow it.", { fault: true });
}

async function finish(job) {
  stage = "";
  await refresh();
  if (job.status === "done") {
    modelChanged();
    announce(parts.words.textContent);
    (parts.ask.hidden ? parts.learn : parts.ask).focus();
  } else if (job.status === "cancelled") {
    notify("Cancelled. Your photos and classes are as before.");
    parts.learn.focus();
  } else {
    notify(job.message || "Learning failed.", { fault: true });
  }
}
