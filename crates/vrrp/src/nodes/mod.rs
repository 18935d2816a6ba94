//! The nodes; see the crate's drawing.

mod arp;
mod local;
mod machine;
mod timer;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::{ArcPoint, FeatureSpec, IfIndex, NodeCx, NodeSpec, Published, TraceEntry, drop_reasons, flags, next_nodes};
use quiver_net::Router;
use quiver_net::fib::{Class, LbTable};
use quiver_net::ip::{FamilyId, V4, V6};
use quiver_net::neighbor::Station;
use quiver_wire::ethernet::EtherType;

use crate::machine::Send;
use crate::packet::{Advertisement, group, group_mac};
use crate::thread::{Entry, Key, Shared};

/// Features by arc that an interface with virtual routers of a family has on.
pub const FEATURES: [&[(&str, &str)]; 2] = [&[("ip4-local", "vrrp4-local"), ("arp", "vrrp4-arp")], &[("ip6-local", "vrrp6-local")]];
/// Handles advertisements on the thread that has the virtual router.
const MACHINE: &str = "vrrp-machine";
/// Sends what time calls for.
const TIMER: &str = "vrrp-process";
/// Sends whole frames.
const OUTPUT: &str = "neighbor-output";

next_nodes! {
    /// Where advertisements and announcements leave.
    pub enum Next {
        Output = "neighbor-output",
        Arp = "ip4-arp",
        Rewrite4 = "ip4-rewrite",
        Discover = "ip6-discover-neighbor",
        Rewrite6 = "ip6-rewrite",
    }
}

drop_reasons! {
    /// What is counted where packets are sent, and why packets are dropped there.
    pub enum Event {
        /// An advertisement for a virtual router of this router arrived.
        Received = "advertisements received" (info),
        /// An advertisement was sent.
        Sent = "advertisements sent" (info),
        /// A virtual address was announced by gratuitous ARP or an unsolicited neighbor advertisement.
        Announced = "virtual addresses announced" (info),
        /// There is no path to a peer of a unicast virtual router.
        NoPath = "no path to the peer",
        /// The virtual router was removed while its packet was on the way.
        Gone = "virtual router was removed",
    }
}

/// Which thread has a virtual router, and from whom it takes packets.
#[derive(Clone, Debug)]
pub struct Place {
    /// The thread.
    pub owner: usize,
    /// Its number there.
    pub serial: u32,
    /// Advertisements of others do not count: the addresses are the interface's own.
    pub is_owner: bool,
    /// The peers, where advertisements do not go to the group.
    pub peers: Option<Arc<[IpAddr]>>,
}

/// An address of a virtual router.
#[derive(Clone, Debug)]
pub struct Virtual {
    /// Who answers for it.
    pub station: Arc<Station>,
    /// Set while this router is the master.
    pub master: Arc<AtomicBool>,
    /// Packets to it are accepted, since the accept mode is on or the address is the interface's own.
    pub accept: bool,
    /// It is the interface's own.
    pub own: bool,
}

impl Virtual {
    fn is_master(&self) -> bool {
        self.master.load(Ordering::Acquire)
    }
}

/// All virtual routers, as nodes look for them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// By interface, family and number.
    pub routers: HashMap<Key, Place>,
    /// By interface and address.
    pub addresses: HashMap<(IfIndex, IpAddr), Virtual>,
}

/// What nodes are made from.
pub struct Parts {
    /// All virtual routers.
    pub index: Published<Index>,
    /// Virtual routers by thread; there are as many as threads can be.
    pub threads: Vec<Shared>,
}

/// Sends a virtual router's packets.
#[derive(Clone)]
struct Sender {
    load_balances: LbTable,
}

