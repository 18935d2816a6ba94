//! A graph that does nothing but carry frames between two devices: what stands on the driver in these tests.

#![allow(dead_code, reason = "each test program uses a part")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_drivers::af_packet::{AfPacket, AfPacketConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceNext, DeviceTx, Frame, Graph, IfIndex, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, PlacedQueue,
    Port, PortState, STATS_BYTES, ThreadPlan, TxQueue, TxState, VectorNode, Verdict,
};
use quiver_tables::qsbr;
use quiver_testbed::Host;

/// Sends what came in on one interface out on the other. Frames between UDP ports 9 leave with an
/// unfinished checksum.
struct Cross;

/// Ports of such a frame.
const SUM_ME: [u8; 4] = [0, 9, 0, 9];

impl VectorNode for Cross {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let from = packet.rx_if().0;
            if packet.bytes().get(34..38) == Some(&SUM_ME) {
                packet.set_unfinished_checksum(34, 6);
            }
            // Slot 0 drops; the tx nodes of interfaces 1 and 2 stand in slots 1 and 2.
            cx.decide(i, Verdict::slot(3 - from as u16));
        }
    }
}

/// Two devices of a host, cross-connected by workers.
pub struct Rig {
    pub graph: Graph,
    pub ports: Vec<AfPacket>,
    host: Host,
    input: NodeId,
    tx: [std::sync::Arc<TxState>; 2],
}

impl Rig {
    /// Opens both devices and starts `workers` threads (at least one). Queues are dealt out in turn.
    pub fn new(host: &Host, workers: usize, configs: [AfPacketConfig; 2]) -> Self {
        Self::placed(host, &vec![ThreadPlan::default(); workers], configs)
    }

    /// The same with workers placed as planned.
    pub fn placed(host: &Host, plans: &[ThreadPlan], configs: [AfPacketConfig; 2]) -> Self {
        let region = RegionConfig { buffers_per_numa: 16_384, page_size: PageSize::Kb4, ..Default::default() };
        let region = Region::new(&region).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.start_workers(plans).unwrap();
        graph.interfaces().set_len(3);
        let threads = graph.fleet().threads();
        let mut ports = Vec::new();
        let states: [_; 2] = std::array::from_fn(|_| std::sync::Arc::new(TxState::default()));
        for (at, config) in configs.into_iter().enumerate() {
            let interface = IfIndex(at as u32 + 1);
            let all = threads.clone();
            let (port, queues) = host
                .enter(move || {
                    let mut port = AfPacket::open(config)?;
                    let queues = all.iter().map(|t| Ok((*t, port.open_tx(*t)?))).collect::<std::io::Result<HashMap<_, _>>>()?;
                    Ok((port, queues))
                })
                .unwrap();
            let queues: RefCell<HashMap<usize, Box<dyn TxQueue>>> = RefCell::new(queues);
            let state = states[at].clone();
            state.set_up(true);
            let name = format!("if{}-tx", interface.0);
            let make =
                move |cx: &quiver_graph::MakeCx| DeviceTx::new(interface, state.clone(), queues.borrow_mut().remove(&cx.thread));
            graph.add(vec![NodeSpec::vector(name, make)]).unwrap();
            ports.push(port);
        }
        graph.add(vec![NodeSpec::vector("ethernet-input", |_| Cross).with_next("if1-tx").with_next("if2-tx")]).unwrap();
        let arc = ArcPoint::new();
        let input = graph.add(vec![NodeSpec::input("af-packet-input", move |_| DeviceInput::new(arc.clone()))]).unwrap()[0];
        let mut rig = Self { graph, ports, host: host.clone(), input, tx: states };
        let mut turn = 0;
        for at in 0..2 {
            for (number, rx) in rig.ports[at].take_rx().unwrap().into_iter().enumerate() {
                let interface = IfIndex(at as u32 + 1);
                let queue = PlacedQueue { interface, queue: number as u16, next: DeviceNext::Ethernet.into(), up: true, rx };
                let thread = threads[turn % threads.len()];
                rig.graph.input::<DeviceInput, _>(input, thread, move |node| node.place(queue)).unwrap();
                turn += 1;
            }
        }
        rig
    }

