//! The node that sends: one instance a thread, with a lane for each port that the thread sends on.
//!
//! ```text
//!   pace: what is due? ──► a batch: buffers, copies of templates, fields, signatures with the time now ──► the device's queue
//!                                    ▲                                                                       │
//!                                    └──── what the device had no room for: stamped anew, offered again ◄────┘
//! ```
//!
//! Sequence numbers are given once, and what the device does not take is kept: a gap in the numbers at the receiver is a frame
//! that was sent and lost. Times are read once for a batch of at most [`BATCH`] frames.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;
use quiver_graph::{Frame, Idle, IfIndex, InputNode, NoNext, NodeCx, TxDrop, TxQueue};

use crate::latency::histogram;
use crate::maker::Maker;
use crate::pace::Pace;
use crate::signature::Stamp;
use crate::tcp;
use crate::time::Time;

/// Frames that share a departure time at most: some 2 µs of work.
pub const BATCH: usize = 64;
/// Bytes of the shortest Ethernet frame, without FCS.
const SHORTEST: usize = 60;
/// Batches of one turn: the receiver on the same thread must have its turn.
const BATCHES: usize = 4;

/// A stream that a lane sends.
pub struct Outgoing {
    /// Makes its frames.
    pub maker: Maker,
    /// When they are due.
    pub pace: Pace,
}

/// What a lane tells about a trial; on lines of its own, because its thread writes here.
#[derive(Debug)]
#[repr(align(128))]
pub struct Sent {
    /// Frames sent, by stream.
    pub frames: Vec<AtomicU64>,
    /// Bytes sent with FCS, by stream.
    pub bytes: Vec<AtomicU64>,
    /// Frames to be sent in all, by stream, where a rate was changed; else the largest number.
    pub planned: Vec<AtomicU64>,
    /// Frames that the device refused for good.
    pub refused: AtomicU64,
    /// Nothing more will be sent.
    pub over: AtomicBool,
    /// When the last frame was sent, ns.
    pub last: AtomicU64,
    /// Departure errors; filled in at the end.
    pub errors: Mutex<Histogram<u64>>,
}

impl Sent {
    /// For so many streams.
    pub fn new(streams: usize) -> Self {
        let zeros = || (0..streams).map(|_| AtomicU64::new(0)).collect();
        Self {
            frames: zeros(),
            bytes: zeros(),
            planned: (0..streams).map(|_| AtomicU64::new(u64::MAX)).collect(),
            refused: AtomicU64::new(0),
            over: AtomicBool::new(false),
            last: AtomicU64::new(0),
            errors: Mutex::new(histogram()),
        }
    }

