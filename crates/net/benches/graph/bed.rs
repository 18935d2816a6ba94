//! A router with a source and a sink that pass the same buffers round.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quiver_buffer::RegionConfig;
use quiver_graph::{
    ArcPoint, Batch, FastPath, FeatureSpec, Frame, IfIndex, InputNode, Level, LoopConfig, NoDrops, NoNext, Node, NodeCx,
    NodeFigures, NodeId, NodeSpec, Packet, Pkt, Sent, Shared, VectorNode, Verdict, flags, next_nodes,
};
use quiver_net::fib::{Path, Source as RouteSource};
use quiver_net::interface::{InterfaceKind, Kind, L2Mode, NewInterface, SubMatch, Tx, VlanId};
use quiver_net::l2::{MacKind, PortKind};
use quiver_net::{Router, RouterConfig};
use quiver_tables::synth;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::{Header, IpPrefix, MacAddr, U16Be};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Buffers in the ring.
pub const RING: usize = 16_384;
const NEXT_HOPS: u32 = 64;
const ETHERNET: usize = 14;

/// What the router does with the packets.
pub enum Way {
    /// IPv4 routes, next hops drawn by prefix.
    Route4 { prefixes: Vec<(u32, u8)> },
    /// IPv4 routes between VLANs. With one customer, frames come in with one tag. With more, each customer has its own pair of tags. All
    /// frames leave with one tag.
    Vlans { customers: u32, prefixes: Vec<(u32, u8)> },
    /// IPv6 routes, next hops drawn by prefix.
    Route6 { prefixes: Vec<(u128, u8)> },
    /// Frames pass whole.
    CrossConnect,
    /// Frames pass by MAC address: so many stations, half of them behind either port.
    Bridge { stations: u32 },
}

/// A packet's ends.
pub enum Flow {
    V4 {
        src: u32,
        dst: u32,
    },
    V6 {
        src: u128,
        dst: u128,
    },
    /// Of a customer, behind tags.
    Tagged {
        tags: Vec<u16>,
        customer: u32,
        dst: u32,
    },
    /// Destination and source in a bridge, by number.
    Stations(u32, u32),
}

/// VLANs of the one customer, and of what is behind x1.
const VLANS: [u16; 2] = [10, 30];

/// Address of the first customer.
const CUSTOMERS: u32 = 0x6440_0000;

/// Tags of a customer, from the first TPID on: the service provider's says which of 64, the customer's which of those.
fn customer_tags(n: u32) -> [u16; 4] {
    [EtherType::QINQ.0, 1 + (n % 64) as u16, EtherType::VLAN.0, 1 + (n / 64) as u16]
}

impl Flow {
    /// Of one of so many customers.
    pub fn of_customer(n: u32, customers: u32, dst: u32) -> Self {
        let tags = if customers == 1 { vec![EtherType::VLAN.0, VLANS[0]] } else { customer_tags(n).to_vec() };
        Self::Tagged { tags, customer: n, dst }
    }
}

type Ring = Arc<Mutex<VecDeque<Packet>>>;

next_nodes! { enum SourceNext { Ethernet = "ethernet-input" } }

/// Sends a vector at a time.
struct Source {
    ring: Ring,
}

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let n = ring.len().min(cx.vector_size());
        for packet in ring.drain(..n) {
            cx.emit(SourceNext::Ethernet, packet);
        }
        n
    }
}

/// Undoes what the router has done to a packet, and puts it back.
struct Sink {
    ring: Ring,
    router: MacAddr,
    turn: Arc<Turn>,
    random: u64,
}

/// What packets are made ready for.
#[derive(Default)]
struct Turn {
    /// In a bridge: how many stations there are. Each packet's next turn is between two others of them.
    stations: AtomicU32,
    /// Customers behind tags, whose packets get these again.
    customers: AtomicU32,
    /// The interface by which packets come: where they have tags, the sub-interface took its place.
    rx: AtomicU32,
}