    /// What the control side does when a device has changed.
    pub fn refresh(&mut self, at: usize) -> std::io::Result<PortState> {
        let port = &mut self.ports[at];
        let state = self.host.enter(move || port.refresh())?;
        if state.reopened {
            let interface = IfIndex(at as u32 + 1);
            for thread in self.graph.fleet().threads() {
                self.graph.input::<DeviceInput, _>(self.input, thread, move |node| node.renew(interface));
            }
        }
        Ok(state)
    }

    /// Takes a device up or down as its interface would.
    pub fn set_up(&mut self, at: usize, up: bool) -> std::io::Result<()> {
        self.ports[at].set_up(up)
    }

    /// Processor time that the workers have taken.
    pub fn cpu(&self) -> Duration {
        Duration::from_secs_f64(self.graph.thread_info().iter().map(|t| cpu_seconds(t.lwp)).sum())
    }

    /// Processor time that the workers take in `time`, or in as much more as the machine makes of it: used, passed.
    pub fn idle_cpu(&self, time: Duration) -> (Duration, Duration) {
        let (before, start) = (self.cpu(), Instant::now());
        std::thread::sleep(time);
        (self.cpu().saturating_sub(before), start.elapsed())
    }

    /// Packets and clocks of the input node and of the second interface's tx node.
    pub fn node_clocks(&mut self) -> [(u64, u64); 2] {
        let threads = self.graph.fleet().threads();
        ["af-packet-input", "if2-tx"].map(|name| {
            let node = self.graph.node(name).expect("a node of this rig");
            let figures = threads.iter().map(|t| self.graph.figures(node, *t));
            figures.fold((0, 0), |sum, f| (sum.0 + f.vectors, sum.1 + f.clocks))
        })
    }

    /// Counter of an interface by its name in `show interface`.
    pub fn counter(&self, name: &str, at: usize) -> u64 {
        let found = self.graph.interfaces().simple().into_iter().find(|(n, _)| *n == name);
        found.map(|(_, c)| c.sum(at as u32 + 1)).unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Packets received and sent by an interface.
    pub fn packets(&self, at: usize) -> (u64, u64) {
        let interfaces = self.graph.interfaces();
        (interfaces.rx.sum(at as u32 + 1).0, interfaces.tx.sum(at as u32 + 1).0)
    }

    /// All that is not zero, for messages.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for at in 0..2 {
            let (rx, tx) = self.packets(at);
            text += &format!("if{}: rx {rx} tx {tx}", at + 1);
            for name in ["rx-miss", "rx-error", "rx-no-buf", "tx-error", "drops"] {
                let n = self.counter(name, at);
                if n > 0 {
                    text += &format!(" {name} {n}");
                }
            }
            text.push('\n');
        }
        for (thread, error, n) in self.graph.error_counts().into_iter().filter(|(_, _, n)| *n > 0) {
            text += &format!("thread {thread} {}: {} {n}\n", error.node, error.text);
        }
        text
    }

    /// Every buffer is back in the pool.
    pub fn assert_pool_is_whole(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.graph.fleet().each(|_| ());
            let used: Vec<_> = self.graph.pools().iter().map(|p| p.usage().used()).collect();
            if used.iter().all(|n| *n == 0) {
                return;
            }
            assert!(Instant::now() < deadline, "buffers in use: {used:?}\n{}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Processor time of a thread of this process, in the kernel's own nanoseconds.
fn cpu_seconds(lwp: u64) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{lwp}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Bytes that look random, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// An IPv4 UDP frame of `len` bytes for flow and packet `number`; its payload says which.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let total = (len - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    bytes.extend((number as u16 ^ 0x5555).to_be_bytes());
    bytes.extend([0x13, 0x88]);
    bytes.extend((total - 20).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.extend(noise(u64::from(number), len - bytes.len()));
    bytes
}

/// Hosts a and b with a router between them, on links whose kernels say nothing by themselves: a eth0 – r0, r1 – eth0 b.
pub fn quiet_scene(options: &quiver_testbed::LinkOptions) -> (Host, Host, Host) {
    let (a, middle, b) = (Host::new("a").unwrap(), Host::new("middle").unwrap(), Host::new("b").unwrap());
    for host in [&a, &middle, &b] {
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    }
    a.veth("eth0", &middle, "r0", options).unwrap();
    b.veth("eth0", &middle, "r1", options).unwrap();
    (a, middle, b)
}
