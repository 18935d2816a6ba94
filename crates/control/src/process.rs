//! Process nodes: named background tasks on the main thread, with the figures that `show runtime` shows.
//!
//! A process is an async function. It reaches the control state only through [`ProcessCx::with`], never across an `await`, so
//! that operations and other processes always find it free:
//!
//! ```ignore
//! processes.spawn("arp-ageing", |cx| async move {
//!     loop {
//!         cx.sleep(Duration::from_secs(1)).await;
//!         cx.with(|router| router.age_neighbours());
//!     }
//! });
//! ```

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::contain::{contain, exposed};
use quiver_graph::Pulse;
use quiver_graph::clock::Clock;
use quiver_graph::reactor::{Handle, Notify, Reactor};
use serde::Serialize;

/// What a process does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has more to do.
    Running,
    /// It waits for a time.
    TimeWait,
    /// It waits for something to happen.
    EventWait,
    /// It waits for either.
    AnyWait,
    /// It has ended.
    Done,
}

impl State {
    /// As `show runtime` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "active",
            Self::TimeWait => "time wait",
            Self::EventWait => "event wait",
            Self::AnyWait => "any wait",
            Self::Done => "done",
        }
    }
}

/// Figures of a process, or of several of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// What it does.
    pub state: State,
    /// Times it was run.
    pub calls: u64,
    /// Times it gave the thread back before its end.
    pub suspends: u64,
    /// Clock ticks it took.
    pub clocks: u64,
}

impl Default for Figures {
    fn default() -> Self {
        Self { state: State::Running, calls: 0, suspends: 0, clocks: 0 }
    }
}

struct Entry {
    name: Arc<str>,
    figures: Cell<Figures>,
    /// Tasks of this name that have not ended.
    alive: Cell<u32>,
}

/// The table of all process nodes. Clones are handles of the same.
#[derive(Clone, Default)]
pub struct ProcessTable {
    entries: Rc<RefCell<Vec<Rc<Entry>>>>,
    /// Where it is said which of them runs, for the watchdog.
    pulse: Rc<OnceCell<Arc<Pulse>>>,
}

impl ProcessTable {
    /// Says on a pulse which process runs.
    pub fn set_pulse(&self, pulse: Arc<Pulse>) {
        let _ = self.pulse.set(pulse);
    }

    /// Names and figures, in the order of first start.
    pub fn figures(&self) -> Vec<(String, Figures)> {
        self.entries.borrow().iter().map(|entry| (entry.name.to_string(), entry.figures.get())).collect()
    }

    /// Starts all figures anew.
    pub fn clear(&self) {
        for entry in self.entries.borrow().iter() {
            entry.figures.set(Figures { state: entry.figures.get().state, ..Figures::default() });
        }
    }

    fn entry(&self, name: &str) -> Rc<Entry> {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.iter().find(|entry| &*entry.name == name) {
            return Rc::clone(entry);
        }
        let entry = Rc::new(Entry { name: name.into(), figures: Cell::default(), alive: Cell::new(0) });
        entries.push(Rc::clone(&entry));
        entry
    }
}

/// Starts processes that work on the control state `C`.
pub struct Processes<C> {
    control: Weak<RefCell<C>>,
    table: ProcessTable,
    tasks: Handle,
}

impl<C> Clone for Processes<C> {
    fn clone(&self) -> Self {
        Self { control: Weak::clone(&self.control), table: self.table.clone(), tasks: self.tasks.clone() }
    }
}

impl<C: 'static> Processes<C> {
    /// Processes on `control`, run as tasks of `tasks`.
    pub fn new(control: &Rc<RefCell<C>>, table: ProcessTable, tasks: Handle) -> Self {
        Self { control: Rc::downgrade(control), table, tasks }
    }

    /// Starts a process. Processes of the same name share their figures.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, name: &str, process: impl FnOnce(ProcessCx<C>) -> F) {
        let entry = self.table.entry(name);
        entry.alive.set(entry.alive.get() + 1);
        let cx = ProcessCx { control: Weak::clone(&self.control), entry: Rc::clone(&entry), tasks: self.tasks.clone() };
        let clock = Arc::clone(self.tasks.reactor().clock());
        let pulse = Rc::clone(&self.table.pulse);
        self.tasks.spawn(Accounted { process: Some(Box::pin(process(cx))), entry, clock, pulse, contained: false });
    }

    /// Runs a session under a name in the table: a panic ends it, and not the router. What it asks of the control state goes
    /// through operations, which say for themselves whether they are contained.
    pub fn session(&self, name: &str, task: impl Future<Output = ()> + 'static) {
        let entry = self.table.entry(name);
        entry.alive.set(entry.alive.get() + 1);
        let (clock, pulse) = (Arc::clone(self.tasks.reactor().clock()), Rc::clone(&self.table.pulse));
        self.tasks.spawn(Accounted { process: Some(Box::pin(task)), entry, clock, pulse, contained: true });
    }

    /// Runs a plain task under a name in the table.
    pub fn account(&self, name: &str, task: impl Future<Output = ()> + 'static) {
        self.spawn(name, |_| task);
    }
}

/// Counts what a process costs, and ends it by itself where it is contained.
struct Accounted<F> {
    /// Nothing where it has panicked.
    process: Option<Pin<Box<F>>>,
    entry: Rc<Entry>,
    clock: Arc<Clock>,
    pulse: Rc<OnceCell<Arc<Pulse>>>,
    contained: bool,
}