/// Address of a station; even ones are behind x0, odd ones behind x1.
fn station(n: u32) -> MacAddr {
    let n = n.to_be_bytes();
    MacAddr([0x02, 0x57, n[0], n[1], n[2], n[3]])
}

/// Destination behind x1 and source behind x0, drawn from so many.
fn two_stations(random: &mut u64, stations: u32) -> [MacAddr; 2] {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let half = |r: u64| (((r & 0xffff_ffff) * u64::from(stations / 2)) >> 32) as u32;
    [station(2 * half(*random >> 32) + 1), station(2 * half(*random >> 16))]
}

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let stations = self.turn.stations.load(Ordering::Relaxed);
            if stations > 0 {
                packet.set_head(two_stations(&mut self.random, stations));
                ring.push_back(packet.take().0);
                continue;
            }
            let ether_type = packet.head_at::<U16Be, 12>().get();
            if ether_type == EtherType::VLAN.0 {
                self.retag(&mut packet);
                ring.push_back(packet.take().0);
                continue;
            }
            packet.set_head(self.router);
            if ether_type == EtherType::IPV4.0 {
                let mut header: Ipv4Header = packet.head_at::<_, ETHERNET>();
                header.ttl = 64;
                header.fill_checksum();
                packet.set_head_at::<_, ETHERNET>(header);
            } else {
                packet.set_head_at::<u8, 21>(64);
            }
            ring.push_back(packet.take().0);
        }
    }
}

impl Sink {
    /// Gives a packet the tags that it came with, and its time to live.
    fn retag(&self, packet: &mut Pkt<'_>) {
        let mut header: Ipv4Header = packet.head_at::<_, { ETHERNET + 4 }>();
        header.ttl = 64;
        header.fill_checksum();
        packet.set_head_at::<_, { ETHERNET + 4 }>(header);
        packet.set_rx_if(IfIndex(self.turn.rx.load(Ordering::Relaxed)));
        if self.turn.customers.load(Ordering::Relaxed) == 1 {
            packet.set_head(self.router);
            packet.set_head_at::<_, 14>(U16Be::new(VLANS[0]));
        } else {
            let tags = customer_tags(header.src.get() - CUSTOMERS).map(U16Be::new);
            assert!(packet.push(4));
            packet.set_head(self.router);
            packet.set_head_at::<_, 6>(MacAddr([2, 0, 0, 0, 0, 9]));
            packet.set_head_at::<_, 12>(tags);
        }
    }
}

/// Name of the node of [`Feature`].
pub const FEATURE: &str = "bench-feature";

next_nodes! { enum FeatureNext { Lookup = "ip4-lookup" } }

/// A feature that looks at each packet's TTL and lets all pass.
#[derive(Clone)]
struct Feature {
    arc: ArcPoint,
}

impl Node<Shared> for Feature {
    type Next = FeatureNext;
    type Drop = NoDrops;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
        self.arc.next(packet.rx_if(), FeatureNext::Lookup.into())
    }
}

impl FastPath<Shared> for Feature {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let interface = batch.first_rx_if();
        let spent = batch.heads::<u8, 8>().iter().fold(false, |spent, ttl| spent | (*ttl <= 1));
        if spent || !batch.all_from(interface, flags::CHAINED) {
            return None;
        }
        Some(batch.send_all(self.arc.next(interface, FeatureNext::Lookup.into())))
    }
}

/// A router under measurement.
pub struct Bed {
    router: Router,
    ring: Ring,
    source: NodeId,
    rx: IfIndex,
    /// How the nodes' loops run by themselves.
    loops: HashMap<String, LoopConfig>,
}

fn router_mac(n: u8) -> MacAddr {
    MacAddr([0x02, 0xfe, 0, 0, 0, n])
}

