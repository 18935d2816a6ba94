//! The main thread's event loop: a single-threaded executor over epoll and a heap of timers.
//!
//! Process nodes, the command language and all other background work are tasks on one [`MainLoop`]. There is no thread
//! behind it. A main thread that also forwards alternates: one pass over the graph, one [`MainLoop::turn`] with nothing to
//! wait for, which runs tasks for at most a budget of some 50 µs. A task that works long yields by [`yield_now`].
//!
//! ```text
//!   turn:  due timers ──► epoll, without waiting ──► ready tasks, within the budget
//!                                                     │ none ran, and the caller has time
//!                                                     ▼
//!                          epoll, until an event, a timer or a wake-up from another thread ──► ready tasks
//! ```
//!
//! Wakers may be used from any thread. Workers, which must never wait for the main thread, use [`Notify`] instead: an
//! atomic flag, and one write to an eventfd if the flag was not set.
//!
//! Timers follow [`Clock::timer_now`], so `set clock adjust` moves them.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_executor::LocalExecutor;
pub use async_executor::Task;

use crate::clock::Clock;
use crate::pulse::{Activity, Pulse};

mod async_fd;
mod epoll;
mod notify;
mod peer;
#[cfg(test)]
mod tests;
mod timers;

pub use async_fd::AsyncFd;
pub use epoll::{Reactor, Ready};
pub use notify::Notify;
pub use peer::{peer_credentials, peer_groups};
pub use timers::Sleep;

use notify::Parker;

/// How long a turn runs ready tasks unless [`MainLoop::set_budget`] says otherwise.
const BUDGET: Duration = Duration::from_micros(50);
/// A caller that has no time to wait gets an epoll call this often, not in each of a million turns a second.
const POLL_INTERVAL_NS: u64 = 20_000;

/// The executor and the reactor of the main thread.
pub struct MainLoop {
    executor: Rc<LocalExecutor<'static>>,
    reactor: Rc<Reactor>,
    parker: Arc<Parker>,
    waker: Waker,
    budget_ns: u64,
    polled: u64,
    pulse: Option<Arc<Pulse>>,
}

/// What tasks hold of their loop: the reactor, and the way to start more tasks.
#[derive(Clone)]
pub struct Handle {
    executor: Weak<LocalExecutor<'static>>,
    reactor: Rc<Reactor>,
}

impl MainLoop {
    /// An empty loop whose timers follow `clock`.
    ///
    /// # Errors
    /// Those of epoll_create and eventfd.
    pub fn new(clock: Arc<Clock>) -> io::Result<Self> {
        let parker = Arc::new(Parker::new()?);
        let reactor = Rc::new(Reactor::new(clock, &parker)?);
        Ok(Self {
            executor: Rc::new(LocalExecutor::new()),
            reactor,
            waker: Waker::from(Arc::clone(&parker)),
            parker,
            budget_ns: BUDGET.as_nanos() as u64,
            polled: 0,
            pulse: None,
        })
    }

    /// The reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// What a task needs of the loop.
    pub fn handle(&self) -> Handle {
        Handle { executor: Rc::downgrade(&self.executor), reactor: Rc::clone(&self.reactor) }
    }

    /// Starts a task. It ends when the returned handle is dropped, unless that is detached.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> Task<T> {
        self.executor.spawn(task)
    }

    /// Sets for how long a turn runs ready tasks. At least one runs, and a task is not interrupted.
    pub fn set_budget(&mut self, budget: Duration) {
        self.budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Sets the pulse of the thread that turns the loop: it beats with each step of a task, and rests while the loop waits.
    pub fn set_pulse(&mut self, pulse: Arc<Pulse>) {
        self.pulse = Some(pulse);
    }

    /// Runs what is ready; if that is nothing, waits for at most `max` and runs what became ready. Returns the number of
    /// task steps. With a `max` of zero it never waits, and costs next to nothing while nothing happens.
    pub fn turn(&mut self, max: Duration) -> usize {
        let now = self.reactor.clock().now();
        self.reactor.fire_timers();
        if !max.is_zero() || now.wrapping_sub(self.polled) >= POLL_INTERVAL_NS {
            self.polled = now;
            self.reactor.poll(Duration::ZERO);
        }
        let steps = self.run_ready(now);
        if steps > 0 || max.is_zero() {
            return steps;
        }
        // From here on a waker on another thread also writes to the eventfd that ends the wait.
        self.parker.prepare();
        let found = {
            let mut tick = pin!(self.executor.tick());
            let found = tick.as_mut().poll(&mut Context::from_waker(&self.waker));
            if found.is_pending() {
                let wait = || self.reactor.poll(max.min(self.reactor.next_timer()));
                match &self.pulse {
                    Some(pulse) => pulse.during(Activity::Rests, wait),
                    None => wait(),
                }
            }
            found
        };
        self.parker.unprepare();
        self.reactor.fire_timers();
        usize::from(found.is_ready()) + self.run_ready(self.reactor.clock().now())
    }

    /// Turns the loop until `future` is done, and returns its result.
    pub fn block_on<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = self.spawn(future);
        // The task is polled by the executor; here we only look whether it has finished.
        loop {
            let mut context = Context::from_waker(&self.waker);
            if let Poll::Ready(result) = Pin::new(&mut task).poll(&mut context) {
                return result;
            }
            // What is awaited wakes the loop, and the second is for what forgets to. Tests are to see that: there it is an hour.
            self.turn(Duration::from_secs(if cfg!(test) { 3600 } else { 1 }));
        }
    }

    /// Runs ready tasks until the budget that began at `start` is used up.
    fn run_ready(&self, start: u64) -> usize {
        let clock = self.reactor.clock();
        let mut steps = 0;
        while self.executor.try_tick() {
            steps += 1;
            if let Some(pulse) = &self.pulse {
                pulse.beat();
            }
            if clock.now().wrapping_sub(start) >= self.budget_ns {
                break;
            }
        }
        steps
    }
}

impl Handle {
    /// The reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// Starts a task that runs on its own. Returns whether the loop still exists.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> bool {
        let executor = self.executor.upgrade();
        executor.map(|executor| executor.spawn(task).detach()).is_some()
    }

    /// Starts a task whose end, or result, the caller wants; nothing where the loop is gone.
    pub fn spawn_task<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> Option<Task<T>> {
        Some(self.executor.upgrade()?.spawn(task))
    }
}

/// Lets all other ready tasks run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
