//! `linux-cp-punt-ip4`, `linux-cp-punt-ip6`: packets for this router, to Linux but for those that the data plane answers itself.

use quiver_graph::{ArcPoint, NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons, flags};
use quiver_net::ip::FamilyId;
use quiver_net::local::{LocalTakers, upper_layer};
use quiver_wire::ipv4::IpProtocol;

use super::{Copier, Pairs};
use crate::table::Other;

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// A packet for the router was also given to Linux.
        Copies = "packets copied to the host" (info),
        /// No packet buffer was free for the copy to Linux.
        NoBuffer = "no buffer for a copy",
    }
}

/// Slot of `linux-cp-punt`: declared first.
const TO_PUNT: Verdict = Verdict::slot(1);
/// Slot of the end of the arc, where the data plane's own services are.
const TO_LOCAL: Verdict = Verdict::slot(2);

/// Who gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Router,
    Linux,
    Both,
}

/// The node.
#[derive(Clone)]
pub struct Local {
    pub(super) family: FamilyId,
    pub(super) pairs: Pairs,
    pub(super) upper: LocalTakers,
    pub(super) arc: ArcPoint,
    pub(super) copier: Copier,
}

impl Local {
    /// What a node of this program listens to stays here. Of ICMP, Linux has the echo; errors and answers go to both, since
    /// either may have sent what they are about, and so do neighbour discovery and questions for groups, since both have neighbours
    /// and groups.
    fn whose(&self, packet: &Pkt<'_>) -> Whose {
        // Fragments: Linux puts them together.
        let Some((protocol, offset)) = upper_layer(self.family, packet) else { return Whose::Linux };
        let behind = packet.bytes().get(offset..).unwrap_or_default();
        match (protocol, behind) {
            (IpProtocol::ICMP, [kind, ..]) if self.family == FamilyId::V4 => icmp4(*kind),
            (IpProtocol::ICMPV6, [kind, ..]) if self.family == FamilyId::V6 => icmp6(*kind),
            (IpProtocol::UDP, [_, _, high, low, ..]) if self.upper.takes_udp(packet, u16::from_be_bytes([*high, *low])) => {
                Whose::Router
            }
            (IpProtocol::ICMP | IpProtocol::ICMPV6 | IpProtocol::UDP, _) => Whose::Linux,
            (IpProtocol::IGMP, _) if self.family == FamilyId::V4 => Whose::Both,
            (protocol, _) if self.upper.has_protocol(protocol) => Whose::Router,
            _ => Whose::Linux,
        }
    }
}

fn icmp4(kind: u8) -> Whose {
    match kind {
        // Echo reply, unreachable, redirect, time exceeded, parameter problem.
        0 | 3 | 5 | 11 | 12 => Whose::Both,
        _ => Whose::Linux,
    }
}

fn icmp6(kind: u8) -> Whose {
    match kind {
        // Errors, echo reply, queries for groups, neighbour discovery.
        1..=4 | 129 | 130 | 133..=137 => Whose::Both,
        _ => Whose::Linux,
    }
}

impl Node for Local {
    type Next = NoNext;
    type Drop = Event;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let on = self.arc.next(packet.rx_if(), TO_LOCAL);
        // What this router sends itself stays here.
        if packet.has(flags::LOCAL) {
            return on;
        }
        let Some(back) = self.pairs.get().host_of(packet.rx_if()).map(Other::header_len) else { return on };
        match self.whose(&packet) {
            Whose::Router => on,
            Whose::Linux => {
                packet.set_aux(back as u32);
                TO_PUNT
            }
            Whose::Both => {
                match self.copier.copy(cx, &mut packet, back) {
                    Some(copy) => {
                        cx.count(Event::Copies, 1);
                        cx.emit(TO_PUNT, copy);
                    }
                    None => cx.count(Event::NoBuffer, 1),
                }
                on
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_is_answered_by_linux_and_neighbour_discovery_is_for_both() {
        assert_eq!([8, 13, 0, 3, 11].map(icmp4), [Whose::Linux, Whose::Linux, Whose::Both, Whose::Both, Whose::Both]);
        assert_eq!([128, 131, 143].map(icmp6), [Whose::Linux; 3]);
        assert_eq!([1, 2, 129, 130, 134, 135, 136].map(icmp6), [Whose::Both; 7]);
    }
}
