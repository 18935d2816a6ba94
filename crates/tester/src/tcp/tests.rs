//! Clients and servers over a wire that a test makes: time passes as it says.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use quiver_wire::Header;
use quiver_wire::checksum::{self, Sum};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::tcp::TcpFlags;
use serde_json::json;
use zerocopy::IntoBytes;

use super::End;
use super::engine::{Course, Engine};
use super::profile::Profile;
use super::segment::Segment;

/// From end to end, ns.
const DELAY: u64 = 100_000;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn profile(change: impl FnOnce(&mut serde_json::Value)) -> Arc<Profile> {
    let mut document = json!({
        "name": "p", "clients": "10.0.0.1-10.0.0.9", "servers": "10.1.0.1-10.1.0.2",
        "connections": [{ "name": "a", "port": 80, "request": { "text": "GET /\r\n\r\n", "bytes": 100 }, "response": 20_000 }],
    });
    change(&mut document);
    Arc::new(Profile::of_document("p", document).unwrap())
}

fn course(rate: f64, duration: u64) -> Course {
    Course { rate, start: SECOND, duration, most_open: 10_000, timeout: 2 * SECOND, seed: 1 }
}

/// What lies between: what becomes of a packet, which end it comes from.
type Between<'a> = dyn FnMut(End, Vec<u8>) -> Vec<(End, Vec<u8>)> + 'a;

fn other(end: End) -> End {
    if end == End::Client { End::Server } else { End::Client }
}

/// Lets all of it happen, and `after` ns more at most.
fn run(engine: &mut Engine, course: &Course, after: u64, between: &mut Between<'_>) -> u64 {
    let mut wire: VecDeque<(u64, End, Vec<u8>)> = VecDeque::new();
    let mut now = course.start;
    let end = course.start + course.duration + after;
    while now < end && !(engine.is_over() && wire.is_empty()) {
        while wire.front().is_some_and(|(due, ..)| *due <= now) {
            let (_, end, packet) = wire.pop_front().unwrap();
            engine.take(end, &packet, now);
        }
        while engine.turn(now) {}
        for end in [End::Client, End::Server] {
            while let Some(packet) = engine.outgoing(end).pop_front() {
                wire.extend(between(end, packet).into_iter().map(|(to, packet)| (now + DELAY, to, packet)));
            }
        }
        now += 20_000;
    }
    now
}

fn straight(end: End, packet: Vec<u8>) -> Vec<(End, Vec<u8>)> {
    vec![(other(end), packet)]
}

/// Counts of all kinds, in short: opened, established, completed, failed.
fn counts(engine: &Engine) -> [u64; 4] {
    let (all, ..) = engine.account().totals();
    [all.opened, all.established, all.completed, all.failed()]
}

#[test]
fn what_is_said_arrives_and_is_timed() {
    let (profile, course) = (profile(|_| ()), course(1000.0, SECOND));
    let mut engine = Engine::new(profile, course).unwrap();
    run(&mut engine, &course, SECOND, &mut straight);
    assert_eq!(counts(&engine), [1000, 1000, 1000, 0]);
    let (all, connect, exchange) = engine.account().totals();
    assert_eq!((all.exchanges, all.request_bytes, all.response_bytes), (1000, 100_000, 20_000_000));
    // There and back, in turns of 20 us.
    let (connect, exchange) = (connect.unwrap(), exchange.unwrap());
    assert!(connect.min >= 2 * DELAY && connect.max <= 2 * DELAY + 80_000, "{connect:?}");
    // 20,000 bytes are 14 segments: windows begin with one, and double each time.
    assert!(exchange.min >= 6 * DELAY && exchange.max <= 20 * DELAY, "{exchange:?}");
    let [client, server] = engine.segments();
    assert_eq!((client.sent, server.sent), (server.received, client.received));
    assert_eq!((client.retransmitted, server.retransmitted, client.strange, server.strange), (0, 0, 0, 0));
    assert!(engine.intended() == (1000, 0) && engine.foreign() == 0 && engine.open_now().1 < 10);
}

