//! How a worker runs nodes: a turn's input nodes, and frames from node to node.
//!
//! ```text
//!   input nodes ──► queue ──► node ──► all packets the same way, nothing else waits: node ──► … ──► node
//!                     ▲        │ else
//!                     └────────┘
//! ```
//!
//! At low load a vector is a packet or two, and what a call costs beside the node's own work is most of a turn. So what all
//! calls share is made once for a turn, a frame that is alone goes to its next node without the queue, and the counter of clocks is
//! read once for each node: its end is the next one's beginning.

use crate::clock::Clock;
use crate::context::{HANDOFF_INPUT, NULL_NODE, NodeCx};
use crate::frame::Frame;
use crate::node::SHARE;
use crate::spec::Body;
use crate::stats::SimpleRows;

use super::{LoopFigures, NodePeak, Place};

/// A frame and the node that it goes to.
type Waiting = (u16, Box<Frame>);

/// A worker, taken apart for the time of a turn.
pub(super) struct Run<'a> {
    pub cx: NodeCx<'a>,
    pub bodies: &'a mut [Body],
    pub places: &'a [Place],
    pub inputs: &'a [u16],
    pub clock: &'a Clock,
    pub nodes: &'a SimpleRows<3>,
    pub figures: &'a mut LoopFigures,
    /// When what runs now began, ticks.
    pub time: u64,
}

impl<'a> Run<'a> {
    /// Prepares the surroundings for a call of node `id`.
    #[inline(always)]
    pub fn enter(&mut self, id: u16) -> (&mut NodeCx<'a>, &mut Body) {
        let place = &self.places[id as usize];
        self.cx.env.error_base = place.error_base;
        self.cx.prefetch = place.prefetch;
        self.cx.node = id;
        self.cx.nexts = &place.nexts;
        (&mut self.cx, &mut self.bodies[id as usize])
    }

    /// Every input node, then everything that follows from it. Returns the packets brought in.
    #[inline(always)]
    pub fn turn(&mut self) -> usize {
        let mut packets = 0;
        for id in self.inputs {
            loop {
                let n = self.poll(*id);
                packets += n;
                // Packets from another thread came in there.
                self.figures.input += if *id == HANDOFF_INPUT { 0 } else { n as u64 };
                if n < SHARE || !self.unfinished(*id) {
                    break;
                }
                self.drain();
            }
        }
        self.drain();
        packets
    }

    #[inline(never)]
    fn unfinished(&self, id: u16) -> bool {
        matches!(&self.bodies[id as usize], Body::Input(node) if node.unfinished())
    }

    /// Polls an input node.
    #[inline(always)]
    pub fn poll(&mut self, id: u16) -> usize {
        let (cx, Body::Input(node)) = self.enter(id) else { return 0 };
        let n = node.poll(cx);
        self.cx.core.handoff.publish();
        // Empty polls are not counted, they would drown the clocks of the packets: what they took is the next node's.
        if n > 0 {
            self.count(id, n);
        }
        n
    }

    /// Counts a call that has just ended.
    #[inline(always)]
    fn count(&mut self, id: u16, n: usize) {
        let end = self.clock.ticks();
        let clocks = end.wrapping_sub(self.time);
        self.time = end;
        let peak = &self.places[id as usize].peak;
        if clocks > peak.get().clocks {
            peak.set(NodePeak { clocks, vectors: n as u64 });
        }
        self.nodes.add(u32::from(id), [1, n as u64, clocks]);
    }

    /// Runs nodes until no frame waits.
    #[inline(never)]
    pub fn drain(&mut self) {
        let (mut calls, mut vectors) = (0, 0);
        while let Some(mut waiting) = self.cx.core.queue.pop() {
            loop {
                calls += 1;
                vectors += waiting.1.len as u64;
                match self.dispatch(waiting.0, waiting.1) {
                    Some(next) => waiting = next,
                    None => break,
                }
            }
        }
        self.figures.calls += calls;
        self.figures.vectors += vectors;
    }

    /// Runs a node. Gives the frame and its next node, where all packets go there and nothing else waits.
    #[inline(always)]
    fn dispatch(&mut self, id: u16, mut frame: Box<Frame>) -> Option<Waiting> {
        if !self.places[id as usize].takes_shared && self.cx.core.region.has_shared() {
            self.cx.core.own(&mut frame, self.cx.next);
            if frame.is_empty() {
                self.cx.core.queue.recycle(frame);
                return None;
            }
        }
        let n = frame.len;
        match self.enter(id) {
            (cx, Body::Internal(node)) => node.run(cx, &mut frame),
            // Removed while packets were on their way, or an input node named as a next node: both are drops.
            (cx, Body::Gone | Body::Input(_)) => {
                frame.aux[..n].fill(0);
                cx.next[..n].fill(0);
            }
        }
        let NodeCx { core, env, nexts, next, .. } = &mut self.cx;
        if core.trace.live() {
            crate::trace::record(core, env, id, nexts, &next[..], &mut frame);
        }
        let waiting = partition(&mut self.cx, frame);
        self.cx.core.handoff.publish();
        self.count(id, n);
        waiting
    }
}

/// Sends each packet of a frame to the node that its verdict names. Gives the frame back, with its node, where nothing else
/// waits and all of it goes there.
#[inline(always)]
fn partition(cx: &mut NodeCx<'_>, mut frame: Box<Frame>) -> Option<Waiting> {
    let NodeCx { core, nexts, next, .. } = cx;
    let queue = &mut core.queue;
    if frame.taken > 0 {
        frame.compact(&mut next[..]);
    }
    let n = frame.len;
    if n == 0 {
        queue.recycle(frame);
        return None;
    }
    let first = next[0];
    let differ = next[..n].iter().fold(0, |a, x| a | (x ^ first));
    let node_of = |slot: u16| nexts.get(usize::from(slot)).copied().unwrap_or(NULL_NODE);
    if differ == 0 {
        let node = node_of(first);
        if queue.is_empty() {
            return Some((node, frame));
        }
        queue.hand_over(node, frame);
        return None;
    }
    for (i, slot) in next.iter().enumerate().take(n) {
        queue.open_frame(node_of(*slot)).append_from(&frame, i);
    }
    queue.recycle(frame);
    None
}
