//! A router with made-up interfaces: frames are put in by hand, and what leaves is kept.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quiver_buffer::{PageSize, RegionConfig};
use quiver_command::operation::Registry;
use quiver_graph::{
    Frame, IfIndex, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, Pkt, ThreadPlan, TraceRecord, VectorNode, next_nodes,
};
use quiver_wire::MacAddr;

use crate::interface::{InterfaceKind, Kind, NewInterface, Tx};
use crate::ip::FamilyId;
use crate::{Router, RouterConfig};

mod scene;
#[cfg(test)]
mod tests;

pub use scene::{Scene, error, index, run};

next_nodes! { enum InjectNext { Ethernet = "ethernet-input" } }

/// Where frames enter.
struct Inject;

impl VectorNode for Inject {
    type Next = InjectNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.decide_all(frame, InjectNext::Ethernet);
    }
}

type Kept = Arc<Mutex<Vec<(IfIndex, Vec<u8>)>>>;

/// Where frames leave.
struct Keep {
    interface: IfIndex,
    kept: Kept,
}

impl VectorNode for Keep {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.trace_here(frame);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let mut bytes = vec![0; packet.total_len()];
            packet.copy_out(0, &mut bytes);
            let (packet, _) = packet.take();
            cx.free(packet);
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((self.interface, bytes));
        }
    }
}

/// The router and what has left it.
pub struct Harness {
    /// The router.
    pub router: Router,
    kept: Kept,
    inject: NodeId,
    used_at_start: u32,
    /// What adds the commands of plugins to those of this crate.
    plugins: Vec<fn(&mut Registry<Router>)>,
    registry: OnceCell<Registry<Router>>,
}

/// Link address of the router's interface number `n` of a harness.
pub const fn router_mac(n: u8) -> MacAddr {
    MacAddr::numbered(n as u32)
}

/// Link address of the host behind interface number `n`.
pub const fn host_mac(n: u8) -> MacAddr {
    MacAddr([0x02, 0, 0, 0, 0x10, n])
}

impl Harness {
    /// A router whose main thread forwards.
    pub fn new() -> Self {
        Self::with_workers(0)
    }

    /// A router with so many workers, on 4 kB pages.
    ///
    /// # Panics
    /// Where it cannot be made: this is for tests.
    pub fn with_workers(workers: usize) -> Self {
        Self::with_buffers(workers, 8192)
    }

    /// A router with so many workers and buffers.
    ///
    /// # Panics
    /// Where it cannot be made: this is for tests.
    pub fn with_buffers(workers: usize, buffers: u32) -> Self {
        Self::of(&RouterConfig {
            buffers: RegionConfig { buffers_per_numa: buffers, page_size: PageSize::Kb4, ..Default::default() },
            workers: vec![ThreadPlan::default(); workers],
            ..Default::default()
        })
    }

    /// A router as it says.
    ///
    /// # Panics
    /// Where it cannot be made: this is for tests.
    pub fn of(config: &RouterConfig) -> Self {
        let mut router = Router::new(config).expect("a router for tests");
        let inject = router.graph.add(vec![NodeSpec::vector("test-inject", |_| Inject)]).expect("test node")[0];
        let mut harness =
            Self { router, kept: Kept::default(), inject, used_at_start: 0, plugins: Vec::new(), registry: OnceCell::new() };
        harness.used_at_start = harness.used();
        harness
    }

    /// The same, but it drops packets without a route in silence: for tests that look at what leaves.
    #[must_use]
    pub fn silent(mut self) -> Self {
        [FamilyId::V4, FamilyId::V6].into_iter().for_each(|family| self.router.set_answers_no_route(family, false));
        self
    }

    /// An interface `x<n>` with [`router_mac`], up.
    ///
    /// # Panics
    /// Where it exists already.
    pub fn interface(&mut self, n: u8) -> IfIndex {
        let kept = self.kept.clone();
        let make = move |interface, name: String| NodeSpec::vector(name, move |_| Keep { interface, kept: kept.clone() });
        let new = NewInterface {
            name: format!("x{n}"),
            kind: Kind::Virtual(&InterfaceKind { name: "test", called: "a test", device_type: "test" }),
            mac: router_mac(n),
            mtu: 1500,
            max_frame: 9216,
            tx: Tx::Node(Box::new(make)),
        };
        let index = self.router.create_interface(new).expect("test interface");
        self.router.set_interface_up(index, true).expect("up");
        index
    }

