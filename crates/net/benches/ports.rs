//! How long packets stay in the router when several ports bring them at the same rate: one worker, IPv4.
//!
//! `cargo bench -p quiver-net --bench ports [-- [--json] [--rounds N] [--ms N] [--no-fusion]]`. Eight ports, of which 1, 2 and 8 are active. A port is a
//! wire made of time: its queue holds the frames that are due by now at a constant rate (up to 1,024; what comes then is lost and
//! counted), each with the moment it arrived; its other side takes frames and notes how long ago that was. So no sender's pauses, bursts or
//! cores are in the figures, only the router's: how long a frame waits until its port is polled, and until its vector has passed.
//! Turns of over 100 µs, in which the thread was not running, are left out and counted (*away*): the wires begin anew after them.
//! Rounds visit all rates and numbers of ports in turn; figures are medians over rounds of each round's percentile, ns.
//! *of one* is the median in relation to that with one port. The thesis that this is measured for (its tables 2.3 and 2.7)
//! saw 2.2 to 3.5 times the latency from a second port at 1 Gbit/s.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quiver_buffer::RegionConfig;
use quiver_graph::clock::Clock;
use quiver_graph::{IfIndex, Link, Port, RxBurst, RxQueue, RxState, TxBatch, TxQueue};
use quiver_net::fib::{Path, Source};
use quiver_net::interface::{InterfaceKind, Kind, NewInterface, Tx};
use quiver_net::{Router, RouterConfig};
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::{Header, IpPrefix, MacAddr, U16Be};

const PORTS: u8 = 8;
const ACTIVE: [u8; 3] = [1, 2, 8];
/// Packets a second on each active port; the last four are a tenth of 1 Gbit/s at 64 bytes, all of it at 512 bytes, then half
/// and all of it at 64.
const RATES: [u64; 5] = [10_000, 148_810, 234_962, 744_048, 1_488_095];
/// Of a second, the part that a turn takes at most: in a longer one the thread did not run, somebody else had the processor.
const AWAY: u64 = 10_000;
/// Frames that a wire holds.
const DEPTH: u64 = 1024;
/// Where a frame says when it arrived.
const STAMP: usize = 42;

/// What all wires of a router share.
struct Line {
    clock: Arc<Clock>,
    /// Ticks between two frames of a port.
    period: AtomicU64,
    /// When the first of them arrives, ticks.
    start: AtomicU64,
    lost: AtomicU64,
    /// How long each frame took, ticks.
    took: Mutex<Vec<u32>>,
}

/// One port.
struct Wire {
    line: Arc<Line>,
    number: u8,
    mac: MacAddr,
    active: Arc<AtomicU64>,
}

struct Rx {
    line: Arc<Line>,
    number: u8,
    active: Arc<AtomicU64>,
    frame: Vec<u8>,
    /// The run, by when it began.
    start: u64,
    /// When the next frame arrives, ticks.
    next: u64,
}

struct Tx0(Arc<Line>);

impl RxQueue for Rx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        if u64::from(self.number) >= self.active.load(Ordering::Relaxed) {
            return RxState::Up;
        }
        let (period, start) = (self.line.period.load(Ordering::Relaxed), self.line.start.load(Ordering::Relaxed));
        if self.start != start {
            // Ports do not beat in step: each begins an odd part of a period later.
            (self.start, self.next) = (start, start + period * u64::from(self.number) * 38 / 100);
        }
        let now = self.line.clock.ticks();
        let Some(late) = now.checked_sub(self.next) else { return RxState::Up };
        let mut due = late / period + 1;
        if due > DEPTH {
            self.line.lost.fetch_add(due - DEPTH, Ordering::Relaxed);
            self.next += (due - DEPTH) * period;
            due = DEPTH;
        }
        let (frame, next) = (&mut self.frame, &mut self.next);
        burst.push_many(due as usize, |_, area| {
            frame[STAMP..STAMP + 8].copy_from_slice(&next.to_le_bytes());
            area.get_mut(..frame.len())?.write_copy_of_slice(frame);
            *next += period;
            Some(frame.len())
        });
        RxState::Up
    }
}