#[test]
fn both_families_several_kinds_and_pauses() {
    let profile = profile(|d| {
        (d["clients"], d["servers"]) = (json!("2001:db8::1-2001:db8::5"), json!("2001:db8:1::1"));
        d["connections"] = json!([
            { "name": "short", "share": 3, "port": 80, "request": 10, "response": 10 },
            { "name": "long", "port": 443, "request": 3000, "response": 100_000, "exchanges": 3, "think": "5ms" },
        ]);
    });
    let course = course(400.0, SECOND);
    let mut engine = Engine::new(profile, course).unwrap();
    run(&mut engine, &course, SECOND, &mut straight);
    assert_eq!(counts(&engine), [400, 400, 400, 0]);
    let [short, long] = engine.account().kinds() else { panic!("two kinds") };
    assert!((270..330).contains(&short.counts.opened), "{:?}", short.counts);
    assert_eq!(long.counts.exchanges, 3 * long.counts.opened);
    assert_eq!(long.counts.response_bytes, 300_000 * long.counts.opened);
    // Pauses are no part of an exchange.
    assert!(long.exchange.summary().unwrap().0.max < 5 * MS);
}

#[test]
fn what_is_lost_is_sent_again() {
    for congestion in ["cubic", "reno", "none"] {
        // The system's clock of retransmission begins with a second, and doubles.
        let course = Course { timeout: 20 * SECOND, ..course(200.0, SECOND) };
        let profile = profile(|d| d["congestion"] = json!(congestion));
        let mut engine = Engine::new(profile, course).unwrap();
        let (mut n, mut lost) = (0_u64, 0_u64);
        let mut lossy = |end, packet| {
            n += 1;
            if n % 50 == 0 {
                lost += 1;
                return Vec::new();
            }
            straight(end, packet)
        };
        run(&mut engine, &course, 60 * SECOND, &mut lossy);
        assert_eq!(counts(&engine), [200, 200, 200, 0], "{congestion}");
        let [client, server] = engine.segments();
        assert!(lost > 20 && client.retransmitted + server.retransmitted >= lost / 4, "{lost} {client:?} {server:?}");
        assert_eq!(engine.account().totals().0.response_bytes, 200 * 20_000, "{congestion}");
    }
}

#[test]
fn copies_and_other_orders_harm_nothing() {
    let (profile, course) = (profile(|_| ()), course(200.0, SECOND));
    let mut engine = Engine::new(profile, course).unwrap();
    let (mut n, mut held) = (0, None);
    let mut mixing = |end, packet: Vec<u8>| {
        n += 1;
        match n % 7 {
            0 => vec![(other(end), packet.clone()), (other(end), packet)],
            3 => held.replace((other(end), packet)).into_iter().collect(),
            4 => std::iter::once((other(end), packet)).chain(held.take()).collect(),
            _ => straight(end, packet),
        }
    };
    run(&mut engine, &course, 10 * SECOND, &mut mixing);
    assert_eq!(counts(&engine), [200, 200, 200, 0]);
}

#[test]
fn who_gets_no_answer_gives_up_and_who_is_refused_is_told() {
    let (profile, course) = (profile(|_| ()), course(50.0, SECOND));
    let mut engine = Engine::new(profile.clone(), course).unwrap();
    run(&mut engine, &course, 10 * SECOND, &mut |_, _| Vec::new());
    assert_eq!((counts(&engine), engine.account().totals().0.timed_out), ([50, 0, 0, 50], 50));
    // Silence once the connections stand.
    let mut engine = Engine::new(profile.clone(), course).unwrap();
    let mut silent = |end, packet: Vec<u8>| {
        let opens = Segment::read(&packet).unwrap().flags.contains(TcpFlags::SYN);
        if end == End::Server && !opens { Vec::new() } else { straight(end, packet) }
    };
    run(&mut engine, &course, 30 * SECOND, &mut silent);
    assert_eq!((counts(&engine), engine.account().totals().0.timed_out), ([50, 50, 0, 50], 50));
    // Nobody listens there: a host's answer is a reset.
    let mut engine = Engine::new(profile.clone(), course).unwrap();
    let mut elsewhere = |end, mut packet: Vec<u8>| {
        let (at, port) = if end == End::Client { (22, 81_u16) } else { (20, 80) };
        packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
        refresh(&mut packet);
        straight(end, packet)
    };
    run(&mut engine, &course, 10 * SECOND, &mut elsewhere);
    assert_eq!((counts(&engine), engine.account().totals().0.reset), ([50, 0, 0, 50], 50));
    assert_eq!(engine.segments()[1].strange, 50);
}

