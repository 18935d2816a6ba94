//! When frames are due.

use crate::random::Random;

/// How departures are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Departures {
    /// Evenly.
    #[default]
    Constant,
    /// As a Poisson process with so many departures in the trial: gaps are exponentially distributed.
    Poisson,
}

/// Bursts of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Frames of a burst, at least one.
    pub frames: u64,
    /// Bursts in all.
    pub count: u64,
    /// ns from the end of a burst, one frame's time after its last frame, to the next one.
    pub gap: u64,
}

/// When a stream sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// How its departures are spread.
    pub departures: Departures,
    /// Frames a second, within a burst where there are bursts.
    pub pps: f64,
    /// ns from the start of the trial to its own.
    pub start: f64,
    /// Its bursts.
    pub bursts: Option<Bursts>,
}

impl Schedule {
    /// ns from the start of the trial to the end of the last burst; `None` where there is none.
    pub fn end(&self) -> Option<f64> {
        let bursts = self.bursts.filter(|b| b.count < u64::MAX)?;
        let burst = bursts.frames as f64 * 1e9 / self.pps;
        Some(self.start + burst + (bursts.count - 1) as f64 * (burst + bursts.gap as f64))
    }

    /// The departures of one of `parts` threads in a trial of `duration` ns: together they are the stream's, and take turns.
    pub fn pace(&self, duration: u64, (part, parts): (usize, usize), seed: u64) -> Pace {
        let gap = 1e9 / self.pps;
        let Some(bursts) = self.bursts else {
            let left = (duration as f64 - self.start).max(0.0);
            let pace = Pace::new(self.departures, self.pps / parts as f64, left as u64, seed);
            return pace.shifted(part as f64 / parts as f64).delayed(self.start);
        };
        // Frames part, part + parts, part + 2 parts, … of each burst.
        let frames = bursts.frames.saturating_sub(part as u64).div_ceil(parts as u64);
        let period = bursts.frames as f64 * gap + bursts.gap as f64;
        let phase = self.start + part as f64 * gap;
        let gap = gap * parts as f64;
        let span = (duration as f64 - phase).max(0.0);
        let whole = (span / period).floor();
        let rest = ((span - whole * period) / gap).ceil() as u64;
        let total = (whole as u64).saturating_mul(frames).saturating_add(rest.min(frames));
        let kind = Kind::Bursts { gap, phase, period, frames };
        Pace { kind, done: 0, total: total.min(frames.saturating_mul(bursts.count)) }
    }
}

/// Departure times of a stream, ns from the start of the trial.
#[derive(Clone, Debug)]
pub struct Pace {
    kind: Kind,
    /// Frames that have departed, and that will in all.
    done: u64,
    total: u64,
}

/// How departures follow one another; times in ns.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Frame n is due at phase + n × gap (computed from n, so that no error adds up).
    Constant { gap: f64, phase: f64 },
    /// Frame n of each `frames` is due at n × gap after the beginning of its period.
    Bursts { gap: f64, phase: f64, period: f64, frames: u64 },
    /// The next one is due at `next`.
    Poisson { next: f64, end: f64, random: Random },
    /// Always. Among several such streams the one with the least n × gap has its turn.
    Max { gap: f64 },
}

impl Pace {
    /// `pps` frames a second for `duration` ns, the first at once.
    pub fn new(departures: Departures, pps: f64, duration: u64, seed: u64) -> Self {
        let total = (pps * duration as f64 / 1e9).round() as u64;
        let kind = match departures {
            Departures::Constant => Kind::Constant { gap: 1e9 / pps, phase: 0.0 },
            Departures::Poisson => {
                let mut random = Random::new(seed);
                let next = gap_of(total, duration as f64, &mut random);
                Kind::Poisson { next, end: duration as f64, random }
            }
        };
        Self { kind, done: 0, total }
    }

    /// As many as can be sent, in relation to other such streams by `share`.
    pub fn max(share: f64) -> Self {
        Self { kind: Kind::Max { gap: 1.0 / share }, done: 0, total: u64::MAX }
    }

    /// None at all.
    pub fn none() -> Self {
        Self { kind: Kind::Constant { gap: 1.0, phase: 0.0 }, done: 0, total: 0 }
    }

