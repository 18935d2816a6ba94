//! How many ICMP errors may be sent (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f): a token bucket for each worker, and
//! one for all together.
//!
//! A bucket is kept as the time at which it will be full again (GCRA): one number, which many workers can change by
//! compare-and-swap. It is met only by packets that are about to be answered by an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Limits of ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Errors a second of one worker; 0: as many as all together may send.
    pub per_worker: u32,
    /// Errors a second of all workers; 0: without limit.
    pub total: u32,
    /// How many may go out at once after a pause.
    pub burst: u32,
}

impl Default for RateLimit {
    /// Room for some hundred traceroutes at a time, and no amplifier of floods.
    fn default() -> Self {
        Self { per_worker: 0, total: 1000, burst: 200 }
    }
}

/// Errors sent, and those that the limit kept back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitFigures {
    /// Sent.
    pub sent: u64,
    /// Kept back.
    pub suppressed: u64,
}

/// The limit and the bucket of all workers.
#[derive(Debug)]
pub(super) struct Limiter {
    per_worker: AtomicU32,
    total: AtomicU32,
    burst: AtomicU32,
    full_at: AtomicU64,
}

impl Default for Limiter {
    fn default() -> Self {
        let RateLimit { per_worker, total, burst } = RateLimit::default();
        Self { per_worker: per_worker.into(), total: total.into(), burst: burst.into(), full_at: AtomicU64::new(0) }
    }
}

impl Limiter {
    pub fn get(&self) -> RateLimit {
        RateLimit {
            per_worker: self.per_worker.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            burst: self.burst.load(Ordering::Relaxed),
        }
    }

    pub fn set(&self, limit: RateLimit) {
        self.per_worker.store(limit.per_worker, Ordering::Relaxed);
        self.total.store(limit.total, Ordering::Relaxed);
        self.burst.store(limit.burst, Ordering::Relaxed);
        // Debts of the old limit are forgiven.
        self.full_at.store(0, Ordering::Relaxed);
    }

    /// Whether all together may send one more at `now`; takes nothing.
    pub fn has_room(&self, now: u64) -> bool {
        let RateLimit { total, burst, .. } = self.get();
        total == 0 || take(self.full_at.load(Ordering::Relaxed), now, total, burst).is_some()
    }
}

/// Takes a token at `now`: when the bucket will be full again, or `None` where it is empty.
fn take(full_at: u64, now: u64, rate: u32, burst: u32) -> Option<u64> {
    let step = 1_000_000_000 / u64::from(rate.max(1));
    let room = step * u64::from(burst.max(1));
    // More debt than the bucket has room for is of another limit or another clock: it is forgiven.
    let debt = full_at.saturating_sub(now);
    let debt = if debt > room { 0 } else { debt };
    (debt + step <= room).then_some(now + debt + step)
}

/// A worker's bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limiter: Arc<Limiter>,
    full_at: u64,
}

impl Bucket {
    pub fn new(limiter: Arc<Limiter>) -> Self {
        Self { limiter, full_at: 0 }
    }

    /// Whether one more may go out at `now` (ns).
    pub fn allow(&mut self, now: u64) -> bool {
        let RateLimit { per_worker, total, burst } = self.limiter.get();
        let own = if per_worker == 0 { Some(self.full_at) } else { take(self.full_at, now, per_worker, burst) };
        let Some(own) = own else { return false };
        if total != 0 {
            let update = |full_at| take(full_at, now, total, burst);
            if self.limiter.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_err() {
                return false;
            }
        }
        self.full_at = own;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn allowed(bucket: &mut Bucket, now: u64, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(bucket.allow(now))).sum()
    }

    #[test]
    fn a_burst_goes_out_at_once_and_then_the_rate() {
        let limiter = Arc::new(Limiter::default());
        limiter.set(RateLimit { per_worker: 0, total: 100, burst: 10 });
        let mut bucket = Bucket::new(limiter);
        assert_eq!(allowed(&mut bucket, SECOND, 50), 10);
        let later: u32 = (1..=1000).map(|ms| allowed(&mut bucket, SECOND + ms * 1_000_000, 5)).sum();
        assert_eq!(later, 100);
        assert_eq!(allowed(&mut bucket, 10 * SECOND, 50), 10);
    }

    #[test]
    fn workers_share_the_total_and_each_has_its_own() {
        let limiter = Arc::new(Limiter::default());
        limiter.set(RateLimit { per_worker: 10, total: 15, burst: 10 });
        let mut buckets = [Bucket::new(limiter.clone()), Bucket::new(limiter.clone())];
        assert_eq!(allowed(&mut buckets[0], SECOND, 50), 10);
        assert_eq!(allowed(&mut buckets[1], SECOND, 50), 0, "the total's burst is spent");
        limiter.set(RateLimit { per_worker: 10, total: 0, burst: 10 });
        assert_eq!(allowed(&mut buckets[0], SECOND, 50), 0);
        assert_eq!(allowed(&mut buckets[1], SECOND, 50), 10);
    }

    #[test]
    fn no_limit_lets_all_through_and_a_clock_set_back_does_not_silence() {
        let limiter = Arc::new(Limiter::default());
        limiter.set(RateLimit { per_worker: 0, total: 0, burst: 0 });
        let mut bucket = Bucket::new(limiter.clone());
        assert_eq!(allowed(&mut bucket, 0, 5000), 5000);
        limiter.set(RateLimit { per_worker: 0, total: 1, burst: 2 });
        assert_eq!(allowed(&mut bucket, 100 * SECOND, 9), 2);
        assert_eq!(allowed(&mut bucket, SECOND, 9), 2);
        assert_eq!(allowed(&mut bucket, 2 * SECOND, 9), 1);
    }
}
