//! `error-drop` and `error-punt`: where packets end, counted by reason; `null-node` and `packet-loop`, which send them there.

use std::sync::Arc;

use crate::capture::CapturePoint;
use crate::context::NodeCx;
use crate::elog::EventKind;
use crate::frame::Frame;
use crate::memory::Shared;
use crate::node::{NoNext, Node, VectorNode, Verdict};
use crate::packet::Pkt;
use crate::stats::SimpleCounters;
use crate::{IfIndex, drop_reasons};

drop_reasons! {
    /// What happens at the end itself.
    pub enum DropError {
        /// A node dropped the packet and named no reason.
        Unknown = "dropped without a reason",
    }
}

/// Counts every packet by the reason in its aux lane and by its rx interface, and frees it.
pub(crate) struct ErrorDrop {
    /// The interface counter that counts here.
    pub counter: Arc<SimpleCounters>,
}

impl VectorNode<Shared> for ErrorDrop {
    type Next = NoNext;
    type Drop = DropError;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        cx.trace_here(frame);
        if cx.core.captures.active() {
            for i in 0..frame.len {
                let time = cx.core.now;
                // SAFETY: i < len, and the frame is exclusively borrowed.
                let mut packet = unsafe { Pkt::of_lane(frame, i, &cx.env) };
                // The headers that nodes have taken off still lie before the data: a capture shows the whole packet.
                let taken_off = packet.span().offset().saturating_sub(quiver_buffer::HEADROOM);
                packet.push(taken_off);
                let rx_if = packet.rx_if();
                cx.core.captures.copy(CapturePoint::Drop, rx_if, time, &packet);
            }
        }
        let thread = cx.core.thread;
        // Runs of equal reason and interface are counted once.
        let mut i = 0;
        while i < frame.len {
            let key = (frame.aux[i], frame.context[i] & crate::frame::IF_MASK);
            let mut n = 1;
            while i + n < frame.len && (frame.aux[i + n], frame.context[i + n] & crate::frame::IF_MASK) == key {
                n += 1;
            }
            cx.core.errors.add(thread, key.0, n as u64);
            self.counter.add(thread, IfIndex(key.1).0, n as u64);
            i += n;
        }
        cx.core.free_frame(frame);
    }
}

drop_reasons! {
    /// Why `null-node` drops.
    pub enum NullDrop {
        /// The packet was sent to `null-node`, which drops everything.
        Blackholed = "blackholed packets",
    }
}

/// End of edges whose node has been removed while packets were on their way.
#[derive(Clone)]
pub(crate) struct NullNode;

impl Node<Shared> for NullNode {
    type Next = NoNext;
    type Drop = NullDrop;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        packet.drop(NullDrop::Blackholed)
    }
}

drop_reasons! {
    /// Why `packet-loop` drops.
    pub enum LoopDrop {
        /// The packet passed more nodes than any packet may: nodes or features lead in a circle.
        ///
        /// Causes: features or hand-written edges that lead in a circle; a route through a tunnel to itself.
        /// Check: trace a packet: `trace add`, `show trace` has the nodes that repeat.
        /// See: `show trace`, `show features`.
        Loop = "packet loop",
    }
}

/// Where packets go that an iteration would never have run to their end (`worker/bound.rs`).
#[derive(Clone)]
pub(crate) struct PacketLoop {
    /// Remembers how many, in the event log.
    pub event: EventKind,
    /// Packets of this vector.
    pub packets: u32,
}

impl Node<Shared> for PacketLoop {
    type Next = NoNext;
    type Drop = LoopDrop;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        self.packets += 1;
        packet.drop(LoopDrop::Loop)
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        cx.log(self.event, std::mem::take(&mut self.packets), 0);
    }
}
