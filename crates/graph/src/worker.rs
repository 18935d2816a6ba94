//! One thread's part of the graph: its instances of all nodes, and the loop that runs them.

use std::sync::Arc;

use quiver_buffer::{Cache, Pool};

use crate::capture::CaptureSink;
use crate::clock::Clock;
use crate::context::{Core, ERROR_DROP, HANDOFF_INPUT, NULL_NODE, NodeCx, Queue};
use crate::elog::{EventKind, EventLog};
use crate::frame::{Frame, LANES};
use crate::handoff::{HANDOFF_CAPACITY, Handoff};
use crate::interface::InterfaceCounters;
use crate::node::{Idle, InputNode, LoopConfig, SHARE};
use crate::packet::Env;
use crate::spec::Body;
use crate::staged::Level;
use crate::stats::{SimpleCounters, SimpleRow};
use crate::trace::{TraceBuffer, TraceRecord};

/// Counters of nodes, `/sys/node/…`, by node and thread.
pub struct NodeCounters {
    /// Times a node was called.
    pub calls: Arc<SimpleCounters>,
    /// Packets it was called with.
    pub vectors: Arc<SimpleCounters>,
    /// Raw clock ticks it took.
    pub clocks: Arc<SimpleCounters>,
    /// Times a process node was resumed.
    pub suspends: Arc<SimpleCounters>,
}

/// A thread's part of them.
struct NodeRows {
    calls: SimpleRow,
    vectors: SimpleRow,
    clocks: SimpleRow,
}

impl NodeRows {
    fn new(counters: &NodeCounters, thread: usize) -> Self {
        let NodeCounters { calls, vectors, clocks, .. } = counters;
        Self { calls: calls.row(thread), vectors: vectors.row(thread), clocks: clocks.row(thread) }
    }
}

pub(crate) struct Slot {
    pub body: Body,
    pub nexts: Vec<u16>,
    pub error_base: u32,
    pub prefetch: u8,
    /// Packets in memory that a peer can write to may come as they are.
    pub takes_shared: bool,
}

/// What all workers share, as handles.
pub(crate) struct Shared {
    pub pools: Vec<Arc<Pool>>,
    pub clock: Arc<Clock>,
    pub errors: Arc<SimpleCounters>,
    pub interfaces: Arc<InterfaceCounters>,
    pub nodes: Arc<NodeCounters>,
    pub events: Arc<EventLog>,
}

/// The most expensive call of a node since the figures were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePeak {
    /// Ticks that it took.
    pub clocks: u64,
    /// Packets that it was about.
    pub vectors: u64,
}

/// Events that each thread remembers.
const EVENTS: usize = 8192;

/// Figures of a worker's main loop for `show runtime`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopFigures {
    /// Turns of the loop.
    pub loops: u64,
    /// Packets through internal nodes.
    pub vectors: u64,
    /// Calls of internal nodes.
    pub calls: u64,
    /// Packets that input nodes brought in.
    pub input: u64,
    /// When counting began, ns.
    pub since: u64,
}

/// Verdicts of the packets of the frame at hand, on lines of their own.
#[repr(align(128))]
struct Scratch([u16; LANES]);

/// Peaks before and behind those of the nodes that are never used, so that they share no line with anything.
const EDGE: usize = 8;

/// A thread's graph.
pub struct Worker {
    pub(crate) core: Core,
    slots: Vec<Slot>,
    inputs: Vec<u16>,
    next: Box<Scratch>,
    clock: Arc<Clock>,
    nodes: NodeRows,
    /// Set to end the thread's loop.
    pub(crate) stop: bool,
    /// Nodes have given back what they held.
    finished: bool,
    pub(crate) figures: LoopFigures,
    /// By node, behind [`EDGE`] that are not used.
    peaks: Vec<NodePeak>,
    /// What a change by the main thread cost this one, in the event log.
    change: EventKind,
    /// Set when the set of event descriptors may have changed.
    pub(crate) fds_changed: bool,
}

impl Worker {
    pub(crate) fn new(thread: usize, shared: &Shared, numa: usize, vector_size: usize) -> Self {
        let region = shared.pools[0].region().clone();
        let env = Env {
            base: region.base(),
            meta: region.meta_base(),
            stride: region.geometry().stride(),
            data_end: region.geometry().data_end(),
            error_base: 0,
        };
        let now = shared.clock.now();
        let core = Core {
            thread,
            now,
            region,
            cache: Cache::new(shared.pools.clone(), numa),
            queue: Queue::new(vector_size),
            errors: shared.errors.clone(),
            interfaces: shared.interfaces.clone(),
            handoff: Handoff::default(),
            trace: TraceBuffer::default(),
            captures: Default::default(),
            no_buffer: 0,
            log: shared.events.ring(&thread_name(thread), EVENTS),
            env,
        };
        Self {
            core,
            slots: Vec::new(),
            inputs: Vec::new(),
            next: Box::new(Scratch([0; LANES])),
            clock: shared.clock.clone(),
            nodes: NodeRows::new(&shared.nodes, thread),
            stop: false,
            finished: false,
            figures: LoopFigures { since: now, ..Default::default() },
            peaks: Vec::new(),
            change: shared.events.kind("change by main: %d ticks"),
            fds_changed: true,
        }
    }

