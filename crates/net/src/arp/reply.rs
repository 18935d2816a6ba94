//! `arp-reply`: answers for own and proxied addresses, and what is learned from the sender.

use std::net::Ipv4Addr;

use quiver_graph::{Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::MacAddr;
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::is_martian_src;

use super::ArpCounters;
use crate::data::IfTable;
use crate::ip::{Egress4, Way};
use crate::neighbor::{Ears, Evidence, Fact, Teller, View, ViewSnapshot, What};

next_nodes! {
    /// Where answers go.
    pub enum Next { Output = "neighbor-output" }
}

drop_reasons! {
    /// How messages end.
    pub enum End {
        /// The router answered a request for an address of its own.
        RepliesSent = "ARP replies sent" (info) as "replies_sent",
        /// The router answered a request on behalf of another host (proxy ARP).
        ProxySent = "Proxy ARP replies sent" (info) as "proxy_arp_replies_sent",
        /// An answer of a neighbor arrived.
        RepliesReceived = "ARP replies received" (info) as "replies_received",
        /// The sender of a request was entered as a neighbor.
        Learned = "ARP request IP4 source address learned" (info) as "l3_src_address_learned",
        /// The interface has no IPv4 address and answers for nobody else.
        ///
        /// Causes: the interface has no address, and hosts on the link send ARP broadcasts.
        /// Check: `show interface address`, then `set interface ip address IF ADDRESS/LENGTH`.
        /// See: `show interface address`, `set interface ip address`.
        NotIpEnabled = "Interface is not IP enabled" as "interface_not_ip_enabled",
        /// The sender's address is in no subnet of the interface.
        ///
        /// Causes: two subnets on one link; a host with a wrong address or prefix length; an address of the router is missing.
        /// Check: compare the sender's address, in a capture of drops, with `show interface address`.
        /// See: `show interface address`, `pcap trace drop`.
        SourceNotLocal = "IP4 source address not local to subnet" as "l3_src_address_not_local",
        /// The address that was asked for is not the router's.
        ///
        /// Causes: hosts on the link ask for each other, which is normal where the switch floods: ARP requests are broadcasts.
        /// Check: nothing, unless the router should answer: give it the address, or use proxy ARP.
        /// See: `show interface address`, `set interface proxy-arp`.
        TargetNotLocal = "IP4 destination address not local to subnet" as "l3_dst_address_not_local",
        /// The address that was asked for is 0.0.0.0.
        TargetUnset = "IP4 destination address is unset" as "l3_dst_address_unset",
        /// The sender uses an address of this router: two machines have the same address.
        ///
        /// Causes: another host or router on the link has the same address.
        /// Check: find it by the sender's MAC address in a capture of drops, and change one of the two.
        /// See: `show interface address`, `pcap trace drop`.
        SourceIsLocal = "IP4 source address matches local interface" as "l3_src_address_is_local",
        /// The sender's hardware address differs from the source address of the frame.
        Mismatch = "ARP hw addr does not match L2 frame src addr" as "l2_address_mismatch",
        /// A probe or an announcement that changes nothing here.
        Gratuitous = "ARP probe or announcement dropped" as "gratuitous_arp",
        /// A message that the router sent came back to it: a loop in the network.
        ///
        /// Causes: a loop in layer 2: two ports on one link, a bridge without spanning tree.
        /// Check: look for cables and bridges that close the loop.
        /// See: `show bridge-domain`.
        Own = "own ARP message came back",
        /// A message of the router's own on a loopback interface, which gives back what it gets.
        Looped = "own ARP message on a loopback" (info),
        /// There is no room in front of the packet for the header of the link.
        NoHeadroom = "no room for the link header",
        /// The main thread has too many events waiting; the message's news are lost.
        NotTold = "main thread too busy to be told",
    }
}

/// The node.
#[derive(Clone)]
pub(super) struct ArpReply {
    pub views: ViewSnapshot,
    pub interfaces: IfTable,
    pub egress: Egress4,
    pub teller: Teller,
    pub counters: ArpCounters,
    pub ears: Ears,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Answer it, for this reason.
    Answer(End),
    /// Drop it, for this reason.
    Drop(End),
}

/// What a message says that is worth telling.
type Said = Option<What>;

fn seen(mac: MacAddr, create: bool) -> Said {
    Some(What::Heard { evidence: Evidence::Seen(mac), create })
}

/// What is known of a message's target and sender.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The target is received here.
    ours: bool,
    /// The target is answered for in the place of others.
    proxied: bool,
    /// A route makes the sender a neighbour on this link, though no prefix of ours holds it.
    attached: bool,
}

