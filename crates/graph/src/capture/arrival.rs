//! Copies of packets as they come to nodes.

use quiver_buffer::HEADROOM;

use super::CapturePoint;
use crate::context::{Core, NodeId};
use crate::frame::{Frame, TAKEN};
use crate::memory::Shared;
use crate::packet::{Env, Pkt};
use crate::trace::{PULLED_MAX, TraceMark};

/// A packet's state beside its bytes, as it comes to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Thread that runs the node.
    pub thread: usize,
    /// Its first buffer.
    pub buffer: u32,
    /// Offset of the data in its buffer.
    pub offset: usize,
    /// Bytes of the data in its first buffer.
    pub segment: usize,
    /// Context flags ([`flags`](crate::flags)).
    pub flags: u32,
    /// Aux lane: what the node before has left.
    pub aux: u32,
    /// Table for the next lookup, where a node has set one.
    pub table: Option<u32>,
    /// Words of plugins.
    pub scratch: [u32; 9],
    /// What was traced of it before, where it is traced.
    pub trace: Option<TraceMark>,
}

impl Core {
    /// Copies what comes to a node, for captures at nodes.
    #[cold]
    pub(crate) fn copy_arrivals(&mut self, env: &Env, node: u16, frame: &mut Frame<Shared>) {
        if !self.captures.at_nodes() {
            return;
        }
        let Self { captures, trace, thread, now, .. } = self;
        let point = CapturePoint::Node(NodeId(node));
        for sink in captures.sinks.iter().filter(|sink| sink.asks_for(point)) {
            for i in 0..frame.len {
                if frame.index[i] == TAKEN {
                    continue;
                }
                // SAFETY: i < len, and the frame is exclusively borrowed.
                let packet = unsafe { Pkt::of_lane(frame, i, env) };
                let offset = packet.span().offset();
                let pulled = Some(offset.saturating_sub(HEADROOM)).filter(|pulled| *pulled <= PULLED_MAX).unwrap_or(0);
                let arrival = || Arrival {
                    thread: *thread,
                    buffer: packet.buffer_index(),
                    offset,
                    segment: packet.len(),
                    flags: packet.context() & !crate::frame::IF_MASK,
                    aux: packet.aux(),
                    table: packet.table(),
                    scratch: packet.scratch(),
                    trace: trace.mark(&packet),
                };
                let arrival = || sink.every_node.then(|| Box::new(arrival()));
                sink.copy(point, packet.rx_if(), *now, &packet, packet.before(pulled), arrival);
            }
        }
    }
}
