//! `bfd-session`: tells a session of a packet, on the thread that has the session, and answers where that is called for.

use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{Frame, NodeCx, VectorNode};

use super::{Event, Next, Sender};
use crate::packet::Control;
use crate::thread::Shared;

/// The node. Data begins at the control packet; the aux lane has the session's discriminator.
pub struct Session {
    pub(super) shared: Shared,
    pub(super) sender: Sender,
    pub(super) received: Arc<CombinedCounters>,
}

impl VectorNode for Session {
    type Next = Next;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.trace_here(frame);
        let now = cx.now();
        // Once a vector: the sessions are this thread's alone.
        let mut sessions = self.shared.lock();
        let mut taken = 0;
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let (discriminator, len) = (packet.aux(), packet.total_len());
            let control = Control::parse(packet.bytes());
            // It may have gone while the packet was on its way from another thread.
            let (Ok(control), Some(entry)) = (control, sessions.get_mut(discriminator)) else {
                let verdict = packet.drop(Event::Gone);
                cx.decide(i, verdict);
                continue;
            };
            if let Err(refused) = entry.authentication.check(&control, Control::trimmed(packet.bytes()), now) {
                let verdict = packet.drop(Event::from(refused));
                cx.decide(i, verdict);
                continue;
            }
            let (packet, verdict) = packet.take();
            cx.free(packet);
            cx.decide(i, verdict);
            taken += 1;
            if let Some(is_final) = entry.receive(&control, now).answer {
                self.sender.control(cx, entry, is_final);
            }
            self.received.add(cx.thread(), entry.id, 1, len as u64);
            sessions.settle(discriminator);
        }
        cx.count(Event::Received, taken);
    }
}
