//! Which workers have sessions; the greatest segment size that connections agree on; the mapping log.

use std::fmt::Write as _;

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute};
use quiver_graph::thread_name;
use quiver_graph::topology::parse_cpu_list;
use quiver_net::Router;
use serde::Serialize;

use crate::control::{self, Nat};

/// The least that a clamp leaves: what every host takes (RFC 9293, section 3.7.1).
const MSS_LEAST: u16 = 536;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetWorkers>().declare::<ShowWorkers>().declare::<SetMss>().declare::<ShowMss>();
}

/// A list of workers, `0-2,5`.
fn worker_list(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Vec<usize>, OpError> {
    let list = args.word("workers")?;
    let workers = parse_cpu_list(&list).map_err(|_| {
        let error = OpError::new(retval::INVALID_VALUE, format!("`{list}' is no list of workers"));
        error.key("workers").value(&list).remedy("such as 0-2,5")
    })?;
    Ok(workers.into_iter().map(|n| n as usize).collect())
}

fn worker_text(workers: &[usize]) -> String {
    workers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

request! {
    /// Chooses the workers, from 0, that have sessions; sessions move to them.
    pub change SetWorkers "nat_workers_set" ["set nat workers"] {
        /// Workers, from 0.
        pub workers: Vec<usize> = "<list>" with(worker_list, worker_text),
    }
}

impl Execute<Router> for SetWorkers {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_workers(router, self.workers)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows the threads that have sessions.
    pub read ShowWorkers "nat_workers_show" ["show nat workers"] {}
}

/// The answer of [`ShowWorkers`]: names of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WorkerList(pub Vec<String>);

impl Text for WorkerList {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{} workers", self.0.len());
        for name in &self.0 {
            let _ = writeln!(out, "  {name}");
        }
    }
}

impl Execute<Router> for ShowWorkers {
    type Reply = WorkerList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, WorkerList>, OpError> {
        Ok(Outcome::Done(WorkerList(control::threads(router).into_iter().map(thread_name).collect())))
    }
}

request! {
    /// Clamps the maximum segment size (MSS) of TCP connections through the NAT.
    pub change SetMss "nat_mss_clamping_set" ["nat mss-clamping"] {
        /// Bytes; none: connections agree on what they like.
        pub bytes: Option<u16> = "<bytes>|disable" said() range(MSS_LEAST as u64..=u16::MAX as u64),
    }
}

impl Execute<Router> for SetMss {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.mss = self.bytes.unwrap_or(0))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows the greatest segment size.
    pub read ShowMss "nat_mss_clamping_show" ["show nat mss-clamping"] {}
}

/// The answer of [`ShowMss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MssInfo {
    /// Bytes, where it is set.
    pub bytes: Option<u16>,
}

impl Text for MssInfo {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.bytes {
            Some(bytes) => writeln!(out, "mss-clamping {bytes}"),
            None => writeln!(out, "mss-clamping disabled"),
        };
    }
}

impl Execute<Router> for ShowMss {
    type Reply = MssInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, MssInfo>, OpError> {
        let mss = router.part::<Nat>().map_or(0, |nat| nat.config.mss);
        Ok(Outcome::Done(MssInfo { bytes: (mss > 0).then_some(mss) }))
    }
}
