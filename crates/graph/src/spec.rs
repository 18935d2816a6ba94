//! How a node is declared to the graph: a name, and a recipe that makes its instance for each worker.

use std::any::{Any, TypeId};
use std::marker::PhantomData;

use crate::context::NodeCx;
use crate::feature::Point;
use crate::frame::Frame;
use crate::level::{Level, RunFn, compiled};
use crate::loops::{Batches, Packets, Vectors};
use crate::memory::{Memory, Shared};
use crate::node::{DropReasons, ErrorText, FastPath, Idle, InputNode, LoopConfig, NextNodes, Node, VectorNode, Verdict};
use crate::trace::TraceEntry;

/// Puts a trace entry into words, as lines without indentation.
pub type TraceFormat = Box<dyn Fn(&TraceEntry, &mut String)>;

/// What a recipe is told.
#[derive(Clone, Copy, Debug)]
pub struct MakeCx {
    /// The thread that the instance will run on.
    pub thread: usize,
}

/// Kind of a node, as `show runtime` and the graph drawing tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Brings packets in.
    Input,
    /// Transforms packets.
    Internal,
}

/// An instance, as a worker runs it.
pub(crate) enum Body {
    Internal(Box<dyn Dispatch>),
    Input(Box<dyn InputNodeDyn>),
    /// Removed; packets still on their way are dropped.
    Gone,
}

/// An internal node behind a pointer: one indirect call a vector.
pub(crate) trait Dispatch: Send {
    /// # Safety
    /// Packets lie in memory that the node takes (F3).
    unsafe fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>);
    fn set_loop(&mut self, config: LoopConfig, level: Level);
    fn release(&mut self, cx: &mut NodeCx<'_>);
    /// The node's [`Kind`].
    fn kind(&self) -> TypeId;
    /// [`VectorNode::passes`].
    fn passes(&self) -> Option<Verdict>;
}

/// An input node behind a pointer.
pub(crate) trait InputNodeDyn: Any + Send {
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize;
    fn idle(&self) -> bool;
    fn unfinished(&self) -> bool;
    fn arm(&mut self, now: u64) -> Idle;
    fn spins(&self) -> Option<bool>;
    fn event_fds(&self, fds: &mut Vec<std::os::fd::RawFd>);
    fn release(&mut self, cx: &mut NodeCx<'_>);
    fn discard(&mut self);
    fn begin(&mut self, since: u64);
}

/// Instances of one node on different threads are allocated one after the other: each begins on lines of its own, two because
/// the adjacent-line prefetcher pairs them, so that no thread writes a line of another's.
#[repr(align(128))]
pub(crate) struct Input<I>(pub(crate) I);

impl<I: InputNode> InputNodeDyn for Input<I> {
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        self.0.poll(cx)
    }
    fn idle(&self) -> bool {
        self.0.idle()
    }
    fn unfinished(&self) -> bool {
        self.0.unfinished()
    }
    fn arm(&mut self, now: u64) -> Idle {
        self.0.arm(now)
    }
    fn spins(&self) -> Option<bool> {
        self.0.spins()
    }
    fn event_fds(&self, fds: &mut Vec<std::os::fd::RawFd>) {
        self.0.event_fds(fds);
    }
    fn release(&mut self, cx: &mut NodeCx<'_>) {
        self.0.release(cx);
    }
    fn discard(&mut self) {
        self.0.discard();
    }
    fn begin(&mut self, since: u64) {
        self.0.begin(since);
    }
}

/// What can be set of a node's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// Nothing: input nodes.
    Fixed,
    /// The instruction set.
    Vectors,
    /// That and the prefetch distance.
    Packets,
    /// All of it.
    Batches,
}

/// A kind of internal node.
pub(crate) trait Kind: 'static {
    type Node: Send;
    /// The memory that its packets may lie in.
    type Memory: Memory;
    const LOOP: Loop;
    /// The compiled loop.
    fn select(config: LoopConfig, level: Level) -> RunFn<Self::Node>;
    fn release(node: &mut Self::Node, cx: &mut NodeCx<'_>);
    /// [`VectorNode::passes`].
    fn passes(_node: &Self::Node) -> Option<Verdict> {
        None
    }
}

