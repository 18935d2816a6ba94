//! `icmp6-neighbor-solicitation` and `icmp6-neighbor-advertisement`.

use std::net::Ipv6Addr;
use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{Node, NodeCx, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::Header;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ipv6::address::{ALL_NODES, is_link_local};
use quiver_wire::ndp::{NdpError, NdpOptions, NeighborMessage, neighbor_flags, validate};

use super::AddressState;
use super::message::{ADVERTISEMENT_LEN, advertisement};
use crate::data::IfTable;
use crate::ip::{Egress, V6, Way};
use crate::neighbor::{Ears, Evidence, Fact, Teller, View, ViewSnapshot, Views, What};

next_nodes! {
    /// Where answers go.
    pub enum Next { Output = "neighbor-output" }
}

drop_reasons! {
    /// How solicitations and advertisements end.
    pub enum End {
        /// The router answered a solicitation for an address of its own.
        AdvertisementsSent = "neighbor advertisements sent" (info),
        /// An answer of a neighbor arrived.
        AdvertisementsReceived = "neighbor advertisements received" (info),
        /// A neighbor asked for an address that is not the router's.
        UnknownTarget = "neighbor solicitations for unknown targets",
        /// The neighbor that asks has an address that is in no subnet of the interface.
        SourceNotOnLink = "neighbor solicitations from source not on link",
        /// A neighbor asked for an address whose uniqueness the router still checks.
        Tentative = "neighbor solicitations for tentative addresses",
        /// A neighbor uses an address of this router: two machines have the same address.
        ///
        /// Causes: another host or router on the link has the same address.
        /// Check: find it by the sender's MAC address in a capture of drops, and change one of the two.
        /// See: `show ip6 interface`, `pcap trace drop`.
        Duplicate = "own address used by a neighbor",
        /// A message that the router sent came back to it: a loop in the network.
        Own = "own message came back",
        /// A message of the router's own on a loopback interface, which gives back what it gets.
        Looped = "own message on a loopback" (info),
        /// The hop limit is not 255: the message was forwarded by a router.
        HopLimit = "hop limit is not 255",
        /// The ICMP code is not the one of this type.
        Code = "invalid code for type",
        /// The message ends before its fields do.
        Short = "message too short",
        /// An option has length zero or is longer than the message.
        BadOption = "malformed option",
        /// The message asks for or announces a group address.
        BadTarget = "target is a multicast address",
        /// A message from this source address is not allowed.
        BadSource = "source not allowed for this message",
        /// A message to this destination address is not allowed.
        BadDestination = "destination not allowed for this message",
        /// An advertisement to a group says that it answers a solicitation.
        SolicitedMulticast = "solicited advertisement to a group",
        /// IPv6 is not enabled on the interface.
        NotEnabled = "interface is not IP6 enabled",
        /// There is no room in the packet for the answer.
        NoRoom = "no room for the answer",
        /// The main thread has too many events waiting; the message's news are lost.
        NotTold = "main thread too busy to be told",
    }
}

/// How a message of our own ends.
const fn own(view: &View) -> End {
    if view.loops { End::Looped } else { End::Own }
}

pub(super) fn reason(error: NdpError) -> End {
    match error {
        NdpError::HopLimit => End::HopLimit,
        NdpError::Code => End::Code,
        NdpError::TooShort => End::Short,
        NdpError::BadOption => End::BadOption,
        NdpError::BadTarget => End::BadTarget,
        NdpError::BadSource => End::BadSource,
        NdpError::BadDestination => End::BadDestination,
        NdpError::SolicitedMulticast => End::SolicitedMulticast,
    }
}

/// A message that has passed the checks: the IPv6 header, and the ICMPv6 message with its options.
pub(super) fn checked<'p>(packet: &'p Pkt<'_>) -> Result<(Ipv6Header, &'p [u8]), NdpError> {
    let bytes = packet.bytes();
    // What does not fit the first buffer is no message of neighbour discovery.
    let ip = Ipv6Header::parse(bytes).map_err(|_| NdpError::TooShort)?;
    let end = size_of::<Ipv6Header>() + usize::from(ip.payload_len.get());
    let message = bytes.get(packet.aux() as usize..end).ok_or(NdpError::TooShort)?;
    validate(&ip, message)?;
    Ok((ip, message))
}

/// The solicitation node.
#[derive(Clone)]
pub(super) struct Solicitation {
    pub views: ViewSnapshot,
    pub interfaces: IfTable,
    pub egress: Egress<V6>,
    pub teller: Teller,
    /// Solicitations that interfaces have received, and those that were answered.
    pub received: Arc<SimpleCounters>,
    pub replied: Arc<SimpleCounters>,
}

