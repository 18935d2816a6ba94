//! `set workers`: more or fewer worker threads, while packets flow.
//!
//! Workers are numbered from 0 without gaps, so those with the highest numbers leave first. What has been placed on a worker that
//! leaves goes to those that stay: receive queues, generator streams, flows of `set interface rss`. With 0 workers the main
//! thread forwards. Placement follows the `cpu` section of `startup.conf`, or `corelist` for those that join.

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute};
use quiver_graph::topology::{PlacementError, parse_cpu_list};
use quiver_net::Router;

use crate::daemon::replan;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetWorkers>();
}

/// CPUs, `0-2,5`.
fn corelist(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Vec<u32>, OpError> {
    let list = args.word("corelist")?;
    parse_cpu_list(&list).map_err(|error| OpError::new(retval::INVALID_VALUE, error.to_string()).key("corelist").value(&list))
}

fn corelist_text(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

request! {
    /// Changes the number of worker threads while packets flow; corelist names CPUs for those that join.
    pub change SetWorkers "workers_set" ["set workers"] {
        /// How many there shall be.
        pub count: usize = "<n>" name("number of workers") range(0..=63),
        /// CPUs for those that join, in order; none: by the `cpu` section's rules.
        pub corelist: Vec<u32> = "corelist <list>" with(corelist, corelist_text),
    }
}

/// Why a CPU cannot be had, as an operation's error.
fn placement_error(error: &PlacementError) -> OpError {
    let text = match error {
        PlacementError::TooFew { wanted, usable, .. } => {
            format!("{wanted} workers join, but only {usable} CPUs are named for them")
        }
        error => error.to_string(),
    };
    OpError::new(retval::INVALID_VALUE, text).key("corelist")
}

impl Execute<Router> for SetWorkers {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let there = router.graph.thread_info();
        let system = System::of(router)?;
        let cores = (!self.corelist.is_empty()).then_some(self.corelist.as_slice());
        let plans = replan(&system.topology, &system.startup.cpu, system.main.cpu, &there, self.count, cores)
            .map_err(|error| placement_error(&error))?;
        router.set_workers(&plans)?;
        tracing::info!(target: "startup", "{} workers", self.count);
        Ok(Outcome::Done(()))
    }
}
