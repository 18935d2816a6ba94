//! Directions whose port sends or receives in the kernel.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_drivers::xdp_engine::layout::{FRACTION, Lane, STREAMS, TEMPLATES};
use quiver_drivers::xdp_engine::{Departures, XdpEngine};

use crate::bench::Bench;
use crate::latency::{Latencies, histogram};
use crate::receiver::Receiver;
use crate::source::{Outgoing, Sent};
use crate::tracker::Arrivals;

/// Longest trial, ns: departure times have 40 bits before the point.
const LONGEST: u64 = 1_000_000_000_000;
/// Frames a second from which many share a flush, and from which some do.
const MANY: f64 = 1e6;
const SOME: f64 = 1e5;

/// What a port of the kernel's is to send; `tag` is the trial, `span` its first and last moment.
///
/// # Errors
/// In one line what it cannot send.
pub(super) fn departures(streams: &[Outgoing], tag: u8, (start, end): (u64, u64), core: Option<u32>) -> Result<Departures, String> {
    if streams.len() > STREAMS {
        return Err(format!("{} streams (up to {STREAMS} can be)", streams.len()));
    }
    if end - start > LONGEST {
        return Err(format!("for more than {} s", LONGEST / 1_000_000_000));
    }
    let paced = streams.iter().filter(|s| !s.pace.is_max()).count();
    if paced != 0 && paced != streams.len() {
        return Err("streams with and without a rate at the same time".to_owned());
    }
    let lane = Lane {
        start,
        end,
        streams: streams.len() as u32,
        tag: tag.into(),
        paced: (paced > 0).into(),
        overhead: 4,
        ..Lane::default()
    };
    let mut all = Departures { lane, streams: Vec::new(), templates: Vec::new(), frame: Vec::new(), batch: 1, core };
    let mut pps = 0.0;
    for Outgoing { maker, pace } in streams {
        let Some((gap, phase)) = pace.even() else { return Err("Poisson departures or bursts".to_owned()) };
        let (mut stream, templates) = maker.for_kernel(all.templates.len())?;
        let fixed = |ns: f64| (ns * f64::from(1_u32 << FRACTION)).round() as u64;
        (stream.gap, stream.next) = (fixed(gap).max(1), fixed(phase));
        stream.total = pace.total().unwrap_or(u64::MAX);
        pps += if pace.is_max() { f64::INFINITY } else { 1e9 / gap };
        all.streams.push(stream);
        all.templates.extend(templates);
        let largest = maker.largest_template();
        if largest.len() > all.frame.len() {
            all.frame = largest.to_vec();
        }
    }
    if all.templates.len() > TEMPLATES {
        return Err(format!("{} sizes (up to {TEMPLATES} can be)", all.templates.len()));
    }
    all.batch = if pps >= MANY {
        64
    } else if pps >= SOME {
        4
    } else {
        1
    };
    Ok(all)
}

/// Tells `sent` how far a port of the kernel's is, and ends its thread when it is over. Says why it failed, if it did.
pub(super) fn follow(engine: &mut XdpEngine, sent: &Sent) -> Option<String> {
    if sent.over.load(Ordering::Acquire) {
        return None;
    }
    let failure = engine.failure();
    let over = failure.is_some() || engine.sent().map_or(true, |(lane, _)| lane.over != 0);
    if over {
        engine.stop();
    }
    if let Ok((lane, counts)) = engine.sent() {
        let set = |to: Option<&AtomicU64>, n: u64| to.into_iter().for_each(|to| to.store(n, Ordering::Relaxed));
        for (at, count) in counts.iter().enumerate() {
            set(sent.frames.get(at), count.frames);
            set(sent.bytes.get(at), count.bytes);
        }
        sent.refused.store(lane.refused, Ordering::Relaxed);
    }
    if over {
        let mut errors = histogram();
        for (ns, n) in engine.departure_errors().unwrap_or_default() {
            errors.saturating_record_n(ns, n);
        }
        *sent.errors.lock().unwrap_or_else(PoisonError::into_inner) = errors;
        sent.over.store(true, Ordering::Release);
    }
    failure
}

/// Frames that a port has received in the kernel.
pub(super) fn received(bench: &Bench, port: usize) -> u64 {
    let flows = bench.kernel(port).and_then(|engine| engine.flows().ok());
    flows.map_or(0, |flows| flows.iter().map(|f| f.received).sum())
}

