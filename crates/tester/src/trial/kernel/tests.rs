//! What the kernel makes and accounts for, beside what the other engines do.

use std::io::Write;

use super::*;
use crate::maker::{Maker, Surroundings};
use crate::pace::{Bursts, Departures as Spread, Pace, Schedule};
use crate::profile::{Profile, Size};
use crate::random::Random;
use crate::receiver::{Flow, Kind};
use crate::signature::{Reading, Signature};
use crate::tracker::FIRST;
use quiver_drivers::xdp_engine::XdpError;
use quiver_drivers::xdp_engine::layout::STREAMS;
use quiver_wire::MacAddr;

const TAG: u8 = 9;

/// The programs; `None`, visibly, where this user or this build has none: under the gate that is a failure.
fn programs() -> Option<XdpEngine> {
    match XdpEngine::detached() {
        Ok(engine) => Some(engine),
        Err(XdpError::Load(error)) if is_root() => panic!("{error}"),
        Err(error @ (XdpError::NoPrograms | XdpError::Load(_))) => {
            let name = std::thread::current().name().unwrap_or("test").to_owned();
            // Past the test runner's capture; a closed standard error is no reason to fail.
            let _ = writeln!(std::io::stderr(), "{name}: SKIP: {error}");
            assert!(std::env::var_os("QUIVER_CI").is_none_or(|value| value != "1"), "SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn outgoing(lines: &str, size: &Size, id: u16) -> Outgoing {
    let text = format!("name: p\nstreams:\n- name: s\n  {}\n", lines.replace('\n', "\n  "));
    let stream = Profile::of_yaml("p", &text).unwrap().streams.remove(0);
    let [src, dst] = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
    let around = Surroundings { src, dst: Some(dst), ethernet: true, id, tag: TAG, seed: 5 };
    let maker = Maker::new(&stream, Some(&size.clone()), &around).unwrap();
    Outgoing { maker, pace: Pace::max(1.0) }
}

/// The frames that a thread with these streams would send first.
fn dry_run(engine: &mut XdpEngine, streams: &[Outgoing], frames: usize) -> Vec<Vec<u8>> {
    let (all, mut feeds) = departures(streams, TAG, LONGEST, None).unwrap();
    engine.prepare(&[all]).unwrap();
    let sender = &mut engine.senders()[0];
    feeds.iter_mut().for_each(|feed| feed.fill(sender, 0).unwrap());
    let sent = sender.dry_run(frames).unwrap();
    assert_eq!(sender.sent().unwrap().streams.iter().map(|s| s.frames).sum::<u64>(), frames as u64);
    sent
}

/// Frames with all kinds of headers and fields: lines of a profile, sizes.
fn kinds() -> Vec<(&'static str, Size)> {
    let random = |min, max| Size::Random { min, max, seed: None };
    vec![
        ("ipv4: {}\nudp: { src: 1000, dst: 7 }", Size::Fixed(64)),
        ("ipv4: {}\nudp: {}", Size::Fixed(64)),
        (
            "ipv4: { src: { random: { first: 10.0.0.1, last: 10.255.255.254 } }, dst: { increment: { first: 10.0.0.1, count: 3 } } }\nudp: {}",
            Size::Fixed(65),
        ),
        ("ipv4: { dst: { random: { first: 0.0.0.0, last: 255.255.255.255 } } }\ntcp: {}", Size::Fixed(77)),
        ("ipv6: { dst: { random: { first: '2001:2:0:8000::1', last: '2001:2:0:8000::ffff' } } }\nudp: {}", Size::Fixed(84)),
        (
            "ipv6: { src: { decrement: { first: '2001:2::9', last: '2001:2::1', step: '::2' } } }\ntcp: {}\nvlan: [ { id: 5, service: true }, { id: { increment: { first: 1, count: 4 } }, priority: 3 } ]",
            Size::Fixed(131),
        ),
        ("ipv4: { src: { increment: { first: 198.18.0.1, count: 5 } } }\nicmp: { id: 4 }", Size::Fixed(102)),
        ("ethernet: { dst: { increment: { first: '02:00:00:00:00:10', count: 2 } } }", Size::Fixed(1518)),
        ("ipv4: {}\nudp: {}", Size::List(vec![64, 128, 64, 1500])),
        // Values held, in steps, across the halves of an address and in its upper one.
        (
            "ipv4: { src: { increment: { first: 10.0.0.1, count: 3, every: 2 } }, dst: { random: { first: 10.0.0.3, last: 10.0.9.0, step: 7 } } }\nudp: { src: { decrement: { first: 9, last: 6, every: 5 } } }",
            Size::Fixed(64),
        ),
        (
            "ipv6: { src: { increment: { first: '::ffff:ffff:ffff:fffd', count: 5, every: 2 } }, dst: { decrement: { first: '2001:2:0:9::', last: '2001:2:0:2::', step: '0:0:0:1::' } } }\nudp: {}",
            Size::Fixed(90),
        ),
        (
            "ipv6: { src: { random: { first: '::', last: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' } }, dst: { random: { first: '2001:2::', last: '2001:2:0:ffff:ffff:ffff:ffff:ffff' } } }\nudp: {}",
            Size::Fixed(90),
        ),
        (
            "ipv6: { src: { random: { first: '2001:2::1', last: '2001:2:0:fff::1', step: '0:0:0:1::2' } }, dst: { random: { first: '2001:2::', last: '2001:2::ffff:ffff:ffff:ffff' } } }\ntcp: {}",
            Size::Fixed(1000),
        ),
        ("ethernet: { src: { random: { first: '02:00:00:00:00:00', last: '02:ff:ff:ff:ff:ff' } } }\nipv4: {}", Size::Fixed(64)),
        // Lists, tuples, prefixes.
        (
            "ipv4: { src: [ 10.0.0.1, 10.9.0.9, 10.0.0.4 ] }\nudp: { dst: [ 5, 9 ] }\nvlan: [ { id: [ 7, 3, 99 ], priority: 6 } ]",
            Size::Fixed(68),
        ),
        ("ethernet: { dst: [ '02:00:00:00:00:10', '06:00:00:aa:00:11' ] }\nipv4: {}\nicmp: {}", Size::Fixed(64)),
        ("ipv6: { src: [ '2001:2::1', '2001:3::9', '2001:2:0:1::' ] }\ntcp: { src: 1, dst: 2 }", Size::Fixed(101)),
        (
            "ipv4: {}\nudp: {}\ntuples: { order: turns, values: [ { src: 10.0.0.1, dst: 10.1.0.9, src_port: 1001, dst_port: 99 }, { src: 10.0.0.2, dst: 10.1.0.8, src_port: 1002, dst_port: 98 }, { src: 10.0.0.3, dst: 10.1.0.7, src_port: 1003, dst_port: 97 } ] }",
            Size::Fixed(64),
        ),
        (
            "ipv6: {}\ntcp: {}\ntuples: { order: random, seed: 4, values: [ { src: '2001:2::1', dst: '2001:2:0:8000::9', src_port: 1001, dst_port: 99 }, { src: '2001:2:1::2', dst: '2001:2:0:8000::8', src_port: 1002, dst_port: 98 } ] }",
            Size::Fixed(100),
        ),
        (
            "ipv4: { dst: { zipf: { prefixes: [ 10.0.0.0/8, 192.0.2.7/32, 172.16.0.0/31, 0.0.0.0/0 ], exponent: 1 } } }\nudp: {}",
            Size::Fixed(64),
        ),
        (
            "ipv6: { dst: { zipf: { prefixes: [ '2001:db8::/48', '::/0', '2001:db8:1::7/128' ], exponent: 0.7 } } }\nudp: {}",
            Size::Fixed(90),
        ),
        ("ipv6: { src: { zipf: { prefixes: [ '2001:db8::/64', '2001:db8::/100' ] } } }\nudp: {}", Size::Fixed(90)),
        // Labels, a tunnel, a payload.
        (
            "ipv4: { dst: { increment: { first: 10.0.0.1, count: 3 } } }\nudp: {}\nmpls: [ { label: 7 }, { label: 9, tc: 3 } ]\npayload: '0102'",
            Size::Fixed(90),
        ),
        (
            "ipv4: { src: { random: { first: 10.0.0.1, last: 10.0.0.9 } } }\nudp: {}\ntunnel: { kind: vxlan, ipv4: {}, vni: 5 }",
            Size::List(vec![114, 200, 1500]),
        ),
        ("ipv6: {}\ntcp: {}\ntunnel: { kind: gre, ipv4: {}, key: 1 }", Size::Fixed(140)),
        // Frames of several sizes leave their signatures in one another's pages.
        ("ipv4: {}\nudp: {}", random(64, 1518)),
        ("ipv6: {}\nudp: { src: [ 5, 6, 7 ] }", random(84, 140)),
        ("ipv4: {}\nudp: {}", Size::Mix(vec![(64, 7), (594, 4), (1518, 1)])),
        ("ipv4: {}\ntcp: {}", Size::List((100..400).collect())),
    ]
}

#[test]
fn frames_of_the_kernel_are_those_of_the_maker() {
    let Some(mut engine) = programs() else { return };
    for (lines, size) in kinds() {
        let mut stream = outgoing(lines, &size, 3);
        for (n, frame) in dry_run(&mut engine, std::slice::from_ref(&stream), 200).iter().enumerate() {
            let Reading::Valid(signature) = Signature::read(frame) else { panic!("{lines}: frame {n}: {frame:02x?}") };
            assert_eq!(frame, &stream.maker.make_bytes(signature.time), "{lines}: {size:?}: frame {n}");
        }
    }
}

#[test]
fn frames_without_signature_are_whole_too() {
    let Some(mut engine) = programs() else { return };
    for (lines, size) in [
        ("ipv6: {}\nudp: { src: 1, dst: [ 2, 3 ] }", Size::List(vec![66, 70, 71, 131, 133, 900])),
        ("ipv4: { dst: [ 10.0.0.1, 10.0.0.2 ] }\ntcp: { src: 1, dst: 2 }", Size::List(vec![64, 67, 300])),
    ] {
        let mut stream = outgoing(&format!("{lines}\nsignature: none"), &size, 3);
        for (n, frame) in dry_run(&mut engine, std::slice::from_ref(&stream), 50).iter().enumerate() {
            assert_eq!(frame, &stream.maker.make_bytes(0), "{lines}: {size:?}: frame {n}");
        }
    }
}

/// Streams of all kinds in one program, of which the verifier knows less than of a stream alone; more of them than a thread takes.
#[test]
fn frames_of_streams_side_by_side_are_those_of_the_makers() {
    let Some(mut engine) = programs() else { return };
    for kinds in kinds().chunks(STREAMS) {
        let mut streams: Vec<_> = kinds.iter().zip(0..).map(|((lines, size), id)| outgoing(lines, size, id)).collect();
        for (n, frame) in dry_run(&mut engine, &streams, 50 * kinds.len()).iter().enumerate() {
            let Reading::Valid(signature) = Signature::read(frame) else { panic!("frame {n}: {frame:02x?}") };
            assert_eq!(usize::from(signature.stream), n % kinds.len(), "streams of one weight take turns");
            let maker = &mut streams[usize::from(signature.stream)].maker;
            assert_eq!(frame, &maker.make_bytes(signature.time), "{}: frame {n}", kinds[n % kinds.len()].0);
        }
    }
}

/// Departures are compared by the order in which frames of several streams leave, one of them at every 10 µs.
#[test]
fn departures_of_the_kernel_are_those_of_the_other_engines() {
    let Some(mut engine) = programs() else { return };
    let duration = 30_000_000;
    let schedule = |departures, pps, start, bursts| Schedule { departures, pps, start, bursts };
    let bursts = |frames, count, gap| Some(Bursts { frames, count, gap });
    for parts in [1, 2] {
        let paces = [
            schedule(Spread::Constant, 100_000.0, 0.0, None),
            schedule(Spread::Poisson, 70_000.0, 0.0, None),
            schedule(Spread::Poisson, 30_000.0, 5_000_005.0, None),
            schedule(Spread::Constant, 33_333.0, 1_234_567.0, bursts(7, u64::MAX, 300_007)),
            schedule(Spread::Constant, 1_000_000.0, 2e6, bursts(64, 3, 5_000_000)),
            schedule(Spread::Constant, 9_999.0, 11e6, None),
        ];
        for part in 0..parts {
            let mut streams: Vec<_> = paces
                .iter()
                .zip(0..)
                .map(|(schedule, id)| Outgoing {
                    pace: schedule.pace(duration, (part, parts), 7 + u64::from(id)),
                    ..outgoing("ipv4: {}\nudp: { src: 5, dst: 7 }", &Size::Fixed(64), id)
                })
                .collect();
            // What has no rate comes in what the others leave: here behind them, since all of those are due.
            for id in [6, 7] {
                let filler = outgoing("ipv4: {}\nudp: {}", &Size::Fixed(64), id);
                streams.push(Outgoing { pace: Pace::max(f64::from(id - 5)), ..filler });
            }
            let paced: u64 = streams.iter().filter_map(|s| s.pace.total()).sum();
            assert!(paced > 3000, "{paced}");
            let sent = dry_run(&mut engine, &streams, paced as usize + 30);
            let order: Vec<u16> = sent
                .iter()
                .map(|frame| match Signature::read(frame) {
                    Reading::Valid(signature) => signature.stream,
                    other => panic!("{other:?}"),
                })
                .collect();
            let mut wanted = Vec::new();
            for max in [false, true] {
                let next = |streams: &[Outgoing]| {
                    let due = |(id, s): (u16, &Outgoing)| (s.pace.is_max() == max).then(|| s.pace.due())?.map(|due| (due, id));
                    (0..).zip(streams).filter_map(due).min()
                };
                while let Some((_, id)) = next(&streams).filter(|_| wanted.len() < sent.len()) {
                    streams[usize::from(id)].pace.depart();
                    wanted.push(id);
                }
            }
            assert!(
                order == wanted,
                "part {part} of {parts}: from frame {:?}",
                order.iter().zip(&wanted).position(|(a, b)| a != b)
            );
        }
    }
}

/// A ring of departure times is written again and again.
#[test]
fn departure_times_are_written_ahead_of_what_is_sent() {
    let Some(mut engine) = programs() else { return };
    let poisson = |seed| Outgoing {
        pace: Pace::new(Spread::Poisson, 1e6, 1_000_000_000, seed),
        ..outgoing("ipv4: {}\nudp: { src: 5, dst: 7 }", &Size::Fixed(64), seed as u16)
    };
    let mut streams = [poisson(1), poisson(2)];
    let (all, mut feeds) = departures(&streams, TAG, LONGEST, None).unwrap();
    engine.prepare(&[all]).unwrap();
    let sender = &mut engine.senders()[0];
    // More than a ring holds, in parts of less.
    for _ in 0..6 {
        for feed in &mut feeds {
            let sent = sender.sent().unwrap().streams[feed.stream()].frames;
            feed.fill(sender, sent).unwrap();
        }
        for frame in sender.dry_run(100_000).unwrap() {
            let (_, at) = streams.iter().enumerate().map(|(at, s)| (s.pace.due().unwrap(), at)).min().unwrap();
            let Reading::Valid(signature) = Signature::read(&frame) else { panic!("{frame:02x?}") };
            assert_eq!(usize::from(signature.stream), at + 1);
            streams[at].pace.depart();
        }
    }
}

#[test]
fn accounts_of_the_kernel_are_those_of_the_receiver() {
    let Some(mut engine) = programs() else { return };
    let mut random = Random::new(11);
    let frames = 400_000_u64;
    engine.expect(TAG, 3, &[frames], None).unwrap();
    let mut receiver = Receiver::new(TAG, 3, vec![Flow::new(frames)], true, false);
    let mut at = 0_u64;
    for _ in 0..60_000 {
        // Mostly onwards; sometimes a gap, short or longer than the window, and sometimes something old or impossible.
        let sequence = match random.below(64) {
            0..8 => at.saturating_sub(random.below(200)),
            8 => at.saturating_sub(random.below(100_000)),
            9 => frames + random.below(100),
            10 => u64::MAX,
            11 => at + random.below(70_000).min(frames - at),
            12..20 => at + random.below(100).min(frames - at),
            _ => at,
        };
        let signature = Signature { tag: TAG, stream: 3, sequence: FIRST.wrapping_add(sequence as u32), time: 1 };
        let mut frame = vec![0; 60];
        frame[42..].copy_from_slice(&signature.to_bytes());
        assert!(engine.dry_receive(&frame).unwrap());
        assert_eq!(receiver.frame(&frame, 5), Kind::Ours);
        if sequence < frames && sequence >= at {
            at = sequence + 1;
        }
        if at >= frames {
            break;
        }
    }
    let (ours, theirs) = (receiver.flows()[0].arrivals(), &engine.flows().unwrap()[0]);
    let counts = [theirs.received, theirs.duplicated, theirs.reordered, theirs.late, theirs.impossible];
    assert_eq!(counts, [ours.received, ours.duplicated, ours.reordered, ours.late, ours.impossible]);
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
    let latencies: u64 = engine.latencies(0).unwrap().iter().map(|(_, n)| n).sum();
    assert_eq!(latencies, ours.received);
    // What is not of the trial goes on to the kernel.
    for other in
        [Signature { tag: 1, stream: 3, sequence: FIRST, time: 1 }, Signature { tag: TAG, stream: 4, sequence: FIRST, time: 1 }]
    {
        let mut frame = vec![0; 60];
        frame[42..].copy_from_slice(&other.to_bytes());
        assert!(!engine.dry_receive(&frame).unwrap());
    }
    assert!(!engine.dry_receive(&[0xa9; 60]).unwrap());
}

#[test]
fn what_the_kernel_cannot_make_is_refused() {
    let refused = |lines: &str, duration| {
        let stream = outgoing(lines, &Size::Fixed(190), 1);
        let error = departures(&[stream], TAG, duration, None).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let odd = "ipv6: { src: { random: { first: '::', last: 'ffff::' } } }\nudp: {}";
    assert!(refused(odd, 1).contains("no power of two"));
    let deep = "ipv6: { dst: { random: { first: '2001::', last: '2001::9' } } }\nvlan: [ { id: 1 }, { id: 2 } ]\ntunnel: { kind: vxlan, ipv6: {}, vni: 1 }";
    assert!(refused(deep, 1).contains("a varying field behind the first 128 bytes of a frame"), "{}", refused(deep, 1));
    let fixed = "ipv6: {}\ntcp: { src: 1, dst: 2 }\ntunnel: { kind: vxlan, ipv6: {}, vni: 1 }";
    assert!(refused(fixed, 1).contains("a checksum behind the first 128 bytes of a frame"), "{}", refused(fixed, 1));
    assert!(refused("ipv4: {}\nudp: {}", LONGEST + 1).contains("for more than 1000 s"));
    let many: Vec<_> = (0..=STREAMS as u16).map(|id| outgoing("ipv4: {}\nudp: {}", &Size::Fixed(64), id)).collect();
    assert!(departures(&many, TAG, 1, None).unwrap_err().contains("more than 16 streams"));
}
