/** Cards of answers: what a photo was taken for, how surely, and the buttons that correct it. */

import { bar, button, h, icon, iconButton, percent } from "./dom.js";
import { classChoice } from "./labels.js";
import { classOf } from "./workspace.js";

const CLEAR = 0.3; // lead over the runner-up from which an answer is not called unsure

/** Lead of the answer over the runner-up, 0 to 1; photos that are none of the classes have none. */
export function leadOf({ answer }) {
  if (!answer || answer.error || answer.rejected) return -1;
  return answer.probability - (answer.runner_up_probability ?? 0);
}

export function isUnsure(photo) {
  return leadOf(photo) < CLEAR;
}

/** What a photo is: the class that the user gave it, otherwise the answer. */
export function finalLabel(photo) {
  return classOf(photo) ?? photo.answer?.label ?? "";
}

/** Fill the card of a photo that waits for its answer. */
export function fillWaiting(card, name, thumbnail = null) {
  card.classList.add("waiting");
  card.replaceChildren(
    h("div", { class: "picture" }, thumbnail && h("img", { src: thumbnail, alt: "" })),
    h("div", { class: "words" }, h("p", { class: "file soft" }, name), h("p", {}, "Looking …")),
  );
}

/**
 * Fill the card of an answered photo.
 *
 * `onLook()` opens it, `onClass(name)` gives it a class (null takes the class back), `onRemove()` removes it.
 */
export function fillCard(card, photo, { onLook, onClass, onRemove }) {
  const corrected = classOf(photo);
  card.classList.remove("waiting");
  card.classList.toggle("unsure", corrected === null && isUnsure(photo));
  card.classList.toggle("none", corrected === null && Boolean(photo.answer.rejected));
  card.replaceChildren(
    h(
      "button",
      { type: "button", class: "picture", onclick: onLook, "aria-label": `See the evidence in ${photo.name}` },
      h("img", { src: photo.thumbnail, alt: "", loading: "lazy", width: photo.width, height: photo.height }),
    ),
    h("div", { class: "words" }, h("p", { class: "file soft" }, photo.name), ...words(photo, corrected)),
    ...(photo.answer.error ? [] : [corrections(photo, corrected, onClass)]),
    iconButton(`Remove ${photo.name}`, "close", onRemove, { class: "bare remove" }),
  );
}

/** What a photo that is none of the classes resembles most: never its answer. */
export function likeliestOf({ likeliest, likeliest_probability: share }) {
  return `likeliest: ${likeliest}, ${percent(share)}`;
}

function words(photo, corrected) {
  const { answer } = photo;
  if (corrected !== null) {
    const agreed = corrected === answer.label;
    return [
      h("p", { class: "label" }, corrected),
      h("p", { class: "tag" }, icon("check"), agreed ? "You agreed" : `You said so; it said ${answer.label || "nothing"}`),
    ];
  }
  if (answer.error) return [h("p", { class: "label" }, "No answer"), h("p", { class: "soft" }, `This photo ${answer.error}`)];
  const next = answer.runner_up && `next: ${answer.runner_up}, ${percent(answer.runner_up_probability)}`;
  if (answer.rejected) {
    return [
      h("p", { class: "label" }, "None of these"),
      h("p", { class: "tag" }, icon("question"), "Unlike the photos it learned from"),
      h("p", { class: "soft" }, likeliestOf(answer)),
    ];
  }
  return [
    h("p", { class: "label" }, answer.label),
    h("p", { class: "sure" }, bar(answer.probability), h("span", {}, percent(answer.probability))),
    isUnsure(photo) && h("p", { class: "tag" }, icon("question"), "Unsure"),
    h("p", { class: "soft" }, next),
    !answer.current && h("p", { class: "soft" }, "of an earlier model"),
  ].filter(Boolean);
}

/** One click for the likely cases; the other classes are behind "Other". */
function corrections(photo, corrected, onClass) {
  const { likeliest, runner_up: runnerUp, rejected } = photo.answer;
  if (corrected !== null) {
    return h("div", { class: "corrections" }, button("Take it back", () => onClass(null), { class: "quiet" }));
  }
  const others = h("div", { hidden: true, class: "others" }, classChoice(onClass));
  const more = button("Other", () => {
    others.hidden = !others.hidden;
    more.setAttribute("aria-expanded", String(!others.hidden));
  }, { class: "chip", "aria-expanded": "false" });
  return h(
    "div",
    { class: "corrections", role: "group", "aria-label": `What is ${photo.name}?` },
    h("p", { class: "soft" }, "What is it really?"),
    button(likeliest, () => onClass(likeliest), {
      class: "chip",
      icon: rejected ? null : "check",
      "aria-label": rejected ? `It is ${likeliest}` : `Right, it is ${likeliest}`,
    }),
    runnerUp && button(runnerUp, () => onClass(runnerUp), { class: "chip", "aria-label": `No, it is ${runnerUp}` }),
    more,
    others,
  );
}
