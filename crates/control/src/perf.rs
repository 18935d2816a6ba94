//! Counters that the kernel and the processor keep of threads: perf events (perf_event_open(2)).
//!
//! Each event of each thread is counted by itself. Where a processor has fewer counters than events the kernel counts them by
//! turns; a count is then scaled up by the share of the time in which it was really counted, and that share is told.
//! Opening fails for what a processor, or the hypervisor above it, does not offer: such events are named as missing, once.

use std::io;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event as PerfEvent, Hardware, Software};
use perf_event::{Builder, Counter};

/// What can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Cycles of the core, at the rate it really runs at.
    Cycles,
    /// Instructions that were completed.
    Instructions,
    /// Branches.
    Branches,
    /// Branches that were predicted wrongly.
    BranchMisses,
    /// Loads that the first data cache did not have.
    L1dMisses,
    /// Fetches that the first instruction cache did not have.
    L1iMisses,
    /// Accesses to the last cache.
    LlcAccesses,
    /// Those that it did not have.
    LlcMisses,
    /// Loads whose page was not in the translation buffer.
    DtlbMisses,
    /// Time on a processor, ns.
    TaskClock,
    /// Times the thread left its processor.
    ContextSwitches,
    /// Times it went to another processor.
    Migrations,
    /// Pages that were not there.
    PageFaults,
}

impl Event {
    /// All of them, in the order of pages.
    pub const ALL: [Self; 13] = [
        Self::Cycles,
        Self::Instructions,
        Self::Branches,
        Self::BranchMisses,
        Self::L1dMisses,
        Self::L1iMisses,
        Self::LlcAccesses,
        Self::LlcMisses,
        Self::DtlbMisses,
        Self::TaskClock,
        Self::ContextSwitches,
        Self::Migrations,
        Self::PageFaults,
    ];

    /// Its name, as `perf list` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::Branches => "branches",
            Self::BranchMisses => "branch-misses",
            Self::L1dMisses => "L1-dcache-load-misses",
            Self::L1iMisses => "L1-icache-load-misses",
            Self::LlcAccesses => "cache-references",
            Self::LlcMisses => "cache-misses",
            Self::DtlbMisses => "dTLB-load-misses",
            Self::TaskClock => "task-clock",
            Self::ContextSwitches => "context-switches",
            Self::Migrations => "cpu-migrations",
            Self::PageFaults => "page-faults",
        }
    }

    /// Begins to count it for a thread, by the kernel's number.
    ///
    /// # Errors
    /// Not allowed, or not offered.
    fn open(self, lwp: i32, kernel: bool) -> io::Result<Counter> {
        let misses = |which| Cache { which, operation: CacheOp::READ, result: CacheResult::MISS };
        match self {
            Self::Cycles => begin(Hardware::CPU_CYCLES, lwp, kernel),
            Self::Instructions => begin(Hardware::INSTRUCTIONS, lwp, kernel),
            Self::Branches => begin(Hardware::BRANCH_INSTRUCTIONS, lwp, kernel),
            Self::BranchMisses => begin(Hardware::BRANCH_MISSES, lwp, kernel),
            Self::L1dMisses => begin(misses(CacheId::L1D), lwp, kernel),
            Self::L1iMisses => begin(misses(CacheId::L1I), lwp, kernel),
            Self::LlcAccesses => begin(Hardware::CACHE_REFERENCES, lwp, kernel),
            Self::LlcMisses => begin(Hardware::CACHE_MISSES, lwp, kernel),
            Self::DtlbMisses => begin(misses(CacheId::DTLB), lwp, kernel),
            // These happen in the kernel, whoever is counted for.
            Self::TaskClock => begin(Software::TASK_CLOCK, lwp, true),
            Self::ContextSwitches => begin(Software::CONTEXT_SWITCHES, lwp, true),
            Self::Migrations => begin(Software::CPU_MIGRATIONS, lwp, true),
            Self::PageFaults => begin(Software::PAGE_FAULTS, lwp, true),
        }
    }
}

