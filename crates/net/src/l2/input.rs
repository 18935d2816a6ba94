//! `l2-input`: where do frames of a layer-2 interface go? Cross-connects are decided here.

use quiver_graph::{Group, LoopConfig, NoDrops, NoNext, Node, NodeSpec, Pkt, Sent, Verdict};

use crate::Router;
use crate::data::IfTable;

/// The node. What the aux lane gets (the peer of a cross-connect) and the slot that leads on are one word of the interface's
/// record.
struct L2Input {
    interfaces: IfTable,
}

impl Node for L2Input {
    type Next = NoNext;
    type Drop = NoDrops;
    type In = (u32, u16);
    type Out = (u32, u16);

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> (u32, u16) {
        let (peer, slot) = self.interfaces.l2(packet.rx_if());
        (peer.0, slot)
    }

    #[inline(always)]
    fn compute(&self, input: (u32, u16)) -> (u32, u16) {
        input
    }

    const LOOP: LoopConfig = LoopConfig::GROUPS;
    const GROUPS: bool = true;

    #[inline(always)]
    fn group<const W: usize>(&mut self, group: &mut Group<'_, W>) -> Option<Sent> {
        let rx = group.first_rx_if();
        if !group.all_plain_from(rx.0) {
            return None;
        }
        let (peer, slot) = self.interfaces.l2(rx);
        group.set_aux([peer.0; W]);
        Some(group.send_all(Verdict::slot(slot)))
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, _: (u32, u16), (peer, slot): (u32, u16)) -> Verdict {
        packet.set_aux(peer);
        Verdict::slot(slot)
    }
}

pub(super) fn spec(router: &Router) -> NodeSpec {
    let interfaces = router.data.interfaces.clone();
    NodeSpec::staged("l2-input", move |_| L2Input { interfaces: interfaces.clone() }).takes_shared().traced(|entry, out| {
        use std::fmt::Write;
        let _ = write!(out, "l2-input: sw_if_index {}, to sw_if_index {}", entry.rx_if, entry.aux);
    })
}
