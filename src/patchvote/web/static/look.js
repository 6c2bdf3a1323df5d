/** A photo, looked at closely: where the evidence is, which training parts match, and what class the photo has. */

import { likeliestOf } from "./answers.js";
import { bar, button, h, iconButton, listed, percent } from "./dom.js";
import { classChoice, giveClass } from "./labels.js";
import { gridOf } from "./map.js";
import { matchList } from "./matches.js";
import { announce, attempt } from "./notices.js";
import { Stage } from "./stage.js";
import { classOf, evidence, removePhotos, space } from "./workspace.js";

const FIRST_CLASSES = 8; // rows of classes before "all classes"

/** Open the dialog at a photo of a list. `onChange(photo)` gets photos that changed, `onRemoved(photo)` those that are gone. */
export function look(photos, index, { onChange = () => {}, onRemoved = () => {} } = {}) {
  new Look(photos, index, onChange, onRemoved).open();
}

class Look {
  constructor(photos, index, onChange, onRemoved) {
    Object.assign(this, { photos: [...photos], index, onChange, onRemoved, all: false });
    this.title = h("h2", { id: "look-title" });
    this.stage = new Stage(() => this.fillMatches());
    this.side = h("div", { class: "findings" });
    this.previous = iconButton("Previous photo", "left", () => this.turn(-1));
    this.next = iconButton("Next photo", "right", () => this.turn(1));
    const close = iconButton("Close", "close", () => this.dialog.close(), { autofocus: true });
    this.dialog = h(
      "dialog",
      {
        class: "look",
        "aria-labelledby": "look-title",
        onclose: () => this.dialog.remove(),
        onkeydown: (event) => this.key(event),
      },
      h("header", {}, this.title, h("div", { class: "row" }, this.previous, this.next, close)),
      h("div", { class: "look-body" }, this.stage.element, this.side),
    );
  }

  get photo() {
    return this.photos[this.index];
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.show();
  }

  /** Show the photo that it is the turn of. */
  async show() {
    this.found = null; // its evidence
    this.known = new Map(); // evidence by class
    this.title.textContent = this.photo.name;
    this.previous.disabled = this.index === 0;
    this.next.disabled = this.index === this.photos.length - 1;
    this.stage.show(this.photo);
    this.fill();
    if (space.state.model) await this.choose(null);
  }

  /** Show the evidence for a class; null is the likeliest. */
  async choose(name) {
    const { photo } = this;
    const choice = (this.choices = (this.choices ?? 0) + 1);
    const found = this.known.get(name) ?? (await attempt(() => evidence(photo.id, name, gridOf(photo))));
    if (!found || photo.id !== this.photo?.id || choice !== this.choices) return; // another one is shown by now
    this.known.set(found.maps[0].label, found);
    this.found = found;
    this.fill();
    this.stage.explain(found);
    if (name !== null) announce(`The photo is lit where it supports ${name}.`);
  }

  /** Fill the findings: the answer, the classes to show the evidence of, matches, and the class that the user gives. */
  fill() {
    const focused = this.side.contains(document.activeElement) ? document.activeElement.value : null;
    this.matchBox = h("div");
    const findings = [this.answer(), this.classRows(), this.matchBox, this.classBox(), this.removal()];
    this.side.replaceChildren(...findings.filter(Boolean));
    if (this.stage.evidence && this.stage.isLoaded) this.fillMatches();
    if (focused === null) return;
    [...this.side.querySelectorAll("input[type=radio]")].find(({ value }) => value === focused)?.focus();
  }

  answer() {
    const answer = this.found?.answer ?? this.photo.answer;
    if (!space.state.model) return h("p", { class: "soft" }, "Once it has learned, you see here where the evidence is.");
    if (!answer) return h("p", { class: "soft" }, "Looking …");
    if (answer.error) return h("p", {}, `This photo ${answer.error}`);
    if (!answer.rejected) {
      return h("p", { class: "verdict" }, h("strong", {}, answer.label), ` ${percent(answer.probability)}`);
    }
    return h(
      "div",
      {},
      h("p", { class: "verdict" }, h("strong", {}, "None of these"), " Unlike the photos it learned from."),
      h("p", { class: "soft" }, likeliestOf(answer)),
    );
  }

  /** A row per class, the likeliest first; the chosen one is what the overlay shows. */
  classRows() {
    if (!this.found) return null;
    const { classes, probability, maps } = this.found;
    const chosen = maps[0].label;
    const order = classes.map((_, index) => index).sort((a, b) => probability[b] - probability[a]);
    const rows = order.filter((index, rank) => rank < FIRST_CLASSES || this.all || classes[index] === chosen);
    const showAll = () => { this.all = true; this.fill(); };
    return h(
      "fieldset",
      { class: "classes" },
      h("legend", {}, "Where is the evidence for …"),
      rows.map((index) => this.classRow(classes[index], probability[index], classes[index] === chosen)),
      rows.length < classes.length && button(`All ${classes.length} classes`, showAll, { class: "quiet" }),
    );
  }

  classRow(name, probability, checked) {
    return h(
      "label",
      {},
      h("input", { type: "radio", name: "evidence", value: name, checked, onchange: () => this.choose(name) }),
      h("span", { class: "name" }, name),
      bar(probability),
      h("span", { class: "number" }, percent(probability)),
    );
  }

  fillMatches() {
    const { matches, matched } = this.found;
    const list = matchList(matches, this.stage.image, { onPart: (box) => this.stage.point(box) });
    const names = list ? [] : [...new Set(matches.map(({ photo }) => photo))].slice(0, 3);
    this.matchBox.replaceChildren(...[
      (list || names.length > 0) && h("h3", {}, `Looks like these parts of ${matched}`),
      list && h("p", { class: "soft" }, "Left: a part of this photo. Right: the training part that it matches."),
      list,
      names.length > 0 && h("p", { class: "soft" }, `The matching training photos are not on this page: ${listed(names)}.`),
    ].filter(Boolean));
  }

  /** The class that the user gives the photo. */
  classBox() {
    const answer = this.photo.answer ?? this.found?.answer;
    const current = classOf(this.photo);
    const give = async (name) => {
      const changed = await giveClass(this.photo, name, { onUndone: (undone) => this.replace(undone) });
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
    const remove = () => attempt(async () => {
      const { photo } = this;
      await removePhotos([photo.id]);
      this.onRemoved(photo);
      this.photos = this.photos.filter(({ id }) => id !== photo.id);
      announce(`${photo.name} was removed.`);
      if (!this.photos.length) return this.dialog.close();
      this.index = Math.min(this.index, this.photos.length - 1);
      return this.show();
    });
    return button("Remove this photo", remove, { icon: "bin", class: "quiet" });
  }

  /** Take a photo that changed in place of the one with its id. */
  replace(photo) {
    const index = this.photos.findIndex(({ id }) => id === photo.id);
    if (index >= 0) this.photos[index] = photo;
    this.onChange(photo);
    if (index === this.index) this.fill();
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
