// How busy each thread is.

import { get } from "./api.js";
import { card, figure, h, set, setText } from "./dom.js";
import { duration, packets, short, whole } from "./format.js";
import { listen } from "./rates.js";

/** Packets that a vector holds at most. */
const FULL = 256;

export const workers = {
  id: "workers",
  title: "Workers",
  about: "A thread is full when each call of a node gets 256 packets: then it takes more at a time, and later drops.",
  mount(place) {
    const figures = ["Running for", "Workers", "Buffers used", "Buffers free"].map((name) => figure(name));
    const area = h("div", { class: "cards" });
    place.append(h("dl", { class: "figures" }, figures.map((one) => one.element)), area);
    let threads = [];
    let cards = [];
    get("threads").then((all) => { threads = all; cards = []; }, () => {});
    const make = (at) => {
      const bar = h("div", { class: "meter", role: "meter", "aria-valuemin": "0", "aria-valuemax": String(FULL), "aria-label": "Packets a call" }, h("div"));
      const values = ["Packets a call", "Packets through nodes", "Clocks a packet", "Poll iterations"].map((name) => [name, h("dd", {}, "–")]);
      const known = threads[at];
      const title = known ? `${known.name}` : at === 0 ? "quiver_main" : `quiver_wk_${at - 1}`;
      const where = known ? `processor ${known.lcore}, NUMA node ${known.socket}${known.policy === "other" ? "" : `, ${known.policy}`}` : "";
      return { bar, values, element: card(title, h("p", { class: "hint" }, where), bar, h("dl", { class: "pairs" }, values.flatMap(([name, value]) => [h("dt", {}, name), value]))) };
    };
    const end = listen((sample) => {
      const { now } = sample;
      if (cards.length !== now.threads.length) {
        cards = now.threads.map((_, at) => make(at));
        area.replaceChildren(...cards.map((one) => one.element));
      }
      figures[0].set(duration(now.now_ms / 1000 - now.started));
      figures[1].set(whole(now.workers));
      figures[2].set(whole(now.buffers.used));
      figures[3].set(whole(now.buffers.cached + now.buffers.available));
      now.threads.forEach((row, at) => {
        const old = sample.oldThreads[at] ?? row;
        const [calls, vectors, clocks] = [2, 3, 4].map((column) => Math.max(0, row[column] - old[column]));
        const { bar, values } = cards[at];
        set(bar, "aria-valuenow", row[0]);
        bar.firstChild.style.width = `${Math.min(100, (row[0] / FULL) * 100)}%`;
        bar.classList.toggle("busy", row[0] > FULL * 0.75);
        const texts = [`${row[0]} of ${FULL}`, sample.seconds ? packets(vectors / sample.seconds) : "–", vectors ? short(clocks / vectors) : "–", `${short(row[1])} /s`];
        texts.forEach((text, place_) => setText(values[place_][1], text));
        set(bar, "title", `${short(calls)} calls`);
      });
    });
    return end;
  },
};
