//! `linux-cp-dhcp`: answers of a DHCP server to an interface that has no IPv4 address yet, to Linux.
//!
//! A server sends its offer to the address that it offers (RFC 2131, 4.1). Nobody has that address before the client has read the offer,
//! so the router would route the packet. Clients of Linux listen beneath the address, and so does this feature: it is on while an interface with
//! a host interface has no IPv4 address. From then on answers come to the router's own address, as any packet.

use quiver_graph::{ArcPoint, NoDrops, NoNext, Node, NodeCx, Pkt, Verdict};
use quiver_net::ip::FamilyId;
use quiver_net::local::upper_layer;
use quiver_wire::ipv4::IpProtocol;

use super::Pairs;
use crate::table::Other;

/// Slot of `linux-cp-punt`: declared first.
const TO_PUNT: Verdict = Verdict::slot(1);
/// Slot of the end of the arc.
const TO_LOOKUP: Verdict = Verdict::slot(2);
/// Ports of a server and of a client.
const PORTS: [u8; 4] = [0, 67, 0, 68];

/// The node.
#[derive(Clone)]
pub struct Dhcp {
    pub(super) pairs: Pairs,
    pub(super) arc: ArcPoint,
}

impl Node for Dhcp {
    type Next = NoNext;
    type Drop = NoDrops;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let on = self.arc.next(packet.rx_if(), TO_LOOKUP);
        let Some(back) = self.pairs.get().host_of(packet.rx_if()).map(Other::header_len) else { return on };
        let is_answer = upper_layer(FamilyId::V4, &packet).is_some_and(|(protocol, offset)| {
            protocol == IpProtocol::UDP && packet.bytes().get(offset..).is_some_and(|udp| udp.starts_with(&PORTS))
        });
        if !is_answer {
            return on;
        }
        packet.set_aux(back as u32);
        TO_PUNT
    }
}
