//! Long operations, run in slices.

use super::OpError;
use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

/// What [`Operation::run`](super::Operation::run) hands back.
pub enum Outcome<C, R> {
    /// Finished: the reply.
    Done(R),
    /// Not finished: step this until it is.
    Job(Box<dyn Job<C, R>>),
}

impl<C, R> Outcome<C, R> {
    /// Wraps a job.
    pub fn job(job: impl Job<C, R> + 'static) -> Self {
        Self::Job(Box::new(job))
    }
}

/// What one slice of a [`Job`] came to.
#[derive(Debug)]
pub enum Step<R> {
    /// Call again as soon as other work has had its turn.
    Again,
    /// Call again after this time, or when cancelled.
    Sleep(Duration),
    /// Call again when [`Job::poll_ready`] says so, or when cancelled: another thread works for the job.
    Wait,
    /// Progress text for whoever asked (complete lines); call again.
    Print(String),
    /// Finished.
    Done(Result<R, OpError>),
}

impl<R> Step<R> {
    /// With another reply, where it is the end and has one.
    pub fn map<T>(self, reply: impl FnOnce(R) -> T) -> Step<T> {
        match self {
            Self::Again => Step::Again,
            Self::Sleep(pause) => Step::Sleep(pause),
            Self::Wait => Step::Wait,
            Self::Print(text) => Step::Print(text),
            Self::Done(result) => Step::Done(result.map(reply)),
        }
    }
}

/// A long operation in slices; the main loop owns when it runs.
pub trait Job<C, R> {
    /// Works for at most about `budget` and says how to go on. Not called again after [`Step::Done`].
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<R>;

    /// After [`Step::Wait`]: whether there is something to do again; otherwise the waker is woken when there is.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether no other operation may run before this one ends, but where it [yields](Self::yields). True for what
    /// changes configuration in several slices (one total order), false for what only watches, such as `ping`.
    fn exclusive(&self) -> bool;

    /// Whether other operations may run now, before the next slice: an exclusive job that is between two operations of its own, such
    /// as a script between two lines.
    fn yields(&self) -> bool {
        !self.exclusive()
    }

    /// Whoever asked is gone or pressed a key: stop early. The job is stepped on until it says
    /// [`Step::Done`], so that it can still give a summary and clean up; it must end promptly.
    fn cancel(&mut self, control: &mut C);
}

/// Steps a job to its end without yielding, collecting what it printed. For tests and for start-up,
/// when nothing else wants to run; `sleep` is called for pauses.
pub fn run_to_end<C, R>(
    job: &mut dyn Job<C, R>,
    control: &mut C,
    printed: &mut String,
    mut sleep: impl FnMut(Duration),
) -> Result<R, OpError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match job.step(control, Duration::MAX) {
            Step::Again => {}
            Step::Wait => {
                while job.poll_ready(&mut Context::from_waker(&waker)).is_pending() {
                    thread::park();
                }
            }
            Step::Sleep(pause) => sleep(pause),
            Step::Print(text) => printed.push_str(&text),
            Step::Done(result) => return result,
        }
    }
}

/// Wakes the thread that runs a job to its end.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
