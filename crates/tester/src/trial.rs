//! One trial: send what was asked, wait for what is under way, say what became of it and whether that can be believed.

mod change;
pub mod dry;
mod feed;
mod kernel;
pub(crate) mod outcome;
mod schedule;
mod settling;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use quiver_drivers::xdp_engine::account::FLOWS;
use quiver_wire::MacAddr;

use crate::bench::{Bench, BenchError, TURN};
use crate::disturbance::Machine;
use crate::maker::{MakeError, Maker, SignedFrames, Surroundings};
use crate::pace::Pace;
use crate::port::PortSpec;
use crate::profile::{Profile, Replay, Side, Signing, Size, Stream};
use crate::random::Random;
use crate::receiver::{Flow, Receiver};
use crate::report::{self, Counters, Head, RateChange, Report, SCHEMA, Sample};
use crate::sink::lock;
use crate::source::{Job, Outgoing, Sent};
use crate::stamped::{self, Found, TimesError};
use crate::stateful::table::{Tap, Task};
use crate::time::Time;
use crate::units::{Rate, RateError};

pub use change::Watch;

pub(crate) use change::Told;
use outcome::{Before, busy, finish};
use settling::Settling;

/// Time from giving out the jobs to the first departure.
const LEAD: u64 = 50_000_000;
/// How late a frame may still leave; later ones are unsent.
const GRACE: u64 = 10_000_000;
/// How long after its end a trial is given up if a thread does not come to its own.
const OVERRUN: u64 = 2_000_000_000;
/// How long a trial waits at most once as much has come as was sent: for copies, the two seconds of RFC 2544, 23.
const COPIES: Duration = Duration::from_secs(2);
/// Time between two samples of the course.
const SAMPLE: u64 = 100_000_000;

/// What a trial is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to send.
    pub profile: Profile,
    /// Load of each direction, for streams without a rate of their own.
    pub rate: Option<Rate>,
    /// Sizes in place of the profile's.
    pub size: Option<Size>,
    /// How long to send.
    pub duration: Duration,
    /// How long to wait afterwards, at most: where as much has come as was sent, two seconds are enough. Time in which the tester itself
    /// was kept from running does not count.
    pub settle: Duration,
    /// Line rate, bits a second, for loads in percent.
    pub line_rate: Option<f64>,
    /// The 99th percentile of departure errors that is still taken for good pacing.
    pub departure_limit: Duration,
    /// How long to wait for links and neighbours.
    pub patience: Duration,
    /// Seed of what the profile leaves to chance.
    pub seed: u64,
}

impl Plan {
    /// The usual settings.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            rate: None,
            size: None,
            duration: Duration::from_secs(10),
            settle: Duration::from_millis(500),
            line_rate: None,
            departure_limit: Duration::from_millis(1),
            patience: Duration::from_secs(10),
            seed: 1,
        }
    }

    /// Bytes of the largest frame, without FCS.
    pub fn max_frame(&self) -> usize {
        let own = self.profile.streams.iter().filter_map(|s| s.size.as_ref()).chain(&self.size);
        let made = own.filter_map(|s| s.all().last().copied()).max().map_or(1514, |n| usize::from(n) - 4);
        self.profile.streams.iter().filter_map(|s| s.pcap.as_ref()).map(Replay::longest).fold(made, usize::max)
    }
}