/// What a message comes to, from values alone. `link_source`: the frame's source, asked only before an answer.
fn judge(view: &View, known: Known, message: &ArpHeader, link_source: impl FnOnce() -> Option<MacAddr>) -> (Action, Said) {
    let (sender, target) = (message.sender_ip.get(), message.target_ip.get());
    let Known { ours, proxied, attached } = known;
    let mac = message.sender_mac;
    if view.v4.is_empty() && !proxied {
        return (Action::Drop(End::NotIpEnabled), None);
    }
    if mac == view.mac {
        return (Action::Drop(if view.loops { End::Looped } else { End::Own }), None);
    }
    if view.owns4(sender) {
        // A host that the router stands in for has the address of the interface that this one borrows from: no conflict.
        if view.unnumbered && proxied && !ours && message.operation() == ArpOperation::REQUEST {
            return (Action::Answer(End::ProxySent), None);
        }
        return (Action::Drop(End::SourceIsLocal), Some(What::Conflict(mac)));
    }
    let local = view.on_link4(sender) || attached;
    if !local && sender == target {
        return (Action::Drop(End::TargetNotLocal), None);
    }
    if message.operation() == ArpOperation::REPLY {
        if !local {
            return (Action::Drop(End::SourceNotLocal), None);
        }
        let solicited = ours && message.target_mac == view.mac;
        let evidence = Evidence::Advert { mac: Some(mac), solicited, overrides: true };
        return (Action::Drop(End::RepliesReceived), Some(What::Heard { evidence, create: solicited }));
    }
    if target == 0 {
        return (Action::Drop(End::TargetUnset), None);
    }
    if sender == target {
        // An announcement: who knows the neighbour, learns its new MAC address.
        let evidence = Evidence::Advert { mac: Some(mac), solicited: false, overrides: true };
        let said = local.then_some(What::Heard { evidence, create: false });
        return (Action::Drop(End::Gratuitous), said);
    }
    let probe = message.is_probe();
    let said = if probe || !local { None } else { seen(mac, ours) };
    if ours && !local && !probe {
        return (Action::Drop(End::SourceNotLocal), None);
    }
    if !ours && (probe || !proxied) {
        let reason = if probe { End::Gratuitous } else { End::TargetNotLocal };
        return (Action::Drop(reason), said);
    }
    if link_source().is_some_and(|l| l != mac) {
        return (Action::Drop(End::Mismatch), None);
    }
    (Action::Answer(if ours { End::RepliesSent } else { End::ProxySent }), said)
}

impl ArpReply {
    /// Whether a route makes an address of this link one of ours, as a second address would. No other interface's can lie in
    /// the link's prefix.
    fn is_received(&self, view: &View, address: u32) -> bool {
        view.covers4(address) && self.egress.find(self.interfaces.fibs(view.interface).0, address) == Way::Local
    }

    fn is_attached(&self, view: &View, host: u32) -> bool {
        let fib = || self.interfaces.fibs(view.interface).0;
        !view.on_link4(host) && !is_martian_src(host) && self.egress.is_attached(fib(), host, view.interface)
    }
}

