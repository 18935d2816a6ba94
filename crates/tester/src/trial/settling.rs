//! The wait behind the last departure.

use std::time::{Duration, Instant};

/// What a turn counts for at most, several times what it takes: the rest is a machine that stood still, its receivers as well.
const TURN: Duration = Duration::from_millis(20);

/// How long the tester has waited for frames that are under way.
pub struct Settling {
    waited: Duration,
    last: Instant,
}

impl Settling {
    /// Begins to wait.
    pub fn begin(now: Instant) -> Self {
        Self { waited: Duration::ZERO, last: now }
    }

    /// After a turn: the time that was waited so far.
    pub fn turn(&mut self, now: Instant) -> Duration {
        self.waited += now.saturating_duration_since(self.last).min(TURN);
        self.last = now;
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_machine_stood_still_is_not_waited() {
        let ms = Duration::from_millis;
        let mut now = Instant::now();
        let mut settling = Settling::begin(now);
        for (passes, waited) in [(2, 2), (3, 5), (10_000, 25), (1, 26)] {
            now += ms(passes);
            assert_eq!(settling.turn(now), ms(waited));
        }
    }
}
