//! Where and how urgently the calling thread runs.

use std::io;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Scheduling policies, by the names of startup.conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerPolicy {
    /// The kernel's fair share.
    Other,
    /// Fair share, for work that nobody waits for.
    Batch,
    /// Only when nobody else wants the CPU.
    Idle,
    /// Real time: runs until it blocks.
    Fifo,
    /// Real time, in turns.
    RoundRobin,
}

impl SchedulerPolicy {
    /// The name in startup.conf and `show threads`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Batch => "batch",
            Self::Idle => "idle",
            Self::Fifo => "fifo",
            Self::RoundRobin => "rr",
        }
    }

    fn number(self) -> libc::c_int {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
            Self::Fifo => libc::SCHED_FIFO,
            Self::RoundRobin => libc::SCHED_RR,
        }
    }

    /// Whether the policy has priorities, 1 to 99.
    fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin)
    }
}

impl FromStr for SchedulerPolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Other, Self::Batch, Self::Idle, Self::Fifo, Self::RoundRobin];
        let known = all.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| format!("`{name}` is no scheduler policy: use other, batch, idle, fifo or rr"))
    }
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// `InvalidInput` for a CPU beyond what the system call takes, and the kernel's error where it does not exist, is
/// offline, or is closed to this process.
pub fn pin_current_thread(cpu: u32) -> io::Result<()> {
    let cpu = cpu as usize;
    if cpu >= CpuSet::MAX_CPU {
        let text = format!("cpu {cpu}: threads can be pinned to the first {} only", CpuSet::MAX_CPU);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if UNPINNED.get().is_none() {
        let _ = UNPINNED.set(sched_getaffinity(None)?);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Where threads of this process could run before the first of them was pinned.
static UNPINNED: OnceLock<CpuSet> = OnceLock::new();

/// Lets the calling thread run on all CPUs that the process had at its start: a new thread inherits the place of the one that
/// made it.
///
/// # Errors
/// The kernel's.
pub fn unpin_current_thread() -> io::Result<()> {
    match UNPINNED.get() {
        Some(set) => Ok(sched_setaffinity(None, set)?),
        None => Ok(()),
    }
}

/// The CPUs on which the calling thread may run.
///
/// # Errors
/// Those of sched_getaffinity.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(allowed.map(|cpu| cpu as u32).collect())
}

/// Sets how the calling thread is scheduled. `priority` is 1 to 99 for `fifo` and `rr`, and 0 for all others.
///
/// # Errors
/// `InvalidInput` for a priority that the policy does not have, and the kernel's error, such as a missing privilege.
pub fn set_scheduler(policy: SchedulerPolicy, priority: u32) -> io::Result<()> {
    let allowed = if policy.is_real_time() { 1..=99 } else { 0..=0 };
    if !allowed.contains(&priority) {
        let (name, [low, high]) = (policy.name(), [allowed.start(), allowed.end()]);
        let text = format!("scheduler-priority {priority}: policy {name} takes {low} to {high}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: sched_param is plain integers, for which all zeros are valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority as libc::c_int;
    // SAFETY: reads `parameters`, which lives through the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy.number(), &parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_only_there() {
        std::thread::spawn(|| {
            let cpu = *allowed_cpus().unwrap().last().unwrap();
            pin_current_thread(cpu).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn cpus_that_do_not_exist_are_errors() {
        assert!(pin_current_thread(u32::MAX).is_err());
        assert!(pin_current_thread(CpuSet::MAX_CPU as u32 - 1).is_err());
    }

    #[test]
    fn a_policy_is_set_by_name_and_a_priority_it_does_not_have_is_refused() {
        std::thread::spawn(|| {
            set_scheduler("batch".parse().unwrap(), 0).unwrap();
            // SAFETY: takes a thread number, 0 being the caller.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_BATCH);
            for (policy, priority) in [("batch", 1), ("fifo", 0), ("rr", 100)] {
                let error = set_scheduler(policy.parse().unwrap(), priority).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            }
        })
        .join()
        .unwrap();
        assert!("realtime".parse::<SchedulerPolicy>().is_err());
    }
}
