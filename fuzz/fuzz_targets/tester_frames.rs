//! Any frames at a port of the tester, as Ethernet and as IP: each has exactly one account, the
//! state table has what it counts, and answers are not longer than
//! what they answer may be. Any packets at both ends of connections of TCP: each connection is
//! accounted for once, and what is sent are segments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

use quiver_tester_core::MacAddr;
use quiver_tester_core::answer::{Handled, Host};
use quiver_tester_core::receiver::{Flow, Kind, Receiver};
use quiver_tester_core::signature::{Reading, Signature};
use quiver_tester_core::stateful::table::{Learner, Tap, Task};
use quiver_tester_core::tcp::engine::Course;
use quiver_tester_core::tcp::segment::Segment;
use quiver_tester_core::tcp::{End, Engine, Profile};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Frames that the stream was to have.
const FRAMES: u64 = 1000;

/// Two connections, their real segments and these packets among them.
fn connections(mut rest: &[u8]) {
    let document = serde_json::json!({
        "name": "f", "clients": "10.0.0.1", "client_ports": "1024-1025", "servers": "10.1.0.1",
        "connections": [{ "name": "a", "port": 80, "request": 100, "response": 3000, "exchanges": 2 }],
    });
    let profile = Arc::new(Profile::of_document("f", document).expect("a profile"));
    let course =
        Course { rate: 1000.0, start: 0, duration: 2_000_000, most_open: 9, timeout: 1_000_000_000, seed: 1 };
    let mut engine = Engine::new(profile, course).expect("an engine");
    let mut now = 0;
    while let Some((len, after)) = rest.split_first() {
        let (packet, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        while engine.turn(now) {}
        for (from, to) in [(End::Client, End::Server), (End::Server, End::Client)] {
            for packet in engine.outgoing(from).drain(..).collect::<Vec<_>>() {
                assert!(Segment::read(&packet).is_some(), "{packet:02x?}");
                engine.take(to, &packet, now);
            }
            engine.take(to, packet, now);
        }
        now += 1_000_000;
    }
    engine.abort(now);
    let (counts, ..) = engine.account().totals();
    assert_eq!(counts.opened, counts.completed + counts.failed());
}

fuzz_target!(|bytes: &[u8]| {
    connections(bytes);
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let ethernet = first & 1 == 0;
    let addresses: Vec<_> = ["192.0.2.1/24", "2001:db8::1/64"].iter().map(|a| a.parse().expect("a prefix")).collect();
    let mut host = Host::new(MAC, ethernet, addresses.clone(), addresses);
    let gateways = ["192.0.2.2", "2001:db8::2"].map(|a| a.parse().expect("an address"));
    for gateway in gateways {
        host.ask(gateway);
    }
    let mut receiver = Receiver::new(7, 0, vec![Flow::new(FRAMES)], ethernet, false);
    let (mut ours, mut stray, mut unsigned) = (0, 0, 0);
    let mut tap = Tap::new(Task::Learn(Learner::new(FRAMES)), ethernet, 7);
    while let Some((len, after)) = rest.split_first() {
        let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        tap.note(frame, None);
        if let Reading::Valid(signature) = Signature::read(frame) {
            assert_eq!(Signature::read(&signature.to_bytes()), Reading::Valid(signature));
        }
        match receiver.frame(frame, 5) {
            Kind::Ours => ours += 1,
            Kind::Stray => stray += 1,
            Kind::Unsigned => {
                unsigned += 1;
                receiver.note_unsigned();
                if let Handled::Control(Some(answer)) = host.handle(frame) {
                    assert!(answer.len() <= frame.len() + 100, "{} bytes answer {}", answer.len(), frame.len());
                }
            }
        }
    }
    let Task::Learn(learner) = tap.into_task() else { unreachable!("it learns") };
    let learnt = learner.learnt();
    let table = learner.table();
    assert_eq!(table.len(), learnt);
    for entry in 0..learnt {
        assert!(table.tuple(entry).is_some() && table.connection(entry).is_some_and(|n| n < FRAMES));
    }
    let arrivals = receiver.flows()[0].arrivals();
    let accounted = arrivals.received + arrivals.duplicated + arrivals.late + arrivals.impossible;
    assert_eq!(accounted, ours);
    assert_eq!(receiver.foreign() + receiver.corrupted() - arrivals.impossible, stray + unsigned);
});
