//! A fused chain's steps: each node with those behind it.

use std::any::TypeId;
use std::ops::Range;

use crate::batch::Batch;
use crate::context::NodeCx;
use crate::frame::{Frame, PREFETCH_MAX, TAKEN};
use crate::loops::{ahead, single};
use crate::memory::Shared;
use crate::node::FastPath;
use crate::packet::{Env, Packet, Pkt};
use crate::spec::{Body, Fast, Instance};
use crate::stats::SimpleRows;
use crate::worker::Place;

/// The last node of a fused chain.
pub struct End<N>(Stage<N>);

/// A node of a fused chain, and those behind it.
pub struct Then<N, L> {
    stage: Stage<N>,
    rest: L,
}

/// A node's place in a chain.
struct Stage<N> {
    /// The instance, for the time of a call.
    node: *mut N,
    id: u16,
    /// Slot of the chain's next node.
    on: u16,
    /// Packets that have left the chain here.
    left: usize,
    distance: usize,
    env: Env,
}

// SAFETY: the pointer is only followed in the call that has set it; `Env` is as in `Core`.
unsafe impl<N: Send> Send for Stage<N> {}

/// What came of a frame in a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Calls of all nodes.
    pub calls: u64,
    /// Packets that came to them.
    pub vectors: u64,
    /// Packets that left before the last node.
    pub left: usize,
}

/// A packet that leaves the chain: its position, and the node and slot by which it goes.
#[derive(Clone, Copy)]
pub struct Exit {
    pub(super) at: usize,
    pub(super) id: u16,
    pub(super) slot: u16,
}

/// What all steps need.
pub struct Pass<'p, 'a> {
    pub(super) cx: &'p mut NodeCx<'a>,
    pub(super) frame: *mut Frame<Shared>,
    pub(super) next: *mut u16,
    pub(super) env: Env,
    pub(super) exits: &'p mut Vec<Exit>,
}

impl<N: FastPath<Shared>> Stage<N> {
    fn new(id: u16, env: Env) -> Self {
        Self { node: std::ptr::null_mut(), id, on: u16::MAX, left: 0, distance: 0, env }
    }

    fn fits(&self, bodies: &[Body]) -> bool {
        matches!(bodies.get(self.id as usize), Some(Body::Internal(body)) if body.kind() == TypeId::of::<Fast<Shared, N>>())
    }

    /// Finds the way to the next node of the chain, which edges made at run time may be.
    fn link(&mut self, next: u16, places: &[Place]) -> bool {
        let slot = places.get(self.id as usize).and_then(|place| place.slot_of(next));
        self.on = slot.unwrap_or(u16::MAX);
        slot.is_some()
    }

