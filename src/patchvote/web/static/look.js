/**
 * A photo, looked at closely: where the evidence for a class is, what each part voted, which training parts match, and what
 * class the photo has.
 */

import { bar, button, h, iconButton, listed, percent, setVars } from "./dom.js";
import { classChoice, giveClass } from "./labels.js";
import { drawLit, gridOf } from "./map.js";
import { matchList } from "./matches.js";
import { announce, attempt } from "./notices.js";
import { bySupport, outline, partAt, placeOf, sentenceOf, spanOf, voteBars } from "./parts.js";
import { classOf, evidence, removePhotos, space } from "./workspace.js";

const FIRST_CLASSES = 8; // rows of classes before "all classes"
let strength = 0.85; // of the overlay; kept from photo to photo

/** Open the dialog at a photo of a list. `onChange(photo)` gets photos that changed, `onRemoved(photo)` those that are gone. */
export function look(photos, index, { onChange = () => {}, onRemoved = () => {} } = {}) {
  new Look(photos, index, onChange, onRemoved).open();
}

class Look {
  constructor(photos, index, onChange, onRemoved) {
    Object.assign(this, { photos: [...photos], index, onChange, onRemoved });
    this.title = h("h2", { id: "look-title" });
    this.image = h("img", { alt: "" });
    this.canvas = h("canvas", { class: "lit", "aria-hidden": "true" });
    this.frame = h("span", { class: "frame", hidden: true, "aria-hidden": "true" });
    this.stage = h("div", { class: "stage", onpointermove: (event) => this.hover(event), onpointerleave: () => this.leave(), onpointerdown: (event) => this.hover(event) }, this.image, this.canvas, this.frame);
    this.side = h("div", { class: "findings" });
    this.previous = iconButton("Previous photo", "left", () => this.turn(-1));
    this.next = iconButton("Next photo", "right", () => this.turn(1));
    this.dialog = h(
      "dialog",
      { class: "look", "aria-labelledby": "look-title", onclose: () => this.dialog.remove(), onkeydown: (event) => this.key(event) },
      h("header", {}, this.title, h("div", { class: "row" }, this.previous, this.next, iconButton("Close", "close", () => this.dialog.close(), { autofocus: true }))),
      h("div", { class: "look-body" }, h("div", { class: "stage-box" }, this.stage, this.controls()), this.side),
    );
    this.image.addEventListener("load", () => this.draw());
  }

  get photo() {
    return this.photos[this.index];
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.show();
  }

