//! Measurements of RFC 9693 over memif, against a small NAT of this process with a table of known size.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{Socket, with_node};
use quiver_graph::{Frame, NoDrops, NoNext, NodeCx, VectorNode, Verdict};
use quiver_tester_core::bench::Bench;
use quiver_tester_core::stateful::gateway::Course;
use quiver_tester_core::stateful::{Connections, Ends, Gateway, Measure, Order, Outcome, Settings, StatefulError, run};

/// Where ports lie in an untagged frame of IPv4 and UDP, and addresses.
const SRC: usize = 26;
const DST: usize = 30;
const SRC_PORT: usize = 34;
const DST_PORT: usize = 36;
const OUTSIDE: [u8; 4] = [203, 0, 113, 1];

/// One measurement at a time: threads that poll take the machine from one another.
static TURN: Mutex<()> = Mutex::new(());

/// What the table holds now, and the most that it has held.
#[derive(Default)]
struct Gauge {
    open: AtomicU64,
    most: AtomicU64,
}

/// Translates what comes from the left, and passes back what belongs to a session. Frames of new sessions are dropped where the
/// table is full. It is emptied when `flag` is gone.
struct Nat {
    limit: usize,
    flag: PathBuf,
    out: HashMap<[u8; 12], u16>,
    back: HashMap<u16, [u8; 12]>,
    gauge: Arc<Gauge>,
}

/// Addresses and ports of a frame.
fn key(bytes: &[u8]) -> [u8; 12] {
    bytes[SRC..SRC + 12].try_into().expect("twelve bytes")
}

impl Nat {
    fn translate(&mut self, bytes: &mut [u8], from_inside: bool) -> bool {
        if from_inside {
            let key = key(bytes);
            let next = 1024 + self.out.len() as u16;
            let port = match self.out.get(&key) {
                Some(port) => *port,
                None if self.out.len() >= self.limit => return false,
                None => {
                    self.back.insert(next, key);
                    *self.out.entry(key).or_insert(next)
                }
            };
            bytes[SRC..SRC + 4].copy_from_slice(&OUTSIDE);
            bytes[SRC_PORT..SRC_PORT + 2].copy_from_slice(&port.to_be_bytes());
            return true;
        }
        let port = u16::from_be_bytes([bytes[DST_PORT], bytes[DST_PORT + 1]]);
        let Some(inside) = self.back.get(&port).filter(|_| bytes[DST..DST + 4] == OUTSIDE) else { return false };
        // Only the host that was spoken to is let in.
        if inside[4..8] != bytes[SRC..SRC + 4] || inside[10..] != bytes[SRC_PORT..SRC_PORT + 2] {
            return false;
        }
        bytes[DST..DST + 4].copy_from_slice(&inside[..4]);
        bytes[DST_PORT..DST_PORT + 2].copy_from_slice(&inside[8..10]);
        true
    }
}

impl VectorNode for Nat {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        if !self.flag.exists() {
            self.out.clear();
            self.back.clear();
            std::fs::write(&self.flag, "").expect("a flag");
        }
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let from = packet.rx_if().0;
            if self.translate(packet.bytes_mut(), from == 1) {
                cx.decide(i, Verdict::slot(if from == 1 { 2 } else { 1 }));
            } else {
                let (packet, _) = packet.take();
                cx.free(packet);
            }
        }
        self.gauge.open.store(self.out.len() as u64, Ordering::Release);
        self.gauge.most.fetch_max(self.out.len() as u64, Ordering::AcqRel);
    }
}

const SETTINGS: Settings =
    Settings { connections: 16, total: 64_512 * 100, open_pps: 4000.0, alpha: 0.8, traffic_pps: 1000.0, precision: 0.2, error: 1 };

/// Measures against a table of `limit` sessions.
fn measured(name: &str, limit: usize, measure: Measure, settings: Settings) -> (Outcome, Arc<Gauge>) {
    measured_from(&[], name, limit, measure, settings)
}

/// The same with threads on these cores that send.
fn measured_from(cores: &[u32], name: &str, limit: usize, measure: Measure, settings: Settings) -> (Outcome, Arc<Gauge>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let gauge = Arc::new(Gauge::default());
    let flag = std::env::temp_dir().join(format!("quiver-stateful-{}-{name}", std::process::id()));
    let (of_node, flag_of_node) = (gauge.clone(), flag.clone());
    let node = move || Nat { limit, flag: flag_of_node.clone(), out: HashMap::new(), back: HashMap::new(), gauge: of_node.clone() };
    let outcome = with_node(name, node, |socket: &Socket, _| {
        let mut ports = socket.ports("");
        ports.iter_mut().for_each(|port| port.tx_cores = cores.to_vec());
        let mut bench = Bench::open(&ports, 1514).expect("ports");
        let course = Course {
            measure,
            clear: Some(format!("rm -f {}", flag.display())),
            duration: Duration::from_secs(1),
            // A device that is kept from running has not lost what waits for it.
            timeout: Duration::from_secs(1),
            // What the machine does to departures is not the question here.
            departure_limit: Duration::from_secs(1),
            ..Course::default()
        };
        let connections = Connections::new(Ends::default(), Order::Random, 1).expect("connections");
        let mut watch = |_: &_| true;
        let mut gateway = Gateway::new(&mut bench, connections, course, &mut watch).expect("a gateway");
        run(&mut gateway, measure, &settings).expect("an outcome")
    });
    let _ = std::fs::remove_file(flag);
    (outcome, gauge)
}

