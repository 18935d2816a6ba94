//! The running configuration, as the requests that make it.
//!
//! Every part of the router says what of its state somebody has configured: it pushes the requests that would make that state again.
//! Their commands and their JSON follow from the requests. What is only state (learned addresses, counters) is left out.
//!
//! ```text
//!  Registry::configuration(Stage::Routes, steps)        steps(&C) ─► a closure, called until it says that it has pushed all
//!                 │                                                     │ a part at each call: there may be millions
//!  show configuration ──► stage after stage, whatever the order of registration ──► commands, or operations with their JSON
//! ```
//!
//! A part also says how each entry is undone, next to where it pushes it: `out.push(&X).undo(&Y)`. From that follows what leads from
//! one configuration to another ([`Difference`]).

mod atomic;
mod difference;
mod entry;
mod restore;

pub use atomic::{Applied, Atomic};
pub use difference::Difference;
pub use entry::{Back, Entry, Pushed, Update};
pub use restore::Restore;

use crate::operation::{Job, OpError, Operation, Outcome, Step, Text, View};
use crate::request::Declared;
use serde::Serialize;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// When a part of the configuration is made again: what it names must be there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// What concerns no interface: threads, logging, defaults.
    System,
    /// What interfaces are made on: sockets.
    Sockets,
    /// Interfaces with their names.
    Interfaces,
    /// Tables of routes, bridge domains.
    Tables,
    /// What interfaces are and belong to: tables, sizes, MAC addresses, bridge ports, queues.
    Links,
    /// Addresses of interfaces.
    Addresses,
    /// Interfaces go up.
    Up,
    /// Routes.
    Routes,
    /// Neighbours.
    Neighbors,
    /// What builds on all that: NAT, router advertisements, features.
    Services,
}

/// Pushes a part of the configuration at each call; `true`: that was the last one.
pub type Steps<C> = Box<dyn FnMut(&C, &mut Configuration<C>) -> bool>;

/// Begins to push a part of the configuration.
pub type Section<C> = fn(&C) -> Steps<C>;

/// All at once, for a part that is always small.
pub fn whole<C: 'static>(push: fn(&C, &mut Configuration<C>)) -> Steps<C> {
    Box::new(move |control, out| {
        push(control, out);
        true
    })
}

/// A step for each of these; none may be large.
pub fn each<C: 'static, T: 'static>(items: Vec<T>, push: fn(&C, &T, &mut Configuration<C>)) -> Steps<C> {
    let mut items = items.into_iter();
    Box::new(move |control, out| match items.next() {
        Some(item) => {
            push(control, &item, out);
            false
        }
        None => true,
    })
}

/// The running configuration, in the order in which it can be made again.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Configuration<C> {
    entries: Vec<Entry>,
    /// Whether somebody wants to know how entries are undone.
    #[serde(skip)]
    with_undo: bool,
    #[serde(skip)]
    control: PhantomData<fn(C)>,
}

impl<C> Default for Configuration<C> {
    fn default() -> Self {
        Self { entries: Vec::new(), with_undo: false, control: PhantomData }
    }
}

impl<C> Configuration<C> {
    /// Appends a declared request.
    pub fn push<R: Declared>(&mut self, request: &R) -> Pushed<'_> {
        self.push_entry(Entry::of(request))
    }

    /// Appends a request with a parser of its own, and the command that it reads it from.
    pub fn push_as<O: Operation<C>>(&mut self, request: &O::Request, command: String) -> Pushed<'_> {
        self.push_entry(Entry::with_command::<C, O>(request, command))
    }

    /// Appends one that was made earlier.
    pub fn push_entry(&mut self, entry: Entry) -> Pushed<'_> {
        self.entries.push(entry);
        Pushed(self.entries.last_mut().filter(|_| self.with_undo).map(|entry| &mut entry.back))
    }

    /// The operations, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The operations, in order.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

impl<C> Text for Configuration<C> {
    fn text(&self, out: &mut String, _: &View) {
        for entry in &self.entries {
            out.push_str(&entry.command);
            out.push('\n');
        }
    }
}

/// Collects the configuration in slices, while no other operation runs.
pub struct Collect<C> {
    rest: std::vec::IntoIter<Section<C>>,
    steps: Option<Steps<C>>,
    pushed: Configuration<C>,
    cancelled: bool,
}

impl<C: 'static> Collect<C> {
    pub(crate) fn new(sections: &[(Stage, Section<C>)]) -> Self {
        let mut sections = sections.to_vec();
        sections.sort_by_key(|(stage, _)| *stage);
        let rest: Vec<Section<C>> = sections.into_iter().map(|(_, section)| section).collect();
        Self { rest: rest.into_iter(), steps: None, pushed: Configuration::default(), cancelled: false }
    }

    /// Has each entry say how it is undone.
    pub fn with_undo(mut self) -> Self {
        self.pushed.with_undo = true;
        self
    }

    /// All of it at once.
    pub fn all(mut self, control: &C) -> Configuration<C> {
        while !self.advance(control) {}
        self.pushed
    }

    fn advance(&mut self, control: &C) -> bool {
        match &mut self.steps {
            Some(steps) => {
                if steps(control, &mut self.pushed) {
                    self.steps = None;
                }
            }
            None => match self.rest.next() {
                Some(section) => self.steps = Some(section(control)),
                None => return true,
            },
        }
        false
    }

    /// As an operation's outcome.
    pub fn outcome(self) -> Outcome<C, Configuration<C>> {
        Outcome::job(self)
    }
}

impl<C: 'static> Job<C, Configuration<C>> for Collect<C> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<Configuration<C>> {
        let started = Instant::now();
        loop {
            if self.cancelled {
                return Step::Done(Err(OpError::unspecified("stopped")));
            }
            if self.advance(control) {
                return Step::Done(Ok(std::mem::take(&mut self.pushed)));
            }
            if started.elapsed() >= budget {
                return Step::Again;
            }
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut C) {
        self.cancelled = true;
    }
}
