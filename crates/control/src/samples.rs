//! The last seconds of each thread's loop, for rates that follow the present.

use std::collections::{BTreeMap, VecDeque};

use quiver_graph::LoopFigures;

/// Samples kept, one a second.
const SAMPLES: usize = 10;

/// What a thread did in the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Window {
    /// How many seconds these are.
    pub seconds: f64,
    /// Packets in a call of an internal node.
    pub vector_rate: f64,
    /// Turns of the loop in a second.
    pub loops_per_second: f64,
    /// Packets brought in, a second.
    pub input_rate: f64,
}

/// Figures of the past, by thread, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Samples(BTreeMap<usize, VecDeque<(u64, LoopFigures)>>);

impl Samples {
    /// Remembers figures of `now` (ns).
    pub fn push(&mut self, thread: usize, figures: LoopFigures, now: u64) {
        let samples = self.0.entry(thread).or_default();
        samples.push_back((now, figures));
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
    }

    /// Forgets the past: the figures start anew.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// From the oldest sample to the figures of `now`.
    pub fn window(&self, thread: usize, figures: &LoopFigures, now: u64) -> Window {
        let zero = LoopFigures { since: figures.since, ..LoopFigures::default() };
        let oldest = self.0.get(&thread).and_then(VecDeque::front).filter(|(_, then)| then.since == figures.since);
        let (time, then) = oldest.copied().unwrap_or((figures.since, zero));
        let seconds = now.saturating_sub(time) as f64 / 1e9;
        let ratio = |a: u64, b: f64| if b > 0.0 { a as f64 / b } else { 0.0 };
        Window {
            seconds,
            vector_rate: ratio(figures.vectors.saturating_sub(then.vectors), figures.calls.saturating_sub(then.calls) as f64),
            loops_per_second: ratio(figures.loops.saturating_sub(then.loops), seconds),
            input_rate: ratio(figures.input.saturating_sub(then.input), seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(n: u64) -> LoopFigures {
        LoopFigures { loops: n * 1000, vectors: n * 200, calls: n * 100, input: n * 10, ..LoopFigures::default() }
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut samples = Samples::default();
        assert_eq!(samples.window(0, &figures(1), 1_000_000_000).loops_per_second, 1000.0);
        for second in 1..=20 {
            samples.push(0, figures(second), second * 1_000_000_000);
        }
        // Ten times as much happened in the last half second.
        let now = samples.window(0, &figures(25), 20_500_000_000);
        assert_eq!(now.seconds, 9.5);
        assert!((now.loops_per_second - 14_000.0 / 9.5).abs() < 1e-6);
        assert_eq!(now.vector_rate, 2.0);
        samples.clear();
        assert_eq!(samples.window(0, &LoopFigures::default(), 0), Window::default());
    }
}
