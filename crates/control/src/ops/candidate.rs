//! `configure`, `show configuration candidate`, `compare`, `commit`, `confirm`, `revert`, `discard`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::change_log::Hold;
use quiver_command::configuration::{Applied, Atomic, Collect, Entry, Restore};
use quiver_command::operation::{Answer, Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Declared, Execute};
use quiver_net::Router;
use serde::Serialize;

use super::rollback::Lines;
use crate::candidate::{Candidate, Pending, Provisional, Span, Window};
use crate::checkpoints::{Checkpoints, Keep};
use crate::journal::Journal;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<Configure>()
        .declare::<ShowCandidate>()
        .declare::<Compare>()
        .declare::<Commit>()
        .declare::<Confirm>()
        .declare::<Revert>()
        .declare::<Discard>()
        .actions(&["candidate_begin", "candidate_commit", "candidate_discard", "commit_confirm", REVERT]);
}

/// The candidate of the session that asks.
pub fn own(router: &Router) -> Option<Rc<Candidate>> {
    router.part::<System>()?.sessions.candidate()
}

fn none() -> OpError {
    OpError::new(retval::NO_SUCH_ENTRY, "this session has no candidate").remedy("`configure' begins one")
}

request! {
    /// Begins a candidate: from now on the changing commands of this session are collected, until `commit' makes all of them or `discard' forgets them.
    pub change Configure "candidate_begin" ["configure"] {}
}

impl Execute<Router> for Configure {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        System::of(router)?.sessions.begin_candidate().map(Outcome::Done)
    }
}

request! {
    /// Discards the candidate of this session.
    pub change Discard "candidate_discard" ["discard"] {}
}

impl Execute<Router> for Discard {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        System::of(router)?.sessions.take_candidate().map(|_| Outcome::Done(())).ok_or_else(none)
    }
}

request! {
    /// Shows the changes that the candidate of this session has collected, in order.
    pub read ShowCandidate "candidate_show" ["show configuration candidate"] {}
}

/// The answer of [`ShowCandidate`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Changes(pub Vec<Pending>);

impl Text for Changes {
    fn text(&self, out: &mut String, _: &View) {
        for change in &self.0 {
            let _ = writeln!(out, "{}", change.command);
        }
    }
}

impl Execute<Router> for ShowCandidate {
    type Reply = Changes;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Changes>, OpError> {
        own(router).map(|candidate| Outcome::Done(Changes(candidate.changes()))).ok_or_else(none)
    }
}

request! {
    /// Shows what the candidate of this session would change: commands of the running configuration that go (-), and commands that would be run (+).
    pub read Compare "candidate_diff_show" ["compare"] {}
}

impl Execute<Router> for Compare {
    type Reply = Lines;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Lines>, OpError> {
        Comparing::outcome(router, &*own(router).ok_or_else(none)?)
    }
}

/// Compares a candidate with the running configuration.
pub(super) struct Comparing {
    collect: Collect<Router>,
    changes: Vec<Pending>,
}

impl Comparing {
    pub(super) fn outcome(router: &Router, candidate: &Candidate) -> Result<Outcome<Router, Lines>, OpError> {
        let collect = System::of(router)?.registry.get().collect().with_undo();
        Ok(Outcome::job(Self { collect, changes: candidate.changes() }))
    }
}

impl Job<Router, Lines> for Comparing {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Lines> {
        self.collect.step(router, budget).map(|now| compared(now.entries(), &self.changes))
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, router: &mut Router) {
        self.collect.cancel(router);
    }
}

/// What changes undo of what is configured, and what they add to it. A change that is configured already is neither. What a change does
/// that is no entry's request and undoes none is not known before it has run: it stands with `+`.
fn compared(now: &[Entry], changes: &[Pending]) -> Lines {
    let mut is: HashMap<(&str, &str), usize> = HashMap::new();
    let mut undone_by: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (at, entry) in now.iter().enumerate() {
        is.insert((&entry.operation, entry.request.get()), at);
        if let Some(undo) = &entry.back.undo {
            undone_by.entry((&undo.operation, undo.request.get())).or_default().push(at);
        }
    }
    let mut gone = vec![false; now.len()];
    let mut added: Vec<&Pending> = Vec::new();
    for change in changes {
        let key = (change.record.operation.as_str(), change.record.request.get());
        if let Some(undone) = undone_by.get(&key) {
            undone.iter().for_each(|at| gone[*at] = true);
            continue;
        }
        match is.get(&key) {
            Some(at) if gone[*at] => gone[*at] = false,
            Some(_) => {}
            None => added.push(change),
        }
    }
    let removed = now.iter().zip(&gone).filter(|(_, gone)| **gone).map(|(entry, _)| entry.command.clone()).collect();
    Lines { added: added.into_iter().map(|change| change.command.clone()).collect(), removed }
}

