//! ARP: IPv4 over Ethernet (RFC 826), announcements and conflicts (RFC 5227), proxy ARP (RFC 1027).
//!
//! ```text
//!  ethernet-input ──► arp-input ──► [ arc arp ] ──► arp-reply ──► neighbor-output ──► <if>-output
//!                     form             features        │ own address, or a proxied range: answered in place
//!                                                      └─ what the sender says of itself goes to the neighbour table
//! ```
//!
//! Learned is only what is said by a possible neighbour: an address of a prefix of the interface, or any where the interface
//! is unnumbered. A message to us may make an entry, any other only updates one (the "merge flag" of RFC 826).
//!
//! Answered are the interface's own addresses, those that it borrows, and those of its prefixes that a route makes this
//! router's (`via local`); not those of other interfaces.

pub(crate) mod api;
mod input;
mod reply;

use std::net::Ipv4Addr;
use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{ArcPoint, ArcSpec, MAX_INTERFACES, NodeSpec, TraceEntry};
use quiver_wire::MacAddr;
use quiver_wire::arp::ArpHeader;
use quiver_wire::describe::Arp;
use quiver_wire::ethernet::EtherType;
use zerocopy::IntoBytes;

use crate::Router;
use crate::neighbor::{Teller, View};
pub(crate) use reply::answer_for;

/// Counters of ARP messages by interface, `/net/arp/…`.
#[derive(Clone)]
pub(crate) struct ArpCounters {
    pub rx_requests: Arc<SimpleCounters>,
    pub rx_replies: Arc<SimpleCounters>,
    pub rx_gratuitous: Arc<SimpleCounters>,
    pub tx_replies: Arc<SimpleCounters>,
}

/// A request for `target`, as a frame: to everybody, or to the one who is thought to have it. `None` where the interface has
/// no address to ask from.
pub(crate) fn request(view: &View, target: u32, to: Option<MacAddr>) -> Option<Vec<u8>> {
    let source = Ipv4Addr::from_bits(view.source4(target)?);
    let message = ArpHeader::request((view.mac, source), Ipv4Addr::from_bits(target));
    Some(view.frame(to.unwrap_or(MacAddr::BROADCAST), EtherType::ARP, message.as_bytes()))
}

/// The announcement of one of our addresses (RFC 5227, section 3: a request for itself).
pub(crate) fn announcement(view: &View, address: u32) -> Vec<u8> {
    let address = Ipv4Addr::from_bits(address);
    let message = ArpHeader::request((view.mac, address), address);
    view.frame(MacAddr::BROADCAST, EtherType::ARP, message.as_bytes())
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let arc = ArcPoint::new();
    let stats = router.graph.stats();
    let counter = |name: &str| stats.simple(&format!("/net/arp/{name}"), MAX_INTERFACES);
    let counters = ArpCounters {
        rx_requests: counter("rx/requests"),
        rx_replies: counter("rx/replies"),
        rx_gratuitous: counter("rx/gratuitous"),
        tx_replies: counter("tx/replies"),
    };
    for all in [&counters.rx_requests, &counters.rx_replies, &counters.rx_gratuitous, &counters.tx_replies] {
        all.set_len(MAX_INTERFACES);
    }
    let (views, facts) = (router.neighbors.views.snapshot(), router.neighbors.sender.clone());
    let reply = reply::ArpReply {
        views,
        interfaces: router.data.interfaces.clone(),
        egress: router.egress4(),
        teller: Teller::new(facts),
        counters,
        ears: router.neighbors.ears(),
    };
    let reply = NodeSpec::node("arp-reply", reply);
    let input = NodeSpec::node("arp-input", input::ArpInput { arc: arc.clone() });
    vec![input.on_arc("arp", arc).traced(trace), reply.traced(trace)]
}

/// The `arp` arc.
pub(crate) fn arcs() -> Vec<ArcSpec> {
    vec![ArcSpec { name: "arp", starts: vec!["arp-input".into()], end: "arp-reply".into() }]
}

/// The message in words.
fn trace(entry: &TraceEntry, out: &mut String) {
    use std::fmt::Write;
    let at = entry.bytes.windows(4).position(|w| w == [0, 1, 8, 0]).unwrap_or(0);
    let _ = write!(out, "{}", Arp(&entry.bytes[at..]));
}

#[cfg(test)]
mod tests;
