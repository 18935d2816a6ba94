//! `icmp6-router-solicitation` and `icmp6-router-advertisement`.

use std::net::Ipv6Addr;

use quiver_graph::{Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::ndp::{NdpError, NdpOptions};

use super::host::{Advert, Adverts};
use super::neighbor::checked;
use crate::neighbor::{Evidence, Fact, Teller, View, ViewSnapshot, What};

next_nodes! {
    /// Both nodes only listen.
    pub enum Next { Drop = "error-drop" }
}

drop_reasons! {
    /// How messages of routers and to them end.
    pub enum End {
        /// A host asked for a router advertisement.
        Solicitations = "router solicitations received" (info),
        /// An advertisement of another router arrived.
        Advertisements = "router advertisements received" (info),
        /// The host that asks has an address that is in no subnet of the interface.
        SourceNotOnLink = "router solicitations from source not on link",
        /// The interface sends no router advertisements.
        NotConfigured = "neighbor discovery not configured" (info),
        /// The advertisement comes from an address that is not link-local.
        NotLinkLocal = "router advertisement source not link local",
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
        /// The source address or an option is not allowed in this message.
        Other = "not allowed for this message",
        /// IPv6 is not enabled on the interface.
        NotEnabled = "interface is not IP6 enabled",
        /// The main thread has too many events waiting; the message is lost.
        NotTold = "main thread too busy to be told",
    }
}

fn reason(error: NdpError, advertisement: bool) -> End {
    match error {
        NdpError::HopLimit => End::HopLimit,
        NdpError::Code => End::Code,
        NdpError::TooShort => End::Short,
        NdpError::BadOption => End::BadOption,
        NdpError::BadSource if advertisement => End::NotLinkLocal,
        _ => End::Other,
    }
}

/// How a message of our own ends.
const fn own(view: &View) -> End {
    if view.loops { End::Looped } else { End::Own }
}

/// How a message ends, and what is to be told.
type Judged = (End, [Option<Fact>; 2]);

fn judge_solicitation(packet: &mut Pkt<'_>, view: &View) -> Judged {
    let link_source = view.link_source(packet);
    let (ip, message) = match checked(packet) {
        Ok(x) => x,
        Err(error) => return (reason(error, false), [None, None]),
    };
    if link_source == Some(view.mac) {
        return (own(view), [None, None]);
    }
    let src = ip.src.get();
    if src != 0 && !view.on_link6(src) {
        return (End::SourceNotOnLink, [None, None]);
    }
    let mac = NdpOptions::of_message(message).and_then(NdpOptions::source_link_address).filter(|m| m.is_unicast());
    let fact = |what| Fact { interface: view.interface, address: Ipv6Addr::from_bits(src).into(), what };
    let heard = mac.filter(|_| src != 0).map(|m| fact(What::Heard { evidence: Evidence::Seen(m), create: true }));
    if !view.advertises {
        return (End::NotConfigured, [heard, None]);
    }
    (End::Solicitations, [heard, Some(fact(What::Solicited(mac.or(link_source).filter(|_| src != 0))))])
}

/// How an advertisement ends, what is to be told of its sender, and what it says.
fn judge_advertisement(packet: &mut Pkt<'_>, view: &View) -> (End, Option<Fact>, Option<Advert>) {
    let link_source = view.link_source(packet);
    let (ip, message) = match checked(packet) {
        Ok(x) => x,
        Err(error) => return (reason(error, true), None, None),
    };
    if link_source == Some(view.mac) {
        return (own(view), None, None);
    }
    let mac = NdpOptions::of_message(message).and_then(NdpOptions::source_link_address).filter(|m| m.is_unicast());
    let address = Ipv6Addr::from_bits(ip.src.get()).into();
    // A router of ours is a neighbour worth an entry (RFC 4861, 6.3.4); of others only what is known is brought up to date.
    let what = |m| What::Heard { evidence: Evidence::Seen(m), create: view.autoconfigures };
    let fact = mac.map(|m| Fact { interface: view.interface, address, what: what(m) });
    (End::Advertisements, fact, Advert::read(view.interface, &ip, message))
}

/// Hosts that ask for an advertisement.
#[derive(Clone)]
pub(super) struct RouterSolicitation {
    pub views: ViewSnapshot,
    pub teller: Teller,
}

impl Node for RouterSolicitation {
    type Next = Next;
    type Drop = End;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.views.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let (end, said) = match self.views.get().get(packet.rx_if()) {
            Some(view) => judge_solicitation(&mut packet, view),
            None => (End::NotEnabled, [None, None]),
        };
        for fact in said.into_iter().flatten() {
            if !self.teller.tell(fact, cx.now()) {
                cx.count(End::NotTold, 1);
            }
        }
        packet.drop(end)
    }
}

/// What other routers advertise.
#[derive(Clone)]
pub(super) struct RouterAdvertisementIn {
    pub views: ViewSnapshot,
    pub teller: Teller,
    pub adverts: Adverts,
}

impl Node for RouterAdvertisementIn {
    type Next = Next;
    type Drop = End;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.views.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let (end, fact, advert) = match self.views.get().get(packet.rx_if()) {
            Some(view) => judge_advertisement(&mut packet, view),
            None => (End::NotEnabled, None, None),
        };
        let told = fact.is_none_or(|fact| self.teller.tell(fact, cx.now()));
        if !(advert.is_none_or(|advert| self.adverts.tell(advert)) && told) {
            cx.count(End::NotTold, 1);
        }
        packet.drop(end)
    }
}
