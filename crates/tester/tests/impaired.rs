//! Trials against a device of this process that loses, copies and delays frames on purpose: counts must be exactly its own.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{End, SETTLE, Socket, with_node};
use quiver_graph::{Frame, IfIndex, NoDrops, NoNext, NodeCx, Packet, VectorNode, Verdict};
use quiver_tester_core::MacAddr;
use quiver_tester_core::answer::Host;
use quiver_tester_core::bench::Bench;
use quiver_tester_core::profile::{Profile, Signing};
use quiver_tester_core::report::Report;
use quiver_tester_core::signature::{Reading, Signature};
use quiver_tester_core::time::Time;
use quiver_tester_core::trial::{self, Plan, Progress, Watch};
use quiver_tester_core::units::Rate;

/// What the device has done, from left to right.
#[derive(Default)]
struct Deeds {
    seen: AtomicU64,
    lost: AtomicU64,
    copied: AtomicU64,
    delayed: AtomicU64,
}

impl Deeds {
    fn all(&self) -> [u64; 4] {
        [&self.seen, &self.lost, &self.copied, &self.delayed].map(|n| n.load(Ordering::Acquire))
    }
}

/// Passes frames on to the other interface; of a thousand from the left it loses one, copies one and delays one.
struct Impair {
    deeds: Arc<Deeds>,
    seen: u64,
    /// Frames to be sent when a later one has gone.
    later: Vec<(u64, Packet)>,
}

impl VectorNode for Impair {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        const OUT: Verdict = Verdict::slot(2);
        // A later frame than theirs went in an earlier vector.
        let seen = self.seen;
        let due: Vec<_> = self.later.extract_if(.., |(n, _)| *n + 1 < seen).collect();
        due.into_iter().for_each(|(_, packet)| cx.emit(OUT, packet));
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            if packet.rx_if().0 == 2 {
                cx.decide(i, Verdict::slot(1));
                continue;
            }
            let n = self.seen;
            self.seen += 1;
            match n % 1000 {
                999 => {
                    let (packet, _) = packet.take();
                    cx.free(packet);
                    self.deeds.lost.fetch_add(1, Ordering::Release);
                    continue;
                }
                250 => {
                    let (packet, _) = packet.take();
                    self.later.push((n, packet));
                    self.deeds.delayed.fetch_add(1, Ordering::Release);
                    continue;
                }
                500 => {
                    let bytes = packet.bytes().to_vec();
                    let copy = cx.alloc_bytes(&bytes, IfIndex(1)).expect("a buffer");
                    self.later.push((n, copy));
                    self.deeds.copied.fetch_add(1, Ordering::Release);
                }
                _ => {}
            }
            cx.decide(i, OUT);
        }
        self.deeds.seen.store(self.seen, Ordering::Release);
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        self.later.drain(..).for_each(|(_, packet)| cx.free(packet));
    }
}

/// A port's address that answers questions, and who asks.
const ANSWERS: &str = "192.0.2.2";
const ASKS: &str = "192.0.2.9/24";

/// What the device that sets the clock has done.
struct Steps {
    /// The tester's time, ns.
    clock: Arc<AtomicU64>,
    frames: AtomicU64,
}

/// Passes one frame on at a time, as old as it is to be: sets the tester's clock to that moment, and moves it on to the next
/// departure only when the port behind has answered a question that was sent after the frame: so it has received that.
struct Delay {
    steps: Arc<Steps>,
    asker: Host,
    /// When the next frame is due, once the last one has arrived.
    next: u64,
}

impl Delay {
    /// Delays of the frames by turns, ns.
    const DELAYS: [u64; 4] = [1_000_000, 1_000_001, 100_000_000, 7];
    /// Time between departures, ns: more than the clock is ever moved on by hand, so that never two frames are under way.
    const GAP: u64 = 200_000_000_000;

    fn new(steps: Arc<Steps>) -> Self {
        let asker = Host::new(MacAddr([2, 0, 0, 0, 0, 9]), true, vec![ASKS.parse().expect("an address")], Vec::new());
        Self { steps, asker, next: 0 }
    }
}

