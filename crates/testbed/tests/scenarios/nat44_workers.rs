//! Threads of NAT44 come and go while hosts speak through it: no packet is lost in either direction, and every session stays.

use crate::common;
use crate::workers::{LOST, Stop, Wire, arrived, datagram, main_core, send_within};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{assert_buffers_are_back, errors};
use quiver_testbed::{RawPort, Router, Scenario, is_short_pass};
use serde_json::Value;

/// Flows, each a session.
const FLOWS: u64 = 64;
/// The pool.
const POOL: [u8; 4] = [10, 0, 2, 100];
/// MAC addresses of the router's port inside, and of the hosts, as the frames have them.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 8];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Host a inside, host b outside, at static neighbours: nothing is on the links but what is counted.
fn router(wire: &Wire) -> Router {
    let router = Router::start(&wire.middle, "cpu { workers 1 }").expect("router");
    let commands = "create host-interface name r0 rx-size 16384\ncreate host-interface name r1 rx-size 16384\n\
        set interface mac address host-r0 02:00:00:00:00:09\n\
        set interface state host-r0 up\nset interface state host-r1 up\n\
        set interface ip address host-r0 10.0.0.254/24\nset interface ip address host-r1 10.0.2.1/24\n\
        set ip neighbor host-r0 10.0.0.1 02:00:00:00:00:08 static\nset ip neighbor host-r1 10.0.2.2 02:00:00:00:00:07 static\n\
        nat44 plugin enable\nset interface nat44 in host-r0 out host-r1\nnat44 add address 10.0.2.100";
    router.script(commands).expect("configuration");
    router
}

/// A datagram from host a to host b, of one of the flows; its number is behind the headers.
fn request(number: u64) -> Vec<u8> {
    let mut frame = datagram((number % FLOWS) as u16, number);
    frame[..6].copy_from_slice(&ROUTER);
    frame[6..12].copy_from_slice(&INSIDE);
    frame[30..34].copy_from_slice(&[10, 0, 2, 2]);
    checksummed(frame)
}

/// With the checksum of the IPv4 header; that of UDP is 0, none.
fn checksummed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The answer of host b.
fn answer(request: &[u8]) -> Vec<u8> {
    let mut frame = request.to_vec();
    frame[..6].copy_from_slice(&request[6..12]);
    frame[6..12].copy_from_slice(&OUTSIDE);
    frame[22] = 64;
    frame[26..30].copy_from_slice(&request[30..34]);
    frame[30..34].copy_from_slice(&request[26..30]);
    frame[34..36].copy_from_slice(&request[36..38]);
    frame[36..38].copy_from_slice(&request[34..36]);
    checksummed(frame)
}

/// Number and ends (source address and port, destination address and port) of a datagram of the test.
fn read(frame: &[u8]) -> Option<(u64, Vec<u8>)> {
    let is_udp = frame.get(12..15)? == [8, 0, 0x45] && frame.get(23)? == &17;
    is_udp.then(|| (u64::from_be_bytes(frame[42..50].try_into().unwrap()), frame[26..38].to_vec()))
}

/// Takes datagrams until as many have come as were sent, or none has come for so long that the rest is lost.
fn take(port: &mut RawPort, sent: &OnceLock<u64>, mut each: impl FnMut(&[u8], u64, Vec<u8>)) -> BTreeSet<u64> {
    let (mut numbers, mut last) = (BTreeSet::new(), Instant::now());
    loop {
        let frames = port.drain(Duration::from_millis(1)).unwrap();
        for frame in &frames {
            let Some((number, ends)) = read(frame) else { continue };
            assert!(numbers.insert(number), "{number} came twice");
            each(frame, number, ends);
        }
        let sent = sent.get().copied().unwrap_or(u64::MAX);
        if !frames.is_empty() || sent == u64::MAX {
            last = Instant::now();
        } else if numbers.len() as u64 >= sent || last.elapsed() > LOST {
            return numbers;
        }
    }
}

