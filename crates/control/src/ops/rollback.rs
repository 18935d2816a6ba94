//! `configuration checkpoint`, `show configuration checkpoints`, `show configuration diff`, `rollback`.

use std::fmt::Write as _;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::configuration::{Collect, Configuration, Difference, Entry, Restore};
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use super::configuration::Checkpoint;
use crate::calendar::Civil;
use crate::checkpoints::{Checkpoints, Heading, Keep, Load};
use crate::journal::Journal;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<SetCheckpoint>()
        .declare::<ShowCheckpoints>()
        .declare::<ShowDifference>()
        .declare::<Rollback>()
        .actions(&["checkpoint_set", "configuration_rollback"])
        .values("checkpoint", |router| {
            let named = router.part::<Checkpoints>().map(Checkpoints::headings).unwrap_or_default();
            named.into_iter().filter_map(|heading| heading.name).collect()
        });
}

request! {
    /// Keeps the running configuration under a name, in the place of the one with this name, or deletes that.
    pub change SetCheckpoint "checkpoint_set" ["configuration checkpoint"] {
        /// Name.
        pub name: String = "<name>",
        /// What to remember of it.
        pub comment: Option<String> = "comment <text>",
        /// Delete it.
        pub del: bool = "del",
    }
}

impl Execute<Router> for SetCheckpoint {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.del {
            return Checkpoints::of(router).delete(&self.name).map(Outcome::Done);
        }
        Checkpoints::of(router).check(&self.name)?;
        let collect = System::of(router)?.registry.collect().with_undo();
        Ok(Outcome::job(Keeping::Collecting(collect, self.name, self.comment)))
    }
}

/// Collects the configuration, then keeps it.
enum Keeping {
    Collecting(Collect<Router>, String, Option<String>),
    Keeping(Keep),
}

impl Job<Router, ()> for Keeping {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        let (collect, name, comment) = match self {
            Self::Keeping(keep) => return keep.step(router, budget),
            Self::Collecting(collect, name, comment) => (collect, name, comment),
        };
        match collect.step(router, budget) {
            Step::Done(Ok(configuration)) => {
                let entries = Rc::new(configuration.into_entries());
                match Checkpoints::of(router).keep(Some(std::mem::take(name)), comment.take(), entries) {
                    Ok(keep) => *self = Self::Keeping(keep),
                    Err(error) => return Step::Done(Err(error)),
                }
                Step::Again
            }
            Step::Done(Err(error)) => Step::Done(Err(error)),
            _ => Step::Again,
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Keeping(keep) => keep.poll_ready(context),
            Self::Collecting(..) => Poll::Ready(()),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, router: &mut Router) {
        if let Self::Collecting(collect, ..) = self {
            collect.cancel(router);
        }
    }
}

request! {
    /// Shows the checkpoints that `rollback' can go back to: those before the last rollbacks by number, then those with a name.
    pub read ShowCheckpoints "checkpoint_dump" ["show configuration checkpoints"] {}
}

/// The answer of [`ShowCheckpoints`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct CheckpointList(pub Vec<Heading>);

impl Execute<Router> for ShowCheckpoints {
    type Reply = CheckpointList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, CheckpointList>, OpError> {
        Ok(Outcome::Done(CheckpointList(Checkpoints::of(router).headings())))
    }
}

impl Text for CheckpointList {
    fn text(&self, out: &mut String, _: &View) {
        for (heading, number) in self.0.iter().zip(1..) {
            let name = heading.name.clone().unwrap_or_else(|| number.to_string());
            let time = Civil::of_unix(Duration::from_millis(heading.unix_ms)).iso();
            let comment = heading.comment.as_ref().map(|comment| format!("  {comment}")).unwrap_or_default();
            let _ = writeln!(out, "{name:<20} {time}Z {:>8} commands{comment}", heading.operations);
        }
    }
}

request! {
    /// Shows what the running configuration has more (+) and less (-) than a checkpoint.
    pub read ShowDifference "configuration_diff_show" ["show configuration diff"] {
        /// Name or number of the checkpoint; the one before the last rollback where none is given.
        pub checkpoint: String = "<checkpoint>" default("1".to_owned()),
    }
}

/// The answer of [`ShowDifference`].
#[derive(Debug, Clone, Serialize)]
pub struct Lines {
    /// Commands that only the running configuration has.
    pub added: Vec<String>,
    /// Commands that only the checkpoint has.
    pub removed: Vec<String>,
}