impl VectorNode for Delay {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        const OUT: Verdict = Verdict::slot(2);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let reading = Signature::read(packet.bytes());
            let (packet, _) = packet.take();
            let Reading::Valid(signature) = reading else {
                // The answer.
                self.steps.clock.store(self.next, Ordering::Release);
                cx.free(packet);
                continue;
            };
            let n = self.steps.frames.fetch_add(1, Ordering::AcqRel);
            self.next = signature.time + Self::GAP;
            self.steps.clock.store(signature.time + Self::DELAYS[n as usize % 4], Ordering::Release);
            cx.emit(OUT, packet);
            let question = self.asker.ask(ANSWERS.parse().expect("an address"));
            let question = cx.alloc_bytes(&question, IfIndex(1)).expect("a buffer");
            cx.emit(OUT, question);
        }
    }
}

/// Runs trials while the device that impairs is there.
fn with_device<R>(name: &str, work: impl FnOnce(&Socket, &Deeds) -> R) -> R {
    let deeds = Arc::new(Deeds::default());
    let does = deeds.clone();
    let impair = move || Impair { deeds: does.clone(), seen: 0, later: Vec::new() };
    with_node(name, impair, |socket, _| work(socket, &deeds))
}

fn plan(profile: &str, pps: f64) -> Plan {
    let profile = Profile::of_yaml("profile", profile).expect("a profile");
    // Fewer frames than the rings hold: however slow this machine is, none is lost by accident.
    Plan { rate: Some(Rate::Pps(pps)), duration: Duration::from_secs(2), settle: SETTLE, ..Plan::new(profile) }
}

fn run(bench: &mut Bench, plan: &Plan) -> Report {
    trial::run(bench, plan, &mut |_| true).expect("a trial")
}

#[test]
fn what_a_device_loses_copies_and_delays_is_counted_exactly() {
    with_device("counts", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let plan = plan("{ name: p, bidirectional: true, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 4000.0);
        let report = run(&mut bench, &plan);
        let [seen, lost, copied, delayed] = deeds.all();
        let (out, back) = (&report.directions[0].counters, &report.directions[1].counters);
        assert_eq!(out.sent, seen, "{report:?}");
        assert_eq!([out.lost, out.duplicated, out.reordered], [lost, copied, delayed], "{report:?}");
        assert_eq!([out.late, out.foreign, out.corrupted], [0, 0, 0]);
        assert_eq!((back.received, back.lost, back.duplicated, back.reordered), (back.sent, 0, 0, 0));
        assert!(out.sent > 4000, "{report:?}");
        let latency = report.directions[0].times.latency_ns.as_ref().expect("latencies");
        assert_eq!(latency.count, out.received);
        // The next trial starts from nothing.
        let again = run(&mut bench, &plan);
        let after = deeds.all();
        assert_eq!(again.totals.foreign, 0);
        assert_eq!(again.directions[0].counters.duplicated, after[2] - copied);
    });
}

#[test]
fn streams_of_one_direction_have_accounts_of_their_own() {
    with_device("streams", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let profile = "{ name: p, streams: [ { name: load, size: imix, ipv4: {}, udp: {}, departures: poisson },
            { name: probe, rate: 500pps, size: 100, ipv6: {}, udp: {} } ] }";
        let report = run(&mut bench, &plan(profile, 3000.0));
        let direction = &report.directions[0];
        let names: Vec<_> = direction.streams.iter().map(|s| (s.name.as_str(), s.counters.intended)).collect();
        assert_eq!(names, [("load", 6000), ("probe", 1000)]);
        let sum =
            |of: fn(&quiver_tester_core::report::Counters) -> u64| direction.streams.iter().map(|s| of(&s.counters)).sum::<u64>();
        let [seen, lost, copied, _] = deeds.all();
        assert_eq!([sum(|c| c.sent), sum(|c| c.lost), sum(|c| c.duplicated)], [seen, lost, copied], "{report:?}");
        assert_eq!(direction.counters.lost, lost);
    });
}