    /// # Safety
    /// `bodies` has the node of this stage, of type `N`, and nobody else uses that one until the chain has ended.
    #[inline(always)]
    unsafe fn begin(&mut self, bodies: *mut Body, cx: &mut NodeCx<'_>) {
        cx.enter(self.id);
        // SAFETY: the caller's promise.
        if let Body::Internal(body) = unsafe { &mut *bodies.add(self.id as usize) } {
            // SAFETY: the caller's promise: behind the pointer is an `Instance<Fast<Shared, N>>`.
            self.node = unsafe { &raw mut (*(&raw mut **body).cast::<Instance<Fast<Shared, N>>>()).node };
        }
        self.left = 0;
        self.env.error_base = cx.env.error_base;
        self.node().begin(cx);
        self.distance = cx.prefetch.into();
    }

    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        cx.enter(self.id);
        self.node().end(cx);
    }

    /// Counts `n` packets that came to this node, without clocks.
    #[inline(always)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>) {
        if n > 0 {
            nodes.add(self.id.into(), [1, n as u64, 0]);
            sum.calls += 1;
            sum.vectors += n as u64;
        }
        sum.left += self.left;
    }

    #[inline(always)]
    fn node(&mut self) -> &mut N {
        // SAFETY: `begin` has set it, for the time of this call (its promise), and this is the only way to it meanwhile.
        unsafe { &mut *self.node }
    }

    /// # Safety
    /// As for [`ahead`].
    #[inline(always)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame<Shared>, i: usize, pulled: usize) {
        let (distance, env) = (self.distance, self.env);
        if distance == 0 {
            return;
        }
        if pulled == 0 {
            // SAFETY: the caller's promise.
            return unsafe { ahead::<Shared, N, W>(self.node(), frame, i + distance, &env) };
        }
        for i in i + distance..i + distance + W {
            // SAFETY: within the lanes (the caller's promise). A copy: the packet is still to come to the nodes in front.
            let mut packet = unsafe {
                let Frame { index, span, context, aux, .. } = &*frame;
                Packet::<Shared>::new(index[i], span[i], context[i], aux[i])
            };
            let mut packet = Pkt::of_packet(&mut packet, &env);
            if packet.pull(pulled) {
                self.node().prefetch(&packet);
            }
        }
    }

    /// Handles a packet by [`Node::packet`](crate::Node::packet). `false` where it is gone.
    ///
    /// # Safety
    /// As for [`single`].
    #[inline(always)]
    unsafe fn single(&mut self, pass: &mut Pass<'_, '_>, i: usize) -> bool {
        let env = self.env;
        pass.cx.enter(self.id);
        // SAFETY: the caller's promise.
        let there = unsafe {
            single(self.node(), pass.cx, pass.frame, i, &env);
            (*pass.frame).index[i] != TAKEN
        };
        pass.next = pass.cx.next.as_mut_ptr();
        there
    }
}

/// What a fused chain does, from one of its nodes on. Its functions are for this module alone.
///
/// # Safety
/// Positions are those of packets of the frame of `pass`, and nobody else uses that frame and its next lane meanwhile.
pub trait Steps: Send + Sized + 'static {
    #[doc(hidden)]
    fn make(ids: &[u16], env: &ChainEnv) -> Option<Self>;
    #[doc(hidden)]
    fn fits(&self, bodies: &Bodies<'_>) -> bool;
    #[doc(hidden)]
    fn id(&self) -> u16;
    #[doc(hidden)]
    fn link(&mut self, places: &Places<'_>) -> bool;
    #[doc(hidden)]
    unsafe fn begin(&mut self, bodies: &BodyPtr, cx: &mut NodeCx<'_>) -> bool;
    #[doc(hidden)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame<Shared>, i: usize, pulled: usize);
    #[doc(hidden)]
    unsafe fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>, pass: &mut Pass<'_, '_>);
    #[doc(hidden)]
    fn end(&mut self, cx: &mut NodeCx<'_>);
    #[doc(hidden)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>);
    /// Packets one by one, from here on: of a batch of which one is not for the fast path.
    #[doc(hidden)]
    #[inline(never)]
    unsafe fn each(&mut self, range: Range<usize>, pass: &mut Pass<'_, '_>) {
        let env = pass.env;
        for i in range {
            // SAFETY: the caller's promise.
            unsafe { self.batch(&mut Batch::<1>::new(pass.frame, i, pass.next, &env), pass) };
        }
    }
}

/// Crate-private types in the functions of [`Steps`], which other crates cannot call.
pub struct ChainEnv(pub(super) Env);
pub struct Bodies<'a>(pub(super) &'a [Body]);
pub struct BodyPtr(pub(super) *mut Body);
pub struct Places<'a>(pub(super) &'a [Place]);

