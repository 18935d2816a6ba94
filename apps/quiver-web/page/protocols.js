// BFD, VRRP, bonds and LACP: who is up.

import { get } from "./api.js";
import { badge, card, h, note } from "./dom.js";
import { whole } from "./format.js";

const kind = (state) => (["up", "master", "active", "collecting-distributing", "current"].includes(state) ? "good" : ["down", "initialize", "expired"].includes(state) ? "bad" : "warn");

/** A small table of what does not change often. */
export function plain(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "hint" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h(at ? "td" : "th", { scope: at ? undefined : "row" }, cell)))))));
}

export const protocols = {
  id: "protocols",
  title: "Protocols",
  about: "Sessions and links that watch each other.",
  mount(place) {
    const area = h("div", { class: "cards" });
    place.append(area);
    const load = async () => {
      try {
        const all = await get("protocols");
        area.replaceChildren(bfd(all.bfd), vrrp(all.vrrp), bonds(all.bonds), lacp(all.lacp));
      } catch (error) {
        area.replaceChildren(note(error.message, "bad"));
      }
    };
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 3000);
    return () => clearInterval(timer);
  },
};

const off = (title) => card(title, h("p", { class: "hint" }, "The plugin is off."));

function bfd(rows) {
  if (!rows) return off("BFD");
  return card("BFD sessions", plain("BFD sessions", ["Peer", "Interface", "State", "Remote", "Interval", "Received", "Ups"], rows.map((one) => [
    one.peer_addr, one.interface, badge(one.state, kind(one.state)), one.remote_state, `${one.tx_interval / 1000} ms × ${one.detect_mult}`, whole(one.received), whole(one.ups),
  ]), "no session"));
}

function vrrp(rows) {
  if (!rows) return off("VRRP");
  return card("Virtual routers", plain("Virtual routers", ["Router", "Interface", "State", "Priority", "Addresses", "Master"], rows.map((one) => [
    `${one.vr_id}${one.ipv6 ? " IPv6" : ""}`, one.interface, badge(one.state, kind(one.state)), String(one.adjusted_priority), one.addresses.join(", "), one.master ?? "–",
  ]), "no virtual router"));
}

function bonds(rows) {
  if (!rows) return off("Bonds");
  return card("Bonds", plain("Bonds", ["Bond", "Mode", "Members"], rows.map((one) => [
    one.interface, one.mode + (one.load_balance ? `, ${one.load_balance}` : ""),
    h("span", { class: "list" }, one.members.length ? one.members.flatMap((member) => [badge(member.interface, member.active ? "good" : "bad"), " "]) : "none"),
  ]), "no bond"));
}

function lacp(rows) {
  if (!rows) return off("LACP");
  return card("LACP", plain("LACP", ["Member", "Bond", "Receive", "Mux", "Received", "Sent"], rows.map((one) => [
    one.interface, one.bond, badge(one.receive, kind(one.receive)), badge(one.mux, kind(one.mux)), whole(one.received), whole(one.sent),
  ]), "no member with LACP"));
}
