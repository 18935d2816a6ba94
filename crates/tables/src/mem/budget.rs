//! A structure's own memory limit.

use crate::error::OutOfMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit that all parts of one structure draw from, and the sum they hold. Clones share the account.
///
/// There is no process-wide state: two structures meet only if they are given the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Default for Budget {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl Budget {
    /// Only the machine limits.
    pub fn unlimited() -> Self {
        Self::limited(usize::MAX)
    }

    /// At most `bytes` bytes committed at a time.
    pub fn limited(bytes: usize) -> Self {
        Budget { account: Arc::new(Account { limit: AtomicUsize::new(bytes), used: AtomicUsize::new(0) }) }
    }

    /// Changes the limit; what is held already stays.
    pub fn set_limit(&self, bytes: usize) {
        self.account.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes committed now.
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let limit = self.account.limit.load(Ordering::Relaxed);
        let grown = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(_) => Err(OutOfMemory),
        }
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.account.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_up_to_the_limit_and_no_further() {
        let b = Budget::limited(100);
        assert_eq!((b.take(60), b.take(41), b.take(40), b.used()), (Ok(()), Err(OutOfMemory), Ok(()), 100));
        b.give(60);
        b.set_limit(39);
        assert_eq!((b.take(0), b.take(usize::MAX)), (Err(OutOfMemory), Err(OutOfMemory)));
        b.set_limit(41);
        assert_eq!((b.take(1), b.used()), (Ok(()), 41));
    }
}
