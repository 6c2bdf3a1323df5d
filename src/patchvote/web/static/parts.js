/** Parts of a photo: which one is under the pointer, its votes, and a sentence about them. */

import { bar, h, setVars } from "./dom.js";

const SHOWN = 4; // classes in the list of a part's votes

/** Return the number of the smallest part that covers a point (0 to 1), the nearest among equally small ones; or -1. */
export function partAt(parts, x, y) {
  let best = -1;
  let least = [Infinity, Infinity];
  parts.forEach(({ box: [left, top, right, bottom] }, index) => {
    if (x < left || x > right || y < top || y > bottom) return;
    const size = Math.round(1e6 * (right - left) * (bottom - top));
    const distance = Math.hypot(x - (left + right) / 2, y - (top + bottom) / 2);
    if (size < least[0] || (size === least[0] && distance < least[1])) {
      best = index;
      least = [size, distance];
    }
  });
  return best;
}

/** Return the numbers of the parts, those first that support a class most against every other. */
export function bySupport(parts, number) {
  const support = parts.map(({ votes }) => votes[number] - Math.max(...votes.filter((_, index) => index !== number)));
  return support.map((_, index) => index).sort((a, b) => support[b] - support[a]);
}

/** Say where a box is: "upper left", "middle", "the whole photo". */
export function placeOf([left, top, right, bottom]) {
  if (right - left > 0.9 && bottom - top > 0.9) return "the whole photo";
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  const column = x < 1 / 3 ? "left" : x > 2 / 3 ? "right" : "";
  const row = y < 1 / 3 ? "upper" : y > 2 / 3 ? "lower" : "";
  if (!row && !column) return "middle";
  return [row || "middle", column || "middle"].join(" ");
}

/** Return a vote with its sign. */
function signed(vote) {
  return `${vote < 0 ? "−" : "+"}${Math.abs(vote).toFixed(2)}`;
}

/** Return the classes that a part voted for, strongest first, with their votes: `[["cat", 1.5], …]`. */
function votesOf(part, classes) {
  return classes.map((name, index) => [name, part.votes[index]]).sort((a, b) => b[1] - a[1]);
}

/** Say what a part voted, in one sentence. */
export function sentenceOf(part, classes) {
  const votes = votesOf(part, classes).slice(0, SHOWN);
  return `${placeOf(part.box)}: ${votes.map(([name, vote]) => `${name} ${signed(vote)}`).join(", ")}`;
}

/** Return how far the votes of a part lie apart. */
export function spanOf({ votes }) {
  return Math.max(...votes) - Math.min(...votes);
}

/**
 * Draw a part's strongest votes as bars.
 *
 * Some models vote with negative numbers only (minus a distance), so a bar shows by how much a vote exceeds the part's least
 * vote, relative to the widest span of votes in the photo.
 */
export function voteBars(part, classes, widest, shown) {
  const votes = votesOf(part, classes);
  const least = votes.at(-1)[1];
  const rows = votes.slice(0, SHOWN);
  const chosen = votes.find(([name]) => name === shown);
  if (chosen && !rows.includes(chosen)) rows[rows.length - 1] = chosen;
  return h(
    "ul",
    { class: "votes" },
    rows.map(([name, vote]) => h(
      "li",
      { class: name === shown ? "shown" : null },
      h("span", { class: "name" }, name),
      bar((vote - least) / widest, { class: vote === votes[0][1] ? "" : "lesser" }),
      h("span", { class: "number" }, signed(vote)),
    )),
  );
}

/** Put an outline around a box of the photo. */
export function outline(frame, [left, top, right, bottom]) {
  frame.hidden = false;
  setVars(frame, { "--left": left, "--top": top, "--right": right, "--bottom": bottom });
}