#[test]
fn bursts_and_chained_streams_are_sent_whole_and_accounted_for_each() {
    with_device("bursts", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let profile = "{ name: p, streams: [
            { name: once, rate: 5000pps, size: 64, start: 20ms, burst: { frames: 300 }, ipv4: {}, udp: {} },
            { name: again, rate: 20000pps, size: 90, after: once, burst: { frames: 64, count: 5, gap: 3ms }, ipv6: {}, udp: {} },
            { name: then, rate: 1000pps, size: 80, after: again, ipv4: {}, tcp: { flags: [ syn ] } } ] }";
        let report = run(&mut bench, &plan(profile, 1.0));
        let direction = &report.directions[0];
        let intended: Vec<_> = direction.streams.iter().map(|s| (s.name.as_str(), s.counters.intended)).collect();
        // The third begins after 20 + 60 + 5 × 3.2 + 4 × 3 ms of two seconds.
        assert_eq!(intended, [("once", 300), ("again", 320), ("then", 1892)]);
        let [seen, lost, copied, delayed] = deeds.all();
        let all = &direction.counters;
        assert_eq!([all.sent, all.lost, all.duplicated], [seen, lost, copied], "{report:?}");
        // What is delayed may be the last of its stream.
        assert!(all.reordered <= delayed && all.reordered + 3 >= delayed, "{report:?}");
    });
}

/// A capture of packets with so many bytes behind their UDP headers.
struct Capture(std::path::PathBuf);

impl Capture {
    fn new(payloads: &[usize]) -> Self {
        use quiver_wire::pcapfile::{LinkType, Writer};
        let path = std::env::temp_dir().join(format!("quiver-impaired-{}-{}.pcap", std::process::id(), payloads.len()));
        let mut writer = Writer::new(std::fs::File::create(&path).expect("a file"), LinkType::ETHERNET).expect("a capture");
        for (n, len) in payloads.iter().enumerate() {
            let packet = quiver_wire::build::Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6]));
            let bytes = packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(n as u16, 7).payload_len(*len).build();
            writer.write(0, &bytes, bytes.len()).expect("written");
        }
        writer.finish().expect("written");
        Self(path)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn packets_of_a_capture_are_accounted_for_one_by_one_where_they_have_room() {
    // Of a thousand the last is lost, and the first ones of five are copied and delayed.
    let (some, all) = (Capture::new(&[100, 18, 30, 700, 5]), Capture::new(&[100, 18, 30]));
    with_device("capture", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let profile = format!("{{ name: p, streams: [ {{ name: s, pcap: '{}', signature: auto }} ] }}", some.0.display());
        let report = run(&mut bench, &Plan { duration: Duration::from_secs(1), ..plan(&profile, 4000.0) });
        let [seen, lost, copied, delayed] = deeds.all();
        let (stream, all) = (&report.directions[0].streams[0], &report.directions[0].counters);
        assert_eq!([all.sent, all.lost, all.duplicated, all.reordered], [seen, lost, copied, delayed], "{report:?}");
        assert_eq!([all.late, all.foreign, all.corrupted], [0, 0, 0]);
        assert!(lost > 0 && !stream.counted_only && stream.signature == Signing::Part, "{report:?}");
        let signed = stream.signed.expect("an account of the signed ones");
        assert_eq!((signed.sent, signed.lost), (seen - seen / 5, 0), "every fifth has no room, and only such are lost");
        assert_eq!(stream.times.latency_ns.as_ref().map(|l| l.count), Some(signed.received));
    });
    with_device("captures", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        // Beside another stream, as others are.
        let profile = format!(
            "{{ name: p, streams: [ {{ name: s, pcap: '{}' }}, {{ name: t, size: 64, ipv4: {{}}, udp: {{}} }} ] }}",
            all.0.display()
        );
        let report = run(&mut bench, &Plan { duration: Duration::from_secs(1), ..plan(&profile, 4000.0) });
        let [seen, lost, copied, delayed] = deeds.all();
        let (stream, all) = (&report.directions[0].streams[0], &report.directions[0].counters);
        assert_eq!([all.sent, all.lost, all.duplicated], [seen, lost, copied], "{report:?}");
        assert!(all.reordered <= delayed && stream.signature == Signing::Full && stream.signed.is_none(), "{report:?}");
    });
}

