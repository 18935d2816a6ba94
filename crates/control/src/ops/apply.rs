//! `apply`, `show configuration yaml`, `show configuration schema`: the configuration as a document, and bringing the router to what one wants.
//!
//! ```text
//!  read (elsewhere) ──► collect ──► plan (elsewhere) ──► nothing, or only a plan was wanted: the answer
//!                                       │
//!                                       ▼
//!                                   atomically: what differs ──► keep what was before ──► recorded, or waits to be confirmed
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quiver_command::configuration::{Atomic, Collect, Configuration, Entry, Restore};
use quiver_command::document::{Book, Changes, Plan, Wish};
use quiver_command::operation::{Access, Chain, Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::files::{Elsewhere, Files, Use};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::candidate::{Settling, alone, own};
use crate::candidate::{Span, Window};
use crate::journal::Journal;
use crate::system::System;

/// Bytes of a document at most: some 3 million routes.
const MOST: u64 = 256 << 20;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<Apply>().declare::<ShowDocument>().declare::<ShowSchema>().actions(&["configuration_apply"]);
}

request! {
    /// Brings the router to what a document (YAML or JSON) wants while packets flow: changes only what differs, all of it or nothing.
    pub change Apply "configuration_apply" ["apply"] {
        /// File of the document.
        pub file: Option<PathBuf> = "<file>",
        /// The document itself, for programs.
        pub document: Option<String> = "",
        /// What errors call the document.
        pub name: Option<String> = "",
        /// Only show what would change.
        pub plan: bool = "plan",
        /// A part that the document owns, such as interfaces/loop0 or routes; what it does not own is left alone. All where none is given.
        pub own: Vec<String> = "own <part>",
        /// The changes are undone unless `confirm' follows within this time: 30s, 5m, 2h.
        pub confirmed: Option<Span> = "confirmed <time>",
        /// What to remember of it.
        pub comment: Option<String> = "comment <text>",
    }
}

/// The answer of [`Apply`].
#[derive(Debug, Clone, Serialize)]
pub struct Applying {
    /// What changes, or would.
    #[serde(flatten)]
    pub changes: Changes,
    /// Whether it was done.
    pub applied: bool,
    /// In which time it is to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within: Option<Span>,
}

impl Text for Applying {
    fn text(&self, out: &mut String, _: &View) {
        for line in &self.changes.changes {
            let _ = writeln!(out, "{line}");
        }
        let Changes { added, removed, changed, again, changes } = &self.changes;
        let total = self.changes.total();
        if total == 0 {
            out.push_str("no changes\n");
            return;
        }
        if total > changes.len() {
            let _ = writeln!(out, "… and {} more", total - changes.len());
        }
        let again = if *again > 0 { format!(", {again} made again") } else { String::new() };
        let done = if self.applied { "done" } else { "planned" };
        let _ = write!(out, "{done}: {added} added, {changed} changed, {removed} removed{again}");
        if let Some(time) = self.confirm_within {
            let _ = write!(out, "; back in {time} unless `confirm' comes before");
        }
        out.push('\n');
    }
}

impl Execute<Router> for Apply {
    type Reply = Applying;

    fn access(&self) -> Access {
        if self.plan { Access::Read } else { Access::Change }
    }

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Applying>, OpError> {
        let window = if self.plan { Window::of(router) } else { alone(router)? };
        if !self.plan {
            if own(router).is_some() {
                let error = OpError::new(retval::BUSY, "not while this session has a candidate");
                return Err(error.remedy("`commit' or `discard' it"));
            }
            if let Some(journal) = router.part::<Rc<Journal>>() {
                journal.check_trouble()?;
            }
        }
        let registry = System::of(router)?.registry.get();
        let book = registry.book();
        let read = match (&self.document, &self.file) {
            (Some(text), _) => {
                let (text, name) = (text.clone(), self.name.clone().unwrap_or_else(|| "document".to_owned()));
                Elsewhere::new(move || read(book, name, &text), |_, read| Ok(read))
            }
            (None, Some(file)) => {
                let place = Files::place(router, file, Use::Read)?;
                let name = file.display().to_string();
                let work = move || {
                    let bytes = place.read(MOST).map_err(|error| place.cannot("read", &error))?;
                    let text =
                        String::from_utf8(bytes).map_err(|_| OpError::invalid("file", &name, format!("{name}: not UTF-8")))?;
                    read(book, name, &text)
                };
                Elsewhere::new(work, |_, read| Ok(read))
            }
            (None, None) => return Err(OpError::new(retval::INVALID_ARGUMENT, "missing file").remedy("expected apply <file>")),
        };
        Ok(Outcome::job(Application {
            apply: self,
            registry,
            window,
            changes: Changes::default(),
            phase: Phase::Reading(read.alone()),
        }))
    }
}

/// A document that was read, by which shapes, and what errors call it.
type Read = (Arc<Book>, String, Wish);

fn read(book: Arc<Book>, name: String, text: &str) -> Result<Read, OpError> {
    let wish = book.read(&name, text)?;
    Ok((book, name, wish))
}

/// The steps of an application.
struct Application {
    apply: Apply,
    registry: Rc<Registry<Router>>,
    window: Rc<Window>,
    changes: Changes,
    phase: Phase,
}

