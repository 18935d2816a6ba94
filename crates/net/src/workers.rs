//! Workers that join and leave while packets flow.
//!
//! The order of a leave: modules hear that the thread is leaving and take away what only it has (receive queues, streams,
//! flows handed to it); then the graph lets it run what is still on its way ([`quiver_graph::Fleet`]). A worker that joins has
//! transmit queues and all nodes before anybody hears of it. Workers are numbered without gaps: the last ones leave first.

use quiver_graph::stats::MAX_THREADS;
use quiver_graph::{GraphError, ThreadPlan};

use crate::{InterfaceError, Router};

/// How many workers there can be.
const RANGE: &str = "0 to 63";
const _: () = assert!(MAX_THREADS == 64);

/// What happens to a thread that runs the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// It runs, and packets can be handed to it.
    Joined(usize),
    /// It is about to leave: nothing must be handed to it when the listener returns. It is not among
    /// [`Router::staying_workers`] any more.
    Leaving(usize),
}

/// Somebody who wants to know which threads run the graph. Called on the main thread.
pub type WorkerListener = fn(&mut Router, &WorkerEvent);

impl Router {
    /// Calls `listener` whenever a thread joins those that run the graph, or is about to leave them.
    pub fn listen_workers(&mut self, listener: WorkerListener) {
        self.worker_listeners.push(listener);
    }

    fn tell_workers(&mut self, event: WorkerEvent) {
        for listener in self.worker_listeners.clone() {
            listener(self, &event);
        }
    }

    /// Threads that are there for the work, in the order of the users' numbers from 0: the workers but for those about to leave,
    /// or main alone where none stays.
    pub fn staying_workers(&self) -> Vec<usize> {
        let mut workers: Vec<usize> = self.graph.thread_info().iter().map(|t| t.thread).collect();
        workers.retain(|t| !self.leaving.contains(t));
        if workers.is_empty() { vec![0] } else { workers }
    }

    /// Makes main run the graph too; nothing happens where it does.
    pub(crate) fn main_joins(&mut self) {
        if self.graph.fleet().main_forwards() {
            return;
        }
        if let Err(error) = self.open_tx_queues(0) {
            tracing::warn!(target: "interface", "main thread cannot send: {error}");
        }
        self.graph.add_main();
        self.tell_workers(WorkerEvent::Joined(0));
    }

    /// Lets main go where workers do all the work.
    pub(crate) fn main_leaves(&mut self) {
        let has_queues =
            self.interfaces.iter().filter_map(|i| i.device.as_ref()).any(|d| d.placement.iter().any(|p| p.thread == 0));
        if has_queues || self.staying_workers() == [0] || !self.graph.fleet().main_forwards() {
            return;
        }
        self.leave(0);
    }

    fn leave(&mut self, thread: usize) {
        self.tell_workers(WorkerEvent::Leaving(thread));
        // Cannot fail: it is there, and another one is.
        let retired = self.graph.retire(thread);
        debug_assert!(retired.is_ok());
    }

    fn join(&mut self, plan: &ThreadPlan) -> Result<(), InterfaceError> {
        let thread = self.graph.next_worker();
        self.open_tx_queues(thread)?;
        if let Err(error) = self.graph.add_worker(plan) {
            self.close_tx_queues(thread);
            return Err(error.into());
        }
        self.tell_workers(WorkerEvent::Joined(thread));
        Ok(())
    }

    /// Changes the workers to one for each plan, while packets flow: those that are there keep their places, the last ones leave
    /// where there are fewer plans, and new ones start by the plans behind. Without plans the main thread forwards.
    ///
    /// # Errors
    /// A thread could not be started or placed, or a device has no transmit queue for it: the workers that had joined stay.
    pub fn set_workers(&mut self, plans: &[ThreadPlan]) -> Result<(), InterfaceError> {
        let there = self.graph.fleet().workers();
        if plans.len() >= MAX_THREADS {
            return Err(GraphError::Range { what: "workers", value: plans.len() as u64, expected: RANGE }.into());
        }
        let joined = plans.iter().skip(there).try_for_each(|plan| self.join(plan));
        if plans.len() < there {
            if plans.is_empty() {
                self.main_joins();
            }
            self.leaving = (plans.len() + 1..=there).collect();
        }
        self.share_out_queues();
        for thread in std::mem::take(&mut self.leaving).into_iter().rev() {
            // Those that have gone are not asked for again; those that still wait stay away from new work.
            self.leaving = (plans.len() + 1..=thread).collect();
            self.leave(thread);
        }
        self.leaving.clear();
        self.main_leaves();
        joined
    }
}

#[cfg(test)]
mod tests;
