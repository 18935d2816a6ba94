//! How many requests a thread sends: token buckets in all, for packets of one interface, and of one source.

use super::hold::Advice;
use crate::owner::{INTERFACES, Owner, SOURCES};

/// Requests that a thread sends: one in so many ns, and so many at once; in all, for packets of one interface, of one source.
const ALL: Rate = Rate { interval: 100_000, burst: 1_000 };
const INTERFACE: Rate = Rate { interval: 200_000, burst: 750 };
const SOURCE: Rate = Rate { interval: 400_000, burst: 500 };

#[derive(Clone, Copy)]
struct Rate {
    interval: u64,
    burst: u64,
}

impl Rate {
    /// When the next one is due at the steady rate (the "virtual scheduling" form of a token bucket).
    fn due(self, next: u64, now: u64) -> Option<u64> {
        let due = next.max(now.saturating_sub((self.burst - 1) * self.interval));
        (due <= now).then_some(due + self.interval)
    }
}

/// Token buckets of requests: of all, of each interface, of each owner.
pub(super) struct Buckets {
    all: u64,
    interfaces: [u64; INTERFACES],
    owners: Box<[u64]>,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { all: 0, interfaces: [0; INTERFACES], owners: vec![0; INTERFACES * SOURCES].into() }
    }
}

impl Buckets {
    /// Takes a token of each; none where one is missing.
    pub fn take(&mut self, owner: Owner, now: u64) -> Result<(), Advice> {
        let (at, interface) = (owner.number(), owner.interface());
        let source = SOURCE.due(self.owners[at], now).ok_or(Advice::SourceThrottled)?;
        let of_interface = INTERFACE.due(self.interfaces[interface], now).ok_or(Advice::SourceThrottled)?;
        self.all = ALL.due(self.all, now).ok_or(Advice::Throttled)?;
        (self.owners[at], self.interfaces[interface]) = (source, of_interface);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_interface_leaves_half_of_the_requests_to_others() {
        let mut buckets = Buckets::default();
        let start = 1_000_000_000_000;
        let (mut flood, mut others) = (0, 0);
        for step in 0..1_000_000_u64 {
            let now = start + step * 1_000;
            // Sources without number on interface 1, and one in a millisecond on interface 2.
            flood += u32::from(buckets.take(Owner::new(1, step as u32), now).is_ok());
            if step % 1000 == 0 {
                others += u32::from(buckets.take(Owner::new(2, 7), now).is_ok());
            }
        }
        assert_eq!(others, 1000);
        assert!((5_000..6_000).contains(&flood), "{flood}");
    }
}
