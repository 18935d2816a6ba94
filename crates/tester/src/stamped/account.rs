//! The times of the frames of a stream: when each left, and when it came.

use serde::Serialize;

use super::Timestamps;
use crate::latency::Latencies;
use crate::report::Times;
use crate::tracker::FIRST;

/// The times of a stream's frames, by number; 0 for those without.
#[derive(Clone, Debug, Default)]
pub struct Account {
    left: Vec<u64>,
    came: Vec<u64>,
}

/// What the times of a stream say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// Whose times they are.
    pub clock: Timestamps,
    /// Frames that have a time at which they left.
    pub left: u64,
    /// Frames that have a time at which they came.
    pub came: u64,
    /// Frames that have both: those whose latencies these are.
    pub timed: u64,
    /// Frames that came before they left, by these times: the clocks are not the same.
    pub backwards: u64,
    /// Latencies.
    #[serde(flatten)]
    pub times: Times,
}

impl Account {
    /// For so many frames.
    pub fn new(frames: u64) -> Self {
        let zeros = vec![0; frames as usize];
        Self { left: zeros.clone(), came: zeros }
    }

    /// The frame of a number left at a time, ns.
    pub fn left(&mut self, sequence: u32, ns: u64) {
        note(&mut self.left, sequence, ns);
    }

    /// The frame of a number came at a time, ns.
    pub fn came(&mut self, sequence: u32, ns: u64) {
        note(&mut self.came, sequence, ns);
    }

    /// What there is to report.
    pub fn timed(&self, clock: Timestamps) -> Timed {
        let known = |times: &[u64]| times.iter().filter(|ns| **ns > 0).count() as u64;
        let (mut all, mut timed, mut backwards) = (Latencies::default(), 0, 0);
        for (left, came) in self.left.iter().zip(&self.came).filter(|(left, came)| **left > 0 && **came > 0) {
            match came.checked_sub(*left) {
                Some(ns) => {
                    all.add(ns);
                    timed += 1;
                }
                None => backwards += 1,
            }
        }
        Timed { clock, left: known(&self.left), came: known(&self.came), timed, backwards, times: Times::of(&all) }
    }
}

/// Notes the first time of a frame: later ones are those of copies.
fn note(times: &mut [u64], sequence: u32, ns: u64) {
    if let Some(place) = times.get_mut(sequence.wrapping_sub(FIRST) as usize).filter(|place| **place == 0) {
        *place = ns;
    }
}

impl Timed {
    /// Why such times are not to be believed, of a stream of which frames were received.
    pub fn doubt(&self, received: u64) -> Option<String> {
        let whose = self.clock.name();
        if self.backwards > 0 {
            return Some(format!(
                "{} frames came before they left by the times of the {whose}: the clocks are not the same",
                self.backwards
            ));
        }
        let none = self.timed == 0 && received > 0;
        none.then(|| {
            format!(
                "no frame has both times of the {whose}: {} have one at which they left, {} one at which they came",
                self.left, self.came
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_of_frames_with_both_times() {
        let mut account = Account::new(400);
        for n in 0..300_u32 {
            account.left(FIRST.wrapping_add(n), 1_000_000 + u64::from(n));
        }
        // In any order; of copies the first one counts; numbers that were never sent do not.
        for n in (100..400_u32).rev() {
            account.came(FIRST.wrapping_add(n), 1_005_000 + u64::from(n));
            account.came(FIRST.wrapping_add(n), 9_000_000);
        }
        account.came(FIRST.wrapping_sub(1), 5);
        account.left(FIRST.wrapping_add(400), 5);
        let timed = account.timed(Timestamps::Kernel);
        assert_eq!((timed.left, timed.came, timed.timed, timed.backwards), (300, 300, 200, 0));
        let latency = timed.times.latency_ns.as_ref().expect("latencies");
        assert_eq!((latency.count, latency.min, latency.max), (200, 5000, 5000));
        assert_eq!(timed.doubt(400), None);
    }

    #[test]
    fn times_that_prove_nothing_say_so() {
        let mut account = Account::new(2);
        let timed = account.timed(Timestamps::Card);
        assert_eq!((timed.times.latency_ns.is_none(), timed.doubt(0)), (true, None));
        account.left(FIRST, 100);
        let doubt = account.timed(Timestamps::Card).doubt(2).expect("a doubt");
        assert_eq!(doubt, "no frame has both times of the card: 1 have one at which they left, 0 one at which they came");
        account.came(FIRST, 99);
        let timed = account.timed(Timestamps::Card);
        assert_eq!((timed.timed, timed.backwards), (0, 1));
        assert!(timed.doubt(2).is_some_and(|why| why.starts_with("1 frames came before they left by the times of the card")));
    }
}
