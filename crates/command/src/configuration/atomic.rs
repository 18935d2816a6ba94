//! Has a job change all that it changes, or nothing.
//!
//! ```text
//!  collect ──► hold the log ──► the job ──► done: its records, all of them or none, for whoever asked to keep
//!                                  │ fails
//!                                  ▼
//!                               restore what was collected ──► the log forgets the records
//! ```
//!
//! It keeps its turn to its end, so nobody sees, or builds on, the half of it.

use super::{Collect, Entry, Restore};
use crate::change_log::{ChangeLog, Hold};
use crate::operation::{Job, OpError, Registry, Step};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What an [`Atomic`] job has come to.
pub struct Applied<R> {
    /// The job's own reply.
    pub reply: R,
    /// What was configured before, with its undoing.
    pub before: Arc<Vec<Entry>>,
    /// The records of what it has changed, which are forgotten unless they are kept.
    pub hold: Hold,
}

/// Runs a job, and goes back to what was configured before it where it fails.
pub struct Atomic<C, R> {
    registry: Rc<Registry<C>>,
    /// Where the job's changes are recorded.
    log: Option<Rc<dyn ChangeLog>>,
    phase: Phase<C, R>,
    before: Arc<Vec<Entry>>,
    hold: Option<Hold>,
}

enum Phase<C, R> {
    /// What there is before the job runs.
    Collecting(Collect<C>, Option<Box<dyn Job<C, R>>>),
    Running(Box<dyn Job<C, R>>),
    /// It has failed.
    Returning(Restore<C>, OpError),
}

impl<C: 'static, R> Atomic<C, R> {
    /// Of a job that has not changed anything yet.
    pub fn new(registry: Rc<Registry<C>>, control: &C, job: Box<dyn Job<C, R>>) -> Self {
        let log = registry.change_log(control);
        let phase = Phase::Collecting(registry.collect().with_undo(), Some(job));
        Self { registry, log, phase, before: Arc::default(), hold: None }
    }

    /// Of a job that has not changed anything yet, where what is configured was collected with its undoing in the same turn.
    pub fn since(registry: Rc<Registry<C>>, control: &C, before: Arc<Vec<Entry>>, job: Box<dyn Job<C, R>>) -> Self {
        let log = registry.change_log(control);
        let hold = Some(Hold::begin(log.clone()));
        Self { registry, log, phase: Phase::Running(job), before, hold }
    }

    /// It is as before, or as near to that as could be.
    fn returned(&mut self, result: Result<usize, OpError>, error: OpError) -> OpError {
        let hold = self.hold.take();
        let what = match result {
            Ok(0) => "nothing has changed".to_owned(),
            Ok(_) => "all is as before".to_owned(),
            Err(second) => {
                // What there is now is neither: at least it lasts.
                hold.into_iter().for_each(Hold::give_up);
                format!("going back failed, too: {}", second.message)
            }
        };
        OpError { message: format!("{}; {what}", error.message), ..error }
    }
}

impl<C: 'static, R> Job<C, Applied<R>> for Atomic<C, R> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<Applied<R>> {
        match &mut self.phase {
            Phase::Collecting(collect, job) => {
                let step = collect.step(control, budget).map(|configuration| (configuration, job.take()));
                step.and_then(|(configuration, job)| {
                    self.before = Arc::new(configuration.into_entries());
                    self.hold = Some(Hold::begin(self.log.clone()));
                    job.into_iter().for_each(|job| self.phase = Phase::Running(job));
                    Step::Again
                })
            }
            Phase::Running(job) => match job.step(control, budget) {
                Step::Done(Err(error)) => {
                    self.phase = Phase::Returning(Restore::new(Rc::clone(&self.registry), Arc::clone(&self.before)), error);
                    Step::Again
                }
                step => step.map(|reply| {
                    let hold = self.hold.take().unwrap_or_else(|| Hold::begin(None));
                    Applied { reply, before: Arc::clone(&self.before), hold }
                }),
            },
            Phase::Returning(restore, error) => match restore.step(control, budget) {
                Step::Done(result) => {
                    let error = error.clone();
                    Step::Done(Err(self.returned(result, error)))
                }
                Step::Sleep(pause) => Step::Sleep(pause),
                Step::Wait => Step::Wait,
                Step::Again | Step::Print(_) => Step::Again,
            },
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.phase {
            Phase::Collecting(..) => Poll::Ready(()),
            Phase::Running(job) => job.poll_ready(context),
            Phase::Returning(restore, _) => restore.poll_ready(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        false
    }

    /// The job ends early, which is a failure; going back does not.
    fn cancel(&mut self, control: &mut C) {
        match &mut self.phase {
            Phase::Collecting(collect, _) => collect.cancel(control),
            Phase::Running(job) => job.cancel(control),
            Phase::Returning(..) => {}
        }
    }
}
