// The live graph: nodes with packets and clocks, edges as wide as their packets.

import { get } from "./api.js";
import { badge, card, figure, fill, h, note, s, set, setText } from "./dom.js";
import { packets, short, whole } from "./format.js";
import { BOX, place } from "./layout.js";
import { listen } from "./rates.js";

/** Nodes that a drawing has; a router with many interfaces has some for each. */
const MOST = 60;
const DROP = "error-drop";

export const graph = {
  id: "graph",
  title: "Graph",
  about: "Nodes that had packets. The bar is a node's share of processor clocks, the width of a line its packets.",
  mount(place_) {
    const view = new View();
    place_.append(view.element);
    return view.start();
  },
};

class View {
  constructor() {
    this.next = new Map();
    this.errors = new Set();
    this.boxes = new Map();
    this.lines = new Map();
    this.drawn = "";
    this.selected = null;
    this.figures = [figure("In", "Packets a second that input nodes bring in"), figure("Dropped", "Packets a second that were dropped"),
      figure("Clocks a packet", "Clocks of all nodes by packets that came in, polling without packets included"), figure("Nodes", "Nodes that had packets")];
    this.edges = s("g", { class: "edges" });
    this.nodes = s("g", { class: "nodes" });
    this.svg = s("svg", { class: "graph", role: "group", "aria-label": "Packets through the graph" }, this.edges, this.nodes);
    this.more = h("p", { class: "hint" });
    this.detail = card("", h("p", { class: "hint" }, "Choose a node to see its figures. Tab goes from node to node."));
    this.detail.classList.add("detail");
    this.detail.setAttribute("aria-live", "polite");
    this.element = h("div", {}, h("dl", { class: "figures" }, this.figures.map((one) => one.element)),
      h("div", { class: "split" }, h("section", { class: "card canvas", tabindex: "0", "aria-label": "Graph" }, this.svg, this.more), this.detail));
  }