impl Bed {
    /// A router with x0, where packets come in, and x1, where all of them leave, on the main thread.
    pub fn new(way: Way) -> Self {
        let buffers = RegionConfig { buffers_per_numa: RING as u32 + 2048, ..Default::default() };
        let mut router = Router::new(&RouterConfig { buffers, ..Default::default() }).expect("a router");
        let ring = Ring::default();
        let turn = Arc::new(Turn::default());
        let [rx, tx] = [0, 1].map(|n| interface(&mut router, n, &ring, &turn));
        turn.rx.store(rx.0, Ordering::Relaxed);
        let r = ring.clone();
        let source = NodeSpec::input("bench-source", move |_| Source { ring: r.clone() });
        let source = router.graph.add(vec![source]).expect("source")[0];
        let loops = router.graph.nodes().into_iter().filter_map(|n| n.multi_loop.map(|(l, _)| (n.name, l))).collect();
        let mut bed = Self { router, ring, source, rx, loops };
        match way {
            Way::Bridge { stations: n } => {
                for port in [rx, tx] {
                    bed.router.set_bridge(port, 1, PortKind::Normal, 0).expect("port");
                }
                for k in 0..n {
                    let port = if k % 2 == 0 { rx } else { tx };
                    bed.router.add_mac(1, station(k), MacKind::Learned(port)).expect("address");
                }
                // By the clock that stamps addresses: at any other time they would be old.
                let now = bed.router.graph.clock().timer_now();
                while bed.router.run_processes(now).is_some_and(|due| due <= now) {}
                turn.stations.store(n, Ordering::Relaxed);
            }
            Way::CrossConnect => bed.router.set_l2(rx, L2Mode::CrossConnect(tx)).expect("cross-connect"),
            Way::Route4 { prefixes } => bed.routes4(rx, tx, prefixes),
            Way::Vlans { customers, prefixes } => {
                turn.customers.store(customers, Ordering::Relaxed);
                let (inside, outside) = (bed.sub(rx, VLANS[0], None), bed.sub(tx, VLANS[1], None));
                bed.routes4(inside, outside, prefixes);
                for n in (0..customers).filter(|_| customers > 1) {
                    let [_, outer, _, inner] = customer_tags(n);
                    let sub = bed.sub(rx, outer, Some((1 + n, inner)));
                    let address = Ipv4Addr::from_bits(0x0a00_0001 + 4 * n);
                    bed.router.add_address(sub, address.into(), 30).expect("address");
                }
            }
            Way::Route6 { prefixes } => {
                let hop = |n: u32| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0002 << 96 | u128::from(2 + n)));
                bed.links(rx, tx, ("2001:2:1::1", 64), ("2001:2::1", 64), hop);
                for (prefix, len) in prefixes {
                    let next = hop(synth::leaf(prefix, len, 1) % NEXT_HOPS);
                    bed.route(Ipv6Addr::from_bits(prefix).into(), len, tx, next);
                }
            }
        }
        bed
    }

    /// A sub-interface that is up: of one tag, whose number it has; or of two, and of this number.
    fn sub(&mut self, parent: IfIndex, outer: u16, inner: Option<(u32, u16)>) -> IfIndex {
        let (dot1ad, id) = inner.map_or((false, outer.into()), |(n, _)| (true, 4096 + n));
        let inner = inner.map(|(_, inner)| VlanId::Exactly(inner));
        let tags = SubMatch::Tagged { dot1ad, outer: VlanId::Exactly(outer), inner, exact: true };
        let sub = self.router.create_sub_interface(parent, id, tags).expect("a sub-interface");
        self.router.set_interface_up(sub, true).expect("up");
        sub
    }

    /// IPv4 routes, next hops drawn by prefix.
    fn routes4(&mut self, rx: IfIndex, tx: IfIndex, prefixes: Vec<(u32, u8)>) {
        let hop = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0xc612_0002 + n));
        self.links(rx, tx, ("10.255.255.1", 30), ("198.18.0.1", 16), hop);
        for (prefix, len) in prefixes {
            let next = hop(synth::leaf(prefix, len, 1) % NEXT_HOPS);
            self.route(Ipv4Addr::from_bits(prefix).into(), len, tx, next);
        }
    }

    fn links(&mut self, rx: IfIndex, tx: IfIndex, own_rx: (&str, u8), own_tx: (&str, u8), hop: impl Fn(u32) -> IpAddr) {
        for (index, (address, len)) in [(rx, own_rx), (tx, own_tx)] {
            self.router.add_address(index, address.parse().expect("an address"), len).expect("address");
        }
        for n in 0..NEXT_HOPS {
            let mac = MacAddr([2, 0, 0, 0, 1, n as u8]);
            self.router.neighbor_update(tx, hop(n), Some(mac)).expect("neighbour");
        }
    }

    fn route(&mut self, address: IpAddr, len: u8, tx: IfIndex, next: IpAddr) {
        let prefix = IpPrefix::new(address, len).expect("a prefix");
        // Prefixes that the router keeps for itself are in some tables; the addresses below avoid them.
        let _ = self.router.add_route(0, prefix, RouteSource::Cli, vec![Path::neighbor(tx, next)]);
    }

    /// Puts a feature between input and look-up.
    pub fn add_feature(&mut self) {
        const ARC: &str = "ip4-unicast";
        let arc = ArcPoint::new();
        let node = NodeSpec::fast(FEATURE, Feature { arc: arc.clone() }).on_arc(ARC, arc);
        let graph = &mut self.router.graph;
        graph.add(vec![node]).expect("feature");
        let feature = FeatureSpec { arc: ARC, node: FEATURE.into(), before: Vec::new(), after: Vec::new() };
        graph.add_features(vec![feature]).expect("feature");
        graph.set_feature(ARC, FEATURE, self.rx, true).expect("feature");
    }

    /// Fills the ring, in shuffled order: in a row, the processor's own prefetcher would hide the misses.
    pub fn fill(&mut self, n: usize, flow: impl Fn(u32) -> Flow) {
        let frames: Vec<Vec<u8>> = (0..n as u32).map(|i| frame(&flow(i))).collect();
        let (source, rx, ring) = (self.source, self.rx, self.ring.clone());
        self.router.graph.fleet().on(0, move |w| {
            w.at_node(source, |cx| {
                let mut packets: Vec<Packet> = frames.iter().map(|f| cx.alloc_bytes(f, rx).expect("a buffer")).collect();
                let mut state = 0x9e37_79b9_7f4a_7c15_u64;
                for i in (1..packets.len()).rev() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    packets.swap(i, (state >> 33) as usize % (i + 1));
                }
                ring.lock().unwrap_or_else(PoisonError::into_inner).extend(packets);
            })
        });
        self.turn(2 * RING / 256);
        let left = self.ring.lock().unwrap_or_else(PoisonError::into_inner).len();
        let drops: Vec<String> =
            self.router.graph.error_sums().filter(|(_, n)| *n > 0).map(|(e, n)| format!("{e:?}: {n}")).collect();
        assert!(left == n, "of {n} packets {left} came back: {drops:?}");
    }

    /// Sets the loops of all nodes that have one.
    pub fn set_loops(&mut self, nodes: &[&str], width: Option<u8>, prefetch: Option<u8>, level: Option<Level>) {
        for name in nodes {
            let Some(default) = self.loops.get(*name) else { continue };
            let width = width.unwrap_or(default.width);
            let prefetch = prefetch.unwrap_or(default.prefetch);
            let level = level.unwrap_or_else(Level::best);
            self.router.graph.set_loop(name, Some(width), Some(prefetch), Some(level)).expect("loop");
        }
    }

    /// Switches fused chains on or off.
    pub fn set_fusion(&mut self, on: bool) {
        self.router.graph.set_fusion(on);
    }

    /// Sets how many packets a vector holds.
    pub fn set_vector(&mut self, packets: usize) {
        self.router.graph.set_vector_size(packets).expect("vector size");
    }

    /// Passes so many vectors.
    pub fn turn(&mut self, vectors: usize) {
        for _ in 0..vectors {
            self.router.graph.fleet().step_here();
        }
    }

    /// Runs some vectors and gives the clocks a packet of each node: the median over vectors, so that a vector during which
    /// the machine did something else does not count.
    pub fn run(&mut self, nodes: &[&str], vectors: usize) -> Vec<f64> {
        let vector = self.ring.lock().unwrap_or_else(PoisonError::into_inner).len().min(self.router.graph.vector_size()) as u64;
        // Once round, so that the ring is in an order of this setting.
        self.turn(RING / 256);
        let ids: Vec<NodeId> = nodes.iter().map(|name| self.router.graph.node(name).expect("a node of the path")).collect();
        let mut samples = vec![Vec::with_capacity(vectors); ids.len()];
        let mut before: Vec<NodeFigures> = ids.iter().map(|id| self.router.graph.figures(*id, 0)).collect();
        for _ in 0..vectors {
            self.turn(1);
            for ((id, before), samples) in ids.iter().zip(&mut before).zip(&mut samples) {
                let now = self.router.graph.figures(*id, 0);
                assert_eq!(now.vectors - before.vectors, vector, "{}: packets went another way", self.router.graph.node_name(*id));
                samples.push((now.clocks - before.clocks) as f64 / vector as f64);
                *before = now;
            }
        }
        samples
            .iter_mut()
            .map(|s| {
                s.sort_by(f64::total_cmp);
                s[s.len() / 2]
            })
            .collect()
    }
}