#[test]
fn the_capacity_found_is_the_size_of_the_table() {
    let (outcome, gauge) = measured("capacity", 20, Measure::Capacity, SETTINGS);
    let found = outcome.found;
    assert_eq!((found.capacity, found.capacity_below), (Some(20), Some(21)), "{outcome:#?}");
    assert_eq!(gauge.most.load(Ordering::Acquire), 20);
}

#[test]
fn connections_that_are_open_are_those_in_the_table() {
    for (asked, open) in [(300, 300), (500, 400)] {
        let (outcome, gauge) = measured("connections", 400, Measure::Connections, Settings { connections: asked, ..SETTINGS });
        // Those that the machine spoilt come before.
        let step = outcome.steps.last().expect("a step");
        assert_eq!((outcome.found.connections, gauge.open.load(Ordering::Acquire)), (Some(open), open), "{outcome:#?}");
        assert_eq!((step.phase_1.sent, step.phase_1.connections), (asked, open), "{outcome:#?}");
        let validation = step.validation.as_ref().expect("a validation");
        assert_eq!((validation.sent, validation.received, validation.misdirected), (open, open, 0));
    }
}

#[test]
fn threads_that_send_divide_the_connections_among_themselves() {
    // An odd number, and fewer than there are threads.
    for (measure, asked, open) in [(Measure::Connections, 501, 501), (Measure::Connections, 1, 1), (Measure::Trial, 501, 501)] {
        let settings = Settings { connections: asked, ..SETTINGS };
        let (outcome, gauge) = measured_from(&[0, 1], "threads", open as usize, measure, settings);
        let step = outcome.steps.last().expect("a step");
        // Each four-tuple once: with one twice there were fewer sessions than frames that passed.
        assert_eq!((step.phase_1.sent, step.phase_1.connections), (asked, open), "{outcome:#?}");
        assert_eq!(gauge.most.load(Ordering::Acquire), open);
        if measure == Measure::Connections {
            let validation = step.validation.as_ref().expect("a validation");
            assert_eq!((validation.sent, validation.received, validation.misdirected), (open, open, 0), "{outcome:#?}");
        } else {
            let report = outcome.report.as_ref().expect("a report");
            assert!(report.totals.sent > 0 && report.totals.received == report.totals.sent, "{outcome:#?}");
        }
    }
}

#[test]
fn traffic_of_phase_2_opens_no_further_connections_and_comes_through() {
    let (outcome, gauge) = measured("trial", 1000, Measure::Trial, Settings { connections: 500, ..SETTINGS });
    let report = outcome.report.as_ref().expect("a report");
    assert_eq!(gauge.most.load(Ordering::Acquire), 500);
    for direction in &report.directions {
        assert_eq!((direction.counters.received, direction.counters.lost), (direction.counters.sent, 0), "{outcome:#?}");
        assert!(direction.counters.sent > 0 && direction.times.latency_ns.is_some());
    }
    assert_eq!(report.directions.len(), 2);
}

#[test]
fn what_is_left_after_a_tear_down_is_counted() {
    let (outcome, gauge) = measured("tear-down", 1000, Measure::TearDownRate, Settings { connections: 200, ..SETTINGS });
    // How long removing a file takes says nothing; that no connection is left does.
    assert_eq!((outcome.found.left, gauge.most.load(Ordering::Acquire)), (Some(0), 200), "{outcome:#?}");
    assert!(outcome.found.tear_down_s.is_some());
}

#[test]
fn what_cannot_be_measured_is_one_clear_line() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = Socket::new("refused");
    let ports = socket.ports("");
    let refused = |ports: &[_], measure: Measure, clear: Option<&str>| {
        let mut bench = Bench::open(ports, 1514).expect("ports");
        let connections = Connections::new(Ends::default(), Order::Random, 1).expect("connections");
        let course = Course {
            measure,
            clear: clear.map(str::to_owned),
            clear_within: Duration::from_millis(100),
            patience: Duration::from_millis(100),
            ..Course::default()
        };
        let mut watch = |_: &_| true;
        let error = Gateway::new(&mut bench, connections, course, &mut watch)
            .map_or_else(Err, |mut gateway| run(&mut gateway, measure, &SETTINGS));
        let error: StatefulError = error.expect_err("refused");
        assert!(!error.to_string().contains('\n'));
        error.to_string()
    };
    assert!(refused(&ports[..1], Measure::Connections, None).contains("the initiator's and the responder's are needed"));
    assert!(refused(&ports, Measure::Capacity, None).contains("give --clear COMMAND"));
    assert!(refused(&ports, Measure::Connections, None).contains("no link within"));
    let said = refused(&ports, Measure::Capacity, Some("echo no such router >&2; false"));
    assert!(said.contains("no such router (exit status: 1)"), "{said}");
    assert!(refused(&ports, Measure::Capacity, Some("sleep 60")).contains("did not end within 0.1 s"));
}
