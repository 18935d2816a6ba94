//! Times from departure to arrival: percentiles, jitter, variation.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time that is told apart from longer ones, ns.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of percentiles.
const DIGITS: u8 = 3;

/// A histogram for times in ns, exact to three digits up to a minute.
pub fn histogram() -> Histogram<u64> {
    // The bounds are constants that the crate accepts; the other constructor needs none.
    Histogram::new_with_bounds(1, LONGEST, DIGITS).unwrap_or_else(|_| unreachable!("constant bounds are in range"))
}

/// Latencies of a stream as they come in.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// The last value and how often it came in a row: frames of a vector often share theirs.
    run: (u64, u64),
    min: u64,
    max: u64,
    sum: u128,
    count: u64,
    jitter: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histogram: histogram(), run: (0, 0), min: u64::MAX, max: 0, sum: 0, count: 0, jitter: 0.0 }
    }
}

impl Latencies {
    /// Adds a frame's time, ns.
    #[inline(always)]
    pub fn add(&mut self, ns: u64) {
        self.add_many(ns, 1);
    }

    /// Adds the same time of `n` frames.
    #[inline(always)]
    pub fn add_many(&mut self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        let mut equal = n;
        if ns != self.run.0 || self.run.1 == 0 {
            self.change(ns);
            equal -= 1;
        }
        if self.jitter > 0.0 && equal > 0 {
            // Differences of 0: each takes a sixteenth away.
            self.jitter *= (15.0_f64 / 16.0).powi(equal.min(i32::MAX as u64) as i32);
        }
        self.run.1 += n;
    }

    fn change(&mut self, ns: u64) {
        if self.run.1 > 0 {
            // RFC 3550, section 6.4.1: J += (|D| - J) / 16.
            self.jitter += (ns.abs_diff(self.run.0) as f64 - self.jitter) / 16.0;
        }
        self.flush();
        self.run = (ns, 0);
    }

    fn flush(&mut self) {
        let (ns, n) = self.run;
        if n == 0 {
            return;
        }
        self.histogram.saturating_record_n(ns, n);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += u128::from(ns) * u128::from(n);
        self.count += n;
        self.run.1 = 0;
    }

    /// Times that somebody else has counted: values and how many had them, and what is exact of them. `jitter` in ns.
    pub fn counted(cells: &[(u64, u64)], (min, max): (u64, u64), sum: u64, jitter: f64) -> Self {
        let mut all = Self { min, max, sum: sum.into(), jitter, ..Self::default() };
        for (ns, n) in cells {
            all.histogram.saturating_record_n(*ns, *n);
            all.count += n;
        }
        all
    }

    /// Adds what another has seen. Jitters are weighted by their numbers of frames.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.flush();
        self.flush();
        if other.count == 0 {
            return;
        }
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.jitter = (self.jitter * self.count as f64 + other.jitter * other.count as f64) / (self.count + other.count) as f64;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// What there is to report; `None` where nothing came.
    pub fn summary(&self) -> Option<(LatencySummary, f64, Variation)> {
        let mut all = self.clone();
        all.flush();
        if all.count == 0 {
            return None;
        }
        // The histogram answers with the upper end of a cell; no value was above the largest.
        let at = |quantile: f64| all.histogram.value_at_quantile(quantile).clamp(all.min, all.max);
        let summary = LatencySummary {
            count: all.count,
            min: all.min,
            mean: all.sum as f64 / all.count as f64,
            stdev: if all.min == all.max { 0.0 } else { all.histogram.stdev() },
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            p99_999: at(0.99999),
            max: all.max,
        };
        let variation = Variation {
            p50: summary.p50 - all.min,
            p99: summary.p99 - all.min,
            p99_9: summary.p99_9 - all.min,
            max: all.max - all.min,
        };
        Some((summary, all.jitter, variation))
    }
}

/// One-way latency, ns. Minimum, mean and maximum are exact; percentiles and standard deviation to three digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LatencySummary {
    pub count: u64,
    pub min: u64,
    pub mean: f64,
    pub stdev: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub p99_99: u64,
    pub p99_999: u64,
    pub max: u64,
}

/// Packet delay variation (RFC 5481, section 4.2): latency less the smallest one of the trial, ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Variation {
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_delay_gives_that_delay_everywhere() {
        let mut latencies = Latencies::default();
        (0..1000).for_each(|_| latencies.add(1_234_567));
        let (l, jitter, pdv) = latencies.summary().unwrap();
        assert_eq!((l.count, l.min, l.p50, l.p99_999, l.max), (1000, 1_234_567, 1_234_567, 1_234_567, 1_234_567));
        assert_eq!((l.mean, l.stdev, jitter), (1_234_567.0, 0.0, 0.0));
        assert_eq!(pdv, Variation { p50: 0, p99: 0, p99_9: 0, max: 0 });
    }

    #[test]
    fn percentiles_and_variation_of_a_ramp() {
        let mut latencies = Latencies::default();
        (1..=1000_u64).for_each(|n| latencies.add(n * 1000));
        let (l, jitter, pdv) = latencies.summary().unwrap();
        let close = |a: u64, b: u64| assert!(a.abs_diff(b) * 1000 <= b, "{a} is not {b}");
        assert_eq!((l.min, l.max, l.mean), (1000, 1_000_000, 500_500.0));
        close(l.p50, 500_000);
        close(l.p90, 900_000);
        close(l.p99, 990_000);
        close(pdv.p50, 499_000);
        // |D| is 1000 each time; J has come to it from 0 within 999 steps of a sixteenth.
        assert!((jitter - 1000.0).abs() < 1e-6, "{jitter}");
    }

    #[test]
    fn jitter_is_that_of_the_formula_with_runs_of_equal_times() {
        let times = [5_u64, 5, 5, 100, 100, 7, 7, 7, 7, 9, 5];
        let (mut latencies, mut j) = (Latencies::default(), 0.0);
        for (i, t) in times.iter().enumerate() {
            latencies.add(*t);
            if i > 0 {
                j += (times[i - 1].abs_diff(*t) as f64 - j) / 16.0;
            }
        }
        assert!((latencies.summary().unwrap().1 - j).abs() < 1e-9);
        let mut runs = Latencies::default();
        times.chunk_by(|a, b| a == b).for_each(|run| runs.add_many(run[0], run.len() as u64));
        runs.add_many(9, 0);
        let (runs, singles) = (runs.summary().unwrap(), latencies.summary().unwrap());
        assert_eq!((&runs.0, &runs.2), (&singles.0, &singles.2));
        assert!((runs.1 - singles.1).abs() < 1e-9);
    }

    #[test]
    fn parts_merged_are_the_whole() {
        let (mut whole, mut a, mut b) = (Latencies::default(), Latencies::default(), Latencies::default());
        for n in 0..5000_u64 {
            whole.add(n * n);
            if n % 3 == 0 { a.add(n * n) } else { b.add(n * n) }
        }
        a.merge(&b);
        a.merge(&Latencies::default());
        let (mut merged, mut direct) = (a.summary().unwrap().0, whole.summary().unwrap().0);
        assert!((merged.stdev - direct.stdev).abs() < 1e-3);
        (merged.stdev, direct.stdev) = (0.0, 0.0);
        assert_eq!(merged, direct);
        assert_eq!(Latencies::default().summary(), None);
    }
}
