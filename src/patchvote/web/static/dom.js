/**
 * Elements, words and numbers: the small tools of every other module.
 *
 * Text from users and from the server reaches the document as text nodes only, never as HTML.
 */

/**
 * Make an element.
 *
 * Attributes that start with "on" are listeners, `vars` are custom properties of the style (the content security policy
 * forbids style attributes), false and null leave an attribute out.
 *
 *     h("button", { type: "button", onclick: close }, "Close")
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") setVars(element, value);
    else if (name === "value" || name === "checked" || name === "muted") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set custom properties of an element's style. */
export function setVars(element, vars) {
  for (const [name, value] of Object.entries(vars)) element.style.setProperty(name, value);
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  check: "M5 12.5l4.5 4.5L19 7.5",
  camera: "M4 8h3.5L9 5.5h6L16.5 8H20v11H4zM12 10a3.2 3.2 0 100 6.4 3.2 3.2 0 000-6.4",
  photo: "M4 5h16v14H4zM4 16l4.5-4.5 3.5 3.5 3-3 5 5M15.5 9.2h.01",
  folder: "M3.5 6.5h6l2 2.5h9v9.5h-17z",
  download: "M12 4v11M7.5 11L12 15.5 16.5 11M5 19.5h14",
  open: "M12 16V5M7.5 9L12 4.5 16.5 9M5 19.5h14",
  left: "M14.5 5.5L8 12l6.5 6.5",
  right: "M9.5 5.5L16 12l-6.5 6.5",
  question: "M12 3.5a8.5 8.5 0 110 17 8.5 8.5 0 010-17M9.7 9.6a2.4 2.4 0 114 1.8c-1.1.9-1.7 1.3-1.7 2.4M12 16.6h.01",
  spark: "M12 3.5l2.2 6.3 6.3 2.2-6.3 2.2L12 20.5l-2.2-6.3L3.5 12l6.3-2.2z",
  bin: "M5 7h14M9.5 7V4.5h5V7M7 7l.8 12.5h8.4L17 7",
};

/** Return a drawing that goes with a word; readers of the screen skip it. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Make a button: `button("Choose photos", choose, { icon: "photo", class: "primary" })`. */
export function button(words, onclick, { icon: drawing = null, ...attributes } = {}) {
  return h("button", { type: "button", onclick, ...attributes }, drawing && icon(drawing), h("span", {}, words));
}

/** Make a button that shows only a drawing; `words` is its name. */
export function iconButton(words, drawing, onclick, attributes = {}) {
  return h("button", { type: "button", class: "bare", title: words, "aria-label": words, onclick, ...attributes }, icon(drawing));
}

/**
 * Bring the children of an element in line with a list, by key: those that stay keep their focus and their contents.
 *
 * `create(item)` makes an element, `update(element, item)` brings one up to date. Elements without a key stay at the end.
 */
export function reconcile(parent, items, key, create, update = () => {}) {
  const present = new Map([...parent.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = present.get(name);
    present.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    if (element === before) before = before.nextElementSibling;
    else parent.insertBefore(element, before);
    update(element, item);
  }
  for (const element of present.values()) element.remove();
}

/** `count(1, "photo")` is "1 photo", `count(1200, "photo")` is "1,200 photos". */
export function count(number, word, words = word.endsWith("s") ? `${word}es` : `${word}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : words}`;
}

/** A share as a percentage; certainty is not claimed by rounding. */
export function percent(share) {
  if (share > 0.99 && share < 1) return "over 99 %";
  if (share > 0 && share < 0.01) return "under 1 %";
  return `${Math.round(100 * share)} %`;
}

/** Join words: "a", "a and b", "a, b and c". */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** A bar from 0 to `share`; the words beside it say the same. */
export function bar(share, attributes = {}) {
  return h("span", { class: `bar ${attributes.class ?? ""}`, "aria-hidden": "true", vars: { "--v": share } }, h("i"));
}
