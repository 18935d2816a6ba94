//! A line's steps: each node with those behind it.

use std::any::TypeId;
use std::ops::Range;

use crate::context::NodeCx;
use crate::frame::{Frame, PREFETCH_MAX, TAKEN};
use crate::group::Group;
use crate::node::{NextNodes, Node};
use crate::packet::{Env, Packet, Pkt};
use crate::spec::{Body, Staged};
use crate::staged::{ahead, single};
use crate::stats::SimpleRows;
use crate::worker::Place;

/// The last node of a line.
pub struct End<N>(Stage<N>);

/// A node of a line, and those behind it.
pub struct Then<N, L> {
    stage: Stage<N>,
    rest: L,
}

/// A node's place in a line.
struct Stage<N> {
    /// The instance, for the time of a call.
    node: *mut N,
    id: u16,
    /// Slot of the line's next node.
    on: u16,
    /// Packets that have left the line here.
    left: usize,
    distance: usize,
    env: Env,
}

// SAFETY: the pointer is only followed in the call that has set it; `Env` is as in `Core`.
unsafe impl<N: Send> Send for Stage<N> {}

/// What came of a frame in a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Calls of all nodes.
    pub calls: u64,
    /// Packets that came to them.
    pub vectors: u64,
    /// Packets that left before the last node.
    pub left: usize,
}

/// A packet that leaves the line: its position, and the node and slot by which it goes.
#[derive(Clone, Copy)]
pub struct Exit {
    pub(super) at: usize,
    pub(super) id: u16,
    pub(super) slot: u16,
}

/// What all steps need.
pub struct Way<'a> {
    pub(super) frame: *mut Frame,
    pub(super) next: *mut u16,
    pub(super) env: Env,
    pub(super) exits: &'a mut Vec<Exit>,
}

impl<N: Node> Stage<N> {
    fn new(id: u16, on: Option<&str>, env: Env) -> Option<Self> {
        let slot = |name: &str| N::Next::NAMES.iter().position(|next| *next == name).map(|at| at as u16 + 1);
        let on = on.map_or(Some(u16::MAX), slot)?;
        Some(Self { node: std::ptr::null_mut(), id, on, left: 0, distance: 0, env })
    }

    fn fits(&self, bodies: &[Body]) -> bool {
        N::GROUPS && matches!(bodies.get(self.id as usize), Some(Body::Internal(body)) if body.kind() == TypeId::of::<N>())
    }

    /// # Safety
    /// `bodies` has the node of this stage, of type `N`, and nobody else uses that one until the line has ended.
    #[inline(always)]
    unsafe fn begin<'a>(&mut self, bodies: *mut Body, places: &'a [Place], cx: &mut NodeCx<'a>) {
        let place = &places[self.id as usize];
        place.enter(self.id, cx);
        // SAFETY: the caller's promise.
        if let Body::Internal(body) = unsafe { &mut *bodies.add(self.id as usize) } {
            // SAFETY: the caller's promise: behind the pointer is a `Staged<N>`.
            self.node = unsafe { &raw mut (*(&raw mut **body).cast::<Staged<N>>()).node };
        }
        self.left = 0;
        self.env.error_base = place.error_base;
        self.node().begin(cx);
        self.distance = cx.prefetch.into();
    }

    #[inline(always)]
    fn end<'a>(&mut self, places: &'a [Place], cx: &mut NodeCx<'a>) {
        places[self.id as usize].enter(self.id, cx);
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
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame, i: usize, pulled: usize) {
        let (distance, env) = (self.distance, self.env);
        if distance == 0 {
            return;
        }
        if pulled == 0 {
            // SAFETY: the caller's promise.
            return unsafe { ahead::<N, W>(self.node(), frame, i + distance, &env) };
        }
        for i in i + distance..i + distance + W {
            // SAFETY: within the lanes (the caller's promise). A copy: the packet is still to come to the nodes in front.
            let mut packet = unsafe {
                let Frame { index, span, context, aux, .. } = &*frame;
                Packet { index: index[i], span: span[i], context: context[i], aux: aux[i] }
            };
            let mut packet = Pkt::of_packet(&mut packet, &env);
            if packet.pull(pulled) {
                self.node().prefetch(&packet);
            }
        }
    }

    /// Handles a packet by the functions of one. `false` where it is gone.
    ///
    /// # Safety
    /// As for [`single`].
    #[inline(always)]
    unsafe fn single(&mut self, way: &mut Way<'_>, i: usize) -> bool {
        let env = self.env;
        // SAFETY: the caller's promise.
        unsafe {
            single(self.node(), way.frame, i, way.next, &env);
            (*way.frame).index[i] != TAKEN
        }
    }
}

/// What a line does, from one of its nodes on. Its functions are for this module alone.
///
/// # Safety
/// Positions are those of packets of the frame of `way`, and nobody else uses that frame and its next lane meanwhile.
pub trait Steps: Send + Sized + 'static {
    #[doc(hidden)]
    fn make(names: &[&str], ids: &[u16], env: &LineEnv) -> Option<Self>;
    #[doc(hidden)]
    fn fits(&self, bodies: &Bodies<'_>) -> bool;
    #[doc(hidden)]
    unsafe fn begin<'a>(&mut self, bodies: &BodyPtr, places: &Places<'a>, cx: &mut NodeCx<'a>) -> bool;
    #[doc(hidden)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame, i: usize, pulled: usize);
    #[doc(hidden)]
    unsafe fn group<const W: usize>(&mut self, group: &mut Group<'_, W>, way: &mut Way<'_>);
    #[doc(hidden)]
    fn end<'a>(&mut self, places: &Places<'a>, cx: &mut NodeCx<'a>);
    #[doc(hidden)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>);
    /// Packets one by one, from here on: of a group of which one is not plain, or that came in on several interfaces.
    #[doc(hidden)]
    #[inline(never)]
    unsafe fn each(&mut self, range: Range<usize>, way: &mut Way<'_>) {
        let env = way.env;
        for i in range {
            // SAFETY: the caller's promise.
            unsafe { self.group(&mut Group::<1>::new(way.frame, i, way.next, &env), way) };
        }
    }
}

