//! How a node is declared to the graph: a name, and a recipe that makes its instance for each worker.

use std::any::TypeId;
use std::marker::PhantomData;

use crate::context::NodeCx;
use crate::feature::Point;
use crate::frame::Frame;
use crate::node::{DropReasons, ErrorText, Idle, InputNode, LoopConfig, NextNodes, Node, VectorNode, Verdict};
use crate::staged::{Level, RunFn, select};
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
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame);
    fn set_loop(&mut self, config: LoopConfig, level: Level);
    fn release(&mut self, cx: &mut NodeCx<'_>);
    /// The node's type.
    fn kind(&self) -> TypeId;
    /// [`VectorNode::passes`].
    fn passes(&self) -> Option<Verdict> {
        None
    }
}

/// An input node behind a pointer.
pub(crate) trait InputNodeDyn: Send {
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize;
    fn idle(&self) -> bool;
    fn unfinished(&self) -> bool;
    fn arm(&mut self, now: u64) -> Idle;
    fn spins(&self) -> Option<bool>;
    fn event_fds(&self, fds: &mut Vec<std::os::fd::RawFd>);
    fn release(&mut self, cx: &mut NodeCx<'_>);
    fn as_any(&mut self) -> &mut dyn std::any::Any;
}

/// Instances of one node on different threads are allocated one after the other: each begins on lines of its own, two because
/// the adjacent-line prefetcher pairs them, so that no thread writes a line of another's.
#[repr(align(128))]
struct Input<I>(I);

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
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self.0.as_any()
    }
}

/// On lines of its own, as [`Input`].
#[repr(align(128))]
pub(crate) struct Staged<N: Node> {
    pub(crate) node: N,
    run: RunFn<N>,
}

impl<N: Node> Dispatch for Staged<N> {
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        // SAFETY: `select` gives only loops that this processor can run.
        unsafe { (self.run)(&mut self.node, cx, frame) }
    }
    fn set_loop(&mut self, config: LoopConfig, level: Level) {
        self.run = select::<N>(config, level);
    }
    fn release(&mut self, _cx: &mut NodeCx<'_>) {}
    fn kind(&self) -> TypeId {
        TypeId::of::<N>()
    }
}

/// On lines of its own, as [`Input`].
#[repr(align(128))]
struct Whole<V: VectorNode>(V);

impl<V: VectorNode> Dispatch for Whole<V> {
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.0.run(cx, frame);
    }
    fn set_loop(&mut self, _config: LoopConfig, _level: Level) {}
    fn release(&mut self, cx: &mut NodeCx<'_>) {
        self.0.release(cx);
    }
    fn kind(&self) -> TypeId {
        TypeId::of::<V>()
    }
    fn passes(&self) -> Option<Verdict> {
        self.0.passes()
    }
}

/// Declaration of a node.
pub struct NodeSpec {
    /// Unique name.
    pub name: String,
    pub(crate) kind: NodeKind,
    pub(crate) nexts: Vec<String>,
    pub(crate) errors: &'static [ErrorText],
    pub(crate) make: Box<dyn Fn(&MakeCx) -> Body>,
    pub(crate) trace: Option<TraceFormat>,
    pub(crate) loop_config: LoopConfig,
    /// Whether `set node` can change its loop.
    pub(crate) staged: bool,
    pub(crate) points: Vec<(&'static str, Point)>,
    pub(crate) takes_shared: bool,
    pub(crate) passes: bool,
}

fn parts<X: NextNodes, D: DropReasons>(_: PhantomData<(X, D)>) -> (Vec<String>, &'static [ErrorText]) {
    (X::NAMES.iter().map(ToString::to_string).collect(), D::TEXTS)
}

impl NodeSpec {
    /// A node written for one packet.
    pub fn staged<N: Node>(name: impl Into<String>, make: impl Fn(&MakeCx) -> N + 'static) -> Self {
        let (nexts, errors) = parts::<N::Next, N::Drop>(PhantomData);
        let make = move |cx: &MakeCx| -> Body {
            Body::Internal(Box::new(Staged { node: make(cx), run: select::<N>(N::LOOP, Level::best()) }))
        };
        Self {
            name: name.into(),
            kind: NodeKind::Internal,
            nexts,
            errors,
            make: Box::new(make),
            trace: None,
            loop_config: N::LOOP,
            staged: true,
            points: Vec::new(),
            takes_shared: false,
            passes: false,
        }
    }

    /// A node that takes the whole vector.
    pub fn vector<V: VectorNode>(name: impl Into<String>, make: impl Fn(&MakeCx) -> V + 'static) -> Self {
        let (nexts, errors) = parts::<V::Next, V::Drop>(PhantomData);
        let make = move |cx: &MakeCx| -> Body { Body::Internal(Box::new(Whole(make(cx)))) };
        let loop_config = LoopConfig { width: 1, prefetch: 0 };
        Self {
            name: name.into(),
            kind: NodeKind::Internal,
            nexts,
            errors,
            make: Box::new(make),
            trace: None,
            loop_config,
            staged: false,
            points: Vec::new(),
            takes_shared: false,
            passes: false,
        }
    }

    /// A node that brings packets in.
    pub fn input<I: InputNode>(name: impl Into<String>, make: impl Fn(&MakeCx) -> I + 'static) -> Self {
        let (nexts, errors) = parts::<I::Next, I::Drop>(PhantomData);
        let make = move |cx: &MakeCx| -> Body { Body::Input(Box::new(Input(make(cx)))) };
        let loop_config = LoopConfig { width: 1, prefetch: 0 };
        Self {
            name: name.into(),
            kind: NodeKind::Input,
            nexts,
            errors,
            make: Box::new(make),
            trace: None,
            loop_config,
            staged: false,
            points: Vec::new(),
            takes_shared: false,
            passes: false,
        }
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

    /// Says that packets may come whose bytes a peer changes meanwhile: the node copies each header once and lets nothing that
    /// lies in memory depend on two reads agreeing. To all other nodes such packets come as copies.
    #[must_use]
    pub fn takes_shared(mut self) -> Self {
        self.takes_shared = true;
        self
    }

    /// Says that a vector node often [passes](VectorNode::passes) vectors as they are.
    #[must_use]
    pub fn passes(mut self) -> Self {
        self.passes = true;
        self
    }

    /// Next nodes beyond those of the `Next` enum, for nodes whose neighbours depend on the instance.
    #[must_use]
    pub fn with_next(mut self, name: impl Into<String>) -> Self {
        self.nexts.push(name.into());
        self
    }
}
