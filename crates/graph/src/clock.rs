//! One clock: nanoseconds of CLOCK_MONOTONIC, derived from the processor's cycle counter.
//!
//! Reading the counter costs some 20 cycles and no call, so every loop of a worker can afford it. The kernel's clock runs at a rate that
//! is neither known exactly nor constant (NTP steers it), so the main thread calls [`Clock::discipline`] about ten times
//! a second; it compares both and publishes a new [piecewise linear function](timeline) from ticks to nanoseconds.
//!
//! The pieces join without a gap, and a new one starts a millisecond after it is published. So all threads evaluate the
//! same function, and time never runs backwards from one thread to another. Two exceptions: a counter that jumps, and
//! a clock that is found more than ten seconds ahead of the kernel (a virtual machine was moved); both are counted.
//!
//! Where the counter cannot be trusted (not invariant, or given up by the kernel), the clock reads the kernel's clock
//! each time, and a tick is a nanosecond.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod discipline;
mod source;
mod timeline;

pub use discipline::{Discipline, Outcome, Sample};
pub use source::{Facts, Source, read_counter};
pub use timeline::{Line, Timeline};

use source::read_counter_in_order;
use timeline::Published;

/// How long [`Clock::new`] watches both clocks for a first rate.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Pairs of readings per comparison; the one with the least time between its two counter readings is taken.
const READINGS: usize = 12;

/// A thread's view of the clock: it keeps the timeline, and only looks whether that has been replaced.
pub(crate) struct View {
    clock: Arc<Clock>,
    version: u64,
    timeline: Timeline,
}

impl View {
    pub(crate) fn new(clock: Arc<Clock>) -> Self {
        let (version, timeline) = clock.published.load_versioned();
        Self { clock, version, timeline }
    }

    /// [`Clock::now`], and [`Clock::ticks`] of that moment.
    #[inline(always)]
    pub(crate) fn now_and_ticks(&mut self) -> (u64, u64) {
        if self.clock.source == Source::Counter {
            let ticks = read_counter_in_order();
            if self.clock.published.version() == self.version && ticks >= self.timeline.start() {
                return (self.timeline.at(ticks), ticks);
            }
        }
        self.look_again()
    }

    #[inline(never)]
    fn look_again(&mut self) -> (u64, u64) {
        (self.version, self.timeline) = self.clock.published.load_versioned();
        let ticks = self.clock.ticks();
        (self.clock.now(), ticks)
    }

    #[inline(always)]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The clock of the process, shared by all threads.
pub struct Clock {
    source: Source,
    published: Published,
    /// Added to timer time only.
    adjustment: AtomicI64,
    discipline: Mutex<Discipline>,
}

impl Clock {
    /// The clock of this machine. Takes about 10 ms where it uses the cycle counter.
    pub fn new() -> Arc<Self> {
        Self::with_facts(&Facts::of_this_machine())
    }

    /// A clock that decides about the cycle counter by the given facts.
    pub fn with_facts(facts: &Facts) -> Arc<Self> {
        let source = facts.source();
        let first = compare(source);
        if source == Source::Counter {
            std::thread::sleep(FIRST_LOOK);
        }
        let discipline = Discipline::new(first, compare(source));
        Arc::new(Self {
            source,
            published: Published::new(discipline.timeline()),
            adjustment: AtomicI64::new(0),
            discipline: Mutex::new(discipline),
        })
    }

    /// What the clock is derived from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The raw count of "clocks": cycles of the counter, or nanoseconds where there is no counter to trust.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.source.ticks()
    }

