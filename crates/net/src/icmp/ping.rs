//! Pings that this router sends: workers recognise what comes back and pass it to whoever asked, over a bounded channel.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::clock::Clock;
use quiver_graph::{IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Snapshot, Verdict, drop_reasons, flags};
use quiver_wire::checksum::{Sum, fill_l4};
use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::Icmp6Header;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::ipv6::{Ipv6Header, upper_layer};
use quiver_wire::{Header, U16Be};
use zerocopy::IntoBytes;

use super::family::IcmpFamily;
use crate::Router;
use crate::ip::{Family, FamilyId, V4, V6};
use crate::local::header::{node_name, trace};

/// Events that wait for whoever pings; more are counted and lost.
const EVENTS: usize = 1024;
/// Largest ICMP message: what an IPv4 packet without options holds.
pub const MESSAGE_MAX: usize = 65_515;

/// Something that happened to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingEvent {
    /// A request left for the lookup.
    Sent {
        /// Its sequence number.
        sequence: u16,
        /// When, ns of the router's clock.
        time: u64,
    },
    /// Buffers had run out: no request left.
    NoBuffer {
        /// Its sequence number.
        sequence: u16,
    },
    /// A reply came.
    Reply {
        /// Sequence number that it carries.
        sequence: u16,
        /// When, ns of the router's clock.
        time: u64,
        /// Who sent it.
        from: IpAddr,
        /// Bytes of the IP packet.
        packet_len: u32,
        /// Bytes of its network-layer headers.
        header_len: u32,
        /// TTL or hop limit that is left.
        ttl: u8,
    },
    /// An error about a request came.
    Error {
        /// Sequence number of the request.
        sequence: u16,
        /// When, ns of the router's clock.
        time: u64,
        /// Who sent it.
        from: IpAddr,
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// MTU or pointer, where the type has one.
        data: u32,
    },
}

type Listeners = HashMap<(FamilyId, u16), Sender<PingEvent>>;

struct Pings {
    listeners: Published<Listeners>,
    next: u16,
}

/// A ping under way: an identifier of its own, and what comes back. Close it with [`Router::ping_close`].
#[derive(Debug)]
pub struct Ping {
    family: FamilyId,
    identifier: u16,
    /// What happened.
    pub events: Receiver<PingEvent>,
    sender: Sender<PingEvent>,
}

impl Ping {
    /// The identifier in its requests.
    pub fn identifier(&self) -> u16 {
        self.identifier
    }
}

/// An echo request to be sent.
#[derive(Clone, Debug)]
pub struct EchoRequest {
    /// Source; an own address.
    pub src: IpAddr,
    /// Destination, of the same family.
    pub dst: IpAddr,
    /// Sequence number.
    pub sequence: u16,
    /// Data after the ICMP header.
    pub data: Vec<u8>,
    /// Interface whose table it is looked up in, and whose link a link-local destination is on.
    pub interface: IfIndex,
    /// FIB instead of the interface's.
    pub fib: Option<u32>,
    /// TTL or hop limit.
    pub ttl: u8,
}

impl EchoRequest {
    /// A request from `local0`. Its TTL is the largest, as that of other routers: a path of any length is reached.
    pub const fn new(src: IpAddr, dst: IpAddr, sequence: u16, data: Vec<u8>) -> Self {
        Self { src, dst, sequence, data, interface: IfIndex::LOCAL0, fib: None, ttl: u8::MAX }
    }
}

/// Makes the state that nodes are made from.
pub(super) fn prepare(router: &mut Router) {
    router.add_part(Pings { listeners: Published::new(Listeners::new()), next: std::process::id() as u16 });
}

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// No such table.
    #[error("no table for lookup")]
    NoTable,
    /// No route to the destination.
    #[error("no egress interface")]
    NoInterface,
    /// No own address to send from.
    #[error("no source address for egress interface")]
    NoSource,
}

impl Router {
    /// Where a request to `dst` would come from: from an address of `source`, or of the interface that the route leads to.
    ///
    /// # Errors
    /// No table, no route, no address.
    pub fn ping_plan(&self, dst: IpAddr, source: Option<IfIndex>, table: u32) -> Result<EchoRequest, PingError> {
        let family = FamilyId::of(&dst);
        let fib = match family {
            FamilyId::V4 => self.fib.v4.fib(table),
            FamilyId::V6 => self.fib.v6.fib(table),
        };
        let fib = fib.map_err(|_| PingError::NoTable)?;
        let mut request = EchoRequest::new(dst, dst, 0, Vec::new());
        if let Some(interface) = source {
            request.src = self.ping_source(interface, dst).ok_or(PingError::NoSource)?;
            request.interface = interface;
            return Ok(request);
        }
        request.fib = Some(fib);
        if self.is_own_address(table, dst) {
            return Ok(request);
        }
        let interface = self.route_lookup(table, dst).and_then(|route| route.interface).ok_or(PingError::NoInterface)?;
        request.src = self.address_towards(interface, dst).ok_or(PingError::NoSource)?;
        Ok(request)
    }

