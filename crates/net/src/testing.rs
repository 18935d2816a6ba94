//! A router with made-up interfaces: frames are put in by hand, and what leaves is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quiver_buffer::{PageSize, RegionConfig};
use quiver_graph::{
    Frame, IfIndex, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, Pkt, ThreadPlan, TraceRecord, VectorNode, next_nodes,
};
use quiver_wire::MacAddr;

use crate::interface::{InterfaceKind, Kind, NewInterface, Tx};
use crate::{Router, RouterConfig};

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
        let config = RouterConfig {
            buffers: RegionConfig { buffers_per_numa: buffers, page_size: PageSize::Kb4, ..Default::default() },
            workers: vec![ThreadPlan::default(); workers],
        };
        let mut router = Router::new(&config).expect("a router for tests");
        let inject = router.graph.add(vec![NodeSpec::vector("test-inject", |_| Inject)]).expect("test node")[0];
        let mut harness = Self { router, kept: Kept::default(), inject, used_at_start: 0 };
        harness.used_at_start = harness.used();
        harness
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
    /// After two seconds.
    pub fn until(&mut self, what: &str, mut step: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(2);
        while !step(self) {
            assert!(Instant::now() < deadline, "not within two seconds: {what}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{L2Mode, SubMatch, VlanId};

    fn frame(dst: MacAddr, rest: &[u8]) -> Vec<u8> {
        let mut bytes = dst.0.to_vec();
        bytes.extend(host_mac(0).0);
        bytes.extend(rest);
        bytes.resize(60, 0xa5);
        bytes
    }

    #[test]
    fn a_cross_connect_passes_frames_whole_in_the_directions_configured() {
        for workers in [0, 1, 2, 4] {
            let mut h = Harness::with_workers(workers);
            let (a, b) = (h.interface(0), h.interface(1));
            h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
            let sent = frame(host_mac(9), &[0x88, 0xb5, 1, 2, 3]);
            h.inject_many(a, &vec![sent.clone(); 300], workers);
            let got = h.run();
            assert_eq!(got.len(), 300);
            assert!(got.iter().all(|(i, f)| *i == b && *f == sent));
            assert!(h.exchange(b, &sent).is_empty(), "the other direction was not asked for");
            assert_eq!(h.count("ethernet-input", "l3 mac mismatch"), 1);
            h.router.set_l2(a, L2Mode::L3).unwrap();
            assert!(h.exchange(a, &sent).is_empty());
            h.assert_buffers_held(0);
        }
    }

    #[test]
    fn frames_are_sorted_to_sub_interfaces_by_their_tags() {
        let mut h = Harness::new();
        let (a, b) = (h.interface(0), h.interface(1));
        let tagged = |v| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(v), inner: None, exact: true };
        let sub = h.router.create_sub_interface(a, 10, tagged(10)).unwrap();
        assert_eq!(h.router.interfaces.name(sub), "x0.10");
        assert!(h.router.create_sub_interface(a, 11, tagged(10)).is_err(), "tags twice");
        assert!(h.router.create_sub_interface(sub, 1, tagged(1)).is_err(), "no sub-interface of a sub-interface");
        h.router.set_l2(sub, L2Mode::CrossConnect(b)).unwrap();
        let sent = frame(host_mac(9), &[0x81, 0x00, 0x00, 10, 0x88, 0xb5]);
        assert!(h.exchange(a, &sent).is_empty());
        assert_eq!(h.count("ethernet-vlan", "subinterface down"), 1);
        h.router.set_interface_up(sub, true).unwrap();
        assert_eq!(h.exchange(a, &sent), [(b, sent.clone())]);
        assert_eq!(h.router.graph.interfaces().rx.sum(sub.0), (1, 60));
        let other = frame(host_mac(9), &[0x81, 0x00, 0x00, 11, 0x88, 0xb5]);
        assert!(h.exchange(a, &other).is_empty());
        assert_eq!(h.count("ethernet-vlan", "unknown vlan"), 1);
        h.router.delete_interface(a).unwrap();
        assert!(h.router.interfaces.get(sub).is_none(), "sub-interfaces go with their parent");
        h.assert_buffers_held(0);
    }

    #[test]
    fn an_interface_that_is_down_takes_and_sends_nothing() {
        let mut h = Harness::new();
        let (a, b) = (h.interface(0), h.interface(1));
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        let sent = frame(host_mac(9), &[0x88, 0xb5]);
        h.router.set_interface_up(b, false).unwrap();
        assert!(h.exchange(a, &sent).is_empty());
        assert_eq!(h.count("x1-output", "interface is down"), 1);
        h.router.set_interface_up(a, false).unwrap();
        assert!(h.exchange(a, &sent).is_empty());
        assert_eq!(h.count("ethernet-input", "interface is down"), 1);
        h.assert_buffers_held(0);
    }

    #[test]
    fn numbers_and_nodes_of_deleted_interfaces_are_used_again() {
        let mut h = Harness::with_workers(2);
        let a = h.interface(0);
        let nodes = h.router.graph.nodes().len();
        for _ in 0..50 {
            let b = h.interface(1);
            h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
            h.exchange(a, &frame(host_mac(9), &[0x88, 0xb5]));
            h.router.delete_interface(b).unwrap();
            h.exchange(a, &frame(host_mac(9), &[0x88, 0xb5]));
            h.router.reclaim();
        }
        assert_eq!(h.router.graph.nodes().len(), nodes);
        let l2 = h.router.graph.nodes().into_iter().find(|n| n.name == "l2-input").unwrap();
        assert!(l2.nexts.len() <= 3, "{:?}", l2.nexts);
        assert!(h.router.interfaces.end() <= 4, "numbers are reused after their grace period");
        h.assert_buffers_held(0);
    }
}