impl TxQueue for Tx0 {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let now = self.0.clock.ticks();
        let mut took = self.0.took.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..batch.len() {
            let stamp = batch.single(i).and_then(|b| b.get(STAMP..STAMP + 8)?.try_into().ok()).map(u64::from_le_bytes);
            took.extend(stamp.map(|arrived| now.saturating_sub(arrived) as u32));
        }
        batch.len()
    }
}

impl Port for Wire {
    fn input_node(&self) -> &'static str {
        "wire-input"
    }
    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let frame = frame(self.number, self.mac);
        let (line, active) = (self.line.clone(), self.active.clone());
        Ok(vec![Box::new(Rx { line, number: self.number, active, frame, start: 0, next: 0 })])
    }
    fn open_tx(&mut self, _: usize) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(Tx0(self.line.clone())))
    }
    fn link(&mut self) -> Link {
        Link { up: true, speed: None }
    }
    fn mac(&self) -> Option<[u8; 6]> {
        Some(self.mac.0)
    }
    fn max_frame(&self) -> usize {
        1514
    }
}

/// From port `n` to the network behind the next one.
fn frame(n: u8, to: MacAddr) -> Vec<u8> {
    let mut bytes = [to.0, [2, 0, 0, 0, 9, n]].concat();
    bytes.extend(EtherType::IPV4.0.to_be_bytes());
    let dst = Ipv4Addr::new(198, 18, (n + 1) % PORTS, 2);
    let mut header = Ipv4Header::new(Ipv4Addr::new(198, 18, n, 2), dst, IpProtocol::UDP);
    header.total_len = U16Be::new(46);
    header.fill_checksum();
    let mut raw = [0; 20];
    header.write(&mut raw).expect("room");
    bytes.extend(raw);
    bytes.resize(60, 0x5a);
    bytes
}

fn router(line: &Arc<Line>, active: &Arc<AtomicU64>) -> Router {
    let buffers = RegionConfig { buffers_per_numa: 16_384, ..Default::default() };
    let mut router = Router::new(&RouterConfig { buffers, ..Default::default() }).expect("a router");
    for number in 0..PORTS {
        let mac = MacAddr([2, 0xfe, 0, 0, 0, number]);
        let wire = Wire { line: line.clone(), number, mac, active: active.clone() };
        let new = NewInterface {
            name: format!("w{number}"),
            kind: Kind::Device(&InterfaceKind { name: "wire", called: "a wire", device_type: "wire" }),
            mac,
            mtu: 1500,
            max_frame: 1514,
            tx: Tx::Port(Box::new(wire)),
        };
        let index = router.create_interface(new).expect("interface");
        router.set_interface_up(index, true).expect("up");
        link(&mut router, index, number);
    }
    router
}

fn link(router: &mut Router, index: IfIndex, number: u8) {
    let at = |host: u8| IpAddr::V4(Ipv4Addr::new(198, 18, number, host));
    router.add_address(index, at(1), 24).expect("address");
    let neighbor = MacAddr([2, 0, 0, 0, 1, number]);
    router.neighbor_update(index, at(2), Some(neighbor)).expect("neighbour");
    let prefix = IpPrefix::new(at(2), 32).expect("a prefix");
    let _ = router.add_route(0, prefix, Source::Cli, vec![Path::neighbor(index, at(2))]);
}

