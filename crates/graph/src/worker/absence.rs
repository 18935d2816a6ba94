//! How long a thread does not look at its devices: the time from one poll of the input queues to the next, sleep apart.
//!
//! An iteration with full vectors takes some microseconds. What takes longer is a change that the main thread sent, a slow node, or the
//! kernel, which has given the processor to another thread. The last of these the thread cannot help, so it is counted apart: the kernel
//! says how often it took the processor away (`ru_nivcsw` of getrusage(2)). A hypervisor that does so is not seen that way.

/// Upper bounds of the classes of absences, µs; the last class has none.
pub const BOUNDS: [u64; 7] = [20, 50, 100, 200, 500, 1000, 10_000];
/// Shorter ones are not counted, ns: nearly all are.
const SHORTEST: u64 = 10_000;
/// From here on it is asked whether another thread had the processor, ns: the question is a system call.
const ASKED: u64 = 50_000;

/// Absences of a thread, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absences {
    /// Those of its own doing, from 10 µs on, by the classes of [`BOUNDS`].
    pub own: [u64; BOUNDS.len() + 1],
    /// Those in which the kernel ran another thread, from 50 µs on, by the same classes.
    pub preempted: [u64; BOUNDS.len() + 1],
    /// The longest of the first kind, ns.
    pub longest_own: u64,
    /// The longest of the second kind, ns.
    pub longest_preempted: u64,
}

/// What a thread notes of its absences.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Time of the last poll, ns; none after a sleep.
    last: Option<u64>,
    /// How often the processor was taken away, as last seen.
    switches: i64,
}

impl Presence {
    /// The thread looks at its devices.
    #[inline(always)]
    pub fn here(&mut self, now: u64, absences: &mut Absences) {
        let gap = self.last.map_or(0, |last| now.saturating_sub(last));
        self.last = Some(now);
        if gap >= SHORTEST {
            self.note(gap, absences);
        }
    }

    /// It was not to look: it slept.
    pub fn rested(&mut self) {
        self.last = None;
    }

    #[cold]
    fn note(&mut self, gap: u64, absences: &mut Absences) {
        let class = BOUNDS.iter().position(|bound| gap < bound * 1000).unwrap_or(BOUNDS.len());
        let switches = if gap < ASKED { self.switches } else { involuntary_switches() };
        // The first look, too, is about all switches since the thread's start.
        let preempted = std::mem::replace(&mut self.switches, switches) != switches;
        let (counts, longest) = match preempted {
            true => (&mut absences.preempted, &mut absences.longest_preempted),
            false => (&mut absences.own, &mut absences.longest_own),
        };
        counts[class] += 1;
        *longest = gap.max(*longest);
    }
}

/// How often the kernel has taken the processor away from this thread.
fn involuntary_switches() -> i64 {
    // SAFETY: rusage is plain C data for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `usage`, which lives over it.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if done == 0 { usage.ru_nivcsw } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absences_are_counted_by_class_and_sleep_is_none() {
        let (mut presence, mut absences) = (Presence::default(), Absences::default());
        let mut now = 1_000_000_000;
        presence.switches = involuntary_switches();
        for (gap, rests) in [(9_999, false), (10_000, false), (19_999, false), (49_999, false), (1 << 40, true), (5, false)] {
            presence.here(now, &mut absences);
            if rests {
                presence.rested();
            }
            now += gap;
        }
        presence.here(now, &mut absences);
        assert_eq!((absences.own[0], absences.own[1], absences.own[2..].iter().sum::<u64>()), (2, 1, 0));
        assert_eq!((absences.longest_own, absences.preempted), (49_999, [0; BOUNDS.len() + 1]));
        // Whichever kind it is on this machine now.
        presence.here(now + 20_000_000, &mut absences);
        assert_eq!(absences.own[BOUNDS.len()] + absences.preempted[BOUNDS.len()], 1);
        assert_eq!(absences.longest_own.max(absences.longest_preempted), 20_000_000);
        // The kernel has taken the processor away since.
        presence.switches = -1;
        presence.here(now + 20_060_000, &mut absences);
        assert_eq!(absences.preempted[2], 1);
    }
}
