//! The function from ticks to nanoseconds: straight lines, the last of them without end.
//!
//! ```text
//!  ns                                   ____ coast: the rate of the kernel's clock
//!                             ____-----
//!                       ___--            slew: a little faster or slower, to remove the error
//!              ____-----
//!   ____------                           the two lines in force when this timeline was published
//!  -----------+----------+---+---------+------------> ticks
//!                     published starts
//! ```
//!
//! A timeline repeats the lines of its predecessor up to its own start, so who still holds old ticks gets the same
//! answer as before.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Fraction bits of a rate. With 12 bits before the point, counters down to 250 kHz are covered; the resolution is 2e-16.
pub(super) const FRACTION_BITS: u32 = 52;
const LINES: usize = 4;
const WORDS: usize = LINES * 3;

/// From `start` ticks on, which is at `ns`, time advances by `rate` nanoseconds a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Ticks at which the line begins.
    pub start: u64,
    /// Nanoseconds at that point.
    pub ns: u64,
    /// Nanoseconds a tick, in units of 2^-52.
    pub rate: u64,
}

impl Line {
    /// The time at `ticks`, also before the line's start.
    #[inline]
    pub fn at(&self, ticks: u64) -> u64 {
        let span = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> FRACTION_BITS) as u64;
        match ticks.checked_sub(self.start) {
            Some(after) => self.ns.wrapping_add(span(after)),
            None => self.ns.saturating_sub(span(self.start - ticks)),
        }
    }
}

/// Four lines in the order of time; each ends where the next starts, and where that is not later, it is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub(super) lines: [Line; LINES],
}

impl Timeline {
    /// One line forever.
    pub(super) fn straight(line: Line) -> Self {
        Self { lines: [line; LINES] }
    }

    /// Ticks before which this timeline only extrapolates.
    #[inline]
    pub fn start(&self) -> u64 {
        self.lines[0].start
    }

    /// The time at `ticks`.
    #[inline]
    pub fn at(&self, ticks: u64) -> u64 {
        self.line(ticks).at(ticks)
    }

    /// The line in force at `ticks`.
    #[inline]
    pub(super) fn line(&self, ticks: u64) -> &Line {
        let later = self.lines[1..].iter().rev();
        later.into_iter().find(|line| ticks >= line.start).unwrap_or(&self.lines[0])
    }

    /// The measured rate of the counter.
    pub fn ticks_per_second(&self) -> u64 {
        let rate = u128::from(self.lines[LINES - 1].rate.max(1));
        let second = 1_000_000_000u128 << FRACTION_BITS;
        u64::try_from((second + rate / 2) / rate).unwrap_or(u64::MAX)
    }
}

/// A timeline that one thread replaces while others read it.
///
/// Two slots and a version: the reader uses slot `version % 2`, the writer fills the other one and then raises the
/// version. A reader never waits for a writer that was interrupted half way; it reads again only if a whole
/// replacement has happened meanwhile.
pub(super) struct Published {
    version: AtomicU64,
    slots: [Slot; 2],
}

#[repr(align(128))]
#[derive(Default)]
struct Slot([AtomicU64; WORDS]);

impl Published {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let published = Self { version: AtomicU64::new(1), slots: Default::default() };
        published.store(timeline);
        published
    }

    pub(super) fn load(&self) -> Timeline {
        self.load_versioned().1
    }

    /// The version, to be compared with that of a copy.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The timeline, and its version.
    pub(super) fn load_versioned(&self) -> (u64, Timeline) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let slot = &self.slots[(version % 2) as usize].0;
            let mut timeline = Timeline::default();
            for (line, words) in timeline.lines.iter_mut().zip(slot.chunks_exact(3)) {
                let word = |i: usize| words[i].load(Ordering::Relaxed);
                *line = Line { start: word(0), ns: word(1), rate: word(2) };
            }
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return (version, timeline);
            }
        }
    }

    /// To be called by one thread at a time.
    pub(super) fn store(&self, timeline: &Timeline) {
        let version = self.version.load(Ordering::Relaxed) + 1;
        // Whoever reads a word stored below from this slot also sees the version that closed it.
        fence(Ordering::Release);
        let slot = &self.slots[(version % 2) as usize].0;
        for (line, words) in timeline.lines.iter().zip(slot.chunks_exact(3)) {
            for (word, value) in words.iter().zip([line.start, line.ns, line.rate]) {
                word.store(value, Ordering::Relaxed);
            }
        }
        self.version.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: u64, ns: u64, rate: f64) -> Line {
        let rate = (rate * (1u64 << FRACTION_BITS) as f64) as u64;
        Line { start, ns, rate }
    }

    #[test]
    fn each_tick_is_answered_by_the_last_line_that_has_started() {
        let lines = [line(0, 0, 1.0), line(100, 100, 2.0), line(200, 300, 0.5), line(400, 400, 1.0)];
        let timeline = Timeline { lines };
        let expected = [(0, 0), (99, 99), (100, 100), (150, 200), (200, 300), (399, 399), (400, 400), (1000, 1000)];
        for (ticks, ns) in expected {
            assert_eq!(timeline.at(ticks), ns, "at {ticks}");
        }
    }

    #[test]
    fn a_line_whose_successor_started_earlier_is_skipped() {
        let lines = [line(0, 0, 1.0), line(500, 7, 9.0), line(200, 200, 2.0), line(300, 400, 1.0)];
        assert_eq!(Timeline { lines }.at(600), 700);
    }

    #[test]
    fn before_the_first_line_time_is_extrapolated_and_stops_at_zero() {
        let timeline = Timeline::straight(line(1000, 500, 1.0));
        assert_eq!((timeline.at(900), timeline.at(0)), (400, 0));
    }

    #[test]
    fn a_year_of_ticks_neither_overflows_nor_loses_precision() {
        let year = 365 * 86_400 * 3_000_000_000u64;
        let timeline = Timeline::straight(line(0, 0, 1.0 / 3.0));
        let exact = 365 * 86_400 * 1_000_000_000u64;
        assert!(timeline.at(year).abs_diff(exact) < 100, "{}", timeline.at(year));
        assert_eq!(timeline.ticks_per_second(), 3_000_000_000);
    }

    #[test]
    fn a_reader_never_sees_a_mixture_of_two_timelines() {
        let same = |n: u64| Timeline::straight(Line { start: n, ns: n, rate: n });
        let published = Published::new(&same(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..200_000).for_each(|n| published.store(&same(n))));
            let mut last = 0;
            while last < 199_999 {
                let seen = published.load();
                assert_eq!(seen, same(seen.start()));
                assert!(seen.start() >= last);
                last = seen.start();
            }
        });
    }
}
