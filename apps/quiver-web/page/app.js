// The frame: which view is shown, and the keys that work everywhere.

import { get } from "./api.js";
import { h, set, setText } from "./dom.js";
import { isPaused, pause, start } from "./rates.js";
import { config } from "./config.js";
import { drops } from "./drops.js";
import { graph } from "./graph.js";
import { interfaces } from "./interfaces.js";
import { protocols } from "./protocols.js";
import { routes } from "./routes.js";
import { sessions } from "./sessions.js";
import { trace } from "./trace.js";
import { workers } from "./workers.js";

const VIEWS = [graph, interfaces, drops, routes, sessions, trace, protocols, config, workers];


const main = document.getElementById("main");
const nav = document.getElementById("nav");
const state = document.getElementById("state");
const pauseButton = document.getElementById("pause");
let about = { may_trace: false };
let leave = () => {};
let isFirst = true;

nav.append(h("ul", {}, VIEWS.map((view, at) => h("li", {}, h("a", { href: `#${view.id}`, "aria-keyshortcuts": String(at + 1) }, view.title, h("kbd", { "aria-hidden": "true" }, String(at + 1)))))));

function show() {
  const [id, ...rest] = location.hash.slice(1).split("/");
  const view = VIEWS.find((one) => one.id === id) ?? VIEWS[0];
  leave();
  const heading = h("h1", { tabindex: "-1" }, view.title);
  const place = h("div", { class: "view", id: `view-${view.id}` });
  main.replaceChildren(h("div", { class: "heading" }, heading, h("p", { class: "hint" }, view.about)), place);
  for (const link of nav.querySelectorAll("a")) {
    if (link.getAttribute("href") === `#${view.id}`) set(link, "aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · Quiver${about.host ? ` on ${about.host}` : ""}`;
  if (!isFirst) heading.focus({ preventScroll: true });
  isFirst = false;
  leave = view.mount(place, rest.length ? decode(rest.join("/")) : "", about);
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function showState(error) {
  state.className = `state ${error ? "bad" : isPaused() ? "" : "good"}`;
  setText(state, error ? error.message : isPaused() ? "paused" : "live");
}

document.addEventListener("quiver-state", (event) => showState(event.detail));
window.addEventListener("hashchange", show);
pauseButton.addEventListener("click", () => {
  pause(!isPaused());
  set(pauseButton, "aria-pressed", isPaused());
  setText(pauseButton, isPaused() ? "Go on" : "Pause");
  showState(null);
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, select, textarea, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping) {
    if (event.key === "Escape" && isTyping) event.target.blur?.();
    return;
  }
  if (event.key === "/") {
    const filter = main.querySelector(".filter");
    if (filter) { event.preventDefault(); filter.focus(); }
  }
  const view = VIEWS[Number(event.key) - 1];
  if (view) location.hash = `#${view.id}`;
});

async function begin() {
  try {
    about = await get("about");
    const { program, version } = about.version;
    setText(document.getElementById("about"), `${about.host} · ${program} ${version}`);
  } catch (error) {
    showState(error);
  }
  show();
  start();
}
begin();
