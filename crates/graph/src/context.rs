//! What a node can reach while it runs: its worker's buffers, counters, clock, trace, and the queues to other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quiver_buffer::{Cache, HEADROOM, Meta, NO_BUFFER, Region};

use crate::IfIndex;
use crate::capture::{CapturePoint, Captures};
use crate::elog::{EventKind, Ring};
use crate::frame::{Frame, LANES, Span, flags};
use crate::handoff::Handoff;
use crate::hold::Hold;
use crate::interface::InterfaceCounters;
use crate::memory::{Memory, Shared};
use crate::node::{DropReasons, Verdict};
use crate::packet::{Env, Lanes, Packet, Pkt};
use crate::stats::SimpleCounters;
use crate::trace::TraceBuffer;
use crate::worker::Place;

/// Number of a node in the graph, the same on every worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// `error-drop` is always node 0.
pub(crate) const ERROR_DROP: u16 = 0;
/// `null-node` is always node 1: it drops what comes over an edge that leads nowhere any more.
pub(crate) const NULL_NODE: u16 = 1;

/// `handoff-input` is always node 3.
pub(crate) const HANDOFF_INPUT: u16 = 3;
/// `packet-loop` is always node 4: it drops what an iteration would never have run to its end.
pub(crate) const PACKET_LOOP: u16 = 4;

/// Number of no frame: its distance from any other is beyond what a queue ever holds.
const CLOSED: u64 = u64::MAX;
/// Frames kept for use again.
const SPARE: usize = 64;

/// A frame and its node, on a line of its own: queues of different workers are allocated one after the other, and none writes
/// a line of another's.
#[repr(align(64))]
struct Pending {
    node: u16,
    frame: Option<Box<Frame<Shared>>>,
}

/// Entries before and behind the open frames' table that are never used, so that it shares no line with anything.
const EDGE: usize = 16;

/// Frames waiting for their node, in order of first packet; each node has at most one that still takes packets.
///
/// A turn of the loop runs the queue empty, so it is an array that is filled from its start anew each time.
pub(crate) struct Queue {
    /// Of those behind `filled`, the frames are gone.
    waiting: Vec<Pending>,
    filled: usize,
    /// Those of `waiting` that have been run.
    done: usize,
    /// Running number of `waiting[0]`.
    first: u64,
    /// By node, behind [`EDGE`] entries that are not used: running number of the last frame that was opened for it.
    open: Vec<u64>,
    spare: Box<Spare>,
    pub(crate) vector_size: usize,
}

/// Frames for use again, on lines of their own.
#[repr(align(128))]
struct Spare {
    frames: [Option<Box<Frame<Shared>>>; SPARE],
    len: usize,
}

impl Queue {
    pub(crate) fn new(vector_size: usize) -> Self {
        let spare = Box::new(Spare { frames: [const { None }; SPARE], len: 0 });
        let mut queue =
            Self { waiting: Vec::with_capacity(64), filled: 0, done: 0, first: 0, open: Vec::new(), spare, vector_size };
        queue.set_nodes(0);
        queue
    }

    pub(crate) fn set_nodes(&mut self, nodes: usize) {
        self.open.resize(EDGE + nodes + EDGE, CLOSED);
    }

    pub(crate) fn new_frame(&mut self) -> Box<Frame<Shared>> {
        let Some(last) = self.spare.len.checked_sub(1) else { return Frame::boxed() };
        self.spare.len = last;
        self.spare.frames[last].take().unwrap_or_else(Frame::boxed)
    }

