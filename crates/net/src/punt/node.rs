//! `ip4-punt`, `ip6-punt`: packets that routes punt, and those for this router that its nodes do not take.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::{ArcPoint, ArcSpec, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Snapshot, Verdict, drop_reasons, flags};

use super::clients::{Clients, Room};
use super::tables::{PuntTables, Punted, RedirectTable};
use crate::fib::records::{Class, LbTable};
use crate::ip::{Family, FamilyId, icmp_aux};
use crate::local::header::{Behind, LocalFamily, PROBLEM6, node_name};
use crate::{Router, trace};

drop_reasons! {
    /// What becomes of punted packets.
    pub enum PuntReason {
        /// The route says to hand the packet to the host (`via punt`), and no redirect or socket takes it.
        ByRoute = "punted by a route" (info),
        /// The packet's port is punted (`set punt`), and no redirect takes it.
        ///
        /// Causes: `set punt` without a redirect for the interface that the packet came in on.
        /// Check: `show ip punt redirect`; add one with `ip punt redirect add`.
        /// See: `show ip punt redirect`, `ip punt redirect`, `set punt`.
        NoRedirect = "punted without a redirect",
        /// The packet left by a redirect (`ip punt redirect`).
        Redirected = "punted packets redirected" (info),
        /// The packet went to a program's socket (`punt socket register`).
        SocketTx = "Socket TX" (info),
        /// The packet's port, protocol or reason is that of a program's socket, and the program does not take it.
        ///
        /// Causes: the program has ended or does not read its socket; the router's user may not write to the socket.
        /// Check: `show punt socket registrations` for the path; owner and mode of the socket.
        /// See: `show punt socket registrations`, `punt socket register`.
        SocketTxError = "Socket TX error",
        /// A packet of a protocol that nobody takes gets an ICMP error.
        ProtocolUnreachable = "protocol unreachable asked for" (info),
        /// The packet is for a group, its protocol is one that the router does not handle, and there is no redirect for it.
        ///
        /// Causes: a routing protocol on the link (OSPF, PIM), of which this router is no part.
        /// Check: nothing; or redirect such packets from the interface: `ip punt redirect add`.
        /// See: `show ip punt redirect`, `show ip local`.
        UnknownProtocol = "unknown ip protocol",
    }
}

/// Where packets end that nobody takes, behind the nodes of a lookup.
const END: &str = "error-punt";

/// Arcs of features that punted packets pass.
const ARCS: [&str; 2] = ["ip4-punt", "ip6-punt"];
/// The node behind these features.
const REDIRECT: &str = "punt-redirect";

/// The arcs of punted packets.
pub(crate) fn arcs() -> [ArcSpec; 2] {
    [FamilyId::V4, FamilyId::V6].map(|family| ArcSpec {
        name: ARCS[family as usize],
        starts: vec![ARCS[family as usize].into()],
        end: node_name(family, REDIRECT),
    })
}

/// The node. The aux lane: 0 from a lookup, else where the upper layer of a packet for this router begins, bytes from its IP header.
#[derive(Clone)]
pub(super) struct IpPunt<F: Family> {
    redirects: Snapshot<Arc<RedirectTable>>,
    load_balances: LbTable,
    asked: PuntTables,
    clients: Snapshot<Arc<Clients>>,
    room: Room,
    /// Slots behind those that are ordered as [`Class`].
    end: Verdict,
    icmp_error: Verdict,
    /// Features that packets pass first; none of the node behind them.
    arc: Option<ArcPoint>,
    family: PhantomData<F>,
}