/// Works the checksums of an IPv4 packet with a segment out anew.
fn refresh(packet: &mut [u8]) {
    let mut header = Ipv4Header::read(packet).unwrap();
    header.fill_checksum();
    packet[..20].copy_from_slice(header.as_bytes());
    packet[36..38].fill(0);
    let sum = checksum::l4_sum_v4(&header, IpProtocol::TCP, &packet[20..]).checksum();
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn bytes_that_are_not_those_that_were_sent_are_found_either_way() {
    for (from, at) in [(End::Server, 1000), (End::Client, 60)] {
        let (profile, course) = (profile(|_| ()), course(40.0, SECOND));
        let mut engine = Engine::new(profile, course).unwrap();
        let mut n = 0;
        let mut damaging = |end, mut packet: Vec<u8>| {
            if end == from && packet.len() > at {
                n += 1;
                if n % 4 == 0 {
                    packet[at] ^= 0x20;
                    refresh(&mut packet);
                }
            }
            straight(end, packet)
        };
        run(&mut engine, &course, 10 * SECOND, &mut damaging);
        let (all, ..) = engine.account().totals();
        assert!(all.corrupted >= 10 && all.completed + all.corrupted == 40, "{from:?}: {all:?}");
        assert_eq!((all.reset, all.timed_out), (0, 0), "{from:?}");
    }
}

#[test]
fn a_translator_between_them_is_none_of_their_business() {
    let (profile, course) = (profile(|_| ()), course(500.0, SECOND));
    let mut engine = Engine::new(profile, course).unwrap();
    let outside = Ipv4Addr::new(192, 0, 2, 1);
    let (mut ports, mut back) = (HashMap::new(), HashMap::new());
    let mut translator = |end, mut packet: Vec<u8>| {
        if end == End::Client {
            let from = (packet[12..16].to_vec(), packet[20..22].to_vec());
            let next = 5000 + ports.len() as u16;
            let port = *ports.entry(from.clone()).or_insert(next);
            back.insert(port, from);
            packet[12..16].copy_from_slice(&outside.octets());
            packet[20..22].copy_from_slice(&port.to_be_bytes());
        } else {
            let (address, port) = &back[&u16::from_be_bytes([packet[22], packet[23]])];
            packet[16..20].copy_from_slice(address);
            packet[22..24].copy_from_slice(port);
        }
        refresh(&mut packet);
        straight(end, packet)
    };
    run(&mut engine, &course, SECOND, &mut translator);
    assert_eq!(counts(&engine), [500, 500, 500, 0]);
    assert_eq!(ports.len(), 500, "each connection has a four-tuple of its own");
}

#[test]
fn no_more_are_open_than_may_be_and_what_is_left_in_the_end_is_unfinished() {
    let (profile, mut course) = (profile(|d| d["connections"][0]["think"] = json!("10s")), course(100.0, SECOND));
    course.most_open = 30;
    let mut document = (*profile).clone();
    document.connections[0].exchanges = 2;
    let mut engine = Engine::new(Arc::new(document), course).unwrap();
    let now = run(&mut engine, &course, SECOND, &mut straight);
    assert_eq!((engine.intended(), engine.open_now()), ((100, 70), (30, 30)));
    engine.abort(now);
    let (all, ..) = engine.account().totals();
    assert_eq!((all.opened, all.established, all.unfinished, all.failed()), (30, 30, 30, 30));
    // Each end says so, and nothing stays.
    for end in [End::Client, End::Server] {
        let resets = engine.outgoing(end).iter().filter(|p| Segment::read(p).unwrap().flags.contains(TcpFlags::RST)).count();
        assert_eq!(resets, 30, "{end:?}");
    }
    assert_eq!(engine.open_now().0, 0);
}

#[test]
fn a_late_engine_does_not_open_what_the_time_is_over_for() {
    let (profile, course) = (profile(|_| ()), course(1000.0, SECOND));
    let mut engine = Engine::new(profile, course).unwrap();
    while engine.turn(course.start + SECOND / 2) {}
    while engine.turn(course.start + 2 * SECOND) {}
    assert_eq!(engine.intended(), (1000, 499));
    assert!(engine.late().max() >= SECOND / 2 - MS);
}

#[test]
fn whatever_comes_harms_nothing() {
    let (profile, course) = (profile(|_| ()), course(100.0, SECOND));
    let mut engine = Engine::new(profile, course).unwrap();
    while engine.turn(course.start) {}
    let whole = engine.outgoing(End::Client).pop_front().unwrap();
    let mut random = crate::random::Random::new(9);
    for n in 0..20_000_usize {
        let mut packet = whole.clone();
        for _ in 0..1 + n % 4 {
            let at = random.below(packet.len() as u64) as usize;
            packet[at] = random.next_u64() as u8;
        }
        packet.truncate(random.below(packet.len() as u64 + 1) as usize);
        for end in [End::Client, End::Server] {
            engine.take(end, &packet, course.start + n as u64);
        }
    }
    assert!(Sum::of(&whole[..20]).is_valid());
}