/// Nodes with a fast path.
pub(crate) struct Fast<M, N>(PhantomData<(M, N)>);

impl<M: Memory, N: Node<M>> Kind for Packets<M, N> {
    type Node = N;
    type Memory = M;
    const LOOP: Loop = Loop::Packets;
    fn select(_config: LoopConfig, level: Level) -> RunFn<N> {
        compiled::<Self>(level)
    }
    fn release(node: &mut N, cx: &mut NodeCx<'_>) {
        node.release(cx);
    }
}

impl<M: Memory, N: FastPath<M>> Kind for Fast<M, N> {
    type Node = N;
    type Memory = M;
    const LOOP: Loop = Loop::Batches;
    fn select(config: LoopConfig, level: Level) -> RunFn<N> {
        match config.width {
            8 => compiled::<Batches<M, N, 8>>(level),
            4 => compiled::<Batches<M, N, 4>>(level),
            2 => compiled::<Batches<M, N, 2>>(level),
            _ => compiled::<Packets<M, N>>(level),
        }
    }
    fn release(node: &mut N, cx: &mut NodeCx<'_>) {
        node.release(cx);
    }
}

impl<M: Memory, V: VectorNode<M>> Kind for Vectors<M, V> {
    type Node = V;
    type Memory = M;
    const LOOP: Loop = Loop::Vectors;
    fn select(_config: LoopConfig, level: Level) -> RunFn<V> {
        compiled::<Self>(level)
    }
    fn release(node: &mut V, cx: &mut NodeCx<'_>) {
        node.release(cx);
    }
    fn passes(node: &V) -> Option<Verdict> {
        node.passes()
    }
}

/// An internal node and its loop, on lines of its own, as [`Input`].
#[repr(align(128))]
pub(crate) struct Instance<K: Kind> {
    pub(crate) node: K::Node,
    run: RunFn<K::Node>,
}

impl<K: Kind> Dispatch for Instance<K> {
    unsafe fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        // SAFETY: `compiled` gives only loops that this processor can run; F3 is the caller's promise.
        unsafe { (self.run)(&mut self.node, cx, frame) }
    }
    fn set_loop(&mut self, config: LoopConfig, level: Level) {
        self.run = K::select(config, level);
    }
    fn release(&mut self, cx: &mut NodeCx<'_>) {
        K::release(&mut self.node, cx);
    }
    fn kind(&self) -> TypeId {
        TypeId::of::<K>()
    }
    fn passes(&self) -> Option<Verdict> {
        K::passes(&self.node)
    }
}

/// A thread's clone of a prototype.
fn instance<M: Memory, N: Node<M>>(prototype: &N, cx: &MakeCx) -> N {
    let mut node = prototype.clone();
    node.start(cx.thread);
    node
}

/// Declaration of a node.
pub struct NodeSpec {
    /// Unique name.
    pub name: String,
    pub(crate) kind: NodeKind,
    pub(crate) nexts: Vec<String>,
    pub(crate) errors: &'static [ErrorText],
    /// Another node's name under which programs look for these errors in the statistics.
    pub(crate) errors_of: Option<&'static str>,
    pub(crate) make: Box<dyn Fn(&MakeCx) -> Body>,
    pub(crate) trace: Option<TraceFormat>,
    pub(crate) loop_config: LoopConfig,
    /// What `set node` can change of its loop.
    pub(crate) settable: Loop,
    pub(crate) points: Vec<(&'static str, Point)>,
    pub(crate) takes_shared: bool,
    pub(crate) passes: bool,
}

impl NodeSpec {
    fn new<X: NextNodes, D: DropReasons>(
        name: impl Into<String>,
        kind: NodeKind,
        make: Box<dyn Fn(&MakeCx) -> Body>,
        (settable, loop_config): (Loop, LoopConfig),
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            nexts: X::NAMES.iter().map(ToString::to_string).collect(),
            errors: D::TEXTS,
            errors_of: None,
            make,
            trace: None,
            loop_config,
            settable,
            points: Vec::new(),
            takes_shared: false,
            passes: false,
        }
    }

