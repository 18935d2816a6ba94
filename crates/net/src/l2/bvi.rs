//! `l2-bvi`: frames for the router itself leave the bridge and come in on the domain's BVI, as if by Ethernet.

use std::sync::Arc;

use quiver_graph::{IfIndex, InterfaceCounters, Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::ethernet::{EtherType, EthernetHeader};

use crate::data::{IfTable, if_flags};

next_nodes! {
    /// Where packets go.
    pub enum Next { Ip4 = "ip4-input", Ip6 = "ip6-input", Arp = "arp-input" }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// The bridge's own interface (BVI) is down.
        ///
        /// Causes: the interface of the bridge domain was never set up.
        /// Check: `set interface state IF up` for the BVI.
        /// See: `show bridge-domain`, `set interface state IF up`.
        Down = "BVI is down",
        /// A frame for one host reached the BVI and has another MAC address than the BVI's.
        OtherMac = "BVI L3 mac mismatch",
        /// A frame for the BVI is neither IP nor ARP.
        UnknownType = "BVI unknown ethernet type",
    }
}

/// The node; the aux lane names the BVI.
#[derive(Clone)]
pub(super) struct ToBvi {
    pub interfaces: IfTable,
    pub counters: Arc<InterfaceCounters>,
}

impl Node for ToBvi {
    type Next = Next;
    type Drop = Drop;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let bvi = IfIndex(packet.aux());
        let header: EthernetHeader = packet.head();
        let record = self.interfaces.get(bvi);
        if record.flags & if_flags::UP == 0 {
            return packet.drop(Drop::Down);
        }
        if header.dst != record.mac && !header.dst.is_multicast() {
            return packet.drop(Drop::OtherMac);
        }
        let next = match header.ether_type() {
            EtherType::IPV4 => Next::Ip4,
            EtherType::IPV6 => Next::Ip6,
            EtherType::ARP => Next::Arp,
            _ => return packet.drop(Drop::UnknownType),
        };
        self.counters.rx.add(cx.thread(), bvi.0, 1, packet.total_len() as u64);
        packet.set_rx_if(bvi);
        // Frames have at least a link header: `ethernet-input` saw to it.
        packet.pull(size_of::<EthernetHeader>());
        next.into()
    }
}
