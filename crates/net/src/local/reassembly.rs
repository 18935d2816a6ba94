//! Reassembly of datagrams for this router, and as features of an interface (RFC 791, 1122, 8200, 5722, 6946, 7112).
//!
//! ```text
//!  worker 1   ip4-local-full-reassembly ──┐            ┌══► ip4-local-reassembly-input  worker 1 ──► ip4-local
//!                                         ├─ by hash ══╡
//!  worker 2   ip4-local-full-reassembly ──┘            └══► ip4-local-reassembly-input  worker 2 ──► ip4-icmp-error
//! ```
//!
//! Fragments of one datagram may come in on several workers. A hash of what names the datagram chooses the worker that joins
//! them; every fragment goes there over that worker's bounded ring, also from itself, so that there is one way and no lock.
//! The input node behind the ring owns the incomplete datagrams, lets them expire, and gives all buffers back when it goes.
//!
//! Two features of the arcs `ip4-unicast` and `ip6-unicast` use the same worker and ring; the aux lane says whose a fragment is. With
//! `ip4-full-reassembly-feature` the packets that go through are joined; with `ip4-sv-reassembly-feature` (shallow virtual) later fragments
//! wait for the first one. What became of a fragment comes back to the feature's node in its aux lane, which drops it, or sends it on along
//! the arc.
//!
//! Limits: each worker holds a bounded number of datagrams in all and of one source, of fragments to each, and of bytes in all.
//! A source that has its share gives up its own oldest datagram; where all is full, whoever has most gives up its oldest. A source
//! is an IPv4 address or an IPv6 /64 on an interface, in one of some groups ([`crate::owner`]). A worker that leaves gives its
//! fragments to those that stay. While the set of workers changes, fragments of one datagram may be sent to two; they expire.

mod datagram;
mod handoff;
mod input;
mod reasons;
mod ring;
mod shallow;
mod table;

use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quiver_graph::{ArcPoint, FeatureSpec, MakeCx, NodeId, NodeSpec};

pub(super) use self::datagram::Reassembled;
use self::handoff::{Feature, Handoff, Local};
use self::input::ReassemblyInput;
use self::reasons::Place;
use self::ring::Rings;
use super::header::{node_name, trace};
use crate::Router;
use crate::ip::FamilyId;

pub use self::shallow::Waiting;
pub use self::table::{DatagramName, Held, Totals};

/// Name of the node that takes fragments, after `ip4-` or `ip6-`.
pub(super) const NODE: &str = "local-full-reassembly";
const INPUT: &str = "local-reassembly-input";

/// How an interface's fragments are treated on their way through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Joined.
    Full,
    /// Kept back until the first one has come.
    Shallow,
}

impl Through {
    /// As requests and messages say it.
    pub const fn of(shallow: bool) -> Self {
        if shallow { Self::Shallow } else { Self::Full }
    }
}

/// The feature's node.
pub const fn feature_node(family: FamilyId, through: Through) -> &'static str {
    match (family, through) {
        (FamilyId::V4, Through::Full) => "ip4-full-reassembly-feature",
        (FamilyId::V4, Through::Shallow) => "ip4-sv-reassembly-feature",
        (FamilyId::V6, Through::Full) => "ip6-full-reassembly-feature",
        (FamilyId::V6, Through::Shallow) => "ip6-sv-reassembly-feature",
    }
}

/// The arc that the features stand on.
pub const fn feature_arc(family: FamilyId) -> &'static str {
    match family {
        FamilyId::V4 => "ip4-unicast",
        FamilyId::V6 => "ip6-unicast",
    }
}

/// Bounds of reassembly, per worker. Changes take effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long the parts of a datagram may take to come, all together.
    pub timeout: Duration,
    /// Incomplete datagrams.
    pub datagrams: u32,
    /// Incomplete datagrams of one source.
    pub per_source: u32,
    /// Fragments of a datagram.
    pub fragments: u32,
    /// Bytes of all incomplete datagrams, in buffers that they occupy: a buffer counts as 2 kB.
    pub kilobytes: u32,
}

impl Limits {
    /// Those at start. Full: RFC 8200 asks for 60 s in IPv6; in IPv4 30 s are usual and meet RFC 1122's intent on today's links. Shallow:
    /// VPP lets 3 fragments wait, for 100 ms; a first fragment that took another path needs longer.
    pub const fn default_of(family: FamilyId, through: Through) -> Self {
        let (seconds, fragments) = match (through, family) {
            (Through::Shallow, _) => (1, 16),
            (Through::Full, FamilyId::V4) => (30, 256),
            (Through::Full, FamilyId::V6) => (60, 256),
        };
        Self { timeout: Duration::from_secs(seconds), datagrams: 1024, per_source: 256, fragments, kilobytes: 8192 }
    }
}

