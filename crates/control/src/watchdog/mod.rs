//! A thread that notices when main or a worker makes no progress, says where it hangs, and ends the process.
//!
//! ```text
//!   main, workers ── a pulse each (quiver_graph::Pulse) ──► watchdog thread ── /proc/self/task/LWP/stat of those that stand still
//!                                                             ├─ all make progress, rest or starve ──► WATCHDOG=1 to the supervisor
//!                                                             └─ one is stuck ──► a line in the log and on stderr, SIGABRT
//! ```
//!
//! What counts as stuck is in [`judge`]. A stuck thread cannot be ended by itself, and what it was changing is half done:
//! the process ends, and its supervisor starts it again (`docs/operations-supervision.md`).
//!
//! Main may wait for the kernel [`PATIENCE`] times as long as a worker, where it runs no node: operations make devices and write
//! files.

mod end;
pub mod judge;
mod kernel;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use quiver_graph::topology::{self, SchedulerPolicy};
use quiver_graph::{Activity, Pulse, Pulses};
use serde::Serialize;

pub use end::{end, log_is_stderr};
use judge::{Held, Judge, Look};

/// Unless configuration says otherwise.
pub const DEFAULT: Duration = Duration::from_secs(5);
/// Times as long that main's tasks may wait for the kernel.
pub const PATIENCE: u32 = 6;
/// Looks in the time after which a thread is stuck.
const LOOKS: u32 = 8;

/// What the watchdog is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time after which a thread is stuck and the process ends; nothing where it never does.
    pub limit: Option<Duration>,
    /// Time within which the supervisor wants to hear from the process.
    pub supervisor: Option<Duration>,
    /// How the watched threads are scheduled: the watchdog comes before them.
    pub scheduler: (SchedulerPolicy, u32),
}

impl Settings {
    /// Those of a `startup.conf` and of the supervisor's environment (`WATCHDOG_USEC`, `WATCHDOG_PID`).
    pub fn new(limit: Option<Duration>, scheduler: (SchedulerPolicy, u32)) -> Self {
        Self { limit, supervisor: sd_notify::watchdog_enabled().filter(|time| !time.is_zero()), scheduler }
    }

    /// Lets the calling thread run wherever the process may: a new thread is pinned as main is, and as real as main, which may be
    /// what spins.
    fn come_first(&self) {
        let _ = topology::unpin_current_thread();
        let (policy, priority) = self.scheduler;
        // The others have no priorities; there the kernel shares the processors out.
        if matches!(policy, SchedulerPolicy::Fifo | SchedulerPolicy::RoundRobin) {
            let _ = topology::set_scheduler(policy, (priority + 1).min(99));
        }
    }

    /// The time after which a thread is stuck: the supervisor's where the configuration has none.
    fn stuck_after(&self) -> Option<Duration> {
        self.limit.or(self.supervisor)
    }

    fn interval(&self) -> Option<Duration> {
        let wishes = [self.limit.map(|limit| limit / LOOKS), self.supervisor.map(|time| time / 4)];
        let shortest = wishes.into_iter().flatten().min()?;
        Some(shortest.clamp(Duration::from_millis(20), Duration::from_secs(1)))
    }
}

/// A thread as `show watchdog` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Number; 0 is main.
    pub id: usize,
    /// Name.
    pub name: String,
    /// The kernel's number.
    pub lwp: u64,
    /// `working`, `resting`, `waiting`, `starving` or `stuck`.
    pub state: &'static str,
    /// Times it has made progress.
    pub beats: u64,
    /// Processor time without progress at the last look, ms.
    pub cpu_ms: u64,
    /// Time blocked without progress at the last look, ms.
    pub blocked_ms: u64,
    /// The greatest sum of both so far, ms.
    pub longest_ms: u64,
}

/// What the watchdog knows, for `show watchdog`.
#[derive(Debug, Default)]
struct Known {
    threads: Vec<ThreadReport>,
    looks: u64,
    told: u64,
}

/// The watchdog of a router; its thread ends with it.
pub struct Watchdog {
    settings: Settings,
    known: Arc<Mutex<Known>>,
    _stop: Option<Sender<()>>,
}

/// What `show watchdog` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seconds after which a thread is stuck and the router ends; nothing where it is off.
    pub limit: Option<f64>,
    /// Seconds within which the supervisor wants to hear from the router; nothing where it did not ask.
    pub supervisor: Option<f64>,
    /// Times that threads were looked at.
    pub looks: u64,
    /// Times that the supervisor was told that all threads make progress.
    pub told: u64,
    /// All threads, main first.
    pub threads: Vec<ThreadReport>,
}

