//! One thread's part of the graph: its instances of all nodes, and the loop that runs them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use quiver_buffer::{Cache, Pool};

use crate::capture::{CaptureSink, Wanted};
use crate::clock::{Clock, View};
use crate::context::{Core, ERROR_DROP, HANDOFF_INPUT, NULL_NODE, NodeCx, Observed, Queue};
use crate::elog::{EventKind, EventLog};
use crate::frame::LANES;
use crate::fuse::FusedChain;
use crate::handoff::{HANDOFF_CAPACITY, Handoff};
use crate::hold::Hold;
use crate::interface::InterfaceCounters;
use crate::level::Level;
use crate::node::{Idle, InputNode, LoopConfig};
use crate::packet::Env;
use crate::pulse::{Pulse, Pulses};
use crate::spec::{Body, Input, InputNodeDyn};
use crate::stats::{SimpleCounters, SimpleRows};
use crate::trace::{TraceBuffer, TraceRecord};

mod absence;
mod bound;
mod place;
mod run;

use absence::Presence;
pub use absence::{Absences, BOUNDS as ABSENCE_BOUNDS};
pub use place::NodePeak;
pub(crate) use place::Place;
use place::{ChainSlot, NEVER};
use run::Run;

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

impl NodeCounters {
    /// A thread's calls, packets and clocks, in this order.
    fn rows(&self, thread: usize) -> SimpleRows<3> {
        SimpleRows::new([&self.calls, &self.vectors, &self.clocks], thread)
    }
}

/// A node as the main thread hands it to a worker.
pub(crate) struct Slot {
    pub body: Body,
    pub nexts: Vec<u16>,
    pub error_base: u32,
    pub prefetch: u8,
    /// Packets in memory that a peer can write to may come as they are.
    pub takes_shared: bool,
    /// Its loop is as it is by itself.
    pub usual: bool,
    /// It often passes vectors as they are.
    pub passes: bool,
}

/// What all workers share, as handles.
pub(crate) struct Shared {
    pub pools: Vec<Arc<Pool>>,
    pub clock: Arc<Clock>,
    pub errors: Arc<SimpleCounters>,
    pub interfaces: Arc<InterfaceCounters>,
    pub nodes: Arc<NodeCounters>,
    pub events: Arc<EventLog>,
    pub pulses: Arc<Pulses>,
    /// What new threads do not do yet.
    pub hold: Hold,
    /// Threads whose packets are traced or captured.
    pub observed: Arc<AtomicUsize>,
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
    /// How long the thread did not look at its devices.
    pub absences: Absences,
}

/// Verdicts of the packets of the frame at hand, on cache lines of their own.
#[repr(align(128))]
struct Scratch([u16; LANES]);

