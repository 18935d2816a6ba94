//! `linux-cp-punt-ethernet`: frames that the router has no use for and Linux has: IEEE 802.2 (IS-IS), LLDP, and what else was
//! asked for.

use quiver_graph::{Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::ethernet::EtherType;

use super::Pairs;

next_nodes! {
    /// Where frames go.
    pub enum Next { Punt = "linux-cp-punt" }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// Frames with this EtherType do not go to Linux (`lcp ethertype enable`).
        UnknownType = "ethernet type not enabled",
        /// The interface is not mirrored into Linux.
        NoPair = "interface has no pair",
    }
}

/// The node.
#[derive(Clone)]
pub struct Unknown {
    pub(super) pairs: Pairs,
}

impl Node for Unknown {
    type Next = Next;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let pairs = self.pairs.get();
        // A TUN device has no frames.
        let Some(host) = pairs.host_of(packet.rx_if()).filter(|host| !host.tun) else { return packet.drop(Drop::NoPair) };
        // Behind the tags; a frame that ends before reads as 0, which is no LLC length.
        let at = 12 + host.tags.len();
        let ether_type = packet.bytes().get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let llc = (1..EtherType::FIRST_TYPE.0).contains(&ether_type);
        if !llc && !pairs.takes(ether_type) {
            return packet.drop(Drop::UnknownType);
        }
        packet.set_aux(0);
        Next::Punt.into()
    }
}
