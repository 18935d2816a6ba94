//! Hand-off: a packet goes on at a node of another thread.
//!
//! ```text
//!   worker 1:  … ─► some node ──┐ emit_on / spread                    worker 2:  handoff-input ─► the node named ─► …
//!                               └──► ring 1→2 (one writer, one reader) ────────────▲
//! ```
//!
//! Every pair of threads that run the graph has a ring in each direction; nobody locks, and no line is written by two. A node
//! hands a packet over by [`NodeCx::emit_on`], which is [`NodeCx::emit`] with a thread: the packet goes on at the same next node
//! there. [`NodeCx::spread`] does that for a whole frame. Packets that one thread hands to another for the same node arrive in
//! order. What was handed over becomes readable when the node that did it has run, so a frame costs one line transfer for each
//! thread that got some of it.
//!
//! A full ring, or a thread that is not there, gives the packet back: the caller drops it for a reason of its own, counted
//! (VPP's "congestion drop"). Nobody waits for anybody. A place in a ring holds a packet's four lanes; in front of packets that go on at
//! another node than the one before is a place that says where. Buffers, metadata lines included, change owner with the ring's release
//! and acquire.
//!
//! On the other side `handoff-input`, which every thread has, polls its rings before the device queues and wakes the thread
//! when it sleeps. A traced packet goes on as a second trace there.

use std::sync::atomic::{Ordering, fence};

use quiver_tables::ring::{Consumer, Producer, ring};

use crate::context::{Core, NULL_NODE, NodeCx};
use crate::fleet::Bell;
use crate::frame::{Frame, TAKEN, flags};
use crate::memory::{Memory, Shared};
use crate::node::{DropReasons, InputNode, NoDrops, NoNext, Verdict};
use crate::packet::{Env, Packet, Pkt};

/// Places between two threads: what arrives at 10 Mpps while a thread is away for 400 µs. Each run of packets for one node
/// takes one more for its head.
pub const HANDOFF_CAPACITY: usize = 4096;

/// A packet's lanes on their way, or the head of a run: where the packets behind it go on. Four of them fill a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Parcel {
    /// [`TAKEN`], which is no packet's, in the head of a run.
    index: u32,
    span: u32,
    context: u32,
    /// A head's: see [`Run`].
    aux: u32,
}

/// What packets in a row have in common: the node that they go on at (low 16 bits), and whether the sender has traces of them.
#[derive(Clone, Copy, PartialEq)]
struct Run(u32);

impl Run {
    const TRACED: u32 = 1 << 16;
    /// No packet's.
    const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    fn new(node: u16, traced: bool) -> Self {
        Self(u32::from(node) | if traced { Self::TRACED } else { 0 })
    }

    #[inline(always)]
    fn node(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    fn is_traced(self) -> bool {
        self.0 & Self::TRACED != 0
    }

    fn head(self) -> Parcel {
        Parcel { index: TAKEN, span: 0, context: 0, aux: self.0 }
    }
}

pub(crate) type Sender = Producer<Parcel>;
pub(crate) type Receiver = Consumer<Parcel>;

/// The two ends of the way from one thread to another.
pub(crate) fn way() -> (Sender, Receiver) {
    ring(HANDOFF_CAPACITY)
}

/// On lines of its own: the sender counts here.
#[repr(align(128))]
struct Out {
    ring: Sender,
    /// Of the packet put in last.
    run: Run,
    bell: Bell,
}

impl Out {
    /// Puts the head of a run in, where a packet fits in behind it.
    #[inline(never)]
    fn begin(&mut self, run: Run) -> bool {
        if !self.ring.has_room(2) || self.ring.push(run.head()).is_err() {
            return false;
        }
        self.run = run;
        true
    }
}

/// On lines of its own: the receiver counts here.
#[repr(align(128))]
struct In {
    from: usize,
    ring: Receiver,
    /// Of the packet taken out last.
    run: Run,
}

/// A thread's ends of the ways to and from all others.
#[derive(Default)]
pub(crate) struct Handoff {
    /// By thread.
    out: Vec<Option<Out>>,
    /// Threads that something was put in for and not published yet. There are at most 64 threads.
    pending: u64,
    /// A way had no room since that was last asked.
    full: bool,
    inputs: Vec<In>,
}

const _: () = assert!(crate::stats::MAX_THREADS <= u64::BITS as usize);

impl Handoff {
    /// Opens the way to a thread.
    pub(crate) fn connect(&mut self, to: usize, ring: Sender, bell: Bell) {
        while self.out.len() <= to {
            self.out.push(None);
        }
        self.out[to] = Some(Out { ring, run: Run::NONE, bell });
    }