/// A thread's graph.
pub struct Worker {
    pub(crate) core: Core,
    /// By node, as `places`: apart from them because these are written to while a node looks at its place.
    bodies: Vec<Body>,
    places: Vec<Place>,
    chains: Vec<ChainSlot>,
    /// Whether fused chains are used.
    fusion: bool,
    inputs: Vec<u16>,
    next: Box<Scratch>,
    clock: View,
    nodes: SimpleRows<3>,
    /// What it shows of its progress.
    pub(crate) pulse: Arc<Pulse>,
    /// Set to end the thread's loop.
    pub(crate) stop: bool,
    /// Processors that the thread may run on, and other workers that may run nowhere else.
    pub(crate) processors: usize,
    pub(crate) rivals: usize,
    /// Packets that had found no buffer when the thread last looked.
    no_buffer_seen: u64,
    /// Nodes have given back what they held.
    finished: bool,
    pub(crate) figures: LoopFigures,
    presence: Presence,
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
            numa,
            now,
            region,
            cache: Cache::new(shared.pools.clone(), numa),
            queue: Queue::new(vector_size),
            errors: shared.errors.clone(),
            interfaces: shared.interfaces.clone(),
            handoff: Handoff::default(),
            trace: TraceBuffer::default(),
            captures: Default::default(),
            watched: false,
            observed: Observed::new(&shared.observed),
            no_buffer: 0,
            log: shared.events.ring(&thread_name(thread), EVENTS),
            env,
            hold: shared.hold,
        };
        Self {
            core,
            bodies: Vec::new(),
            places: Vec::new(),
            chains: Vec::new(),
            fusion: true,
            inputs: Vec::new(),
            next: Box::new(Scratch([0; LANES])),
            clock: View::new(shared.clock.clone()),
            nodes: shared.nodes.rows(thread),
            pulse: shared.pulses.of(thread),
            stop: false,
            finished: false,
            figures: LoopFigures { since: now, ..Default::default() },
            presence: Presence::default(),
            change: shared.events.kind("change by main: %d ticks"),
            fds_changed: true,
            processors: usize::MAX,
            rivals: 0,
            no_buffer_seen: 0,
        }
    }

    /// Takes packet memory from another memory node, and tells nodes of it.
    pub(crate) fn move_to(&mut self, numa: usize, pools: Vec<Arc<Pool>>) {
        self.core.numa = numa;
        // The old cache gives back what it holds.
        self.core.cache = Cache::new(pools, numa);
    }

    /// Puts an instance into place; ids are dense and the same on every worker.
    pub(crate) fn install(&mut self, id: u16, slot: Slot) {
        let at = id as usize;
        while self.places.len() <= at {
            self.bodies.push(Body::Gone);
            self.places.push(Place::new(vec![ERROR_DROP], 0, 0, true));
        }
        if matches!(slot.body, Body::Input(_)) {
            self.inputs.push(id);
        }
        let Slot { body, nexts, error_base, prefetch, takes_shared, usual, passes } = slot;
        self.bodies[at] = body;
        self.places[at] = Place { usual, passes, ..Place::new(nexts, error_base, prefetch, takes_shared) };
        self.core.queue.set_nodes(self.places.len());
        self.fds_changed = true;
    }

    /// Takes an instance out; packets still on their way to it are dropped.
    pub(crate) fn uninstall(&mut self, id: u16) {
        if !self.finished {
            self.release(id);
        }
        let Some(body) = self.bodies.get_mut(id as usize) else { return };
        *body = Body::Gone;
        self.core.captures.forget_node(id);
        self.core.watch();
        if self.chains.iter().any(|slot| slot.chain.ids().contains(&id)) {
            self.forget_chains();
            self.chains.retain(|slot| !slot.chain.ids().contains(&id));
            self.set_chains();
        }
        self.inputs.retain(|i| *i != id);
        self.fds_changed = true;
        self.drain();
    }

    /// Has a node give back what it holds.
    fn release(&mut self, id: u16) {
        if id as usize >= self.bodies.len() {
            return;
        }
        let mut run = self.run(0);
        let (cx, body) = run.enter(id);
        match body {
            Body::Internal(node) => node.release(cx),
            Body::Input(node) => node.release(cx),
            Body::Gone => {}
        }
        self.core.handoff.publish();
    }

    /// The thread leaves while others go on: everything that is here is run to its end, with all nodes in their places.
    pub(crate) fn finish(&mut self) {
        self.take_in();
        for id in (0..self.bodies.len() as u16).rev() {
            self.release(id);
            self.drain();
        }
        self.finished = true;
    }

    /// Runs what other threads have handed over so far.
    pub(crate) fn take_in(&mut self) {
        // What is handed over meanwhile is the next turn's.
        for _ in 0..=HANDOFF_CAPACITY / self.core.queue.vector_size {
            let time = self.clock.clock().ticks();
            let mut run = self.run(time);
            let n = run.poll(HANDOFF_INPUT);
            run.drain();
            if n == 0 {
                return;
            }
        }
    }

    /// Sets a next node; slot numbers are the main thread's choice and the same on every worker.
    pub(crate) fn set_edge(&mut self, from: u16, at: usize, to: u16) {
        if let Some(place) = self.places.get_mut(from as usize) {
            while place.nexts.len() <= at {
                place.nexts.push(NULL_NODE);
            }
            place.nexts[at] = to;
        }
        // Chains know the slots of their edges.
        if self.chains.iter().any(|slot| slot.chain.ids().contains(&from)) {
            self.set_chains();
        }
    }

    /// Takes up a fused chain of nodes that are there; nothing where they are not of its types.
    pub(crate) fn install_chain<L: FusedChain>(&mut self, ids: &[u16]) {
        if let ([from, to, ..], Some(chain)) = (ids, crate::fuse::chain::<L>(ids, self.core.env, &self.bodies)) {
            // The longest first: where several begin alike, it is what saves most.
            let at = self.chains.partition_point(|slot| slot.chain.ids().len() >= ids.len());
            self.chains.insert(at, ChainSlot { chain, from: *from, to: *to, usable: false });
            self.set_chains();
        }
    }

    /// Switches fused chains on or off.
    pub(crate) fn set_fusion(&mut self, on: bool) {
        self.fusion = on;
        self.set_chains();
    }

    /// No place knows of a chain any more. Chains are few, places are as many as nodes: those of chains alone are looked at.
    fn forget_chains(&self) {
        for place in self.chains.iter().filter_map(|slot| self.places.get(slot.from as usize)) {
            place.look_again(None, NEVER);
        }
    }

    /// Notes which chains may be used, and at each place that one begins there.
    fn set_chains(&mut self) {
        self.forget_chains();
        for (at, slot) in self.chains.iter_mut().enumerate() {
            // Packets in a peer's memory are copied in front of a node that does not take them, not within a chain.
            let fits = |id: &u16| self.places[*id as usize].usual && self.places[*id as usize].takes_shared;
            slot.usable = self.fusion && slot.chain.link(&self.places) && slot.chain.ids().iter().all(fits);
            let place = &self.places[slot.from as usize];
            if slot.usable && place.wait.get() == NEVER {
                place.chain.set(u8::try_from(at).ok());
                place.wait.set(0);
            }
        }
    }

    pub(crate) fn set_loop(&mut self, id: u16, config: LoopConfig, level: Level, usual: bool) {
        let at = id as usize;
        if let (Some(place), Some(body)) = (self.places.get_mut(at), self.bodies.get_mut(at)) {
            (place.prefetch, place.usual) = (config.prefetch, usual);
            if let Body::Internal(node) = body {
                node.set_loop(config, level);
            }
            self.set_chains();
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
        match self.bodies.get_mut(id.0 as usize)? {
            Body::Input(node) => {
                let node: &mut dyn Any = node.as_mut();
                node.downcast_mut::<Input<I>>().map(|input| &mut input.0)
            }
            _ => None,
        }
    }

    /// Runs `f` in the surroundings of node `id`, as if the node were called: for packets that the control side injects.
    pub fn at_node<R>(&mut self, id: crate::NodeId, f: impl FnOnce(&mut NodeCx<'_>) -> R) -> Option<R> {
        if id.0 as usize >= self.bodies.len() {
            return None;
        }
        let mut run = self.run(0);
        let (cx, _) = run.enter(id.0);
        let result = f(cx);
        self.core.handoff.publish();
        self.fds_changed = true;
        Some(result)
    }

    /// One turn: every input node, then everything that follows from it. Returns the packets brought in.
    pub fn step(&mut self) -> usize {
        let (now, ticks) = self.clock.now_and_ticks();
        self.core.now = now;
        self.presence.here(now, &mut self.figures.absences);
        let packets = self.run(ticks).turn();
        self.core.cache.publish();
        self.figures.loops += 1;
        self.pulse.beat();
        packets
    }

    /// Whether another worker should have the processor now: they share one, and this worker's turn has brought nothing in, or it lacks
    /// what only the others can give, room in the way to one of them or buffers. Otherwise it would drop packets until the kernel
    /// takes the processor away, some milliseconds later.
    pub(crate) fn should_yield(&mut self, packets: usize) -> bool {
        let full = self.core.handoff.was_full();
        let no_buffer = std::mem::replace(&mut self.no_buffer_seen, self.core.no_buffer) != self.core.no_buffer;
        self.rivals >= self.processors && (packets == 0 || full || no_buffer)
    }

    /// The thread slept, or had nothing to look for.
    pub(crate) fn rested(&mut self) {
        self.presence.rested();
    }

    /// Runs nodes until no frame waits.
    pub(crate) fn drain(&mut self) {
        let time = self.clock.clock().ticks();
        self.run(time).drain();
    }

    /// What it takes to run nodes, from `time` on.
    fn run(&mut self, time: u64) -> Run<'_> {
        let Self { core, bodies, places, chains, fusion, inputs, next, clock, nodes, pulse, figures, .. } = self;
        let env = core.env;
        let cx = NodeCx { core, env, prefetch: 0, node: ERROR_DROP, nexts: &[], next: &mut next.0, places };
        Run { cx, bodies, places, fusion: *fusion, chains, inputs, clock: clock.clock(), nodes, pulse, figures, time }
    }

    /// Asks input nodes whether the thread may sleep: `Some(until)` if it may, with the earliest time that one asked for.
    pub(crate) fn may_sleep(&mut self) -> Option<Option<u64>> {
        if !self.core.queue.is_empty() || self.core.handoff.has_mail() {
            return None;
        }
        let mut until: Option<u64> = None;
        if self.core.hold != Hold::None {
            return Some(until);
        }
        for id in &self.inputs {
            if let Body::Input(node) = &mut self.bodies[*id as usize] {
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
        if self.core.hold != Hold::None {
            return false;
        }
        let opinion = |id: &u16| match &self.bodies[*id as usize] {
            Body::Input(node) => node.spins(),
            _ => None,
        };
        let mut opinions = self.inputs.iter().filter_map(opinion).peekable();
        opinions.peek().is_none() || opinions.any(|spins| spins)
    }

    pub(crate) fn event_fds(&self, fds: &mut Vec<std::os::fd::RawFd>) {
        if self.core.hold != Hold::None {
            return;
        }
        for id in &self.inputs {
            if let Body::Input(node) = &self.bodies[*id as usize] {
                node.event_fds(fds);
            }
        }
    }

    /// Stops bringing packets in (and sending), or begins with it again.
    pub(crate) fn set_hold(&mut self, hold: Hold) {
        self.core.hold = hold;
        self.fds_changed = true;
    }

    /// Has all input nodes do something.
    pub(crate) fn each_input(&mut self, mut f: impl FnMut(&mut dyn InputNodeDyn)) {
        for id in &self.inputs {
            if let Body::Input(node) = &mut self.bodies[*id as usize] {
                f(&mut **node);
            }
        }
    }

    /// Starts tracing the next `n` packets of an input node, of those that are `wanted`.
    pub fn trace_add(&mut self, node: crate::NodeId, n: u32, wanted: Option<Wanted>) {
        self.core.trace.add(node.0, n, wanted);
        self.core.observe();
    }

    /// Forgets all traces.
    pub fn trace_clear(&mut self) {
        self.core.trace.clear();
        self.core.watch();
        self.core.observe();
    }

    /// Copies of the traces.
    pub fn traces(&self) -> Vec<TraceRecord> {
        self.core.trace.records().to_vec()
    }

    /// Copies of the traces that `chosen` says yes to, by their numbers ([`TraceMark::trace`](crate::TraceMark::trace)).
    pub fn numbered_traces(&self, chosen: impl Fn(u32) -> bool) -> Vec<(u32, TraceRecord)> {
        let all = self.core.trace.numbered().filter(|(number, _)| chosen(*number));
        all.map(|(number, record)| (number, record.clone())).collect()
    }

    /// Starts copying packets.
    pub fn capture(&mut self, sink: CaptureSink) {
        self.core.captures.add(sink);
        self.core.watch();
        self.core.observe();
    }

    /// Ends the copying of packets that has this number.
    pub fn end_capture(&mut self, id: u64) {
        self.core.captures.remove(id);
        self.core.watch();
        self.core.observe();
    }

    /// Starts this thread's figures anew.
    pub(crate) fn clear_figures(&mut self) {
        self.figures = LoopFigures { since: self.clock.clock().now(), ..Default::default() };
        self.places.iter().for_each(|place| place.peak.set(NodePeak::default()));
    }

    /// The most expensive call of each node, by its number.
    pub fn peaks(&self) -> Vec<NodePeak> {
        self.places.iter().map(|place| place.peak.get()).collect()
    }

    /// Memory that this thread writes for every frame, as address and bytes: for the check that no two threads write a line. The
    /// worker itself lies on its thread's stack; what nodes own beyond themselves is theirs to keep apart.
    pub fn written(&self) -> Vec<(usize, usize)> {
        let body = |body: &Body| match body {
            Body::Internal(node) => Some((std::ptr::from_ref(&**node).cast::<u8>() as usize, size_of_val(&**node))),
            Body::Input(node) => Some((std::ptr::from_ref(&**node).cast::<u8>() as usize, size_of_val(&**node))),
            Body::Gone => None,
        };
        let mut all: Vec<(usize, usize)> = self.bodies.iter().filter_map(body).collect();
        all.push((std::ptr::from_ref(&*self.next) as usize, size_of::<Scratch>()));
        all.push((self.places.as_ptr() as usize, self.places.len() * size_of::<Place>()));
        all.extend(self.core.queue.written());
        all.extend(self.core.cache.written());
        all.extend(self.core.handoff.written());
        all
    }

    /// Runs a change that the main thread sent, and remembers what it cost.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let start = self.clock.clock().ticks();
        change(self);
        let ticks = self.clock.clock().ticks().wrapping_sub(start);
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
        for id in (0..self.bodies.len() as u16).rev() {
            self.uninstall(id);
        }
    }
}
