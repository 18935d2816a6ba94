//! `l2-input`: where do frames of a layer-2 interface go? Cross-connects are decided here.

use quiver_graph::{Batch, FastPath, NoDrops, NoNext, Node, NodeCx, NodeSpec, Pkt, Sent, Shared, Verdict, flags};

use crate::Router;
use crate::data::IfTable;

/// The node. What the aux lane gets (the peer of a cross-connect) and the slot that leads on are one word of the interface's
/// record.
#[derive(Clone)]
pub struct L2Input {
    interfaces: IfTable,
}

impl Node<Shared> for L2Input {
    type Next = NoNext;
    type Drop = NoDrops;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let (peer, slot) = self.interfaces.l2(packet.rx_if());
        packet.set_aux(peer.0);
        Verdict::slot(slot)
    }
}

impl FastPath<Shared> for L2Input {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let rx = batch.first_rx_if();
        if !batch.all_from(rx, flags::LOCAL) {
            return None;
        }
        let (peer, slot) = self.interfaces.l2(rx);
        batch.set_aux([peer.0; W]);
        Some(batch.send_all(Verdict::slot(slot)))
    }
}

pub(super) fn spec(router: &Router) -> NodeSpec {
    let interfaces = router.data.interfaces.clone();
    NodeSpec::fast("l2-input", L2Input { interfaces }).traced(|entry, out| {
        use std::fmt::Write;
        let _ = write!(out, "l2-input: sw_if_index {}, to sw_if_index {}", entry.rx_if, entry.aux);
    })
}