    /// Begins later by a part of the gap, so that streams of one rate take turns.
    #[must_use]
    pub fn shifted(mut self, part: f64) -> Self {
        if let Kind::Constant { gap, phase } = &mut self.kind {
            *phase = *gap * part;
        }
        self
    }

    /// Begins later by so many ns.
    #[must_use]
    pub fn delayed(mut self, ns: f64) -> Self {
        match &mut self.kind {
            Kind::Constant { phase, .. } | Kind::Bursts { phase, .. } => *phase += ns,
            Kind::Poisson { next, end, .. } => (*next, *end) = (*next + ns, *end + ns),
            Kind::Max { .. } => {}
        }
        self
    }

    /// How departures follow one another.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether there is no rate.
    pub fn is_max(&self) -> bool {
        matches!(self.kind, Kind::Max { .. })
    }

    /// Whether frames leave evenly, at a rate and without bursts.
    pub fn is_even(&self) -> bool {
        matches!(self.kind, Kind::Constant { .. })
    }

    /// Goes on from the frame that is due next with another gap, ns, to the end of the trial; returns how many frames there are now in all.
    /// Only where frames leave evenly.
    pub fn change(&mut self, gap: f64, duration: u64) -> u64 {
        let Some(due) = self.due() else { return self.total };
        if let Kind::Constant { gap: own, phase } = &mut self.kind {
            let left = ((duration as f64 - due as f64) / gap).max(0.0).ceil();
            self.total = self.done + left as u64;
            (*own, *phase) = (gap, due as f64 - self.done as f64 * gap);
        }
        self.total
    }

    /// Frames in all; `None` where there is no end.
    pub fn total(&self) -> Option<u64> {
        (!self.is_max()).then_some(self.total)
    }

    /// Whether all have departed.
    pub fn is_over(&self) -> bool {
        self.done == self.total
    }

    /// When the next one is due; `None` where there is none.
    #[inline(always)]
    pub fn due(&self) -> Option<u64> {
        if self.done == self.total {
            return None;
        }
        Some(match &self.kind {
            Kind::Constant { gap, phase } => (phase + self.done as f64 * gap) as u64,
            Kind::Bursts { gap, phase, period, frames } => {
                (phase + (self.done / frames) as f64 * period + (self.done % frames) as f64 * gap) as u64
            }
            Kind::Poisson { next, .. } => *next as u64,
            Kind::Max { gap } => (self.done as f64 * gap) as u64,
        })
    }

    /// Of streams without a rate: how many, at most `most` and at least one, have their turn up to and with the place `last`.
    #[inline(always)]
    pub fn turns(&self, last: u64, most: usize) -> usize {
        let Kind::Max { gap } = &self.kind else { return 1 };
        if last == u64::MAX {
            return most;
        }
        (1..most).take_while(|k| ((self.done + *k as u64) as f64 * gap) as u64 <= last).count() + 1
    }

    /// The next `n` depart, of a stream without a rate.
    #[inline(always)]
    pub fn depart_turns(&mut self, n: usize) {
        self.done += n as u64;
    }

    /// The next one departs.
    #[inline(always)]
    pub fn depart(&mut self) {
        self.done += 1;
        if let Kind::Poisson { next, end, random } = &mut self.kind {
            *next += gap_of(self.total - self.done, *end - *next, random);
        }
    }
}

