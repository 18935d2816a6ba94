//! `vrrp4-arp`: requests for virtual addresses are answered with the virtual MAC address, by the master alone.

use std::net::Ipv4Addr;

use quiver_graph::{ArcPoint, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons};
use quiver_wire::arp::{ArpHeader, ArpOperation};

use super::Index;

drop_reasons! {
    /// How requests for virtual addresses end.
    pub enum End {
        /// A request for a virtual address was answered.
        Replies = "ARP replies sent for virtual addresses" (info),
        /// A request for the address of a virtual router whose master is another router.
        NotMaster = "not the master of the virtual address",
    }
}

/// Slot of the end of the arc: declared first.
const END: Verdict = Verdict::slot(1);
/// Slot of `neighbor-output`.
const TO_OUTPUT: Verdict = Verdict::slot(2);

/// The node.
#[derive(Clone)]
pub struct Arp {
    pub(super) index: Snapshot<Index>,
    pub(super) arc: ArcPoint,
}

impl Node for Arp {
    type Next = NoNext;
    type Drop = End;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.index.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = packet.rx_if();
        let on = self.arc.next(interface, END);
        let message: ArpHeader = packet.head();
        if message.operation() != ArpOperation::REQUEST || message.is_gratuitous() {
            return on;
        }
        let target = Ipv4Addr::from_bits(message.target_ip.get());
        match self.index.get().addresses.get(&(interface, target.into())) {
            Some(address) if address.is_master() => {
                if !address.station.answer_arp(&mut packet) {
                    return on;
                }
                cx.count(End::Replies, 1);
                TO_OUTPUT
            }
            // Main takes the address back a moment after the virtual router has.
            Some(address) if !address.own => packet.drop(End::NotMaster),
            _ => on,
        }
    }
}
