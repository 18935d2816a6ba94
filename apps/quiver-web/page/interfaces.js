// Interfaces: state, rates, the last minute.

import { get } from "./api.js";
import { badge, h, setText } from "./dom.js";
import { sparkline } from "./chart.js";
import { bits, packets, whole } from "./format.js";
import { IF, historyOf, listen } from "./rates.js";
import { Table } from "./table.js";

export const interfaces = {
  id: "interfaces",
  title: "Interfaces",
  about: "Rates of the last second, and a minute as a line: received filled, sent as a line.",
  mount(place) {
    let known = new Map();
    let tags = new Map();
    let sample = null;
    const info = (row) => known.get(row[0]);
    const lost = (row) => row[IF.rxMiss] + row[IF.rxError] + row[IF.rxNoBuffer] + row[IF.txError];
    const rate = (column) => (row) => sample.interface(row, column);
    const state = (row) => {
      const one = info(row);
      return !one ? "" : !one.up ? "down" : one.link_up ? "up" : "no link";
    };
    const number = (key, title, value, text) => ({ key, title, class: "number", value, text: (row) => text(value(row)) });
    const table = new Table({
      caption: "Interfaces",
      key: (row) => row[0],
      columns: [
        { key: "name", title: "Interface", text: (row) => `${row[0]} ${tags.get(row[0]) ?? ""} ${(info(row)?.addresses ?? []).join(" ")}`,
          value: (row) => row[0], make: (row) => h("span", {}, h("b", {}, row[0]), h("small", {})),
          update: (cell, row) => {
            const addresses = (info(row)?.addresses ?? []).filter((one) => !one.startsWith("fe80"));
            const more = addresses.length > 2 ? ` +${addresses.length - 2}` : "";
            setText(cell.querySelector("small"), [tags.get(row[0]), addresses.slice(0, 2).join(", ") + more].filter(Boolean).join(" · "));
          } },
        { key: "state", title: "State", text: state, make: () => badge("", ""), update: (cell, row) => {
          const text = state(row);
          cell.firstChild.className = `badge ${text === "up" ? "good" : text === "no link" ? "warn" : ""}`;
          setText(cell.firstChild, text);
        } },
        number("rx", "Received", rate(IF.rxPackets), packets),
        number("rxb", "", rate(IF.rxBytes), bits),
        number("tx", "Sent", rate(IF.txPackets), packets),
        number("txb", "", rate(IF.txBytes), bits),
        { key: "chart", title: "Last minute", plain: true, class: "chart", make: (row) => {
          const chart = sparkline(`Rates of ${row[0]} in the last minute`);
          chart.svg.chart = chart;
          return chart.svg;
        }, update: (cell, row) => cell.firstChild.chart.draw(historyOf(row[0])) },
        number("drops", "Drops", rate(IF.drops), packets),
        number("lost", "Errors", lost, whole),
      ],
    });
    table.heads[3].firstChild.setAttribute("aria-label", "Received, bits a second");
    table.heads[5].firstChild.setAttribute("aria-label", "Sent, bits a second");
    table.heads[3].firstChild.textContent = "b/s";
    table.heads[5].firstChild.textContent = "b/s";
    place.append(table.element);
    const load = async () => {
      try {
        const [all, tagged] = await Promise.all([get("interfaces"), get("tags")]);
        known = new Map(all.interfaces.map((one) => [one.name, one]));
        tags = new Map((tagged.interfaces ?? []).map((one) => [one.name, one.tag ?? ""]));
        if (sample) table.update(sample.now.interfaces);
      } catch { /* the state says so */ }
    };
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 10000);
    const end = listen((next) => {
      sample = next;
      table.update(sample.now.interfaces);
    });
    return () => { clearInterval(timer); end(); };
  },
};
