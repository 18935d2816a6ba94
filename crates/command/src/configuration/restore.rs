//! Brings the running configuration to another one, while packets flow: only what differs is changed.
//!
//! ```text
//!  collect ──► difference ──► run its operations ──► collect ──► difference: none ──► done
//!              (elsewhere)      │ something cannot be undone         ▲  │ another one than before
//!                               ▼                                    └──┘
//!                             refused before anything has changed
//! ```
//!
//! What an operation brings with it (an IPv6 address its link-local one) is in no difference before it has run. So the result is looked at, and
//! what differs then is changed as well. The end is never believed, but seen.
//!
//! Comparing takes time in proportion to both configurations, so another thread does it, and frees what was compared.

use super::{Collect, Difference, Entry};
use crate::change_log::Record;
use crate::operation::{Answer, Job, OpError, Outcome, Registry, Step, View, retval};
use blocking::{Task, unblock};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often what differs is changed. Each time something else must differ.
const ROUNDS: u32 = 5;
/// Entries that are freed at once.
const SMALL: usize = 1000;
/// Commands that an error lists.
const LISTED: usize = 5;

/// Changes what differs from a configuration, and says how many operations that took. Others see it when it is done.
pub struct Restore<C> {
    registry: Rc<Registry<C>>,
    target: Arc<Vec<Entry>>,
    work: Work<C>,
    round: u32,
    /// Operations that were run.
    changes: usize,
    /// What the last difference was.
    last: Arc<Vec<Record>>,
    failed: Option<String>,
    /// Operations are recorded as they run.
    recorded: bool,
    /// What says what goes without saying is no difference.
    lenient: bool,
    cancelled: bool,
}

enum Work<C> {
    Collecting(Collect<C>),
    Comparing(Task<Verdict>, Option<Verdict>),
    Running(usize, Option<(Record, Box<dyn Job<C, Answer>>)>),
}

/// What a comparison has come to.
enum Verdict {
    Same,
    /// Something cannot be undone.
    Stuck(String),
    /// The same differs as before; whether it is only what is to be made, and what it is.
    NoEffect {
        only_added: bool,
        text: String,
    },
    Run(Vec<Record>),
}

fn compare(is: &[Entry], target: &[Entry], last: &[Record], is_last: bool) -> Verdict {
    let difference = Difference::of(is, target);
    if difference.is_empty() {
        return Verdict::Same;
    }
    if !difference.stuck.is_empty() {
        return Verdict::Stuck(list(difference.stuck.iter().map(|entry| entry.command.as_str())));
    }
    let operations = difference.operations();
    let same = |(a, b): (&Record, &Record)| a.is(b);
    if is_last || operations.len() == last.len() && operations.iter().zip(last).all(same) {
        let only_added = difference.removed.is_empty() && difference.again.is_empty();
        return Verdict::NoEffect { only_added, text: list(difference.text().lines()) };
    }
    Verdict::Run(operations)
}

