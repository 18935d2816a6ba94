//! What the tables of each thread hold.

use std::fmt::Write as _;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::thread_name;
use quiver_net::Router;
use serde::Serialize;

use crate::control::{self, Nat};
use crate::thread::ThreadNat;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowTables>();
}

request! {
    /// Shows how full the tables of each thread are, and what memory they take.
    pub read ShowTables "nat44_tables_show" ["show nat44 hash tables"] {
    } ignores {
        /// What VPP's words add, its bucket chains, is not there: a table of ours has no chains.
        "detail|verbose",
    }
}

/// The tables of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadTables {
    /// The thread.
    pub thread: usize,
    /// Sessions. Each has an entry for either direction.
    pub sessions: u32,
    /// Most sessions that it can have.
    pub limit: u32,
    /// Hosts with sessions.
    pub hosts: usize,
    /// Inside endpoints that are mapped independently of remote ones.
    pub bindings: usize,
    /// Bytes of memory.
    pub memory: usize,
}

/// The answer of [`ShowTables`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableList {
    /// Tables by thread.
    pub threads: Vec<ThreadTables>,
    /// Static mappings, which all threads share.
    pub mappings: usize,
}

impl Text for TableList {
    fn text(&self, out: &mut String, _: &View) {
        for t in &self.threads {
            let _ = writeln!(out, "-------- thread {} {} --------", t.thread, thread_name(t.thread));
            let _ = writeln!(
                out,
                "  sessions by flow: {} entries of {} sessions, at most {}",
                2 * u64::from(t.sessions),
                t.sessions,
                t.limit
            );
            let _ = writeln!(out, "  hosts: {}", t.hosts);
            let _ = writeln!(out, "  endpoint-independent mappings: {}", t.bindings);
            let _ = writeln!(out, "  memory: {} bytes", t.memory);
        }
        let _ = writeln!(out, "static mappings: {}", self.mappings);
    }
}

impl Execute<Router> for ShowTables {
    type Reply = TableList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, TableList>, OpError> {
        let mut threads = Vec::new();
        for thread in control::threads(router) {
            let look = move |nat: &mut ThreadNat| ThreadTables {
                thread,
                sessions: nat.sessions.len(),
                limit: nat.sessions.limit(),
                hosts: nat.hosts(),
                bindings: nat.bindings(),
                memory: nat.memory_bytes(),
            };
            threads.extend(control::on_thread(router, thread, look));
        }
        let mappings = router.part::<Nat>().map_or(0, |nat| nat.statics.len());
        Ok(Outcome::Done(TableList { threads, mappings }))
    }
}
