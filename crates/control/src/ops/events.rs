//! The event log: `show event-logger`, `event-logger …`.

use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_net::Router;
use quiver_net::files::{Elsewhere, Files, Use};
use serde::{Deserialize, Serialize};

use crate::system::System;

/// Events shown where no number is given.
const SHOWN: usize = 250;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowEvents>().declare::<SaveEvents>().declare::<ClearEvents>().declare::<SwitchEvents>();
}

fn parse(args: &mut Args<'_>) -> Result<ShowEvents, OpError> {
    Ok(ShowEvents { limit: if args.take_keyword("all") { usize::MAX } else { args.try_number("n").unwrap_or(SHOWN) } })
}

/// Lists events.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowEvents {
    /// The newest so many.
    pub limit: usize,
}

impl Default for ShowEvents {
    fn default() -> Self {
        Self { limit: SHOWN }
    }
}

commands! {
    read ShowEvents "events_dump" {
        /// Shows the newest events of all threads, in the order of time.
        ["show event-logger"] "[all] [<n>]" by parse,
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Seconds since the router was started.
    pub seconds: f64,
    /// Thread.
    pub thread: String,
    /// What happened.
    pub text: String,
}

/// The answer of [`ShowEvents`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Events {
    /// Events that are remembered.
    pub total: usize,
    /// Events that there is room for.
    pub capacity: usize,
    /// Whether events are being logged.
    pub running: bool,
    /// The newest ones, oldest first.
    pub events: Vec<Event>,
}

impl Execute<Router> for ShowEvents {
    type Reply = Events;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Events>, OpError> {
        let started = System::of(router)?.started;
        let log = router.graph.events();
        let recording = log.recording();
        let skipped = recording.events.len().saturating_sub(self.limit);
        let event = |event: &quiver_graph::elog::Event| Event {
            seconds: event.ns.wrapping_sub(started) as i64 as f64 / 1e9,
            thread: recording.threads.get(event.thread as usize).cloned().unwrap_or_default(),
            text: recording.text(event),
        };
        Ok(Outcome::Done(Events {
            total: recording.events.len(),
            capacity: log.capacity(),
            running: log.is_running(),
            events: recording.events[skipped..].iter().map(event).collect(),
        }))
    }
}

impl Text for Events {
    fn text(&self, out: &mut String, _view: &View) {
        let state = if self.running { "running" } else { "stopped" };
        let _ = writeln!(out, "{} of {} events in buffer, logger {state}", self.total, self.capacity);
        for event in &self.events {
            let _ = writeln!(out, "{:18.9}: {}: {}", event.seconds, event.thread, event.text);
        }
    }
}

request! {
    /// Saves all events to a file, in the router's folder unless a path says where.
    pub change SaveEvents "events_save" ["event-logger save"] {
        /// Name of a file, or its path.
        pub file: String = "<file>",
    }
}

/// The answer of [`SaveEvents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SavedEvents {
    /// How many events.
    pub events: usize,
    /// Where they are.
    pub file: PathBuf,
}

impl Execute<Router> for SaveEvents {
    type Reply = SavedEvents;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SavedEvents>, OpError> {
        let place = Files::place(router, &self.file, Use::Write)?;
        let recording = router.graph.events().recording();
        let save = move || {
            place.save(&recording.to_bytes()).map_err(|error| place.cannot("write", &error))?;
            Ok(SavedEvents { events: recording.events.len(), file: place.path().to_owned() })
        };
        Ok(Outcome::job(Elsewhere::new(save, |_, saved| Ok(saved))))
    }
}

impl Text for SavedEvents {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "Saved {} events to {}", self.events, self.file.display());
    }
}

request! {
    /// Forgets all events.
    pub change ClearEvents "events_clear" ["event-logger clear"] {}
}

impl Execute<Router> for ClearEvents {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.events().clear();
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Stops logging events, or starts it again.
    pub change SwitchEvents "events_switch" ["event-logger stop" { on: false }, "event-logger start" { on: true }, "event-logger restart" { on: true }] {
        /// `true` starts.
        pub on: bool = "",
    }
}

impl Execute<Router> for SwitchEvents {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let events = router.graph.events();
        if self.on {
            events.start()
        } else {
            events.stop()
        }
        Ok(Outcome::Done(()))
    }
}
