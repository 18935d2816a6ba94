//! `l2-flood`: copies for every port of the domain but the one that the frame came in on and those of its split-horizon group.

use quiver_graph::{IfIndex, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, flags, next_nodes};

use super::bridge::flood_kind;
use super::domain::{Domains, FloodPort};
use super::port::PortTable;

next_nodes! {
    /// Where frames go; output nodes are added at run time.
    pub enum Next { Bvi = "l2-bvi" }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// The bridge domain has no other port to flood to.
        ///
        /// Causes: the bridge domain has one port only, or the others are down or in the same split-horizon group.
        /// Check: `show bridge-domain ID detail`.
        /// See: `show bridge-domain`.
        NoPort = "L2 flood, no port to send to",
        /// No packet buffer was free for the copy to one of the ports.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`.
        NoBuffer = "L2 flood, no buffer for a copy",
    }
}

/// The node.
#[derive(Clone)]
pub(super) struct Flood {
    ports: PortTable,
    domains: Snapshot<Domains>,
    /// The packet being copied.
    bytes: Vec<u8>,
    /// Where it goes.
    targets: Vec<(IfIndex, Verdict)>,
}

impl Flood {
    pub fn new(ports: PortTable, domains: Snapshot<Domains>) -> Self {
        Self { ports, domains, bytes: Vec::new(), targets: Vec::new() }
    }

    /// Fills `targets` for a frame of `rx`.
    fn choose(&mut self, rx: IfIndex, kind: u32) {
        self.targets.clear();
        let port = self.ports.get(rx);
        let Some(domain) = self.domains.get().get(port.domain()) else { return };
        let target = |p: &FloodPort| (p.interface, p.slot);
        if kind == flood_kind::BACK {
            self.targets.extend(domain.ports.iter().filter(|p| p.interface == rx).map(target));
            return;
        }
        let apart = |p: &&FloodPort| p.interface != rx && (p.group == 0 || p.group != port.group());
        if kind == flood_kind::UNKNOWN
            && let Some(forward) = &domain.unknown
        {
            self.targets.extend(Some(forward).filter(apart).map(target));
            return;
        }
        // The BVI's own address is always known, so that what is unknown is not for it.
        let wanted = |p: &&FloodPort| p.floods && !(p.is_bvi && kind == flood_kind::UNKNOWN);
        self.targets.extend(domain.ports.iter().filter(apart).filter(wanted).map(target));
    }
}

impl Node for Flood {
    type Next = Next;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.domains.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let rx = packet.rx_if();
        self.choose(rx, packet.aux());
        let Some(((last, last_slot), others)) = self.targets.split_last() else { return packet.drop(Drop::NoPort) };
        packet.set_aux(last.0);
        if others.is_empty() {
            return *last_slot;
        }
        self.bytes.clear();
        packet.for_each_segment(|bytes| self.bytes.extend_from_slice(bytes));
        let unfinished = packet.unfinished_checksum();
        let multicast = packet.context() & flags::LINK_MULTICAST;
        for (interface, slot) in others {
            let Some(mut copy) = cx.alloc_bytes(&self.bytes, rx) else {
                cx.count(Drop::NoBuffer, 1);
                continue;
            };
            let mut view = cx.view(&mut copy);
            view.set_aux(interface.0);
            view.mark(multicast);
            if let Some((start, offset)) = unfinished {
                view.set_unfinished_checksum(start, offset);
            }
            cx.emit(*slot, copy);
        }
        *last_slot
    }
}
