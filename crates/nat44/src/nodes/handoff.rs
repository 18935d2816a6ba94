//! Several threads: a packet goes to the one that has its session, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{ArcPoint, Frame, NodeCx, Pkt, Snapshot, VectorNode, drop_reasons, next_nodes};
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
    pub enum Drop { Congestion = "NAT44 handoff congestion drop" }
}

/// The node: all that the other thread must do comes after it on the arc.
pub(super) struct Handoff {
    pub outside: bool,
    pub interfaces: IfTable,
    pub config: Snapshot<NatConfig>,
    pub fragments: Fragments,
    pub clock: Arc<AtomicU32>,
    pub arc: ArcPoint,
}

impl Handoff {
    fn owner(&self, packet: &Pkt<'_>, now: u32) -> Option<usize> {
        let config = self.config.get();
        if !self.outside && config.both && is_done(packet) {
            return None;
        }
        let fib = packet.table().unwrap_or_else(|| self.interfaces.fibs(packet.rx_if()).0) as u16;
        let direction = if self.outside { Direction::Out2In } else { Direction::In2Out };
        // What cannot be told apart is dropped where it is.
        let flow = Flow::of(packet, direction, fib, &self.fragments, now).ok()?;
        let key = Key::raw(flow.addrs, flow.ports, flow.proto, direction, fib);
        let position = if self.outside {
            config.owner_of_external(key.src(), key.dst(), flow.proto)
        } else {
            config.owner_of_internal(key.src(), key.dst(), flow.proto, fib)
        };
        config.threads.get(position).copied()
    }
}

impl VectorNode for Handoff {
    type Next = Next;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.config.refresh();
        let now = self.clock.load(Ordering::Relaxed);
        let own = cx.thread();
        let translate = if self.outside { Next::Out2In } else { Next::In2Out };
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let verdict = self.arc.next(packet.rx_if(), translate.into());
            let thread = self.owner(&packet, now).unwrap_or(own);
            cx.decide(i, verdict);
            if thread != own {
                let (packet, _) = cx.packet(frame, i).take();
                if let Err(packet) = cx.emit_on(thread, verdict, packet) {
                    cx.drop_packet(packet, Drop::Congestion);
                }
            }
        }
    }
}
