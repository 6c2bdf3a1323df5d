/** The stage: a photo, its evidence for a class as an overlay, and the votes of the part that one points at. */

import { h, setVars } from "./dom.js";
import { drawLit } from "./map.js";
import { bySupport, outline, partAt, placeOf, sentenceOf, spanOf, voteBars } from "./parts.js";

const HINT = "Point at the photo, or move the slider, to see what a part votes. The first part of the slider supports the "
  + "class most.";
let strength = 0.85; // of the overlay; kept from photo to photo

export class Stage {
  /** `onDrawn()` is called whenever photo and evidence are both there. */
  constructor(onDrawn) {
    Object.assign(this, { onDrawn, evidence: null, label: null });
    this.image = h("img", { alt: "", onload: () => this.draw() });
    this.canvas = h("canvas", { class: "lit", "aria-hidden": "true" });
    this.frame = h("span", { class: "frame", hidden: true, "aria-hidden": "true" });
    this.picture = h(
      "div",
      {
        class: "stage",
        onpointermove: (event) => this.hover(event),
        onpointerdown: (event) => this.hover(event),
        onpointerleave: () => this.leave(),
      },
      this.image,
      this.canvas,
      this.frame,
    );
    this.element = h("div", { class: "stage-box" }, this.picture, this.controls());
  }

  /** The slider of the overlay and the one that goes from part to part; both work with the keyboard. */
  controls() {
    const range = (id, max, more) => h("input", { id, type: "range", min: 0, max, ...more });
    this.strength = range("strength", 100, { value: Math.round(100 * strength), oninput: () => this.applyStrength() });
    this.walker = range("walker", 0, {
      value: 0,
      oninput: () => this.walk(),
      onfocus: () => this.walk(),
      onblur: () => this.leave(),
    });
    this.votes = h("div", { class: "part-votes" });
    this.tools = h(
      "div",
      { class: "tools" },
      h("label", { for: "strength" }, "Evidence"),
      this.strength,
      h("label", { for: "walker" }, "Parts"),
      this.walker,
      this.votes,
    );
    return this.tools;
  }

  /** Whether the photo is there and can be drawn. */
  get isLoaded() {
    return this.image.complete && this.image.naturalWidth > 0;
  }

  /** Show a photo, without evidence at first. */
  show(photo) {
    this.evidence = null;
    this.photo = photo;
    this.canvas.hidden = true;
    this.tools.hidden = true;
    this.leave();
    this.applyStrength();
    setVars(this.picture, { "--width": photo.width, "--height": photo.height });
    this.image.alt = `Photo ${photo.name}`;
    this.image.src = photo.image;
  }

  /** Show the evidence for the class of its first map. */
  explain(evidence) {
    this.evidence = evidence;
    this.label = evidence.maps[0].label;
    this.tools.hidden = false;
    this.order = bySupport(evidence.parts, evidence.classes.indexOf(this.label));
    this.widest = evidence.parts.reduce((most, part) => Math.max(most, spanOf(part)), 1e-9);
    Object.assign(this.walker, { max: evidence.parts.length - 1, value: 0 });
    this.leave();
    this.draw();
  }

  draw() {
    if (!this.evidence || !this.isLoaded) return;
    drawLit(this.canvas, this.image, this.evidence.maps[0].contrast);
    this.canvas.dataset.label = this.label;
    this.canvas.hidden = false;
    this.applyStrength();
    this.onDrawn();
  }

  applyStrength() {
    strength = this.strength.value / 100;
    this.strength.setAttribute("aria-valuetext", `${this.strength.value} %`);
    setVars(this.picture, { "--strength": this.evidence ? strength : 0 });
  }

  hover(event) {
    if (!this.evidence) return;
    const { left, top, width, height } = this.picture.getBoundingClientRect();
    const found = partAt(this.evidence.parts, (event.clientX - left) / width, (event.clientY - top) / height);
    if (found < 0) this.leave();
    else this.tell(this.evidence.parts[found]);
  }

  /** Show the part that the slider is at: the strongest for the class first. */
  walk() {
    const { parts, classes } = this.evidence;
    const number = Number(this.walker.value);
    const part = parts[this.order[number]];
    this.walker.setAttribute("aria-valuetext", `Part ${number + 1} of ${parts.length}, ${sentenceOf(part, classes)}`);
    this.tell(part);
  }

  /** Frame a part, and show what it votes. */
  tell(part) {
    this.point(part.box);
    this.votes.replaceChildren(
      h("p", {}, `This part (${placeOf(part.box)}) votes`),
      voteBars(part, this.evidence.classes, this.widest, this.label),
    );
  }

  /** Frame a box of the photo. */
  point(box) {
    outline(this.frame, box);
  }

  leave() {
    this.frame.hidden = true;
    this.votes.replaceChildren(h("p", { class: "soft" }, HINT));
  }
}
