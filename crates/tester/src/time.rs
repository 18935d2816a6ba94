//! The tester's time: the data plane's clock, or one that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_graph::clock::{Clock, Source};

/// Where times come from. Sender and receiver of a trial share one.
#[derive(Clone)]
pub enum Time {
    /// The clock of this machine.
    Real(Arc<Clock>),
    /// A number, ns, that somebody sets.
    Set(Arc<AtomicU64>),
}

impl Time {
    /// ns now.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self {
            Self::Real(clock) => clock.now(),
            Self::Set(now) => now.load(Ordering::Relaxed),
        }
    }

    /// What results call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Real(clock) if clock.source() == Source::Counter => "tsc",
            Self::Real(_) => "kernel",
            Self::Set(_) => "set",
        }
    }
}
