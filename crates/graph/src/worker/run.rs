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
use crate::hold::Hold;
use crate::memory::Shared;
use crate::node::SHARE;
use crate::pulse::Pulse;
use crate::spec::Body;
use crate::stats::SimpleRows;

use super::bound::LONG;
use super::{ChainSlot, LoopFigures, NodePeak, Place};

/// A frame and the node that it goes to.
pub(super) type Waiting = (u16, Box<Frame<Shared>>);

/// A worker, taken apart for the time of a turn.
pub(super) struct Run<'a> {
    pub cx: NodeCx<'a>,
    pub bodies: &'a mut [Body],
    pub places: &'a [Place],
    pub chains: &'a mut [ChainSlot],
    /// Fused chains are used, and frames pass nodes that do not look at them.
    pub fusion: bool,
    pub inputs: &'a [u16],
    pub clock: &'a Clock,
    pub nodes: &'a SimpleRows<3>,
    pub pulse: &'a Pulse,
    pub figures: &'a mut LoopFigures,
    /// When what runs now began, ticks.
    pub time: u64,
}

impl<'a> Run<'a> {
    /// Prepares the surroundings for a call of node `id`.
    #[inline(always)]
    pub fn enter(&mut self, id: u16) -> (&mut NodeCx<'a>, &mut Body) {
        let place = &self.places[id as usize];
        self.enter_at(id, place)
    }

    #[inline(always)]
    fn enter_at(&mut self, id: u16, place: &'a Place) -> (&mut NodeCx<'a>, &mut Body) {
        place.enter(id, &mut self.cx);
        (&mut self.cx, &mut self.bodies[id as usize])
    }

