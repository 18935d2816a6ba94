//! The threads that run the graph, and how the main thread changes what they run: by closures that a worker picks up
//! between two vectors. No worker ever waits for another; only main waits, for an answer.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use quiver_tables::qsbr;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use crate::topology::SchedulerPolicy;
use crate::worker::{Worker, thread_name};

type Message = Box<dyn FnOnce(&mut Worker) + Send>;

/// How long a worker polls without a packet before it lets its core go.
const SPIN: Duration = Duration::from_micros(50);
/// How long a sleeping worker sleeps at most: timers of nodes that set none still run.
const NAP: Duration = Duration::from_millis(100);

/// Wakes a thread that sleeps in `epoll_wait`.
#[derive(Clone)]
pub(crate) struct Bell {
    fd: Arc<OwnedFd>,
    asleep: Arc<AtomicBool>,
}

impl Bell {
    fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd: Arc::new(fd), asleep: Arc::new(AtomicBool::new(false)) })
    }

    fn ring(&self) {
        // SeqCst pairs with `Sleeper::sleep`: either the sleeper sees the message, or we see it asleep.
        if self.asleep.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&*self.fd, &1_u64.to_ne_bytes());
        }
    }
}

/// A thread's way to sleep until a device, a message or a time wakes it.
pub(crate) struct Sleeper {
    epoll: Arc<OwnedFd>,
    bell: Bell,
    fds: Vec<RawFd>,
}

impl Sleeper {
    fn new(bell: Bell) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*bell.fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { epoll: Arc::new(epoll), bell, fds: Vec::new() })
    }

    /// Watches exactly the descriptors of the worker's queues. A descriptor that was closed has left the set by itself.
    fn watch(&mut self, worker: &Worker) {
        let mut now = Vec::new();
        worker.event_fds(&mut now);
        for fd in &self.fds {
            // SAFETY: only named to the kernel for removal; a closed or reused number gives an error or is added again below.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            let _ = epoll::delete(&*self.epoll, fd);
        }
        for fd in &now {
            // SAFETY: the worker's queues own these descriptors and outlive this call.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            let _ = epoll::add(&*self.epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        }
        self.fds = now;
    }

    fn sleep(&mut self, inbox: &Receiver<Message>, time: Duration) {
        self.bell.asleep.store(true, Ordering::SeqCst);
        if inbox.is_empty() {
            let timeout = rustix::event::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
            let _ = epoll::wait(&*self.epoll, &mut events, Some(&timeout));
            let mut count = [0_u8; 8];
            let _ = rustix::io::read(&*self.bell.fd, &mut count);
        }
        self.bell.asleep.store(false, Ordering::SeqCst);
    }
}

/// A worker thread, as main sees it.
struct Handle {
    thread: usize,
    inbox: Sender<Message>,
    bell: Bell,
    join: Option<JoinHandle<()>>,
    info: ThreadInfo,
    lwp: Arc<AtomicU64>,
}

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
#[derive(Clone, Debug)]
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

/// All threads that run the graph: workers, or main alone where there are none.
pub struct Fleet {
    workers: Vec<Handle>,
    local: Option<Local>,
    domain: qsbr::Domain,
}

struct Local {
    worker: Worker,
    reader: qsbr::Reader,
    /// Made when the main thread sleeps for the first time.
    sleeper: Option<Sleeper>,
}

/// How long a main thread that forwards may sleep, and what wakes it.
pub struct Rest {
    /// ns of the clock at which nodes have something to do; nothing where none has said.
    pub until: Option<u64>,
    /// An epoll set that is readable as soon as a device of the graph has an event.
    pub events: Arc<OwnedFd>,
}

impl Fleet {
    pub(crate) fn new(domain: qsbr::Domain) -> Self {
        Self { workers: Vec::new(), local: None, domain }
    }

    /// Main forwards itself.
    pub(crate) fn run_here(&mut self, worker: Worker) {
        let reader = self.domain.register();
        self.local = Some(Local { worker, reader, sleeper: None });
    }

    /// Starts a worker thread.
    pub(crate) fn spawn(&mut self, worker: Worker, plan: &ThreadPlan) -> std::io::Result<()> {
        let thread = worker.thread();
        let name = thread_name(thread);
        let bell = Bell::new()?;
        let sleeper = Sleeper::new(bell.clone())?;
        let (inbox, messages) = unbounded();
        let reader = self.domain.register();
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
        let info = ThreadInfo {
            thread,
            name,
            cpu: plan.cpu,
            numa: plan.numa,
            scheduler: plan.scheduler,
            lwp: lwp.load(Ordering::Relaxed),
        };
        self.workers.push(Handle { thread, inbox, bell, join: Some(join), info, lwp });
        Ok(())
    }

    /// Ends the last worker, after its last vector; what its nodes hold goes back to the pools.
    pub(crate) fn retire_last(&mut self) {
        let Some(mut handle) = self.workers.pop() else { return };
        let _ = handle.inbox.send(Box::new(|w| w.stop = true));
        handle.bell.ring();
        if let Some(join) = handle.join.take() {
            let _ = join.join();
        }
    }

