//! Reading and writing checkpoints, while another thread waits for the disk.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::configuration::Entry;
use quiver_command::operation::{Job, OpError, Step};
use quiver_net::Router;
use quiver_net::files::Elsewhere;

use super::{Checkpoints, Heading};

/// Gets the configuration of a checkpoint.
pub enum Load {
    /// It is in memory.
    Ready(Arc<Vec<Entry>>),
    /// It is being read.
    Reading(Elsewhere<Vec<Entry>, Arc<Vec<Entry>>>),
}

impl Load {
    pub(super) const fn ready(entries: Arc<Vec<Entry>>) -> Self {
        Self::Ready(entries)
    }

    pub(super) fn reading(read: impl FnOnce() -> Result<Vec<Entry>, OpError> + Send + 'static) -> Self {
        Self::Reading(Elsewhere::new(read, |_, entries| Ok(Arc::new(entries))))
    }
}

impl Job<Router, Arc<Vec<Entry>>> for Load {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Arc<Vec<Entry>>> {
        match self {
            Self::Ready(entries) => Step::Done(Ok(Arc::clone(entries))),
            Self::Reading(read) => read.step(router, budget),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Ready(_) => Poll::Ready(()),
            Self::Reading(read) => read.poll_ready(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, router: &mut Router) {
        if let Self::Reading(read) = self {
            read.cancel(router);
        }
    }
}

/// Keeps a checkpoint.
pub struct Keep(Elsewhere<(), ()>);

impl Keep {
    /// Steps it for a change that is done: that it cannot be taken back is no reason to have it fail.
    pub fn ended(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        match self.step(router, budget) {
            Step::Done(Err(error)) => {
                tracing::warn!(target: "startup", "the configuration before the change is not kept: {error}");
                Step::Done(Ok(()))
            }
            step => step,
        }
    }

    pub(super) fn in_memory(heading: Heading, entries: Arc<Vec<Entry>>) -> Self {
        let kept = move |router: &mut Router, ()| {
            Checkpoints::of(router).kept(heading, Some(entries));
            Ok(())
        };
        Self(Elsewhere::new(|| Ok(()), kept))
    }

    pub(super) fn in_file(heading: Heading, write: impl FnOnce() -> Result<(), OpError> + Send + 'static) -> Self {
        let kept = |router: &mut Router, ()| {
            Checkpoints::of(router).kept(heading, None);
            Ok(())
        };
        Self(Elsewhere::new(write, kept))
    }
}

impl Job<Router, ()> for Keep {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        self.0.step(router, budget)
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn exclusive(&self) -> bool {
        true
    }

    /// The file is written anyway: it comes to its end.
    fn cancel(&mut self, _: &mut Router) {}
}