impl<N: FastPath<Shared>> Steps for End<N> {
    fn make(ids: &[u16], env: &ChainEnv) -> Option<Self> {
        let [id] = ids else { return None };
        Some(Self(Stage::new(*id, env.0)))
    }
    fn fits(&self, bodies: &Bodies<'_>) -> bool {
        self.0.fits(bodies.0)
    }
    fn id(&self) -> u16 {
        self.0.id
    }
    fn link(&mut self, _: &Places<'_>) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn begin(&mut self, bodies: &BodyPtr, cx: &mut NodeCx<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.begin(bodies.0, cx) };
        self.0.distance != 0
    }
    #[inline(always)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame<Shared>, i: usize, pulled: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.ahead::<W>(frame, i, pulled) }
    }
    #[inline(always)]
    unsafe fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>, pass: &mut Pass<'_, '_>) {
        if self.0.node().batch(batch).is_none() {
            // SAFETY: the caller's promise.
            unsafe {
                if W == 1 {
                    self.slow(batch.at(), pass);
                } else {
                    self.each(batch.at()..batch.at() + W, pass);
                }
            }
        }
    }
    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.0.end(cx);
    }
    #[inline(always)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>) {
        self.0.count(n, sum, nodes);
    }
}

impl<N: FastPath<Shared>> End<N> {
    /// # Safety
    /// As for [`Steps`].
    #[inline(never)]
    unsafe fn slow(&mut self, i: usize, pass: &mut Pass<'_, '_>) {
        // SAFETY: the caller's promise.
        unsafe { self.0.single(pass, i) };
    }
}

impl<N: FastPath<Shared>, L: Steps> Steps for Then<N, L> {
    fn make(ids: &[u16], env: &ChainEnv) -> Option<Self> {
        let (first, rest) = ids.split_first()?;
        Some(Self { stage: Stage::new(*first, env.0), rest: L::make(rest, env)? })
    }
    fn fits(&self, bodies: &Bodies<'_>) -> bool {
        self.stage.fits(bodies.0) && self.rest.fits(bodies)
    }
    fn id(&self) -> u16 {
        self.stage.id
    }
    fn link(&mut self, places: &Places<'_>) -> bool {
        let next = self.rest.id();
        self.stage.link(next, places.0) && self.rest.link(places)
    }
    #[inline(always)]
    unsafe fn begin(&mut self, bodies: &BodyPtr, cx: &mut NodeCx<'_>) -> bool {
        // SAFETY: the caller's promise.
        let behind = unsafe {
            self.stage.begin(bodies.0, cx);
            self.rest.begin(bodies, cx)
        };
        let distance = &mut self.stage.distance;
        if *distance == 0 {
            return behind;
        }
        // What a node behind looks into must have come by then.
        if behind {
            *distance = PREFETCH_MAX;
        }
        true
    }
    #[inline(always)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame<Shared>, i: usize, pulled: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.stage.ahead::<W>(frame, i, pulled);
            self.rest.ahead::<W>(frame, i, pulled + N::PULLS);
        }
    }
    #[inline(always)]
    unsafe fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>, pass: &mut Pass<'_, '_>) {
        let sent = self.stage.node().batch(batch).is_some();
        // SAFETY: the caller's promise.
        unsafe {
            if sent && batch.all_sent(self.stage.on) {
                self.rest.batch(batch, pass);
            } else if sent || W == 1 {
                self.apart(batch.at()..batch.at() + W, sent, pass);
            } else {
                self.each(batch.at()..batch.at() + W, pass);
            }
        }
    }
    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.stage.end(cx);
        self.rest.end(cx);
    }
    #[inline(always)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>) {
        self.stage.count(n, sum, nodes);
        self.rest.count(n - self.stage.left, sum, nodes);
    }
}

impl<N: FastPath<Shared>, L: Steps> Then<N, L> {
    /// Packets that do not all go on, or one that is not for the fast path (then it has not been `sent` yet): each for itself.
    ///
    /// # Safety
    /// As for [`Steps`].
    #[inline(never)]
    unsafe fn apart(&mut self, range: Range<usize>, sent: bool, pass: &mut Pass<'_, '_>) {
        for i in range {
            // SAFETY: the caller's promise; the next lane has been written.
            unsafe {
                if !sent && !self.stage.single(pass, i) {
                    self.stage.left += 1;
                    continue;
                }
                let slot = *pass.next.add(i);
                if slot == self.stage.on {
                    self.rest.each(i..i + 1, pass);
                } else {
                    self.stage.left += 1;
                    pass.exits.push(Exit { at: i, id: self.stage.id, slot });
                }
            }
        }
    }
}