    /// Opens the way from a thread.
    pub(crate) fn accept(&mut self, from: usize, ring: Receiver) {
        self.inputs.push(In { from, ring, run: Run::NONE });
    }

    /// Closes the way to a thread: nothing goes there any more.
    pub(crate) fn disconnect(&mut self, to: usize) {
        self.publish();
        if let Some(out) = self.out.get_mut(to) {
            *out = None;
        }
    }

    /// Closes the way from a thread that is gone. The caller has taken out what was in it.
    pub(crate) fn forget(&mut self, from: usize) {
        self.inputs.retain(|input| input.from != from);
    }

    #[inline(always)]
    fn push(&mut self, to: usize, run: Run, parcel: Parcel) -> bool {
        let Some(Some(out)) = self.out.get_mut(to) else { return false };
        if out.run != run && !out.begin(run) || out.ring.push(parcel).is_err() {
            self.full = true;
            return false;
        }
        self.pending |= 1 << to;
        true
    }

    /// Whether a way had no room since this was last asked.
    pub(crate) fn was_full(&mut self) -> bool {
        std::mem::take(&mut self.full)
    }

    /// Makes what nodes have handed over readable for its threads, and wakes those that sleep. Called after each node.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.pending != 0 {
            self.publish_pending();
        }
    }

    #[inline(never)]
    fn publish_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for (_, out) in self.out.iter_mut().enumerate().filter(|(to, _)| pending >> to & 1 == 1) {
            if let Some(out) = out {
                out.ring.publish();
            }
        }
        // Pairs with the fence of `has_mail`: either the sleeper sees the packets, or we see it asleep.
        fence(Ordering::SeqCst);
        for (_, out) in self.out.iter().enumerate().filter(|(to, _)| pending >> to & 1 == 1) {
            if let Some(out) = out {
                out.bell.ring();
            }
        }
    }

    /// Memory that is written all the time, as address and bytes.
    pub(crate) fn written(&self) -> Vec<(usize, usize)> {
        let out = self.out.iter().flatten().map(|out| (std::ptr::from_ref(out) as usize, size_of::<Out>()));
        out.chain(self.inputs.iter().map(|input| (std::ptr::from_ref(input) as usize, size_of::<In>()))).collect()
    }

    /// Whether other threads hand packets over to this one.
    #[inline(always)]
    pub(crate) fn receives(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Whether something waits here. Asked after the thread has announced its sleep.
    pub(crate) fn has_mail(&self) -> bool {
        fence(Ordering::SeqCst);
        self.inputs.iter().any(|input| !input.ring.is_empty())
    }
}