request! {
    /// Applies all changes of this session's candidate, or none; or confirms a commit that waits for it.
    pub change Commit "candidate_commit" ["commit"] {
        /// The changes are undone unless `confirm' or `commit' follows within this time: 30s, 5m, 2h.
        pub confirmed: Option<Span> = "confirmed <time>",
        /// What to remember of it.
        pub comment: Option<String> = "comment <text>",
    }
}

/// The answer of [`Commit`].
#[derive(Debug, Clone, Serialize)]
pub struct Committed {
    /// Changes that were made.
    pub changes: usize,
    /// In which time they are to be confirmed.
    pub confirm_within: Option<Span>,
}

impl Text for Committed {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.changes {
            1 => write!(out, "1 change"),
            count => write!(out, "{count} changes"),
        };
        if let Some(time) = self.confirm_within {
            let _ = write!(out, "; back in {time} unless `confirm' comes before");
        }
        out.push('\n');
    }
}

impl Execute<Router> for Commit {
    type Reply = Committed;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Committed>, OpError> {
        let window = alone(router)?;
        let system = System::of(router)?;
        let Some(candidate) = system.sessions.take_candidate() else {
            // One that confirms.
            let closed = if self.confirmed.is_none() { window.close() } else { None };
            closed.ok_or_else(none)?.hold.keep();
            return Ok(Outcome::Done(Committed { changes: 0, confirm_within: None }));
        };
        let registry = system.registry.get();
        let making = Making {
            registry: Rc::clone(&registry),
            rest: candidate.changes().into_iter(),
            running: None,
            made: 0,
            cancelled: false,
        };
        let phase = Phase::Making(Atomic::new(registry, router, Box::new(making)));
        Ok(Outcome::job(Committing { commit: self, candidate: Some(candidate), window, changes: 0, phase }))
    }
}

/// Makes changes in order, and says how many there were.
struct Making {
    registry: Rc<Registry<Router>>,
    rest: std::vec::IntoIter<Pending>,
    running: Option<(String, Box<dyn Job<Router, Answer>>)>,
    made: usize,
    cancelled: bool,
}

impl Making {
    fn failed(&self, command: &str, error: OpError) -> OpError {
        OpError { message: format!("change {}: {command}: {}", self.made + 1, error.message), ..error }
    }

    /// The end of a change, or of all.
    fn advance(&mut self, router: &mut Router, budget: Duration) -> Option<Step<usize>> {
        if let Some((command, mut job)) = self.running.take() {
            match job.step(router, budget) {
                Step::Done(Ok(_)) => self.made += 1,
                Step::Done(Err(error)) => return Some(Step::Done(Err(self.failed(&command, error)))),
                step => {
                    self.running = Some((command, job));
                    return Some(step.map(|_| 0));
                }
            }
            return None;
        }
        if self.cancelled {
            return Some(Step::Done(Err(OpError::unspecified(format!("stopped after {} changes", self.made)))));
        }
        let Some(Pending { command, record }) = self.rest.next() else { return Some(Step::Done(Ok(self.made))) };
        let request = serde_json::from_str(record.request.get()).unwrap_or_default();
        let invocation = self.registry.request(&record.operation, request);
        match invocation.and_then(|invocation| self.registry.run(invocation, router, &View::TEXT)) {
            Ok(Outcome::Done(_)) => self.made += 1,
            Ok(Outcome::Job(job)) => self.running = Some((command, job)),
            Err(error) => return Some(Step::Done(Err(self.failed(&command, error)))),
        }
        None
    }
}

impl Job<Router, usize> for Making {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<usize> {
        let started = std::time::Instant::now();
        loop {
            if let Some(step) = self.advance(router, budget.saturating_sub(started.elapsed())) {
                return step;
            }
            if started.elapsed() >= budget {
                return Step::Again;
            }
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.running.as_mut().map_or(Poll::Ready(()), |(_, job)| job.poll_ready(context))
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, router: &mut Router) {
        self.cancelled = true;
        if let Some((_, job)) = &mut self.running {
            job.cancel(router);
        }
    }
}

/// A commit: its changes, then the configuration before them is kept as a checkpoint.
struct Committing {
    commit: Commit,
    /// It is the session's again where the commit fails.
    candidate: Option<Rc<Candidate>>,
    window: Rc<Window>,
    changes: usize,
    phase: Phase,
}

enum Phase {
    Making(Atomic<Router, usize>),
    Keeping(Settling),
}

/// The end of what was made as a whole: the configuration before it is kept, then it is confirmed or waits for it.
pub(super) struct Settling {
    keep: Option<Keep>,
    provisional: Option<Provisional>,
    window: Rc<Window>,
    confirmed: Option<Span>,
}

impl Settling {
    /// All is changed. `what`: the command, and what the log calls what it has done.
    pub(super) fn begin(
        router: &mut Router,
        (command, called): (&str, &str),
        comment: Option<&str>,
        Applied { before, hold, .. }: Applied<usize>,
        window: Rc<Window>,
        confirmed: Option<Span>,
    ) -> Self {
        let comment = comment.map_or_else(String::new, |comment| format!(": {comment}"));
        let keep = Checkpoints::of(router).keep(None, Some(format!("before {command}{comment}")), Arc::clone(&before));
        let warn = |error| tracing::warn!(target: "startup", "the configuration before {called} is not kept: {error}");
        Self { keep: keep.map_err(warn).ok(), provisional: Some(Provisional { before, hold }), window, confirmed }
    }