fn interface(router: &mut Router, n: u8, ring: &Ring, turn: &Arc<Turn>) -> IfIndex {
    let (ring, turn) = (ring.clone(), turn.clone());
    let sink = move |_: &_| Sink { ring: ring.clone(), router: router_mac(0), turn: turn.clone(), random: 7 };
    let make = move |_, name: String| NodeSpec::vector(name, sink);
    let new = NewInterface {
        name: format!("x{n}"),
        kind: Kind::Virtual(&InterfaceKind { name: "bench", called: "a bench", device_type: "bench" }),
        mac: router_mac(n),
        mtu: 1500,
        max_frame: 9216,
        tx: Tx::Node(Box::new(make)),
    };
    let index = router.create_interface(new).expect("interface");
    router.set_interface_up(index, true).expect("up");
    index
}

fn frame(flow: &Flow) -> Vec<u8> {
    let mut bytes = router_mac(0).0.to_vec();
    bytes.extend([2, 0, 0, 0, 0, 9]);
    let mut put = |ether_type: EtherType, header: &[u8], total: usize| {
        bytes.extend(ether_type.0.to_be_bytes());
        bytes.extend(header);
        bytes.resize(total, 0x5a);
    };
    match flow {
        Flow::Tagged { tags, customer, dst } => {
            bytes.extend(tags.iter().flat_map(|word| word.to_be_bytes()));
            let untagged = frame(&Flow::V4 { src: CUSTOMERS + customer, dst: *dst });
            bytes.extend(&untagged[12..]);
        }
        Flow::V4 { src, dst } => {
            let mut header = Ipv4Header::new(Ipv4Addr::from_bits(*src), Ipv4Addr::from_bits(*dst), IpProtocol::UDP);
            header.total_len = U16Be::new(50);
            header.fill_checksum();
            let mut raw = [0; 20];
            header.write(&mut raw).expect("room");
            put(EtherType::IPV4, &raw, 64);
        }
        Flow::Stations(dst, src) => {
            bytes = [station(*dst).0, station(*src).0].concat();
            bytes.extend(EtherType::IPV4.0.to_be_bytes());
            bytes.resize(64, 0x5a);
        }
        Flow::V6 { src, dst } => {
            let mut header = Ipv6Header::new(Ipv6Addr::from_bits(*src), Ipv6Addr::from_bits(*dst), IpProtocol::UDP);
            header.payload_len = U16Be::new(30);
            let mut raw = [0; 40];
            header.write(&mut raw).expect("room");
            put(EtherType::IPV6, &raw, 84);
        }
    }
    bytes
}
