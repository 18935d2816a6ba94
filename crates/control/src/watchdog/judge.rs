//! When a thread is stuck: by the processor time that it has taken and the time that it was blocked since its last progress,
//! never by the time that went by.
//!
//! | since its last progress the thread … | then |
//! |---|---|
//! | has finished an iteration, rests, or waits for another thread | nothing is held against it |
//! | has taken processor time | that time counts |
//! | sleeps in a system call (state S, or D with no switch) | the time between two looks counts, without what it ran or waited for a processor in it, if no other thread starves |
//! | could run and got no processor (state R, no time) | it *starves*: nothing counts, and for no other thread that may wait for it |
//! | waits for pages of memory (D, with switches), is stopped (T, t) | nothing counts |
//!
//! A machine that was suspended, a container that was throttled, a debugger: none of them makes a thread stuck.

use std::collections::BTreeMap;
use std::time::Duration;

use quiver_graph::Activity;

/// What the kernel tells of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `R`, `S`, `D`, …
    pub state: char,
    /// Processor time in all.
    pub cpu: Duration,
    /// Time in all that it could have run and got no processor; zero where the kernel does not tell.
    pub queued: Duration,
    /// Times it gave the processor up by itself.
    pub switches: u64,
}

/// A thread at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Number of the thread.
    pub thread: usize,
    /// The kernel's number: another thread may have taken the number over.
    pub lwp: u64,
    /// Times it has made progress.
    pub beats: u64,
    /// What it says that it does.
    pub activity: Activity,
    /// What the kernel tells; asked only for threads that have not made progress.
    pub kernel: Option<Kernel>,
}

/// What is held against a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Processor time without progress.
    pub cpu: Duration,
    /// Time blocked without progress.
    pub blocked: Duration,
    /// It could run at the last look, and got no processor.
    pub starves: bool,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    lwp: u64,
    beats: u64,
    last: Option<Kernel>,
    held: Held,
}

/// What is known of all threads.
#[derive(Debug, Default)]
pub struct Judge(BTreeMap<usize, Record>);

impl Judge {
    /// Whether the kernel is worth asking about a thread: it works, and has not made progress since the last look.
    pub fn wants_kernel(&self, thread: usize, lwp: u64, beats: u64, activity: Activity) -> bool {
        let same = |record: &Record| (record.lwp, record.beats) == (lwp, beats);
        activity == Activity::Works && self.0.get(&thread).is_some_and(same)
    }

    /// Takes in what was seen `elapsed` after the last look.
    pub fn look(&mut self, elapsed: Duration, looks: &[Look]) {
        self.0.retain(|thread, _| looks.iter().any(|look| look.thread == *thread));
        let mut blocked = Vec::new();
        for look in looks {
            let fresh = Record { lwp: look.lwp, beats: look.beats, last: None, held: Held::default() };
            let Some(record) = self.0.get_mut(&look.thread) else {
                self.0.insert(look.thread, fresh);
                continue;
            };
            if look.activity != Activity::Works || (record.lwp, record.beats) != (look.lwp, look.beats) {
                *record = fresh;
                continue;
            }
            record.held.starves = false;
            let Some(now) = look.kernel else { continue };
            let Some(then) = record.last.replace(now) else { continue };
            let cpu = now.cpu.saturating_sub(then.cpu);
            record.held.cpu += cpu;
            // It may have woken meanwhile: what it ran is counted already, and that it got no processor is not its fault.
            let slept = elapsed.saturating_sub(cpu).saturating_sub(now.queued.saturating_sub(then.queued));
            match now.state {
                'R' => record.held.starves = cpu * 50 < elapsed,
                'S' => blocked.push((look.thread, slept)),
                'D' if now.switches == then.switches => blocked.push((look.thread, slept)),
                _ => {}
            }
        }
        if self.0.values().any(|record| record.held.starves) {
            return;
        }
        for (thread, slept) in blocked {
            if let Some(record) = self.0.get_mut(&thread) {
                record.held.blocked += slept;
            }
        }
    }

