//! `configuration checkpoint`, `show configuration checkpoints`, `show configuration diff`, `rollback`.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::configuration::{Applied, Atomic, Configuration, Difference, Entry, Restore};
use quiver_command::operation::{Chain, Job, OpError, Outcome, Registry, Step, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::files::Elsewhere;
use serde::Serialize;

use super::configuration::{Checkpoint, checkpoint};
use crate::checkpoints::{Checkpoints, Heading, Keep, Load};
use crate::journal::Journal;
use crate::system::System;
use quiver_command::calendar::Civil;

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
        let collect = System::of(router)?.registry.get().collect().with_undo();
        Ok(Outcome::job(Chain::new(collect, move |router, configuration: Configuration<Router>| {
            let entries = Arc::new(configuration.into_entries());
            Checkpoints::of(router).keep(Some(self.name), self.comment, entries)
        })))
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
    /// Shows what the running configuration has more (+) and less (-) than a checkpoint; in a session with a candidate and without a name, what that would change.
    pub read ShowDifference "configuration_diff_show" ["show configuration diff"] {
        /// Name or number of the checkpoint; where none is given, the one before the last rollback or commit.
        pub checkpoint: Option<String> = "<checkpoint>",
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
        if let (None, Some(candidate)) = (&self.checkpoint, super::candidate::own(router)) {
            return super::candidate::Comparing::outcome(router, &candidate);
        }
        let load = Checkpoints::of(router).load(self.checkpoint.as_deref().unwrap_or("1"))?;
        Ok(Outcome::job(Chain::new(load, |router, before| {
            let collect = System::of(router)?.registry.get().collect().with_undo();
            Ok(Chain::new(collect, move |_, now: Configuration<Router>| {
                // What is compared is a copy: others may run.
                let now = now.into_entries();
                Ok(Elsewhere::new(move || Ok(compared(&before, &now)), |_, lines| Ok(lines)))
            }))
        })))
    }
}

/// What the second one has more and less.
fn compared(before: &[Entry], now: &[Entry]) -> Lines {
    let difference = Difference::of(before, now);
    let lines = |entries: &[&Entry]| entries.iter().map(|entry| entry.command.clone()).collect();
    Lines { added: lines(&difference.added), removed: lines(&difference.removed) }
}

request! {
    /// Goes back to a checkpoint while packets flow: changes only what differs, all of it or nothing.
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
        if let Some(journal) = router.part::<Rc<Journal>>() {
            journal.check_holding()?;
            journal.check_trouble()?;
        }
        let load = Checkpoints::of(router).load(&self.checkpoint)?;
        Ok(Outcome::job(Rolling { to: self.checkpoint, changes: 0, phase: Phase::Loading(load) }))
    }
}

/// The steps of a rollback.
///
/// The journal has the configuration before until the last step puts the new one in its place: a router that is killed in
/// between comes up with the one before.
struct Rolling {
    to: String,
    changes: usize,
    phase: Phase,
}

enum Phase {
    Loading(Load),
    Restoring(Atomic<Router, usize>),
    Keeping(Keep),
    Storing(Checkpoint),
}

/// What a phase came to.
enum Ended {
    Loaded(Arc<Vec<Entry>>),
    Restored(Applied<usize>),
    Kept,
    Stored,
}

impl Rolling {
    /// What follows a phase that has ended; none where all is done.
    fn next(&mut self, router: &mut Router, ended: Ended) -> Result<Option<Phase>, OpError> {
        Ok(Some(match ended {
            Ended::Loaded(target) => {
                let registry = System::of(router)?.registry.get();
                let restore = Box::new(Restore::new(Rc::clone(&registry), target));
                Phase::Restoring(Atomic::new(registry, router, restore))
            }
            Ended::Restored(Applied { reply: 0, .. }) => return Ok(None),
            Ended::Restored(Applied { reply, before, hold }) => {
                // It has no records: the new configuration takes their place.
                drop(hold);
                self.changes = reply;
                let comment = Some(format!("before rollback {}", self.to));
                Phase::Keeping(Checkpoints::of(router).keep(None, comment, before)?)
            }
            Ended::Kept => match router.part::<Rc<Journal>>() {
                Some(_) => Phase::Storing(checkpoint(router, false)?),
                None => return Ok(None),
            },
            Ended::Stored => return Ok(None),
        }))
    }
}

impl Job<Router, Rolled> for Rolling {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Rolled> {
        let step = match &mut self.phase {
            Phase::Loading(load) => load.step(router, budget).map(Ended::Loaded),
            Phase::Restoring(restore) => restore.step(router, budget).map(Ended::Restored),
            Phase::Keeping(keep) => keep.ended(router, budget).map(|()| Ended::Kept),
            Phase::Storing(store) => store.step(router, budget).map(|()| Ended::Stored),
        };
        step.quiet().and_then(|ended| match self.next(router, ended) {
            Ok(Some(phase)) => {
                self.phase = phase;
                Step::Again
            }
            Ok(None) => Step::Done(Ok(Rolled { operations: self.changes })),
            Err(error) => Step::Done(Err(error)),
        })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.phase {
            Phase::Loading(load) => load.poll_ready(context),
            Phase::Restoring(restore) => restore.poll_ready(context),
            Phase::Keeping(keep) => keep.poll_ready(context),
            Phase::Storing(store) => store.poll_ready(context),
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
            Phase::Restoring(restore) => restore.cancel(router),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