    /// Number of worker threads; 0 means that main forwards.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Threads that run the graph: 0 alone, or 1 to the number of workers.
    pub fn threads(&self) -> Vec<usize> {
        match &self.local {
            Some(_) => vec![0],
            None => self.workers.iter().map(|w| w.thread).collect(),
        }
    }

    /// Placement of the worker threads.
    pub fn info(&self) -> Vec<ThreadInfo> {
        self.workers.iter().map(|w| ThreadInfo { lwp: w.lwp.load(Ordering::Relaxed), ..w.info.clone() }).collect()
    }

    /// Runs `f` on the given thread between two vectors and returns its answer; `None` where there is no such thread.
    pub fn on<R: Send + 'static>(&mut self, thread: usize, f: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Option<R> {
        if let Some(local) = self.local.as_mut().filter(|_| thread == 0) {
            return Some(f(&mut local.worker));
        }
        let handle = self.workers.iter().find(|w| w.thread == thread)?;
        let (answer, result) = bounded(1);
        handle.inbox.send(Box::new(move |w| drop(answer.send(f(w))))).ok()?;
        handle.bell.ring();
        result.recv().ok()
    }

    /// Sends `f` to the given thread without waiting.
    pub fn cast(&mut self, thread: usize, f: impl FnOnce(&mut Worker) + Send + 'static) {
        if let Some(local) = self.local.as_mut().filter(|_| thread == 0) {
            f(&mut local.worker);
        } else if let Some(handle) = self.workers.iter().find(|w| w.thread == thread) {
            let _ = handle.inbox.send(Box::new(f));
            handle.bell.ring();
        }
    }

    /// Runs `f` on every thread between two vectors, all at the same time, and returns the answers in order of threads. When
    /// it returns, every thread has seen the change.
    pub fn each<R: Send + 'static>(&mut self, f: impl Fn(&mut Worker) -> R + Send + Sync + 'static) -> Vec<R> {
        if let Some(local) = &mut self.local {
            return vec![f(&mut local.worker)];
        }
        let f = Arc::new(f);
        let answers: Vec<Receiver<R>> = self
            .workers
            .iter()
            .map(|handle| {
                let (answer, result) = bounded(1);
                let f = f.clone();
                let _ = handle.inbox.send(Box::new(move |w| drop(answer.send(f(w)))));
                handle.bell.ring();
                result
            })
            .collect();
        answers.into_iter().filter_map(|a| a.recv().ok()).collect()
    }

    /// One turn of the graph on the main thread, where it forwards itself: packets brought in, or `None` where it does not.
    pub fn step_here(&mut self) -> Option<usize> {
        let local = self.local.as_mut()?;
        local.reader.online();
        let n = local.worker.step();
        local.reader.quiescent();
        Some(n)
    }

    /// Whether the main thread's graph may sleep now: until when, and what ends the sleep. Nothing where it has work, or
    /// where workers run the graph. The next [`step_here`](Self::step_here) ends the rest.
    pub fn sleep_here(&mut self) -> Option<Rest> {
        let local = self.local.as_mut()?;
        let until = local.worker.may_sleep()?;
        let sleeper = match &mut local.sleeper {
            Some(sleeper) => sleeper,
            // Without descriptors to spare it stays awake.
            none => none.insert(Sleeper::new(Bell::new().ok()?).ok()?),
        };
        if std::mem::take(&mut local.worker.fds_changed) {
            sleeper.watch(&local.worker);
        }
        local.reader.offline();
        Some(Rest { until, events: sleeper.epoll.clone() })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        while !self.workers.is_empty() {
            self.retire_last();
        }
    }
}

fn place(plan: &ThreadPlan) -> std::io::Result<()> {
    if let Some(cpu) = plan.cpu {
        crate::topology::pin_current_thread(cpu)?;
    }
    if plan.scheduler.0 != SchedulerPolicy::Other {
        crate::topology::set_scheduler(plan.scheduler.0, plan.scheduler.1)?;
    }
    Ok(())
}

/// A worker thread's life.
fn run(mut worker: Worker, inbox: &Receiver<Message>, mut sleeper: Sleeper, reader: &qsbr::Reader) {
    let mut idle_since: Option<Instant> = None;
    reader.online();
    loop {
        // One look at the channel a turn; it is almost always empty.
        while let Ok(message) = inbox.try_recv() {
            worker.change(message);
            // What a message injected must not wait for the next packet.
            worker.drain();
        }
        if worker.stop {
            break;
        }
        let packets = worker.step();
        reader.quiescent();
        if packets > 0 {
            idle_since = None;
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SPIN {
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
        sleeper.sleep(inbox, nap);
        reader.online();
        idle_since = None;
    }
    reader.offline();
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("workers", &self.info()).field("main forwards", &self.local.is_some()).finish()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