    /// Every input node, then everything that follows from it. Returns the packets brought in.
    #[inline(always)]
    pub fn turn(&mut self) -> usize {
        let mut packets = 0;
        let inputs = if self.cx.core.hold == Hold::None { self.inputs } else { &[HANDOFF_INPUT] };
        for id in inputs {
            let idle = match &self.bodies[*id as usize] {
                _ if *id == HANDOFF_INPUT => !self.cx.core.handoff.receives(),
                Body::Input(node) => node.idle(),
                Body::Internal(_) | Body::Gone => true,
            };
            if idle {
                continue;
            }
            loop {
                let n = self.poll(*id);
                if n == 0 {
                    break;
                }
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
        self.cx.core.handoff.publish();
        packets
    }

    #[inline(never)]
    fn unfinished(&self, id: u16) -> bool {
        matches!(&self.bodies[id as usize], Body::Input(node) if node.unfinished())
    }

    /// Polls an input node.
    #[inline(always)]
    pub fn poll(&mut self, id: u16) -> usize {
        let place = &self.places[id as usize];
        self.pulse.at(id, 0);
        let (cx, Body::Input(node)) = self.enter_at(id, place) else { return 0 };
        let n = node.poll(cx);
        // Empty polls are not counted, they would drown the clocks of the packets: what they took is the next node's.
        if n > 0 {
            self.cx.core.handoff.publish();
            self.count(id, place, 1, n);
        }
        n
    }

    /// Counts a call that has just ended; only what it took where `calls` is 0.
    #[inline(always)]
    fn count(&mut self, id: u16, place: &Place, calls: u64, n: usize) {
        let end = self.clock.ticks();
        let clocks = end.wrapping_sub(self.time);
        self.time = end;
        if clocks > place.peak.get().clocks {
            place.peak.set(NodePeak { clocks, vectors: n as u64 });
        }
        self.nodes.add(u32::from(id), [calls, calls * n as u64, clocks]);
    }

    /// Runs nodes until no frame waits.
    #[inline(never)]
    pub fn drain(&mut self) {
        let long = self.figures.calls + LONG;
        while let Some(mut waiting) = self.cx.core.queue.pop() {
            loop {
                let next = self.dispatch(waiting.0, waiting.1);
                if self.figures.calls >= long {
                    return self.drain_long(next);
                }
                let Some(next) = next else { break };
                waiting = next;
            }
        }
    }

    /// Runs a node. Gives the frame and its next node, where all packets go there and nothing else waits.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, id: u16, frame: Box<Frame<Shared>>) -> Option<Waiting> {
        if self.cx.core.watched { self.dispatch_watched(id, frame) } else { self.dispatch_as::<false>(id, frame) }
    }

    /// [`dispatch`](Self::dispatch) while traces or captures look on.
    #[cold]
    #[inline(never)]
    fn dispatch_watched(&mut self, id: u16, frame: Box<Frame<Shared>>) -> Option<Waiting> {
        self.dispatch_as::<true>(id, frame)
    }

    #[inline(always)]
    fn dispatch_as<const WATCHED: bool>(&mut self, id: u16, mut frame: Box<Frame<Shared>>) -> Option<Waiting> {
        let place = &self.places[id as usize];
        if !place.takes_shared && self.cx.core.region.has_shared() {
            self.cx.core.own(&mut frame, self.cx.next);
            if frame.is_empty() {
                self.cx.core.queue.recycle(frame);
                return None;
            }
        }
        let n = frame.len;
        self.pulse.at(id, n);
        if WATCHED {
            let NodeCx { core, env, .. } = &mut self.cx;
            core.copy_arrivals(env, id, &mut frame);
        }
        let chain = if WATCHED { None } else { place.chain.get() };
        let calls = match chain {
            Some(chain) => self.pass(place, chain, &mut frame),
            None => self.call(id, place, &mut frame),
        };
        if WATCHED {
            let NodeCx { core, env, nexts, next, .. } = &mut self.cx;
            crate::trace::record(core, env, id, nexts, &next[..], &mut frame);
        }
        let waiting = partition(&mut self.cx, frame);
        self.cx.core.handoff.publish();
        self.count(id, place, calls, n);
        if WATCHED {
            return waiting;
        }
        if let Some((next, _)) = waiting
            && chain.is_none()
            && place.wants_chain()
        {
            place.choose_chain(id, next, self.chains);
        }
        self.straight(waiting)
    }

    /// Runs a fused chain, which counts the calls of its nodes: none is left to be counted.
    #[inline(always)]
    fn pass(&mut self, place: &Place, at: u8, frame: &mut Frame<Shared>) -> u64 {
        let n = frame.len;
        let passed = self.chains[usize::from(at)].chain.run(self.bodies, &mut self.cx, frame, self.nodes);
        self.figures.calls += passed.calls;
        self.figures.vectors += passed.vectors;
        place.judge_chain(at, n, passed.left);
        0
    }

    /// Counts a node that only passes the frame on to another, which gets it at once.
    #[inline(always)]
    fn straight(&mut self, waiting: Option<Waiting>) -> Option<Waiting> {
        let (id, frame) = waiting?;
        let place = &self.places[id as usize];
        if place.passes
            && self.fusion
            && let Body::Internal(node) = &self.bodies[id as usize]
            && let Some(verdict) = node.passes()
        {
            let n = frame.len as u64;
            self.figures.calls += 1;
            self.figures.vectors += n;
            self.nodes.add(u32::from(id), [1, n, 0]);
            return Some((place.next_node(verdict.0), frame));
        }
        Some((id, frame))
    }

    /// Runs a node: one call is to be counted.
    #[inline(always)]
    fn call(&mut self, id: u16, place: &'a Place, frame: &mut Frame<Shared>) -> u64 {
        self.figures.calls += 1;
        self.figures.vectors += frame.len as u64;
        match self.enter_at(id, place) {
            // SAFETY: F3: `dispatch` has copied what lay in shared memory, unless the node takes that.
            (cx, Body::Internal(node)) => unsafe { node.run(cx, frame) },
            // Removed while packets were on their way, or an input node named as a next node: both are drops.
            (cx, Body::Gone | Body::Input(_)) => {
                let n = frame.len;
                frame.aux[..n].fill(0);
                cx.next[..n].fill(0);
            }
        }
        1
    }
}

/// Sends each packet of a frame to the node that its verdict names. Gives the frame back, with its node, where nothing else
/// waits and all of it goes there.
#[inline(always)]
fn partition(cx: &mut NodeCx<'_>, mut frame: Box<Frame<Shared>>) -> Option<Waiting> {
    let NodeCx { core, nexts, next, .. } = cx;
    let queue = &mut core.queue;
    if frame.taken > 0 {
        if frame.taken == frame.len {
            frame.forget_taken();
        } else {
            frame.compact(&mut next[..]);
        }
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