impl Node for ArpReply {
    type Next = Next;
    type Drop = End;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.views.refresh();
        self.egress.refresh(cx);
        self.ears.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let rx_if = packet.rx_if();
        let message: ArpHeader = packet.head();
        let views = self.views.get();
        let Some(view) = views.get(rx_if) else { return packet.drop(End::NotIpEnabled) };
        let target = message.target_ip.get();
        let ours = view.owns4(target) || self.is_received(view, target);
        let proxied = views.is_proxied(view, target);
        let known = Known { ours, proxied, attached: self.is_attached(view, message.sender_ip.get()) };
        let (action, said) = judge(view, known, &message, || view.link_source(&mut packet));
        if action == Action::Drop(End::RepliesReceived) {
            let from = Ipv4Addr::from_bits(message.sender_ip.get());
            self.ears.heard(rx_if, from.into(), message.sender_mac);
        }
        let verdict = match action {
            Action::Drop(reason) => packet.drop(reason),
            Action::Answer(_) => answer(&mut packet, view, &message),
        };
        let answered = verdict != Verdict::DROP;
        let thread = cx.thread();
        let counters = &self.counters;
        let request = message.operation() == ArpOperation::REQUEST;
        let received = match (request, message.is_gratuitous()) {
            (_, true) => &counters.rx_gratuitous,
            (true, _) => &counters.rx_requests,
            (false, _) => &counters.rx_replies,
        };
        received.add(thread, rx_if.0, 1);
        if let (true, Action::Answer(reason)) = (answered, action) {
            cx.count(reason, 1);
            counters.tx_replies.add(thread, rx_if.0, 1);
        }
        let Some(what) = said else { return verdict };
        if request && matches!(what, What::Heard { create: true, .. }) {
            cx.count(End::Learned, 1);
        }
        let fact = Fact { interface: rx_if, address: Ipv4Addr::from_bits(message.sender_ip.get()).into(), what };
        if !self.teller.tell(fact, cx.now()) {
            cx.count(End::NotTold, 1);
        }
        verdict
    }
}

/// Turns a request into its answer, in its own buffer.
fn answer(packet: &mut Pkt<'_>, view: &View, message: &ArpHeader) -> Verdict {
    if turn(packet, view, message) { Next::Output.into() } else { packet.drop(End::NoHeadroom) }
}

fn turn(packet: &mut Pkt<'_>, view: &View, message: &ArpHeader) -> bool {
    packet.set_head(message.reply(view.mac));
    packet.trim(size_of::<ArpHeader>());
    if !view.push_link_header(packet, message.sender_mac, EtherType::ARP) {
        return false;
    }
    packet.set_aux(view.interface.0);
    packet.mark(quiver_graph::flags::LOCAL);
    packet.unmark(quiver_graph::flags::LINK_MULTICAST);
    true
}