fn begin(event: impl PerfEvent, lwp: i32, kernel: bool) -> io::Result<Counter> {
    let mut counter = Builder::new(event).observe_pid(lwp).exclude_kernel(!kernel).build()?;
    counter.enable()?;
    Ok(counter)
}

/// A count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// Of what.
    pub event: Event,
    /// How many, for all of the time.
    pub count: u64,
    /// Share of the time in which it was really counted, 0 to 1.
    pub share: f64,
}

/// Scales what was counted in `running` ns up to `enabled` ns.
fn scaled(event: Event, count: u64, enabled: u64, running: u64) -> Count {
    if running == 0 || running >= enabled {
        // A thread that slept all the time has not been counted at all, and nothing was missed.
        return Count { event, count, share: if running == 0 && enabled > 0 { 0.0 } else { 1.0 } };
    }
    let share = running as f64 / enabled as f64;
    Count { event, count: (count as f64 / share).round() as u64, share }
}

/// The counters of a thread.
#[derive(Debug)]
pub struct Counters {
    counters: Vec<(Event, Counter)>,
    missing: Vec<Event>,
}

impl Counters {
    /// Begins to count for a thread, by the kernel's number; with `kernel` also what the kernel does for it.
    ///
    /// # Errors
    /// Nothing can be counted: it is not allowed, or there is no such thread.
    pub fn open(lwp: i32, kernel: bool) -> io::Result<Self> {
        let (mut counters, mut missing, mut error) = (Vec::new(), Vec::new(), None);
        for event in Event::ALL {
            match event.open(lwp, kernel) {
                Ok(counter) => counters.push((event, counter)),
                Err(e) => {
                    missing.push(event);
                    error = Some(e);
                }
            }
        }
        match error {
            Some(error) if counters.is_empty() => Err(error),
            _ => Ok(Self { counters, missing }),
        }
    }

    /// Events that are not counted, because the processor, its hypervisor or the kernel's settings don't let them be.
    pub fn missing(&self) -> &[Event] {
        &self.missing
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> io::Result<Vec<Count>> {
        let read = |(event, counter): &mut (Event, Counter)| {
            let data = counter.read_count_and_time()?;
            Ok(scaled(*event, data.count, data.time_enabled, data.time_running))
        };
        self.counters.iter_mut().map(read).collect()
    }

    /// Counts no further; what was counted can still be read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self) -> io::Result<()> {
        self.counters.iter_mut().try_for_each(|(_, counter)| counter.disable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_a_part_of_the_time_is_scaled_to_all_of_it() {
        let count = |count, enabled, running| scaled(Event::Cycles, count, enabled, running);
        assert_eq!(count(500, 1000, 1000), Count { event: Event::Cycles, count: 500, share: 1.0 });
        assert_eq!(count(500, 1000, 250), Count { event: Event::Cycles, count: 2000, share: 0.25 });
        assert_eq!(count(0, 1000, 0), Count { event: Event::Cycles, count: 0, share: 0.0 });
    }

    #[test]
    fn what_a_thread_does_is_counted_until_it_is_told_to_stop() {
        let lwp = rustix::thread::gettid().as_raw_nonzero().get();
        let mut counters = match Counters::open(lwp, false) {
            Ok(counters) => counters,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: perf events may not be opened here: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let counted: Vec<Event> = counters.read().expect("counts").iter().map(|c| c.event).collect();
        assert!(Event::ALL.iter().all(|e| counted.contains(e) != counters.missing().contains(e)));
        let clock = |counters: &mut Counters| {
            counters.read().expect("counts").into_iter().find(|c| c.event == Event::TaskClock).map(|c| c.count)
        };
        let before = clock(&mut counters);
        let work = (0..3_000_000_u64).fold(0, |sum, k| std::hint::black_box(sum ^ k));
        assert!(std::hint::black_box(work) < u64::MAX);
        let after = clock(&mut counters);
        assert!(after > before || before.is_none(), "{before:?} {after:?}");
        counters.stop().expect("an end");
        let ended = clock(&mut counters);
        assert_eq!(clock(&mut counters), ended);
    }
}
