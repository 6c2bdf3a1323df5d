/** The page: two views of one workspace, whose id is in the address (`/#w=ID&v=ask`). */

import { askAbout, setUpAsk } from "./ask.js";
import { problemOf, send, whenTokenIsNeeded } from "./api.js";
import { h } from "./dom.js";
import { attempt, deferred } from "./notices.js";
import { acceptPastes } from "./pick.js";
import { pasteIntoTeach, setUpTeach } from "./teach.js";
import { forgetLast, readServer, lastWorkspace, openWorkspace, refresh, publish, space, subscribe } from "./workspace.js";

const VIEWS = ["teach", "ask"];
const TITLES = { teach: "Teach", ask: "Ask" };

let view = null;

async function start() {
  whenTokenIsNeeded(askForToken);
  setUpTeach(document.querySelector("#teach"), { onAsk: () => show("ask", { focus: true }) });
  setUpAsk(document.querySelector("#ask"), { onTeach: () => show("teach", { focus: true }) });
  acceptPastes((picked) => (view === "ask" ? askAbout(picked) : pasteIntoTeach(picked)));
  for (const name of ["dragover", "drop"]) { // a drop beside the places for it must not leave the page
    document.addEventListener(name, (event) => event.preventDefault());
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) attempt(refresh); });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address has the workspace
    document.querySelector("#main").focus();
  });
  await attempt(readServer);
  await attempt(follow);
  subscribe(writeAddress);
  window.addEventListener("hashchange", () => attempt(follow));
  document.body.classList.add("ready");
}

function address() {
  return new URLSearchParams(location.hash.slice(1));
}

/** Show what the address says. */
async function follow() {
  const words = address();
  if (words.has("new")) {
    forgetLast();
    history.replaceState(null, "", "/");
    if (space.state) return location.reload();
  }
  const id = words.get("w") ?? null;
  if (id && id !== space.state?.id) await attempt(() => openWorkspace(id));
  if (!space.state && id === null) await offerLast();
  const wanted = words.get("v");
  return show(VIEWS.includes(wanted) ? wanted : space.state?.model || (!space.state && space.models.length) ? "ask" : "teach");
}

/** Offer the workspace that this browser had open last. */
async function offerLast() {
  const id = lastWorkspace();
  if (!id || !/^[0-9a-f]{32}$/.test(id)) return;
  const box = document.querySelector("#continue");
  box.replaceChildren(h("p", {}, "You were here before. ", h("a", { href: `#w=${id}` }, "Continue where you stopped")));
  box.hidden = false;
}

function show(name, { focus = false } = {}) {
  view = name;
  for (const other of VIEWS) {
    document.querySelector(`#${other}`).hidden = other !== name;
    const link = document.querySelector(`#to-${other}`);
    if (other === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  publish();
  document.title = `${TITLES[name]} · patchvote`;
  writeAddress();
  if (focus) {
    window.scrollTo(0, 0);
    const title = document.querySelector(`#${name} h1`);
    title.tabIndex = -1;
    title.focus();
  }
}

/** Keep the workspace and the view in the address, so that a reload or a bookmark comes back to them. */
function writeAddress() {
  const hash = (name) => (space.state ? `#w=${space.state.id}&v=${name}` : `#v=${name}`);
  for (const name of VIEWS) document.querySelector(`#to-${name}`).href = hash(name);
  if (view && location.hash !== hash(view)) history.replaceState(null, "", hash(view));
  if (space.state) document.querySelector("#continue").hidden = true;
}

let tokenAsked = null; // the promise of the open dialog: many requests may need the token at once

/** Ask for the token until the server takes it. */
function askForToken() {
  tokenAsked ??= showTokenDialog().finally(() => { tokenAsked = null; });
  return tokenAsked;
}

function showTokenDialog() {
  const { promise, resolve } = deferred();
  const fault = h("p", { id: "token-fault", role: "alert" });
  const field = h("input", {
    type: "password",
    id: "token",
    autocomplete: "current-password",
    required: true,
    "aria-describedby": "token-fault",
  });
  const enter = async (event) => {
    event.preventDefault();
    const reply = await attempt(() => send("POST", "/v1/session", { token: field.value }));
    if (!reply) return;
    if (!reply.ok) {
      fault.textContent = (await problemOf(reply)).message;
      field.select();
      return;
    }
    dialog.close();
    dialog.remove();
    resolve();
  };
  const dialog = h(
    "dialog",
    { class: "small-dialog", "aria-labelledby": "token-title", oncancel: (event) => event.preventDefault() },
    h("h2", { id: "token-title" }, "This page needs a token"),
    h("p", {}, "Whoever started the server has it."),
    h(
      "form",
      { onsubmit: enter },
      h("label", { for: "token" }, "Token"),
      field,
      fault,
      h("p", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Enter")),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

start();
