//! Lines: nodes that usually follow one another, run as one loop.
//!
//! ```text
//!   one node after the other:   [p p p p] ► A   [p p p p] ► B   [p p p p] ► C      three calls, three passes over the packets
//!   as a line:                  [p p p p] ► A ► B ► C                              one call; each group passes all three
//! ```
//!
//! A line is put together from the same functions as its nodes, so no rule stands twice. Each node says by its verdicts where packets
//! go; a group that goes on along the line is handed to the next node's [`Node::group`] where it stands, and what goes
//! anywhere else (a feature, a drop, an ICMP error) leaves the line there and waits for that node as ever. A packet of a group that is not
//! plain goes on by itself, so packets that take the same way stay in order.
//!
//! Packets are counted for each node that they pass, as without lines; clocks of a line count for its first node. Where packets are
//! traced, or the loop of one of its nodes is set by hand, its nodes run one after the other.

use std::any::TypeId;
use std::ops::Range;

use crate::context::NodeCx;
use crate::frame::{Frame, PREFETCH_MAX, TAKEN};
use crate::group::Group;
use crate::node::{NextNodes, Node};
use crate::packet::{Env, Packet, Pkt};
use crate::spec::{Body, Staged};
use crate::staged::{Level, ahead, single};
use crate::stats::SimpleRows;
use crate::worker::Place;

/// Packets a step.
const WIDTH: usize = 8;

/// The last node of a line.
pub struct End<N>(Stage<N>);

/// A node of a line, and those behind it.
pub struct Then<N, L> {
    stage: Stage<N>,
    rest: L,
}

/// A line of nodes: `Then<First, Then<Second, End<Third>>>`.
pub trait Line: Steps {}

impl<L: Steps> Line for L {}

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
    at: usize,
    id: u16,
    slot: u16,
}

/// What all steps need.
pub struct Way<'a> {
    frame: *mut Frame,
    next: *mut u16,
    env: Env,
    exits: &'a mut Vec<Exit>,
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
pub struct LineEnv(Env);
pub struct Bodies<'a>(&'a [Body]);
pub struct BodyPtr(*mut Body);
pub struct Places<'a>(&'a [Place]);

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

/// The loop over a frame.
#[inline(always)]
fn drive<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
    let (n, env) = (frame.len, cx.env);
    let mut way = Way { frame, next: cx.next.as_mut_ptr(), env, exits };
    let mut i = 0;
    // For both loops: i + W ≤ n; frame and next lane are exclusively borrowed, and no view or group is alive.
    while i + WIDTH <= n {
        // SAFETY: as above.
        unsafe {
            line.ahead::<WIDTH>(way.frame, i, 0);
            let mut group = Group::<WIDTH>::new(way.frame, i, way.next, &env);
            line.group(&mut group, &mut way);
        }
        i += WIDTH;
    }
    while i < n {
        // SAFETY: as above.
        unsafe {
            let mut group = Group::<1>::new(way.frame, i, way.next, &env);
            line.group(&mut group, &mut way);
        }
        i += 1;
    }
}

/// A compiled loop.
///
/// # Safety
/// Calling it needs the processor features of the level it was compiled for.
type LineFn<L> = unsafe fn(&mut L, &mut NodeCx<'_>, &mut Frame, &mut Vec<Exit>);

fn base<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
    drive(line, cx, frame, exits);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Exit, Frame, NodeCx, Steps, drive};

    #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt")]
    pub(super) fn v2<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
        drive(line, cx, frame, exits);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) fn v3<L: Steps>(line: &mut L, cx: &mut NodeCx<'_>, frame: &mut Frame, exits: &mut Vec<Exit>) {
        drive(line, cx, frame, exits);
    }
}

/// The loop for the level that nodes have by themselves.
fn select<L: Steps>() -> LineFn<L> {
    match Level::best() {
        #[cfg(target_arch = "x86_64")]
        Level::V2 => x86::v2::<L>,
        #[cfg(target_arch = "x86_64")]
        Level::V3 => x86::v3::<L>,
        _ => base::<L>,
    }
}

/// A line behind a pointer.
pub(crate) trait Fused: Send {
    /// Its nodes, in order.
    fn ids(&self) -> &[u16];
    /// Runs a frame through the line: afterwards `cx` is that of the last node, whose verdicts are in the next lane, and packets
    /// that have left before wait for the nodes that they went to. Counts calls and packets of each node, and gives their sums.
    fn run<'a>(
        &mut self,
        bodies: &mut [Body],
        places: &'a [Place],
        cx: &mut NodeCx<'a>,
        frame: &mut Frame,
        nodes: &SimpleRows<3>,
    ) -> Passed;
}

struct Whole<L> {
    line: L,
    ids: Vec<u16>,
    run: LineFn<L>,
    exits: Vec<Exit>,
}

/// A line of these nodes for a worker; `None` where they are not of its types, or one does not lead to the next.
pub(crate) fn line<L: Line>(names: &[&str], ids: &[u16], env: Env, bodies: &[Body]) -> Option<Box<dyn Fused>> {
    let distinct = ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id));
    let line = L::make(names, ids, &LineEnv(env)).filter(|line| distinct && line.fits(&Bodies(bodies)))?;
    Some(Box::new(Whole { line, ids: ids.to_vec(), run: select::<L>(), exits: Vec::new() }))
}

impl<L: Line> Fused for Whole<L> {
    fn ids(&self) -> &[u16] {
        &self.ids
    }

    fn run<'a>(
        &mut self,
        bodies: &mut [Body],
        places: &'a [Place],
        cx: &mut NodeCx<'a>,
        frame: &mut Frame,
        nodes: &SimpleRows<3>,
    ) -> Passed {
        let Self { line, run, exits, .. } = self;
        let places = Places(places);
        let mut sum = Passed::default();
        let n = frame.len;
        // SAFETY: the line was made for these bodies (`line`: distinct, of its types) and goes with the first of them that does;
        // they are exclusively borrowed. `select` gives only loops that this processor can run.
        unsafe {
            line.begin(&BodyPtr(bodies.as_mut_ptr()), &places, cx);
            run(line, cx, frame, exits);
        }
        line.end(&places, cx);
        line.count(n, &mut sum, nodes);
        if !exits.is_empty() {
            leave(exits, places.0, cx, frame);
        }
        sum
    }
}

/// Packets that have left wait for their nodes.
#[cold]
fn leave(exits: &mut Vec<Exit>, places: &[Place], cx: &mut NodeCx<'_>, frame: &mut Frame) {
    for Exit { at, id, slot } in exits.drain(..) {
        cx.core.queue.open_frame(places[id as usize].next_node(slot)).append_from(frame, at);
        frame.index[at] = TAKEN;
        frame.taken += 1;
    }
}
