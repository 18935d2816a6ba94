//! Where the threads run.

use std::path::Path;

use quiver_graph::ThreadPlan;
use quiver_graph::topology::{self, Placement, PlacementError, SchedulerPolicy, Topology};

use super::StartError;
use crate::startup::Cpu;

/// The machine's processors, with those marked that this process may use.
///
/// # Errors
/// A sysfs that says nothing.
pub fn topology(root: &Path) -> Result<Topology, StartError> {
    let failed = |error| StartError::System { doing: "cannot read the machine's processors".to_owned(), error };
    let mut topology = Topology::read(root).map_err(failed)?;
    topology.restrict_to(&topology::allowed_cpus().map_err(failed)?);
    Ok(topology)
}

/// Who runs where, by the rules of the `cpu` section.
///
/// # Errors
/// A wish that cannot be met.
pub fn place(topology: &Topology, cpu: &Cpu) -> Result<(Placement, Vec<ThreadPlan>), StartError> {
    let mut request = cpu.request.clone();
    if cpu.relative {
        let allowed: Vec<u32> = topology.cpus().iter().filter(|cpu| cpu.online && cpu.allowed).map(|cpu| cpu.id).collect();
        // A number beyond them stays what it is: the placement then says what is wrong with it.
        let absolute = |n: &u32| allowed.get(*n as usize).copied().unwrap_or(*n);
        request.main_core = request.main_core.as_ref().map(absolute);
        request.corelist = request.corelist.map(|list| list.iter().map(absolute).collect());
    }
    let placement = match topology.place(&request) {
        // More workers than processors: nobody is pinned, and the kernel shares out what there is.
        Err(PlacementError::TooFew { key: "workers", wanted, usable }) => {
            tracing::warn!(
                target: "startup",
                "{wanted} workers for {usable} free processors: none of them is pinned, expect less than full speed"
            );
            let floating = ThreadPlan { scheduler: (cpu.policy, cpu.priority), ..ThreadPlan::default() };
            let main = request.main_core;
            return Ok((Placement { main, workers: Vec::new() }, vec![floating; wanted as usize]));
        }
        placed => placed?,
    };
    let plan = |core: &u32| ThreadPlan {
        cpu: Some(*core),
        numa: topology.numa_of(*core).unwrap_or(0) as usize,
        scheduler: (cpu.policy, cpu.priority),
    };
    let plans = placement.workers.iter().map(plan).collect();
    Ok((placement, plans))
}

/// Puts the main thread to its place.
///
/// # Errors
/// The kernel's, with what is needed.
pub fn settle_main(placement: &Placement, cpu: &Cpu) -> Result<(), StartError> {
    if let Some(core) = placement.main {
        topology::pin_current_thread(core)
            .map_err(|error| StartError::System { doing: format!("cannot pin the main thread to core {core}"), error })?;
    }
    if cpu.policy != SchedulerPolicy::Other {
        let doing = format!("cannot set scheduler-policy {} (needs CAP_SYS_NICE)", cpu.policy.name());
        topology::set_scheduler(cpu.policy, cpu.priority).map_err(|error| StartError::System { doing, error })?;
    }
    Ok(())
}