impl Text for Lines {
    fn text(&self, out: &mut String, _: &View) {
        for (sign, lines) in [('-', &self.removed), ('+', &self.added)] {
            for line in lines {
                let _ = writeln!(out, "{sign} {line}");
            }
        }
    }
}

impl Execute<Router> for ShowDifference {
    type Reply = Lines;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Lines>, OpError> {
        let load = Checkpoints::of(router).load(&self.checkpoint)?;
        Ok(Outcome::job(Compare { load, with: None }))
    }
}

/// Gets the checkpoint, collects the configuration, and compares them.
struct Compare {
    load: Load,
    with: Option<(Rc<Vec<Entry>>, Collect<Router>)>,
}

impl Job<Router, Lines> for Compare {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Lines> {
        let Some((before, collect)) = &mut self.with else {
            return match self.load.step(router, budget) {
                Step::Done(Ok(entries)) => match System::of(router) {
                    Ok(system) => {
                        self.with = Some((entries, system.registry.collect().with_undo()));
                        Step::Again
                    }
                    Err(error) => Step::Done(Err(error)),
                },
                Step::Done(Err(error)) => Step::Done(Err(error)),
                Step::Wait => Step::Wait,
                _ => Step::Again,
            };
        };
        match collect.step(router, budget) {
            Step::Done(Ok(now)) => {
                let difference = Difference::of(before, now.entries());
                let lines = |entries: &[&Entry]| entries.iter().map(|entry| entry.command.clone()).collect();
                Step::Done(Ok(Lines { added: lines(&difference.added), removed: lines(&difference.removed) }))
            }
            Step::Done(Err(error)) => Step::Done(Err(error)),
            _ => Step::Again,
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.with.is_some() { Poll::Ready(()) } else { self.load.poll_ready(context) }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, router: &mut Router) {
        match &mut self.with {
            Some((_, collect)) => collect.cancel(router),
            None => self.load.cancel(router),
        }
    }
}

request! {
    /// Brings the running configuration back to a checkpoint, while packets flow: only what differs is changed, all of it or nothing.
    pub change Rollback "configuration_rollback" ["rollback"] {
        /// Name of the checkpoint, or number: 1 is what was configured before the last rollback.
        pub checkpoint: String = "<checkpoint>",
    }
}

/// The answer of [`Rollback`].
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rolled {
    /// Operations that it took.
    pub operations: usize,
}

impl Text for Rolled {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.operations {
            0 => writeln!(out, "nothing differs"),
            1 => writeln!(out, "1 change"),
            count => writeln!(out, "{count} changes"),
        };
    }
}

impl Execute<Router> for Rollback {
    type Reply = Rolled;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Rolled>, OpError> {
        if let Some(trouble) = router.part::<Rc<Journal>>().and_then(|journal| journal.trouble()) {
            let text = format!("refused: what changes cannot be stored: {trouble}");
            return Err(OpError::new(retval::SYSCALL_ERROR_1, text).remedy("make room in the state folder"));
        }
        let load = Checkpoints::of(router).load(&self.checkpoint)?;
        Ok(Outcome::job(Rolling { to: self.checkpoint, before: Rc::default(), changes: 0, phase: Phase::Loading(load) }))
    }
}

/// The steps of a rollback.
///
/// The journal has the configuration before until the last step puts the new one in its place: a router that is killed in
/// between comes up with the one before.
struct Rolling {
    to: String,
    before: Rc<Vec<Entry>>,
    changes: usize,
    phase: Phase,
}

enum Phase {
    Loading(Load),
    /// What there is before.
    Collecting(Collect<Router>, Rc<Vec<Entry>>),
    Restoring(Restore<Router>),
    /// It failed: back to what was before.
    Returning(Restore<Router>, OpError),
    Keeping(Keep),
    Storing(Checkpoint),
}

