//! Where packets end that no route carries on: `ip4-drop`, `ip4-null`, link-local; and their like
//! for IPv6.

use quiver_graph::{NoDrops, NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::ipv6::Ipv6Header;

use super::lookup::{Next6, verdict};
use super::{FamilyId, icmp_aux};
use crate::fib::records::{DropIndex, Null};
use crate::fib::{Bucket, LinkLocalTable};
use crate::icmp::{Answer, NoRoute};

drop_reasons! {
    /// Why a lookup's answer is to drop.
    pub enum RouteDrop {
        /// The table has no route for the destination.
        ///
        /// Causes: a default route or a static route is missing; the routing daemon is not connected; the packet came in on an
        /// interface of another table (VRF).
        /// Check: ask the table which route decides: `show ip fib ADDRESS`, with `table ID` for a VRF. Add the route (`ip route
        /// add`), or check the daemon that should.
        /// See: `show ip fib ADDRESS`, `show ip6 fib ADDRESS`, `ip route add`.
        NoRoute = "no route",
        /// The route says to drop (`via drop`).
        ///
        /// Causes: a blackhole route, configured or learned from a routing daemon.
        /// Check: find the route with `show ip fib ADDRESS detail`: it also names the source that added it.
        /// See: `show ip fib ADDRESS detail`.
        ByRoute = "dropped by a route",
        /// The destination is a special address that is never forwarded.
        ///
        /// Causes: a host uses 0.0.0.0, 240.0.0.0/4, or a link-local address beyond its link.
        /// Check: find the sender by a trace or a capture of drops, and correct its addresses.
        /// See: `pcap trace drop`.
        Special = "special address",
        /// The route is there, and none of its paths can be used now.
        ///
        /// Causes: the interfaces of all next hops are down; BFD has taken the paths down; the next hops of a recursive route have
        /// no route.
        /// Check: `show ip fib ADDRESS detail` lists the paths and why each is unusable; then check the interfaces and BFD
        /// sessions.
        /// See: `show ip fib ADDRESS detail`, `show interface`, `show bfd sessions`.
        NoPath = "route without a path that is up",
        /// The sender of a packet without a route is told.
        Answered = "destination unreachable asked for" (info),
        /// The sender of a packet without a route is not told: more errors were due than the limit allows.
        Unanswered = "error message rate limited" (info),
    }
}

/// `ip4-drop`, `ip6-drop`: the aux lane says why ([`DropIndex`]). A packet that no route carries on is answered.
#[derive(Clone)]
pub(super) struct IpDrop {
    pub answers: Option<NoRoute>,
}

/// Slot of the node that makes ICMP errors.
const TO_ERROR: Verdict = Verdict::slot(1);

impl Node for IpDrop {
    type Next = NoNext;
    type Drop = RouteDrop;

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let reason = match packet.aux() {
            DropIndex::BY_ROUTE => RouteDrop::ByRoute,
            DropIndex::SPECIAL => RouteDrop::Special,
            DropIndex::NO_PATH => RouteDrop::NoPath,
            _ => RouteDrop::NoRoute,
        };
        if matches!(reason, RouteDrop::NoRoute | RouteDrop::NoPath)
            && let Some(answers) = &self.answers
        {
            match answers.answer(cx, &packet, TO_ERROR) {
                Answer::None => {}
                Answer::Made => cx.count(RouteDrop::Answered, 1),
                Answer::Limited => cx.count(RouteDrop::Unanswered, 1),
            }
        }
        packet.drop(reason)
    }
}

drop_reasons! {
    /// Why a packet gets no answer.
    pub enum NullDrop {
        /// The route says to drop without an answer (`via null`).
        ///
        /// Causes: a route with `via null`, configured or learned from a routing daemon.
        /// Check: `show ip fib ADDRESS detail` shows the route and its source.
        /// See: `show ip fib ADDRESS detail`.
        Silent = "null routes",
    }
}

next_nodes! {
    /// Where IPv4 packets are answered.
    pub enum NullNext4 { IcmpError = "ip4-icmp-error" }
}
next_nodes! {
    /// Where IPv6 packets are answered.
    pub enum NullNext6 { IcmpError = "ip6-icmp-error" }
}

/// `ip4-null`: destinations that the user has declared unreachable or prohibited (RFC 1812, 5.2.7.1).
#[derive(Clone)]
pub(super) struct Ip4Null;
/// `ip6-null` (RFC 4443, 3.1).
#[derive(Clone)]
pub(super) struct Ip6Null;

fn answer(mut packet: Pkt<'_>, family: FamilyId, next: Verdict) -> Verdict {
    // Destination unreachable: host unreachable and administratively prohibited; no route and administratively prohibited.
    let (kind, unreachable, prohibited) = if family == FamilyId::V4 { (3, 1, 13) } else { (1, 0, 1) };
    let code = match packet.aux() {
        n if n == Null::Unreachable as u32 => unreachable,
        n if n == Null::Prohibited as u32 => prohibited,
        _ => return packet.drop(NullDrop::Silent),
    };
    packet.set_aux(icmp_aux(kind, code, 0));
    next
}

impl Node for Ip4Null {
    type Next = NullNext4;
    type Drop = NullDrop;
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        answer(packet, FamilyId::V4, NullNext4::IcmpError.into())
    }
}

impl Node for Ip6Null {
    type Next = NullNext6;
    type Drop = NullDrop;
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        answer(packet, FamilyId::V6, NullNext6::IcmpError.into())
    }
}

/// `ip6-link-local`: what the interface knows of a link-local destination. A packet of this router's own carries as rx
/// interface the one that it shall leave on.
#[derive(Clone)]
pub(super) struct Ip6LinkLocal {
    pub table: LinkLocalTable,
}

impl Node for Ip6LinkLocal {
    type Next = Next6;
    type Drop = NoDrops;
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let (interface, dst) = (packet.rx_if(), packet.head::<Ipv6Header>().dst.get());
        let bucket = self.table.get(interface, dst).or_else(|| self.table.get(interface, 0)).unwrap_or(Bucket::DROP);
        packet.set_aux(bucket.index());
        verdict(bucket)
    }
}
