//! `show watchdog`.

use std::fmt::Write as _;
use std::rc::Rc;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::panics;
use crate::watchdog::{Report, Watchdog};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowWatchdog>();
}

request! {
    /// Shows whether all threads make progress, and what is done where one does not.
    pub read ShowWatchdog "watchdog_show" ["show watchdog"] {}
}

/// The answer of [`ShowWatchdog`].
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// What the watchdog knows.
    #[serde(flatten)]
    pub report: Report,
    /// Panics that ended an operation or a session, and not the router.
    pub contained_panics: u64,
}

impl Execute<Router> for ShowWatchdog {
    type Reply = State;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, State>, OpError> {
        let none = || OpError::new(retval::UNSUPPORTED, "this router runs without its daemon");
        let watchdog: &Rc<Watchdog> = router.part().ok_or_else(none)?;
        Ok(Outcome::Done(State { report: watchdog.report(), contained_panics: panics::count() }))
    }
}

impl Text for State {
    fn text(&self, out: &mut String, _view: &View) {
        let report = &self.report;
        let _ = match report.limit {
            Some(limit) => writeln!(out, "A thread without progress for {limit} s ends the router"),
            None => writeln!(out, "The watchdog is off (unix {{ watchdog }})"),
        };
        if let Some(time) = report.supervisor {
            let _ = writeln!(out, "The supervisor wants to hear from the router every {time} s and was told {} times", report.told);
        }
        let _ = writeln!(out, "Looks: {}, contained panics: {}", report.looks, self.contained_panics);
        let columns = [
            ("ID", Align::Left, 4),
            ("Name", Align::Left, 16),
            ("LWP", Align::Left, 8),
            ("State", Align::Left, 10),
            ("Progress", Align::Right, 14),
            ("CPU ms", Align::Right, 8),
            ("Blocked ms", Align::Right, 11),
            ("Longest ms", Align::Right, 11),
        ];
        let table =
            columns.into_iter().fold(TextTable::new(), |table, (name, align, width)| table.column_with(name, align, width, align));
        table.heading(out);
        for t in &report.threads {
            table.row(out, &[&t.id, &t.name, &t.lwp, &t.state, &t.beats, &t.cpu_ms, &t.blocked_ms, &t.longest_ms]);
        }
    }
}
