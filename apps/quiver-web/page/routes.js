// Which route decides about an address; the route of a prefix; the routes of a table.

import { get } from "./api.js";
import { badge, card, h, note } from "./dom.js";
import { whole } from "./format.js";
import { plain } from "./protocols.js";
import { Table } from "./table.js";

export const routes = {
  id: "routes",
  title: "Routes",
  about: "Type an address to see the longest prefix that it matches, or a prefix to see its own route.",
  mount(place) {
    const family = h("select", { id: "family" }, h("option", { value: "ip4" }, "IPv4"), h("option", { value: "ip6" }, "IPv6"));
    const number = h("input", { id: "table", value: "0", inputmode: "numeric", size: 6, autocomplete: "off" });
    const text = h("input", { id: "search", type: "search", class: "filter wide", placeholder: "192.0.2.1 or 192.0.2.0/24", autocomplete: "off", spellcheck: "false" });
    const answer = h("div", { role: "status", class: "answer" });
    const list = h("div");
    const values = () => ({ family: family.value, table: number.value.trim() || "0" });
    const search = async () => {
      if (!text.value.trim()) return list_all();
      if (text.value.includes(":")) family.value = "ip6";
      else if (text.value.includes(".")) family.value = "ip4";
      list.replaceChildren();
      try {
        const found = await get("route", { ...values(), text: text.value.trim() });
        answer.replaceChildren(...found.tables.flatMap((table) => (table.routes ?? []).map((route) => routeCard(route, table))));
        if (!answer.children.length) answer.replaceChildren(note("There is no such route."));
      } catch (error) {
        answer.replaceChildren(note(error.message, "bad"));
      }
    };
    const list_all = async () => {
      answer.replaceChildren();
      try {
        const found = await get("routes", values());
        const table = new Table({
          caption: "Routes", key: (row) => row.prefix, empty: "no route",
          columns: [
            { key: "prefix", title: "Prefix", text: (row) => row.prefix },
            { key: "paths", title: "Paths", text: (row) => paths(row).map((one) => one.path).join(", ") },
            { key: "source", title: "Source", text: (row) => row.sources[0]?.source ?? "" },
            { key: "packets", title: "Packets", class: "number", value: (row) => row.packets, text: (row) => whole(row.packets) },
          ],
        });
        list.replaceChildren(table.element);
        table.update(found.tables.flatMap((one) => one.routes ?? []));
      } catch (error) {
        list.replaceChildren(note(error.message, "bad"));
      }
    };
    const form = h("form", { class: "card form", role: "search", submit: (event) => { event.preventDefault(); search(); } },
      h("label", {}, "Family", family), h("label", {}, "Table", number), h("label", { class: "grow" }, "Address or prefix", text),
      h("button", { type: "submit", class: "primary" }, "Search"), h("button", { type: "button", click: list_all }, "List the table"));
    place.append(form, answer, list);
    text.focus({ preventScroll: true });
    return () => {};
  },
};

/** The paths of the source that counts. */
const paths = (route) => route.sources[0]?.paths ?? [];

function routeCard(route, table) {
  const [first, ...others] = route.sources;
  return card("", h("h2", {}, route.prefix, " ", badge(first?.source ?? "no source")), h("p", { class: "hint" }, `${table.name}, ${whole(table.count)} routes`),
    plain("Paths", ["Path", "Kind", "Weight", "Preference"], paths(route).map((one) => [one.path, one.kind, String(one.weight), String(one.preference)]), "no path"),
    h("h3", {}, "Forwards to"), h("ul", { class: "plain" }, route.buckets.map((bucket) => h("li", {}, h("code", {}, bucket[2])))),
    h("p", { class: "hint" }, `${whole(route.packets)} packets, ${whole(route.bytes)} bytes`),
    others.length > 0 && h("p", { class: "hint" }, `Also known from: ${others.map((one) => one.source).join(", ")}`));
}