impl<C: 'static> Restore<C> {
    /// To a configuration that was collected with its undoing.
    pub fn new(registry: Rc<Registry<C>>, target: Arc<Vec<Entry>>) -> Self {
        let work = Work::Collecting(registry.collect().with_undo());
        Self {
            registry,
            target,
            work,
            round: 0,
            changes: 0,
            last: Arc::default(),
            failed: None,
            recorded: false,
            lenient: false,
            cancelled: false,
        }
    }

    /// From what was collected with its undoing in the same turn.
    pub fn since(registry: Rc<Registry<C>>, is: Arc<Vec<Entry>>, target: Arc<Vec<Entry>>) -> Self {
        let mut restore = Self::new(registry, target);
        restore.compare(is);
        restore
    }

    /// Its operations are recorded one by one, for whoever holds the log.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        self.recorded = true;
        self
    }

    /// The target was written by people, who may say what goes without saying: an operation that succeeds and has no effect is no difference.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Whether something may have changed.
    const fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// Has another thread compare.
    fn compare(&mut self, is: Arc<Vec<Entry>>) {
        let (target, last, is_last) = (Arc::clone(&self.target), Arc::clone(&self.last), self.round == ROUNDS);
        let task = unblock(move || compare(&is, &target, &last, is_last));
        self.work = Work::Comparing(task, None);
    }

    /// Goes on from what there is now: `Some` where that was the end.
    fn next_round(&mut self, verdict: Verdict) -> Option<Result<usize, OpError>> {
        match verdict {
            Verdict::Same => Some(Ok(self.changes)),
            Verdict::Stuck(what) => Some(Err(OpError::new(retval::UNSUPPORTED, format!("cannot be undone: {what}")))),
            Verdict::NoEffect { only_added: true, .. } if self.lenient && self.failed.is_none() => Some(Ok(self.changes)),
            Verdict::NoEffect { text, .. } => {
                let why = self.failed.take().unwrap_or_else(|| "what was changed had no effect".to_owned());
                Some(Err(OpError::unspecified(format!("{why}; this differs still: {text}"))))
            }
            Verdict::Run(operations) => {
                (self.round, self.last, self.failed) = (self.round + 1, Arc::new(operations), None);
                self.work = Work::Running(0, None);
                None
            }
        }
    }

    /// An operation has ended.
    fn ended(&mut self, record: &Record, result: Result<(), OpError>) {
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(format!("{} {}: {error}", record.operation, record.request.get()));
        }
    }

    /// Runs the next operation, or a slice of one; `false` where there is none.
    fn run(&mut self, control: &mut C, budget: Duration) -> Result<bool, Step<usize>> {
        let Work::Running(next, running) = &mut self.work else { return Ok(false) };
        if let Some((record, mut job)) = running.take() {
            match job.step(control, budget) {
                Step::Done(result) => self.ended(&record, result.map(drop)),
                step => {
                    *running = Some((record, job));
                    match step {
                        Step::Sleep(pause) => return Err(Step::Sleep(pause)),
                        Step::Wait => return Err(Step::Wait),
                        _ => {}
                    }
                }
            }
            return Ok(true);
        }
        let Some(record) = self.last.get(*next).cloned() else { return Ok(false) };
        *next += 1;
        self.changes += 1;
        let request = serde_json::from_str(record.request.get()).unwrap_or_default();
        let recorded = self.recorded;
        let outcome = self.registry.request(&record.operation, request).and_then(|invocation| match recorded {
            true => self.registry.run(invocation, control, &View::TEXT),
            false => invocation.run(control, &View::TEXT),
        });
        match outcome {
            Ok(Outcome::Job(job)) => *running = Some((record, job)),
            Ok(Outcome::Done(_)) => {}
            Err(error) => self.ended(&record, Err(error)),
        }
        Ok(true)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Work::Comparing(task, verdict) = &mut self.work else { return Poll::Ready(()) };
        if verdict.is_none() {
            match Pin::new(task).poll(context) {
                Poll::Ready(found) => *verdict = Some(found),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

/// Some of these, and how many more there are.
fn list<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let more = if all.len() > LISTED { format!(", and {} more", all.len() - LISTED) } else { String::new() };
    let some: Vec<String> = all.iter().take(LISTED).map(|line| format!("`{line}'")).collect();
    some.join(", ") + &more
}

/// What is large is freed by another thread.
impl<C> Drop for Restore<C> {
    fn drop(&mut self) {
        let (target, last) = (std::mem::take(&mut self.target), std::mem::take(&mut self.last));
        if target.len() + last.len() > SMALL {
            unblock(move || drop((target, last))).detach();
        }
    }
}

impl<C: 'static> Job<C, usize> for Restore<C> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<usize> {
        let started = Instant::now();
        loop {
            if self.cancelled && !self.has_changed() {
                return Step::Done(Err(OpError::unspecified("stopped")));
            }
            if self.poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                return Step::Wait;
            }
            match &mut self.work {
                Work::Collecting(collect) => {
                    if let Step::Done(collected) = collect.step(control, budget) {
                        match collected {
                            Ok(configuration) => self.compare(Arc::new(configuration.into_entries())),
                            Err(error) => return Step::Done(Err(error)),
                        }
                    }
                }
                Work::Comparing(_, verdict) => {
                    let end = verdict.take().and_then(|verdict| self.next_round(verdict));
                    if let Some(end) = end {
                        return Step::Done(end);
                    }
                }
                Work::Running(..) => match self.run(control, budget) {
                    Ok(true) => {}
                    Ok(false) => self.work = Work::Collecting(self.registry.collect().with_undo()),
                    Err(step) => return step,
                },
            }
            if started.elapsed() >= budget {
                return Step::Again;
            }
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.work {
            Work::Running(_, Some((_, job))) => job.poll_ready(context),
            Work::Comparing(..) if self.cancelled && self.changes == 0 => Poll::Ready(()),
            _ => self.poll(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    /// Half of it is no configuration of anybody's.
    fn yields(&self) -> bool {
        false
    }

    /// Once something has changed it is brought to its end.
    fn cancel(&mut self, _: &mut C) {
        self.cancelled = true;
    }
}