enum Phase {
    Reading(Elsewhere<Read, Read>),
    Collecting(Collect<Router>, Option<Read>),
    Planning(Elsewhere<Planned, Planned>),
    Changing(Atomic<Router, usize>),
    Keeping(Settling),
}

/// A plan, and what runs.
struct Planned {
    plan: Plan,
    running: Arc<Vec<Entry>>,
}

/// What a phase came to.
enum Ended {
    Next(Box<Phase>),
    All(bool),
}

impl Ended {
    fn next(phase: Phase) -> Self {
        Self::Next(Box::new(phase))
    }
}

impl Application {
    fn advance(&mut self, router: &mut Router, budget: Duration) -> Step<Ended> {
        let (registry, apply) = (&self.registry, &self.apply);
        match &mut self.phase {
            Phase::Reading(read) => {
                let collect = |read| Ended::next(Phase::Collecting(registry.collect().with_undo(), Some(read)));
                read.step(router, budget).map(collect)
            }
            Phase::Collecting(collect, read) => collect.step(router, budget).and_then(|configuration| {
                let Some((book, name, wish)) = read.take() else { return Step::Done(Err(OpError::unspecified("read twice"))) };
                let (running, own) = (Arc::new(configuration.into_entries()), apply.own.clone());
                let plan = move || book.plan(&name, &running, wish, &own).map(|plan| Planned { plan, running });
                Step::Done(Ok(Ended::next(Phase::Planning(Elsewhere::new(plan, |_, plan| Ok(plan)).alone()))))
            }),
            Phase::Planning(plan) => plan.step(router, budget).map(|Planned { plan: Plan { target, changes }, running }| {
                self.changes = changes;
                if apply.plan || self.changes.total() == 0 {
                    return Ended::All(false);
                }
                let restore = Restore::since(Rc::clone(registry), Arc::clone(&running), Arc::new(target));
                let restore = Box::new(restore.recorded().lenient());
                Ended::next(Phase::Changing(Atomic::since(Rc::clone(registry), router, running, restore)))
            }),
            Phase::Changing(atomic) => atomic.step(router, budget).map(|applied| {
                let what = ("apply", "the application");
                let (comment, window) = (apply.comment.as_deref(), Rc::clone(&self.window));
                Ended::next(Phase::Keeping(Settling::begin(router, what, comment, applied, window, apply.confirmed)))
            }),
            Phase::Keeping(settling) => settling.step(router, budget).map(|()| Ended::All(true)),
        }
    }
}

impl Job<Router, Applying> for Application {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Applying> {
        self.advance(router, budget).quiet().and_then(|ended| match ended {
            Ended::Next(phase) => {
                self.phase = *phase;
                Step::Again
            }
            Ended::All(applied) => {
                let confirm_within = self.apply.confirmed.filter(|_| applied);
                Step::Done(Ok(Applying { changes: std::mem::take(&mut self.changes), applied, confirm_within }))
            }
        })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.phase {
            Phase::Reading(read) => read.poll_ready(context),
            Phase::Collecting(..) => Poll::Ready(()),
            Phase::Planning(plan) => plan.poll_ready(context),
            Phase::Changing(atomic) => atomic.poll_ready(context),
            Phase::Keeping(settling) => settling.poll_ready(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    /// While the document is read nothing is looked at yet.
    fn yields(&self) -> bool {
        matches!(self.phase, Phase::Reading(_))
    }

    fn cancel(&mut self, router: &mut Router) {
        match &mut self.phase {
            Phase::Reading(read) => read.cancel(router),
            Phase::Collecting(collect, _) => collect.cancel(router),
            Phase::Planning(plan) => plan.cancel(router),
            Phase::Changing(atomic) => atomic.cancel(router),
            Phase::Keeping(..) => {}
        }
    }
}

request! {
    /// Shows the running configuration as a document, which `apply' takes.
    pub read ShowDocument "configuration_document_show" ["show configuration yaml"] {}
}

/// The answer of [`ShowDocument`].
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// YAML.
    pub document: String,
}

impl Text for Document {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(&self.document);
    }
}

impl Execute<Router> for ShowDocument {
    type Reply = Document;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Document>, OpError> {
        let registry = System::of(router)?.registry.get();
        let book = registry.book();
        // While another thread writes others may run.
        Ok(Outcome::job(Chain::new(registry.collect(), move |_, configuration: Configuration<Router>| {
            let entries = configuration.into_entries();
            Ok(Elsewhere::new(move || Ok(book.write(&entries)), |_, document| Ok(Document { document })))
        })))
    }
}

request! {
    /// Shows the JSON schema of the documents that `apply' takes.
    pub read ShowSchema "configuration_schema_show" ["show configuration schema"] {}
}

/// The answer of [`ShowSchema`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Schema {
    /// As a program reads it.
    pub schema: Box<RawValue>,
    /// As people do.
    #[serde(skip)]
    text: String,
}

impl Text for Schema {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(&self.text);
    }
}

impl Execute<Router> for ShowSchema {
    type Reply = Schema;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Schema>, OpError> {
        let book = System::of(router)?.registry.get().book();
        let write = move || {
            let schema = book.schema();
            let text = format!("{schema:#}\n");
            let schema = to_raw_value(&schema).map_err(|error| OpError::unspecified(error.to_string()))?;
            Ok(Schema { schema, text })
        };
        Ok(Outcome::job(Elsewhere::new(write, |_, schema| Ok(schema))))
    }
}

#[cfg(test)]
mod tests;