/// Moves the clock on until the first frame has come: nothing is sent before, and afterwards the device moves it.
fn begin(steps: &Steps, stop: &AtomicBool) {
    const STEP: u64 = 5_000_000;
    let (began, mut moved) = (Instant::now(), 0);
    while !stop.load(Ordering::Acquire) {
        let now = steps.clock.load(Ordering::Acquire);
        if began.elapsed() > Duration::from_secs(100) {
            // A frame is lost: the trial's end would never come.
            steps.clock.fetch_add(Delay::GAP, Ordering::AcqRel);
        } else if steps.frames.load(Ordering::Acquire) == 0 && moved < Delay::GAP / 2 {
            // Where the device has set it in between, that stands.
            let _ = steps.clock.compare_exchange(now, now + STEP, Ordering::AcqRel, Ordering::Acquire);
            moved += STEP;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn delays_are_exact_where_the_clock_is_set() {
    let steps = Arc::new(Steps { clock: Arc::new(AtomicU64::new(1_000_000_000)), frames: AtomicU64::new(0) });
    let of_node = steps.clone();
    let node = move || Delay::new(of_node.clone());
    with_node("delay", node, |socket, stop| {
        let mut ports = socket.ports("");
        ports[1].addresses.push(format!("{ANSWERS}/24").parse().expect("an address"));
        let mut bench = Bench::open_at(&ports, 1514, Some(Time::Set(steps.clock.clone()))).expect("ports");
        // A frame each 200 s of the clock that is set.
        let plan = Plan {
            duration: Duration::from_secs(20_000),
            ..plan("{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 0.005)
        };
        let report = std::thread::scope(|scope| {
            scope.spawn(|| begin(&steps, stop));
            let _end = End(stop);
            run(&mut bench, &plan)
        });
        let direction = &report.directions[0];
        let counters = &direction.counters;
        assert_eq!((counters.intended, counters.sent, counters.received), (100, 100, 100), "{:?}", report.totals);
        assert_eq!((counters.lost, counters.duplicated, counters.reordered, counters.foreign), (0, 0, 0, 0));
        let latency = direction.times.latency_ns.as_ref().expect("latencies");
        let mean = Delay::DELAYS.iter().sum::<u64>() as f64 / 4.0;
        assert_eq!((latency.count, latency.min, latency.max, latency.mean), (100, 7, 100_000_000, mean), "{latency:?}");
        assert_eq!(report.head.clock, "set");
    });
}

#[test]
fn nobody_at_the_other_end_is_an_error_and_not_a_wait_without_end() {
    let socket = Socket::new("nobody");
    let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
    let plan = Plan {
        patience: Duration::from_millis(300),
        ..plan("{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 10.0)
    };
    let error = trial::run(&mut bench, &plan, &mut |_| true).expect_err("no link").to_string();
    assert!(error.contains("no link within"), "{error}");
}

#[test]
fn a_trial_that_is_ended_says_what_it_has() {
    with_device("ended", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let plan = Plan {
            duration: Duration::from_secs(600),
            ..plan("{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 1000.0)
        };
        let report = trial::run(&mut bench, &plan, &mut |progress| progress.t_s < 0.4).expect("a report");
        assert!(
            report.head.aborted && !report.head.valid && report.head.reasons.iter().any(|r| r.starts_with("ended after")),
            "{report:?}"
        );
        let counters = &report.directions[0].counters;
        assert_eq!((counters.sent, counters.intended), (deeds.all()[0], 600_000));
    });
}

#[test]
fn a_device_that_goes_away_ends_the_trial_which_says_so() {
    let impair = || Impair { deeds: Arc::default(), seen: 0, later: Vec::new() };
    with_node("gone", impair, |socket, stop| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let plan = Plan {
            duration: Duration::from_secs(600),
            ..plan("{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 1000.0)
        };
        let report = trial::run(&mut bench, &plan, &mut |progress| {
            if progress.received > 100 {
                stop.store(true, Ordering::Release);
            }
            true
        })
        .expect("a report");
        assert!(report.head.duration_s < 600.0 && !report.head.valid && report.directions[0].counters.received > 100, "{report:?}");
        assert!(
            report.head.reasons.iter().any(|r| r.ends_with("its link went down during the trial")),
            "{:?}",
            report.head.reasons
        );
        assert!(report.head.reasons.iter().any(|r| r.starts_with("ended after ")), "{:?}", report.head.reasons);
    });
}

#[test]
fn a_gateway_that_is_silent_is_an_error() {
    with_device("silent", |socket, _| {
        let mut ports = socket.ports(",ip4=198.18.0.2/24,gateway=198.18.0.1");
        ports.iter_mut().for_each(|p| p.dst_mac = None);
        let mut bench = Bench::open(&ports, 1514).expect("ports");
        // The second is for the gateway; the link may take as long as the machine needs.
        bench.wait_for_links(Duration::from_secs(60), &mut || true).expect("links");
        let plan = Plan {
            patience: Duration::from_secs(1),
            ..plan("{ name: p, streams: [ { name: s, size: 64, ipv4: {}, udp: {} } ] }", 10.0)
        };
        let error = trial::run(&mut bench, &plan, &mut |_| true).expect_err("no neighbour").to_string();
        assert!(error.contains("198.18.0.1 does not answer within"), "{error}");
    });
}

/// Asks for rates, each once so many frames have been sent, keeps what became of that, and ends the trial then.
struct Asks {
    rates: Vec<(u64, Rate)>,
    outcomes: Vec<Result<(), String>>,
    sent: u64,
}

impl Asks {
    fn new(rates: Vec<(u64, Rate)>) -> Self {
        Self { rates, outcomes: Vec::new(), sent: 0 }
    }
}

/// A trial that lasts until somebody ends it: what is asked for comes in time on any machine.
fn long_plan(profile: &str) -> Plan {
    Plan { duration: Duration::from_secs(600), ..plan(profile, 1000.0) }
}

impl Watch for Asks {
    fn progress(&mut self, progress: &Progress) -> bool {
        self.sent = progress.sent;
        progress.of_s == 0.0 || !self.rates.is_empty()
    }

    fn rate(&mut self) -> Option<Rate> {
        let due = self.rates.first().is_some_and(|(from, _)| self.sent >= *from);
        due.then(|| self.rates.remove(0).1)
    }

    fn changed(&mut self, outcome: Result<(), String>) {
        self.outcomes.push(outcome);
    }
}

#[test]
fn another_rate_leaves_no_gap_in_the_account() {
    with_device("faster", |socket, deeds| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        let own = "{ name: own, rate: 100pps, size: 64, ipv4: {}, udp: {} }";
        let plan = long_plan(&format!("{{ name: p, streams: [ {{ name: s, size: 64, ipv4: {{}}, udp: {{}} }}, {own} ] }}"));
        let mut asks = Asks::new(vec![(150, Rate::Pps(2500.0)), (900, Rate::Max)]);
        let report = trial::run_watched(&mut bench, &plan, &mut asks).expect("a trial");
        assert_eq!(asks.outcomes[0], Ok(()));
        let refused = asks.outcomes[1].clone().expect_err("no rate to change to");
        assert_eq!(refused, "stream s: only frames that leave evenly, without bursts, can change from one rate to another");
        assert_eq!((report.rates.len(), report.rates[0].rate.as_str()), (1, "2500pps"));
        let [of_trial, own] = [0, 1].map(|at| report.directions[0].streams[at].counters);
        assert_eq!(own.intended, 60_000, "a rate of its own stays");
        // At 1,000 a second it would have been 600,000, at 2,500 from the first on 1,500,000.
        assert!((600_001..1_500_000).contains(&of_trial.intended), "{of_trial:?}");
        let all = report.directions[0].counters;
        assert_eq!((all.sent + all.unsent, all.received + all.lost, all.foreign), (all.intended, all.sent, 0), "{all:?}");
        assert_eq!(all.sent, deeds.all()[0]);
    });
}

#[test]
fn streams_that_do_not_leave_evenly_keep_their_rate() {
    with_device("uneven", |socket, _| {
        let mut bench = Bench::open(&socket.ports(""), 1514).expect("ports");
        for more in ["departures: poisson", "burst: { frames: 600000 }"] {
            let plan = long_plan(&format!("{{ name: p, streams: [ {{ name: s, size: 64, ipv4: {{}}, udp: {{}}, {more} }} ] }}"));
            let mut asks = Asks::new(vec![(50, Rate::Pps(2500.0))]);
            let report = trial::run_watched(&mut bench, &plan, &mut asks).expect("a trial");
            assert!(asks.outcomes[0].clone().is_err_and(|e| e.starts_with("stream s: only frames")), "{:?}", asks.outcomes);
            assert_eq!((report.rates.len(), report.directions[0].counters.intended), (0, 600_000));
        }
    });
}
