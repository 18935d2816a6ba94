//! Clocks a packet of NAT44 beside plain forwarding, new sessions a second, memory of a session.
//!
//! `cargo bench -p quiver-nat44 [-- --rounds N] [--flows N]` (so many sessions in place of 1,000,000). 64-byte UDP packets in vectors of 256 from a ring of 16,384 buffers. Each
//! packet's flow is drawn at random from all established ones, so that both lines of a look-up come from wherever they are.
//! Rounds visit all cases in turn; figures are medians over rounds of medians over vectors, in ticks of the time stamp counter.
//! What source and sink cost is left out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quiver_buffer::RegionConfig;
use quiver_command::config::Schema;
use quiver_graph::{Frame, IfIndex, InputNode, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, Packet, VectorNode, next_nodes};
use quiver_nat44::config::Side;
use quiver_nat44::control;
use quiver_net::interface::{InterfaceKind, Kind, NewInterface, Tx};
use quiver_net::{Router, RouterConfig};
use quiver_wire::build::Packet as Build;
use quiver_wire::ipv4::Ipv4Header;
use quiver_wire::{MacAddr, U16Be, U32Be};

const RING: usize = 16_384;
const VECTORS: usize = 128;
/// Hosts; more sessions than these are more ports of each.
const HOSTS: u32 = 65_536;
const REMOTE: u32 = 0x3000_0001;
const REMOTE_PORT: u16 = 12;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    In2Out,
    Out2In,
}

/// What the sink makes of packets before their next turn.
struct Traffic {
    way: Way,
    flows: u32,
    /// Outside endpoints by flow, for packets from outside.
    outside: Vec<(u32, u16)>,
    /// Flows in a row until all have been seen, then at random.
    next: u32,
    random: u64,
    interfaces: [IfIndex; 2],
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Traffic {
    fn flow(&mut self) -> u32 {
        if self.next < self.flows {
            self.next += 1;
            return self.next - 1;
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.random >> 32) * u64::from(self.flows)) >> 32) as u32
    }

    /// Ends of the next packet.
    fn ends(&mut self) -> ((u32, u16), (u32, u16)) {
        let flow = self.flow();
        let host = (0x0a00_0000 + 2 + flow % HOSTS, 1025 + (flow / HOSTS) as u16);
        match self.way {
            Way::Plain | Way::In2Out => (host, (REMOTE, REMOTE_PORT)),
            Way::Out2In => ((REMOTE, REMOTE_PORT), self.outside[flow as usize]),
        }
    }
}

next_nodes! { enum SourceNext { Ethernet = "ethernet-input" } }

struct Source(Shared<VecDeque<Packet>>);

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut ring = lock(&self.0);
        let n = ring.len().min(cx.vector_size());
        for packet in ring.drain(..n) {
            cx.emit(SourceNext::Ethernet, packet);
        }
        n
    }
}

struct Sink {
    ring: Shared<VecDeque<Packet>>,
    traffic: Shared<Traffic>,
}

fn router_mac(n: u8) -> MacAddr {
    MacAddr([2, 0xfe, 0, 0, 0, n])
}

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let (mut ring, mut traffic) = (lock(&self.ring), lock(&self.traffic));
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            if packet.head_at::<U16Be, 12>().get() != 0x0800 {
                // The router's own, such as announcements of its addresses.
                let own = packet.take().0;
                cx.free(own);
                continue;
            }
            let (src, dst) = traffic.ends();
            let from = usize::from(traffic.way == Way::Out2In);
            packet.set_rx_if(traffic.interfaces[from]);
            packet.set_head(router_mac(from as u8));
            let mut header: Ipv4Header = packet.head_at::<_, 14>();
            (header.src, header.dst, header.ttl) = (U32Be::new(src.0), U32Be::new(dst.0), 64);
            header.fill_checksum();
            packet.set_head_at::<_, 14>(header);
            packet.set_head_at::<[U16Be; 2], 34>([U16Be::new(src.1), U16Be::new(dst.1)]);
            ring.push_back(packet.take().0);
        }
    }
}

struct Bed {
    router: Router,
    traffic: Shared<Traffic>,
    way: Way,
    name: String,
    /// New sessions a second, bytes a session.
    made: Option<(f64, usize)>,
}

fn interface(router: &mut Router, n: u8, ring: &Shared<VecDeque<Packet>>, traffic: &Shared<Traffic>) -> IfIndex {
    let (ring, traffic) = (ring.clone(), traffic.clone());
    let sink = move |_: &_| Sink { ring: ring.clone(), traffic: traffic.clone() };
    let new = NewInterface {
        name: format!("x{n}"),
        kind: Kind::Virtual(&InterfaceKind { name: "bench", called: "a bench", device_type: "bench" }),
        mac: router_mac(n),
        mtu: 1500,
        max_frame: 9216,
        tx: Tx::Node(Box::new(move |_, name| NodeSpec::vector(name, sink))),
    };
    let index = router.create_interface(new).expect("interface");
    router.set_interface_up(index, true).expect("up");
    index
}