/// An answer to a solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    address: u128,
    to: u128,
    solicited: bool,
    /// In the place of another host.
    proxied: bool,
}

/// What a message comes to: an answer, or how it ends; and what is to be told.
type Judged = (Result<Answer, End>, Option<Fact>);

/// What is known of a solicitation's source and target beside the interface's own addresses.
trait Surroundings {
    /// A route makes the source a neighbour on this link, though no prefix of ours holds it.
    fn is_attached(&self, source: u128) -> bool;
    /// The target is answered for to this source, in the place of another host.
    fn is_proxied(&self, source: u128, target: u128) -> bool;
}

/// Own addresses alone.
struct Alone;

impl Surroundings for Alone {
    fn is_attached(&self, _: u128) -> bool {
        false
    }

    fn is_proxied(&self, _: u128, _: u128) -> bool {
        false
    }
}

/// The router's tables.
struct Tables<'a> {
    node: &'a Solicitation,
    views: &'a Views,
    view: &'a View,
}

impl Surroundings for Tables<'_> {
    fn is_attached(&self, source: u128) -> bool {
        self.node.egress.is_attached(self.fib(), source, self.view.interface)
    }

    fn is_proxied(&self, source: u128, target: u128) -> bool {
        let here = Some(self.view.interface);
        if self.view.mirrors6 && source != 0 && !is_link_local(source) && target != source {
            return true;
        }
        match self.views.proxied6(self.view, target) {
            Some(behind) => Some(behind) != here,
            // To a host that is answered for elsewhere, this router stands for itself with all of its addresses.
            None => self.views.proxied6(self.view, source) == here && self.node.egress.find(self.fib(), target) == Way::Local,
        }
    }
}

impl Tables<'_> {
    fn fib(&self) -> u32 {
        self.node.interfaces.fibs(self.view.interface).1
    }
}

impl Solicitation {
    fn judge(packet: &mut Pkt<'_>, view: &View, around: &impl Surroundings) -> Judged {
        let link_source = view.link_source(packet);
        let (ip, message) = match checked(packet) {
            Ok(x) => x,
            Err(error) => return (Err(reason(error)), None),
        };
        let Some(target) = NeighborMessage::read(message).map(|m| m.target.get()) else { return (Err(End::Short), None) };
        let (src, ours) = (ip.src.get(), view.owns6(target));
        if link_source == Some(view.mac) {
            return (Err(own(view)), None);
        }
        let fact = |address: u128, what| Fact { interface: view.interface, address: Ipv6Addr::from_bits(address).into(), what };
        let proxied = ours.is_none() && around.is_proxied(src, target);
        let answer = |to, solicited| Answer { address: target, to, solicited, proxied };
        if src == 0 {
            return match (ours, link_source) {
                // Another one wants the address that we want (RFC 4862, 5.4.3).
                (Some(AddressState::Tentative), Some(mac)) => (Err(End::Duplicate), Some(fact(target, What::Conflict(mac)))),
                (Some(AddressState::Preferred), _) => (Ok(answer(ALL_NODES.to_bits(), false)), None),
                // The host that has it is elsewhere: its address is taken.
                (None, _) if proxied => (Ok(answer(ALL_NODES.to_bits(), false)), None),
                _ => (Err(End::UnknownTarget), None),
            };
        }
        // A host interface with the address of the one that its own borrows from is no conflict.
        let mirrored = view.mirrors6 && view.unnumbered && proxied;
        if view.owns6(src) == Some(AddressState::Preferred) && !mirrored {
            let mac = link_source.unwrap_or_default();
            return (Err(End::Duplicate), Some(fact(src, What::Conflict(mac))));
        }
        if !view.on_link6(src) && !around.is_attached(src) {
            return (Err(End::SourceNotOnLink), None);
        }
        let mac = NdpOptions::of_message(message).and_then(NdpOptions::source_link_address).filter(|m| m.is_unicast());
        let create = ours == Some(AddressState::Preferred) || proxied;
        let said = mac.map(|mac| fact(src, What::Heard { evidence: Evidence::Seen(mac), create }));
        match ours {
            Some(AddressState::Preferred) => (Ok(answer(src, true)), said),
            Some(_) => (Err(End::Tentative), None),
            None if proxied => (Ok(answer(src, true)), said),
            None => (Err(End::UnknownTarget), said),
        }
    }
}

