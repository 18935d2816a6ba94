//! Fused chains: nodes that usually follow one another, run as one loop.
//!
//! ```text
//!   one node after the other:   [p p p p] ► A   [p p p p] ► B   [p p p p] ► C      three calls, three passes over the packets
//!   as a fused chain:           [p p p p] ► A ► B ► C                              one call; each batch passes all three
//! ```
//!
//! A chain is put together from the same functions as its nodes, so no rule stands twice. Each node says by its verdicts where packets
//! go; a batch that goes on along the chain is handed to the next node's [`FastPath::batch`](crate::FastPath::batch) where it stands, and
//! what goes anywhere else (a feature, a drop, an ICMP error) leaves the chain there and waits for that node. A packet of a batch that
//! is not for the fast path goes on by itself, so packets that take the same path stay in order.
//!
//! Its nodes take packets in any memory ([`Shared`]), so that none is copied within it.
//!
//! A plugin declares chains of its own, through its features and the nodes of others: [`Graph::fuse`](crate::Graph::fuse). Edges that
//! are made at run time, as those to features are, count like those of the `Next` enums. Where several chains begin alike,
//! the longest is used in which the packets of late have stayed. So a short one serves those whose packets leave the long one for a
//! feature.
//!
//! Packets are counted for each node that they pass, as without chains; clocks of a chain count for its first node. Where packets are
//! traced, or the loop of one of its nodes is set by hand, its nodes run one after the other.

use std::marker::PhantomData;

use crate::batch::Batch;
use crate::context::NodeCx;
use crate::frame::{Frame, TAKEN};
use crate::level::{Kernel, Level, RunFn, compiled};
use crate::memory::Shared;
use crate::packet::Env;
use crate::spec::Body;
use crate::stats::SimpleRows;
use crate::worker::Place;

mod steps;

use steps::{Bodies, BodyPtr, ChainEnv, Exit, Pass, Passed, Places, Steps};
pub use steps::{End, Then};

/// Packets a step.
const WIDTH: usize = 8;

/// A fused chain: `Then<First, Then<Second, End<Third>>>`.
pub trait FusedChain: Steps {}

impl<L: Steps> FusedChain for L {}

/// A chain, and what has left it.
struct Chain<L> {
    steps: L,
    exits: Vec<Exit>,
}

/// The loop over a frame.
struct Fuse<L>(PhantomData<L>);

impl<L: Steps> Kernel for Fuse<L> {
    type Node = Chain<L>;
    type Memory = Shared;

    #[inline(always)]
    fn run(chain: &mut Chain<L>, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        let Chain { steps, exits } = chain;
        let (n, env, next) = (frame.len, cx.env, cx.next.as_mut_ptr());
        let mut pass = Pass { cx, frame, next, env, exits };
        let mut i = 0;
        // For both loops: i + W ≤ n; frame and next lane are exclusively borrowed, and no view or batch is alive.
        while i + WIDTH <= n {
            // SAFETY: as above.
            unsafe {
                steps.ahead::<WIDTH>(pass.frame, i, 0);
                let mut batch = Batch::<WIDTH>::new(pass.frame, i, pass.next, &env);
                steps.batch(&mut batch, &mut pass);
            }
            i += WIDTH;
        }
        while i < n {
            // SAFETY: as above.
            unsafe {
                let mut batch = Batch::<1>::new(pass.frame, i, pass.next, &env);
                steps.batch(&mut batch, &mut pass);
            }
            i += 1;
        }
    }
}

/// A fused chain behind a pointer.
pub(crate) trait Fused: Send {
    /// Its nodes, in order.
    fn ids(&self) -> &[u16];
    /// Finds the edges between its nodes; `false` where one is missing.
    fn link(&mut self, places: &[Place]) -> bool;
    /// Runs a frame through the chain: afterwards `cx` is that of the last node, whose verdicts are in the next lane, and packets
    /// that have left before wait for the nodes that they went to. Counts calls and packets of each node, and gives their sums.
    fn run(&mut self, bodies: &mut [Body], cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>, nodes: &SimpleRows<3>) -> Passed;
}

struct Instance<L> {
    chain: Chain<L>,
    ids: Vec<u16>,
    run: RunFn<Chain<L>>,
}

/// A chain of these nodes for a worker; `None` where they are not of its types.
pub(crate) fn chain<L: FusedChain>(ids: &[u16], env: Env, bodies: &[Body]) -> Option<Box<dyn Fused>> {
    let distinct = ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id));
    let steps = L::make(ids, &ChainEnv(env)).filter(|steps| distinct && steps.fits(&Bodies(bodies)))?;
    let chain = Chain { steps, exits: Vec::new() };
    Some(Box::new(Instance { chain, ids: ids.to_vec(), run: compiled::<Fuse<L>>(Level::best()) }))
}

impl<L: FusedChain> Fused for Instance<L> {
    fn ids(&self) -> &[u16] {
        &self.ids
    }

    fn link(&mut self, places: &[Place]) -> bool {
        self.chain.steps.link(&Places(places))
    }

    fn run(&mut self, bodies: &mut [Body], cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>, nodes: &SimpleRows<3>) -> Passed {
        let mut sum = Passed::default();
        let n = frame.len;
        // SAFETY: the chain was made for these bodies (`chain`: distinct, of its types) and goes with the first of them that does;
        // they are exclusively borrowed. `compiled` gives only loops that this processor can run; its nodes take all memory.
        unsafe {
            self.chain.steps.begin(&BodyPtr(bodies.as_mut_ptr()), cx);
            (self.run)(&mut self.chain, cx, frame);
        }
        self.chain.steps.end(cx);
        self.chain.steps.count(n, &mut sum, nodes);
        if !self.chain.exits.is_empty() {
            leave(&mut self.chain.exits, cx, frame);
        }
        sum
    }
}

/// Packets that have left wait for their nodes.
#[cold]
fn leave(exits: &mut Vec<Exit>, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
    for Exit { at, id, slot } in exits.drain(..) {
        cx.core.queue.open_frame(cx.places[id as usize].next_node(slot)).append_from(frame, at);
        frame.index[at] = TAKEN;
        frame.taken += 1;
    }
}