impl Bed {
    fn new(way: Way, flows: u32) -> Self {
        let buffers = RegionConfig { buffers_per_numa: RING as u32 + 2048, ..Default::default() };
        let mut router = Router::new(&RouterConfig { buffers, ..Default::default() }).expect("a router");
        control::start(&mut router, &Schema::new().defaults()).expect("plugin");
        let ring = Shared::<VecDeque<Packet>>::default();
        let interfaces = [IfIndex(1), IfIndex(2)];
        let first = if way == Way::Plain { Way::Plain } else { Way::In2Out };
        let traffic = Traffic { way: first, flows, outside: Vec::new(), next: 0, random: 7, interfaces };
        let traffic = Arc::new(Mutex::new(traffic));
        let x0 = interface(&mut router, 0, &ring, &traffic);
        let x1 = interface(&mut router, 1, &ring, &traffic);
        lock(&traffic).interfaces = [x0, x1];
        for (index, address, len) in [(x0, "172.16.0.1", 24), (x1, "198.51.100.1", 16)] {
            router.add_address(index, address.parse().expect("address"), len).expect("address");
        }
        for (index, hop, to, len) in [(x0, "172.16.0.2", "10.0.0.0", 8), (x1, "198.51.0.2", "48.0.0.0", 8)] {
            let hop = hop.parse().expect("address");
            router.neighbor_update(index, hop, Some(MacAddr([2, 0, 0, 0, 1, 1]))).expect("neighbour");
            let prefix = quiver_wire::IpPrefix::new(to.parse().expect("address"), len).expect("prefix");
            let path = quiver_net::fib::Path::neighbor(index, hop);
            router.add_route(0, prefix, quiver_net::fib::Source::Cli, vec![path]).expect("route");
        }
        if way != Way::Plain {
            control::enable(&mut router, control::Enabled { sessions: flows, vrfs: (0, 0) }).expect("enabled");
            let pool = control::PoolSpec { addr: [198, 51, 101, 0].into(), vrf: None, twice: false, independent: false };
            control::set_pool(&mut router, pool, [198, 51, 101, 255].into(), true).expect("pool");
            control::set_interface(&mut router, x0, Side { inside: true, outside: false }, true).expect("inside");
            control::set_interface(&mut router, x1, Side { inside: false, outside: true }, true).expect("outside");
        }
        let r = ring.clone();
        let source = router.graph.add(vec![NodeSpec::input("bench-source", move |_| Source(r.clone()))]).expect("source")[0];
        fill(&mut router, source, &ring, x0);
        let name = match way {
            Way::Plain => "plain forwarding".into(),
            Way::In2Out => format!("in2out {flows}"),
            Way::Out2In => format!("out2in {flows}"),
        };
        let mut bed = Self { router, traffic, way, name, made: None };
        bed.establish();
        bed
    }

    /// Lets every flow send a packet, then turns to the way that is measured.
    fn establish(&mut self) {
        // The packets of the ring are of no flow yet.
        self.turn(RING / 256);
        lock(&self.traffic).next = 0;
        self.turn(RING / 256);
        let flows = lock(&self.traffic).flows;
        if self.way != Way::Plain {
            // Sessions are counted whose memory others had before, as in a router that has been up for a while.
            self.turn((flows as usize).div_ceil(256));
            lock(&self.traffic).next = 0;
            self.turn(RING / 256);
            control::clear_sessions(&mut self.router).expect("cleared");
            let now = self.router.graph.clock().timer_now();
            while self.router.run_processes(now).is_some_and(|due| due <= now) {}
        }
        let start = Instant::now();
        self.turn((flows as usize).div_ceil(256));
        if self.way != Way::Plain {
            let made = f64::from(flows) / start.elapsed().as_secs_f64();
            let state = control::on_thread(&mut self.router, 0, |nat| (nat.sessions.len(), nat.memory_bytes()));
            let (sessions, memory) = state.expect("a thread");
            assert_eq!(sessions, flows, "all flows have a session: {:?}", self.router.graph.error_counts());
            self.made = Some((made, memory / flows as usize));
        }
        if self.way == Way::Out2In {
            let mut outside = vec![(0, 0); flows as usize];
            let mut next = Some(0);
            while let Some(from) = next {
                let (list, more) = control::dump(&mut self.router, 0, from, 4096);
                for (_, session) in list {
                    let inside = session.inside();
                    let flow = (inside.addr - 0x0a00_0002) + u32::from(inside.port - 1025) * HOSTS;
                    outside[flow as usize] = (session.outside().addr, session.outside().port);
                }
                next = more;
            }
            let mut traffic = lock(&self.traffic);
            (traffic.outside, traffic.way) = (outside, Way::Out2In);
        }
        self.turn(2 * RING / 256);
    }