  start() {
    const load = async () => {
      try {
        const [nodes, drops] = await Promise.all([get("graph"), get("drops")]);
        this.next = new Map(nodes.map((node) => [node.name, node.next.map(([, to]) => to)]));
        this.errors = new Set(drops.flatMap((one) => one.nodes.map((node) => `${node.node}\n${one.reason}`)));
        if (this.sample) this.update(this.sample);
      } catch (error) {
        setText(this.more, error.message);
      }
    };
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 5000);
    const end = listen((sample) => this.update(sample));
    return () => { clearInterval(timer); end(); };
  }

  update(sample) {
    this.sample = sample;
    const rows = sample.now.nodes.filter((row) => row[2] > 0).sort((a, b) => b[2] - a[2]);
    const shown = rows.slice(0, MOST);
    this.drops = new Map();
    for (const row of sample.now.drops) {
      if (!this.errors.has(`${row[0]}\n${row[1]}`)) continue;
      const all = this.drops.get(row[0]) ?? { count: 0, rate: 0, reasons: [] };
      all.count += row[2];
      all.rate += sample.drop(row);
      all.reasons.push(row);
      this.drops.set(row[0], all);
    }
    const figures = new Map(shown.map((row) => [row[0], { row, ...sample.node(row) }]));
    this.draw(figures);
    this.sum(sample, rows);
    setText(this.more, rows.length > MOST ? `${rows.length - MOST} more nodes with fewer packets are not drawn.` : "");
    if (this.selected) this.show(this.selected);
  }

  sum(sample, rows) {
    const isInput = (name) => this.next.has(name) && ![...this.next.values()].some((to) => to.includes(name));
    const inputs = rows.filter((row) => isInput(row[0]));
    const sumOf = (list, pick) => list.reduce((sum, row) => sum + pick(sample.node(row)), 0);
    const rate = sumOf(inputs, (node) => node.packetRate);
    const clocks = sumOf(rows, (node) => node.clocks);
    const arrived = sumOf(inputs, (node) => node.vectors);
    this.figures[0].set(packets(rate));
    this.figures[1].set(packets([...this.drops.values()].reduce((sum, one) => sum + one.rate, 0)));
    this.figures[2].set(arrived ? short(clocks / arrived) : "–");
    this.figures[3].set(whole(rows.length));
  }

  /** The edges that packets took: what leads to a drop is counted, others are at most the lesser of both ends. */
  edgesOf(figures) {
    const edges = [];
    for (const [from, one] of figures) {
      for (const to of new Set(this.next.get(from) ?? [])) {
        if (!figures.has(to) || to === from) continue;
        const dropped = this.drops.get(from);
        if (to === DROP && !dropped) continue;
        const total = to === DROP ? dropped.count : Math.min(one.row[2], figures.get(to).row[2]);
        const rate = to === DROP ? dropped.rate : Math.min(one.packetRate, figures.get(to).packetRate);
        edges.push({ from, to, total, rate, isDrop: to === DROP });
      }
    }
    return edges;
  }

  draw(figures) {
    const edges = this.edgesOf(figures);
    // Sources first, so that circles are cut where packets come back.
    const targets = new Set(edges.map((edge) => edge.to));
    const names = [...figures.keys()].sort((a, b) => targets.has(a) - targets.has(b) || (a < b ? -1 : 1));
    const shape = JSON.stringify([names, edges.map((edge) => [edge.from, edge.to])]);
    if (shape !== this.drawn) {
      this.drawn = shape;
      this.redraw(names, edges);
    }
    const clocks = [...figures.values()].reduce((sum, one) => sum + one.clocks, 0);
    for (const [name, one] of figures) this.fill(name, one, clocks);
    for (const edge of edges) {
      const line = this.lines.get(`${edge.from}\n${edge.to}`);
      set(line.path, "stroke-width", edge.rate > 0 ? (1.2 + Math.log10(1 + edge.rate) * 0.9).toFixed(1) : "1");
      line.path.classList.toggle("idle", edge.rate === 0);
      setText(line.title, `${edge.from} to ${edge.to}: ${edge.isDrop ? "" : "at most "}${packets(edge.rate)}, ${whole(edge.total)} packets`);
    }
  }

  redraw(names, edges) {
    const { width, height, at } = place(names, edges.map((edge) => [edge.from, edge.to]));
    const focused = document.activeElement?.dataset?.node;
    this.boxes.clear();
    this.lines.clear();
    set(this.svg, "viewBox", `-8 -8 ${(width || 1) + 16} ${(height || 1) + 16}`);
    this.svg.style.maxWidth = `${Math.max(width + 16, 320)}px`;
    this.edges.replaceChildren(...edges.map((edge) => {
      const [from, to] = [at.get(edge.from), at.get(edge.to)];
      const [y1, y2] = [from.y + BOX.height / 2, to.y - BOX.height / 2];
      const isBack = y2 <= y1;
      const bend = isBack ? 46 : Math.max(20, (y2 - y1) / 2);
      const side = isBack ? BOX.width * 0.72 : 0;
      const path = s("path", { class: edge.isDrop ? "edge drop" : "edge",
        d: `M${from.x} ${y1}C${from.x + side} ${y1 + bend} ${to.x + side} ${y2 - bend} ${to.x} ${y2}` });
      const title = s("title");
      path.append(title);
      this.lines.set(`${edge.from}\n${edge.to}`, { path, title });
      return path;
    }));
    this.nodes.replaceChildren(...names.map((name) => this.box(name, at.get(name))));
    if (focused) this.boxes.get(focused)?.element.focus();
  }

  box(name, { x, y }) {
    const title = s("title");
    const rate = s("text", { x: 0, y: 13, class: "small" });
    const heat = s("rect", { class: "heat", x: -BOX.width / 2, y: BOX.height / 2 - 4, width: 0, height: 4, rx: 2 });
    const dot = s("circle", { class: "dot", cx: BOX.width / 2 - 9, cy: -BOX.height / 2 + 9, r: 4, visibility: "hidden" });
    const label = name.length > 24 ? `${name.slice(0, 23)}…` : name;
    const choose = () => { this.selected = name; this.show(name); };
    const element = s("g", {
      class: `node${name === DROP ? " end" : ""}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button", "data-node": name, click: choose,
      keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } },
    }, title, s("rect", { class: "box", x: -BOX.width / 2, y: -BOX.height / 2, width: BOX.width, height: BOX.height, rx: 9 }), heat,
    s("text", { x: 0, y: -5, class: "name" }, label), rate, dot);
    this.boxes.set(name, { element, title, rate, heat, dot });
    return element;
  }

  fill(name, one, clocks) {
    const box = this.boxes.get(name);
    const share = clocks ? one.clocks / clocks : 0;
    const each = one.vectors ? one.clocks / one.vectors : 0;
    setText(box.rate, `${packets(one.packetRate)}${each ? ` · ${short(each)} clk` : ""}`);
    set(box.heat, "width", (BOX.width * share).toFixed(1));
    const drops = this.drops.get(name);
    set(box.dot, "visibility", drops ? "visible" : "hidden");
    box.element.classList.toggle("selected", name === this.selected);
    box.element.classList.toggle("quiet", one.packetRate === 0);
    const text = `${name}: ${packets(one.packetRate)}, ${short(each)} clocks a packet, ${Math.round(share * 100)} % of clocks${drops ? `, ${whole(drops.count)} dropped` : ""}`;
    set(box.element, "aria-label", text);
    setText(box.title, text);
  }

  show(name) {
    const row = this.sample.now.nodes.find((one) => one[0] === name);
    this.boxes.forEach((box, key) => box.element.classList.toggle("selected", key === name));
    if (!row) return fill(this.detail, h("h2", {}, name), note("The node has not run."));
    const one = this.sample.node(row);
    const line = (term, text) => [h("dt", {}, term), h("dd", {}, text)];
    const drops = this.drops.get(name)?.reasons ?? [];
    const next = [...new Set(this.next.get(name) ?? [])];
    fill(this.detail, h("h2", {}, name), h("dl", { class: "pairs" },
      line("Now", packets(one.packetRate)), line("Clocks a packet", one.vectors ? short(one.clocks / one.vectors) : "–"),
      line("Packets a call", one.calls ? short(one.vectors / one.calls) : "–"), line("Calls", whole(row[1])), line("Packets", whole(row[2]))),
    drops.length > 0 && h("h3", {}, "Drops"),
    drops.length > 0 && h("ul", { class: "plain" }, drops.map((drop) => h("li", {},
      h("a", { href: `#drops/${encodeURIComponent(`${drop[0]}.${drop[1]}`)}` }, drop[1]), " ", badge(whole(drop[2]), "bad")))),
    next.length > 0 && h("h3", {}, `Next nodes (${next.length})`),
    next.length > 0 && h("p", { class: "list" }, next.slice(0, 24).join(", "), next.length > 24 ? " …" : ""));
  }
}