impl Watchdog {
    /// Starts the thread, where there is anything to do for it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(pulses: Arc<Pulses>, settings: Settings) -> std::io::Result<Self> {
        let known = Arc::new(Mutex::new(Known::default()));
        let mut stop = None;
        if let Some(interval) = settings.interval() {
            let (sender, stopped) = bounded::<()>(0);
            let (tell, told) = bounded::<()>(1);
            // A supervisor that does not read must not hold the watchdog up.
            std::thread::Builder::new().name("quiver_notify".to_owned()).spawn(move || {
                settings.come_first();
                while told.recv().is_ok() {
                    let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
                }
            })?;
            let mut watch = Watch { pulses, settings, known: Arc::clone(&known), judge: Judge::default(), tell };
            std::thread::Builder::new().name("quiver_watch".to_owned()).spawn(move || {
                settings.come_first();
                let mut last = Instant::now();
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    // Where this thread itself was kept from running, the others may have been too.
                    let elapsed = last.elapsed().min(interval * 2);
                    last = Instant::now();
                    watch.look(elapsed);
                }
            })?;
            stop = Some(sender);
        }
        Ok(Self { settings, known, _stop: stop })
    }

    /// What it knows.
    pub fn report(&self) -> Report {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Report {
            limit: seconds(self.settings.limit),
            supervisor: seconds(self.settings.supervisor),
            looks: known.looks,
            told: known.told,
            threads: known.threads.clone(),
        }
    }
}

struct Watch {
    pulses: Arc<Pulses>,
    settings: Settings,
    known: Arc<Mutex<Known>>,
    judge: Judge,
    tell: Sender<()>,
}

impl Watch {
    fn look(&mut self, elapsed: Duration) {
        let pulses = self.pulses.all();
        let looks: Vec<Look> = pulses.iter().map(|pulse| self.see(pulse)).collect();
        self.judge.look(elapsed, &looks);
        let stuck = pulses.iter().find(|pulse| self.is_stuck(pulse));
        let healthy = stuck.is_none();
        self.remember(&pulses, &looks);
        if let Some(pulse) = stuck
            && let Some(limit) = self.settings.limit
        {
            end("watchdog", &self.verdict(pulse, limit));
        }
        if healthy && self.settings.supervisor.is_some() && self.tell.try_send(()).is_ok() {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).told += 1;
        }
    }

    fn see(&self, pulse: &Pulse) -> Look {
        let (thread, lwp, beats, activity) = (pulse.thread(), pulse.lwp(), pulse.beats(), pulse.activity());
        let asks = self.judge.wants_kernel(thread, lwp, beats, activity);
        Look { thread, lwp, beats, activity, kernel: asks.then(|| kernel::thread(lwp)).flatten() }
    }

    fn is_stuck(&self, pulse: &Pulse) -> bool {
        let Some(limit) = self.settings.stuck_after() else { return false };
        let Held { cpu, blocked, .. } = self.judge.held(pulse.thread());
        let waits_for_kernel = pulse.thread() == 0 && self.pulses.whereabouts(pulse).is_none();
        let allowed = if waits_for_kernel { limit * PATIENCE } else { limit };
        cpu >= limit || blocked >= allowed || cpu + blocked >= allowed
    }

    fn verdict(&self, pulse: &Pulse, limit: Duration) -> String {
        let Held { cpu, blocked, .. } = self.judge.held(pulse.thread());
        let place = match (self.pulses.whereabouts(pulse), pulse.task()) {
            (Some(at), _) if at.vector > 0 => format!("in node {} with a vector of {} packets", at.node, at.vector),
            (Some(at), _) => format!("in input node {}", at.node),
            (None, Some(task)) => format!("in {task}"),
            (None, None) if pulse.thread() > 0 => "in a change by main".to_owned(),
            (None, None) => "between its tasks".to_owned(),
        };
        format!(
            "{} (thread {}, LWP {}) is stuck {place}: no iteration finished for {:.1} s of processor time and {:.1} s blocked, \
             the limit is {} s (unix {{ watchdog }}); the router ends",
            pulse.name(),
            pulse.thread(),
            pulse.lwp(),
            cpu.as_secs_f64(),
            blocked.as_secs_f64(),
            limit.as_secs_f64()
        )
    }

    fn remember(&self, pulses: &[Arc<Pulse>], looks: &[Look]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.looks += 1;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let before = std::mem::take(&mut known.threads);
        known.threads = pulses
            .iter()
            .zip(looks)
            .map(|(pulse, look)| {
                let held = self.judge.held(look.thread);
                let state = match look.activity {
                    Activity::Rests => "resting",
                    Activity::Waits => "waiting",
                    Activity::Works if self.is_stuck(pulse) => "stuck",
                    Activity::Works if held.starves => "starving",
                    Activity::Works => "working",
                };
                let longest = before.iter().find(|report| (report.id, report.lwp) == (look.thread, look.lwp));
                let longest = longest.map_or(0, |report| report.longest_ms).max(ms(held.cpu + held.blocked));
                ThreadReport {
                    id: look.thread,
                    name: pulse.name(),
                    lwp: look.lwp,
                    state,
                    beats: look.beats,
                    cpu_ms: ms(held.cpu),
                    blocked_ms: ms(held.blocked),
                    longest_ms: longest,
                }
            })
            .collect();
    }
}
