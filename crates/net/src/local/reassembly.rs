//! Reassembly of datagrams for this router (RFC 791, 1122, 8200, 5722, 6946, 7112).
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
//! Limits: each worker holds a bounded number of datagrams in all and of one source, of fragments to each, and of bytes in all.
//! A source that has its share gives up its own oldest datagram; where all is full, whoever has most gives up its oldest. A source
//! is an IPv4 address or an IPv6 /64 on an interface, in one of some groups ([`crate::owner`]). A worker that leaves gives its fragments to those that stay. While the set of workers changes, fragments
//! of one datagram may be sent to two; they expire.

mod datagram;
mod input;
mod ring;
mod table;

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quiver_graph::{MakeCx, NoNext, Node, NodeCx, NodeId, NodeSpec, Pkt, Snapshot, Verdict, drop_reasons};

pub(super) use self::datagram::Reassembled;
use self::input::ReassemblyInput;
use self::ring::{Peers, Rings};
use super::header::{node_name, trace};
use crate::Router;
use crate::ip::FamilyId;

pub use self::table::{DatagramName, Held, Totals};

/// Name of the node that takes fragments, after `ip4-` or `ip6-`.
pub(super) const NODE: &str = "local-full-reassembly";
const INPUT: &str = "local-reassembly-input";

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
    /// Those at start: RFC 8200 asks for 60 s in IPv6; in IPv4 30 s are usual and meet RFC 1122's intent on today's links.
    pub const fn default_of(family: FamilyId) -> Self {
        let timeout = Duration::from_secs(match family {
            FamilyId::V4 => 30,
            FamilyId::V6 => 60,
        });
        Self { timeout, datagrams: 1024, per_source: 256, fragments: 256, kilobytes: 8192 }
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
    limits: [Arc<SharedLimits>; 2],
    rings: [Arc<Rings>; 2],
}

/// Makes the state that nodes are made from.
pub(super) fn prepare(router: &mut Router) {
    router.add_part(State {
        limits: [FamilyId::V4, FamilyId::V6].map(|f| Arc::new(SharedLimits::new(Limits::default_of(f)))),
        rings: [Arc::new(Rings::new()), Arc::new(Rings::new())],
    });
}

impl Router {
    /// Bounds of reassembly.
    pub fn reassembly_limits(&self, family: FamilyId) -> Limits {
        self.part::<State>().map_or(Limits::default_of(family), |s| s.limits[family as usize].get())
    }

    /// Other bounds. Datagrams that are held beyond them go as soon as a fragment comes.
    pub fn set_reassembly_limits(&mut self, family: FamilyId, limits: Limits) {
        if let Some(state) = self.part::<State>() {
            state.limits[family as usize].set(limits);
        }
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

drop_reasons! {
    /// Why fragments are dropped before they are looked at, and how many came.
    pub enum HandoffDrop {
        /// The queue to the thread that puts packets together is full.
        Congestion = "congestion drop",
        /// The headers in front of the fragment header do not add up.
        Malformed = "malformed packets",
        /// A fragment for the router arrived.
        Received = "fragments received" (info),
    }
}

/// The node that hands fragments to the worker that joins them.
#[derive(Clone)]
struct Handoff<F> {
    thread: usize,
    peers: Snapshot<Peers>,
    hasher: RandomState,
    family: PhantomData<F>,
}

/// Slot of `ip4-local`.
const TO_LOCAL: Verdict = Verdict::slot(1);

impl<F: Reassembled> Node for Handoff<F> {
    type Next = NoNext;
    type Drop = HandoffDrop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.thread = thread;
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.peers.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        cx.count(HandoffDrop::Received, 1);
        let Some(name) = F::name(&packet) else { return packet.drop(HandoffDrop::Malformed) };
        if name.is_atomic {
            // RFC 6946: on its own, whatever other fragments of the same name there may be.
            return if F::strip_atomic(&mut packet) { TO_LOCAL } else { packet.drop(HandoffDrop::Malformed) };
        }
        let (packet, verdict) = packet.take();
        if let Err(packet) = self.peers.get().send(self.thread, self.hasher.hash_one(name.key), packet) {
            cx.drop_packet(packet, HandoffDrop::Congestion);
        }
        verdict
    }
}

/// The nodes of one family.
pub(super) fn nodes<F: Reassembled>(router: &Router) -> Vec<NodeSpec> {
    let Some(state) = router.part::<State>() else { return Vec::new() };
    let (rings, limits) = (state.rings[F::ID as usize].clone(), state.limits[F::ID as usize].clone());
    let (peers, hasher) = (rings.peers(), RandomState::new());
    let same = hasher.clone();
    let handoff = Handoff::<F> { thread: 0, peers, hasher, family: PhantomData };
    let (clock, data) = (router.graph.clock().clone(), router.data.clone());
    let input =
        move |cx: &MakeCx| ReassemblyInput::<F>::new(cx.thread, &rings, same.clone(), limits.clone(), clock.clone(), data.clone());
    let name = |rest: &str| node_name(F::ID, rest);
    vec![
        NodeSpec::node(name(NODE), handoff).with_next(name("local")).traced(trace::<F>),
        NodeSpec::input(name(INPUT), input).with_next(name("local")).with_next(name("icmp-error")),
    ]
}