    fn turn(&mut self, vectors: usize) {
        for _ in 0..vectors {
            self.router.graph.fleet().step_here();
        }
    }

    fn nodes(&self) -> Vec<&'static str> {
        match self.way {
            Way::Plain => vec!["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite", "x1-output"],
            Way::In2Out => vec!["ethernet-input", "ip4-input", "nat44-ed-in2out", "ip4-lookup", "ip4-rewrite", "x1-output"],
            Way::Out2In => vec!["ethernet-input", "ip4-input", "nat44-ed-out2in", "ip4-lookup", "ip4-rewrite", "x0-output"],
        }
    }

    /// Clocks a packet of each node: medians over vectors.
    fn run(&mut self) -> Vec<f64> {
        self.turn(RING / 256);
        let nodes = self.nodes();
        let ids: Vec<NodeId> = nodes.iter().map(|n| self.router.graph.node(n).expect("a node")).collect();
        let mut samples = vec![Vec::new(); ids.len()];
        for _ in 0..VECTORS {
            let before: Vec<_> = ids.iter().map(|id| self.router.graph.figures(*id, 0)).collect();
            self.turn(1);
            for ((id, before), samples) in ids.iter().zip(before).zip(&mut samples) {
                let now = self.router.graph.figures(*id, 0);
                assert_eq!(now.vectors - before.vectors, 256, "packets went another way: {:?}", self.router.graph.error_counts());
                samples.push((now.clocks - before.clocks) as f64 / 256.0);
            }
        }
        samples.iter_mut().map(|s| median(s)).collect()
    }
}

fn fill(router: &mut Router, source: NodeId, ring: &Shared<VecDeque<Packet>>, rx: IfIndex) {
    let udp = Build::ethernet(MacAddr([2, 0, 0, 0, 0, 9]), router_mac(0)).ipv4([10, 0, 0, 2], [48, 0, 0, 1]);
    let frame = udp.udp(1025, REMOTE_PORT).payload(&[0x5a; 22]).build();
    let ring = ring.clone();
    router.graph.fleet().on(0, move |w| {
        w.at_node(source, |cx| {
            let mut packets: Vec<Packet> = (0..RING).map(|_| cx.alloc_bytes(&frame, rx).expect("a buffer")).collect();
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for i in (1..packets.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                packets.swap(i, (state >> 33) as usize % (i + 1));
            }
            lock(&ring).extend(packets);
        })
    });
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)?.parse::<u32>().ok());
    let (rounds, many) = (option("--rounds").unwrap_or(7), option("--flows").unwrap_or(1_000_000));
    // Where it may not pin itself, other work on the machine moves it.
    let _ = quiver_graph::topology::pin_current_thread(0);
    let cases = [(Way::Plain, 65_536), (Way::In2Out, 65_536), (Way::Out2In, 65_536), (Way::In2Out, many), (Way::Out2In, many)];
    let mut beds: Vec<Bed> = cases.iter().map(|(way, flows)| Bed::new(*way, *flows)).collect();
    let mut figures: Vec<Vec<Vec<f64>>> = vec![Vec::new(); beds.len()];
    for _ in 0..rounds {
        for (bed, figures) in beds.iter_mut().zip(&mut figures) {
            figures.push(bed.run());
        }
    }
    for (bed, rounds) in beds.iter().zip(&figures) {
        let nodes = bed.nodes();
        let each: Vec<f64> = (0..nodes.len()).map(|n| median(&mut rounds.iter().map(|r| r[n]).collect::<Vec<_>>())).collect();
        let sums: Vec<f64> = rounds.iter().map(|r| r.iter().sum()).collect();
        let (least, greatest) = (sums.iter().copied().fold(f64::MAX, f64::min), sums.iter().copied().fold(0.0, f64::max));
        println!("{:<20} {:7.1} [{least:.1}..{greatest:.1}] clocks a packet", bed.name, median(&mut sums.clone()));
        for (name, clocks) in nodes.iter().zip(each) {
            println!("    {name:<18} {clocks:6.1}");
        }
        if let Some((made, memory)) = bed.made {
            println!("    {made:.0} new sessions a second, {memory} bytes a session");
        }
    }
}
