//! The threads that run the graph.

use super::{Graph, GraphError};
use crate::context::NodeId;
use crate::fleet::{Fleet, ThreadPlan};
use crate::node::InputNode;
use crate::stats::MAX_THREADS;
use crate::worker::Worker;

impl Graph {
    /// Starts `plans.len()` workers in place of main (or of no worker where the list is empty); only at start, before any
    /// input node holds a queue.
    ///
    /// # Errors
    /// A thread that could not be started or placed; then nothing runs the graph any more and the caller must give up.
    pub fn start_workers(&mut self, plans: &[ThreadPlan]) -> Result<(), GraphError> {
        if plans.is_empty() {
            return Ok(());
        }
        self.fleet = Fleet::new(self.domain.clone(), self.shared.pulses.clone());
        plans.iter().try_for_each(|plan| self.add_worker(plan).map(drop))
    }

    /// Starts a worker with instances of all nodes, while the others go on, and gives its thread number: the lowest free one.
    /// Recipes of nodes are called for that number before, so what they need for it must be there. No queue is moved.
    ///
    /// # Errors
    /// The thread could not be started or placed, or there are as many as counters have rows for; then nothing has changed.
    pub fn add_worker(&mut self, plan: &ThreadPlan) -> Result<usize, GraphError> {
        let thread = self.next_worker();
        if thread >= MAX_THREADS {
            return Err(GraphError::Thread { thread, error: format!("at most {} workers are supported", MAX_THREADS - 1) });
        }
        self.stats.set_threads(thread + 1);
        let worker = self.build_like_others(thread, plan.numa);
        self.fleet.spawn(worker, plan).map_err(|e| GraphError::Thread { thread, error: e.to_string() })?;
        Ok(thread)
    }

    /// The thread number that the next worker will have.
    pub fn next_worker(&self) -> usize {
        let threads = self.fleet.threads();
        (1..).find(|n| !threads.contains(n)).unwrap_or(MAX_THREADS)
    }

    /// Main runs on a processor of this memory node, counted as in [`ThreadPlan::numa`]: when it forwards, its buffers come
    /// from there. Only at start, before packets flow.
    pub fn set_main_numa(&mut self, numa: usize) {
        self.main_numa = numa;
        let pools = self.shared.pools.clone();
        if self.fleet.main_forwards() {
            self.fleet.on(0, move |worker| worker.move_to(numa, pools));
        }
    }

    /// Makes main run the graph beside the workers. Nothing happens where it does already.
    pub fn add_main(&mut self) {
        if !self.fleet.main_forwards() {
            let worker = self.build_like_others(0, self.main_numa);
            self.fleet.run_here(worker);
        }
    }

    /// Takes a thread out of those that run the graph, main (0) or a worker. What it has is run to its end before; its queues
    /// have been moved away, and nothing must refer to the thread any more that hands packets over.
    ///
    /// # Errors
    /// There is no such thread, or no other.
    pub fn retire(&mut self, thread: usize) -> Result<(), GraphError> {
        let threads = self.fleet.threads();
        let refused = |error: &str| Err(GraphError::Thread { thread, error: error.into() });
        if !threads.contains(&thread) {
            return refused("it does not run the graph");
        }
        if threads.len() == 1 {
            return refused("no other thread is left to forward");
        }
        self.fleet.retire(thread);
        Ok(())
    }

    /// An instance of everything, which also takes over what is asked of the threads that are there.
    fn build_like_others(&mut self, thread: usize, numa: usize) -> Worker {
        let mut worker = self.build(thread, numa);
        if let Some(other) = self.fleet.threads().first() {
            let sinks = self.fleet.on(*other, |w| w.core.captures.sinks()).unwrap_or_default();
            sinks.into_iter().for_each(|sink| worker.capture(sink));
        }
        worker
    }

    /// Calls `f` for each row of the counters, on the thread that writes it: on main for rows of threads that have left.
    pub fn each_row(&mut self, f: impl Fn(usize) + Send + Sync + 'static) {
        let threads = self.fleet.threads();
        (0..self.stats.threads()).filter(|row| !threads.contains(row)).for_each(&f);
        self.fleet.each(move |w| f(w.thread()));
    }

    /// Runs `f` on the concrete input node `id` of one thread.
    pub fn input<I: InputNode, R: Send + 'static>(
        &mut self,
        id: NodeId,
        thread: usize,
        f: impl FnOnce(&mut I) -> R + Send + 'static,
    ) -> Option<R> {
        self.fleet.on(thread, move |w| w.input::<I>(id).map(f)).flatten()
    }
}
