//! A worker thread: how it is started, placed, and what it does all its life.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use quiver_tables::qsbr;

use super::Message;
use super::sleep::{Bell, Sleeper};
use crate::pulse::Activity;
use crate::topology::{self, SchedulerPolicy};
use crate::worker::{Worker, thread_name};

/// How long a worker polls without a packet before it lets its core go.
const SPIN: Duration = Duration::from_micros(50);
/// How long a sleeping worker sleeps at most. Whoever has something for it rings, and nodes with timers say when.
const NAP: Duration = Duration::from_secs(1);

/// How a thread is placed, for `show threads`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Number: 0 is main.
    pub thread: usize,
    /// `quiver_main`, `quiver_wk_0`, …
    pub name: String,
    /// Processor that it is pinned to.
    pub cpu: Option<u32>,
    /// NUMA node that its buffers come from.
    pub numa: usize,
    /// Scheduling class and priority.
    pub scheduler: (SchedulerPolicy, u32),
    /// Kernel's thread id.
    pub lwp: u64,
}

/// How to start a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Processor to pin to.
    pub cpu: Option<u32>,
    /// NUMA node of that processor.
    pub numa: usize,
    /// Scheduling class and priority.
    pub scheduler: (SchedulerPolicy, u32),
}

impl Default for ThreadPlan {
    fn default() -> Self {
        Self { cpu: None, numa: 0, scheduler: (SchedulerPolicy::Other, 0) }
    }
}

/// A worker thread, as main sees it.
pub(super) struct Handle {
    pub thread: usize,
    pub inbox: Sender<Message>,
    pub bell: Bell,
    join: Option<JoinHandle<()>>,
    pub info: ThreadInfo,
}

impl Handle {
    /// Starts a thread for a worker.
    ///
    /// # Errors
    /// The thread could not be started, or not be placed as planned.
    pub fn start(worker: Worker, plan: &ThreadPlan, reader: qsbr::Reader) -> std::io::Result<Self> {
        let thread = worker.thread();
        let name = thread_name(thread);
        let bell = Bell::new()?;
        let sleeper = Sleeper::new(bell.clone())?;
        let (inbox, messages) = unbounded();
        let lwp = Arc::new(AtomicU64::new(0));
        let (plan2, lwp2) = (plan.clone(), lwp.clone());
        let (placed, result) = bounded(1);
        let join = std::thread::Builder::new().name(name.clone()).spawn(move || {
            lwp2.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Ordering::Relaxed);
            let ok = place(&plan2);
            let failed = ok.is_err();
            let _ = placed.send(ok);
            if !failed {
                run(worker, &messages, sleeper, &reader);
            }
        })?;
        match result.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(std::io::Error::other("worker thread ended at once")),
        }
        let lwp = lwp.load(Ordering::Relaxed);
        let info = ThreadInfo { thread, name, cpu: plan.cpu, numa: plan.numa, scheduler: plan.scheduler, lwp };
        Ok(Self { thread, inbox, bell, join: Some(join), info })
    }

    /// Leaves a message, and wakes the thread for it.
    pub fn send(&self, message: Message) {
        let _ = self.inbox.send(message);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.bell.ring();
    }

    /// Ends the thread after its current vector and waits for it; what its nodes hold goes back to the pools.
    pub fn stop(mut self) {
        self.send(Box::new(|w| w.stop = true));
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

fn place(plan: &ThreadPlan) -> std::io::Result<()> {
    match plan.cpu {
        Some(cpu) => topology::pin_current_thread(cpu)?,
        // A new thread runs where the one that made it may: main, which is pinned.
        None => topology::unpin_current_thread()?,
    }
    if plan.scheduler.0 != SchedulerPolicy::Other {
        topology::set_scheduler(plan.scheduler.0, plan.scheduler.1)?;
    }
    Ok(())
}

/// A worker thread's life.
fn run(mut worker: Worker, inbox: &Receiver<Message>, mut sleeper: Sleeper, reader: &qsbr::Reader) {
    let mut idle_since: Option<u64> = None;
    worker.processors = topology::allowed_cpus().map_or(usize::MAX, |cpus| cpus.len());
    let pulse = worker.pulse.clone();
    pulse.begin();
    reader.online();
    loop {
        // One look at the channel a turn; it is almost always empty.
        while !inbox.is_empty()
            && let Ok(message) = inbox.try_recv()
        {
            worker.change(message);
            // What a message injected must not wait for the next packet.
            worker.drain();
            pulse.beat();
        }
        if worker.stop {
            break;
        }
        let packets = worker.step();
        reader.quiescent();
        if worker.should_yield(packets) {
            std::thread::yield_now();
        }
        if packets > 0 {
            idle_since = None;
            continue;
        }
        // By the time of the turn: a look at the kernel's clock would make the turns of waiting longer.
        let now = worker.core.now;
        let since = *idle_since.get_or_insert(now);
        if u128::from(now.saturating_sub(since)) < SPIN.as_nanos() && worker.spins() {
            std::hint::spin_loop();
            continue;
        }
        let Some(until) = worker.may_sleep() else { continue };
        if std::mem::take(&mut worker.fds_changed) {
            sleeper.watch(&worker);
        }
        let nap = until.map_or(NAP, |t| Duration::from_nanos(t.saturating_sub(worker.core.now)).min(NAP));
        if nap.is_zero() {
            continue;
        }
        reader.offline();
        pulse.during(Activity::Rests, || sleeper.sleep(nap, || !inbox.is_empty() || worker.core.handoff.has_mail()));
        reader.online();
        worker.rested();
        idle_since = None;
    }
    reader.offline();
}
