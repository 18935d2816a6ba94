//! The main thread's loop.
//!
//! ```text
//!   no workers:    graph ─► tasks ─► graph ─► tasks ─► … nothing to do for 50 µs ─► epoll (devices, sockets, timers) ─► graph
//!   with workers:  tasks ─► epoll (sockets, timers) ─► tasks
//! ```

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quiver_graph::Rest;
use quiver_graph::reactor::MainLoop;
use quiver_net::Router;

use crate::system::System;

/// How long the graph is polled without a packet before the thread sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long the thread sleeps at most.
const NAP: Duration = Duration::from_millis(100);

/// Runs the graph, where it is main that forwards, and all tasks.
pub struct Runner {
    tasks: MainLoop,
    router: Rc<RefCell<Router>>,
    stop: Rc<Cell<bool>>,
    /// Sleep of each turn, by the user's wish (`poll-sleep-usec`).
    poll_sleep: Duration,
    idle_since: Option<Instant>,
}

impl Runner {
    /// A loop over a router that ends when `stop` is set.
    pub fn new(tasks: MainLoop, router: Rc<RefCell<Router>>, stop: Rc<Cell<bool>>, poll_sleep: Duration) -> Self {
        Self { tasks, router, stop, poll_sleep, idle_since: None }
    }

    /// Turns until it is told to stop.
    pub fn run(&mut self) {
        while !self.stop.get() {
            self.turn();
        }
    }

    /// One turn: the graph, what is due, tasks, then rest if there was nothing to do.
    pub fn turn(&mut self) {
        let (packets, nap) = {
            let mut router = self.router.borrow_mut();
            if let Ok(system) = System::of_mut(&mut router) {
                system.main.loops += 1;
            }
            let packets = router.graph.fleet().step_here();
            router.graph.progress();
            (packets, run_due(&mut router))
        };
        let Some(packets) = packets else {
            self.tasks.turn(nap);
            return;
        };
        let steps = self.tasks.turn(self.poll_sleep.min(nap));
        if packets > 0 || steps > 0 || nap.is_zero() {
            self.idle_since = None;
            return;
        }
        let spins = self.router.borrow_mut().graph.fleet().spins_here();
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN && spins {
            std::hint::spin_loop();
            return;
        }
        // Asked in a statement of its own: tasks need the router while the thread sleeps.
        let rest = self.router.borrow_mut().graph.fleet().sleep_here();
        if let Some(rest) = rest {
            self.rest(rest, nap);
            self.idle_since = None;
        }
    }

    fn rest(&mut self, rest: Rest, nap: Duration) {
        let now = self.tasks.reactor().clock().now();
        let nap = rest.until.map_or(nap, |until| Duration::from_nanos(until.saturating_sub(now)).min(nap));
        if nap.is_zero() {
            return;
        }
        let reactor = Rc::clone(self.tasks.reactor());
        let watch = self.tasks.spawn(async move {
            // An error is as good as an event: the graph looks for itself.
            let _ = reactor.readable(rest.events.as_fd()).await;
        });
        // The first turn only registers the watch; if it found more to do, the second does not wait either.
        if self.tasks.turn(Duration::ZERO) <= 1 && !watch.is_finished() {
            self.tasks.turn(nap);
        }
    }
}

/// Runs the processes of the router's modules that are due, and says how long there is nothing to do for any.
fn run_due(router: &mut Router) -> Duration {
    // An operation may have made one due: asked each turn, since that costs less than to be told.
    let Some(due) = router.processes().iter().map(|process| process.due).min() else { return NAP };
    let now = router.graph.clock().timer_now();
    let due = if due <= now { router.run_processes(now).unwrap_or(u64::MAX) } else { due };
    Duration::from_nanos(due.saturating_sub(now)).min(NAP)
}
