//! The event log: `show event-logger`, `event-logger …`.

use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::grammar::Command;
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::threads::Empty;
use crate::files::{Elsewhere, Files, Use};
use crate::system::System;

/// Events shown where no number is given.
const SHOWN: usize = 250;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<ShowEvents>()
        .operation::<SaveEvents>()
        .operation::<ClearEvents>()
        .operation::<SwitchEvents>()
        .command(Command {
            path: "show event-logger",
            syntax: "[all] [<n>]",
            help: "Shows the newest events of all threads, in the order of time",
            parse: |args, _| {
                let limit = if args.take_keyword("all") { usize::MAX } else { args.try_number("n").unwrap_or(SHOWN) };
                Ok(Invocation::new::<ShowEvents>(ShowEventsRequest { limit }))
            },
        })
        .command(Command {
            path: "event-logger save",
            syntax: "<file>",
            help: "Saves all events to a file, in the router's folder unless a path says where",
            parse: |args, _| Ok(Invocation::new::<SaveEvents>(SaveEventsRequest { file: args.word("file")?.into_owned() })),
        })
        .command(Command {
            path: "event-logger clear",
            syntax: "",
            help: "Forgets all events",
            parse: |_, _| Ok(Invocation::new::<ClearEvents>(Empty {})),
        })
        .command(switch("event-logger stop", "Stops logging events", |_, _| Ok(switching(false))))
        .command(switch("event-logger start", "Starts logging events again", |_, _| Ok(switching(true))))
        .command(switch("event-logger restart", "Starts logging events again", |_, _| Ok(switching(true))));
}

fn switch(path: &'static str, help: &'static str, parse: quiver_command::grammar::Parse<Router>) -> Command<Router> {
    Command { path, syntax: "", help, parse }
}

fn switching(on: bool) -> Invocation<Router> {
    Invocation::new::<SwitchEvents>(SwitchEventsRequest { on })
}

/// Lists events.
pub struct ShowEvents;

/// How many events [`ShowEvents`] lists.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowEventsRequest {
    /// The newest so many.
    pub limit: usize,
}

impl Default for ShowEventsRequest {
    fn default() -> Self {
        Self { limit: SHOWN }
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

impl Operation<Router> for ShowEvents {
    const NAME: &'static str = "events_dump";
    const ACCESS: Access = Access::Read;
    type Request = ShowEventsRequest;
    type Reply = Events;

    fn run(router: &mut Router, request: ShowEventsRequest) -> Result<Outcome<Router, Events>, OpError> {
        let started = System::of(router)?.started;
        let log = router.graph.events();
        let recording = log.recording();
        let skipped = recording.events.len().saturating_sub(request.limit);
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

/// Saves all events.
pub struct SaveEvents;

/// Where [`SaveEvents`] saves them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveEventsRequest {
    /// Name of a file, or its path.
    pub file: String,
}

/// The answer of [`SaveEvents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SavedEvents {
    /// How many events.
    pub events: usize,
    /// Where they are.
    pub file: PathBuf,
}

impl Operation<Router> for SaveEvents {
    const NAME: &'static str = "events_save";
    const ACCESS: Access = Access::Change;
    type Request = SaveEventsRequest;
    type Reply = SavedEvents;

    fn run(router: &mut Router, request: SaveEventsRequest) -> Result<Outcome<Router, SavedEvents>, OpError> {
        let place = Files::place(router, &request.file, Use::Write)?;
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

/// Forgets all events.
pub struct ClearEvents;

impl Operation<Router> for ClearEvents {
    const NAME: &'static str = "events_clear";
    const ACCESS: Access = Access::Change;
    type Request = Empty;
    type Reply = ();

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.events().clear();
        Ok(Outcome::Done(()))
    }
}

/// Starts and stops logging events.
pub struct SwitchEvents;

/// Whether [`SwitchEvents`] starts or stops it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchEventsRequest {
    /// `true` starts.
    pub on: bool,
}

impl Operation<Router> for SwitchEvents {
    const NAME: &'static str = "events_switch";
    const ACCESS: Access = Access::Change;
    type Request = SwitchEventsRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SwitchEventsRequest) -> Result<Outcome<Router, ()>, OpError> {
        let events = router.graph.events();
        if request.on {
            events.start()
        } else {
            events.stop()
        }
        Ok(Outcome::Done(()))
    }
}
