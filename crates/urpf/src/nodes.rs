//! The nodes, on the arcs `ip4-unicast`, `ip4-output` and those of IPv6.

use std::fmt::Write as _;

use quiver_graph::{
    ArcPoint, Batch, FastPath, FeatureSpec, GraphError, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Sent, Shared,
    Snapshot, TraceEntry, Verdict, drop_reasons, flags,
};
use quiver_net::Router;
use quiver_net::data::IfTable;
use quiver_net::ip::{Egress, Family, FamilyId, V4, V6};
use quiver_wire::{U32Be, U128Be};

use crate::ops::{Direction, Mode};
use crate::table::{Check, Checks};

drop_reasons! {
    /// Why a packet is dropped.
    pub enum Drop {
        /// No route leads back to the source, or, with `strict`, not by the interface that the packet came from.
        ///
        /// Causes: a forged source address; asymmetric routing with `strict`; a host with a wrong address; a route back that is
        /// missing.
        /// Check: `show ip fib SOURCE`: it must lead back, with `strict` by the same interface. Use `loose` where paths are
        /// asymmetric, or accept a prefix.
        /// See: `show urpf`, `set urpf`, `show ip fib ADDRESS`.
        Source = "uRPF Drop",
    }
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);

/// Arc and node of a check; none for [`Mode::Off`].
pub fn feature(family: FamilyId, direction: Direction, mode: Mode) -> Option<(&'static str, &'static str)> {
    use {Direction::*, FamilyId::*, Mode::*};
    Some(match (family, direction, mode) {
        (_, _, Off) => return None,
        (V4, Rx, Strict) => ("ip4-unicast", "ip4-rx-urpf-strict"),
        (V4, Rx, Loose) => ("ip4-unicast", "ip4-rx-urpf-loose"),
        (V4, Tx, Strict) => ("ip4-output", "ip4-tx-urpf-strict"),
        (V4, Tx, Loose) => ("ip4-output", "ip4-tx-urpf-loose"),
        (V6, Rx, Strict) => ("ip6-unicast", "ip6-rx-urpf-strict"),
        (V6, Rx, Loose) => ("ip6-unicast", "ip6-rx-urpf-loose"),
        (V6, Tx, Strict) => ("ip6-output", "ip6-tx-urpf-strict"),
        (V6, Tx, Loose) => ("ip6-output", "ip6-tx-urpf-loose"),
    })
}

/// What a check reads of packets of a family.
pub trait Sources: Family {
    /// Sources of a batch of packets whose data begins at their IP header.
    fn sources<const W: usize>(batch: &Batch<'_, W>) -> [Self::Addr; W];
    /// Source of a packet whose IP header stands so many bytes behind the beginning of its data.
    fn source_behind(packet: &Pkt<'_, Shared>, link_header: usize) -> Option<Self::Addr>;
    /// Whether a packet comes from a host that has no address yet: DHCP (RFC 2131, 4.1).
    fn is_from_nobody(packet: &Pkt<'_, Shared>) -> bool;
}

impl Sources for V4 {
    #[inline(always)]
    fn sources<const W: usize>(batch: &Batch<'_, W>) -> [u32; W] {
        batch.heads::<U32Be, 12>().map(U32Be::get)
    }

    fn source_behind(packet: &Pkt<'_, Shared>, link_header: usize) -> Option<u32> {
        packet.read_at::<U32Be>(link_header + 12).map(U32Be::get)
    }

    fn is_from_nobody(packet: &Pkt<'_, Shared>) -> bool {
        (Self::source(packet), Self::destination(packet)) == (0, u32::MAX)
    }
}

impl Sources for V6 {
    #[inline(always)]
    fn sources<const W: usize>(batch: &Batch<'_, W>) -> [u128; W] {
        batch.heads::<U128Be, 8>().map(U128Be::get)
    }

    fn source_behind(packet: &Pkt<'_, Shared>, link_header: usize) -> Option<u128> {
        packet.read_at::<U128Be>(link_header + 8).map(U128Be::get)
    }

    fn is_from_nobody(_: &Pkt<'_, Shared>) -> bool {
        false
    }
}

/// What both nodes of a family read.
struct Parts<F: Family> {
    checks: Snapshot<Checks<F>>,
    interfaces: IfTable,
    egress: Egress<F>,
    strict: bool,
    arc: ArcPoint,
}

impl<F: Family> Clone for Parts<F> {
    fn clone(&self) -> Self {
        let Self { checks, interfaces, egress, strict, arc } = self;
        let (checks, interfaces, egress, arc) = (checks.clone(), interfaces.clone(), egress.clone(), arc.clone());
        Self { checks, interfaces, egress, strict: *strict, arc }
    }
}

impl<F: Family> Parts<F> {
    fn refresh(&mut self, cx: &NodeCx<'_>) {
        self.checks.refresh();
        self.egress.refresh(cx);
    }

    #[inline(always)]
    fn fib_of(&self, check: Check, interface: IfIndex) -> u32 {
        check.fib.unwrap_or_else(|| F::fib_of(self.interfaces.fibs(interface)))
    }
}

/// Checks packets that come in.
#[derive(Clone)]
struct Rx<F: Family>(Parts<F>);

impl<F: Sources> Node<Shared> for Rx<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.0.refresh(cx);
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let Self(parts) = self;
        let (interface, source) = (packet.rx_if(), F::source(&packet));
        let fib = parts.fib_of(parts.checks.get().get(Direction::Rx, interface), interface);
        let reach = parts.egress.reach(fib, source, interface);
        let passes = if parts.strict { reach.same } else { reach.any || parts.checks.get().accepts(fib, source) };
        if passes || F::is_from_nobody(&packet) {
            return parts.arc.next(interface, END);
        }
        packet.drop(Drop::Source)
    }
}

impl<F: Sources> FastPath<Shared> for Rx<F> {
    /// Packets of one interface, each with one path to its source.
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let Self(parts) = self;
        let interface = batch.first_rx_if();
        // None of them has the flag: what the router sends does not come in.
        if !batch.all_from(interface, flags::LOCAL) {
            return None;
        }
        let fib = parts.fib_of(parts.checks.get().get(Direction::Rx, interface), interface);
        if !parts.egress.all_reached(fib, &F::sources(batch), parts.strict.then_some(interface)) {
            return None;
        }
        Some(batch.send_all(parts.arc.next(interface, END)))
    }
}

