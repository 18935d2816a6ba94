//! Where the threads run.

use std::path::Path;

use quiver_graph::topology::{self, Placement, PlacementError, PlacementRequest, SchedulerPolicy, Topology};
use quiver_graph::{ThreadInfo, ThreadPlan};

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

/// The request of the `cpu` section, in the machine's own CPU numbers.
fn request(topology: &Topology, cpu: &Cpu) -> PlacementRequest {
    let mut request = cpu.request.clone();
    if cpu.relative {
        let allowed: Vec<u32> = topology.cpus().iter().filter(|cpu| cpu.online && cpu.allowed).map(|cpu| cpu.id).collect();
        // A number beyond them stays what it is: the placement then says what is wrong with it.
        let absolute = |n: &u32| allowed.get(*n as usize).copied().unwrap_or(*n);
        request.main_core = request.main_core.as_ref().map(absolute);
        request.corelist = request.corelist.map(|list| list.iter().map(absolute).collect());
    }
    request
}

/// The place of a CPU's memory node among all; the first where there is no CPU. Nodes are counted in their order, without the
/// gaps that the kernel's numbers may have.
pub fn numa_place(topology: &Topology, core: Option<u32>) -> usize {
    let numa = core.and_then(|core| topology.numa_of(core)).unwrap_or(0);
    topology.nodes().iter().position(|node| *node == numa).unwrap_or(0)
}

/// For each memory node, in order, its number where this process may use one of its CPUs: there a copy of the forwarding tables
/// is read.
pub fn fib_nodes(topology: &Topology) -> Vec<Option<u32>> {
    let used = |node: &u32| topology.cpus().iter().any(|cpu| cpu.numa == *node && cpu.online && cpu.allowed);
    topology.nodes().iter().map(|node| Some(*node).filter(used)).collect()
}

/// How to start a worker on a CPU, or on any where there is none for it alone. Its buffers come from the CPU's memory node.
fn plan(topology: &Topology, cpu: &Cpu, core: Option<u32>) -> ThreadPlan {
    ThreadPlan { cpu: core, numa: numa_place(topology, core), scheduler: (cpu.policy, cpu.priority) }
}

/// Who runs where, by the rules of the `cpu` section.
///
/// # Errors
/// A wish that cannot be met.
pub fn place(topology: &Topology, cpu: &Cpu) -> Result<(Placement, Vec<ThreadPlan>), StartError> {
    let request = request(topology, cpu);
    let placement = match topology.place(&request) {
        // More workers than processors: nobody is pinned, and the kernel shares out what there is.
        Err(PlacementError::TooFew { key: "workers", wanted, usable }) => {
            tracing::warn!(
                target: "startup",
                "{wanted} workers for {usable} free processors: none of them is pinned, expect less than full speed"
            );
            let main = request.main_core;
            return Ok((Placement { main, workers: Vec::new() }, vec![plan(topology, cpu, None); wanted as usize]));
        }
        placed => placed?,
    };
    let plans = placement.workers.iter().map(|core| plan(topology, cpu, Some(*core))).collect();
    Ok((placement, plans))
}