    fn internal<X: NextNodes, D: DropReasons, K: Kind>(
        name: impl Into<String>,
        config: LoopConfig,
        make: impl Fn(&MakeCx) -> K::Node + 'static,
    ) -> Self {
        let make = move |cx: &MakeCx| -> Body {
            Body::Internal(Box::new(Instance::<K> { node: make(cx), run: K::select(config, Level::best()) }))
        };
        let takes_shared = K::Memory::SHARED;
        Self { takes_shared, ..Self::new::<X, D>(name, NodeKind::Internal, Box::new(make), (K::LOOP, config)) }
    }

    /// A node written for one packet; each thread gets a clone of this prototype.
    pub fn node<M: Memory, N: Node<M>>(name: impl Into<String>, prototype: N) -> Self {
        let config = LoopConfig { width: 1, prefetch: N::PREFETCH };
        Self::internal::<N::Next, N::Drop, Packets<M, N>>(name, config, move |cx| instance(&prototype, cx))
    }

    /// A node with a fast path; each thread gets a clone of this prototype.
    pub fn fast<M: Memory, N: FastPath<M>>(name: impl Into<String>, prototype: N) -> Self {
        let config = LoopConfig { width: N::WIDTH, prefetch: N::PREFETCH };
        Self::internal::<N::Next, N::Drop, Fast<M, N>>(name, config, move |cx| instance(&prototype, cx))
    }

    /// A node that takes the whole vector. It may own what cannot be cloned, such as a device's queue: `make` makes it for a thread.
    pub fn vector<M: Memory, V: VectorNode<M>>(name: impl Into<String>, make: impl Fn(&MakeCx) -> V + 'static) -> Self {
        let config = LoopConfig { width: 1, prefetch: 0 };
        Self::internal::<V::Next, V::Drop, Vectors<M, V>>(name, config, make)
    }

    /// A node that brings packets in.
    pub fn input<I: InputNode>(name: impl Into<String>, make: impl Fn(&MakeCx) -> I + 'static) -> Self {
        let make = move |cx: &MakeCx| -> Body { Body::Input(Box::new(Input(make(cx)))) };
        let config = LoopConfig { width: 1, prefetch: 0 };
        Self::new::<I::Next, I::Drop>(name, NodeKind::Input, Box::new(make), (Loop::Fixed, config))
    }

    /// Programs find this node's errors in the statistics under another node's name, too: `/err/NAME/...` are links to the same counters.
    #[must_use]
    pub fn errors_also_of(mut self, name: &'static str) -> Self {
        self.errors_of = Some(name);
        self
    }

    /// How `show trace` puts this node's entries into words.
    #[must_use]
    pub fn traced(mut self, format: impl Fn(&TraceEntry, &mut String) + 'static) -> Self {
        self.trace = Some(Box::new(format));
        self
    }

    /// Says that this node stands on a feature arc (starts it or is a feature) and that its instances ask `point` for what
    /// follows.
    #[must_use]
    pub fn on_arc(mut self, arc: &'static str, point: impl Into<Point>) -> Self {
        self.points.push((arc, point.into()));
        self
    }

    /// Says that a vector node often [passes](VectorNode::passes) vectors as they are.
    #[must_use]
    pub fn passes(mut self) -> Self {
        self.passes = true;
        self
    }

    /// Reasons to drop beyond an enum, for nodes whose declaration is read at run time: [`NodeCx::drop_at`] takes their places.
    #[must_use]
    pub fn with_reasons(mut self, reasons: &'static [ErrorText]) -> Self {
        self.errors = reasons;
        self
    }

    /// Next nodes beyond those of the `Next` enum, for nodes whose neighbours depend on the instance.
    #[must_use]
    pub fn with_next(mut self, name: impl Into<String>) -> Self {
        self.nexts.push(name.into());
        self
    }
}