/// Checks packets that leave.
#[derive(Clone)]
struct Tx<F: Family>(Parts<F>);

impl<F: Sources> Node<Shared> for Tx<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.0.refresh(cx);
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let Self(parts) = self;
        let interface = IfIndex(packet.aux());
        let next = parts.arc.next(interface, END);
        if packet.has(flags::LOCAL) {
            return next;
        }
        let check = parts.checks.get().get(Direction::Tx, interface);
        let fib = parts.fib_of(check, interface);
        let passes = F::source_behind(&packet, check.link_header).is_some_and(|source| {
            let reach = parts.egress.reach(fib, source, interface);
            let known = reach.any || parts.checks.get().accepts(fib, source);
            known && !(parts.strict && reach.same)
        });
        if passes { next } else { packet.drop(Drop::Source) }
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "uRPF: from sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares the nodes and features of a family.
///
/// # Errors
/// The graph's.
pub fn declare<F: Sources>(router: &mut Router, egress: &Egress<F>, checks: &Published<Checks<F>>) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for direction in [Direction::Rx, Direction::Tx] {
        for mode in [Mode::Strict, Mode::Loose] {
            let Some((arc, name)) = feature(F::ID, direction, mode) else { continue };
            let point = ArcPoint::new();
            let parts = Parts {
                checks: checks.snapshot(),
                interfaces: router.data.interfaces.clone(),
                egress: egress.clone(),
                strict: mode == Mode::Strict,
                arc: point.clone(),
            };
            let (node, end) = match (direction, F::ID) {
                (Direction::Rx, FamilyId::V4) => (NodeSpec::fast(name, Rx(parts)), "ip4-lookup"),
                (Direction::Rx, FamilyId::V6) => (NodeSpec::fast(name, Rx(parts)), "ip6-lookup"),
                (Direction::Tx, _) => (NodeSpec::node(name, Tx(parts)), "interface-output-end"),
            };
            nodes.push(node.with_next(end).on_arc(arc, point).traced(trace));
            // Sources are checked as they are on the wire: before NAT changes them.
            let before = match (direction, F::ID) {
                (Direction::Rx, FamilyId::V4) => {
                    vec!["nat44-ed-out2in-handoff", "nat44-ed-out2in", "nat44-ed-in2out-handoff", "nat44-ed-in2out"]
                }
                _ => Vec::new(),
            };
            features.push(FeatureSpec { arc, node: name.into(), before, after: Vec::new() });
        }
    }
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
