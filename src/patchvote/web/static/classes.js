/** Cards of classes: the name, some photos, and the ways to add more. */

import { takePhotos } from "./camera.js";
import { button, count, h, iconButton, reconcile } from "./dom.js";
import { look } from "./look.js";
import { announce, attempt, confirmed } from "./notices.js";
import { acceptDrops, choose } from "./pick.js";
import { listPhotos, removeClass, renameClass, space } from "./workspace.js";

const SHOWN = 12; // photos of a card until all are asked for

/** A card of a class (or of the unlabelled photos, whose id is "none"), which keeps itself up to date. */
export class ClassCard {
  /** `onPicked(picked, where)` adds photos: `where` is what `addPhotos` takes; `onAsk()` asks about the unlabelled ones. */
  constructor(id, onPicked, onAsk) {
    Object.assign(this, { id, onPicked, onAsk, all: false, face: null, photos: [], reading: 0 });
    this.thumbs = h("ul", { class: "thumbs" });
    this.amount = h("p", { class: "soft amount" });
    this.more = button("Show all", () => { this.all = true; attempt(() => this.load()); }, { class: "quiet" });
    this.element = h("li", { class: "class-card" }, ...this.head(), this.amount, this.thumbs, this.more, this.tools());
    acceptDrops(this.element, (picked) => this.add(picked));
  }

  get isClass() {
    return this.id !== "none";
  }

  add(picked) {
    if (picked.length) this.onPicked(picked, this.isClass ? { class: this.id } : {});
  }

  head() {
    if (!this.isClass) return [h("h2", { class: "card-title" }, "No class yet")];
    this.title = h("h2", { class: "hidden-words" });
    this.name = h("input", {
      class: "class-name",
      type: "text",
      maxlength: 100,
      autocomplete: "off",
      onchange: () => this.rename(),
      onkeydown: (event) => { if (event.key === "Enter") this.name.blur(); },
    });
    return [this.title, this.name, iconButton("Remove this class", "bin", () => this.remove(), { class: "bare remove" })];
  }

  tools() {
    this.chooser = button("Add photos", async () => this.add(await choose()), { icon: "plus" });
    const shoot = () => takePhotos((picked) => this.add(picked), `For ${this.name.value}.`);
    this.camera = iconButton("Use the camera", "camera", shoot, { class: "" });
    this.asker = button("Ask about them", () => this.onAsk());
    return h("div", { class: "row card-tools" }, this.chooser, this.isClass ? this.camera : this.asker);
  }

  /** Bring the card in line with the state; `fresh` reads its photos again even if their number is the same. */
  update(entry, fresh = false) {
    if (this.isClass) {
      this.title.textContent = entry.name;
      if (document.activeElement !== this.name) this.name.value = entry.name;
      this.name.setAttribute("aria-label", `Name of the class ${entry.name}`);
      this.chooser.setAttribute("aria-label", `Add photos of ${entry.name}`);
      this.camera.setAttribute("aria-label", `Use the camera for ${entry.name}`);
      this.element.querySelector(".remove").setAttribute("aria-label", `Remove the class ${entry.name}`);
    }
    this.asker.hidden = !space.state.model;
    const unlearned = this.isClass && space.state.model ? entry.photos - entry.learned : 0;
    const amount = count(entry.photos, "photo") + (unlearned > 0 ? `, ${unlearned} new` : "");
    this.amount.textContent = entry.photos ? amount : "Drop some photos here.";
    this.element.classList.toggle("empty", !entry.photos);
    const face = `${space.state.id} ${entry.photos}`;
    if (fresh || face !== this.face) {
      this.face = face;
      attempt(() => this.load());
    }
  }

  async load() {
    const reading = (this.reading += 1);
    const photos = await listPhotos({ class: this.id, most: this.all ? Infinity : SHOWN });
    if (reading !== this.reading) return; // another list was asked for later
    this.photos = photos;
    reconcile(this.thumbs, photos, ({ id }) => id, (photo) => h("li", {}, h(
      "button",
      { type: "button", title: photo.name, "aria-label": `Look at ${photo.name}`, onclick: () => this.look(photo.id) },
      h("img", { src: photo.thumbnail, alt: "", loading: "lazy", width: photo.width, height: photo.height }),
    )));
    this.thumbs.hidden = !photos.length;
    const total = Number(this.face.split(" ")[1]);
    this.more.hidden = this.all || total <= photos.length;
    this.more.lastElementChild.textContent = `Show all ${total}`;
  }

  look(id) {
    look(this.photos, this.photos.findIndex((photo) => photo.id === id));
  }

  rename() {
    const entry = space.state.classes.find(({ id }) => id === this.id);
    const name = this.name.value.trim();
    if (!name || name === entry.name) {
      this.name.value = entry.name;
      return;
    }
    attempt(() => renameClass(this.id, name)).then((done) => {
      if (done) announce(`The class is called ${name} now.`);
      else this.name.value = entry.name;
    });
  }

  async remove() {
    const entry = space.state.classes.find(({ id }) => id === this.id);
    if (entry.photos) {
      const agreed = await confirmed({
        title: `Remove ${entry.name}?`,
        text: `The class and its ${count(entry.photos, "photo")} go from this page. Your own files are not touched.`,
        action: "Remove",
      });
      if (!agreed) return;
    }
    if (!(await attempt(() => removeClass(this.id, { withPhotos: true })))) return;
    announce(`${entry.name} was removed.`);
    document.querySelector(".class-card input")?.focus();
  }
}