  /** The slider of the overlay and the one that goes from part to part; both work with the keyboard. */
  controls() {
    this.strength = h("input", { id: "strength", type: "range", min: 0, max: 100, value: Math.round(100 * strength), oninput: () => this.applyStrength() });
    this.walker = h("input", { id: "walker", type: "range", min: 1, max: 1, value: 1, oninput: () => this.walk(), onfocus: () => this.walk(), onblur: () => this.leave() });
    this.votes = h("div", { class: "part-votes", id: "part-votes" });
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

  /** Show the photo that it is the turn of. */
  async show() {
    const { photo } = this;
    this.chosen = null;
    this.seen = new Map(); // evidence by class
    this.evidence = null;
    this.title.textContent = photo.name;
    this.previous.disabled = this.index === 0;
    this.next.disabled = this.index === this.photos.length - 1;
    this.canvas.hidden = true;
    this.tools.hidden = true;
    this.leave();
    setVars(this.stage, { "--width": photo.width, "--height": photo.height });
    this.image.alt = `Photo ${photo.name}`;
    this.image.src = photo.image;
    this.fill();
    if (space.state.model) await this.choose(null);
  }

  /** Show the evidence for a class; null is the likeliest. */
  async choose(name) {
    const { photo } = this;
    const found = this.seen.get(name) ?? (await attempt(() => evidence(photo.id, name, gridOf(photo))));
    if (!found || photo !== this.photo) return; // another photo is shown by now
    this.seen.set(name, found).set(found.maps[0].label, found);
    this.evidence = found;
    this.chosen = found.maps[0].label;
    this.tools.hidden = false;
    this.order = bySupport(found.parts, found.classes.indexOf(this.chosen));
    this.widest = found.parts.reduce((most, part) => Math.max(most, spanOf(part)), 1e-9);
    Object.assign(this.walker, { max: found.parts.length, value: 1 });
    this.leave();
    this.draw();
    this.fill();
    if (name !== null) announce(`The photo is lit where it supports ${name}.`);
  }

  draw() {
    if (!this.evidence || !this.image.complete || !this.image.naturalWidth) return;
    drawLit(this.canvas, this.image, this.evidence.maps[0].contrast);
    this.canvas.dataset.label = this.chosen;
    this.canvas.dataset.photo = this.photo.id;
    this.canvas.hidden = false;
    this.applyStrength();
    this.fillMatches();
  }

  applyStrength() {
    strength = this.strength.value / 100;
    this.strength.setAttribute("aria-valuetext", `${this.strength.value} %`);
    setVars(this.stage, { "--strength": this.evidence ? strength : 0 });
  }

  /** Fill the findings: the answer, the classes to show the evidence of, matches, and the class that the user gives. */
  fill() {
    this.matchBox = h("div");
    const focused = this.side.contains(document.activeElement) ? document.activeElement.value : null;
    this.side.replaceChildren(
      ...[this.answerWords(), this.evidence && this.classRows(), this.matchBox, this.classBox(), this.removal()].filter(Boolean),
    );
    if (focused !== null) [...this.side.querySelectorAll("input[type=radio]")].find((radio) => radio.value === focused)?.focus();
    if (this.evidence && this.image.complete && this.image.naturalWidth) this.fillMatches();
  }

  answerWords() {
    const answer = this.evidence?.answer ?? this.photo.answer;
    if (!space.state.model) return h("p", { class: "soft" }, "Once it has learned, you see here where the evidence is.");
    if (!answer) return h("p", { class: "soft" }, "Looking …");
    if (answer.error) return h("p", {}, `This photo ${answer.error}`);
    if (answer.rejected) return h("p", { class: "verdict" }, h("strong", {}, "None of these"), ` It resembles ${answer.likeliest} most, but looks unlike the photos it learned from.`);
    return h("p", { class: "verdict" }, h("strong", {}, answer.label), ` ${percent(answer.probability)}`);
  }

  classRows() {
    const { classes, probability } = this.evidence;
    const order = classes.map((_, index) => index).sort((a, b) => probability[b] - probability[a]);
    const rows = order.filter((index, rank) => rank < FIRST_CLASSES || this.all || classes[index] === this.chosen);
    return h(
      "fieldset",
      { class: "classes" },
      h("legend", {}, "Where is the evidence for …"),
      rows.map((index) => h(
        "label",
        {},
        h("input", { type: "radio", name: "evidence", value: classes[index], checked: classes[index] === this.chosen, onchange: () => this.choose(classes[index]) }),
        h("span", { class: "name" }, classes[index]),
        bar(probability[index]),
        h("span", { class: "number" }, percent(probability[index])),
      )),
      rows.length < classes.length && button(`All ${classes.length} classes`, () => { this.all = true; this.fill(); }, { class: "quiet" }),
    );
  }

  fillMatches() {
    const list = matchList(this.evidence.matches, this.image, { onPart: (box) => this.point(box, null) });
    const unseen = this.evidence.matches.length && !list ? [...new Set(this.evidence.matches.map(({ photo }) => photo))].slice(0, 3) : [];
    this.matchBox.replaceChildren(...[
      (list || unseen.length) && h("h3", {}, `Looks like these parts of ${this.evidence.matched}`),
      list && h("p", { class: "soft" }, "Left: a part of this photo. Right: the training part that it matches."),
      list,
      unseen.length && h("p", { class: "soft" }, `The matching training photos are not on this page: ${listed(unseen)}.`),
    ].filter(Boolean));
  }

  classBox() {
    const answer = this.photo.answer ?? this.evidence?.answer;
    const current = classOf(this.photo);
    const give = async (name) => {
      const { photo } = this;
      const changed = await giveClass(photo, name, { onUndone: (undone) => this.replace(undone) });
      if (changed) this.replace(changed);
    };
    return h(
      "section",
      { class: "class-box", "aria-label": "Class of this photo" },
      h("h3", {}, current === null ? "What is it really?" : `You said: ${current}`),
      current === null && h("p", { class: "soft" }, "Your answer makes it a training photo."),
      classChoice(give, { first: answer ? [answer.likeliest, answer.runner_up] : [], current }),
      current !== null && button("It has no class", () => give(null), { class: "quiet" }),
    );
  }

  removal() {
    return button("Remove this photo", () => attempt(async () => {
      const { photo } = this;
      await removePhotos([photo.id]);
      this.onRemoved(photo);
      this.photos.splice(this.index, 1);
      announce(`${photo.name} was removed.`);
      if (!this.photos.length) return this.dialog.close();
      this.index = Math.min(this.index, this.photos.length - 1);
      return this.show();
    }), { icon: "bin", class: "quiet" });
  }

  /** Take a photo that changed in place of the one with its id. */
  replace(photo) {
    const index = this.photos.findIndex(({ id }) => id === photo.id);
    if (index >= 0) this.photos[index] = photo;
    this.onChange(photo);
    if (index === this.index) this.fill();
  }

  hover(event) {
    if (!this.evidence) return;
    const { left, top, width, height } = this.stage.getBoundingClientRect();
    const found = partAt(this.evidence.parts, (event.clientX - left) / width, (event.clientY - top) / height);
    if (found < 0) this.leave();
    else this.point(this.evidence.parts[found].box, this.evidence.parts[found]);
  }

  /** Show the part that the slider of parts is at: the strongest for the class first. */
  walk() {
    const part = this.evidence.parts[this.order[this.walker.value - 1]];
    this.walker.setAttribute("aria-valuetext", `Part ${this.walker.value} of ${this.evidence.parts.length}, ${sentenceOf(part, this.evidence.classes)}`);
    this.point(part.box, part);
  }

  point(box, part) {
    outline(this.frame, box);
    if (!part) return;
    this.votes.replaceChildren(
      h("p", {}, `This part (${placeOf(box)}) votes`),
      voteBars(part, this.evidence.classes, this.widest, this.chosen),
    );
  }

  leave() {
    this.frame.hidden = true;
    this.votes.replaceChildren(h("p", { class: "soft" }, "Point at the photo, or move the slider, to see what a part votes. The first part of the slider supports the class most."));
  }

  turn(step) {
    const index = this.index + step;
    if (index < 0 || index >= this.photos.length) return;
    this.index = index;
    this.show();
    announce(`Photo ${index + 1} of ${this.photos.length}: ${this.photo.name}`);
  }

  key(event) {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") this.turn(-1);
    if (event.key === "ArrowRight") this.turn(1);
  }
}
