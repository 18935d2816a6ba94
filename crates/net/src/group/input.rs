//! `igmp-input`, `icmp6-multicast-listener-query`, `icmp6-multicast-listener-report`: what routers ask of hosts, and what other hosts
//! tell them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::{IfIndex, Node, NodeCx, NodeSpec, Pkt, TraceEntry, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::checksum::Sum;
use quiver_wire::describe::{Ip4, Ip6};
use quiver_wire::group::{Query, QueryError, igmp_type};
use quiver_wire::ipv4::{Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::ipv6::{Extensions, Ipv6Header, Ipv6Option, Ipv6Options};

use crate::ip::FamilyId;
use crate::router::ProcessSignal;

/// The node that takes IGMP.
pub(super) const IGMP: &str = "igmp-input";
/// The node that takes MLD's queries.
pub(super) const QUERY: &str = "icmp6-multicast-listener-query";
/// The node that takes MLD's reports.
pub(super) const REPORT: &str = "icmp6-multicast-listener-report";

/// Queries under way to main.
const CHANNEL: usize = 1024;
/// Of them, from one interface.
const SHARE: u16 = 64;
/// Interfaces share counters of these, by index.
const SHARES: usize = 256;

/// A query that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub interface: IfIndex,
    pub family: FamilyId,
    pub query: Query,
}

/// From nodes to main; both ends.
#[derive(Clone)]
pub(super) struct Channel {
    sender: Sender<Heard>,
    receiver: Receiver<Heard>,
    shares: Arc<[AtomicU16]>,
    signal: ProcessSignal,
}

impl Channel {
    pub fn new(signal: ProcessSignal) -> Self {
        let (sender, receiver) = bounded(CHANNEL);
        Self { sender, receiver, shares: (0..SHARES).map(|_| AtomicU16::new(0)).collect(), signal }
    }

    fn share(&self, interface: IfIndex) -> &AtomicU16 {
        &self.shares[interface.0 as usize % SHARES]
    }

    /// Tells main; `false` where the interface's share is used up.
    fn tell(&self, heard: Heard) -> bool {
        let share = self.share(heard.interface);
        let told = share.fetch_add(1, Ordering::Relaxed) < SHARE && self.sender.try_send(heard).is_ok();
        if !told {
            share.fetch_sub(1, Ordering::Relaxed);
        }
        self.signal.raise();
        told
    }

    /// At most so many; and whether there may be more.
    pub fn take(&self, most: usize) -> (Vec<Heard>, bool) {
        let heard: Vec<Heard> = self.receiver.try_iter().take(most).collect();
        for heard in &heard {
            self.share(heard.interface).fetch_sub(1, Ordering::Relaxed);
        }
        let more = heard.len() == most;
        (heard, more)
    }
}

next_nodes! {
    /// These nodes only listen.
    pub enum Next { Drop = "error-drop" }
}

drop_reasons! {
    /// How messages of group membership end.
    pub enum End {
        /// A router asked which groups are listened to.
        Queries = "membership queries received" (info),
        /// Another host told routers which groups it listens to.
        Reports = "membership reports received" (info),
        /// The type is none of the protocol.
        Type = "unknown type",
        /// The checksum of the message is wrong.
        Checksum = "bad igmp checksum",
        /// The message ends before its fields do.
        Short = "message too short",
        /// The query asks for an address that is no group.
        NoGroup = "query for an address that is no group",
        /// The TTL or hop limit is not 1: the message may come from beyond the link.
        Ttl = "TTL or hop limit is not 1",
        /// The packet has no router alert option, which every query has but those of IGMPv1.
        NoAlert = "no router alert option",
        /// The source is no address of this link.
        Source = "source is not link-local",
        /// The main thread has too many queries waiting; the query is not answered.
        NotTold = "main thread too busy to be told",
    }
}

impl From<QueryError> for End {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::TooShort => Self::Short,
            QueryError::NoGroup => Self::NoGroup,
        }
    }
}

/// Whether an IPv4 packet has a router alert (RFC 2113).
fn has_alert4(bytes: &[u8]) -> bool {
    Ipv4Options::of_packet(bytes).any(|option| option.is_ok_and(|o| o.kind == Ipv4Option::ROUTER_ALERT))
}

