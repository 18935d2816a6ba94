//! Who may run what: operations that read, operations that change.

use super::{OpError, retval};

/// What an operation does, and what a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Access {
    /// It reads: configuration, counters and packets in flight stay as they are, and no file is made.
    Read,
    /// It changes something, clears a counter, sends or copies packets, or makes a file.
    Change,
    /// Nobody has said: treated as [`Change`](Self::Change). A test of the router refuses operations that say nothing.
    #[default]
    Undeclared,
}

impl Access {
    /// Whether a client with these rights may do what `needed` says.
    pub fn allows(self, needed: Self) -> bool {
        self == Self::Change || needed == Self::Read
    }

    /// The refusal of what a client may not do.
    pub fn check(self, needed: Self) -> Result<(), OpError> {
        if self.allows(needed) {
            return Ok(());
        }
        let error = OpError::new(retval::NOT_RUNNING_AS_ROOT, "permission denied: this client may only read");
        Err(error.remedy("ask a member of the group of `unix { gid }'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_reads_may_do_nothing_else_and_undeclared_counts_as_a_change() {
        assert!(Access::Read.allows(Access::Read));
        for needed in [Access::Change, Access::Undeclared] {
            assert!(!Access::Read.allows(needed) && Access::Change.allows(needed));
            let error = Access::Read.check(needed).unwrap_err();
            assert_eq!(error.code, retval::NOT_RUNNING_AS_ROOT);
        }
        assert!(!Access::Undeclared.allows(Access::Change), "a client of unknown rights changes nothing");
    }
}
