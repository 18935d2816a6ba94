//! The servo: from comparisons of the counter with the kernel's clock to the next timeline. Pure; it reads no clock.
//!
//! - **Rate**: the slope between the newest comparison and the oldest of the last 1.6 s. Where the newest interval
//!   contradicts it by more than the readings' uncertainty (NTP has changed the kernel's rate), only that one counts.
//! - **Phase**: the error left is removed by a slew of 80 ms, after which the line continues at the plain rate. So it does
//!   not matter when, or whether, the next comparison comes.
//! - **Jumps**: behind by more than a millisecond (a virtual machine stood still): time jumps forward. Ahead: time runs
//!   at half speed at the least, until it agrees; ahead by more than ten seconds, or with a counter that ran backwards, it jumps back.

use std::collections::VecDeque;

use super::timeline::{FRACTION_BITS, Line, Timeline};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
/// Comparisons over this time make the rate.
const WINDOW: u64 = 1_600_000_000;
/// Two comparisons closer than this say little about the rate.
const INTERVAL_MIN: u64 = 4_000_000;
/// Time in which an error is removed.
const SLEW: i64 = 80 * MS;
/// Errors below this are half noise of the readings, so half of them is removed.
const NOISE: i64 = 1_000;
const FORWARD_JUMP: i64 = MS;
const BACKWARD_JUMP: i64 = 10 * SECOND;
/// Bounds of the slew, as a part of the rate.
const FASTEST: f64 = 500e-6;
const SLOWEST: f64 = -0.5;
/// A rate that differs from the known one by more than this is taken for a jump, unless it is seen so often.
const IMPLAUSIBLE: f64 = 0.01;
const INSISTENCE: u32 = 3;

/// One comparison: the kernel's clock showed `ns` when the counter showed `ticks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// Ticks between the counter readings before and after: the error of the comparison is at most half of it.
    pub width: u64,
}

/// What a comparison found and what was done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By how many nanoseconds the kernel's clock was ahead of ours.
    pub error: i64,
    /// Whether time jumps instead of being slewed.
    pub jump: bool,
    /// Jumps since the start.
    pub jumps: u64,
}

/// State of the servo.
#[derive(Clone, Debug)]
pub struct Discipline {
    /// In force and published.
    timeline: Timeline,
    /// Computed by the last update, and not yet accepted.
    next: Option<Next>,
    samples: VecDeque<Sample>,
    /// Nanoseconds a tick.
    rate: f64,
    /// Ticks from an update to the start of its line: time to publish it.
    lead: u64,
    implausible: u32,
    jumps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    timeline: Timeline,
    /// Ticks before which it has to be published.
    deadline: u64,
    jump: bool,
}

impl Discipline {
    /// Starts from two comparisons, some milliseconds apart. Should they be unusable, a tick is taken for a nanosecond, and
    /// later comparisons correct that.
    pub fn new(first: Sample, second: Sample) -> Self {
        let slope = slope(first, second).filter(|rate| rate.is_finite() && *rate > 0.0 && *rate < 4096.0);
        let rate = slope.unwrap_or(1.0);
        let line = Line { start: second.ticks, ns: second.ns, rate: fixed(rate) };
        Self {
            timeline: Timeline::straight(line),
            next: None,
            samples: VecDeque::from([first, second]),
            rate,
            lead: (MS as f64 / rate) as u64,
            implausible: 0,
            jumps: 0,
        }
    }

    /// The timeline computed last.
    pub fn timeline(&self) -> &Timeline {
        match &self.next {
            Some(next) => &next.timeline,
            None => &self.timeline,
        }
    }