/// Whether an IPv6 packet has a router alert (RFC 2711), whatever it says.
fn has_alert6(ip: &Ipv6Header, bytes: &[u8]) -> bool {
    let first = Extensions::new(ip, bytes).next().and_then(Result::ok);
    let has = |o: Ipv6Option<'_>| o.kind == Ipv6Option::ROUTER_ALERT;
    let is_alert = |e: &quiver_wire::ipv6::Extension<'_>| Ipv6Options::new(e.bytes).any(|o| o.is_ok_and(has));
    first.is_some_and(|e| e.kind == quiver_wire::ipv4::IpProtocol::HOP_BY_HOP && is_alert(&e))
}

/// A message of IGMP: a query, or why it is none.
fn igmp(packet: &Pkt<'_>) -> Result<Query, End> {
    let bytes = packet.bytes();
    let ip: Ipv4Header = packet.head();
    // What does not fit the first buffer is none; options end where the message begins.
    let message = bytes.get(packet.aux() as usize..usize::from(ip.total_len.get())).ok_or(End::Short)?;
    let kind = *message.first().ok_or(End::Short)?;
    if !packet.has(flags::CHECKSUM) && !Sum::of(message).is_valid() {
        return Err(End::Checksum);
    }
    match kind {
        igmp_type::QUERY => {}
        igmp_type::REPORT_V1 | igmp_type::REPORT_V2 | igmp_type::REPORT_V3 | igmp_type::LEAVE => return Err(End::Reports),
        _ => return Err(End::Type),
    }
    if ip.ttl != 1 {
        return Err(End::Ttl);
    }
    let query = Query::parse_igmp(message)?;
    // RFC 3376, 9.1
    if query.version != quiver_wire::group::Version::First && !has_alert4(bytes) {
        return Err(End::NoAlert);
    }
    Ok(query)
}

/// A query of MLD (RFC 3810, 6.2), or why it is none; the checksum has been verified.
fn mld(packet: &Pkt<'_>) -> Result<Query, End> {
    let bytes = packet.bytes();
    let ip: Ipv6Header = packet.head();
    let end = size_of::<Ipv6Header>() + usize::from(ip.payload_len.get());
    let message = bytes.get(packet.aux() as usize..end).ok_or(End::Short)?;
    if ip.hop_limit != 1 {
        return Err(End::Ttl);
    }
    if !is_link_local(ip.src.get()) {
        return Err(End::Source);
    }
    if !has_alert6(&ip, bytes) {
        return Err(End::NoAlert);
    }
    Ok(Query::parse_mld(message)?)
}

/// A node that reads one kind of message.
#[derive(Clone)]
struct Input {
    family: FamilyId,
    read: fn(&Pkt<'_>) -> Result<Query, End>,
    channel: Channel,
}

impl Node for Input {
    type Next = Next;
    type Drop = End;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let end = match (self.read)(&packet) {
            Ok(query) => {
                if !self.channel.tell(Heard { interface: packet.rx_if(), family: self.family, query }) {
                    cx.count(End::NotTold, 1);
                }
                End::Queries
            }
            Err(end) => end,
        };
        packet.drop(end)
    }
}

pub(super) fn nodes(channel: &Channel) -> Vec<NodeSpec> {
    let node = |name, family, read| NodeSpec::node(name, Input { family, read, channel: channel.clone() }).traced(trace);
    vec![
        node(IGMP, FamilyId::V4, igmp),
        node(QUERY, FamilyId::V6, mld),
        // Those of other hosts tell this one nothing.
        node(REPORT, FamilyId::V6, |_| Err(End::Reports)),
    ]
}

/// The packet in words.
fn trace(entry: &TraceEntry, out: &mut String) {
    use std::fmt::Write;
    let _ = match entry.bytes.first().map(|b| b >> 4) {
        Some(6) => write!(out, "{}", Ip6(&entry.bytes)),
        _ => write!(out, "{}", Ip4(&entry.bytes)),
    };
}