/// [`Limits`] as workers read them.
#[derive(Debug)]
struct SharedLimits {
    timeout_ms: AtomicU32,
    datagrams: AtomicU32,
    per_source: AtomicU32,
    fragments: AtomicU32,
    kilobytes: AtomicU32,
}

impl SharedLimits {
    fn new(limits: Limits) -> Self {
        let shared = Self {
            timeout_ms: AtomicU32::new(0),
            datagrams: AtomicU32::new(0),
            per_source: AtomicU32::new(0),
            fragments: AtomicU32::new(0),
            kilobytes: AtomicU32::new(0),
        };
        shared.set(limits);
        shared
    }

    fn set(&self, limits: Limits) {
        self.timeout_ms.store(limits.timeout.as_millis().try_into().unwrap_or(u32::MAX), Ordering::Relaxed);
        self.datagrams.store(limits.datagrams, Ordering::Relaxed);
        self.per_source.store(limits.per_source, Ordering::Relaxed);
        self.fragments.store(limits.fragments, Ordering::Relaxed);
        self.kilobytes.store(limits.kilobytes, Ordering::Relaxed);
    }

    fn get(&self) -> Limits {
        Limits {
            timeout: Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed).into()),
            datagrams: self.datagrams.load(Ordering::Relaxed),
            per_source: self.per_source.load(Ordering::Relaxed),
            fragments: self.fragments.load(Ordering::Relaxed),
            kilobytes: self.kilobytes.load(Ordering::Relaxed),
        }
    }
}

/// The module's state on the main thread, by family.
struct State {
    /// Full, and shallow.
    limits: [[Arc<SharedLimits>; 2]; 2],
    rings: [Arc<Rings>; 2],
    /// Whether packets for the router itself are joined.
    local: [Arc<AtomicBool>; 2],
    /// Whether shallow reassembly waits for last fragments, too.
    extended: [Arc<AtomicBool>; 2],
}

/// Makes the state that nodes are made from.
pub(super) fn prepare(router: &mut Router) {
    router.add_part(State {
        limits: [FamilyId::V4, FamilyId::V6].map(|family| {
            [Through::Full, Through::Shallow].map(|through| Arc::new(SharedLimits::new(Limits::default_of(family, through))))
        }),
        rings: [Arc::new(Rings::new()), Arc::new(Rings::new())],
        local: [(); 2].map(|()| Arc::new(AtomicBool::new(true))),
        extended: [(); 2].map(|()| Arc::default()),
    });
}

impl Router {
    /// Bounds of reassembly. Those of full reassembly also hold for packets for the router itself.
    pub fn reassembly_limits(&self, family: FamilyId, through: Through) -> Limits {
        let shared = |state: &State| state.limits[family as usize][through as usize].get();
        self.part::<State>().map_or(Limits::default_of(family, through), shared)
    }

    /// Other bounds. Datagrams that are held beyond them go as soon as a fragment comes.
    pub fn set_reassembly_limits(&mut self, family: FamilyId, through: Through, limits: Limits) {
        if let Some(state) = self.part::<State>() {
            state.limits[family as usize][through as usize].set(limits);
        }
    }

    /// Whether packets for the router itself are put together; they are from the start.
    pub fn joins_local(&self, family: FamilyId) -> bool {
        self.part::<State>().is_none_or(|s| s.local[family as usize].load(Ordering::Relaxed))
    }

    /// Puts packets for the router itself together, or drops their fragments.
    pub fn set_joins_local(&mut self, family: FamilyId, on: bool) {
        if let Some(state) = self.part::<State>() {
            state.local[family as usize].store(on, Ordering::Relaxed);
        }
    }

    /// Whether fragments of shallow reassembly wait for the last one, too.
    pub fn extended_reassembly(&self, family: FamilyId) -> bool {
        self.part::<State>().is_some_and(|s| s.extended[family as usize].load(Ordering::Relaxed))
    }

    /// Has fragments of shallow reassembly wait for the last one, too, or no longer; those that wait already go with the next fragment.
    pub fn set_extended_reassembly(&mut self, family: FamilyId, on: bool) {
        if let Some(state) = self.part::<State>() {
            state.extended[family as usize].store(on, Ordering::Relaxed);
        }
    }

