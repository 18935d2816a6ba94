// Drops by node and reason, each with its explanation.

import { get } from "./api.js";
import { badge, card, h, note } from "./dom.js";
import { packets, whole } from "./format.js";
import { listen } from "./rates.js";
import { Table } from "./table.js";

export const drops = {
  id: "drops",
  title: "Drops",
  about: "What was dropped since the counters were last cleared. Choose a reason to see what it means and what to do.",
  mount(place, chosen) {
    let errors = new Set();
    let sample = null;
    let current = chosen;
    const table = new Table({
      caption: "Drops by node and reason",
      key: (row) => `${row[0]}\n${row[1]}`,
      sort: { key: "count", down: true },
      empty: "no packet was dropped",
      columns: [
        { key: "reason", title: "Reason", text: (row) => row[1], make: (row) => h("a", { href: `#drops/${encodeURIComponent(`${row[0]}.${row[1]}`)}` }, row[1]) },
        { key: "node", title: "Node", text: (row) => row[0] },
        { key: "rate", title: "Now", class: "number", value: (row) => sample.drop(row), text: (row) => packets(sample.drop(row)) },
        { key: "count", title: "Packets", class: "number", value: (row) => row[2], text: (row) => whole(row[2]) },
      ],
    });
    const detail = card("", h("p", { class: "hint" }, "No reason is chosen."));
    detail.classList.add("detail");
    detail.setAttribute("aria-live", "polite");
    place.append(h("div", { class: "split wide" }, table.element, detail));
    const show = () => table.update((sample?.now.drops ?? []).filter((row) => errors.has(`${row[0]}\n${row[1]}`)));
    const load = async () => {
      try {
        const all = await get("drops");
        errors = new Set(all.flatMap((one) => one.nodes.map((node) => `${node.node}\n${one.reason}`)));
        show();
        const [most] = [...all].sort((a, b) => b.nodes[0].count - a.nodes[0].count);
        if (!current && most) explain(`${most.nodes[0].node}.${most.reason}`);
      } catch (error) {
        detail.replaceChildren(note(error.message, "bad"));
      }
    };
    const explain = async (reason) => {
      current = reason;
      try {
        const all = await get("drops", { reason });
        if (current === reason) detail.replaceChildren(...all.slice(0, 5).flatMap(explanation));
      } catch (error) {
        detail.replaceChildren(note(error.message, "bad"));
      }
    };
    load();
    if (chosen) explain(chosen);
    const timer = setInterval(() => { if (!document.hidden) load(); }, 5000);
    const end = listen((next) => { sample = next; show(); });
    return () => { clearInterval(timer); end(); };
  },
};

/** Text in which what stands between backquotes is code. */
function marked(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

function explanation(one) {
  const part = (title, text) => (text ? [h("h3", {}, title), h("p", {}, marked(text[0].toUpperCase() + text.slice(1)))] : []);
  return [h("h2", {}, one.reason, " ", badge(one.severity, one.severity === "error" ? "bad" : "")), h("p", {}, marked(one.meaning)),
    ...part("Likely causes", one.causes), ...part("What to check", one.check),
    ...(one.see.length ? [h("h3", {}, "Commands and counters"), h("p", { class: "list" }, one.see.flatMap((see, at) => [at ? " " : "", h("code", {}, see)]))] : []),
    h("h3", {}, "Counted by"), h("ul", { class: "plain" }, one.nodes.slice(0, 8).map((node) => h("li", {}, h("code", {}, node.node), " ", badge(whole(node.count))))),
    ...(one.capture ? [h("h3", {}, "To record such packets"), h("pre", {}, one.capture)] : [])];
}
