//! When the reader compares its table with the kernel next.
//!
//! After an event with which the kernel removes routes without a word a comparison follows. A routing daemon that withdraws a full table
//! after such an event needs seconds. To list the kernel's routes meanwhile would take the lock that the daemon's changes need and
//! processor time of the reader, for a list that is old when it ends. So a comparison waits until the kernel has been quiet for a moment.

use std::time::{Duration, Instant};

/// How long nothing is announced before a comparison begins: several events make one.
const QUIET: Duration = Duration::from_millis(500);
/// How long announcements put it off at most.
const MOST: Duration = Duration::from_secs(30);

/// The time of the next comparison.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    at: Option<Instant>,
    /// Since when it has been waited for quiet.
    since: Option<Instant>,
}

impl Schedule {
    /// It begins as soon as it can.
    pub fn at_once(&mut self, now: Instant) {
        *self = Self { at: Some(now), since: None };
    }

    /// Something has happened that removes routes without a word.
    pub fn suspect(&mut self, now: Instant) {
        if self.at.is_none() {
            *self = Self { at: Some(now + QUIET), since: Some(now) };
        }
    }

    /// Routes have been announced.
    pub fn announced(&mut self, now: Instant) {
        if let Some(since) = self.since {
            self.at = Some((now + QUIET).min(since + MOST));
        }
    }

    /// When it begins, if one is to.
    pub fn due(&self) -> Option<Instant> {
        self.at
    }

    /// It begins.
    pub fn begin(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_waits_until_the_kernel_is_quiet_but_not_for_ever() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut schedule = Schedule::default();
        schedule.announced(at(0));
        assert_eq!(schedule.due(), None, "there is nothing to compare");
        schedule.suspect(at(0));
        schedule.suspect(at(100));
        assert_eq!(schedule.due(), Some(at(500)));
        schedule.announced(at(400));
        assert_eq!(schedule.due(), Some(at(900)));
        schedule.announced(at(29_900));
        assert_eq!(schedule.due(), Some(at(30_000)));
        schedule.begin();
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn what_was_lost_or_asked_for_is_compared_at_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.suspect(now);
        schedule.at_once(now);
        schedule.announced(now + QUIET);
        schedule.suspect(now + QUIET);
        assert_eq!(schedule.due(), Some(now));
    }
}
