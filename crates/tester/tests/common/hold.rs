//! A device that keeps each frame until it is so old, and knows how old it was when it went: the truth of a measured latency, frame
//! by frame.
//!
//! ```text
//!   departure s ──► held until s + delay ──► released r ══► received by the tester t ──► answer to the question behind it: a
//! ```
//!
//! One clock for both sides. The device knows s (from the signature), r and a, and s < r ≤ t ≤ a whatever the machine does: the tester's
//! latency t - s lies between r - s and a - s for each frame, and so do the k-th smallest of all frames, their mean, least and most.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use quiver_graph::clock::Clock;
use quiver_graph::{Frame, IfIndex, NoDrops, NoNext, NodeCx, VectorNode, Verdict};
use quiver_tester_core::MacAddr;
use quiver_tester_core::answer::Host;
use quiver_tester_core::bench::Bench;
use quiver_tester_core::latency::LatencySummary;
use quiver_tester_core::profile::Profile;
use quiver_tester_core::report::Report;
use quiver_tester_core::signature::{Reading, Signature};
use quiver_tester_core::time::Time;
use quiver_tester_core::trial::{self, Plan};
use quiver_tester_core::units::Rate;

use super::{SETTLE, Socket, with_node};

/// A port's address that answers questions, and who asks.
const ANSWERS: &str = "192.0.2.2";
const ASKS: &str = "192.0.2.9/24";

/// Ages of the frames, ns: when they were released, and when the answer to the question behind them had come.
#[derive(Debug, Default)]
pub struct Ages {
    pub released: Vec<u64>,
    pub answered: Vec<u64>,
}

/// The node.
struct Hold {
    clock: Arc<Clock>,
    /// Delays by turns, ns.
    delays: Vec<u64>,
    ages: Arc<Mutex<Ages>>,
    asker: Host,
    /// Departures of the frames whose questions are not answered yet.
    asked: VecDeque<u64>,
    frames: usize,
}

impl VectorNode for Hold {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        const OUT: Verdict = Verdict::slot(2);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let reading = Signature::read(packet.bytes());
            let (packet, _) = packet.take();
            let Reading::Valid(signature) = reading else {
                let now = self.clock.now();
                let answered = self.asked.pop_front().map(|departure| now - departure);
                self.ages.lock().unwrap_or_else(PoisonError::into_inner).answered.extend(answered);
                cx.free(packet);
                continue;
            };
            let due = signature.time + self.delays[self.frames % self.delays.len()];
            self.frames += 1;
            // All that can be done before: what comes between the release and the wire is not known to anybody.
            let question = self.asker.ask(ANSWERS.parse().expect("an address"));
            let question = cx.alloc_bytes(&question, IfIndex(1)).expect("a buffer");
            self.asked.push_back(signature.time);
            let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
            ages.released.reserve(1);
            let now = loop {
                let now = self.clock.now();
                if now >= due {
                    break now;
                }
                std::hint::spin_loop();
            };
            cx.emit(OUT, packet);
            cx.emit(OUT, question);
            ages.released.push(now - signature.time);
        }
    }
}

/// Measures frames that are held so long, by turns; what the device knows, and what the tester reports.
pub fn measure(name: &str, delays: &[u64], pps: f64, seconds: f64) -> (Ages, Report) {
    let clock = Clock::new();
    let ages = Arc::new(Mutex::new(Ages::default()));
    let (of_node, delays, time) = (ages.clone(), delays.to_vec(), clock.clone());
    let asker = Host::new(MacAddr([2, 0, 0, 0, 0, 9]), true, vec![ASKS.parse().expect("an address")], Vec::new());
    let node = move || Hold {
        clock: time.clone(),
        delays: delays.clone(),
        ages: of_node.clone(),
        asker: asker.clone(),
        asked: VecDeque::new(),
        frames: 0,
    };
    let report = with_node(name, node, |socket: &Socket, _| {
        let mut ports = socket.ports("");
        ports[1].addresses.push(format!("{ANSWERS}/24").parse().expect("an address"));
        let mut bench = Bench::open_at(&ports, 1514, Some(Time::Real(clock.clone()))).expect("ports");
        let profile = Profile::of_yaml("p", "{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }");
        let plan = Plan {
            rate: Some(Rate::Pps(pps)),
            duration: std::time::Duration::from_secs_f64(seconds),
            settle: SETTLE,
            ..Plan::new(profile.expect("a profile"))
        };
        trial::run(&mut bench, &plan, &mut |_| true).expect("a trial")
    });
    let ages = std::mem::take(&mut *ages.lock().unwrap_or_else(PoisonError::into_inner));
    (ages, report)
}

/// The value at a quantile of sorted ones, as histograms have it.
pub fn at(sorted: &[u64], quantile: f64) -> u64 {
    sorted[((quantile * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
}

/// Mean of values.
pub fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len() as f64
}

/// Latencies of the one direction.
pub fn latencies(report: &Report) -> &LatencySummary {
    report.directions[0].times.latency_ns.as_ref().expect("latencies")
}
