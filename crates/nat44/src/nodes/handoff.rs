//! Several threads: a packet goes to the one that has its session, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{ArcPoint, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, next_nodes};
use quiver_net::data::IfTable;

use crate::config::NatConfig;
use crate::fragments::Fragments;
use crate::packet::Flow;
use crate::session::{Direction, Key};

use super::translate::is_done;

next_nodes! {
    /// Where packets go that come from elsewhere than the arc.
    pub enum Next { In2Out = "nat44-ed-in2out", Out2In = "nat44-ed-out2in" }
}

drop_reasons! {
    /// Why packets are dropped.
    pub enum Drop {
        /// The queue to the worker that owns the session is full.
        ///
        /// Causes: the worker that owns the session gets more than it can process.
        /// Check: `show runtime` for the load of each worker; more workers for NAT44 (`set nat workers`).
        /// See: `show runtime summary`, `set nat workers`.
        Congestion = "NAT44 handoff congestion drop",
    }
}

/// The node: all that the other thread must do comes after it on the arc.
#[derive(Clone)]
pub(super) struct Handoff {
    pub outside: bool,
    pub interfaces: IfTable,
    pub config: Snapshot<NatConfig>,
    pub fragments: Fragments,
    pub clock: Arc<AtomicU32>,
    pub arc: ArcPoint,
    pub thread: usize,
    /// Time of this vector.
    pub now: u32,
}

impl Handoff {
    fn owner(&self, packet: &Pkt<'_>) -> Option<usize> {
        let config = self.config.get();
        if !self.outside && config.both && is_done(packet) {
            return None;
        }
        let fib = packet.table().unwrap_or_else(|| self.interfaces.fibs(packet.rx_if()).0) as u16;
        let direction = if self.outside { Direction::Out2In } else { Direction::In2Out };
        // What cannot be told apart is dropped where it is.
        let flow = Flow::of(packet, direction, fib, &self.fragments, self.now).ok()?;
        let key = Key::raw(flow.addrs, flow.ports, flow.proto, direction, fib);
        let position = if self.outside {
            config.owner_of_external(key.src(), key.dst(), flow.proto)
        } else {
            config.owner_of_internal(key.src(), key.dst(), flow.proto, fib)
        };
        config.threads.get(position).copied()
    }
}

impl Node for Handoff {
    type Next = Next;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        self.thread = thread;
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.config.refresh();
        self.now = self.clock.load(Ordering::Relaxed);
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        let translate = if self.outside { Next::Out2In } else { Next::In2Out };
        let verdict = self.arc.next(packet.rx_if(), translate.into());
        match self.owner(&packet).filter(|owner| *owner != self.thread) {
            None => verdict,
            Some(owner) => {
                let (packet, taken) = packet.take();
                if let Err(packet) = cx.emit_on(owner, verdict, packet) {
                    cx.drop_packet(packet, Drop::Congestion);
                }
                taken
            }
        }
    }
}
