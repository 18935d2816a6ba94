//! `vrrp-machine`: tells a virtual router of an advertisement, on the thread that has it.

use quiver_graph::{Frame, NodeCx, VectorNode};

use super::local::read;
use super::{Event, Next, Sender};
use crate::thread::Shared;

/// The node. Data begins at the IP header; the aux lane has the number of the virtual router.
pub struct OnThread {
    pub(super) shared: Shared,
    pub(super) sender: Sender,
}

impl VectorNode for OnThread {
    type Next = Next;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.trace_here(frame);
        let now = cx.now();
        // Once a vector: the virtual routers are this thread's alone.
        let mut routers = self.shared.lock();
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let serial = packet.aux();
            let heard = read(&packet);
            // It may have gone while the packet was on its way from another thread.
            let (Some((heard, from)), Some(entry)) = (heard, routers.get_mut(serial)) else {
                let verdict = packet.drop(Event::Gone);
                cx.decide(i, verdict);
                continue;
            };
            let (packet, verdict) = packet.take();
            cx.free(packet);
            cx.decide(i, verdict);
            entry.received += 1;
            entry.machine.receive(&heard, from, now);
            let send = entry.machine.take(now);
            self.sender.send(cx, entry, send);
            routers.settle(serial);
        }
        cx.count(Event::Received, frame.len() as u64);
    }
}