impl Sender {
    fn send(&self, cx: &mut NodeCx<'_>, entry: &mut Entry, send: Send) {
        let Some(source) = entry.machine.source() else { return };
        if let Some(priority) = send.advertise {
            let advertisement = Advertisement { vr_id: entry.key.vr_id, priority, interval: entry.machine.interval() };
            if entry.unicast {
                for (peer, lb) in &entry.peers {
                    self.send_to(cx, entry, *lb, &advertisement.packet(source, *peer, &entry.addresses));
                }
            } else if let Some(station) = &entry.station {
                let packet = advertisement.packet(source, group(entry.key.family), &entry.addresses);
                let ether_type = if entry.key.family == FamilyId::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
                put_out(cx, station, &station.frame(group_mac(entry.key.family), ether_type, &packet));
            }
            entry.sent += 1;
            cx.count(Event::Sent, 1);
        }
        if let (true, Some(station)) = (send.announce, &entry.station) {
            for frame in entry.addresses.iter().filter_map(|address| station.announcement(*address)) {
                put_out(cx, station, &frame);
                cx.count(Event::Announced, 1);
            }
        }
    }

    fn send_to(&self, cx: &mut NodeCx<'_>, entry: &Entry, lb: u32, bytes: &[u8]) {
        let bucket = self.load_balances.get(lb).bucket();
        let next = match (bucket.class(), entry.key.family) {
            (Class::Incomplete, FamilyId::V4) => Next::Arp,
            (Class::Rewrite, FamilyId::V4) => Next::Rewrite4,
            (Class::Incomplete, FamilyId::V6) => Next::Discover,
            (Class::Rewrite, FamilyId::V6) => Next::Rewrite6,
            // The interface is down.
            _ => return cx.count(Event::NoPath, 1),
        };
        let Some(mut packet) = cx.alloc_bytes(bytes, entry.key.interface) else { return };
        let mut view = cx.view(&mut packet);
        view.mark(flags::LOCAL);
        view.set_aux(bucket.index());
        cx.emit(next, packet);
    }
}

fn put_out(cx: &mut NodeCx<'_>, station: &Station, frame: &[u8]) {
    let Some(mut packet) = cx.alloc_bytes(frame, IfIndex::LOCAL0) else { return };
    station.address(&mut cx.view(&mut packet));
    cx.emit(Next::Output, packet);
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "VRRP: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, parts: &Parts) -> Result<(), quiver_graph::GraphError> {
    let sender = Sender { load_balances: router.data.load_balances.clone() };
    let (threads, timers, timer_sender) = (parts.threads.clone(), parts.threads.clone(), sender.clone());
    let machine =
        move |thread: usize| machine::OnThread { shared: threads[thread % threads.len()].clone(), sender: sender.clone() };
    let timer = move |thread: usize| timer::Timer { shared: timers[thread % timers.len()].clone(), sender: timer_sender.clone() };
    let arcs: [ArcPoint; 3] = std::array::from_fn(|_| ArcPoint::new());
    let [ip4, ip6, arp] = &arcs;
    let index = || parts.index.snapshot();
    router.graph.add(vec![
        NodeSpec::vector(MACHINE, move |cx| machine(cx.thread)).traced(trace),
        NodeSpec::input(TIMER, move |cx| timer(cx.thread)),
        NodeSpec::node("vrrp4-local", local::Local::<V4> { index: index(), arc: ip4.clone(), family: PhantomData })
            .with_next("ip4-local")
            .with_next(MACHINE)
            .with_next(OUTPUT)
            .on_arc("ip4-local", ip4.clone())
            .traced(trace),
        NodeSpec::node("vrrp6-local", local::Local::<V6> { index: index(), arc: ip6.clone(), family: PhantomData })
            .with_next("ip6-local")
            .with_next(MACHINE)
            .with_next(OUTPUT)
            .on_arc("ip6-local", ip6.clone())
            .traced(trace),
        NodeSpec::node("vrrp4-arp", arp::Arp { index: index(), arc: arp.clone() })
            .with_next("arp-reply")
            .with_next(OUTPUT)
            .on_arc("arp", arp.clone())
            .traced(trace),
    ])?;
    // What belongs to a virtual router is not Linux's.
    let before = |arc| match arc {
        "ip4-local" => vec!["linux-cp-punt-ip4"],
        "ip6-local" => vec!["linux-cp-punt-ip6"],
        _ => vec!["linux-cp-arp-phy"],
    };
    let feature = |(arc, node): &(&'static str, &'static str)| FeatureSpec {
        arc,
        node: (*node).into(),
        before: before(*arc),
        after: Vec::new(),
    };
    router.graph.add_features(FEATURES.iter().copied().flatten().map(feature).collect())
}
