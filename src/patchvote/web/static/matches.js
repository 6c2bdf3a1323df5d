/** Matching parts: parts of the photo beside the most similar parts of training photos, for models that remember those. */

import { h } from "./dom.js";
import { drawPart } from "./map.js";
import { placeOf } from "./parts.js";

const SHOWN = 6; // pairs; more do not tell more

/** Return a list of pairs, the strongest first, or null where there is none. */
export function matchList(matches, image, { onPart }) {
  const pairs = matches.filter((match) => match.image).slice(0, SHOWN);
  if (!pairs.length) return null;
  return h("ul", { class: "matches" }, pairs.map((match) => pairOf(match, image, onPart)));
}

function pairOf(match, image, onPart) {
  const [here, there] = [h("canvas", { "aria-hidden": "true" }), h("canvas", { "aria-hidden": "true" })];
  drawPart(here, image, match.box);
  const trained = new Image();
  trained.addEventListener("load", () => drawPart(there, trained, match.there));
  trained.src = match.image;
  const show = () => onPart(match.box);
  const [place, trainedPlace] = [placeOf(match.box), placeOf(match.there)];
  return h(
    "li",
    {},
    h(
      "button",
      {
        type: "button",
        onpointerenter: show,
        onfocus: show,
        onclick: show,
        "aria-label": `This part (${place}) resembles a part of a training photo (${trainedPlace}). Show where it is.`,
      },
      here,
      there,
    ),
  );
}