/// Turns a request for an address of the view into the answer where the rules of this node allow it.
pub(crate) fn answer_for(view: &View, packet: &mut Pkt<'_>) -> bool {
    let message: ArpHeader = packet.head();
    if message.operation() != ArpOperation::REQUEST || !view.owns4(message.target_ip.get()) {
        return false;
    }
    let known = Known { ours: true, ..Known::default() };
    let (action, _) = judge(view, known, &message, || view.link_source(packet));
    matches!(action, Action::Answer(_)) && turn(packet, view, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn ip(n: [u8; 4]) -> Ipv4Addr {
        n.into()
    }

    fn judged(message: &ArpHeader) -> (Action, Said) {
        let view = View::for_tests(US, &[([10, 0, 0, 1], 24)]);
        let target = Known { ours: view.owns4(message.target_ip.get()), ..Known::default() };
        judge(&view, target, message, || Some(message.sender_mac))
    }

    #[test]
    fn each_kind_of_message_has_its_end() {
        use End::*;
        let host = (HOST, ip([10, 0, 0, 9]));
        let request = |sender, target| ArpHeader::request(sender, ip(target));
        let reply = |sender, target| ArpHeader::new(ArpOperation::REPLY, sender, target);
        let us = (US, ip([10, 0, 0, 1]));
        let advert = |solicited| Evidence::Advert { mac: Some(HOST), solicited, overrides: true };
        let heard = |evidence, create| Some(What::Heard { evidence, create });
        let rows = [
            (request(host, [10, 0, 0, 1]), Action::Answer(RepliesSent), seen(HOST, true)),
            (request(host, [10, 0, 0, 7]), Action::Drop(TargetNotLocal), seen(HOST, false)),
            (request(host, [10, 0, 0, 9]), Action::Drop(Gratuitous), heard(advert(false), false)),
            (request(host, [0, 0, 0, 0]), Action::Drop(TargetUnset), None),
            (request((HOST, ip([0, 0, 0, 0])), [10, 0, 0, 1]), Action::Answer(RepliesSent), None),
            (request((HOST, ip([0, 0, 0, 0])), [10, 0, 0, 7]), Action::Drop(Gratuitous), None),
            (request((HOST, ip([10, 9, 0, 9])), [10, 0, 0, 1]), Action::Drop(SourceNotLocal), None),
            (request((HOST, ip([10, 0, 0, 255])), [10, 0, 0, 1]), Action::Drop(SourceNotLocal), None),
            (request((HOST, ip([10, 0, 0, 1])), [10, 0, 0, 1]), Action::Drop(SourceIsLocal), Some(What::Conflict(HOST))),
            (request(us, [10, 0, 0, 9]), Action::Drop(Own), None),
            (reply(host, us), Action::Drop(RepliesReceived), heard(advert(true), true)),
            (reply(host, host), Action::Drop(RepliesReceived), heard(advert(false), false)),
            (reply((HOST, ip([10, 9, 0, 9])), us), Action::Drop(SourceNotLocal), None),
            (reply((HOST, ip([10, 9, 0, 9])), (HOST, ip([10, 9, 0, 9]))), Action::Drop(TargetNotLocal), None),
            (request((HOST, ip([10, 9, 0, 9])), [10, 9, 0, 9]), Action::Drop(TargetNotLocal), None),
        ];
        for (message, action, said) in rows {
            assert_eq!(judged(&message), (action, said), "{message:?}");
        }
    }

    #[test]
    fn a_forged_frame_source_gets_no_answer() {
        let view = View::for_tests(US, &[([10, 0, 0, 1], 24)]);
        let message = ArpHeader::request((HOST, ip([10, 0, 0, 9])), ip([10, 0, 0, 1]));
        let ours = Known { ours: true, ..Known::default() };
        assert_eq!(judge(&view, ours, &message, || Some(US)), (Action::Drop(End::Mismatch), None));
    }

    #[test]
    fn proxied_addresses_are_answered_but_not_to_probes() {
        let view = View::for_tests(US, &[([10, 0, 0, 1], 24)]);
        let message = ArpHeader::request((HOST, ip([10, 0, 0, 9])), ip([10, 5, 0, 1]));
        let proxied = Known { proxied: true, ..Known::default() };
        let (action, _) = judge(&view, proxied, &message, || None);
        assert_eq!(action, Action::Answer(End::ProxySent));
        let probe = ArpHeader::request((HOST, ip([0, 0, 0, 0])), ip([10, 5, 0, 1]));
        assert_eq!(judge(&view, proxied, &probe, || None).0, Action::Drop(End::Gratuitous));
    }

    #[test]
    fn a_host_that_has_the_borrowed_address_is_answered_by_proxy_only() {
        let numbered = View::for_tests(US, &[([10, 0, 0, 1], 24)]);
        let borrowing = View { unnumbered: true, ..numbered.clone() };
        let message = ArpHeader::request((HOST, ip([10, 0, 0, 1])), ip([10, 0, 0, 7]));
        let proxied = Known { proxied: true, ..Known::default() };
        assert_eq!(judge(&borrowing, proxied, &message, || None), (Action::Answer(End::ProxySent), None));
        let conflict = (Action::Drop(End::SourceIsLocal), Some(What::Conflict(HOST)));
        assert_eq!(judge(&numbered, proxied, &message, || None), conflict);
        assert_eq!(judge(&borrowing, Known::default(), &message, || None), conflict);
    }
}
