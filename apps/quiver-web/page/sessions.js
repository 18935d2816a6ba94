// Sessions of NAT44.

import { get } from "./api.js";
import { badge, figure, h, note } from "./dom.js";
import { duration, short, whole } from "./format.js";
import { Table } from "./table.js";

const PROTOCOLS = { 1: "ICMP", 6: "TCP", 17: "UDP" };
const state = (row) => (row.is_static ? "static" : row.proto !== 6 ? "–" : row.established ? "established" : "opening");

export const sessions = {
  id: "sessions",
  title: "Sessions",
  about: "Sessions of NAT44: inside and outside of each flow.",
  mount(place) {
    const names = [["saddr", "Inside address"], ["sport", "Port"], ["daddr", "Destination"], ["dport", "Port"], ["proto", "Protocol"]];
    const inputs = names.map(([name, title]) => [name, h("input", { size: name.endsWith("addr") ? 16 : 6, autocomplete: "off", "aria-label": title === "Port" ? `${name === "sport" ? "Inside" : "Destination"} port` : title }), title]);
    const figures = ["Sessions", "Limit", "TCP established", "TCP", "UDP", "ICMP"].map((name) => figure(name));
    const message = h("div", { role: "status" });
    const table = new Table({
      caption: "NAT44 sessions", key: (row) => `${row.thread}/${row.index}/${row.proto}/${JSON.stringify(row.i2o)}`, empty: "no session", sort: { key: "packets", down: true },
      columns: [
        { key: "proto", title: "Protocol", text: (row) => PROTOCOLS[row.proto] ?? String(row.proto) },
        { key: "inside", title: "Inside", text: ({ i2o }) => `${i2o.saddr}:${i2o.sport}` },
        { key: "outside", title: "Outside", text: ({ o2i }) => `${o2i.daddr}:${o2i.dport}` },
        { key: "peer", title: "Destination", text: ({ i2o }) => `${i2o.daddr}:${i2o.dport}` },
        { key: "state", title: "State", text: state, make: () => badge(""), update: (cell, row) => {
          const text = state(row);
          cell.firstChild.textContent = text;
          cell.firstChild.className = `badge ${text === "established" ? "good" : ""}`;
        } },
        { key: "idle", title: "Idle", class: "number", value: (row) => row.idle, text: (row) => duration(row.idle) },
        { key: "packets", title: "Packets", class: "number", value: (row) => row.packets, text: (row) => whole(row.packets) },
        { key: "bytes", title: "Bytes", class: "number", value: (row) => row.bytes, text: (row) => short(row.bytes, "B") },
      ],
    });
    const load = async () => {
      try {
        const values = Object.fromEntries(inputs.map(([name, input]) => [name, input.value.trim()]));
        const all = await get("sessions", values);
        const { total, limit, tcp_established, tcp, udp, icmp } = all.summary;
        [total, limit, tcp_established, tcp, udp, icmp].forEach((value, at) => figures[at].set(value === undefined ? "–" : whole(value)));
        message.replaceChildren(...(all.sessions ? [] : [note(`There are ${whole(total)} sessions: name an address to see some of them.`)]));
        table.update(all.sessions ?? []);
      } catch (error) {
        message.replaceChildren(note(error.message, "bad"));
      }
    };
    const form = h("form", { class: "card form", role: "search", submit: (event) => { event.preventDefault(); load(); } },
      inputs.map(([, input, title]) => h("label", {}, title, input)), h("button", { type: "submit", class: "primary" }, "Search"));
    place.append(h("dl", { class: "figures" }, figures.map((one) => one.element)), form, message, table.element);
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 3000);
    return () => clearInterval(timer);
  },
};