impl Rolling {
    /// What follows a phase that has ended; none where all is done.
    fn next(&mut self, router: &mut Router, ended: Ended) -> Result<Option<Phase>, OpError> {
        let registry = || System::of(router).map(|system| Rc::clone(&system.registry));
        Ok(Some(match ended {
            Ended::Loaded(target) => Phase::Collecting(registry()?.collect().with_undo(), target),
            Ended::Collected(configuration, target) => {
                self.before = Rc::new(configuration.into_entries());
                Phase::Restoring(Restore::new(registry()?, target))
            }
            Ended::Restored(Ok(0)) => return Ok(None),
            Ended::Restored(Ok(changes)) => {
                self.changes = changes;
                let comment = Some(format!("before rollback {}", self.to));
                Phase::Keeping(Checkpoints::of(router).keep(None, comment, std::mem::take(&mut self.before))?)
            }
            Ended::Restored(Err(error)) => Phase::Returning(Restore::new(registry()?, Rc::clone(&self.before)), error),
            Ended::Returned(Ok(_), error) => {
                return Err(OpError { message: format!("{}; all is as before", error.message), ..error });
            }
            Ended::Returned(Err(second), error) => {
                // What there is now is neither: at least it lasts.
                if let Some(journal) = router.part::<Rc<Journal>>() {
                    quiver_command::change_log::ChangeLog::unrecorded(&**journal);
                }
                let message = format!("{}; going back failed, too: {}", error.message, second.message);
                return Err(OpError { message, ..error });
            }
            Ended::Kept => match router.part::<Rc<Journal>>() {
                Some(_) => Phase::Storing(Checkpoint::begin(router, false)?),
                None => return Ok(None),
            },
            Ended::Stored => return Ok(None),
        }))
    }
}

/// What a phase came to.
enum Ended {
    Loaded(Rc<Vec<Entry>>),
    Collected(Configuration<Router>, Rc<Vec<Entry>>),
    Restored(Result<usize, OpError>),
    Returned(Result<usize, OpError>, OpError),
    Kept,
    Stored,
}

/// A step of a job within this one: what it ends with, or how to go on.
fn within<T>(step: Step<T>, ended: impl FnOnce(Result<T, OpError>) -> Result<Ended, OpError>) -> Result<Ended, Step<Rolled>> {
    match step {
        Step::Done(result) => ended(result).map_err(|error| Step::Done(Err(error))),
        Step::Sleep(pause) => Err(Step::Sleep(pause)),
        Step::Wait => Err(Step::Wait),
        Step::Again | Step::Print(_) => Err(Step::Again),
    }
}

impl Job<Router, Rolled> for Rolling {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Rolled> {
        let ended = match &mut self.phase {
            Phase::Loading(load) => within(load.step(router, budget), |loaded| loaded.map(Ended::Loaded)),
            Phase::Collecting(collect, target) => {
                within(collect.step(router, budget), |now| Ok(Ended::Collected(now?, Rc::clone(target))))
            }
            Phase::Restoring(restore) => {
                let step = restore.step(router, budget);
                let has_changed = restore.has_changed();
                within(step, |done| match done {
                    Err(error) if !has_changed => Err(error),
                    done => Ok(Ended::Restored(done)),
                })
            }
            Phase::Returning(restore, error) => {
                within(restore.step(router, budget), |done| Ok(Ended::Returned(done, error.clone())))
            }
            Phase::Keeping(keep) => within(keep.step(router, budget), |kept| {
                // The rollback is done: that it cannot be undone is no reason to have it fail.
                if let Err(error) = kept {
                    tracing::warn!(target: "startup", "the configuration before the rollback is not kept: {error}");
                }
                Ok(Ended::Kept)
            }),
            Phase::Storing(store) => within(store.step(router, budget), |stored| stored.map(|()| Ended::Stored)),
        };
        let next = match ended {
            Ok(ended) => self.next(router, ended),
            Err(step) => return step,
        };
        match next {
            Ok(Some(phase)) => {
                self.phase = phase;
                Step::Again
            }
            Ok(None) => Step::Done(Ok(Rolled { operations: self.changes })),
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.phase {
            Phase::Loading(load) => load.poll_ready(context),
            Phase::Restoring(restore) | Phase::Returning(restore, _) => restore.poll_ready(context),
            Phase::Keeping(keep) => keep.poll_ready(context),
            Phase::Storing(store) => store.poll_ready(context),
            Phase::Collecting(..) => Poll::Ready(()),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    /// All is changed, and the journal was told: while it waits for the disk others may run.
    fn yields(&self) -> bool {
        matches!(&self.phase, Phase::Storing(store) if store.yields())
    }

    fn cancel(&mut self, router: &mut Router) {
        match &mut self.phase {
            Phase::Loading(load) => load.cancel(router),
            Phase::Collecting(collect, _) => collect.cancel(router),
            Phase::Restoring(restore) => restore.cancel(router),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