/// Time to the first of `n` points that lie uniformly in `span`: a Poisson process, given the number of its points.
fn gap_of(n: u64, span: f64, random: &mut Random) -> f64 {
    if n == 0 { 0.0 } else { span * (1.0 - random.unit().powf(1.0 / n as f64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut pace: Pace) -> Vec<u64> {
        std::iter::from_fn(|| {
            let due = pace.due()?;
            pace.depart();
            Some(due)
        })
        .collect()
    }

    #[test]
    fn constant_departures_lie_where_they_should_and_nothing_drifts() {
        let times = times(Pace::new(Departures::Constant, 3.0, 1_000_000_000_000, 0));
        assert_eq!(times.len(), 3000);
        assert_eq!(times[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(times[2997], 999_000_000_000);
    }

    #[test]
    fn poisson_departures_are_as_many_and_their_gaps_are_exponential() {
        let duration = 1_000_000_000;
        let times = times(Pace::new(Departures::Poisson, 100_000.0, duration, 42));
        assert_eq!(times.len(), 100_000);
        assert!(times.is_sorted() && *times.last().unwrap() <= duration);
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 10_000.0 - 1.0).abs() < 0.02, "{mean}");
        // Of an exponential distribution the standard deviation is the mean, and 1/e of the values lie above it.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{}", variance.sqrt());
        let above = gaps.iter().filter(|g| **g > mean).count() as f64 / gaps.len() as f64;
        assert!((above - (-1.0_f64).exp()).abs() < 0.01, "{above}");
    }

    #[test]
    fn threads_share_a_burst_and_miss_nothing() {
        for (frames, count, parts) in [(1, 1, 1), (1, 5, 3), (7, 4, 1), (7, 4, 2), (64, 3, 4), (10, u64::MAX, 3)] {
            let bursts = Some(Bursts { frames, count, gap: 1_000_000 });
            let schedule = Schedule { departures: Departures::Constant, pps: 100_000.0, start: 5000.0, bursts };
            let duration = 10_000_000;
            let mut all: Vec<u64> = (0..parts).flat_map(|part| times(schedule.pace(duration, (part, parts), 0))).collect();
            all.sort_unstable();
            let mut wanted = Vec::new();
            for burst in 0..count.min(20) {
                wanted.extend((0..frames).map(|n| 5000 + burst * (frames * 10_000 + 1_000_000) + n * 10_000));
            }
            wanted.retain(|t| *t < duration);
            assert_eq!(all, wanted, "{frames} frames, {count} bursts, {parts} threads");
        }
    }

    #[test]
    fn a_start_takes_frames_from_the_end_of_a_trial() {
        let schedule = |departures| Schedule { departures, pps: 1000.0, start: 400e6, bursts: None };
        let constant = times(schedule(Departures::Constant).pace(1_000_000_000, (0, 1), 0));
        assert_eq!((constant.len(), constant[0], constant[1]), (600, 400_000_000, 401_000_000));
        let poisson = times(schedule(Departures::Poisson).pace(1_000_000_000, (0, 1), 7));
        assert!(poisson.len() == 600 && poisson.is_sorted() && poisson[0] >= 400_000_000 && poisson[599] <= 1_000_000_000);
        assert!(times(schedule(Departures::Constant).pace(300_000_000, (0, 1), 0)).is_empty());
    }

    #[test]
    fn another_rate_goes_on_from_the_next_frame() {
        let mut pace = Pace::new(Departures::Constant, 1000.0, 1_000_000_000, 0);
        assert!(pace.is_even());
        (0..250).for_each(|_| pace.depart());
        // Of the quarter second 250 have gone; the rest of the second has ten times as many.
        assert_eq!(pace.change(1e5, 1_000_000_000), 250 + 7500);
        let rest = times(pace.clone());
        assert_eq!((rest.len(), rest[0], rest[1], rest[7499]), (7500, 250_000_000, 250_100_000, 999_900_000));
        assert_eq!(pace.change(1e9, 1_000_000_000), 251);
        assert_eq!(times(pace), [250_000_000]);
        let mut over = Pace::new(Departures::Constant, 10.0, 100_000_000, 0);
        over.depart();
        assert_eq!((over.change(1e6, 100_000_000), over.due()), (1, None));
        assert!(!Pace::new(Departures::Poisson, 10.0, 1_000_000_000, 0).is_even() && !Pace::max(1.0).is_even());
    }

    #[test]
    fn rates_below_one_frame_give_none_and_no_rate_never_ends() {
        assert_eq!(times(Pace::new(Departures::Constant, 0.4, 1_000_000_000, 0)).len(), 0);
        assert_eq!(times(Pace::new(Departures::Poisson, 0.4, 1_000_000_000, 0)).len(), 0);
        assert_eq!(Pace::max(1.0).total(), None);
        assert_eq!(Pace::max(1.0).due(), Some(0));
    }
}
