//! The threads that run the graph, and how the main thread changes what they run: by closures that a worker picks up
//! between two vectors. No worker ever waits for another; only main waits, for an answer.
//!
//! Threads come and go while packets flow. A thread that joins gets instances of all nodes and ways to and from all others
//! ([`crate::handoff`]). Before one leaves, its owner has taken its queues away; then, in this order:
//!
//! 1. the others close their ways to it, so that what is on those ways is all there is;
//! 2. it runs what is on those ways and in its nodes to the end;
//! 3. its thread ends; buffers go back to the pools and its reader leaves the reclamation domain;
//! 4. the others take in what it last handed to them, and forget it.

mod answer;
mod sleep;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use quiver_tables::qsbr;

use crate::handoff::way;
use crate::pulse::{Activity, Pulse, Pulses};
use crate::worker::Worker;

use answer::Awaited;
pub(crate) use sleep::Bell;
use sleep::Sleeper;
use thread::Handle;
pub use thread::{ThreadInfo, ThreadPlan};

type Message = Box<dyn FnOnce(&mut Worker) + Send>;

/// All threads that run the graph: workers, and main where there are none or where it was asked to.
pub struct Fleet {
    workers: Vec<Handle>,
    local: Option<Local>,
    domain: qsbr::Domain,
    pulses: Arc<Pulses>,
    /// Main's: a wait for a worker is not main's fault.
    main: Arc<Pulse>,
}

struct Local {
    worker: Worker,
    reader: qsbr::Reader,
    /// Without descriptors to spare there is none: the thread stays awake, and nobody hands packets to it.
    bell: Option<Bell>,
    /// Made when the main thread sleeps for the first time.
    sleeper: Option<Sleeper>,
    resting: bool,
}

/// How long a main thread that forwards may sleep, and what wakes it.
pub struct Rest {
    /// ns of the clock at which nodes have something to do; nothing where none has said.
    pub until: Option<u64>,
    /// An epoll set that is readable as soon as a device of the graph has an event.
    pub events: Arc<OwnedFd>,
}

impl Fleet {
    pub(crate) fn new(domain: qsbr::Domain, pulses: Arc<Pulses>) -> Self {
        let main = pulses.of(0);
        Self { workers: Vec::new(), local: None, domain, pulses, main }
    }

    /// Main forwards itself, with what workers there are.
    pub(crate) fn run_here(&mut self, worker: Worker) {
        let reader = self.domain.register();
        reader.offline();
        self.local = Some(Local { worker, reader, bell: Bell::new().ok(), sleeper: None, resting: false });
        self.open_ways(0);
    }

    /// Starts a worker thread.
    ///
    /// # Errors
    /// It could not be started or placed.
    pub(crate) fn spawn(&mut self, worker: Worker, plan: &ThreadPlan) -> std::io::Result<()> {
        let thread = worker.thread();
        let reader = self.domain.register();
        let started = self.main.during(Activity::Waits, || Handle::start(worker, plan, reader));
        self.workers.push(started.inspect_err(|_| self.pulses.forget(thread))?);
        self.count_rivals();
        self.open_ways(thread);
        Ok(())
    }

    /// Tells each worker how many others want its processor: those that are pinned to it, or that are pinned to none as it is.
    fn count_rivals(&self) {
        for worker in &self.workers {
            let rivals = self.workers.iter().filter(|w| w.info.cpu == worker.info.cpu).count() - 1;
            worker.send(Box::new(move |w| w.rivals = rivals));
        }
    }

    /// Opens the ways between a thread and all others. When it returns, packets can be handed over.
    fn open_ways(&mut self, thread: usize) {
        for other in self.threads().into_iter().filter(|t| *t != thread) {
            for (from, to) in [(thread, other), (other, thread)] {
                let Some(bell) = self.bell(to) else { continue };
                let (sender, receiver) = way();
                self.cast(to, move |w| w.core.handoff.accept(from, receiver));
                self.cast(from, move |w| w.core.handoff.connect(to, sender, bell));
            }
        }
        // One wait for all, however many there are.
        self.each(|_| ());
    }

    fn bell(&self, thread: usize) -> Option<Bell> {
        match &self.local {
            Some(local) if thread == 0 => local.bell.clone(),
            _ => self.workers.iter().find(|w| w.thread == thread).map(|w| w.bell.clone()),
        }
    }

    /// Takes a thread out of those that run the graph. Its owner has taken its queues away.
    pub(crate) fn retire(&mut self, thread: usize) {
        self.each(move |w| w.core.handoff.disconnect(thread));
        self.on(thread, Worker::finish);
        if thread == 0 {
            self.local = None;
        } else if let Some(at) = self.workers.iter().position(|w| w.thread == thread) {
            let worker = self.workers.remove(at);
            self.main.during(Activity::Waits, || worker.stop());
            self.pulses.forget(thread);
            self.count_rivals();
        }
        self.each(move |w| {
            w.take_in();
            w.core.handoff.forget(thread);
        });
    }

    /// Main has done a part of what it does.
    pub(crate) fn progress(&self) {
        self.main.beat();
    }

    /// Number of worker threads; 0 means that main forwards.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Whether main is among the threads that run the graph.
    pub fn main_forwards(&self) -> bool {
        self.local.is_some()
    }

    /// Threads that run the graph, in order: main (0) where it forwards, then the workers.
    pub fn threads(&self) -> Vec<usize> {
        let main = self.local.iter().map(|_| 0);
        main.chain(self.workers.iter().map(|w| w.thread)).collect()
    }