    /// Puts a frame in on an interface, on the first thread.
    pub fn inject(&mut self, interface: IfIndex, frame: &[u8]) {
        self.inject_many(interface, &[frame.to_vec()], 0);
    }

    /// Puts frames in, as one vector, on the thread at this position (modulo the number of threads).
    ///
    /// # Panics
    /// Where buffers have run out.
    pub fn inject_many(&mut self, interface: IfIndex, frames: &[Vec<u8>], thread: usize) {
        self.inject_marked(interface, frames, thread, |_, _| ());
    }

    /// As [`Harness::inject_many`]; `mark` changes what goes with each packet, by its position.
    ///
    /// # Panics
    /// Where buffers have run out.
    pub fn inject_marked(
        &mut self,
        interface: IfIndex,
        frames: &[Vec<u8>],
        thread: usize,
        mark: impl Fn(usize, &mut Pkt<'_>) + Send + 'static,
    ) {
        let threads = self.router.graph.fleet().threads();
        let (node, frames) = (self.inject, frames.to_vec());
        self.router.graph.fleet().on(threads[thread % threads.len()], move |w| {
            w.at_node(node, |cx| {
                for (at, bytes) in frames.iter().enumerate() {
                    let mut packet = cx.alloc_bytes(bytes, interface).expect("a buffer");
                    mark(at, &mut cx.view(&mut packet));
                    cx.emit(InjectNext::Ethernet, packet);
                }
            })
        });
    }

    /// As [`Harness::inject_many`], without waiting for the thread: it works while the caller goes on.
    pub fn cast_many(&mut self, interface: IfIndex, frames: &[Vec<u8>], thread: usize) {
        let threads = self.router.graph.fleet().threads();
        let (node, frames) = (self.inject, frames.to_vec());
        self.router.graph.fleet().cast(threads[thread % threads.len()], move |w| {
            let injected = w.at_node(node, |cx| {
                for bytes in &frames {
                    let Some(packet) = cx.alloc_bytes(bytes, interface) else { continue };
                    cx.emit(InjectNext::Ethernet, packet);
                }
            });
            debug_assert!(injected.is_some());
        });
    }

    /// Lets every thread finish what it has, and gives what left since the last call.
    pub fn run(&mut self) -> Vec<(IfIndex, Vec<u8>)> {
        for _ in 0..3 {
            self.router.graph.fleet().each(|w| w.step());
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts one frame in and gives what left.
    pub fn exchange(&mut self, interface: IfIndex, frame: &[u8]) -> Vec<(IfIndex, Vec<u8>)> {
        self.inject(interface, frame);
        self.run()
    }

    /// Repeats `step` until it says `true`.
    ///
    /// # Panics
    /// After two minutes: a hang.
    pub fn until(&mut self, what: &str, mut step: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !step(self) {
            assert!(Instant::now() < deadline, "not within two minutes: {what}");
        }
    }

    /// Sum over threads of a node's counter.
    pub fn count(&self, node: &str, text: &str) -> u64 {
        self.router.graph.error_counts().iter().filter(|(_, e, _)| e.node == node && e.text == text).map(|(_, _, n)| n).sum()
    }

    /// Every counter that is not zero, for messages of failed tests and for comparing whole states.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (_, error, n) in self.router.graph.error_counts() {
            if n > 0 {
                *counts.entry(format!("{}: {}", error.node, error.text)).or_default() += n;
            }
        }
        counts
    }

    /// Traces the next `n` packets put in. Frames injected by hand are traced from `ethernet-input` on.
    pub fn traces(&mut self) -> Vec<TraceRecord> {
        self.router.graph.traces().into_iter().flat_map(|(_, r)| r).collect()
    }

    fn used(&mut self) -> u32 {
        self.router.graph.fleet().each(|w| w.step());
        self.router.graph.pools().iter().map(|p| p.usage().used()).sum()
    }

    /// Asserts that no buffer is missing but the `held` ones that nodes are known to hold.
    ///
    /// # Panics
    /// Where buffers are missing.
    pub fn assert_buffers_held(&mut self, held: u32) {
        let used = self.used();
        assert_eq!(used, self.used_at_start + held, "buffers in use; counters: {:?}", self.counts());
    }
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}