    /// The ticks before which the timeline computed last has to be published, if there is one.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.next.map(|next| next.deadline)
    }

    /// The timeline computed last is published.
    pub fn accept(&mut self) {
        if let Some(next) = self.next.take() {
            self.timeline = next.timeline;
            self.jumps += u64::from(next.jump);
        }
    }

    /// Sets the time between an update and the start of its line, in ticks.
    #[cfg(test)]
    pub(super) fn set_lead(&mut self, ticks: u64) {
        self.lead = ticks;
    }

    /// Takes a comparison and computes the next timeline, which starts a little after `now`. May be repeated with the same
    /// comparison and a later `now`, should publishing have come too late.
    pub fn update(&mut self, sample: Sample, now: u64) -> Outcome {
        let known = self.samples.back().copied().unwrap_or_default();
        if sample != known {
            self.next = None;
            let backwards = sample.ticks < known.ticks;
            // The line computed last has not even begun, or nothing can be learned yet.
            let early = now < self.timeline.lines[2].start || sample.ns.saturating_sub(known.ns) < INTERVAL_MIN;
            if !backwards && early {
                return self.outcome(0);
            }
            if backwards {
                return self.restart(sample);
            }
            self.learn_rate(sample);
        }
        self.steer(sample, now)
    }

    fn outcome(&self, error: i64) -> Outcome {
        let jump = self.next.is_some_and(|next| next.jump);
        Outcome { error, jump, jumps: self.jumps + u64::from(jump) }
    }

    /// The counter ran backwards: nothing known about it holds but its rate.
    fn restart(&mut self, sample: Sample) -> Outcome {
        self.samples = VecDeque::from([sample]);
        let line = Line { start: sample.ticks, ns: sample.ns, rate: fixed(self.rate) };
        // It contradicts what was read before in any case, so it cannot be too late.
        self.next = Some(Next { timeline: Timeline::straight(line), deadline: u64::MAX, jump: true });
        self.outcome(0)
    }

    fn learn_rate(&mut self, sample: Sample) {
        while self.samples.len() > 1 && self.samples.front().is_some_and(|old| sample.ns - old.ns.min(sample.ns) > WINDOW) {
            self.samples.pop_front();
        }
        let (Some(&oldest), Some(&newest)) = (self.samples.front(), self.samples.back()) else {
            return;
        };
        let (Some(long), Some(short)) = (slope(oldest, sample), slope(newest, sample)) else {
            return;
        };
        let uncertainty = |from: Sample| {
            let span = sample.ticks - from.ticks;
            ((from.width + sample.width) as f64) / span.max(1) as f64
        };
        if (short / self.rate - 1.0).abs() > IMPLAUSIBLE && self.implausible < INSISTENCE {
            self.implausible += 1;
            self.samples.clear();
        } else if (short / long - 1.0).abs() > uncertainty(newest) + uncertainty(oldest) {
            self.implausible = 0;
            self.rate = short;
            self.samples = VecDeque::from([newest]);
        } else {
            self.implausible = 0;
            self.rate = long;
        }
        self.samples.push_back(sample);
    }

    fn steer(&mut self, sample: Sample, now: u64) -> Outcome {
        let start = now.saturating_add(self.lead);
        let rate = fixed(self.rate);
        let truth = Line { start: sample.ticks, ns: sample.ns, rate };
        let (ours, theirs) = (self.timeline.at(start), truth.at(start));
        let error = theirs.wrapping_sub(ours) as i64;
        let jump = !(-BACKWARD_JUMP..=FORWARD_JUMP).contains(&error);
        let (slew, coast) = if jump {
            let line = Line { start, ns: theirs, rate };
            (line, line)
        } else {
            self.slew(start, ours, error)
        };
        // Both lines of the predecessor that can be in force between now and the start of the new ones.
        let current = *self.timeline.line(now);
        let lines = [current, self.timeline.lines[3], slew, coast];
        self.next = Some(Next { timeline: Timeline { lines }, deadline: start, jump });
        self.outcome(error)
    }

    /// From `ours` at `start`, a line that takes up the error, and the line after it.
    fn slew(&self, start: u64, ours: u64, error: i64) -> (Line, Line) {
        let correction = if error.abs() <= NOISE { error / 2 } else { error } as f64;
        let part = (correction / SLEW as f64).clamp(SLOWEST, FASTEST);
        let rate = self.rate * (1.0 + part);
        // How long: 80 ms, or as long as the bounds demand. Divided by the plain rate this is in ticks.
        let length = if part == 0.0 { 0.0 } else { correction / part };
        let slew = Line { start, ns: ours, rate: fixed(rate) };
        let end = start.saturating_add((length / self.rate) as u64);
        let coast = Line { start: end, ns: slew.at(end), rate: fixed(self.rate) };
        (slew, coast)
    }
}

/// Nanoseconds a tick between two comparisons.
fn slope(from: Sample, to: Sample) -> Option<f64> {
    let ticks = to.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
    Some(to.ns.checked_sub(from.ns)? as f64 / ticks as f64)
}

fn fixed(rate: f64) -> u64 {
    (rate * (1u64 << FRACTION_BITS) as f64) as u64
}

#[cfg(test)]
#[path = "discipline_tests.rs"]
mod tests;
