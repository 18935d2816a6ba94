// The running configuration, and its history.

import { get } from "./api.js";
import { card, h, note } from "./dom.js";
import { time, whole } from "./format.js";

export const config = {
  id: "configuration",
  title: "Configuration",
  about: "The commands that make the running configuration again, and checkpoints to compare it with. Secrets are masked.",
  mount(place) {
    const filter = h("input", { type: "search", class: "filter", "aria-label": "Filter: configuration", placeholder: "Filter  ( / )", input: () => draw() });
    const count = h("span", { class: "count", role: "status" });
    const text = h("pre", { class: "commands", tabindex: "0", "aria-label": "Commands" });
    const history = card("History", h("p", { class: "hint" }, "…"));
    const diff = card("", h("p", { class: "hint" }, "Choose a checkpoint to compare the running configuration with it."));
    diff.setAttribute("aria-live", "polite");
    let commands = [];
    const draw = () => {
      const wanted = filter.value.toLowerCase();
      const shown = commands.filter((one) => one.toLowerCase().includes(wanted));
      const most = 5000;
      text.replaceChildren(...shown.slice(0, most).map((one) => h("span", {}, `${one}\n`)), shown.length > most ? `… ${whole(shown.length - most)} more` : "");
      count.textContent = wanted ? `${whole(shown.length)} of ${whole(commands.length)} commands` : `${whole(commands.length)} commands`;
    };
    const compare = async (name) => {
      try {
        const { added, removed } = await get("diff", { checkpoint: name });
        diff.replaceChildren(h("h2", {}, `Since ${name}`), h("pre", { class: "diff", tabindex: "0" },
          removed.map((line) => h("span", { class: "removed" }, `- ${line}\n`)), added.map((line) => h("span", { class: "added" }, `+ ${line}\n`)),
          !added.length && !removed.length && "nothing has changed"));
      } catch (error) {
        diff.replaceChildren(note(error.message, "bad"));
      }
    };
    const load = async () => {
      try {
        commands = (await get("configuration")).map((one) => one.command);
        draw();
      } catch (error) {
        text.replaceChildren(note(error.message, "bad"));
      }
      try {
        const points = await get("checkpoints");
        const rows = points.map((one) => h("li", {}, h("button", { type: "button", click: () => compare(one.name ?? String(one.sequence)) }, one.name ?? String(one.sequence)),
          h("small", {}, [one.unix_ms && `${time(one.unix_ms)} UTC`, one.comment].filter(Boolean).join(" · "))));
        history.replaceChildren(h("h2", {}, "History"), rows.length ? h("ul", { class: "history" }, rows) : h("p", { class: "hint" }, "No checkpoint is kept: configuration checkpoint NAME makes one."));
      } catch (error) {
        history.replaceChildren(h("h2", {}, "History"), note(error.message, "bad"));
      }
    };
    place.append(h("div", { class: "split wide" }, h("div", { class: "table" }, h("div", { class: "tools" }, filter, count), text), h("div", { class: "stack" }, history, diff)));
    load();
    return () => {};
  },
};