    /// An address of an interface, link-local towards link-local ones.
    fn ping_source(&self, interface: IfIndex, dst: IpAddr) -> Option<IpAddr> {
        let is_near = |a: &IpAddr| matches!(a, IpAddr::V6(a) if is_link_local(a.to_bits()));
        let own = &self.interfaces.get(interface)?.addresses;
        let near = own.iter().map(|(a, _)| *a).find(|a| is_near(&dst) && is_near(a));
        near.or_else(|| self.address_towards(interface, dst))
    }

    /// Begins a ping; `None` where all identifiers are in use.
    pub fn ping_open(&mut self, family: FamilyId) -> Option<Ping> {
        let pings = self.part_mut::<Pings>()?;
        let mut listeners = Listeners::clone(&pings.listeners.get());
        let free = |n: &u16| !listeners.contains_key(&(family, *n));
        let identifier = (0..=u16::MAX).map(|n| pings.next.wrapping_add(n)).find(free)?;
        pings.next = identifier.wrapping_add(1);
        let (sender, events) = bounded(EVENTS);
        listeners.insert((family, identifier), sender.clone());
        pings.listeners.publish(listeners);
        Some(Ping { family, identifier, events, sender })
    }

    /// Ends a ping: what still comes back is dropped.
    pub fn ping_close(&mut self, ping: &Ping) {
        let Some(pings) = self.part_mut::<Pings>() else { return };
        let mut listeners = Listeners::clone(&pings.listeners.get());
        listeners.remove(&(ping.family, ping.identifier));
        pings.listeners.publish(listeners);
    }

    /// Sends a request from the first thread that forwards; does not wait for it. `false`: addresses of two families, or
    /// more data than a packet holds.
    pub fn ping_send(&mut self, ping: &Ping, request: &EchoRequest) -> bool {
        let Some(bytes) = packet(request, ping.identifier) else { return false };
        let Some(node) = self.graph.node(&node_name(ping.family, NODE)) else { return false };
        let thread = self.graph.fleet().threads()[0];
        let (sender, clock) = (ping.sender.clone(), self.graph.clock().clone());
        let (interface, fib, sequence) = (request.interface, request.fib, request.sequence);
        self.graph.fleet().cast(thread, move |worker| {
            worker.at_node(node, |cx| {
                let Some(mut packet) = cx.alloc_bytes(&bytes, interface) else {
                    let _ = sender.try_send(PingEvent::NoBuffer { sequence });
                    return;
                };
                let mut view = cx.view(&mut packet);
                view.mark(flags::LOCAL);
                if let Some(fib) = fib {
                    view.set_table(fib);
                }
                // Whoever asked reads in time or has gone.
                let _ = sender.try_send(PingEvent::Sent { sequence, time: clock.now() });
                cx.emit(TO_LOOKUP, packet);
            });
        });
        true
    }
}

/// The request as an IP packet.
fn packet(request: &EchoRequest, identifier: u16) -> Option<Vec<u8>> {
    let EchoRequest { src, dst, sequence, data, ttl, .. } = request;
    let len = Icmp4Header::LEN + data.len();
    if len > MESSAGE_MAX {
        return None;
    }
    let (mut bytes, protocol, pseudo) = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = Ipv4Header::new(*src, *dst, IpProtocol::ICMP);
            header.ttl = *ttl;
            header.total_len = U16Be::new((Ipv4Header::LEN + len) as u16);
            header.identification = U16Be::new(sequence.wrapping_add(identifier));
            header.fill_checksum();
            let echo = Icmp4Header::echo_request(identifier, *sequence);
            ([header.as_bytes(), echo.as_bytes()].concat(), IpProtocol::ICMP, Sum::new())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = Ipv6Header::new(*src, *dst, IpProtocol::ICMPV6);
            header.hop_limit = *ttl;
            header.payload_len = U16Be::new(len as u16);
            let echo = Icmp6Header::echo_request(identifier, *sequence);
            let pseudo = Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::ICMPV6, len as u32);
            ([header.as_bytes(), echo.as_bytes()].concat(), IpProtocol::ICMPV6, pseudo)
        }
        _ => return None,
    };
    let icmp = bytes.len() - Icmp4Header::LEN;
    bytes.extend(data);
    fill_l4(protocol, pseudo, &mut bytes[icmp..])?;
    Some(bytes)
}