impl NodeCx<'_> {
    /// Sends an owned packet to one of this node's next nodes on another thread: [`NodeCx::emit`] with a thread. On this
    /// thread itself it is the same as `emit`. Packets handed to a thread stay in order.
    ///
    /// # Errors
    /// The packet, where that thread does not keep up or does not run the graph; drop it for a counted reason.
    #[inline(always)]
    pub fn emit_on<M: Memory>(&mut self, thread: usize, verdict: impl Into<Verdict>, packet: Packet<M>) -> Result<(), Packet<M>> {
        if thread == self.core.thread {
            self.emit(verdict, packet);
            return Ok(());
        }
        if packet.index == TAKEN {
            return Ok(());
        }
        let node = self.nexts.get(usize::from(verdict.into().0)).copied().unwrap_or(NULL_NODE);
        let Packet { index, span, context, aux, .. } = packet;
        // Trace records belong to the thread that began them.
        let traced = context & flags::TRACED != 0;
        let parcel = Parcel { index, span, context: context & !flags::TRACED, aux };
        if self.core.handoff.push(thread, Run::new(node, traced), parcel) { Ok(()) } else { Err(packet) }
    }

    /// Takes a packet out of the frame and sends it to one of this node's next nodes on another thread, or drops it as `congestion` where
    /// that thread does not keep up. Gives the verdict on what is taken.
    #[inline(always)]
    pub fn hand_over<D: DropReasons, M: Memory>(
        &mut self,
        thread: usize,
        verdict: impl Into<Verdict>,
        packet: Pkt<'_, M>,
        congestion: D,
    ) -> Verdict {
        let (packet, taken) = packet.take();
        if let Err(packet) = self.emit_on(thread, verdict, packet) {
            self.drop_packet(packet, congestion);
        }
        taken
    }

    /// Sends each packet of a frame to `verdict` on the thread that `choose` names for it (vector nodes). Those that stay on
    /// this thread keep their places in the frame; those whose thread does not keep up are dropped as `congestion`. Returns how
    /// many were handed over.
    pub fn spread<D: DropReasons>(
        &mut self,
        frame: &mut Frame,
        verdict: impl Into<Verdict>,
        congestion: D,
        mut choose: impl FnMut(&Pkt<'_>) -> usize,
    ) -> usize {
        let verdict = verdict.into();
        self.spread_each(frame, congestion, |packet| (choose(packet), verdict))
    }

    /// [`NodeCx::spread`] where each packet has a next node of its own.
    pub fn spread_each<D: DropReasons>(
        &mut self,
        frame: &mut Frame,
        congestion: D,
        mut choose: impl FnMut(&Pkt<'_>) -> (usize, Verdict),
    ) -> usize {
        let own = self.core.thread;
        let mut handed = 0;
        for i in 0..frame.len() {
            let packet = self.packet(frame, i);
            let (thread, verdict) = choose(&packet);
            let traced = packet.has(flags::TRACED);
            self.decide(i, verdict);
            if thread == own {
                continue;
            }
            if traced {
                self.trace_leaving(frame, i, verdict);
            }
            let (packet, _) = self.packet(frame, i).take();
            match self.emit_on(thread, verdict, packet) {
                Ok(()) => handed += 1,
                Err(packet) => self.drop_packet(packet, congestion),
            }
        }
        handed
    }

    /// The framework traces what stays in a frame when the node has run; this packet will have gone.
    #[cold]
    fn trace_leaving(&mut self, frame: &mut Frame, i: usize, verdict: Verdict) {
        let to = self.nexts.get(usize::from(verdict.index())).copied().unwrap_or(NULL_NODE);
        crate::trace::record_one(self.core, &self.env, self.node, to, frame.any(), i);
    }
}

/// `handoff-input`: takes in what other threads have handed over.
pub(crate) struct HandoffInput;

impl InputNode for HandoffInput {
    type Next = NoNext;
    type Drop = NoDrops;

    #[inline(always)]
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        take_in(cx)
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        // The thread leaves; nobody sends here any more.
        while self.poll(cx) > 0 {}
    }
}

#[inline(never)]
fn take_in(cx: &mut NodeCx<'_>) -> usize {
    let most = cx.core.queue.vector_size;
    let mut packets = 0;
    for at in 0..cx.core.handoff.inputs.len() {
        let mut left = most;
        while let Some((run, packet)) = take_plain(cx.core, &cx.env, at, &mut left) {
            resume(cx, run.node(), packet);
        }
        cx.core.handoff.inputs[at].ring.release();
        packets += most - left;
    }
    packets
}

/// Takes at most `left` packets out of a ring, up to one with a trace, which it gives.
#[inline(always)]
fn take_plain(core: &mut Core, env: &Env, at: usize, left: &mut usize) -> Option<(Run, Packet<Shared>)> {
    let Core { handoff, queue, .. } = core;
    let In { ring, run, .. } = &mut handoff.inputs[at];
    while *left > 0 {
        let Parcel { index, span, context, aux } = ring.pop()?;
        if index == TAKEN {
            *run = Run(aux);
            continue;
        }
        *left -= 1;
        let mut packet = Packet::<Shared>::new(index, span, context, aux);
        if run.is_traced() {
            return Some((*run, packet));
        }
        // Its line is in the other core's cache: that takes longer than nodes look ahead.
        Pkt::of_packet(&mut packet, env).prefetch_header();
        // A node that was removed meanwhile has an instance that drops; numbers are the same on all threads.
        queue.open_frame(run.node()).append(&packet);
    }
    None
}

/// Delivers a packet that the other thread traced: a second trace begins here.
#[cold]
fn resume(cx: &mut NodeCx<'_>, node: u16, mut packet: Packet<Shared>) {
    crate::trace::resume(cx.core, &cx.env, cx.node, node, &mut packet);
    cx.core.queue.open_frame(node).append(&packet);
}