    /// What is held against a thread.
    pub fn held(&self, thread: usize) -> Held {
        self.0.get(&thread).map_or_else(Held::default, |record| record.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(beats: u64, state: char, cpu_ms: u64, switches: u64) -> Look {
        let kernel = Some(Kernel { state, cpu: Duration::from_millis(cpu_ms), queued: Duration::ZERO, switches });
        Look { thread: 1, lwp: 7, beats, activity: Activity::Works, kernel }
    }

    fn after(looks: &[Look]) -> Held {
        let mut judge = Judge::default();
        for look in looks {
            judge.look(SECOND, &[*look]);
        }
        judge.held(1)
    }

    #[test]
    fn a_thread_that_spins_is_charged_what_it_took() {
        let looks: Vec<_> = (0..6).map(|n| at(3, 'R', n * 900, 0)).collect();
        assert_eq!(after(&looks), Held { cpu: Duration::from_millis(3600), ..Held::default() });
    }

    #[test]
    fn a_thread_that_sleeps_in_a_call_is_charged_the_time() {
        let looks: Vec<_> = (0..6).map(|_| at(3, 'S', 5, 1)).collect();
        assert_eq!(after(&looks).blocked, SECOND * 4);
        let looks: Vec<_> = (0..6).map(|_| at(3, 'D', 5, 1)).collect();
        assert_eq!(after(&looks).blocked, SECOND * 4);
    }

    #[test]
    fn a_thread_that_gets_no_processor_is_charged_nothing() {
        let looks: Vec<_> = (0..600).map(|_| at(3, 'R', 5, 1)).collect();
        assert_eq!(after(&looks), Held { starves: true, ..Held::default() });
        // A hundredth of one.
        let looks: Vec<_> = (0..100).map(|n| at(3, 'R', n * 10, 1)).collect();
        assert_eq!(after(&looks).cpu, Duration::from_millis(980));
    }

    #[test]
    fn a_thread_that_wakes_now_and_then_and_gets_no_processor_is_charged_its_sleep_alone() {
        let mut looks: Vec<_> = (0..12).map(|n| at(3, 'S', n * 20, n)).collect();
        for (look, n) in looks.iter_mut().zip(0..) {
            look.kernel.as_mut().unwrap().queued = Duration::from_millis(n * 900);
        }
        assert_eq!(after(&looks), Held { cpu: Duration::from_millis(200), blocked: Duration::from_millis(800), starves: false });
    }

    #[test]
    fn memory_that_comes_page_by_page_a_debugger_and_progress_are_no_fault() {
        let looks: Vec<_> = (0..100).map(|n| at(3, 'D', 5, n)).collect();
        assert_eq!(after(&looks), Held::default());
        let looks: Vec<_> = (0..100).map(|_| at(3, 't', 5, 0)).collect();
        assert_eq!(after(&looks), Held::default());
        let looks: Vec<_> = (0..100).map(|n| at(n, 'R', n * 1000, 0)).collect();
        assert_eq!(after(&looks), Held::default());
        let mut looks: Vec<_> = (0..100).map(|_| at(3, 'S', 0, 0)).collect();
        looks.iter_mut().for_each(|look| look.activity = Activity::Rests);
        assert_eq!(after(&looks), Held::default());
        looks.iter_mut().for_each(|look| look.activity = Activity::Waits);
        assert_eq!(after(&looks), Held::default());
    }

    #[test]
    fn who_waits_for_a_thread_that_starves_is_not_charged() {
        let mut judge = Judge::default();
        let main = Look { thread: 0, lwp: 6, ..at(9, 'S', 0, 0) };
        for _ in 0..10 {
            judge.look(SECOND, &[main, at(3, 'R', 5, 1)]);
        }
        assert_eq!(judge.held(0), Held::default());
        for n in 0..3 {
            judge.look(SECOND, &[main, at(4 + n, 'R', 500 * n, 1)]);
        }
        assert_eq!(judge.held(0).blocked, SECOND * 3, "the other has its processor back");
    }

    #[test]
    fn another_thread_of_the_same_number_begins_anew() {
        let mut judge = Judge::default();
        judge.look(SECOND, &[at(3, 'R', 0, 0)]);
        judge.look(SECOND, &[at(3, 'R', 900, 0)]);
        judge.look(SECOND, &[at(3, 'R', 1800, 0)]);
        assert_eq!(judge.held(1).cpu, Duration::from_millis(900));
        assert!(judge.wants_kernel(1, 7, 3, Activity::Works) && !judge.wants_kernel(1, 7, 4, Activity::Works));
        judge.look(SECOND, &[Look { lwp: 8, ..at(3, 'R', 2700, 0) }]);
        assert_eq!(judge.held(1), Held::default());
        judge.look(SECOND, &[]);
        assert_eq!(judge.held(1), Held::default());
    }
}