    /// Puts an instance into place; ids are dense and the same on every worker.
    pub(crate) fn install(&mut self, id: u16, slot: Slot) {
        let at = id as usize;
        while self.slots.len() <= at {
            self.slots.push(Slot { body: Body::Gone, nexts: vec![ERROR_DROP], error_base: 0, prefetch: 0, takes_shared: true });
        }
        if matches!(slot.body, Body::Input(_)) {
            self.inputs.push(id);
        }
        self.slots[at] = slot;
        self.peaks.resize(EDGE + self.slots.len() + EDGE, NodePeak::default());
        self.peaks[EDGE + at] = NodePeak::default();
        self.core.queue.set_nodes(self.slots.len());
        self.fds_changed = true;
    }

    /// Takes an instance out; packets still on their way to it are dropped.
    pub(crate) fn uninstall(&mut self, id: u16) {
        if !self.finished {
            self.release(id);
        }
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        slot.body = Body::Gone;
        self.inputs.retain(|i| *i != id);
        self.fds_changed = true;
        self.drain();
    }

    /// Has a node give back what it holds.
    fn release(&mut self, id: u16) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        let env = Env { error_base: slot.error_base, ..self.core.env };
        let mut cx = NodeCx { core: &mut self.core, env, prefetch: 0, node: id, nexts: &slot.nexts, next: &mut self.next.0 };
        match &mut slot.body {
            Body::Internal(node) => node.release(&mut cx),
            Body::Input(node) => node.release(&mut cx),
            Body::Gone => {}
        }
        self.core.handoff.publish();
    }

    /// The thread leaves while others go on: everything that is here is run to its end, with all nodes in their places.
    pub(crate) fn finish(&mut self) {
        self.take_in();
        for id in (0..self.slots.len() as u16).rev() {
            self.release(id);
            self.drain();
        }
        self.finished = true;
    }

    /// Runs what other threads have handed over so far.
    pub(crate) fn take_in(&mut self) {
        // What is handed over meanwhile is the next turn's.
        for _ in 0..=HANDOFF_CAPACITY / self.core.queue.vector_size {
            let n = self.poll(HANDOFF_INPUT);
            self.drain();
            if n == 0 {
                return;
            }
        }
    }

    /// Sets a next node; slot numbers are the main thread's choice and the same on every worker.
    pub(crate) fn set_edge(&mut self, from: u16, at: usize, to: u16) {
        if let Some(slot) = self.slots.get_mut(from as usize) {
            while slot.nexts.len() <= at {
                slot.nexts.push(NULL_NODE);
            }
            slot.nexts[at] = to;
        }
    }

    /// Points every edge to a removed node at `null-node`.
    pub(crate) fn redirect(&mut self, gone: u16) {
        for next in self.slots.iter_mut().flat_map(|s| &mut s.nexts) {
            if *next == gone {
                *next = NULL_NODE;
            }
        }
    }

    pub(crate) fn set_loop(&mut self, id: u16, config: LoopConfig, level: Level) {
        if let Some(slot) = self.slots.get_mut(id as usize) {
            slot.prefetch = config.prefetch;
            if let Body::Internal(node) = &mut slot.body {
                node.set_loop(config, level);
            }
        }
    }

    pub(crate) fn set_vector_size(&mut self, n: usize) {
        self.core.queue.vector_size = n;
    }

    /// The thread's number.
    pub fn thread(&self) -> usize {
        self.core.thread
    }

    /// The concrete input node `id` of this worker.
    pub fn input<I: InputNode>(&mut self, id: crate::NodeId) -> Option<&mut I> {
        // Queues may come and go through this access.
        self.fds_changed = true;
        match &mut self.slots.get_mut(id.0 as usize)?.body {
            Body::Input(node) => node.as_any().downcast_mut::<I>(),
            _ => None,
        }
    }

    /// Runs `f` in the surroundings of node `id`, as if the node were called: for packets that the control side injects.
    pub fn at_node<R>(&mut self, id: crate::NodeId, f: impl FnOnce(&mut NodeCx<'_>) -> R) -> Option<R> {
        let slot = self.slots.get(id.0 as usize)?;
        let env = Env { error_base: slot.error_base, ..self.core.env };
        let mut cx = NodeCx { core: &mut self.core, env, prefetch: 0, node: id.0, nexts: &slot.nexts, next: &mut self.next.0 };
        let result = f(&mut cx);
        self.core.handoff.publish();
        self.fds_changed = true;
        Some(result)
    }

    /// One turn: every input node, then everything that follows from it. Returns the packets brought in.
    pub fn step(&mut self) -> usize {
        self.core.now = self.clock.now();
        let mut packets = 0;
        for at in 0..self.inputs.len() {
            let id = self.inputs[at];
            loop {
                let n = self.poll(id);
                packets += n;
                // Packets from another thread came in there.
                self.figures.input += if id == HANDOFF_INPUT { 0 } else { n as u64 };
                if n < SHARE || !self.unfinished(id) {
                    break;
                }
                self.drain();
            }
        }
        self.drain();
        self.core.cache.publish();
        self.figures.loops += 1;
        packets
    }

    #[inline(never)]
    fn unfinished(&self, id: u16) -> bool {
        matches!(&self.slots[id as usize].body, Body::Input(node) if node.unfinished())
    }

    /// Polls an input node.
    #[inline(always)]
    fn poll(&mut self, id: u16) -> usize {
        let slot = &mut self.slots[id as usize];
        let Body::Input(node) = &mut slot.body else { return 0 };
        let start = self.clock.ticks();
        let env = Env { error_base: slot.error_base, ..self.core.env };
        let mut cx = NodeCx { core: &mut self.core, env, prefetch: 0, node: id, nexts: &slot.nexts, next: &mut self.next.0 };
        let n = node.poll(&mut cx);
        // Empty polls are kept apart: they would drown the clocks of the packets.
        if n > 0 {
            self.count(id, n, start);
        }
        self.core.handoff.publish();
        n
    }

    /// Counts a call that began at `start`; returns when it ended.
    #[inline(always)]
    fn count(&mut self, id: u16, n: usize, start: u64) -> u64 {
        let end = self.clock.ticks();
        let clocks = end.wrapping_sub(start);
        let peak = &mut self.peaks[EDGE + id as usize];
        if clocks > peak.clocks {
            *peak = NodePeak { clocks, vectors: n as u64 };
        }
        self.nodes.calls.add(u32::from(id), 1);
        self.nodes.vectors.add(u32::from(id), n as u64);
        self.nodes.clocks.add(u32::from(id), clocks);
        end
    }

    /// Runs nodes until no frame waits.
    pub(crate) fn drain(&mut self) {
        let Some(mut waiting) = self.core.queue.pop() else { return };
        // One node's end is the next one's beginning: reading the counter costs as much as a packet.
        let mut time = self.clock.ticks();
        loop {
            time = self.dispatch(waiting.0, waiting.1, time);
            let Some(next) = self.core.queue.pop() else { return };
            waiting = next;
        }
    }

    /// Runs a node, which begins at `start`; returns when it ended.
    fn dispatch(&mut self, id: u16, mut frame: Box<Frame>, start: u64) -> u64 {
        let slot = &mut self.slots[id as usize];
        if !slot.takes_shared && self.core.region.has_shared() {
            self.core.own(&mut frame, &mut self.next.0);
            if frame.is_empty() {
                self.core.queue.recycle(frame);
                return start;
            }
        }
        let n = frame.len;
        let env = Env { error_base: slot.error_base, ..self.core.env };
        match &mut slot.body {
            Body::Internal(node) => {
                let mut cx = NodeCx {
                    core: &mut self.core,
                    env,
                    prefetch: slot.prefetch,
                    node: id,
                    nexts: &slot.nexts,
                    next: &mut self.next.0,
                };
                node.run(&mut cx, &mut frame);
            }
            // Removed while packets were on their way, or an input node named as a next node: both are drops.
            Body::Gone | Body::Input(_) => {
                frame.aux[..n].fill(0);
                self.next.0[..n].fill(0);
            }
        }
        if self.core.trace.live() {
            crate::trace::record(&mut self.core, &env, id, &slot.nexts, &self.next.0[..], &mut frame);
        }
        self.figures.calls += 1;
        self.figures.vectors += n as u64;
        partition(&mut self.core.queue, &slot.nexts, &mut self.next.0, frame);
        self.core.handoff.publish();
        self.count(id, n, start)
    }

    /// Asks input nodes whether the thread may sleep: `Some(until)` if it may, with the earliest time that one asked for.
    pub(crate) fn may_sleep(&mut self) -> Option<Option<u64>> {
        if !self.core.queue.is_empty() || self.core.handoff.has_mail() {
            return None;
        }
        let mut until: Option<u64> = None;
        for id in &self.inputs {
            if let Body::Input(node) = &mut self.slots[*id as usize].body {
                match node.arm(self.core.now) {
                    Idle::Busy => return None,
                    Idle::Sleep { until: Some(t) } => until = Some(until.map_or(t, |u| u.min(t))),
                    Idle::Sleep { until: None } => {}
                }
            }
        }
        Some(until)
    }

    /// Whether to poll for a while after the last packet before sleeping: not where all device queues wait for their events.
    pub(crate) fn spins(&self) -> bool {
        let opinion = |id: &u16| match &self.slots[*id as usize].body {
            Body::Input(node) => node.spins(),
            _ => None,
        };
        let mut opinions = self.inputs.iter().filter_map(opinion).peekable();
        opinions.peek().is_none() || opinions.any(|spins| spins)
    }

    pub(crate) fn event_fds(&self, fds: &mut Vec<std::os::fd::RawFd>) {
        for id in &self.inputs {
            if let Body::Input(node) = &self.slots[*id as usize].body {
                node.event_fds(fds);
            }
        }
    }

    /// Starts tracing the next `n` packets of an input node.
    pub fn trace_add(&mut self, node: crate::NodeId, n: u32) {
        self.core.trace.add(node.0, n);
    }

    /// Forgets all traces.
    pub fn trace_clear(&mut self) {
        self.core.trace.clear();
    }

    /// Copies of the traces.
    pub fn traces(&self) -> Vec<TraceRecord> {
        self.core.trace.records().to_vec()
    }

    /// Starts or ends copying packets; gives the number of copies lost.
    pub fn capture(&mut self, sink: Option<CaptureSink>) -> u64 {
        self.core.captures.set(sink)
    }

    /// Starts this thread's figures anew.
    pub(crate) fn clear_figures(&mut self) {
        self.figures = LoopFigures { since: self.clock.now(), ..Default::default() };
        self.peaks.fill(NodePeak::default());
    }

    /// The most expensive call of each node, by its number.
    pub fn peaks(&self) -> &[NodePeak] {
        &self.peaks[EDGE..EDGE + self.slots.len()]
    }

    /// Memory that this thread writes for every frame, as address and bytes: for the check that no two threads write a line. The
    /// worker itself lies on its thread's stack; what nodes own beyond themselves is theirs to keep apart.
    pub fn written(&self) -> Vec<(usize, usize)> {
        let body = |slot: &Slot| match &slot.body {
            Body::Internal(node) => Some((std::ptr::from_ref(&**node).cast::<u8>() as usize, size_of_val(&**node))),
            Body::Input(node) => Some((std::ptr::from_ref(&**node).cast::<u8>() as usize, size_of_val(&**node))),
            Body::Gone => None,
        };
        let mut all: Vec<(usize, usize)> = self.slots.iter().filter_map(body).collect();
        all.push((std::ptr::from_ref(&*self.next) as usize, size_of::<Scratch>()));
        all.push((self.peaks[EDGE..].as_ptr() as usize, self.slots.len() * size_of::<NodePeak>()));
        all.extend(self.core.queue.written());
        all.extend(self.core.cache.written());
        all.extend(self.core.handoff.written());
        all
    }

    /// Runs a change that the main thread sent, and remembers what it cost.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let start = self.clock.ticks();
        change(self);
        let ticks = self.clock.ticks().wrapping_sub(start);
        self.core.log.log(self.change, u32::try_from(ticks).unwrap_or(u32::MAX), 0);
    }

    /// Figures of the loop.
    pub fn figures(&self) -> LoopFigures {
        self.figures
    }

    /// Frames in flight and packets that found no buffer.
    pub fn pressure(&self) -> (usize, u64) {
        (self.core.queue.len(), self.core.no_buffer)
    }
}

