//! What the machine did to a measurement: time that the hypervisor gave to others, and how often the kernel took a core from one of
//! our threads that would have gone on. Says why a tester was late or lost frames; a quiet machine has next to nothing of both.

use std::fs;

use serde::Serialize;

/// Ticks a second of the times in `/proc/stat` (`USER_HZ`, 100 on every Linux that this runs on).
const TICKS: f64 = 100.0;
/// Losses of a core a second, of all threads together, from which a machine counts as disturbed. Kernel threads alone take some 30, for
/// microseconds; a neighbour with as much right to the core takes it 125 times, for a tick of 4 ms each.
const PREEMPTED_A_SECOND: f64 = 50.0;

/// Counts of the machine at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    stolen: Option<u64>,
    preempted: Option<u64>,
}

/// What happened between two moments; nothing where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// Seconds of all cores that the hypervisor gave to others.
    pub stolen_s: Option<f64>,
    /// How often a thread of this process had to leave its core for somebody else.
    pub preempted: Option<u64>,
}

/// Time given to others, ticks, in the text of `/proc/stat`.
fn stolen(stat: &str) -> Option<u64> {
    let line = stat.lines().find(|l| l.starts_with("cpu "))?;
    line.split_ascii_whitespace().nth(8)?.parse().ok()
}

/// Involuntary context switches in the text of a thread's status.
fn preempted(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

impl Machine {
    /// As it is.
    pub fn now() -> Self {
        let threads = fs::read_dir("/proc/self/task").ok();
        let of = |folder: fs::DirEntry| preempted(&fs::read_to_string(folder.path().join("status")).ok()?);
        Self {
            stolen: fs::read_to_string("/proc/stat").ok().and_then(|text| stolen(&text)),
            preempted: threads.map(|all| all.flatten().filter_map(of).sum()),
        }
    }

    /// What has happened from then on.
    pub fn since(&self) -> Disturbance {
        let now = Self::now();
        let between = |was: Option<u64>, is: Option<u64>| Some(is?.saturating_sub(was?));
        Disturbance {
            stolen_s: between(self.stolen, now.stolen).map(|ticks| ticks as f64 / TICKS),
            preempted: between(self.preempted, now.preempted),
        }
    }
}

impl Disturbance {
    /// Without what a thread of ours took from others of ours: one core at most each time that it went to work.
    #[must_use]
    pub fn besides(self, own: u64) -> Self {
        Self { preempted: self.preempted.map(|n| n.saturating_sub(own)), ..self }
    }

    /// Whether that is more than a quiet machine does in so many seconds.
    pub fn is_disturbed(&self, seconds: f64) -> bool {
        self.stolen_s.is_some_and(|s| s > 0.0) || self.preempted.is_some_and(|n| n as f64 > PREEMPTED_A_SECOND * seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_what_the_system_says() {
        let stat = "cpu  364477 0 53035 100033 1155 0 731 6518 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen(stat), Some(6518));
        assert_eq!((stolen("cpu0 1 2 3 4 5 6 7 8"), stolen("cpu  1 2"), stolen("")), (None, None, None));
        assert_eq!(preempted("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t17\n"), Some(17));
        assert_eq!(preempted("nonvoluntary_ctxt_switches:\tmany"), None);
    }

    #[test]
    fn a_quiet_machine_is_not_disturbed_and_one_that_says_nothing_neither() {
        let of = |stolen_s, preempted| Disturbance { stolen_s, preempted }.is_disturbed(2.0);
        assert!(!of(Some(0.0), Some(100)) && !of(None, None));
        assert!(of(Some(0.01), Some(0)) && of(None, Some(101)));
        let shared = Disturbance { stolen_s: None, preempted: Some(30) };
        assert_eq!((shared.besides(25).preempted, shared.besides(31).preempted), (Some(5), Some(0)));
        let before = Machine::now();
        assert!(before.since().preempted.is_some(), "Linux says it");
    }
}