/// One run: median, 99th percentile and greatest, ns; packets a second; and frames lost, and turns away.
fn run(router: &mut Router, line: &Line, ms: u64) -> ([f64; 4], [u64; 2]) {
    let second = line.clock.ticks_per_second();
    line.took.lock().unwrap_or_else(PoisonError::into_inner).clear();
    line.lost.store(0, Ordering::Relaxed);
    let start = line.clock.ticks();
    line.start.store(start, Ordering::Relaxed);
    let end = start + second / 1000 * ms;
    let (mut now, mut away, mut lost) = (start, 0, 0);
    while now < end {
        let frames = line.took.lock().unwrap_or_else(PoisonError::into_inner).len();
        router.graph.fleet().step_here();
        let before = std::mem::replace(&mut now, line.clock.ticks());
        if now - before > second / AWAY {
            line.took.lock().unwrap_or_else(PoisonError::into_inner).truncate(frames);
            line.start.store(now, Ordering::Relaxed);
            line.lost.store(lost, Ordering::Relaxed);
            away += 1;
        }
        lost = line.lost.load(Ordering::Relaxed);
    }
    let mut took = std::mem::take(&mut *line.took.lock().unwrap_or_else(PoisonError::into_inner));
    took.sort_unstable();
    let ns = 1e9 / second as f64;
    let at =
        |q: f64| took.get(((took.len() as f64 * q) as usize).min(took.len().saturating_sub(1))).map_or(0.0, |t| f64::from(*t) * ns);
    let pps = took.len() as f64 / ms as f64 * 1000.0;
    ([at(0.5), at(0.99), at(1.0), pps], [lost, away])
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // Under `cargo test --benches` nothing is measured.
    if args.iter().any(|a| a == "--test") {
        return;
    }
    let number = |key: &str, or: u64| {
        let at = args.iter().position(|a| a == key);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(or)
    };
    let (rounds, ms, json) = (number("--rounds", 9), number("--ms", 100), args.iter().any(|a| a == "--json"));
    // Where it may not pin itself, other work on the machine moves it: the spread shows that.
    let _ = quiver_graph::topology::pin_current_thread(0);
    let line = Arc::new(Line {
        clock: Clock::new(),
        period: AtomicU64::new(1),
        start: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        took: Mutex::new(Vec::with_capacity(4 << 20)),
    });
    let active = Arc::new(AtomicU64::new(0));
    let mut router = router(&line, &active);
    router.graph.set_fusion(!args.iter().any(|a| a == "--no-fusion"));
    let mut figures = vec![vec![Vec::new(); ACTIVE.len()]; RATES.len()];
    for _ in 0..rounds.max(1) {
        for (rate, figures) in RATES.iter().zip(&mut figures) {
            for (ports, figures) in ACTIVE.iter().zip(figures) {
                line.period.store(line.clock.ticks_per_second() / rate, Ordering::Relaxed);
                active.store(u64::from(*ports), Ordering::Relaxed);
                // Neighbours and caches settle; then for the record.
                run(&mut router, &line, 5);
                figures.push(run(&mut router, &line, ms));
            }
        }
    }
    if !json {
        println!(
            "{:>10}  {:>5}  {:>9}  {:>9}  {:>9}  {:>6}  lost  away",
            "packets/s", "ports", "median ns", "99 %", "greatest", "of one"
        );
    }
    for (rate, figures) in RATES.iter().zip(&mut figures) {
        let mut one = 0.0;
        for (ports, runs) in ACTIVE.iter().zip(figures) {
            let of = |k: usize| median(&mut runs.iter().map(|(q, _)| q[k]).collect::<Vec<_>>());
            let [p50, p99, most, pps] = [of(0), of(1), of(2), of(3)];
            let [lost, away] = [0, 1].map(|k: usize| runs.iter().map(|(_, n)| n[k]).sum::<u64>());
            if *ports == 1 {
                one = p50;
            }
            if json {
                println!(
                    "{{\"bench\":\"ports\",\"pps\":{rate},\"ports\":{ports},\"median_ns\":{p50},\"p99_ns\":{p99},\"max_ns\":{most},\"of_one\":{:.3},\"received_pps\":{pps:.0},\"lost\":{lost},\"away\":{away}}}",
                    p50 / one
                );
            } else {
                println!("{rate:>10}  {ports:>5}  {p50:>9.0}  {p99:>9.0}  {most:>9.0}  {:>6.2}  {lost}  {away}", p50 / one);
            }
        }
    }
}
