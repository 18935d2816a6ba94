//! `linux-cp-arp-phy`: ARP messages that Linux must see, as copies. Requests for the router's own addresses are answered by the
//! router alone.

use quiver_graph::{ArcPoint, Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_net::data::IfTable;
use quiver_net::ip::{Egress4, Way};
use quiver_wire::arp::{ArpHeader, ArpOperation};

use super::{Copier, Pairs};
use crate::table::Other;

next_nodes! {
    /// Where messages go.
    pub enum Next { Punt = "linux-cp-punt", Reply = "arp-reply" }
}

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// An ARP message passed on its way to the router.
        Packets = "ARP packets processed" (info),
        /// An ARP message was also given to Linux.
        Copies = "ARP packets copied to the host" (info),
        /// No packet buffer was free for the copy to Linux.
        NoBuffer = "no buffer for a copy",
    }
}

/// The node.
#[derive(Clone)]
pub struct Arp {
    pub(super) pairs: Pairs,
    pub(super) interfaces: IfTable,
    pub(super) egress: Egress4,
    pub(super) arc: ArcPoint,
    pub(super) copier: Copier,
}

impl Node for Arp {
    type Next = Next;
    type Drop = Event;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.pairs.refresh();
        self.egress.refresh(cx);
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        cx.count(Event::Packets, 1);
        let rx_if = packet.rx_if();
        let on = self.arc.next(rx_if, Next::Reply.into());
        let Some(back) = self.pairs.get().host_of(rx_if).filter(|host| !host.tun).map(Other::header_len) else { return on };
        let message: ArpHeader = packet.head();
        let ours = || self.egress.find(self.interfaces.fibs(rx_if).0, message.target_ip.get()) == Way::Local;
        if message.operation() == ArpOperation::REQUEST && ours() {
            return on;
        }
        match self.copier.copy(cx, &mut packet, back) {
            Some(copy) => {
                cx.count(Event::Copies, 1);
                cx.emit(Next::Punt, copy);
            }
            None => cx.count(Event::NoBuffer, 1),
        }
        on
    }
}