/// Why a trial did not run.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Ports or threads.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A stream.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// No rate at all.
    #[error("stream {0} has no rate of its own, and the trial has none either: give --rate")]
    NoRate(String),
    /// A phase, bursts or a stream before it, and no rate.
    #[error("stream {0} has a start, bursts or a stream before it, which needs a rate: give it one, or the trial another than max")]
    NeedsRate(String),
    /// A rate that gives nothing to send.
    #[error("at {rate} stream {stream} sends no frame in {seconds} s")]
    Nothing {
        /// The stream.
        stream: String,
        /// The rate.
        rate: String,
        /// The duration.
        seconds: f64,
    },
    /// A frame too large.
    #[error("stream {stream}: frames of {size} bytes (with FCS) do not fit port {port}: at most {most}")]
    TooLarge {
        /// The stream.
        stream: String,
        /// The port.
        port: String,
        /// Its frames.
        size: usize,
        /// What fits.
        most: usize,
    },
    /// The engine in the kernel cannot make it.
    #[error("port {port} cannot send {what}: another kind of port can, such as af-xdp:")]
    Kernel {
        /// The port.
        port: String,
        /// What.
        what: String,
    },
    /// A stream beside its port's gateway.
    #[error(
        "stream {stream} does not carry the tags of port {port}'s gateway (vlan={vlan}): give it these, or `ethernet: {{ dst: … }}', or the port `dst-mac=ADDRESS'"
    )]
    OtherVlan {
        /// The stream.
        stream: String,
        /// Its port.
        port: String,
        /// Tags of the port.
        vlan: String,
    },
    /// Frames cannot have times of the devices.
    #[error("streams with timestamps from port {port}: {error}")]
    Timestamps {
        /// The port that sends.
        port: String,
        /// Why not.
        error: TimesError,
    },
    /// Streams of a port that is not there.
    #[error("the profile has streams from the right, and there is one port only: give a second --port")]
    OnePort,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Progress {
    /// Seconds since its start.
    pub t_s: f64,
    /// Seconds that it sends for.
    pub of_s: f64,
    /// Frames sent so far.
    pub sent: u64,
    /// Frames received so far.
    pub received: u64,
}

/// A direction at work.
struct Direction {
    name: &'static str,
    tx: usize,
    rx: usize,
    streams: Vec<Stream>,
    /// Frames that each stream number is to send; stream s has the numbers s × threads to (s + 1) × threads.
    planned: Vec<Option<u64>>,
    /// Of each stream whether its frames leave evenly, at a rate and without bursts.
    even: Vec<bool>,
    /// Which frames of each stream have a signature.
    signed: Vec<SignedFrames>,
    threads: usize,
    sent: Vec<Arc<Sent>>,
    series: Vec<Sample>,
    last: (u64, u64),
    /// Streams with times of the devices.
    stamped: Option<Stamped>,
}

/// Streams of a direction that have times of the devices.
enum Stamped {
    /// They wait for the start.
    Ready(Box<stamped::Ready>),
    /// They are sent.
    Running(stamped::Running),
    /// They could not be.
    Failed(String),
}

impl Stamped {
    fn start(self, time: &Time, span: (u64, u64)) -> Self {
        match self {
            Self::Ready(ready) => stamped::Running::start(*ready, time.clone(), span).map_or_else(Self::Failed, Self::Running),
            other => other,
        }
    }

    fn stop(&self) {
        if let Self::Running(running) = self {
            running.stop();
        }
    }

    fn turns(&self) -> u64 {
        if let Self::Running(running) = self { running.turns() } else { 0 }
    }

    fn finish(self) -> Found {
        match self {
            Self::Running(running) => running.finish(),
            Self::Failed(why) => Found::failed(why),
            Self::Ready(_) => Found::default(),
        }
    }
}

impl Direction {
    fn sent(&self) -> u64 {
        self.sent.iter().map(|s| s.total()).sum()
    }

    fn received(&self, bench: &Bench) -> u64 {
        lock(&bench.inboxes()[self.rx]).receiver.as_ref().map_or(0, Receiver::received) + kernel::received(bench, self.rx)
    }

    fn sample(&mut self, bench: &Bench, t_s: f64) -> (u64, u64) {
        let now = (self.sent(), self.received(bench));
        let (sent, received) = (now.0 - self.last.0, now.1 - self.last.1);
        self.series.push(Sample { t_s, sent, received, lost: sent as i64 - received as i64 });
        self.last = now;
        now
    }
}

/// Frames a second of each stream; `None` for as many as can be.
fn rates(streams: &[Stream], plan: &Plan) -> Result<Vec<Option<f64>>, TrialError> {
    let size = |s: &Stream| match &s.pcap {
        Some(replay) => replay.mean(),
        None => plan.size.as_ref().or(s.size.as_ref()).map_or(64.0, Size::mean),
    };
    let shares: f64 = streams.iter().filter(|s| s.rate.is_none()).map(|s| s.share.unwrap_or(1.0)).sum();
    let mean: f64 = streams.iter().filter(|s| s.rate.is_none()).map(|s| s.share.unwrap_or(1.0) / shares * size(s)).sum();
    streams
        .iter()
        .map(|s| match (s.rate, plan.rate) {
            (Some(rate), _) => Ok(rate.pps(size(s), plan.line_rate)?),
            (None, Some(rate)) => Ok(rate.pps(mean, plan.line_rate)?.map(|pps| pps * s.share.unwrap_or(1.0) / shares)),
            (None, None) => Err(TrialError::NoRate(s.name.clone())),
        })
        .collect()
}

