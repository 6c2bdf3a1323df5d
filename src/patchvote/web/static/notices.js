/** What the page says by itself: announcements for screen readers, notices with an undo, and questions before a loss. */

import { button, h, iconButton } from "./dom.js";

const SECONDS = 9;

const regions = new Map(); // name to element; found once, as a region may be inside of a dialog that has just gone

/** Return a region of the page; while a dialog is open, everything outside of it is dead, so the region moves into it. */
function reachable(name) {
  if (!regions.has(name)) regions.set(name, document.getElementById(name));
  const region = regions.get(name);
  const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
  const place = dialog ?? document.body;
  if (region.parentElement !== place) place.append(region);
  dialog?.addEventListener("close", () => { if (region.parentElement === dialog) document.body.append(region); }, { once: true });
  return region;
}

/** Say a sentence to screen readers; nothing is shown. */
export function announce(sentence) {
  const region = reachable("announcements");
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = sentence;
  });
}

/**
 * Show a sentence at the edge of the page for some seconds; screen readers say it as well.
 *
 * `undo` adds a button that takes back what was done. Faults stay until they are closed.
 */
export function notify(sentence, { undo = null, fault = false } = {}) {
  const box = reachable("notices");
  const close = () => notice.remove();
  const notice = h(
    "div",
    { class: fault ? "notice fault" : "notice" },
    h("p", {}, fault && h("strong", {}, "That did not work. "), sentence),
    undo && button("Undo", () => { close(); undo(); }, { class: "quiet" }),
    iconButton("Close this notice", "close", close),
  );
  while (box.children.length > 2) box.firstElementChild.remove();
  box.append(notice);
  if (!fault) setTimeout(close, 1000 * SECONDS);
}

/** Run a task that a user started; if it fails, say why instead of leaving the page silent. */
export async function attempt(task) {
  try {
    return await task();
  } catch (problem) {
    if (problem.name !== "AbortError") notify(problem.message, { fault: true });
    return undefined;
  }
}

/** Ask before something is lost or replaced; returns whether the user agreed. */
export function confirmed({ title, text, action }) {
  const { promise, resolve } = deferred();
  const dialog = h(
    "dialog",
    { class: "small-dialog", "aria-labelledby": "question", onclose: () => dialog.remove() },
    h("h2", { id: "question" }, title),
    h("p", {}, text),
    h(
      "p",
      { class: "buttons" },
      button("Cancel", () => dialog.close("no"), { autofocus: true }),
      button(action, () => dialog.close("yes"), { class: "danger" }),
    ),
  );
  dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

/** Return a promise with the functions that settle it; `Promise.withResolvers` is missing in browsers of before 2024. */
export function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}
