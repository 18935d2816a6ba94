//! Brings the running configuration to another one, while packets flow: only what differs is changed.
//!
//! ```text
//!  collect ──► difference ──► run its operations ──► collect ──► difference: none ──► done
//!                  │ something cannot be undone          ▲           │ another one than before
//!                  ▼                                      └───────────┘
//!            refused before anything has changed
//! ```
//!
//! What an operation brings with it (an IPv6 address its link-local one) is in no difference before it has run. So the result is looked at, and
//! what differs then is changed as well. The end is never believed, but seen.

use super::{Collect, Difference, Entry};
use crate::change_log::Record;
use crate::operation::{Answer, Job, OpError, Outcome, Registry, Step, View, retval};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How often what differs is changed. Each time something else must differ.
const ROUNDS: u32 = 5;
/// Commands that an error lists.
const LISTED: usize = 5;

/// Changes what differs from a configuration, and says how many operations that took. Others see it when it is done.
pub struct Restore<C> {
    registry: Rc<Registry<C>>,
    target: Rc<Vec<Entry>>,
    work: Work<C>,
    round: u32,
    /// Operations that were run.
    changes: usize,
    /// What the last difference was.
    last: Vec<Record>,
    failed: Option<String>,
    cancelled: bool,
}

enum Work<C> {
    Collecting(Collect<C>),
    Running(std::vec::IntoIter<Record>, Option<(Record, Box<dyn Job<C, Answer>>)>),
}

impl<C: 'static> Restore<C> {
    /// To a configuration that was collected with its undoing.
    pub fn new(registry: Rc<Registry<C>>, target: Rc<Vec<Entry>>) -> Self {
        let work = Work::Collecting(registry.collect().with_undo());
        Self { registry, target, work, round: 0, changes: 0, last: Vec::new(), failed: None, cancelled: false }
    }

    /// Whether something may have changed.
    const fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// Goes on from what there is now: `Some` where that was the end.
    fn next_round(&mut self, entries: &[Entry]) -> Option<Result<usize, OpError>> {
        let difference = Difference::of(entries, &self.target);
        if difference.is_empty() {
            return Some(Ok(self.changes));
        }
        if !difference.stuck.is_empty() {
            let what = list(difference.stuck.iter().map(|entry| entry.command.as_str()));
            return Some(Err(OpError::new(retval::UNSUPPORTED, format!("cannot be undone: {what}"))));
        }
        let operations = difference.operations();
        let same = |(a, b): (&Record, &Record)| a.is(b);
        let no_effect = operations.len() == self.last.len() && operations.iter().zip(&self.last).all(same);
        if self.round == ROUNDS || no_effect {
            let text = difference.text();
            let why = self.failed.take().unwrap_or_else(|| "what was changed had no effect".to_owned());
            return Some(Err(OpError::unspecified(format!("{why}; this differs still: {}", list(text.lines())))));
        }
        (self.round, self.last, self.failed) = (self.round + 1, operations.clone(), None);
        self.work = Work::Running(operations.into_iter(), None);
        None
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
        let Work::Running(rest, running) = &mut self.work else { return Ok(false) };
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
        let Some(record) = rest.next() else { return Ok(false) };
        self.changes += 1;
        let request = serde_json::from_str(record.request.get()).unwrap_or_default();
        let outcome = self.registry.request(&record.operation, request).and_then(|invocation| invocation.run(control, &View::TEXT));
        match outcome {
            Ok(Outcome::Job(job)) => *running = Some((record, job)),
            Ok(Outcome::Done(_)) => {}
            Err(error) => self.ended(&record, Err(error)),
        }
        Ok(true)
    }
}

/// Some of these, and how many more there are.
fn list<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let more = if all.len() > LISTED { format!(", and {} more", all.len() - LISTED) } else { String::new() };
    let some: Vec<String> = all.iter().take(LISTED).map(|line| format!("`{line}'")).collect();
    some.join(", ") + &more
}

impl<C: 'static> Job<C, usize> for Restore<C> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<usize> {
        let started = Instant::now();
        loop {
            if self.cancelled && !self.has_changed() {
                return Step::Done(Err(OpError::unspecified("stopped")));
            }
            match &mut self.work {
                Work::Collecting(collect) => {
                    if let Step::Done(collected) = collect.step(control, budget) {
                        let end = match collected {
                            Ok(configuration) => self.next_round(configuration.entries()),
                            Err(error) => Some(Err(error)),
                        };
                        if let Some(end) = end {
                            return Step::Done(end);
                        }
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
            _ => Poll::Ready(()),
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
