//! Several threads: a packet goes to the one that has its session, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{ArcPoint, Node, NodeCx, Packet, Pkt, Snapshot, Verdict, drop_reasons, next_nodes};
use quiver_net::data::IfTable;
use quiver_net::ip::Egress4;

use crate::config::NatConfig;
use crate::early::{Early, SharedEarly, lock_early};
use crate::fragments::{Datagram, Fragments};
use crate::packet::{Flow, NoFlow};
use crate::session::{Direction, Key};

use super::crossing::{Ways, must_wait, on_arc};
use super::translate::is_done;

next_nodes! {
    /// Where packets go that come from elsewhere than the arc.
    pub enum Next {
        In2Out = "nat44-ed-in2out",
        Out2In = "nat44-ed-out2in",
        In2OutAgain = "nat44-ed-in2out-handoff",
        Out2InAgain = "nat44-ed-out2in-handoff",
    }
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
        /// A fragment waited in vain for its datagram's first one, which has the ports.
        EarlyFragment = "fragment before its first",
    }
}

/// Where a packet belongs.
enum Owner {
    /// To the thread where it is.
    Here,
    /// To the thread with its session.
    Thread(usize),
    /// Nobody knows before the first fragment of its datagram has come.
    Waits(Datagram),
}

/// The node: all that the other thread must do comes after it on the arc.
#[derive(Clone)]
pub(super) struct Handoff {
    pub outside: bool,
    pub interfaces: IfTable,
    pub config: Snapshot<NatConfig>,
    pub egress: Egress4,
    pub fragments: Fragments,
    /// By thread.
    pub early: Vec<SharedEarly>,
    pub clock: Arc<AtomicU32>,
    pub arc: ArcPoint,
    pub thread: usize,
    /// Time of this vector.
    pub now: u32,
}

impl Handoff {
    fn owner(&self, packet: &Pkt<'_>) -> Owner {
        let config = self.config.get();
        if !self.outside && config.both && is_done(packet) {
            return Owner::Here;
        }
        let fib = packet.table().unwrap_or_else(|| self.interfaces.fibs(packet.rx_if()).0) as u16;
        let direction = if self.outside { Direction::Out2In } else { Direction::In2Out };
        let flow = match Flow::of(packet, direction, fib, &self.fragments, self.now) {
            Ok(flow) => flow,
            Err(NoFlow::EarlyFragment(of)) => {
                let key = Key::raw(of.addrs, 0, of.proto, direction, fib);
                let ways = Ways { egress: &self.egress, interfaces: &self.interfaces };
                let waits = must_wait(ways, config, packet, key, self.outside);
                return if waits { Owner::Waits(of) } else { Owner::Here };
            }
            // Nothing says which thread has its session: this one drops it.
            Err(_) => return Owner::Here,
        };
        let key = Key::raw(flow.addrs, flow.ports, flow.proto, direction, fib);
        let position = if self.outside {
            config.owner_of_external(key.src(), key.dst(), flow.proto, fib)
        } else {
            config.owner_of_internal(key.src(), key.dst(), flow.proto, fib)
        };
        config.threads.get(position).map_or(Owner::Here, |thread| Owner::Thread(*thread))
    }

    fn early(&self) -> Option<&SharedEarly> {
        self.early.get(self.thread)
    }

    fn hold(&self, cx: &mut NodeCx<'_>, of: Datagram, packet: Packet, bytes: usize) {
        let mut out = Vec::new();
        match self.early() {
            Some(early) => lock_early(early).hold(&self.fragments, of, packet, bytes, self.now, &mut out),
            None => out.push(packet),
        }
        out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
    }
}

impl Node for Handoff {
    type Next = Next;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        self.thread = thread;
    }

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.config.refresh();
        self.egress.refresh(cx);
        self.now = self.clock.load(Ordering::Relaxed);
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        let translate = if self.outside { Next::Out2In } else { Next::In2Out };
        let verdict = on_arc(&self.arc, self.config.get(), packet.rx_if(), self.outside, translate.into());
        match self.owner(&packet) {
            Owner::Here => verdict,
            Owner::Thread(owner) if owner == self.thread => verdict,
            Owner::Waits(of) => {
                let bytes = packet.total_len();
                let (packet, taken) = packet.take();
                self.hold(cx, of, packet, bytes);
                taken
            }
            Owner::Thread(owner) => cx.hand_over(owner, verdict, packet, Drop::Congestion),
        }
    }

    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        if self.fragments.waiting() > 0
            && let Some(early) = self.early()
        {
            end_waits(cx, &mut lock_early(early), &self.fragments, self.outside, self.now);
        }
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        let mut out = Vec::new();
        if let Some(early) = self.early() {
            lock_early(early).expire(&self.fragments, None, &mut out);
        }
        out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
    }
}

/// Sends on the fragments that wait for a first one which has come, and drops those that have waited for long enough.
#[inline(never)]
pub(super) fn end_waits(cx: &mut NodeCx<'_>, early: &mut Early, fragments: &Fragments, outside: bool, now: u32) {
    let mut out = Vec::new();
    early.ready(fragments, now, &mut out);
    for packet in out.drain(..) {
        cx.emit(if outside { Next::Out2InAgain } else { Next::In2OutAgain }, packet);
    }
    early.expire(fragments, Some(now), &mut out);
    out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
}