/// Plans for so many workers when some are there: these keep their places. Those that join get the CPUs in `cores` or, where
/// nothing is said, what is left of the `cpu` section's list and then the lowest free ones; where no CPU is free they are not
/// pinned.
///
/// # Errors
/// A CPU that a worker cannot have, or fewer in `cores` than workers that join.
pub fn replan(
    topology: &Topology,
    cpu: &Cpu,
    main: Option<u32>,
    there: &[ThreadInfo],
    wanted: usize,
    cores: Option<&[u32]>,
) -> Result<Vec<ThreadPlan>, PlacementError> {
    let kept = there.iter().take(wanted);
    let mut plans: Vec<ThreadPlan> =
        kept.map(|info| ThreadPlan { cpu: info.cpu, numa: info.numa, scheduler: info.scheduler }).collect();
    let taken: Vec<u32> = plans.iter().filter_map(|plan| plan.cpu).collect();
    let more = wanted - plans.len();
    let chosen = match cores {
        Some(cores) if cores.len() < more => {
            let (wanted, usable) = (more as u32, cores.len() as u32);
            return Err(PlacementError::TooFew { key: "workers", wanted, usable });
        }
        Some(cores) => {
            let cores = &cores[..more];
            topology.check_more(cores, main, &taken)?;
            cores.to_vec()
        }
        None => topology.place_more(&request(topology, cpu), main, &taken, more),
    };
    if chosen.len() < more {
        tracing::warn!(
            target: "startup",
            "{more} more workers for {} free processors: some are not pinned, expect less than full speed",
            chosen.len()
        );
    }
    let cores = chosen.into_iter().map(Some).chain(std::iter::repeat(None));
    plans.extend(cores.take(more).map(|core| plan(topology, cpu, core)));
    Ok(plans)
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use quiver_command::config::Source;

    use super::*;
    use crate::startup::StartupConfig;

    /// A made sysfs: two memory nodes, numbered 0 and 2, of four CPUs each. Gone with the value.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("quiver-machine-{}-{name}", std::process::id()));
            for (file, text) in [
                ("devices/system/cpu/present", "0-7\n"),
                ("devices/system/cpu/online", "0-7\n"),
                ("devices/system/node/node0/cpulist", "0-3\n"),
                ("devices/system/node/node2/cpulist", "4-7\n"),
            ] {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn topology(&self) -> Topology {
            Topology::read(&self.0).unwrap()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn cpu(text: &str) -> Cpu {
        let source = Source::file("test", format!("cpu {{ {text} }}"));
        StartupConfig::read(&crate::startup::schema(), source).unwrap().cpu
    }

    fn there(plans: &[ThreadPlan]) -> Vec<ThreadInfo> {
        let info = |(at, plan): (usize, &ThreadPlan)| ThreadInfo {
            thread: at + 1,
            name: String::new(),
            cpu: plan.cpu,
            numa: plan.numa,
            scheduler: plan.scheduler,
            lwp: 0,
        };
        plans.iter().enumerate().map(info).collect()
    }

    fn cpus(plans: &[ThreadPlan]) -> Vec<(Option<u32>, usize)> {
        plans.iter().map(|plan| (plan.cpu, plan.numa)).collect()
    }

    #[test]
    fn workers_take_their_buffers_from_the_memory_node_of_their_cpu() {
        let machine = Machine::new("nodes");
        let (placement, plans) = place(&machine.topology(), &cpu("main-core 0 corelist-workers 2,5-6")).unwrap();
        assert_eq!(placement.main, Some(0));
        assert_eq!(cpus(&plans), [(Some(2), 0), (Some(5), 1), (Some(6), 1)], "nodes 0 and 2 are pools 0 and 1");
        let (_, plans) = place(&machine.topology(), &cpu("main-core 4 skip-cores 2 workers 3")).unwrap();
        assert_eq!(cpus(&plans), [(Some(2), 0), (Some(3), 0), (Some(5), 1)]);
    }

    #[test]
    fn forwarding_tables_have_copies_on_nodes_with_cpus_that_may_be_used() {
        let machine = Machine::new("copies");
        let mut topology = machine.topology();
        assert_eq!(fib_nodes(&topology), [Some(0), Some(2)]);
        let places = [None, Some(0), Some(3), Some(4)].map(|core| numa_place(&topology, core));
        assert_eq!(places, [0, 0, 0, 1]);
        topology.restrict_to(&[5, 6]);
        assert_eq!(fib_nodes(&topology), [None, Some(2)]);
        // Memory without a CPU, such as that of an accelerator.
        fs::create_dir_all(machine.0.join("devices/system/node/node3")).unwrap();
        assert_eq!(fib_nodes(&machine.topology()), [Some(0), Some(2), None]);
    }

    #[test]
    fn scheduling_holds_for_all_workers_also_for_those_that_join() {
        let machine = Machine::new("policy");
        let cpu = cpu("main-core 1 workers 1 scheduler-policy fifo scheduler-priority 50");
        let (_, plans) = place(&machine.topology(), &cpu).unwrap();
        let plans = replan(&machine.topology(), &cpu, Some(1), &there(&plans), 3, None).unwrap();
        assert_eq!(cpus(&plans), [(Some(0), 0), (Some(2), 0), (Some(3), 0)]);
        assert!(plans.iter().all(|plan| plan.scheduler == (SchedulerPolicy::Fifo, 50)));
    }

    #[test]
    fn relative_numbers_count_what_the_process_may_use() {
        let machine = Machine::new("relative");
        let mut topology = machine.topology();
        topology.restrict_to(&[1, 3, 5, 7]);
        let (placement, plans) = place(&topology, &cpu("relative main-core 0 corelist-workers 1-2")).unwrap();
        assert_eq!((placement.main, cpus(&plans)), (Some(1), vec![(Some(3), 0), (Some(5), 1)]));
    }

    #[test]
    fn who_is_there_keeps_its_place_and_who_joins_gets_what_is_asked_for_or_what_is_free() {
        let machine = Machine::new("replan");
        let topology = machine.topology();
        let cpu = cpu("main-core 0 corelist-workers 6-7");
        let (_, plans) = place(&topology, &cpu).unwrap();
        let now = there(&plans);
        let replan = |wanted, cores| replan(&topology, &cpu, Some(0), &now, wanted, cores);
        assert_eq!(cpus(&replan(1, None).unwrap()), [(Some(6), 1)]);
        assert_eq!(cpus(&replan(4, None).unwrap()), [(Some(6), 1), (Some(7), 1), (Some(1), 0), (Some(2), 0)]);
        assert_eq!(cpus(&replan(3, Some(&[5])).unwrap())[2], (Some(5), 1));
        assert_eq!(replan(3, Some(&[6])), Err(PlacementError::Taken(6)));
        assert_eq!(replan(3, Some(&[0])), Err(PlacementError::IsMainCore(0)));
        let error = PlacementError::TooFew { key: "workers", wanted: 2, usable: 1 };
        assert_eq!(replan(4, Some(&[5])), Err(error));
        let crowd = replan(10, None).unwrap();
        assert_eq!((crowd.len(), cpus(&crowd)[7..].to_vec()), (10, vec![(None, 0); 3]), "seven CPUs beside main");
    }
}