    /// Threads by the users' number of a worker, from 0: the workers, or main alone where there are none.
    pub fn worker_threads(&self) -> Vec<usize> {
        if self.workers.is_empty() { vec![0] } else { self.workers.iter().map(|w| w.thread).collect() }
    }

    /// Placement of the worker threads.
    pub fn info(&self) -> Vec<ThreadInfo> {
        self.workers.iter().map(|w| w.info.clone()).collect()
    }

    /// Runs `f` on the given thread between two vectors and returns its answer; `None` where there is no such thread.
    pub fn on<R: Send + 'static>(&mut self, thread: usize, f: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Option<R> {
        if let Some(local) = self.local.as_mut().filter(|_| thread == 0) {
            return Some(f(&mut local.worker));
        }
        let handle = self.workers.iter().find(|w| w.thread == thread)?;
        let awaited = Awaited::ask(handle, f);
        self.main.during(Activity::Waits, || awaited.get())
    }

    /// Sends `f` to the given thread without waiting.
    pub fn cast(&mut self, thread: usize, f: impl FnOnce(&mut Worker) + Send + 'static) {
        if let Some(local) = self.local.as_mut().filter(|_| thread == 0) {
            f(&mut local.worker);
        } else if let Some(handle) = self.workers.iter().find(|w| w.thread == thread) {
            handle.send(Box::new(f));
        }
    }

    /// Runs `f` on every thread between two vectors, all at the same time, and returns the answers in order of threads. When
    /// it returns, every thread has seen the change.
    pub fn each<R: Send + 'static>(&mut self, f: impl Fn(&mut Worker) -> R + Send + Sync + 'static) -> Vec<R> {
        let f = Arc::new(f);
        let ask = |handle: &Handle| {
            let f = f.clone();
            Awaited::ask(handle, move |worker| f(worker))
        };
        let answers: Vec<Awaited<R>> = self.workers.iter().map(ask).collect();
        let main = self.local.as_mut().map(|local| f(&mut local.worker));
        let answers = self.main.during(Activity::Waits, || answers.into_iter().filter_map(Awaited::get).collect::<Vec<_>>());
        main.into_iter().chain(answers).collect()
    }

    /// One turn of the graph on the main thread, where it forwards itself: packets brought in, or `None` where it does not.
    pub fn step_here(&mut self) -> Option<usize> {
        let local = self.local.as_mut()?;
        if std::mem::take(&mut local.resting)
            && let Some(bell) = &local.bell
        {
            bell.get_up();
        }
        if !local.reader.is_online() {
            local.reader.online();
        }
        let n = local.worker.step();
        if n == 0 {
            // Main has other work, or sleeps.
            local.worker.rested();
        }
        local.reader.quiescent();
        Some(n)
    }

    /// Whether the main thread's graph may sleep now: until when, and what ends the sleep. Nothing where it has work, or
    /// where workers run the graph. The next [`step_here`](Self::step_here) ends the rest.
    pub fn sleep_here(&mut self) -> Option<Rest> {
        let local = self.local.as_mut()?;
        let until = local.worker.may_sleep()?;
        let bell = local.bell.as_ref()?;
        let sleeper = match &mut local.sleeper {
            Some(sleeper) => sleeper,
            none => none.insert(Sleeper::new(bell.clone()).ok()?),
        };
        if std::mem::take(&mut local.worker.fds_changed) {
            sleeper.watch(&local.worker);
        }
        local.resting = true;
        bell.lie_down();
        if local.worker.core.handoff.has_mail() {
            return None;
        }
        local.reader.offline();
        Some(Rest { until, events: sleeper.epoll.clone() })
    }

    /// Whether the main thread's graph wants to be polled for a while before it sleeps.
    pub fn spins_here(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.worker.spins())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Nobody is left whom packets could be handed to: an orderly leave is not needed.
        while let Some(worker) = self.workers.pop() {
            let thread = worker.thread;
            self.main.during(Activity::Waits, || worker.stop());
            self.pulses.forget(thread);
            self.count_rivals();
        }
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("workers", &self.info()).field("main forwards", &self.local.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use quiver_buffer::{PageSize, Region, RegionConfig};

    use super::*;
    use crate::clock::Clock;
    use crate::stats::Stats;
    use crate::topology::allowed_cpus;
    use crate::{Graph, STATS_BYTES};

    #[test]
    fn workers_of_one_processor_let_one_another_go_first() {
        let region = Region::new(&RegionConfig { buffers_per_numa: 1024, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        let pinned = ThreadPlan { cpu: Some(allowed_cpus().unwrap()[0]), ..Default::default() };
        let yields = |graph: &mut Graph, thread| graph.fleet().on(thread, |w| (w.should_yield(0), w.should_yield(1))).unwrap();
        graph.add_worker(&pinned).unwrap();
        assert_eq!(yields(&mut graph, 1), (false, false), "it has the processor to itself");
        graph.add_worker(&pinned).unwrap();
        for thread in [1, 2] {
            assert_eq!(yields(&mut graph, thread), (true, false), "only where it brought nothing in");
            let after = graph.fleet().on(thread, |w| {
                w.core.no_buffer += 1;
                (w.should_yield(1), w.should_yield(1))
            });
            assert_eq!(after, Some((true, false)), "once for each time that buffers ran out");
        }
        graph.retire(2).unwrap();
        assert_eq!(yields(&mut graph, 1), (false, false));
        // As many without a place as there are processors do not get into one another's way.
        let processors = allowed_cpus().unwrap().len();
        for _ in 0..=processors.min(8) {
            let others = graph.fleet().workers() - 1;
            graph.add_worker(&ThreadPlan::default()).unwrap();
            assert_eq!(yields(&mut graph, 2).0, others + 1 > processors);
        }
    }
}