impl<F: LocalFamily> Node for IpPunt<F> {
    type Next = NoNext;
    type Drop = PuntReason;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.redirects.refresh();
        self.clients.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        // Features are of the router as a whole, so of local0.
        let feature = self.arc.as_ref().map_or(Verdict::DROP, |arc| arc.next(IfIndex::LOCAL0, Verdict::DROP));
        if feature != Verdict::DROP {
            return feature;
        }
        let from_route = packet.aux() == 0;
        if !self.clients.get().is_empty() && !from_route {
            match self.offer(&packet) {
                Some(true) => {
                    cx.count(PuntReason::SocketTx, 1);
                    let (packet, taken) = packet.take();
                    cx.free(packet);
                    return taken;
                }
                Some(false) => return packet.drop(PuntReason::SocketTxError),
                None => {}
            }
        }
        if let Some(lb) = self.redirects.get().find(packet.rx_if()) {
            let bucket = self.load_balances.choose(lb, |_| pair_hash::<F>(&packet));
            // A redirect leads to a link or, while that is down, nowhere; never back here.
            if bucket.class() != Class::Punt {
                cx.count(PuntReason::Redirected, 1);
                // It goes on as it came: its time to live is not this router's, and may be 1.
                packet.mark(flags::LOCAL);
                packet.set_aux(bucket.index());
                return Verdict::slot(bucket.slot() + 1);
            }
        }
        if from_route {
            return self.finish(packet, PuntReason::ByRoute);
        }
        let Behind::Upper { protocol, offset, pointer } = F::behind(&packet) else {
            return self.finish(packet, PuntReason::NoRedirect);
        };
        let upper = packet.bytes().get(usize::from(offset)..).unwrap_or_default();
        if self.asked.asked(protocol, upper) != Punted::No {
            return self.finish(packet, PuntReason::NoRedirect);
        }
        if F::is_group(F::addresses(&packet).1) {
            return packet.drop(PuntReason::UnknownProtocol);
        }
        cx.count(PuntReason::ProtocolUnreachable, 1);
        packet.set_aux(match F::ID {
            FamilyId::V4 => icmp_aux(3, quiver_wire::icmp4::unreachable::PROTOCOL, 0),
            FamilyId::V6 => icmp_aux(PROBLEM6, quiver_wire::icmp6::parameter_problem::NEXT_HEADER, pointer),
        });
        self.icmp_error
    }
}

impl<F: LocalFamily> IpPunt<F> {
    /// Sends a packet to its client: whether that takes it; `None` where it has none.
    fn offer(&mut self, packet: &Pkt<'_>) -> Option<bool> {
        let Behind::Upper { protocol, offset, .. } = F::behind(packet) else { return None };
        let clients = self.clients.get();
        let client = clients.find(F::ID, protocol, packet.bytes().get(usize::from(offset)..)?)?;
        Some(clients.send(packet, client, &mut self.room).is_ok())
    }

    fn finish(&self, mut packet: Pkt<'_>, reason: PuntReason) -> Verdict {
        let code = packet.drop_code(reason);
        packet.set_aux(code);
        self.end
    }
}

/// Packets between two hosts take the same of several paths.
fn pair_hash<F: LocalFamily>(packet: &Pkt<'_>) -> u32 {
    let (src, dst) = F::addresses(packet);
    let number = |address| match F::address(address) {
        IpAddr::V4(a) => a.to_bits(),
        IpAddr::V6(a) => a.segments().chunks(2).fold(0, |sum, s| sum ^ (u32::from(s[0]) << 16 | u32::from(s[1]))),
    };
    // Multiplication carries differences upwards (Knuth's constant); the high half is the better one.
    (number(src) ^ number(dst).rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 16
}

/// The nodes of a family.
pub(super) fn nodes<F: LocalFamily>(router: &Router, part: &super::Punt) -> Vec<NodeSpec> {
    use quiver_graph::NextNodes as _;
    let targets = F::LookupNext::NAMES;
    let slot = |n: usize| Verdict::slot((targets.len() + n) as u16);
    let node = IpPunt::<F> {
        redirects: part.families[F::ID as usize].published.snapshot(),
        load_balances: router.data.load_balances.clone(),
        asked: part.families[F::ID as usize].tables.clone(),
        clients: part.clients.snapshot(),
        room: Room::new(),
        end: slot(1),
        icmp_error: slot(2),
        arc: None,
        family: PhantomData,
    };
    let finish = |name: &str, node| {
        let spec = NodeSpec::node(node_name(F::ID, name), node);
        let spec = targets.iter().fold(spec, |spec, name| spec.with_next(*name));
        spec.with_next(END).with_next(node_name(F::ID, "icmp-error")).traced(trace::ip(F::ID))
    };
    let point = ArcPoint::new();
    let first = IpPunt { arc: Some(point.clone()), ..node.clone() };
    let arc = if F::ID == FamilyId::V4 { ARCS[0] } else { ARCS[1] };
    vec![finish(super::tables::NODES[0], first).on_arc(arc, point), finish(REDIRECT, node)]
}