    pub(crate) fn recycle(&mut self, mut frame: Box<Frame<Shared>>) {
        frame.len = 0;
        frame.taken = 0;
        if let Some(place) = self.spare.frames.get_mut(self.spare.len) {
            *place = Some(frame);
            self.spare.len += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.done == self.filled
    }

    /// Frames in flight.
    pub(crate) fn len(&self) -> usize {
        self.filled - self.done
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(u16, Box<Frame<Shared>>)> {
        if self.done == self.filled {
            self.first += self.filled as u64;
            (self.done, self.filled) = (0, 0);
            return None;
        }
        let Pending { node, frame } = &mut self.waiting[self.done];
        self.done += 1;
        Some((*node, frame.take()?))
    }

    /// Frames that wait, from the start of the array on: an iteration that is long does not let it grow by what is done.
    pub(crate) fn begin_round(&mut self) -> usize {
        let waiting = self.len();
        self.waiting[..self.filled].rotate_left(self.done);
        self.first += self.done as u64;
        (self.done, self.filled) = (0, waiting);
        waiting
    }

    /// Position of the frame that was opened last for a node; beyond all that are filled where that one is gone with its turn.
    #[inline(always)]
    fn opened(&self, node: u16) -> usize {
        self.open[EDGE + node as usize].wrapping_sub(self.first) as usize
    }

    /// The frame of `node` that has room for a packet.
    #[inline(always)]
    pub(crate) fn open_frame(&mut self, node: u16) -> &mut Frame<Shared> {
        let open = self.opened(node);
        let has_room = |p: &Pending| p.frame.as_ref().is_some_and(|frame| frame.len < self.vector_size);
        if !self.waiting.get(open).is_some_and(has_room) {
            return self.open_new(node);
        }
        match &mut self.waiting[open].frame {
            Some(frame) => frame,
            // It has room, so it is there.
            None => unreachable!("checked above"),
        }
    }

    #[inline(never)]
    fn open_new(&mut self, node: u16) -> &mut Frame<Shared> {
        let frame = self.new_frame();
        self.append(node, frame)
    }

    #[inline(always)]
    fn append(&mut self, node: u16, frame: Box<Frame<Shared>>) -> &mut Frame<Shared> {
        let at = self.filled;
        self.open[EDGE + node as usize] = self.first + at as u64;
        if at == self.waiting.len() {
            self.waiting.push(Pending { node, frame: None });
        }
        self.filled = at + 1;
        let pending = &mut self.waiting[at];
        pending.node = node;
        pending.frame.insert(frame)
    }

    /// Hands a whole frame over: swapped, not copied, unless the node's open frame has room for it.
    pub(crate) fn hand_over(&mut self, node: u16, frame: Box<Frame<Shared>>) {
        let vector_size = self.vector_size;
        let open = self.opened(node);
        if let Some(target) = self.waiting.get_mut(open).and_then(|p| p.frame.as_mut())
            && target.len + frame.len <= vector_size
        {
            let (to, n) = (target.len, frame.len);
            target.index[to..to + n].copy_from_slice(&frame.index[..n]);
            target.span[to..to + n].copy_from_slice(&frame.span[..n]);
            target.context[to..to + n].copy_from_slice(&frame.context[..n]);
            target.aux[to..to + n].copy_from_slice(&frame.aux[..n]);
            target.len = to + n;
            self.recycle(frame);
            return;
        }
        self.append(node, frame);
    }

    /// Memory that is written all the time, as address and bytes.
    pub(crate) fn written(&self) -> Vec<(usize, usize)> {
        let spare = (std::ptr::from_ref(&*self.spare) as usize, size_of::<Spare>());
        let frames = self.spare.frames.iter().flatten().map(|f| (std::ptr::from_ref(&**f) as usize, size_of::<Frame>()));
        let waiting = (self.waiting.as_ptr() as usize, self.waiting.capacity() * size_of::<Pending>());
        let open = (self.open[EDGE..].as_ptr() as usize, (self.open.len() - 2 * EDGE) * size_of::<u64>());
        frames.chain([spare, waiting, open]).collect()
    }
}

/// Whether a thread's packets are looked at, as part of the number of threads of which that is so.
#[derive(Default)]
pub(crate) struct Observed {
    threads: Arc<AtomicUsize>,
    on: bool,
}

impl Observed {
    pub fn new(threads: &Arc<AtomicUsize>) -> Self {
        Self { threads: Arc::clone(threads), on: false }
    }

    fn set(&mut self, on: bool) {
        if std::mem::replace(&mut self.on, on) != on {
            if on {
                self.threads.fetch_add(1, Ordering::Release);
            } else {
                self.threads.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Everything of a worker that nodes can reach.
pub(crate) struct Core {
    pub thread: usize,
    /// Memory node, as [`NodeCx::numa`].
    pub numa: usize,
    pub now: u64,
    /// The memory behind `env`.
    pub region: Arc<Region>,
    pub cache: Cache,
    pub queue: Queue,
    pub errors: Arc<SimpleCounters>,
    pub interfaces: Arc<InterfaceCounters>,
    /// Ways to and from other threads.
    pub handoff: Handoff,
    pub trace: TraceBuffer,
    pub captures: Captures,
    /// Traces or captures look at packets between nodes: these run one by one, without fused chains.
    pub watched: bool,
    /// Traces or captures look at packets anywhere.
    pub observed: Observed,
    /// Packets that found no buffer, in all.
    pub no_buffer: u64,
    /// The event log of this thread.
    pub log: Arc<Ring>,
    pub env: Env,
    /// What is left to another process.
    pub hold: Hold,
}

// SAFETY: the raw pointers in `env` are the region's, which is Send + Sync and kept alive by `region`; who touches which
// bytes follows from the owner rule of buffer indices.
unsafe impl Send for Core {}

impl Core {
    /// Notes whether anything looks at packets between nodes.
    pub(crate) fn watch(&mut self) {
        self.watched = self.trace.live() || self.captures.at_nodes();
    }

    /// Notes whether anything looks at packets at all.
    pub(crate) fn observe(&mut self) {
        self.observed.set(self.trace.is_on() || self.captures.active());
    }

    pub(crate) fn free_chain(&mut self, index: u32, context: u32) {
        let mut next = if context & flags::CHAINED != 0 { self.meta(index).next } else { NO_BUFFER };
        self.cache.free(index);
        while next != NO_BUFFER {
            let index = next;
            next = self.meta(index).next;
            self.cache.free(index);
        }
    }

    /// Frees every packet of a frame.
    pub(crate) fn free_frame(&mut self, frame: &mut Frame<Shared>) {
        if frame.flags_any() & flags::CHAINED != 0 {
            for i in 0..frame.len {
                self.free_chain(frame.index[i], frame.context[i]);
            }
        } else {
            self.cache.free_bulk(&frame.index[..frame.len]);
        }
        frame.len = 0;
    }

    pub(crate) fn meta(&self, index: u32) -> Meta {
        // SAFETY: chain links and lanes are valid indices (F2, R1), and this worker owns the packet.
        unsafe { *self.env.meta.add(index as usize) }
    }
}

/// A node's surroundings for one call.
pub struct NodeCx<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) env: Env,
    pub(crate) prefetch: u8,
    pub(crate) node: u16,
    pub(crate) nexts: &'a [u16],
    pub(crate) next: &'a mut [u16; LANES],
    /// The places of all nodes.
    pub(crate) places: &'a [Place],
}

impl NodeCx<'_> {
    /// Makes these the surroundings of node `id`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, id: u16) {
        self.places[id as usize].enter(id, self);
    }

    /// Time of this loop, ns (CLOCK_MONOTONIC).
    pub fn now(&self) -> u64 {
        self.core.now
    }

    /// Number of the thread: 0 is main, workers count from 1.
    pub fn thread(&self) -> usize {
        self.core.thread
    }

    /// Memory node of the thread, by its place among those that have packet memory: 0 where there is one. For nodes that choose
    /// among copies of what they read.
    pub fn numa(&self) -> usize {
        self.core.numa
    }

    /// Remembers an event of a kind that [`Graph::events`](crate::Graph::events) gave. For what happens now and then, not for
    /// each packet.
    pub fn log(&self, kind: EventKind, a: u32, b: u32) {
        self.core.log.log(kind, a, b);
    }

    /// Largest vector, packets.
    pub fn vector_size(&self) -> usize {
        self.core.queue.vector_size
    }

    /// Leaves prefetching out for this vector: in [`Node::begin`](crate::Node::begin), where a node knows that what it would
    /// ask for is near.
    #[inline(always)]
    pub fn skip_prefetch(&mut self) {
        self.prefetch = 0;
    }

    /// View of packet `i` of a frame.
    ///
    /// # Panics
    /// Where `i` is not a packet of the frame.
    #[inline(always)]
    pub fn packet<'f, M: Memory>(&'f self, frame: &'f mut Frame<M>, i: usize) -> Pkt<'f, M> {
        assert!(i < frame.len);
        // SAFETY: i < len; the borrow of the frame makes this the only view.
        unsafe { Pkt::of_lane(frame, i, &self.env) }
    }

    /// View of an owned packet.
    pub fn view<'p, M: Memory>(&'p self, packet: &'p mut Packet<M>) -> Pkt<'p, M> {
        Pkt::of_packet(packet, &self.env)
    }

    /// Sets the verdict of packet `i` (vector nodes).
    #[inline(always)]
    pub fn decide(&mut self, i: usize, verdict: impl Into<Verdict>) {
        if let Some(next) = self.next.get_mut(i) {
            *next = verdict.into().0;
        }
    }

    /// Sends the whole frame the same way (vector nodes).
    #[inline(always)]
    pub fn decide_all<M: Memory>(&mut self, frame: &Frame<M>, verdict: impl Into<Verdict>) {
        self.next[..frame.len].fill(verdict.into().0);
    }

    /// Counts `n` events that are no drops of a packet (drops are counted where they end).
    #[inline(always)]
    pub fn count<D: DropReasons>(&mut self, event: D, n: u64) {
        self.core.errors.add(self.core.thread, self.env.error_base + u32::from(event.index()), n);
    }

    /// A new packet of `len` bytes (content stale), or `None` when buffers have run out, which is counted.
    pub fn alloc(&mut self, len: usize, rx_if: IfIndex) -> Option<Packet> {
        if len > self.env.data_end as usize - HEADROOM {
            return None;
        }
        let Some(index) = self.core.cache.alloc() else {
            self.no_buffer(rx_if, 1);
            return None;
        };
        Some(Packet::new(index, Span::new(HEADROOM as u32, len as u32).0, rx_if.0 & crate::frame::IF_MASK, 0))
    }

    /// A new packet with these bytes, chained over several buffers where one is too small.
    pub fn alloc_bytes(&mut self, bytes: &[u8], rx_if: IfIndex) -> Option<Packet> {
        self.alloc_parts(&[bytes], rx_if)
    }

    /// A new packet made of several byte runs, chained where one buffer is too small.
    pub fn alloc_parts(&mut self, parts: &[&[u8]], rx_if: IfIndex) -> Option<Packet> {
        // SAFETY: slices are readable.
        unsafe { crate::chain::build(self.core, self.env, parts, rx_if) }
    }

    /// Counts packets that found no buffer.
    pub fn no_buffer(&mut self, rx_if: IfIndex, n: u64) {
        self.core.no_buffer += n;
        self.core.interfaces.rx_no_buf.add(self.core.thread, rx_if.0, n);
    }

    /// Frees a packet without counting it as dropped (it was consumed).
    pub fn free<M: Memory>(&mut self, packet: Packet<M>) {
        if packet.index != crate::frame::TAKEN {
            self.core.free_chain(packet.index, packet.context);
        }
    }

    /// Sends an owned packet to one of this node's next nodes.
    pub fn emit<M: Memory>(&mut self, verdict: impl Into<Verdict>, packet: Packet<M>) {
        if packet.index == crate::frame::TAKEN {
            return;
        }
        let node = self.nexts.get(usize::from(verdict.into().0)).copied().unwrap_or(NULL_NODE);
        self.core.queue.open_frame(node).append(&packet.any());
    }

    /// Drops an owned packet for a counted reason.
    pub fn drop_packet<D: DropReasons, M: Memory>(&mut self, mut packet: Packet<M>, reason: D) {
        packet.aux = self.env.error_base + u32::from(reason.index());
        self.emit(Verdict::DROP, packet);
    }

    /// An empty frame for an input node to fill.
    pub fn new_frame(&mut self) -> Box<Frame> {
        // SAFETY: the layout is the same, and the frame is empty (F3).
        unsafe { Box::from_raw(Box::into_raw(self.core.queue.new_frame()).cast()) }
    }

    /// Sends a frame of an input node on, starting traces where they were asked for; an empty one is put back.
    pub fn send<M: Memory>(&mut self, verdict: impl Into<Verdict>, frame: Box<Frame<M>>) {
        let mut frame = frame.into_any();
        if frame.len == 0 {
            self.core.queue.recycle(frame);
            return;
        }
        let next = self.nexts.get(usize::from(verdict.into().0)).copied().unwrap_or(NULL_NODE);
        if self.core.trace.armed() {
            crate::trace::begin(self.core, &self.env, self.node, next, &mut frame);
        }
        self.core.queue.hand_over(next, frame);
    }

    /// Appends a new packet with these bytes to a frame of an input node. `false` when the vector is full or buffers have run
    /// out, which is counted.
    pub fn push_bytes(&mut self, frame: &mut Frame, bytes: &[u8], rx_if: IfIndex) -> bool {
        if frame.len >= self.core.queue.vector_size {
            return false;
        }
        let Some(packet) = self.alloc_bytes(bytes, rx_if) else { return false };
        frame.append(&packet);
        true
    }

    /// Puts back a frame that stayed empty.
    pub fn recycle<M: Memory>(&mut self, frame: Box<Frame<M>>) {
        debug_assert!(frame.is_empty());
        self.core.queue.recycle(frame.into_any());
    }

    /// Traces packets as they are now, for nodes that consume them (the framework traces what a node leaves in its frame).
    #[inline(always)]
    pub fn trace_here<M: Memory>(&mut self, frame: &mut Frame<M>) {
        if self.core.trace.live() {
            crate::trace::record(self.core, &self.env, self.node, &[], &[0; LANES], frame.any());
        }
    }

    /// [`NodeCx::trace_here`] for one packet of a frame.
    #[cold]
    pub(crate) fn trace_one(&mut self, frame: &mut Frame<Shared>, i: usize) {
        crate::trace::record_at(self.core, &self.env, self.node, frame, i);
    }

    /// For nodes that consume packets: traces the frame as it is, frees the first `done` packets and drops the others.
    pub(crate) fn consume<D: DropReasons>(&mut self, frame: &mut Frame<Shared>, done: usize, reason: D) {
        let code = self.env.error_base + u32::from(reason.index());
        if done < frame.len {
            frame.aux[done..frame.len].fill(code);
            // What is left moves to the front with the verdict "drop"; the framework does the rest, traces included.
            self.next[..frame.len].fill(Verdict::DROP.0);
        }
        if done == 0 {
            return;
        }
        self.trace_here(frame);
        let n = frame.len;
        if done == n {
            return self.core.free_frame(frame);
        }
        if frame.flags_any() & flags::CHAINED != 0 {
            for i in 0..done {
                self.core.free_chain(frame.index[i], frame.context[i]);
            }
        } else {
            self.core.cache.free_bulk(&frame.index[..done]);
        }
        frame.index.copy_within(done..n, 0);
        frame.span.copy_within(done..n, 0);
        frame.context.copy_within(done..n, 0);
        frame.aux.copy_within(done..n, 0);
        frame.len = n - done;
    }

    /// Copies the packets of a frame to an rx capture, if one runs: for input nodes, before they send the frame.
    #[inline(always)]
    pub fn capture_received<M: Memory>(&mut self, frame: &mut Frame<M>, interface: IfIndex) {
        if self.core.captures.active() {
            self.capture(CapturePoint::Rx, frame.any(), interface);
        }
    }

    #[cold]
    fn capture(&mut self, point: CapturePoint, frame: &mut Frame<Shared>, interface: IfIndex) {
        for i in 0..frame.len {
            let now = self.core.now;
            // SAFETY: i < len, and the frame is exclusively borrowed.
            let packet = unsafe { Pkt::of_lane(frame, i, &self.env) };
            self.core.captures.copy(point, interface, now, &packet);
        }
    }

    /// Ends the way of every packet of a frame, sent on `interface`: traced, copied by a tx capture, freed.
    pub fn consume_all<M: Memory>(&mut self, frame: &mut Frame<M>, interface: IfIndex) {
        let frame = frame.any();
        self.trace_here(frame);
        if self.core.captures.active() {
            self.capture(CapturePoint::Tx, frame, interface);
        }
        self.core.free_frame(frame);
    }

    /// Drops packets of a frame by number, ascending, of those below `below`, each for its own reason, and closes the gaps.
    /// Returns how many.
    #[cold]
    pub(crate) fn drop_some<D: DropReasons>(&mut self, frame: &mut Frame<Shared>, which: &[(usize, D)], below: usize) -> usize {
        let (mut dropped, below) = (0, below.min(frame.len));
        for (i, reason) in which.iter().copied().filter(|(i, _)| *i < below) {
            let (packet, _) = self.packet(frame, i).take();
            if packet.index != crate::frame::TAKEN {
                self.drop_packet(packet, reason);
                dropped += 1;
            }
        }
        frame.compact(&mut self.next[..]);
        dropped
    }

    /// Counters of interfaces.
    pub fn interfaces(&self) -> &InterfaceCounters {
        &self.core.interfaces
    }
}

impl<'a, M: Memory> Pkt<'a, M> {
    /// View of an owned packet.
    pub(crate) fn of_packet(packet: &'a mut Packet<M>, env: &'a Env) -> Self {
        let lanes = Lanes {
            index: &raw mut packet.index,
            span: &raw mut packet.span,
            context: &raw mut packet.context,
            aux: &raw mut packet.aux,
            taken: std::ptr::null_mut(),
        };
        // SAFETY: the packet is exclusively borrowed for 'a, and whoever made it kept to F2.
        unsafe { Self::new(lanes, env) }
    }

    /// View of lane `i`.
    ///
    /// # Safety
    /// `frame` is live and not otherwise accessed for 'a, and `i < LANES`.
    #[inline(always)]
    pub(crate) unsafe fn of_lane(frame: *mut Frame<M>, i: usize, env: &'a Env) -> Self {
        // SAFETY: i is within the arrays.
        unsafe {
            let lanes = Lanes {
                index: (&raw mut (*frame).index).cast::<u32>().add(i),
                span: (&raw mut (*frame).span).cast::<u32>().add(i),
                context: (&raw mut (*frame).context).cast::<u32>().add(i),
                aux: (&raw mut (*frame).aux).cast::<u32>().add(i),
                taken: &raw mut (*frame).taken,
            };
            Self::new(lanes, env)
        }
    }
}
