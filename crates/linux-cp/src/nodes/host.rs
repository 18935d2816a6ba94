//! `linux-cp-xc`: frames that Linux sends leave on the router's interface as they are. Packets of a TUN device are routed where that
//! interface has Ethernet headers, which only the FIB can give them.

use quiver_graph::{ArcPoint, Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};

use super::Pairs;
use crate::table::ADDRESSES;

next_nodes! {
    /// Where frames go; output nodes are added at run time.
    pub enum Next { Ethernet = "ethernet-input" }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// There is no room in front of Linux' frame for VLAN tags.
        NoRoom = "no room for tags",
        /// Linux' frame is shorter than an Ethernet header.
        Short = "ethernet frame too short",
    }
}

/// The node. A sub-interface's tags are put in.
#[derive(Clone)]
pub struct Host {
    pub(super) pairs: Pairs,
    pub(super) arc: ArcPoint,
}

impl Node for Host {
    type Next = Next;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let rx_if = packet.rx_if();
        let Some(phy) = self.pairs.get().phy_of(rx_if) else { return self.arc.next(rx_if, Next::Ethernet.into()) };
        if phy.tun {
            // As if it had come in there: its table, its features.
            packet.set_rx_if(phy.interface);
            return phy.slot;
        }
        let tags = phy.tags.bytes();
        if !tags.is_empty() {
            let addresses: [u8; ADDRESSES] = packet.head();
            if !packet.push(tags.len()) {
                return packet.drop(Drop::NoRoom);
            }
            packet.set_head(addresses);
            let Some(place) = packet.bytes_mut().get_mut(ADDRESSES..ADDRESSES + tags.len()) else {
                return packet.drop(Drop::Short);
            };
            place.copy_from_slice(tags);
        }
        packet.set_aux(phy.interface.0);
        phy.slot
    }
}
