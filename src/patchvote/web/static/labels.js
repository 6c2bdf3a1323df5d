/** The choice of a class for a photo: a button per class, and a field for a new one. */

import { button, h } from "./dom.js";
import { announce, attempt, notify } from "./notices.js";
import { classNames, classOf, label } from "./workspace.js";

/**
 * Give a photo a class, and offer to undo it.
 *
 * Returns the photo as it is then, or undefined if that failed.
 */
export function giveClass(photo, name, { onUndone = () => {} } = {}) {
  const before = classOf(photo);
  return attempt(async () => {
    const { photos } = await label([photo.id], name);
    const undo = () => attempt(async () => {
      const undone = await label([photo.id], before);
      announce("Undone.");
      onUndone(undone.photos[0]);
    });
    notify(name === null ? "The photo has no class now." : `This is ${name}: it is a training photo now.`, { undo });
    return photos[0];
  });
}

/**
 * Return buttons for some classes and a field for a new one; `onChosen(name)` gets the choice.
 *
 * `first` are the names to put first; the others follow in the order of the workspace.
 */
export function classChoice(onChosen, { first = [], current = null } = {}) {
  const names = [...new Set([...first.filter(Boolean), ...classNames()])];
  return h(
    "div",
    { class: "choice" },
    names.map((name) => button(name, () => onChosen(name), {
      class: "chip",
      "aria-pressed": String(name === current),
      icon: name === current ? "check" : null,
    })),
    newClassForm(onChosen),
  );
}

/** A field and a button for the name of a new class. */
export function newClassForm(onChosen, { words = "New class", action = "Add" } = {}) {
  const input = h("input", { type: "text", "aria-label": words, placeholder: words, maxlength: 100, autocomplete: "off" });
  return h(
    "form",
    {
      class: "new-name",
      onsubmit: (event) => {
        event.preventDefault();
        const name = input.value.trim();
        if (!name) return input.focus();
        input.value = "";
        return onChosen(name);
      },
    },
    input,
    h("button", { type: "submit" }, action),
  );
}