    /// Datagrams of shallow reassembly, by thread.
    pub fn shallow_reassembly(&mut self, family: FamilyId) -> Vec<(usize, Totals, Vec<Waiting>)> {
        let Some(node) = self.graph.node(&node_name(family, INPUT)) else { return Vec::new() };
        match family {
            FamilyId::V4 => self.waiting::<crate::ip::V4>(node),
            FamilyId::V6 => self.waiting::<crate::ip::V6>(node),
        }
    }

    fn waiting<F: Reassembled>(&mut self, node: NodeId) -> Vec<(usize, Totals, Vec<Waiting>)> {
        let threads = self.graph.fleet().threads();
        let one = |thread| {
            let answer = self.graph.input::<ReassemblyInput<F>, _>(node, thread, |n| n.show_shallow())?;
            Some((thread, answer.0, answer.1))
        };
        threads.into_iter().filter_map(one).collect()
    }

    /// Incomplete datagrams, by thread, and what has become of fragments so far.
    pub fn reassembly(&mut self, family: FamilyId) -> Vec<(usize, Totals, Vec<Held>)> {
        let Some(node) = self.graph.node(&node_name(family, INPUT)) else { return Vec::new() };
        match family {
            FamilyId::V4 => self.held::<crate::ip::V4>(node),
            FamilyId::V6 => self.held::<crate::ip::V6>(node),
        }
    }

    fn held<F: Reassembled>(&mut self, node: NodeId) -> Vec<(usize, Totals, Vec<Held>)> {
        let threads = self.graph.fleet().threads();
        let one = |thread| {
            let answer = self.graph.input::<ReassemblyInput<F>, _>(node, thread, |n| n.show())?;
            Some((thread, answer.0, answer.1))
        };
        threads.into_iter().filter_map(one).collect()
    }
}

/// The nodes of one family.
pub(super) fn nodes<F: Reassembled>(router: &Router) -> Vec<NodeSpec> {
    let Some(state) = router.part::<State>() else { return Vec::new() };
    let family = F::ID as usize;
    let rings = state.rings[family].clone();
    let limits = (state.limits[family].clone(), state.extended[family].clone());
    let (peers, hasher) = (rings.peers(), RandomState::new());
    let same = hasher.clone();
    let handoff = Handoff::<F> { thread: 0, peers, hasher, family: PhantomData };
    let (clock, data) = (router.graph.clock().clone(), router.data.clone());
    let input =
        move |cx: &MakeCx| ReassemblyInput::<F>::new(cx.thread, &rings, same.clone(), limits.clone(), clock.clone(), data.clone());
    let name = |rest: &str| node_name(F::ID, rest);
    let feature = |through, place| {
        let arc = ArcPoint::new();
        let node = Feature { handoff: handoff.clone(), arc: arc.clone(), place };
        let spec = NodeSpec::node(feature_node(F::ID, through), node).with_next(name("lookup"));
        spec.on_arc(feature_arc(F::ID), arc).traced(trace::<F>)
    };
    let features = [feature(Through::Full, Place::Full), feature(Through::Shallow, Place::Shallow)];
    let input = NodeSpec::input(name(INPUT), input).with_next(name("local")).with_next(name("icmp-error"));
    let input = [Through::Full, Through::Shallow].iter().fold(input, |spec, t| spec.with_next(feature_node(F::ID, *t)));
    let local = Local { handoff, on: state.local[family].clone() };
    let mut nodes = vec![NodeSpec::node(name(NODE), local).with_next(name("local")).traced(trace::<F>), input];
    nodes.extend(features);
    nodes
}

/// The features. NAT comes behind them: it finds the ports that it translates in a whole packet, or in a first fragment that comes first.
pub(crate) fn features() -> Vec<FeatureSpec> {
    let nat = ["nat44-ed-out2in-handoff", "nat44-ed-out2in", "nat44-ed-in2out-handoff", "nat44-ed-in2out"];
    let mut features = Vec::new();
    for family in [FamilyId::V4, FamilyId::V6] {
        for through in [Through::Full, Through::Shallow] {
            let before = if family == FamilyId::V4 { nat.to_vec() } else { Vec::new() };
            let node = feature_node(family, through).into();
            features.push(FeatureSpec { arc: feature_arc(family), node, before, after: Vec::new() });
        }
    }
    features
}
