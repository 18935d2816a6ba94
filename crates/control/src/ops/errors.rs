//! `show errors`, `show node counters`, and clearing them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quiver_command::grammar::Args;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::thread_name;
use quiver_net::Router;
use serde::{Deserialize, Serialize};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowErrors>().declare::<ClearErrors>();
}

fn parse(args: &mut Args<'_>) -> Result<ShowErrors, OpError> {
    let verbose = args.take_keyword("verbose");
    let level = if verbose { args.try_number::<u32>("n").unwrap_or(1) } else { 0 };
    Ok(ShowErrors { verbose, zeros: level > 1 })
}

/// Lists what nodes have counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowErrors {
    /// By thread too.
    pub verbose: bool,
    /// Also what has not happened yet.
    pub zeros: bool,
}

commands! {
    read ShowErrors "errors_show" {
        /// Shows what nodes have counted: drops by reason, and events.
        ["show errors", "show node counters"] "[verbose [<n>]]" by parse,
    }
}

/// A counter of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorRow {
    /// How often.
    pub count: u64,
    /// Who counted.
    pub node: String,
    /// What.
    pub reason: &'static str,
    /// What that means, in a sentence.
    pub meaning: &'static str,
    /// `error` or `info`.
    pub severity: String,
}

/// The answer of [`ShowErrors`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// Sums over all threads.
    pub total: Vec<ErrorRow>,
    /// By thread, where it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadErrors>,
}

/// What one thread has counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadErrors {
    /// Its number.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// What it counted.
    pub errors: Vec<ErrorRow>,
}

impl Execute<Router> for ShowErrors {
    type Reply = Errors;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Errors>, OpError> {
        let mut total: Vec<ErrorRow> = Vec::new();
        let mut threads: BTreeMap<usize, Vec<ErrorRow>> = BTreeMap::new();
        for (thread, info, count) in router.graph.error_counts() {
            let row =
                ErrorRow { count, node: info.node, reason: info.text, meaning: info.about, severity: info.severity.to_string() };
            // All threads of a counter follow one another.
            match total.last_mut().filter(|last| last.node == row.node && last.reason == row.reason) {
                Some(last) => last.count += count,
                None => total.push(row.clone()),
            }
            let rows = threads.entry(thread).or_default();
            if count > 0 || self.zeros {
                rows.push(row);
            }
        }
        total.retain(|row| self.zeros || row.count > 0);
        let threads = threads.into_iter().filter(|_| self.verbose);
        let threads = threads.map(|(thread, errors)| ThreadErrors { thread, name: thread_name(thread), errors }).collect();
        Ok(Outcome::Done(Errors { total, threads }))
    }
}

impl Text for Errors {
    fn text(&self, out: &mut String, _view: &View) {
        let table = TextTable::new()
            .column("Count", 10, Align::Right)
            .column("Node", 35, Align::Centre)
            .column("Reason", 35, Align::Centre)
            .column("Severity", 10, Align::Centre);
        let rows = |out: &mut String, rows: &[ErrorRow]| {
            rows.iter().for_each(|row| table.row(out, &[&row.count, &row.node, &row.reason, &row.severity]));
        };
        table.heading(out);
        for thread in &self.threads {
            let _ = writeln!(out, "Thread {} ({}):", thread.thread, thread.name);
            rows(out, &thread.errors);
        }
        if !self.threads.is_empty() {
            out.push_str("Total:\n");
        }
        rows(out, &self.total);
    }
}

request! {
    /// Resets the counters of drops and events.
    pub change ClearErrors "errors_clear" ["clear errors", "clear node counters"] {}
}

impl Execute<Router> for ClearErrors {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.clear_errors();
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_errors_has_the_usual_columns() {
        let row =
            ErrorRow { count: 3, node: "null-node".into(), reason: "blackholed packets", meaning: "", severity: "error".into() };
        let mut out = String::new();
        Errors { total: vec![row.clone()], threads: Vec::new() }.text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "   Count                  Node                              Reason               Severity \n         \
             3             null-node                      blackholed packets           error  \n"
        );
        out.clear();
        let thread = ThreadErrors { thread: 1, name: "quiver_wk_0".into(), errors: vec![row.clone()] };
        Errors { total: vec![row], threads: vec![thread] }.text(&mut out, &View::TEXT);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!((lines[1], lines[3], lines[2]), ("Thread 1 (quiver_wk_0):", "Total:", lines[4]));
    }
}