/// What a thread is called, in the event log and by the kernel.
pub fn thread_name(thread: usize) -> String {
    match thread.checked_sub(1) {
        None => "quiver_main".to_owned(),
        Some(worker) => format!("quiver_wk_{worker}"),
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // `error-drop`, node 0, goes last: it takes what the others gave back or had on its way.
        for id in (0..self.slots.len() as u16).rev() {
            self.uninstall(id);
        }
    }
}

/// Sends each packet of a frame to the node that its verdict names.
#[inline]
fn partition(queue: &mut Queue, nexts: &[u16], next: &mut [u16; LANES], mut frame: Box<Frame>) {
    if frame.taken > 0 {
        frame.compact(&mut next[..]);
    }
    let n = frame.len;
    if n == 0 {
        queue.recycle(frame);
        return;
    }
    let first = next[0];
    let differ = next[..n].iter().fold(0, |a, x| a | (x ^ first));
    let node_of = |slot: u16| nexts.get(usize::from(slot)).copied().unwrap_or(NULL_NODE);
    if differ == 0 {
        queue.hand_over(node_of(first), frame);
        return;
    }
    for (i, slot) in next.iter().enumerate().take(n) {
        queue.open_frame(node_of(*slot)).append_from(&frame, i);
    }
    queue.recycle(frame);
}