/// Runs a trial. `watch` is told ten times a second how far it is, and ends it by `false`.
///
/// # Errors
/// It could not begin. A trial that has begun always ends with a report, in bounded time.
pub fn run(bench: &mut Bench, plan: &Plan, watch: &mut dyn FnMut(&Progress) -> bool) -> Result<Report, TrialError> {
    run_watched(bench, plan, &mut Told(watch))
}

/// The same with somebody who may change its rate.
///
/// # Errors
/// See [`run`].
pub fn run_watched(bench: &mut Bench, plan: &Plan, watch: &mut dyn Watch) -> Result<Report, TrialError> {
    run_with(bench, plan, None, watch).map(|(report, _)| report)
}

/// The same with somebody that looks at the headers of what a port receives, and what that has found.
///
/// # Errors
/// See [`run`].
pub(crate) fn run_with(
    bench: &mut Bench,
    plan: &Plan,
    task: Option<(usize, Task)>,
    watch: &mut dyn Watch,
) -> Result<(Report, Option<Task>), TrialError> {
    let mut go_on = || watch.progress(&Progress::default());
    let sides = sides(plan, bench.ports().len() == 2)?;
    for (_, ports, streams) in &sides {
        let port = bench.ports()[ports.0].spec.to_string();
        stamped::switch_on(bench, *ports, streams).map_err(|error| TrialError::Timestamps { port, error })?;
    }
    bench.wait_for_links(plan.patience, &mut go_on)?;
    bench.probe()?;
    let hops = bench.next_hops(plan.patience, &mut go_on)?;
    let tag = bench.next_tag();
    let mut directions = Vec::new();
    let mut jobs = Vec::new();
    let mut base = 0_u16;
    let mut seeds = Random::new(plan.seed);
    for (name, ports, streams) in sides {
        let (direction, mut of) = prepare(bench, plan, name, ports, streams, hops[ports.0], (tag, base), &mut seeds)?;
        base += direction.planned.len() as u16;
        directions.push(direction);
        jobs.append(&mut of);
    }
    let at = task.as_ref().map(|(port, _)| *port);
    if let Some((port, task)) = task {
        let (ethernet, senders) = (bench.ports()[port].ethernet(), bench.ports()[1 - port].tx_threads.len());
        lock(&bench.inboxes()[port]).tap = Some(Tap::new(task, ethernet, tag).of_senders(senders as u16));
    }
    let in_kernel = kernel::threads(bench, &mut jobs, tag, plan.duration.as_nanos() as u64)?;
    let report = conduct(bench, plan, directions, (jobs, in_kernel), watch);
    let tap = at.and_then(|port| lock(&bench.inboxes()[port]).tap.take());
    Ok((report, tap.map(Tap::into_task)))
}

/// The directions in which something is sent: their names, the ports that send and receive, and the streams.
#[allow(clippy::type_complexity, reason = "taken apart by its one caller")]
fn sides(plan: &Plan, two: bool) -> Result<Vec<(&'static str, (usize, usize), Vec<Stream>)>, TrialError> {
    let mut sides = Vec::new();
    for (side, tx, name) in [(Side::Left, 0, "left-to-right"), (Side::Right, 1, "right-to-left")] {
        let streams: Vec<Stream> = plan.profile.streams_from(side).into_iter().map(|s| sized(s, plan)).collect();
        if tx == 1 && !two && !streams.is_empty() {
            return Err(TrialError::OnePort);
        }
        if !streams.is_empty() {
            sides.push((name, (tx, if two { 1 - tx } else { 0 }), streams));
        }
    }
    Ok(sides)
}

/// The stream with the trial's sizes in place of its own: streams with a rate of their own keep theirs.
fn sized(mut stream: Stream, plan: &Plan) -> Stream {
    if let Some(size) = plan.size.as_ref().filter(|_| stream.rate.is_none()) {
        stream.size = Some(size.clone());
    }
    stream
}