/// Crate-private types in the functions of [`Steps`], which other crates cannot call.
pub struct LineEnv(pub(super) Env);
pub struct Bodies<'a>(pub(super) &'a [Body]);
pub struct BodyPtr(pub(super) *mut Body);
pub struct Places<'a>(pub(super) &'a [Place]);

impl<N: Node> Steps for End<N> {
    fn make(_: &[&str], ids: &[u16], env: &LineEnv) -> Option<Self> {
        let [id] = ids else { return None };
        Stage::new(*id, None, env.0).map(Self)
    }
    fn fits(&self, bodies: &Bodies<'_>) -> bool {
        self.0.fits(bodies.0)
    }
    #[inline(always)]
    unsafe fn begin<'a>(&mut self, bodies: &BodyPtr, places: &Places<'a>, cx: &mut NodeCx<'a>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.begin(bodies.0, places.0, cx) };
        self.0.distance != 0
    }
    #[inline(always)]
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame, i: usize, pulled: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.ahead::<W>(frame, i, pulled) }
    }
    #[inline(always)]
    unsafe fn group<const W: usize>(&mut self, group: &mut Group<'_, W>, way: &mut Way<'_>) {
        if self.0.node().group(group).is_none() {
            // SAFETY: the caller's promise.
            unsafe {
                if W == 1 {
                    self.odd(group.at(), way);
                } else {
                    self.each(group.at()..group.at() + W, way);
                }
            }
        }
    }
    #[inline(always)]
    fn end<'a>(&mut self, places: &Places<'a>, cx: &mut NodeCx<'a>) {
        self.0.end(places.0, cx);
    }
    #[inline(always)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>) {
        self.0.count(n, sum, nodes);
    }
}

impl<N: Node> End<N> {
    /// # Safety
    /// As for [`Steps`].
    #[inline(never)]
    unsafe fn odd(&mut self, i: usize, way: &mut Way<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.0.single(way, i) };
    }
}

impl<N: Node, L: Steps> Steps for Then<N, L> {
    fn make(names: &[&str], ids: &[u16], env: &LineEnv) -> Option<Self> {
        let stage = Stage::new(*ids.first()?, Some(names.get(1)?), env.0)?;
        Some(Self { stage, rest: L::make(names.get(1..)?, ids.get(1..)?, env)? })
    }
    fn fits(&self, bodies: &Bodies<'_>) -> bool {
        self.stage.fits(bodies.0) && self.rest.fits(bodies)
    }
    #[inline(always)]
    unsafe fn begin<'a>(&mut self, bodies: &BodyPtr, places: &Places<'a>, cx: &mut NodeCx<'a>) -> bool {
        // SAFETY: the caller's promise.
        let behind = unsafe {
            self.stage.begin(bodies.0, places.0, cx);
            self.rest.begin(bodies, places, cx)
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
    unsafe fn ahead<const W: usize>(&mut self, frame: *mut Frame, i: usize, pulled: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.stage.ahead::<W>(frame, i, pulled);
            self.rest.ahead::<W>(frame, i, pulled + N::PULLS);
        }
    }
    #[inline(always)]
    unsafe fn group<const W: usize>(&mut self, group: &mut Group<'_, W>, way: &mut Way<'_>) {
        let sent = self.stage.node().group(group).is_some();
        // SAFETY: the caller's promise.
        unsafe {
            if sent && group.all_sent(self.stage.on) {
                self.rest.group(group, way);
            } else if sent || W == 1 {
                self.apart(group.at()..group.at() + W, sent, way);
            } else {
                self.each(group.at()..group.at() + W, way);
            }
        }
    }
    #[inline(always)]
    fn end<'a>(&mut self, places: &Places<'a>, cx: &mut NodeCx<'a>) {
        self.stage.end(places.0, cx);
        self.rest.end(places, cx);
    }
    #[inline(always)]
    fn count(&self, n: usize, sum: &mut Passed, nodes: &SimpleRows<3>) {
        self.stage.count(n, sum, nodes);
        self.rest.count(n - self.stage.left, sum, nodes);
    }
}

impl<N: Node, L: Steps> Then<N, L> {
    /// Packets that do not all go on, or one that is not plain (then it has not been `sent` yet): each for itself.
    ///
    /// # Safety
    /// As for [`Steps`].
    #[inline(never)]
    unsafe fn apart(&mut self, range: Range<usize>, sent: bool, way: &mut Way<'_>) {
        for i in range {
            // SAFETY: the caller's promise; the next lane has been written.
            unsafe {
                if !sent && !self.stage.single(way, i) {
                    self.stage.left += 1;
                    continue;
                }
                let slot = *way.next.add(i);
                if slot == self.stage.on {
                    self.rest.each(i..i + 1, way);
                } else {
                    self.stage.left += 1;
                    way.exits.push(Exit { at: i, id: self.stage.id, slot });
                }
            }
        }
    }
}