impl Node for Solicitation {
    type Next = Next;
    type Drop = End;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.views.refresh();
        self.egress.refresh(cx);
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = packet.rx_if();
        let views = self.views.get();
        let Some(view) = views.get(interface) else { return packet.drop(End::NotEnabled) };
        let (judged, said) = Self::judge(&mut packet, view, &Tables { node: self, views, view });
        let verdict = match judged {
            Ok(answer) => send(&mut packet, view, answer),
            Err(reason) => packet.drop(reason),
        };
        let thread = cx.thread();
        self.received.add(thread, interface.0, 1);
        if verdict != Verdict::DROP {
            cx.count(End::AdvertisementsSent, 1);
            self.replied.add(thread, interface.0, 1);
        }
        if said.is_some_and(|fact| !self.teller.tell(fact, cx.now())) {
            cx.count(End::NotTold, 1);
        }
        verdict
    }
}

/// Turns a solicitation into its answer, in its own buffer.
fn send(packet: &mut Pkt<'_>, view: &View, answer: Answer) -> Verdict {
    if turn(packet, view, answer) { Next::Output.into() } else { packet.drop(End::NoRoom) }
}

/// Turns a solicitation for an address of the view into the answer where the rules of this node allow it.
pub(crate) fn answer_for(view: &View, packet: &mut Pkt<'_>, offset: usize) -> bool {
    packet.set_aux(offset as u32);
    match Solicitation::judge(packet, view, &Alone) {
        (Ok(answer), _) => turn(packet, view, answer),
        _ => false,
    }
}

fn turn(packet: &mut Pkt<'_>, view: &View, answer: Answer) -> bool {
    let Answer { address, to, solicited, proxied } = answer;
    let link = if solicited {
        // Whoever sent the frame gets the answer, as in VPP, whatever the option says; where there is no frame, the option tells.
        let asked = view.link_source(packet).filter(|m| m.is_unicast());
        let option = checked(packet).ok().and_then(|(_, message)| NdpOptions::of_message(message)?.source_link_address());
        asked.or(option.filter(|m| m.is_unicast()))
    } else {
        Some(quiver_wire::MacAddr::from_ipv6_multicast(ALL_NODES))
    };
    let Some(link) = link else { return false };
    packet.trim(ADVERTISEMENT_LEN);
    if packet.has(flags::CHAINED) || !packet.set_len(ADVERTISEMENT_LEN) {
        return false;
    }
    packet.bytes_mut().copy_from_slice(&advertisement(view, address, to, (solicited, !proxied)));
    if !view.push_link_header(packet, link, EtherType::IPV6) {
        return false;
    }
    packet.set_aux(view.interface.0);
    packet.mark(flags::LOCAL);
    packet.unmark(flags::LINK_MULTICAST);
    true
}

/// The advertisement node.
#[derive(Clone)]
pub(super) struct Advertisement {
    pub views: ViewSnapshot,
    pub teller: Teller,
    /// Advertisements that interfaces have received.
    pub received: Arc<SimpleCounters>,
    pub ears: Ears,
}

impl Advertisement {
    fn judge(packet: &mut Pkt<'_>, view: &View) -> (End, Option<Fact>) {
        let link_source = view.link_source(packet);
        let (_, message) = match checked(packet) {
            Ok(x) => x,
            Err(error) => return (reason(error), None),
        };
        let Some(neighbor) = NeighborMessage::read(message) else { return (End::Short, None) };
        if link_source == Some(view.mac) {
            return (own(view), None);
        }
        let target = neighbor.target.get();
        let fact = |what| Some(Fact { interface: view.interface, address: Ipv6Addr::from_bits(target).into(), what });
        let mac = NdpOptions::of_message(message).and_then(NdpOptions::target_link_address).filter(|m| m.is_unicast());
        if view.owns6(target).is_some() {
            return (End::Duplicate, fact(What::Conflict(mac.or(link_source).unwrap_or_default())));
        }
        let flag = |flag| neighbor.icmp.rest.get() & flag != 0;
        let evidence =
            Evidence::Advert { mac, solicited: flag(neighbor_flags::SOLICITED), overrides: flag(neighbor_flags::OVERRIDE) };
        // RFC 4861, 7.2.5: whom nobody wants to know makes no entry. So it does not matter which prefix the target is of.
        (End::AdvertisementsReceived, fact(What::Heard { evidence, create: false }))
    }
}

impl Node for Advertisement {
    type Next = Next;
    type Drop = End;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.views.refresh();
        self.ears.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = packet.rx_if();
        let (end, said) = match self.views.get().get(interface) {
            Some(view) => Self::judge(&mut packet, view),
            None => (End::NotEnabled, None),
        };
        self.received.add(cx.thread(), interface.0, 1);
        if let Some(Fact { address, what: What::Heard { evidence: Evidence::Advert { mac: Some(mac), .. }, .. }, .. }) = said {
            self.ears.heard(interface, address, mac);
        }
        if said.is_some_and(|fact| !self.teller.tell(fact, cx.now())) {
            cx.count(End::NotTold, 1);
        }
        packet.drop(end)
    }
}