/// A job for a port's thread that waits for the start.
struct Waiting {
    port: usize,
    thread: usize,
    /// Which of the port's threads it is.
    part: usize,
    streams: Vec<Outgoing>,
    sent: Arc<Sent>,
}

#[allow(clippy::too_many_arguments, reason = "called once; a struct would only rename them")]
fn prepare(
    bench: &mut Bench,
    plan: &Plan,
    name: &'static str,
    (tx, rx): (usize, usize),
    streams: Vec<Stream>,
    hop: Option<MacAddr>,
    (tag, base): (u8, u16),
    seeds: &mut Random,
) -> Result<(Direction, Vec<Waiting>), TrialError> {
    let duration = plan.duration.as_nanos() as u64;
    let rates = rates(&streams, plan)?;
    let schedules = schedule::schedules(&streams, &rates)?;
    let port = &bench.ports()[tx];
    let (threads, ethernet, mac, most) = (port.tx_threads.clone(), port.ethernet(), port.mac, port.max_frame());
    let port_name = port.spec.to_string();
    check_tags(&bench.ports()[tx].spec, &streams)?;
    let mut outgoing: Vec<Vec<Outgoing>> = threads.iter().map(|_| Vec::new()).collect();
    let (mut planned, mut flows, mut signed, mut even) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut single = Vec::new();
    for (at, ((stream, pps), schedule)) in streams.iter().zip(&rates).zip(&schedules).enumerate() {
        // Frames with times are all made by the thread that takes the times.
        let parts = if stream.timestamps.is_some() { 1 } else { threads.len() };
        let share = stream.share.unwrap_or(1.0);
        let mut some = false;
        for (part, lane) in outgoing.iter_mut().enumerate() {
            let id = base + planned.len() as u16;
            let around = Surroundings { src: mac, dst: hop, ethernet, id, tag, seed: seeds.next_u64() };
            let maker = Maker::new(stream, None, &around)?.of_part(part, parts);
            if maker.largest() > most {
                let (size, most) = (maker.largest() + 4, most + 4);
                return Err(TrialError::TooLarge { stream: stream.name.clone(), port: port_name, size, most });
            }
            let seed = seeds.next_u64();
            let mut pace = match part < parts {
                true => schedule::pace(schedule.as_ref(), share, duration, (part, parts), seed),
                false => Pace::none(),
            };
            if part == 0 {
                signed.push(maker.signed());
                even.push(pace.is_even());
            }
            some |= pace.total() != Some(0);
            planned.push(pace.total());
            flows.push(Flow::new(pace.total().unwrap_or(u64::MAX)));
            if stream.timestamps.is_some() {
                let pace = std::mem::replace(&mut pace, Pace::none());
                single.extend((part == 0).then(|| stamped::Stream { at, id, maker: maker.clone(), pace }));
            }
            lane.push(Outgoing { maker, pace });
        }
        if let Some(pps) = pps.filter(|pps| stream.timestamps.is_some() && *pps > stamped::FASTEST) {
            let error = TimesError::Many(pps * plan.duration.as_secs_f64());
            return Err(TrialError::Timestamps { port: port_name, error });
        }
        if !some {
            let rate = pps.map_or("max".to_owned(), |pps| format!("{pps}pps"));
            return Err(TrialError::Nothing { stream: stream.name.clone(), rate, seconds: plan.duration.as_secs_f64() });
        }
    }
    let of_kernel = |what| TrialError::Kernel { port: port_name.clone(), what };
    let counted = streams.iter().any(|s| s.signing() != Signing::Full);
    let core = bench.ports()[rx].spec.rx_cores.first().copied();
    if let Some(engine) = &mut bench.ports()[rx].kernel {
        if planned.len() > FLOWS {
            return Err(of_kernel(format!("{} streams and threads of them (up to {FLOWS} can be received)", planned.len())));
        }
        let ends: Vec<u64> = planned.iter().map(|n| n.unwrap_or(u64::MAX)).collect();
        engine.expect(tag, base, &ends, core).map_err(|e| of_kernel(e.to_string()))?;
    }
    let ethernet = bench.ports()[rx].ethernet();
    lock(&bench.inboxes()[rx]).receiver = Some(Receiver::new(tag, base, flows, ethernet, counted));
    let mut sent: Vec<Arc<Sent>> = threads.iter().map(|_| Arc::new(Sent::new(streams.len()))).collect();
    let parts = threads.iter().zip(outgoing).zip(&sent).enumerate();
    let job = |(part, ((thread, streams), sent)): (usize, ((&usize, _), &Arc<Sent>))| Waiting {
        port: tx,
        thread: *thread,
        part,
        streams,
        sent: sent.clone(),
    };
    let jobs = parts.map(job).collect();
    let threads = threads.len();
    let clocks: Vec<_> = streams.iter().filter_map(|s| s.timestamps).collect();
    let stamped = if single.is_empty() {
        None
    } else {
        sent.push(Arc::new(Sent::new(streams.len())));
        let told = sent[threads].clone();
        let ready = stamped::Ready::new(bench, (tx, rx), tag, &clocks, single, told);
        let ready = ready.map_err(|error| TrialError::Timestamps { port: port_name, error })?;
        Some(Stamped::Ready(Box::new(ready)))
    };
    let (series, last) = (Vec::new(), (0, 0));
    Ok((Direction { name, tx, rx, streams, planned, even, signed, threads, sent, series, last, stamped }, jobs))
}

