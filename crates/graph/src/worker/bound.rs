//! The end of an iteration, whatever the packets do.
//!
//! A packet that is forwarded passes a bounded number of nodes: its TTL ends every loop that routes. What goes round
//! without a TTL (frames between loopbacks, a plugin's nodes that send to one another) would keep the thread for good, and the
//! packets with it. So the loop that runs nodes counts, in two steps:
//!
//! ```text
//!   the first 512 calls    one comparison a call, with a figure that is counted anyway
//!   after them             rounds: each packet that waits when a round begins passes a node (or a fused chain) in it
//!                            ├─ 8,192 rounds: every packet that waits has passed as many nodes. It loops.
//!                            └─ visits (a packet at a node): the loop makes more packets of each, round by round
//! ```
//!
//! At either bound the packets that still wait are dropped by `packet-loop` for the reason `packet loop`; those that wait for a
//! node where packets leave the graph (a device's tx node, `error-drop`) go there. Their buffers are free then, and the next
//! iteration begins.
//!
//! What legal packets need: 255 times around a loop of routes over loopbacks, at up to 30 nodes each, is 7,650 rounds. Copies
//! (flooding, fragments) are at most as many as there are buffers, and pass a few nodes each.
//!
//! Loops that leave the iteration do not hang it and are not meant here: packets handed from worker to worker and back, a memif
//! or a pair of TAPs that is connected to itself. There each turn is an iteration of its own, and a full ring drops.

use crate::context::PACKET_LOOP;

use super::run::{Run, Waiting};

/// Calls of nodes after which it is looked closely.
pub(super) const LONG: u64 = 512;
/// Nodes that no packet passes in one iteration.
const ROUNDS: u32 = 8192;
/// Visits for each packet of a full vector.
const VISITS_PER_PACKET: u64 = 8192;
/// Visits for each buffer: a packet and its copies.
const VISITS_PER_BUFFER: u64 = 16;

impl Run<'_> {
    /// Goes on with an iteration that has become long: until no frame waits, or what waits loops.
    #[cold]
    #[inline(never)]
    pub(super) fn drain_long(&mut self, alone: Option<Waiting>) {
        let core = &mut self.cx.core;
        let buffers = u64::from(core.region.indices());
        let visits = VISITS_PER_PACKET * core.queue.vector_size as u64 + VISITS_PER_BUFFER * buffers;
        let end = self.figures.vectors + visits;
        self.put_back(alone);
        for _ in 0..ROUNDS {
            let frames = self.cx.core.queue.begin_round();
            if frames == 0 {
                return;
            }
            for _ in 0..frames {
                let Some((node, frame)) = self.cx.core.queue.pop() else { break };
                let alone = self.dispatch(node, frame);
                self.put_back(alone);
            }
            if self.figures.vectors >= end {
                break;
            }
        }
        self.end_loops();
    }

    /// Lets a frame wait: nothing else does.
    fn put_back(&mut self, alone: Option<Waiting>) {
        if let Some((node, frame)) = alone {
            self.cx.core.queue.hand_over(node, frame);
        }
    }

    /// Drops what waits. It ends: nodes run from here on send to `error-drop` alone.
    fn end_loops(&mut self) {
        while let Some((node, frame)) = self.cx.core.queue.pop() {
            let node = if self.places[usize::from(node)].ends() { node } else { PACKET_LOOP };
            let alone = self.dispatch(node, frame);
            self.put_back(alone);
        }
    }
}
