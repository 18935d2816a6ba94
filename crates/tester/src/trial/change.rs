//! Another rate for a trial that runs: who asks for it, and what its streams make of it.
//!
//! Frames go on from the one that is due next, at the new distance. So numbers have no gap, and what is intended is what was due by
//! then and what the new rate has in the time that is left.

use std::sync::atomic::Ordering;

use super::{Direction, Plan, Progress, rates};
use crate::bench::Bench;
use crate::profile::Stream;
use crate::sink::lock;
use crate::units::Rate;

/// Somebody who follows a trial.
pub trait Watch {
    /// Told ten times a second how far it is, and ends it by `false`.
    fn progress(&mut self, progress: &Progress) -> bool;

    /// A rate that the trial is to go on with; asked for after each progress.
    fn rate(&mut self) -> Option<Rate> {
        None
    }

    /// What became of that: in one line why it cannot be.
    fn changed(&mut self, _outcome: Result<(), String>) {}
}

/// A function that only looks.
pub(crate) struct Told<'a>(pub(crate) &'a mut dyn FnMut(&Progress) -> bool);

impl Watch for Told<'_> {
    fn progress(&mut self, progress: &Progress) -> bool {
        (self.0)(progress)
    }
}

/// Frames a second of the streams that the trial's rate is for, by direction and stream; in one line why they cannot have it.
fn wanted(bench: &mut Bench, plan: &Plan, directions: &[Direction], rate: Rate) -> Result<Vec<Vec<Option<f64>>>, String> {
    let plan = Plan { rate: Some(rate), ..plan.clone() };
    let mut all = Vec::new();
    for direction in directions {
        let port = &bench.ports()[direction.tx];
        if port.kernel.is_some() {
            return Err(format!("port {}: streams that the kernel sends keep their rate", port.spec));
        }
        let of_trial = |s: &Stream| s.rate.is_none();
        let rates = rates(&direction.streams, &plan).map_err(|e| e.to_string())?;
        for (at, (stream, pps)) in direction.streams.iter().zip(&rates).enumerate().filter(|(_, (s, _))| of_trial(s)) {
            let even = direction.even[at];
            if !even || pps.is_none() {
                return Err(format!(
                    "stream {}: only frames that leave evenly, without bursts, can change from one rate to another",
                    stream.name
                ));
            }
        }
        all.push(direction.streams.iter().zip(rates).map(|(s, pps)| pps.filter(|_| of_trial(s))).collect());
    }
    Ok(all)
}

/// Has the streams of a trial without a rate of their own go on with another one.
pub(super) fn change(bench: &mut Bench, plan: &Plan, directions: &[Direction], rate: Rate) -> Result<(), String> {
    let wanted = wanted(bench, plan, directions, rate)?;
    let duration = plan.duration.as_nanos() as u64;
    for (direction, rates) in directions.iter().zip(wanted) {
        if let Some(receiver) = &mut lock(&bench.inboxes()[direction.rx]).receiver {
            receiver.await_any();
        }
        let gaps: Vec<Option<f64>> = rates.iter().map(|pps| pps.map(|pps| direction.threads as f64 * 1e9 / pps)).collect();
        for thread in bench.ports()[direction.tx].tx_threads.clone() {
            bench.change(direction.tx, thread, gaps.clone(), duration);
        }
    }
    Ok(())
}

/// Puts what threads planned when a rate was changed in the place of what was planned before.
pub(super) fn settle(directions: &mut [Direction]) {
    for direction in directions {
        for (at, planned) in direction.planned.iter_mut().enumerate() {
            let (stream, part) = (at / direction.threads, at % direction.threads);
            let found = direction.sent[part].planned[stream].load(Ordering::Acquire);
            if found != u64::MAX {
                *planned = Some(found);
            }
        }
    }
}
