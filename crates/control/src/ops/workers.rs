//! `set workers`: more or fewer worker threads, while packets flow.
//!
//! Workers are numbered from 0 without gaps, so those with the highest numbers leave first. What has been placed on a worker that
//! leaves goes to those that stay: receive queues, generator streams, flows of `set interface rss`. With 0 workers the main
//! thread forwards. Placement follows the `cpu` section of `startup.conf`, or `corelist` for those that join.

use quiver_command::grammar::Command;
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, retval};
use quiver_graph::topology::{PlacementError, parse_cpu_list};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::interface::interface_error;
use crate::daemon::replan;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<SetWorkers>().command(Command {
        path: "set workers",
        syntax: "<n> [corelist <list>]",
        help: "Changes the number of worker threads while packets flow; corelist names CPUs for those that join",
        parse: |args, _| {
            let count = args.number_in("number of workers", 0..=63)?;
            let mut corelist = Vec::new();
            if args.take_keyword("corelist") {
                let list = args.word("corelist")?;
                corelist = parse_cpu_list(&list)
                    .map_err(|error| OpError::new(retval::INVALID_VALUE, error.to_string()).key("corelist").value(&list))?;
            }
            Ok(Invocation::new::<SetWorkers>(SetWorkersRequest { count, corelist }))
        },
    });
}

/// Changes the number of workers.
pub struct SetWorkers;

/// What [`SetWorkers`] changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWorkersRequest {
    /// How many there shall be.
    pub count: usize,
    /// CPUs for those that join, in order; none: by the `cpu` section's rules.
    #[serde(default)]
    pub corelist: Vec<u32>,
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

impl Operation<Router> for SetWorkers {
    const NAME: &'static str = "workers_set";
    const ACCESS: Access = Access::Change;
    type Request = SetWorkersRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetWorkersRequest) -> Result<Outcome<Router, ()>, OpError> {
        let there = router.graph.thread_info();
        let system = System::of(router)?;
        let cores = (!request.corelist.is_empty()).then_some(request.corelist.as_slice());
        let plans = replan(&system.topology, &system.startup.cpu, system.main.cpu, &there, request.count, cores)
            .map_err(|error| placement_error(&error))?;
        router.set_workers(&plans).map_err(|error| interface_error(&error))?;
        tracing::info!(target: "startup", "{} workers", request.count);
        Ok(Outcome::Done(()))
    }
}