drop_reasons! {
    /// Why replies and errors are dropped, and how many reached somebody.
    pub enum Drop {
        /// A reply to a `ping` of the router arrived.
        Replies = "echo replies received" (info),
        /// An error about a packet of the router's own arrived.
        Errors = "error messages received" (info),
        /// A reply arrived that no running `ping` waits for.
        NoPing = "echo reply that nobody waits for",
        /// An error arrived about a packet that nobody in the router has sent.
        NoTaker = "error message that nobody waits for",
        /// Replies arrive faster than `ping` reads them.
        Full = "echo reply queue full",
    }
}

/// Takes echo replies, and errors about requests.
#[derive(Clone)]
struct EchoReply<F> {
    listeners: Snapshot<Listeners>,
    clock: Arc<Clock>,
    /// Time of this vector.
    time: u64,
    family: PhantomData<F>,
}

const NODE: &str = "icmp-echo-reply";
const TO_LOOKUP: Verdict = Verdict::slot(1);

impl<F: IcmpFamily> Node for EchoReply<F> {
    type Next = NoNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.listeners.refresh();
        self.time = self.clock.now();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        match self.deliver(&packet) {
            Ok(event) => {
                let (packet, verdict) = packet.take();
                cx.free(packet);
                cx.count(event, 1);
                verdict
            }
            Err(reason) => packet.drop(reason),
        }
    }
}

impl<F: IcmpFamily> EchoReply<F> {
    fn deliver(&self, packet: &Pkt<'_>) -> Result<Drop, Drop> {
        let time = self.time;
        let offset = packet.aux() as usize;
        let icmp = packet.bytes().get(offset..).and_then(Icmp4Header::read).ok_or(Drop::NoTaker)?;
        let from = F::address(F::addresses(packet).0);
        let is_reply = icmp.icmp_type.0 == F::ECHO_REPLY;
        let (identifier, event) = if is_reply {
            let (packet_len, ttl) = (packet.total_len() as u32, F::ttl(packet));
            let header_len = offset as u32;
            (icmp.identifier(), PingEvent::Reply { sequence: icmp.sequence(), time, from, packet_len, header_len, ttl })
        } else {
            let quoted = packet.bytes().get(offset + Icmp4Header::LEN..).unwrap_or_default();
            let (identifier, sequence) = F::quoted_echo(quoted).ok_or(Drop::NoTaker)?;
            let (kind, code, data) = (icmp.icmp_type.0, icmp.code, icmp.rest.get());
            (identifier, PingEvent::Error { sequence, time, from, kind, code, data })
        };
        let none = if is_reply { Drop::NoPing } else { Drop::NoTaker };
        let sender = self.listeners.get().get(&(F::ID, identifier)).ok_or(none)?;
        sender.try_send(event).map_err(|_| Drop::Full)?;
        Ok(if is_reply { Drop::Replies } else { Drop::Errors })
    }
}

/// What differs between the families for pings.
pub(super) trait PingFamily: Family {
    /// TTL or hop limit.
    fn ttl(packet: &Pkt<'_>) -> u8;

    /// Identifier and sequence number of an echo request that an error quotes.
    fn quoted_echo(quoted: &[u8]) -> Option<(u16, u16)>;
}

impl PingFamily for V4 {
    fn ttl(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv4Header>().ttl
    }

    fn quoted_echo(quoted: &[u8]) -> Option<(u16, u16)> {
        let header = Ipv4Header::read(quoted)?;
        let icmp = Icmp4Header::read_at(quoted, header.header_len())?;
        let ours = header.protocol == IpProtocol::ICMP && !header.is_later_fragment();
        (ours && icmp.icmp_type == Icmp4Type::ECHO_REQUEST).then(|| (icmp.identifier(), icmp.sequence()))
    }
}

impl PingFamily for V6 {
    fn ttl(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv6Header>().hop_limit
    }

    fn quoted_echo(quoted: &[u8]) -> Option<(u16, u16)> {
        let header = Ipv6Header::read(quoted)?;
        let upper = upper_layer(&header, quoted).ok()?;
        let icmp = Icmp6Header::read_at(quoted, upper.offset.into())?;
        let ours = upper.protocol == IpProtocol::ICMPV6 && upper.fragment.is_none_or(|f| f.offset == 0);
        (ours && icmp.icmp_type.0 == V6::ECHO_REQUEST).then(|| (icmp.identifier(), icmp.sequence()))
    }
}

/// The nodes of one family.
pub(super) fn nodes<F: IcmpFamily>(router: &Router) -> Vec<NodeSpec> {
    let Some(pings) = router.part::<Pings>() else { return Vec::new() };
    let (listeners, clock) = (pings.listeners.snapshot(), router.graph.clock().clone());
    let node = EchoReply::<F> { listeners, clock, time: 0, family: PhantomData };
    vec![NodeSpec::node(node_name(F::ID, NODE), node).with_next(node_name(F::ID, "lookup")).traced(trace::<F>)]
}