/// Adds what a port has received in the kernel to its account, and ends that; says what was wrong.
pub(super) fn absorb(engine: &mut XdpEngine, receiver: &mut Receiver, with_core: bool) -> Option<String> {
    let flows = match engine.flows() {
        Ok(flows) => flows,
        Err(error) => return Some(error.to_string()),
    };
    for (at, flow) in flows.iter().enumerate() {
        let arrivals = Arrivals {
            received: flow.received,
            duplicated: flow.duplicated,
            reordered: flow.reordered,
            late: flow.late,
            impossible: flow.impossible,
        };
        let cells = match engine.latencies(at as u32) {
            Ok(cells) => cells,
            Err(error) => return Some(error.to_string()),
        };
        let latencies = Latencies::counted(&cells, (flow.min, flow.max), flow.sum, flow.jitter16 as f64 / 16.0);
        receiver.absorb(at, &arrivals, &latencies);
    }
    let elsewhere = engine.elsewhere().unwrap_or(0);
    if let Err(error) = engine.expect_nothing() {
        return Some(error.to_string());
    }
    (with_core && elsewhere > 0).then(|| format!("{elsewhere} frames were received by another core than the port's rx-core"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::{Maker, Surroundings};
    use crate::pace::{Departures as Spread, Pace};
    use crate::profile::{Profile, Size};
    use crate::random::Random;
    use crate::receiver::{Flow, Kind};
    use crate::signature::{Reading, Signature};
    use crate::tracker::FIRST;
    use quiver_drivers::xdp_engine::XdpError;
    use quiver_wire::MacAddr;

    const TAG: u8 = 9;

    /// The programs; `None` where this user or this build has none.
    fn programs() -> Option<XdpEngine> {
        match XdpEngine::detached() {
            Ok(engine) => Some(engine),
            Err(error @ (XdpError::NoPrograms | XdpError::Load(_))) if !is_root() => {
                println!("skipped: {error}");
                None
            }
            Err(XdpError::NoPrograms) => {
                println!("skipped: built without clang");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn is_root() -> bool {
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
    }

    fn outgoing(lines: &str, size: &Size) -> Outgoing {
        let text = format!("name: p\nstreams:\n- name: s\n  {}\n", lines.replace('\n', "\n  "));
        let stream = Profile::of_yaml("p", &text).unwrap().streams.remove(0);
        let [src, dst] = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        let around = Surroundings { src, dst: Some(dst), ethernet: true, id: 3, tag: TAG, seed: 5 };
        let maker = Maker::new(&stream, Some(size), &around).unwrap();
        Outgoing { maker, pace: Pace::new(Spread::Constant, 1e9, 1_000_000, 1) }
    }

    #[test]
    fn frames_of_the_kernel_are_those_of_the_maker() {
        let Some(mut engine) = programs() else { return };
        for (lines, size) in [
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
        ] {
            let mut stream = outgoing(lines, &size);
            let all = departures(std::slice::from_ref(&stream), TAG, (0, LONGEST), None);
            // In the past, and without an end: each run makes a frame.
            let mut all = all.unwrap();
            (all.lane.end, all.lane.paced) = (u64::MAX, 0);
            for (n, frame) in engine.dry_transmit(&all, 200).unwrap().iter().enumerate() {
                let Reading::Valid(signature) = Signature::read(frame) else { panic!("{lines}: frame {n}: {frame:02x?}") };
                assert_eq!(frame, &stream.maker.make_bytes(signature.time), "{lines}: frame {n}");
            }
            assert_eq!(engine.sent().unwrap().1[0].frames, 200);
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
        for (lines, size, words) in [
            ("ipv4: { src: [ 10.0.0.1, 10.0.0.9 ] }\nudp: {}", Size::Fixed(64), "lists"),
            ("ipv6: { src: { random: { first: '::', last: 'ffff::' } } }\nudp: {}", Size::Fixed(90), "2^32 values"),
            ("ipv6: { src: { increment: { first: '::ffff:ffff', count: 9 } } }\nudp: {}", Size::Fixed(90), "last 32 bits"),
            ("ipv4: { src: { increment: { first: 10.0.0.1, count: 3, every: 2 } } }\nudp: {}", Size::Fixed(64), "several times"),
            ("ipv4: { src: { zipf: { prefixes: [ 10.0.0.0/8 ] } } }\nudp: {}", Size::Fixed(64), "Zipf"),
            ("ipv4: {}\nudp: {}", Size::Random { min: 64, max: 100, seed: None }, "random sizes"),
        ] {
            let error = departures(&[outgoing(lines, &size)], TAG, (0, 1), None).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{lines}: {error}");
        }
        let mut poisson = outgoing("ipv4: {}\nudp: {}", &Size::Fixed(64));
        poisson.pace = Pace::new(Spread::Poisson, 10.0, 1_000_000_000, 1);
        assert!(departures(&[poisson], TAG, (0, 1), None).unwrap_err().contains("Poisson"));
    }
}
