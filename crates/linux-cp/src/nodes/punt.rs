//! `linux-cp-punt`: frames for Linux, to the TAP interface of the pair.

use quiver_graph::{NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons};

use super::Pairs;
use crate::table::ADDRESSES;

drop_reasons! {
    /// Why packets do not reach Linux.
    pub enum Drop {
        /// The interface is not mirrored into Linux.
        ///
        /// Causes: a packet for a daemon in Linux came in on an interface that is not mirrored.
        /// Check: `show lcp`, then `lcp create IF host-if NAME`.
        /// See: `show lcp`, `lcp create`.
        NoPair = "interface has no pair",
        /// The packet has no Ethernet header any more, which Linux would need.
        NoHeader = "ethernet header is gone",
    }
}

/// The node. The aux lane says how many bytes of the frame's link header stand in front of the data: nodes that took a packet's
/// headers off have left them there. Tags of a sub-interface are taken out: its host interface has none.
#[derive(Clone)]
pub struct Punt {
    pub(super) pairs: Pairs,
}

impl Node for Punt {
    type Next = NoNext;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let Some(host) = self.pairs.get().host_of(packet.rx_if()) else { return packet.drop(Drop::NoPair) };
        let back = packet.aux() as usize;
        if !packet.push(back) {
            return packet.drop(Drop::NoHeader);
        }
        if !host.tags.is_empty() {
            let addresses: [u8; ADDRESSES] = packet.head();
            if !packet.pull(host.tags.len()) {
                return packet.drop(Drop::NoHeader);
            }
            packet.set_head(addresses);
        }
        packet.set_aux(host.interface.0);
        host.slot
    }
}