    /// Frames of all streams.
    pub fn total(&self) -> u64 {
        self.frames.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

/// A trial's part of a lane.
pub struct Job {
    /// What to send.
    pub streams: Vec<Outgoing>,
    /// When to begin and when to send nothing more, ns.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// Where to tell.
    pub sent: Arc<Sent>,
}

/// A frame that waits in a batch.
#[derive(Clone, Copy, Default)]
struct Waiting {
    stream: u16,
    /// Bytes without FCS.
    len: u32,
    due: u64,
}

/// A job at work.
struct Running {
    job: Job,
    errors: Histogram<u64>,
}

/// A port that a thread sends on.
struct Lane {
    interface: IfIndex,
    queue: Box<dyn TxQueue>,
    running: Option<Running>,
    /// Frames that the device had no room for, and what they are.
    held: Option<Box<Frame>>,
    waiting: Vec<Waiting>,
    /// Bytes without FCS to those with it (and with the link layer that an IP port lacks).
    overhead: u64,
    /// Whose packets it carries, if anybody's, and what stands before them.
    carries: Option<(tcp::Shared, tcp::End, Vec<u8>)>,
    /// Packets of theirs that the device had no room for.
    kept: Option<Box<Frame>>,
}

/// The node.
pub struct Source {
    time: Time,
    lanes: Vec<Lane>,
}

impl Source {
    /// Without lanes.
    pub fn new(time: Time) -> Self {
        Self { time, lanes: Vec::new() }
    }

    /// Adds a port.
    pub fn add_lane(&mut self, interface: IfIndex, queue: Box<dyn TxQueue>, ethernet: bool) {
        let overhead = if ethernet { 4 } else { 18 };
        let waiting = Vec::with_capacity(BATCH);
        self.lanes.push(Lane { interface, queue, running: None, held: None, waiting, overhead, carries: None, kept: None });
    }

    /// Has a port's lane carry the packets of an end of connections, each behind `head`; `None` for nobody's any more.
    pub fn carry(&mut self, interface: IfIndex, what: Option<(tcp::Shared, tcp::End, Vec<u8>)>) {
        if let Some(lane) = self.lanes.iter_mut().find(|l| l.interface == interface) {
            lane.carries = what;
        }
    }

    /// Begins a job on a port's lane; `false` where this thread has none.
    pub fn start(&mut self, interface: IfIndex, job: Job) -> bool {
        let Some(lane) = self.lanes.iter_mut().find(|l| l.interface == interface) else { return false };
        lane.running = Some(Running { job, errors: histogram() });
        true
    }

    /// Has streams of a port's job go on with other gaps between their frames, ns, to the end of a trial of `duration` ns.
    pub fn change(&mut self, interface: IfIndex, gaps: &[Option<f64>], duration: u64) {
        let Some(running) = self.lanes.iter_mut().find(|l| l.interface == interface).and_then(|l| l.running.as_mut()) else {
            return;
        };
        for ((stream, gap), planned) in running.job.streams.iter_mut().zip(gaps).zip(&running.job.sent.planned) {
            if let Some(gap) = gap {
                planned.store(stream.pace.change(*gap, duration), Ordering::Release);
            }
        }
    }

    /// Ends all jobs with their next turn.
    pub fn stop(&mut self) {
        for running in self.lanes.iter_mut().filter_map(|l| l.running.as_mut()) {
            running.job.end = 0;
            running.job.start = 0;
        }
    }
}

impl Running {
    fn finish(self) {
        *self.job.sent.errors.lock().unwrap_or_else(PoisonError::into_inner) = self.errors;
        self.job.sent.over.store(true, Ordering::Release);
    }

    /// The stream whose turn it is, and until when it stays so. Streams without a rate fill what those with one leave.
    #[inline(always)]
    fn next(&self, elapsed: u64) -> Option<(usize, u64)> {
        let paced = self.first(false).filter(|(_, due, _)| *due <= elapsed);
        let (at, _, other) = paced.or_else(|| self.first(true))?;
        Some((at, if paced.is_some() { other.min(elapsed) } else { other }))
    }

    /// The stream of a kind with the earliest departure, when that is, and when that of the next one is.
    #[inline(always)]
    fn first(&self, max: bool) -> Option<(usize, u64, u64)> {
        let (mut first, mut other): (Option<(usize, u64)>, u64) = (None, u64::MAX);
        for (i, stream) in self.job.streams.iter().enumerate() {
            let Some(due) = stream.pace.due().filter(|_| stream.pace.is_max() == max) else { continue };
            match first {
                Some((_, earliest)) if due >= earliest => other = other.min(due),
                _ => {
                    other = first.map_or(other, |(_, due)| due);
                    first = Some((i, due));
                }
            }
        }
        first.map(|(i, due)| (i, due, other))
    }

    /// Notes that the first `n` of those waiting departed at `now`.
    fn departed(&mut self, waiting: &[Waiting], now: u64) {
        for group in waiting.chunks(8) {
            let middle = group[group.len() / 2];
            // What has no rate is never late.
            if self.job.streams.get(usize::from(middle.stream)).is_none_or(|s| s.pace.is_max()) {
                continue;
            }
            // Neighbours differ by less than the histogram's digits.
            let middle = middle.due;
            self.errors.saturating_record_n(now.saturating_sub(self.job.start.saturating_add(middle)), group.len() as u64);
        }
    }
}

impl Lane {
    /// Sends what is due; returns the frames sent.
    #[inline(always)]
    fn run(&mut self, cx: &mut NodeCx<'_>, time: &Time) -> usize {
        let Some(running) = &mut self.running else { return 0 };
        let mut sent = 0;
        for _ in 0..BATCHES {
            let now = time.now();
            if now < running.job.start {
                break;
            }
            let mut frame = match self.held.take() {
                Some(frame) => frame,
                None => cx.new_frame(),
            };
            if now >= running.job.end {
                self.held = Some(frame);
                self.end(cx);
                break;
            }
            let again = frame.len();
            for (i, waiting) in self.waiting.iter().enumerate().take(again) {
                if let Some(stream) = running.job.streams.get(usize::from(waiting.stream)) {
                    stream.maker.restamp(cx.packet(&mut frame, i).bytes_mut(), now);
                }
            }
            fill(running, cx, &mut frame, &mut self.waiting, self.interface, now);
            if frame.is_empty() {
                cx.recycle(frame);
                if running.job.streams.iter().all(|s| s.pace.is_over()) {
                    self.end(cx);
                }
                break;
            }
            let before = frame.len();
            let result = cx.transmit(&mut frame, self.interface, &mut *self.queue);
            let gone = before - frame.len();
            account(running, &self.waiting[..gone], self.overhead, result.refused);
            running.departed(&self.waiting[..gone], now);
            running.job.sent.last.store(now, Ordering::Relaxed);
            self.waiting.drain(..gone);
            sent += gone;
            let full = !frame.is_empty();
            if full {
                self.held = Some(frame);
            } else {
                cx.recycle(frame);
            }
            if full || before < BATCH {
                break;
            }
        }
        sent
    }

    /// Has connections go on, and sends what their end has to say; returns the frames sent.
    #[inline(never)]
    fn carry(&mut self, cx: &mut NodeCx<'_>, now: u64) -> usize {
        let Some((engine, end, head)) = &self.carries else { return 0 };
        let mut engine = tcp::engine::lock(engine);
        engine.turn(now);
        let outgoing = engine.outgoing(*end);
        if outgoing.is_empty() && self.kept.is_none() {
            return 0;
        }
        let mut frame = self.kept.take().unwrap_or_else(|| cx.new_frame());
        let wanted = BATCH.saturating_sub(frame.len());
        cx.push_many(&mut frame, wanted, self.interface, |_, area| {
            let packet = outgoing.pop_front()?;
            let len = head.len() + packet.len();
            let padded = if head.is_empty() { len } else { len.max(SHORTEST) };
            // The buffers are as long as the profile's longest frame.
            let area = area.get_mut(..padded)?;
            area[..head.len()].write_copy_of_slice(head);
            area[head.len()..len].write_copy_of_slice(&packet);
            area[len..].iter_mut().for_each(|byte| {
                byte.write(0);
            });
            Some(padded)
        });
        drop(engine);
        let before = frame.len();
        cx.transmit(&mut frame, self.interface, &mut *self.queue);
        let sent = before - frame.len();
        if frame.is_empty() {
            cx.recycle(frame);
        } else {
            self.kept = Some(frame);
        }
        sent
    }

    /// Drops packets of connections that are no longer carried.
    fn forget(&mut self, cx: &mut NodeCx<'_>) {
        if let Some(mut frame) = self.kept.take() {
            cx.consume_all(&mut frame, self.interface);
            cx.recycle(frame);
        }
    }

    /// The trial is over: what waits is not sent.
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.waiting.clear();
        if let Some(mut frame) = self.held.take() {
            // Made but never sent: nobody counts them.
            cx.consume_all(&mut frame, self.interface);
            cx.recycle(frame);
        }
        if let Some(running) = self.running.take() {
            running.finish();
        }
    }
}

/// Fills a batch with what is due.
#[inline(always)]
fn fill(running: &mut Running, cx: &mut NodeCx<'_>, frame: &mut Frame, waiting: &mut Vec<Waiting>, interface: IfIndex, now: u64) {
    let elapsed = now - running.job.start;
    let stamp = Stamp::new(now);
    while frame.len() < BATCH {
        let Some((at, last)) = running.next(elapsed) else { return };
        let Outgoing { maker, pace } = &mut running.job.streams[at];
        let wanted = BATCH - frame.len();
        let stream = at as u16;
        let n = if pace.is_max() {
            let (n, _) = cx.push_many(frame, pace.turns(last, wanted), interface, |_, area| {
                let len = maker.make(area, &stamp)?;
                waiting.push(Waiting { stream, len: len as u32, due: elapsed });
                Some(len)
            });
            pace.depart_turns(n);
            n
        } else {
            let (n, _) = cx.push_many(frame, wanted, interface, |_, area| {
                // At least the one that was found departs; further ones while it is no other stream's turn.
                let due = pace.due().filter(|due| *due <= last)?;
                let len = maker.make(area, &stamp)?;
                pace.depart();
                waiting.push(Waiting { stream, len: len as u32, due });
                Some(len)
            });
            n
        };
        if n == 0 {
            // No buffer: later.
            return;
        }
    }
}

/// Counts frames that are gone.
#[inline(always)]
fn account(running: &Running, gone: &[Waiting], overhead: u64, refused: usize) {
    let sent = &running.job.sent;
    let add = |to: &AtomicU64, n: u64| to.store(to.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    let mut refused = refused as u64;
    for run in gone.chunk_by(|a, b| a.stream == b.stream) {
        let (at, n) = (usize::from(run[0].stream), run.len() as u64);
        // Which ones a device refused is not known; a trial that had such is not valid.
        let not_sent = refused.min(n);
        add(&sent.frames[at], n - not_sent);
        add(&sent.bytes[at], run.iter().map(|w| u64::from(w.len)).sum::<u64>() + overhead * n);
        add(&sent.refused, not_sent);
        refused -= not_sent;
    }
}

impl InputNode for Source {
    type Next = NoNext;
    type Drop = TxDrop;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut sent = 0;
        for lane in &mut self.lanes {
            sent += match lane.carries {
                None => {
                    lane.forget(cx);
                    lane.run(cx, &self.time)
                }
                Some(_) => lane.carry(cx, self.time.now()),
            };
        }
        sent
    }

    fn arm(&mut self, _now: u64) -> Idle {
        if self.lanes.iter().any(|l| l.running.is_some() || l.carries.is_some()) { Idle::Busy } else { Idle::Sleep { until: None } }
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        self.lanes.iter_mut().for_each(|lane| {
            lane.forget(cx);
            lane.end(cx);
        });
    }
}