    /// Nanoseconds of CLOCK_MONOTONIC. Not earlier than any time that this thread knows another to have read.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.source == Source::Kernel {
            return source::kernel_ns();
        }
        // A thread that was away between its two readings may hold ticks that are older than the timeline it then
        // loads: it reads again. A counter that fell back would do so forever, hence the bound.
        for _ in 0..4 {
            let ticks = read_counter_in_order();
            let timeline = self.published.load();
            if ticks >= timeline.start() {
                return timeline.at(ticks);
            }
        }
        self.ns_of(self.source.ticks())
    }

    /// The time at which the counter showed `ticks`. Exact for the last fraction of a second, extrapolated before.
    pub fn ns_of(&self, ticks: u64) -> u64 {
        match self.source {
            Source::Kernel => ticks,
            Source::Counter => self.published.load().at(ticks),
        }
    }

    /// The rate of [`ticks`](Self::ticks), as measured now.
    pub fn ticks_per_second(&self) -> u64 {
        match self.source {
            Source::Kernel => 1_000_000_000,
            Source::Counter => self.published.load().ticks_per_second(),
        }
    }

    /// Compares the clock with the kernel's and corrects it. To be called by the main thread every 100 ms or so; a call
    /// less than a few milliseconds after the last one does nothing.
    pub fn discipline(&self) -> Outcome {
        match self.source {
            Source::Kernel => Outcome::default(),
            Source::Counter => self.correct(compare(self.source)),
        }
    }

    fn correct(&self, sample: Sample) -> Outcome {
        let mut discipline = self.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let outcome = discipline.update(sample, self.source.ticks());
            let Some(deadline) = discipline.deadline() else {
                return outcome;
            };
            // Published too late, the new piece would contradict what others have read meanwhile.
            if self.source.ticks() < deadline {
                self.published.store(discipline.timeline());
                discipline.accept();
                return outcome;
            }
        }
    }

    /// Time for timers: [`now`](Self::now) with all adjustments.
    pub fn timer_now(&self) -> u64 {
        self.now().saturating_add_signed(self.adjustment.load(Ordering::Relaxed))
    }

    /// Shifts timer time by `ns`, in addition to earlier shifts (`set clock adjust`).
    pub fn adjust(&self, ns: i64) {
        let add = |old: i64| Some(old.saturating_add(ns));
        // The closure never refuses.
        let _ = self.adjustment.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// By how much timer time is ahead of [`now`](Self::now), in nanoseconds.
    pub fn adjustment(&self) -> i64 {
        self.adjustment.load(Ordering::Relaxed)
    }
}

/// Reads counter, kernel, counter several times and keeps the tightest.
fn compare(source: Source) -> Sample {
    let read = |_| {
        let before = source.ticks();
        let ns = source::kernel_ns();
        let width = source.ticks().wrapping_sub(before);
        (width, before.wrapping_add(width / 2), ns)
    };
    let best = (0..READINGS).map(read).min().unwrap_or_default();
    let (width, ticks, ns) = best;
    Sample { ticks, ns, width }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    #[test]
    fn the_clock_follows_the_kernels() {
        let (clock, start) = (Clock::new(), source::kernel_ns());
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            clock.discipline();
            let (before, now, after) = (source::kernel_ns(), clock.now(), source::kernel_ns());
            // Generous: the machine may be busy, or stand still. What the servo achieves is tested with simulated clocks.
            let off = 1_000_000 + (before - start) / 1000;
            assert!(now + off > before && now < after + off);
        }
        assert!(clock.ticks_per_second() > 1_000_000);
    }

    #[test]
    fn without_a_trusted_counter_the_kernels_clock_is_read() {
        let facts = Facts { invariant: false, clocksource: Some("hpet".into()) };
        let clock = Clock::with_facts(&facts);
        assert_eq!(clock.source(), Source::Kernel);
        assert_eq!(clock.ticks_per_second(), 1_000_000_000);
        assert_eq!(clock.ns_of(17), 17);
        let (before, now) = (source::kernel_ns(), clock.now());
        assert!(before <= now && now <= clock.ticks());
        assert_eq!(clock.discipline(), Outcome::default());
    }

    #[test]
    fn an_adjustment_moves_timer_time_only() {
        let clock = Clock::new();
        clock.adjust(3_600_000_000_000);
        clock.adjust(-1_600_000_000_000);
        assert_eq!(clock.adjustment(), 2_000_000_000_000);
        let (before, timer, after) = (clock.now(), clock.timer_now(), clock.now());
        assert!((before..=after).contains(&(timer - 2_000_000_000_000)));
        clock.adjust(i64::MIN);
        clock.adjust(i64::MIN);
        assert_eq!(clock.timer_now(), 0);
    }

    /// Time is compared across threads while the main thread corrects it as roughly as it may.
    #[test]
    fn time_never_runs_backwards_from_one_thread_to_another() {
        let clock = Clock::new();
        if clock.source() == Source::Kernel {
            return;
        }
        // Time enough to publish also on a busy machine.
        let lead = clock.ticks_per_second() / 50;
        clock.discipline.lock().unwrap().set_lead(lead);
        let (latest, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let seen = latest.load(Ordering::SeqCst);
                        let now = clock.now();
                        if now < seen {
                            stop.store(true, Ordering::Relaxed);
                            panic!("{now} after {seen}");
                        }
                        latest.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
            for round in 0..12 {
                std::thread::sleep(Duration::from_millis(25));
                let mut sample = compare(clock.source);
                sample.ns = sample.ns.wrapping_add_signed([400_000, -400_000, 5_000_000, 0][round % 4]);
                clock.correct(sample);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
