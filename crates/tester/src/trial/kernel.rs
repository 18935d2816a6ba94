//! Directions whose port sends or receives in the kernel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use quiver_drivers::xdp_engine::layout::{DIRECTIONS, FRACTION, STREAMS, Setup, Spread};
use quiver_drivers::xdp_engine::{Departures, XdpEngine};

use super::feed::{Feed, feeds};
use super::{TrialError, Waiting};
use crate::bench::Bench;
use crate::latency::{Latencies, histogram};
use crate::pace::Kind;
use crate::receiver::Receiver;
use crate::source::{Outgoing, Sent};
use crate::tracker::Arrivals;

/// Longest trial, ns: departure times have 40 bits before the point.
const LONGEST: u64 = 1_000_000_000_000;
/// How many frames share a flush, from so many frames a second on: each wakes whoever receives them.
const FLUSHES: [(f64, u32); 3] = [(1e6, 64), (4e5, 16), (1e5, 4)];
/// Frames behind another one that may share its reading of the clock, where many share a flush: at 4 M frames/s made within 2 µs.
const SHARING: u32 = 7;

/// What a thread of a port of the kernel's is to send for `duration` ns; `tag` is the trial.
///
/// # Errors
/// In one line what it cannot send.
pub(super) fn departures(
    streams: &[Outgoing],
    tag: u8,
    duration: u64,
    core: Option<u32>,
) -> Result<(Departures, Vec<Feed>), String> {
    if duration > LONGEST {
        return Err(format!("for more than {} s", LONGEST / 1_000_000_000));
    }
    let feeds = feeds(streams);
    let mut all = Departures { core, ..Departures::new() };
    all.setup = Setup { tag: tag.into(), overhead: 4, ..all.setup };
    all.feeds = feeds.iter().map(Feed::units).sum();
    let fixed = |ns: f64| (ns * f64::from(1_u32 << FRACTION)).round() as u64;
    let mut pps = 0.0;
    for (at, Outgoing { maker, pace }) in streams.iter().enumerate() {
        maker.for_kernel(&mut all)?;
        let (stream, progress) = (&mut all.setup.stream[at], &mut all.state.stream[at]);
        stream.total = pace.total().unwrap_or(u64::MAX);
        let (spread, gap) = match pace.kind() {
            Kind::Constant { gap, phase } => {
                progress.next = fixed(*phase);
                (Spread::Even, *gap)
            }
            Kind::Max { gap } => (Spread::Unpaced, *gap),
            Kind::Bursts { gap, phase, period, frames } => {
                (progress.next, progress.begin) = (fixed(*phase), fixed(*phase));
                (stream.period, stream.burst) = (fixed(*period), *frames);
                (Spread::Bursts, *gap)
            }
            Kind::Poisson { end, .. } => (Spread::Fed, *end / stream.total.max(1) as f64),
        };
        (stream.spread, stream.gap) = (spread as u32, fixed(gap).max(1));
        pps += if pace.is_max() { f64::INFINITY } else { 1e9 / gap };
        if let Some(feed) = feeds.iter().find(|feed| feed.stream() == at) {
            (stream.feed, stream.feed_mask) = (feed.first_unit(), feed.units() - 1);
        }
    }
    all.batch = FLUSHES.iter().find(|(from, _)| pps >= *from).map_or(1, |(_, frames)| *frames);
    all.setup.share = if all.batch > SHARING { SHARING } else { 0 };
    Ok((all, feeds))
}

/// What a thread sends in one direction.
struct Part {
    port: usize,
    /// Its first stream, as the thread counts them, and how many there are.
    first: usize,
    streams: usize,
    sent: Arc<Sent>,
}

/// A thread that sends in the kernel, in one direction or both ways.
pub(super) struct Thread {
    /// The port whose engine has it, and which of that engine's threads it is.
    port: usize,
    at: usize,
    parts: Vec<Part>,
    feeds: Vec<Feed>,
}