/// Sees whether the gateway that was asked for is that of all streams which need one.
fn check_tags(port: &PortSpec, streams: &[Stream]) -> Result<(), TrialError> {
    let asked = !port.vlan.is_empty() && port.gateway.is_some() && port.dst_mac.is_none();
    let has_own = |s: &Stream| s.ethernet.dst.is_some() || s.pcap.as_ref().is_some_and(Replay::ethernet);
    match streams.iter().find(|s| asked && !has_own(s) && !port.vlan.are_those_of(s)) {
        None => Ok(()),
        Some(s) => {
            let (stream, port, vlan) = (s.name.clone(), port.to_string(), port.vlan.to_string());
            Err(TrialError::OtherVlan { stream, port, vlan })
        }
    }
}

fn conduct(
    bench: &mut Bench,
    plan: &Plan,
    mut directions: Vec<Direction>,
    (jobs, mut in_kernel): (Vec<Waiting>, Vec<kernel::Thread>),
    watch: &mut dyn Watch,
) -> Report {
    let started = SystemTime::now();
    let duration = plan.duration.as_nanos() as u64;
    bench.poll(true);
    let before = Before::now(bench);
    let (machine, receivers) = (Machine::now(), kernel::receiver_turns(bench));
    let start = bench.time().now() + LEAD;
    let paced = plan.rate != Some(Rate::Max);
    let end = start + duration + if paced { GRACE } else { 0 };
    for Waiting { port, thread, streams, sent, .. } in jobs {
        bench.start(port, thread, Job { streams, start, end, sent });
    }
    for direction in &mut directions {
        direction.stamped = direction.stamped.take().map(|stamped| stamped.start(bench.time(), (start, end)));
    }
    let mut failed: Vec<String> = in_kernel.iter().filter_map(|thread| thread.start(bench, start, end)).collect();
    let mut next = start + SAMPLE;
    let (mut aborted, mut lost_link, mut cut) = (None, Vec::new(), None);
    let mut settling: Option<Settling> = None;
    let (mut sends, mut all_came) = (true, false);
    // What others are told ahead of time must not wait, and a time that somebody sets passes as they like.
    let attended = in_kernel.iter().any(kernel::Thread::is_fed) || !matches!(bench.time(), Time::Real(_));
    let (mut turns, mut disturbance) = (0, None);
    // The kernel's receiving threads are ours as well, and come before all others on their core.
    let since = |bench: &mut Bench, turns| {
        let received = kernel::receiver_turns(bench).saturating_sub(receivers);
        machine.since().besides(turns + received)
    };
    let mut rates = Vec::new();
    loop {
        // This thread may share its core with one that sends: each turn takes it away.
        let now = bench.time().now();
        let rest = next.min(start + duration).saturating_sub(now);
        bench.turn_of(if sends && !attended { TURN.max(Duration::from_nanos(rest)) } else { TURN });
        turns += u64::from(sends);
        failed.extend(in_kernel.iter_mut().filter_map(|thread| kernel::follow(bench, thread)));
        let now = bench.time().now();
        if now >= next {
            let t_s = (next - start) as f64 / 1e9;
            let (mut sent, mut received) = (0, 0);
            for direction in &mut directions {
                let sums = direction.sample(bench, t_s);
                (sent, received) = (sent + sums.0, received + sums.1);
            }
            next += SAMPLE * ((now - next) / SAMPLE + 1);
            all_came = received >= sent;
            let progress = Progress { t_s, of_s: plan.duration.as_secs_f64(), sent, received };
            if !watch.progress(&progress) && aborted.is_none() {
                aborted = Some(now);
                stop(bench, &directions);
            }
            if let Some(rate) = watch.rate() {
                let outcome = if sends { change::change(bench, plan, &directions, rate) } else { Err("all is sent".to_owned()) };
                if outcome.is_ok() {
                    rates.push(RateChange { t_s: (now - start) as f64 / 1e9, rate: rate.to_string() });
                }
                watch.changed(outcome);
            }
            for port in bench.ports() {
                let name = port.spec.to_string();
                if !port.is_up() && !lost_link.contains(&name) {
                    lost_link.push(name);
                }
            }
            if !lost_link.is_empty() && sends {
                cut.get_or_insert(now);
                stop(bench, &directions);
            }
        }
        if sends && directions.iter().all(|d| d.sent.iter().all(|s| s.over.load(Ordering::Acquire))) {
            sends = false;
            let of_stamped: u64 = directions.iter().filter_map(|d| d.stamped.as_ref()).map(Stamped::turns).sum();
            disturbance = Some(since(bench, turns + of_stamped));
            settling = Some(Settling::begin(Instant::now()));
        }
        // Threads end by themselves; one that is kept from running must not hold up everything.
        if sends && now > end + OVERRUN {
            stop(bench, &directions);
            if now > end + 2 * OVERRUN {
                break;
            }
        }
        let settle = if all_came { plan.settle.min(COPIES) } else { plan.settle };
        if settling.as_mut().is_some_and(|settling| settling.turn(Instant::now()) >= settle) {
            break;
        }
    }
    let end_s = (bench.time().now() - start) as f64 / 1e9;
    directions.iter_mut().for_each(|d| {
        d.sample(bench, end_s);
    });
    bench.poll(false);
    change::settle(&mut directions);
    let after = Before::now(bench);
    // Whatever ended it before its time: rates are those of the time in which it sent.
    let cut: Option<u64> = [aborted, cut].into_iter().flatten().min();
    let sent_s = cut.map_or(plan.duration.as_secs_f64(), |t| t.saturating_sub(start) as f64 / 1e9).max(1e-9);
    let mut reasons: Vec<String> = lost_link.iter().map(|p| format!("port {p}: its link went down during the trial")).collect();
    reasons.append(&mut failed);
    if cut.is_some() {
        reasons.push(format!("ended after {sent_s:.1} of {} s", plan.duration.as_secs_f64()));
    }
    let mut totals = Counters::default();
    let mut reports = Vec::new();
    for direction in directions {
        let report = finish(bench, direction, sent_s, plan, (&before, &after), &mut reasons);
        totals.add(&report.counters);
        reports.push(report);
    }
    Report {
        head: Head::new(
            bench,
            report::Course {
                schema: SCHEMA,
                started,
                profile: &plan.profile.name,
                duration_s: sent_s,
                reasons,
                aborted: aborted.is_some(),
            },
        ),
        settle_s: plan.settle.as_secs_f64(),
        directions: reports,
        totals,
        cpu: busy(bench, &before, &after),
        machine: disturbance.unwrap_or_else(|| since(bench, turns)),
        rates,
        self_test: None,
    }
}

/// Has everything that sends end.
fn stop(bench: &mut Bench, directions: &[Direction]) {
    bench.stop();
    directions.iter().filter_map(|d| d.stamped.as_ref()).for_each(Stamped::stop);
}

/// A profile of one plain stream in both directions, for the self-test.
pub fn plain_profile(size: u16) -> Profile {
    let stream = Stream {
        size: Some(Size::Fixed(size)),
        ipv4: Some(crate::profile::Ip { src: None, dst: None, ttl: 64, dscp: 0 }),
        udp: Some(crate::profile::Ports::default()),
        ..Stream::named("plain")
    };
    Profile { schema: None, name: "plain".to_owned(), description: None, bidirectional: true, streams: vec![stream] }
}

/// A file name that nobody else uses, for a socket of our own.
pub fn own_socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("quiver-tester-{}-{name}.sock", std::process::id()))
}