impl<F: Future<Output = ()>> Future for Accounted<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let before = self.clock.ticks();
        let task = Task::enter(self.pulse.get(), &self.entry.name);
        let contained = self.contained;
        let Some(process) = &mut self.process else { return Poll::Ready(()) };
        let result = if contained {
            contain(|| process.as_mut().poll(context)).unwrap_or(Poll::Ready(()))
        } else {
            process.as_mut().poll(context)
        };
        if result.is_ready() {
            self.process = None;
        }
        drop(task);
        let mut figures = self.entry.figures.get();
        figures.calls += 1;
        figures.suspends += u64::from(result.is_pending());
        figures.clocks += self.clock.ticks().wrapping_sub(before);
        self.entry.figures.set(figures);
        result
    }
}

/// What main works on, said on its pulse until this is dropped.
pub struct Task {
    pulse: Option<Arc<Pulse>>,
    before: Option<Arc<str>>,
}

impl Task {
    /// Begins a task, within another or not.
    pub fn enter(pulse: Option<&Arc<Pulse>>, name: &Arc<str>) -> Self {
        let before = pulse.and_then(|pulse| pulse.set_task(Some(Arc::clone(name))));
        Self { before, pulse: pulse.cloned() }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(pulse) = &self.pulse {
            pulse.set_task(self.before.take());
        }
    }
}

impl<F> Drop for Accounted<F> {
    fn drop(&mut self) {
        self.entry.alive.set(self.entry.alive.get().saturating_sub(1));
        if self.entry.alive.get() == 0 {
            self.entry.figures.set(Figures { state: State::Done, ..self.entry.figures.get() });
        }
    }
}

/// What a process has of the router.
pub struct ProcessCx<C> {
    control: Weak<RefCell<C>>,
    entry: Rc<Entry>,
    tasks: Handle,
}

impl<C: 'static> ProcessCx<C> {
    /// Works on the control state; nothing where the router is being taken down.
    pub fn with<R>(&self, work: impl FnOnce(&mut C) -> R) -> Option<R> {
        let control = self.control.upgrade()?;
        let mut control = control.try_borrow_mut().ok()?;
        Some(exposed(|| work(&mut control)))
    }

    /// Waits for a time.
    pub async fn sleep(&self, time: Duration) {
        self.waiting(State::TimeWait, self.tasks.reactor().sleep(time)).await;
    }

    /// Waits for a signal, such as one of a worker.
    ///
    /// # Errors
    /// Those of epoll.
    pub async fn event(&self, signal: &Notify) -> std::io::Result<()> {
        self.waiting(State::EventWait, signal.notified(self.tasks.reactor())).await
    }

    /// Waits for a signal, but not longer than `time`.
    pub async fn event_or_time(&self, signal: &Notify, time: Duration) {
        let reactor = self.tasks.reactor();
        let event = async {
            if signal.notified(reactor).await.is_err() {
                // A signal that cannot come: the time still does.
                std::future::pending::<()>().await;
            }
        };
        self.waiting(State::AnyWait, futures_lite::future::or(event, reactor.sleep(time))).await;
    }

    /// Awaits `future`, and says so in `show runtime`.
    pub async fn waiting<T>(&self, state: State, future: impl Future<Output = T>) -> T {
        let set = |state| self.entry.figures.set(Figures { state, ..self.entry.figures.get() });
        set(state);
        let result = future.await;
        set(State::Running);
        result
    }

    /// The reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        self.tasks.reactor()
    }

    /// The tasks of the main thread.
    pub fn tasks(&self) -> &Handle {
        &self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_graph::reactor::MainLoop;

    #[test]
    fn a_process_is_counted_and_shows_what_it_waits_for() {
        let mut main = MainLoop::new(Clock::new()).unwrap();
        let (clock, hour) = (Arc::clone(main.reactor().clock()), Duration::from_secs(3600));
        let control = Rc::new(RefCell::new(0_u32));
        let table = ProcessTable::default();
        let processes = Processes::new(&control, table.clone(), main.handle());
        processes.spawn("counter", move |cx| async move {
            for _ in 0..3 {
                cx.with(|n| *n += 1);
                cx.sleep(hour).await;
            }
        });
        main.turn(Duration::ZERO);
        assert_eq!(*control.borrow(), 1);
        assert_eq!(table.figures()[0].1.state, State::TimeWait);
        // No time passes but by this, however long the machine stands still.
        while table.figures()[0].1.state != State::Done {
            clock.adjust(hour.as_nanos() as i64);
            main.turn(Duration::from_millis(5));
        }
        assert_eq!(*control.borrow(), 3);
        let (name, figures) = table.figures().remove(0);
        assert_eq!((name.as_str(), figures.calls, figures.suspends), ("counter", 4, 3));
        assert!(figures.clocks > 0);
        table.clear();
        assert_eq!(table.figures()[0].1.calls, 0);
    }

    #[test]
    fn processes_of_one_name_are_one_row() {
        let mut main = MainLoop::new(Clock::new()).unwrap();
        let control = Rc::new(RefCell::new(()));
        let table = ProcessTable::default();
        let processes = Processes::new(&control, table.clone(), main.handle());
        processes.account("session", async {});
        processes.account("session", std::future::pending());
        main.turn(Duration::ZERO);
        assert_eq!(table.figures().len(), 1);
        assert_ne!(table.figures()[0].1.state, State::Done);
    }
}
