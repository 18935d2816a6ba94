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
        self.and_then(|value| Step::Done(Ok(reply(value))))
    }

    /// What follows the end, where that has a reply.
    pub fn and_then<T>(self, next: impl FnOnce(R) -> Step<T>) -> Step<T> {
        match self {
            Self::Again => Step::Again,
            Self::Sleep(pause) => Step::Sleep(pause),
            Self::Wait => Step::Wait,
            Self::Print(text) => Step::Print(text),
            Self::Done(Ok(reply)) => next(reply),
            Self::Done(Err(error)) => Step::Done(Err(error)),
        }
    }

    /// Without the text of its progress.
    pub fn quiet(self) -> Self {
        if let Self::Print(_) = self { Self::Again } else { self }
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

type Next<C, A, R> = Box<dyn FnOnce(&mut C, A) -> Result<Box<dyn Job<C, R>>, OpError>>;

/// A job, then one that builds on its reply. No other operation runs before the second one ends, but where the one that runs yields.
pub enum Chain<C, A, R> {
    /// The first one runs; what makes the second one of its reply.
    First(Box<dyn Job<C, A>>, Option<Next<C, A, R>>),
    /// The second one runs.
    Second(Box<dyn Job<C, R>>),
}

impl<C, A, R> Chain<C, A, R> {
    /// Of the first job, and what makes the second one.
    pub fn new<J: Job<C, R> + 'static>(
        first: impl Job<C, A> + 'static,
        next: impl FnOnce(&mut C, A) -> Result<J, OpError> + 'static,
    ) -> Self {
        Self::First(Box::new(first), Some(Box::new(|control, reply| Ok(Box::new(next(control, reply)?)))))
    }
}

impl<C, A, R> Job<C, R> for Chain<C, A, R> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<R> {
        let (first, next) = match self {
            Self::First(first, next) => (first, next),
            Self::Second(second) => return second.step(control, budget),
        };
        let made = first.step(control, budget).and_then(|reply| match next.take() {
            Some(next) => Step::Done(next(control, reply)),
            None => Step::Done(Err(OpError::unspecified("ended twice"))),
        });
        made.and_then(|second| {
            *self = Self::Second(second);
            Step::Again
        })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::First(first, _) => first.poll_ready(context),
            Self::Second(second) => second.poll_ready(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        match self {
            Self::First(first, _) => first.yields(),
            Self::Second(second) => second.yields(),
        }
    }

    fn cancel(&mut self, control: &mut C) {
        match self {
            Self::First(first, _) => first.cancel(control),
            Self::Second(second) => second.cancel(control),
        }
    }
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
