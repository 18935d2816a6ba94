// A packet's trace, node by node. Starting one needs `quiver-web --allow-trace`.

import { get, post } from "./api.js";
import { badge, card, h, note } from "./dom.js";

export const trace = {
  id: "trace",
  title: "Trace",
  about: "What each node made of a packet. Arrow keys go from packet to packet.",
  mount(place, _, about) {
    const message = h("div", { role: "status" });
    const list = h("div", { class: "packets", role: "listbox", "aria-label": "Packets", tabindex: "0" });
    const detail = card("", h("p", { class: "hint" }, "No packet is traced."));
    detail.classList.add("detail", "steps");
    let all = [];
    let chosen = 0;
    const select = (at) => {
      if (!all.length) return;
      chosen = Math.min(Math.max(0, at), all.length - 1);
      [...list.children].forEach((one, place_) => one.setAttribute("aria-selected", String(place_ === chosen)));
      list.setAttribute("aria-activedescendant", list.children[chosen].id);
      list.children[chosen].scrollIntoView({ block: "nearest" });
      detail.replaceChildren(...steps(all[chosen]));
    };
    list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      select(chosen + step);
    });
    const load = async () => {
      try {
        const threads = await get("trace");
        all = threads.flatMap((thread) => thread.packets.map((packet, at) => ({ thread: thread.name, at, packet })));
        list.replaceChildren(...all.map((one, at) => h("div", { id: `packet-${at}`, role: "option", "aria-selected": "false", click: () => select(at) }, ...summary(one))));
        if (all.length) select(chosen);
        else detail.replaceChildren(h("p", { class: "hint" }, about.may_trace ? "No packet is traced. Start a trace above." : "No packet is traced. In quiverctl: trace add NODE N."));
        message.replaceChildren();
      } catch (error) {
        message.replaceChildren(note(error.message, "bad"));
      }
    };
    const tools = h("div", { class: "card form" });
    const again = h("button", { type: "button", click: load }, "Read again");
    if (about.may_trace) {
      const node = h("select", { "aria-label": "Node" });
      const count = h("input", { type: "number", min: "1", max: "100", value: "10", size: 4 });
      Promise.all([get("graph"), get("live")]).then(([nodes, now]) => {
        // Those that have brought in the most come first.
        const brought = new Map(now.nodes.map((row) => [row[0], row[2]]));
        const inputs = nodes.filter((one) => !one.previous.length && one.name.endsWith("-input")).map((one) => one.name);
        inputs.sort((a, b) => (brought.get(b) ?? 0) - (brought.get(a) ?? 0) || (a < b ? -1 : 1));
        node.append(...inputs.map((name) => h("option", { value: name }, name)));
      }, () => {});
      const act = (what, body) => async () => {
        try {
          await post(what, body?.());
          await new Promise((resolve) => setTimeout(resolve, 700));
          chosen = 0;
          await load();
        } catch (error) {
          message.replaceChildren(note(error.message, "bad"));
        }
      };
      const start = act("trace", () => ({ node: node.value, count: Number(count.value) }));
      tools.append(h("label", {}, "Input node", node), h("label", {}, "Packets", count),
        h("button", { type: "button", class: "primary", click: start }, "Start a trace"), again,
        h("button", { type: "button", click: act("trace/clear") }, "Clear"));
    } else {
      tools.append(h("p", { class: "hint grow" }, "This page only reads. quiver-web --allow-trace lets it start a trace."), again);
    }
    place.append(tools, message, h("div", { class: "split trace" }, list, detail));
    load();
    return () => {};
  },
};

function summary({ thread, at, packet }) {
  const [first, last] = [packet[0], packet[packet.length - 1]];
  const isDrop = last.node === "error-drop";
  const reason = isDrop ? last.text.split("\n").pop() : last.node;
  return [h("b", {}, `Packet ${at + 1}`), h("small", {}, `${thread}, ${first.stamp}`), h("span", { class: "list" }, first.node, " → ", badge(reason, isDrop ? "bad" : "good"))];
}

function steps({ packet }) {
  let before = "";
  return [h("ol", { class: "timeline" }, packet.map((step) => {
    const isDrop = step.node === "error-drop";
    const element = h("li", { class: isDrop ? "bad" : "" }, h("h3", {}, step.node), h("p", { class: "hint" }, step.stamp), h("pre", {}, step.text),
      step.bytes && step.bytes !== before && h("details", {}, h("summary", {}, `${step.bytes.length / 2} bytes`), h("pre", { class: "hex" }, hex(step.bytes))));
    before = step.bytes;
    return element;
  }))];
}

/** Sixteen bytes a line, with their offset. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 32) {
    const line = bytes.slice(at, at + 32).match(/../g) ?? [];
    lines.push(`${(at / 2).toString(16).padStart(4, "0")}  ${line.slice(0, 8).join(" ")}  ${line.slice(8).join(" ")}`);
  }
  return lines.join("\n");
}