/// Inside port and outside port of each session that the router shows.
fn sessions(router: &Router) -> BTreeMap<u64, u64> {
    let all: Value = serde_json::from_str(&router.cli_json("show nat44 sessions").expect("sessions")).expect("JSON");
    let all = all["sessions"].as_array().expect("a list");
    let port = |session: &Value, ends: &str, port: &str| session[ends][port].as_u64().expect("a port");
    all.iter().map(|session| (port(session, "i2o", "sport"), port(session, "o2i", "dport"))).collect()
}

#[test]
fn no_packet_and_no_session_is_lost_while_workers_and_their_shares_change() {
    let Some(_scenario) = Scenario::begin(&["ethtool"]) else { return };
    let wire = Wire::new();
    let router = router(&wire);
    let (port, mut back) = (wire.a.raw("eth0").unwrap(), wire.a.raw("eth0").unwrap());
    let (mut far, far_out) = (wire.b.raw("eth0").unwrap(), wire.b.raw("eth0").unwrap());
    let (stop, core, rounds) = (AtomicBool::new(false), main_core(&router), if is_short_pass() { 1 } else { 3 });
    let (before, all) = (arrived(&wire.a), OnceLock::new());
    let (sent, asked, answered, outside, kept) = std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        // No more are under way than rings hold: a processor that is away for a while costs time and not frames.
        let sender = scope.spawn(|| {
            let sent = send_within(&port, core, 2000.0, &stop, request, |_| arrived(&wire.a) - before + 256);
            *all.get_or_init(|| sent)
        });
        let responder = scope.spawn(|| {
            let mut outside: BTreeMap<u64, BTreeSet<Vec<u8>>> = BTreeMap::new();
            let numbers = take(&mut far, &all, |frame, number, ends| {
                outside.entry(number % FLOWS).or_default().insert(ends);
                far_out.send(&answer(frame)).unwrap();
            });
            (numbers, outside)
        });
        let receiver = scope.spawn(|| {
            take(&mut back, &all, |_, number, ends| {
                let flow = 1024 + (number % FLOWS) as u16;
                let expected = [&[10, 0, 2, 2, 10, 0, 0, 1], &80_u16.to_be_bytes()[..], &flow.to_be_bytes()].concat();
                assert_eq!(ends, expected, "{number} came to another host or port");
            })
        });
        common::eventually("all sessions have begun", common::BOUND, || sessions(&router).len() as u64 == FLOWS);
        let begun = sessions(&router);
        for _ in 0..rounds {
            for workers in [4, 2, 1, 0, 3, 2] {
                router.cli(&format!("set workers {workers}")).expect("workers");
                assert_eq!(sessions(&router), begun, "{workers} workers");
                let shares: &[&str] = match workers {
                    2 => &["1", "0", "0-1"],
                    3 | 4 => &["2", "0,2", "0-2"],
                    _ => &[],
                };
                for share in shares {
                    router.cli(&format!("set nat workers {share}")).expect("nat workers");
                    assert_eq!(sessions(&router), begun, "{workers} workers, sessions on {share}");
                }
            }
        }
        // However late the sender gets a processor.
        let from = arrived(&wire.b);
        common::eventually("datagrams flow", common::BOUND, || arrived(&wire.b) - from > 500);
        drop(stopping);
        let sent = sender.join().unwrap();
        let (asked, outside) = responder.join().unwrap();
        (sent, asked, receiver.join().unwrap(), outside, sessions(&router) == begun)
    });
    println!("{sent} sent, {} at the host outside, {} answers at the host inside", asked.len(), answered.len());
    let shown = || router.cli("show errors").unwrap();
    assert!(sent > 500);
    assert_eq!((asked.len() as u64, answered.len() as u64), (sent, sent), "errors: {}", shown());
    // Each flow was seen from one address and port of the pool all the time.
    assert_eq!(outside.len() as u64, FLOWS);
    for (flow, ends) in outside {
        assert!(ends.len() == 1 && ends.iter().all(|ends| ends[..4] == POOL), "flow {flow}: {ends:?}");
    }
    assert!(kept && sessions(&router).len() as u64 == FLOWS, "sessions stay");
    assert_eq!(errors(&router, "nat44-ed-in2out", "sessions created"), FLOWS, "each session began once: {}", shown());
    router.cli("nat44 plugin disable").unwrap();
    assert_buffers_are_back(&router);
    router.stop().expect("a clean end");
}
