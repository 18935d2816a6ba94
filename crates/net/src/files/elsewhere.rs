//! Work that may wait for a disk, done by another thread while the main thread goes on.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use blocking::{Task, unblock};
use quiver_command::operation::{Job, OpError, Step};

use crate::Router;

type Then<T, R> = Box<dyn FnOnce(&mut Router, T) -> Result<R, OpError>>;

/// Two steps: what another thread does, and what the main thread makes of it.
///
/// Whoever goes away does not wait for the other thread. What it has begun comes to its end there: a file is whole or absent.
pub struct Elsewhere<T, R> {
    task: Task<Result<T, OpError>>,
    done: Option<Result<T, OpError>>,
    then: Option<Then<T, R>>,
    exclusive: bool,
    cancelled: bool,
}

impl<T: Send + 'static, R> Elsewhere<T, R> {
    /// Lets another thread do `work`; other commands run meanwhile.
    pub fn new(
        work: impl FnOnce() -> Result<T, OpError> + Send + 'static,
        then: impl FnOnce(&mut Router, T) -> Result<R, OpError> + 'static,
    ) -> Self {
        Self::of(unblock(work), then)
    }

    /// Waits for what another thread does already.
    pub fn of(task: Task<Result<T, OpError>>, then: impl FnOnce(&mut Router, T) -> Result<R, OpError> + 'static) -> Self {
        Self { task, done: None, then: Some(Box::new(then)), exclusive: false, cancelled: false }
    }

    /// The same, but no other command runs before it ends: it changes what the next one may build on.
    pub fn alone(self) -> Self {
        Self { exclusive: true, ..self }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.done.is_none() {
            match Pin::new(&mut self.task).poll(context) {
                Poll::Ready(result) => self.done = Some(result),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

impl<T: Send + 'static, R> Job<Router, R> for Elsewhere<T, R> {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<R> {
        let ready = self.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready();
        match (self.done.take(), self.then.take()) {
            (Some(result), Some(then)) => Step::Done(result.and_then(|value| then(router, value))),
            (_, then) => {
                self.then = then;
                if self.cancelled || ready {
                    return Step::Done(Err(OpError::unspecified("cancelled")));
                }
                Step::Wait
            }
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.cancelled { Poll::Ready(()) } else { self.poll(context) }
    }

    fn exclusive(&self) -> bool {
        self.exclusive
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.cancelled = true;
    }
}