    pub(super) fn step(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        let step = self.keep.as_mut().map_or(Step::Done(Ok(())), |keep| keep.ended(router, budget));
        if matches!(step, Step::Done(_))
            && let Some(provisional) = self.provisional.take()
        {
            self.window.committed(provisional, self.confirmed);
        }
        step
    }

    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.keep.as_mut().map_or(Poll::Ready(()), |keep| keep.poll_ready(context))
    }
}

impl Job<Router, Committed> for Committing {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Committed> {
        match &mut self.phase {
            Phase::Making(making) => {
                let step = making.step(router, budget).quiet();
                if let (Step::Done(Err(_)), Ok(system)) = (&step, System::of(router)) {
                    self.candidate.take().into_iter().for_each(|candidate| system.sessions.give_candidate(candidate));
                }
                step.and_then(|applied| {
                    (self.changes, self.candidate) = (applied.reply, None);
                    let (comment, window) = (self.commit.comment.as_deref(), Rc::clone(&self.window));
                    let settling =
                        Settling::begin(router, ("commit", "the commit"), comment, applied, window, self.commit.confirmed);
                    self.phase = Phase::Keeping(settling);
                    Step::Again
                })
            }
            Phase::Keeping(settling) => {
                let committed = Committed { changes: self.changes, confirm_within: self.commit.confirmed };
                settling.step(router, budget).quiet().map(|()| committed)
            }
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.phase {
            Phase::Making(making) => making.poll_ready(context),
            Phase::Keeping(settling) => settling.poll_ready(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        false
    }

    fn cancel(&mut self, router: &mut Router) {
        if let Phase::Making(making) = &mut self.phase {
            making.cancel(router);
        }
    }
}

request! {
    /// Confirms a commit that would otherwise be undone.
    pub change Confirm "commit_confirm" ["confirm"] {}
}

impl Execute<Router> for Confirm {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        alone(router)?.close().ok_or_else(nothing_waits)?.hold.keep();
        Ok(Outcome::Done(()))
    }
}

/// The window of a router, where nothing else is made as a whole: that ends first.
pub(super) fn alone(router: &mut Router) -> Result<Rc<Window>, OpError> {
    let window = Window::of(router);
    let holds = router.part::<Rc<Journal>>().map_or(0, |journal| journal.holds());
    if holds > usize::from(window.is_open()) {
        return Err(OpError::new(retval::BUSY, "not within `exec <file> atomic'"));
    }
    Ok(window)
}

fn nothing_waits() -> OpError {
    OpError::new(retval::NO_SUCH_ENTRY, "no commit waits to be confirmed")
}

/// Name of the operation that goes back. The router asks for it itself when the time is over.
pub const REVERT: &str = <Revert as Declared>::NAME;

request! {
    /// Undoes a commit that is not confirmed, and everything changed since.
    pub change Revert "commit_revert" ["revert"] {}
}

impl Execute<Router> for Revert {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Provisional { before, hold } = alone(router)?.close().ok_or_else(nothing_waits)?;
        let restore = Restore::new(System::of(router)?.registry.get(), before);
        Ok(Outcome::job(Reverting { restore, hold: Some(hold) }))
    }
}

/// Goes back, to its end.
struct Reverting {
    restore: Restore<Router>,
    hold: Option<Hold>,
}

impl Job<Router, ()> for Reverting {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<()> {
        let step = self.restore.step(router, budget);
        if let (Step::Done(done), Some(hold)) = (&step, self.hold.take_if(|_| matches!(step, Step::Done(_)))) {
            match done {
                Ok(_) => drop(hold),
                // What there is now is neither: at least it lasts.
                Err(_) => hold.give_up(),
            }
        }
        step.map(drop)
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.restore.poll_ready(context)
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        false
    }

    /// Half of it is no configuration of anybody's.
    fn cancel(&mut self, _: &mut Router) {}
}