/// Threads for the jobs of ports of the kernel's, which are taken out of `jobs`, loaded and ready to begin.
///
/// What is sent both ways from one core is one thread's. Two would take turns at the pace of the system's clock: each runs for
/// milliseconds, and the frames of the other one are late by as much.
///
/// # Errors
/// The kernel does not take what one of them is to send.
pub(super) fn threads(bench: &mut Bench, jobs: &mut Vec<Waiting>, tag: u8, duration: u64) -> Result<Vec<Thread>, TrialError> {
    let mut groups: Vec<(Option<u32>, Vec<Outgoing>, Vec<Part>)> = Vec::new();
    for job in std::mem::take(jobs) {
        let port = &bench.ports()[job.port];
        if port.kernel.is_none() {
            jobs.push(job);
            continue;
        }
        let core = port.spec.tx_cores.get(job.part).copied();
        let fits = |(of, streams, parts): &&mut (Option<u32>, Vec<Outgoing>, Vec<Part>)| {
            let room = parts.len() < DIRECTIONS && streams.len() + job.streams.len() <= STREAMS;
            core.is_some() && *of == core && room && parts.iter().all(|p| p.port != job.port)
        };
        let part = |first| Part { port: job.port, first, streams: job.streams.len(), sent: job.sent.clone() };
        match groups.iter_mut().find(fits) {
            Some((_, streams, parts)) => {
                parts.push(part(streams.len()));
                streams.extend(job.streams);
            }
            None => {
                let parts = vec![part(0)];
                groups.push((core, job.streams, parts));
            }
        }
    }
    let mut threads = Vec::new();
    for port in 0..bench.ports().len() {
        let name = bench.ports()[port].spec.to_string();
        let of_kernel = |what| TrialError::Kernel { port: name.clone(), what };
        let (mut all, mut own) = (Vec::new(), Vec::new());
        for (core, streams, parts) in groups.extract_if(.., |(_, _, parts)| parts[0].port == port) {
            let (mut departures, feeds) = departures(&streams, tag, duration, core).map_err(of_kernel)?;
            for (direction, part) in parts.iter().enumerate() {
                let device = bench.kernel(part.port).map_or(0, XdpEngine::device);
                for stream in &mut departures.setup.stream[part.first..part.first + part.streams] {
                    (stream.device, stream.errors) = (device, direction as u32);
                }
            }
            own.push(Thread { port, at: all.len(), parts, feeds });
            all.push(departures);
        }
        let Some(engine) = &mut bench.ports()[port].kernel else { continue };
        engine.prepare(&all).map_err(|e| of_kernel(e.to_string()))?;
        for (sender, thread) in engine.senders().iter_mut().zip(&mut own) {
            thread.feeds.iter_mut().try_for_each(|feed| feed.fill(sender, 0)).map_err(of_kernel)?;
        }
        threads.append(&mut own);
    }
    Ok(threads)
}

/// How often the receiving threads of ports of the kernel's have gone to work so far.
pub(super) fn receiver_turns(bench: &mut Bench) -> u64 {
    (0..bench.ports().len()).filter_map(|port| bench.kernel(port)).map(XdpEngine::receiver_turns).sum()
}

impl Thread {
    /// Whether it is told departure times while it sends.
    pub(super) fn is_fed(&self) -> bool {
        !self.feeds.is_empty()
    }

    /// Begins to send at `start`, and sends nothing more from `end` on; says why it cannot, if so.
    pub(super) fn start(&self, bench: &mut Bench, start: u64, end: u64) -> Option<String> {
        let engine = bench.ports()[self.port].kernel.as_mut()?;
        let error = engine.senders().get_mut(self.at)?.start(start, end).err()?;
        self.parts.iter().for_each(|part| part.sent.over.store(true, Ordering::Release));
        Some(error.to_string())
    }
}

/// Tells the accounts of a thread how far it is, writes its next departure times, and ends it when it is over. Says why it failed, if
/// it did.
pub(super) fn follow(bench: &mut Bench, thread: &mut Thread) -> Option<String> {
    let Thread { port, at, parts, feeds } = thread;
    let sender = bench.ports()[*port].kernel.as_mut()?.senders().get_mut(*at)?;
    if parts.iter().all(|part| part.sent.over.load(Ordering::Acquire)) {
        return None;
    }
    let mut failure = sender.failure();
    let over = failure.is_some() || !sender.is_running() || sender.sent().map_or(true, |counts| counts.over);
    if over {
        sender.stop();
    }
    if let Ok(counts) = sender.sent() {
        let set = |to: Option<&AtomicU64>, n: u64| to.into_iter().for_each(|to| to.store(n, Ordering::Relaxed));
        for Part { first, streams, sent, .. } in &*parts {
            for (at, count) in counts.streams.iter().skip(*first).take(*streams).enumerate() {
                set(sent.frames.get(at), count.frames);
                set(sent.bytes.get(at), count.bytes);
            }
        }
        // Which direction they were of is not known.
        parts[0].sent.refused.store(counts.refused, Ordering::Relaxed);
        if !over {
            failure = feeds.iter_mut().find_map(|feed| feed.fill(sender, counts.streams[feed.stream()].frames).err());
        }
    }
    if over || failure.is_some() {
        sender.stop();
        for (direction, Part { sent, .. }) in parts.iter().enumerate() {
            let mut errors = histogram();
            for (ns, n) in sender.departure_errors(direction as u32).unwrap_or_default() {
                errors.saturating_record_n(ns, n);
            }
            *sent.errors.lock().unwrap_or_else(PoisonError::into_inner) = errors;
            sent.over.store(true, Ordering::Release);
        }
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
mod tests;
