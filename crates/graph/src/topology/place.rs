//! Which CPU each thread gets, by the rules of startup.conf's `cpu` section.
//!
//! - `skip-cores n` takes the lowest n usable CPUs out of the game.
//! - The main thread goes to `main-core`. Without it, and with workers, to CPU 1 if that is usable, or else to the
//!   lowest usable one; without workers it is not pinned.
//! - `workers n` takes the lowest n usable CPUs that are left; `corelist-workers` takes exactly those named.
//! - `corelist-workers` and `skip-cores` demand `main-core`. A worker never shares the main thread's CPU.

use std::fmt;

use super::Topology;
use crate::stats::MAX_THREADS;

/// Workers that can be had beside the main thread.
const WORKERS_MAX: usize = MAX_THREADS - 1;

/// What the `cpu` section asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementRequest {
    /// `main-core`.
    pub main_core: Option<u32>,
    /// `workers`.
    pub workers: Option<u32>,
    /// `corelist-workers`, or `coremask-workers`.
    pub corelist: Option<Vec<u32>>,
    /// `skip-cores`.
    pub skip_cores: u32,
}

/// Who runs where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The CPU of the main thread; nothing where it is left to the kernel.
    pub main: Option<u32>,
    /// The CPU of each worker.
    pub workers: Vec<u32>,
}

/// Why threads cannot be placed as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The key given needs `main-core`.
    NeedsMainCore(&'static str),
    /// Both a number and a list of workers.
    CountAndList,
    /// The machine has no such CPU.
    NoSuchCpu(u32),
    /// The CPU is switched off.
    Offline(u32),
    /// The process may not run on the CPU (affinity mask or cpuset).
    NotAllowed(u32),
    /// The CPU is among those that `skip-cores` leaves out.
    Skipped(u32),
    /// A worker on the CPU of the main thread.
    IsMainCore(u32),
    /// A second worker on a CPU.
    Taken(u32),
    /// Fewer CPUs than wanted for the purpose.
    TooFew {
        /// What for: a key of startup.conf.
        key: &'static str,
        /// How many were wanted.
        wanted: u32,
        /// How many there are.
        usable: u32,
    },
    /// More workers than the counters have rows for.
    TooMany(usize),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsMainCore(key) => write!(f, "{key} needs main-core to be set"),
            Self::CountAndList => write!(f, "workers and corelist-workers exclude each other"),
            Self::NoSuchCpu(cpu) => write!(f, "cpu {cpu} does not exist; `lscpu' lists those of this machine"),
            Self::Offline(cpu) => write!(f, "cpu {cpu} is offline"),
            Self::NotAllowed(cpu) => {
                write!(f, "cpu {cpu} is outside the CPUs this process may use (affinity or cpuset)")
            }
            Self::Skipped(cpu) => write!(f, "cpu {cpu} is left out by skip-cores"),
            Self::IsMainCore(cpu) => write!(f, "cpu {cpu} is the main thread's and cannot have a worker"),
            Self::Taken(cpu) => write!(f, "cpu {cpu} has a worker already"),
            Self::TooFew { key, wanted, usable } => {
                write!(f, "{key} {wanted}: only {usable} CPUs are usable for that")
            }
            Self::TooMany(workers) => write!(f, "{workers} workers are too many; use at most {WORKERS_MAX}"),
        }
    }
}

impl std::error::Error for PlacementError {}

impl Topology {
    /// Places the main thread and the workers.
    ///
    /// # Errors
    /// The first rule that the request breaks, with the CPU at fault.
    pub fn place(&self, request: &PlacementRequest) -> Result<Placement, PlacementError> {
        if request.workers.is_some() && request.corelist.is_some() {
            return Err(PlacementError::CountAndList);
        }
        if request.main_core.is_none() {
            if request.corelist.is_some() {
                return Err(PlacementError::NeedsMainCore("corelist-workers"));
            }
            if request.skip_cores > 0 {
                return Err(PlacementError::NeedsMainCore("skip-cores"));
            }
        }
        let mut usable: Vec<u32> = self.cpus().iter().filter(|cpu| cpu.online && cpu.allowed).map(|cpu| cpu.id).collect();
        let skipped = take_lowest(&mut usable, "skip-cores", request.skip_cores)?;
        let wants_workers = request.workers.unwrap_or(0) > 0;
        let main = match request.main_core {
            Some(cpu) => Some(self.check(cpu, &skipped)?),
            None if wants_workers => usable.iter().find(|cpu| **cpu == 1).or(usable.first()).copied(),
            None => None,
        };
        usable.retain(|cpu| Some(*cpu) != main);
        let workers = match &request.corelist {
            Some(list) => self.check_list(list, main, &skipped)?,
            None => {
                let count = request.workers.unwrap_or(0);
                check_count(count as usize)?;
                take_lowest(&mut usable, "workers", count)?
            }
        };
        Ok(Placement { main, workers })
    }

    /// CPUs for `count` more workers while those at `taken` go on: first what is left of the list that the request has, then the
    /// lowest usable ones. Fewer where there are no more.
    pub fn place_more(&self, request: &PlacementRequest, main: Option<u32>, taken: &[u32], count: usize) -> Vec<u32> {
        let usable: Vec<u32> = self.cpus().iter().filter(|cpu| cpu.online && cpu.allowed).map(|cpu| cpu.id).collect();
        let listed = request.corelist.iter().flatten().copied().filter(|cpu| usable.contains(cpu));
        let rest = usable.iter().copied().skip(request.skip_cores as usize);
        let mut chosen = Vec::new();
        for cpu in listed.chain(rest) {
            if chosen.len() < count && Some(cpu) != main && !taken.contains(&cpu) && !chosen.contains(&cpu) {
                chosen.push(cpu);
            }
        }
        chosen
    }

    /// Whether workers can be put on exactly these CPUs while those at `taken` go on.
    ///
    /// # Errors
    /// The first CPU that is none, is off, closed to the process, or has a thread already.
    pub fn check_more(&self, cpus: &[u32], main: Option<u32>, taken: &[u32]) -> Result<(), PlacementError> {
        for (at, cpu) in cpus.iter().enumerate() {
            self.check(*cpu, &[])?;
            if Some(*cpu) == main {
                return Err(PlacementError::IsMainCore(*cpu));
            }
            if taken.contains(cpu) || cpus[..at].contains(cpu) {
                return Err(PlacementError::Taken(*cpu));
            }
        }
        check_count(cpus.len() + taken.len())
    }

    fn check_list(&self, list: &[u32], main: Option<u32>, skipped: &[u32]) -> Result<Vec<u32>, PlacementError> {
        let mut workers = list.to_vec();
        workers.sort_unstable();
        workers.dedup();
        for cpu in &workers {
            if Some(*cpu) == main {
                return Err(PlacementError::IsMainCore(*cpu));
            }
            self.check(*cpu, skipped)?;
        }
        check_count(workers.len())?;
        Ok(workers)
    }

    fn check(&self, id: u32, skipped: &[u32]) -> Result<u32, PlacementError> {
        let cpu = self.cpu(id).ok_or(PlacementError::NoSuchCpu(id))?;
        match cpu {
            cpu if !cpu.online => Err(PlacementError::Offline(id)),
            cpu if !cpu.allowed => Err(PlacementError::NotAllowed(id)),
            _ if skipped.contains(&id) => Err(PlacementError::Skipped(id)),
            _ => Ok(id),
        }
    }
}

fn check_count(workers: usize) -> Result<(), PlacementError> {
    if workers > WORKERS_MAX {
        return Err(PlacementError::TooMany(workers));
    }
    Ok(())
}

fn take_lowest(usable: &mut Vec<u32>, key: &'static str, wanted: u32) -> Result<Vec<u32>, PlacementError> {
    if wanted as usize > usable.len() {
        // CPU numbers are u32, so there cannot be more of them.
        let usable = usable.len() as u32;
        return Err(PlacementError::TooFew { key, wanted, usable });
    }
    Ok(usable.drain(..wanted as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn machine() -> Topology {
        let tree = Tree::two_nodes();
        tree.write("devices/system/cpu/online", "0-6,8-15\n");
        let mut topology = Topology::read(tree.root()).unwrap();
        topology.restrict_to(&[0, 1, 2, 3, 4, 5, 7, 8, 9]);
        topology
    }

    fn list(main_core: u32, corelist: &[u32]) -> Result<Placement, PlacementError> {
        machine().place(&PlacementRequest { main_core: Some(main_core), corelist: Some(corelist.to_vec()), ..Default::default() })
    }

    fn count(main_core: Option<u32>, workers: u32, skip_cores: u32) -> Result<Placement, PlacementError> {
        machine().place(&PlacementRequest { main_core, workers: Some(workers), skip_cores, ..Default::default() })
    }

    fn placed(main: Option<u32>, workers: &[u32]) -> Result<Placement, PlacementError> {
        let workers = workers.to_vec();
        Ok(Placement { main, workers })
    }

    #[test]
    fn without_any_wish_there_is_one_unpinned_thread() {
        assert_eq!(machine().place(&PlacementRequest::default()), placed(None, &[]));
        assert_eq!(count(None, 0, 0), placed(None, &[]));
        assert_eq!(count(Some(3), 0, 0), placed(Some(3), &[]));
    }

    #[test]
    fn counted_workers_take_the_lowest_cpus_beside_the_main_core() {
        assert_eq!(count(None, 2, 0), placed(Some(1), &[0, 2]));
        assert_eq!(count(Some(0), 3, 0), placed(Some(0), &[1, 2, 3]));
        assert_eq!(count(Some(5), 6, 0), placed(Some(5), &[0, 1, 2, 3, 4, 8]));
    }

    #[test]
    fn skipped_cpus_are_used_for_nothing() {
        assert_eq!(count(Some(4), 2, 2), placed(Some(4), &[2, 3]));
        assert_eq!(count(Some(1), 2, 2), Err(PlacementError::Skipped(1)));
        let error = PlacementError::TooFew { key: "skip-cores", wanted: 9, usable: 8 };
        assert_eq!(count(Some(1), 0, 9), Err(error));
        assert_eq!(count(None, 1, 1), Err(PlacementError::NeedsMainCore("skip-cores")));
    }

    #[test]
    fn listed_workers_go_exactly_where_they_are_listed() {
        assert_eq!(list(1, &[4, 2, 4]), placed(Some(1), &[2, 4]));
        assert_eq!(list(1, &[1]), Err(PlacementError::IsMainCore(1)));
        assert_eq!(list(1, &[7]), Err(PlacementError::Offline(7)));
        assert_eq!(list(1, &[10]), Err(PlacementError::NotAllowed(10)));
        assert_eq!(list(1, &[16]), Err(PlacementError::NoSuchCpu(16)));
        assert_eq!(list(99, &[2]), Err(PlacementError::NoSuchCpu(99)));
    }

    #[test]
    fn a_list_needs_a_main_core_and_excludes_a_count() {
        let mut request = PlacementRequest { corelist: Some(vec![2]), ..Default::default() };
        let result = machine().place(&request);
        assert_eq!(result, Err(PlacementError::NeedsMainCore("corelist-workers")));
        request.workers = Some(1);
        assert_eq!(machine().place(&request), Err(PlacementError::CountAndList));
    }

    #[test]
    fn workers_that_join_later_take_the_rest_of_the_list_then_the_lowest_free_cpus() {
        let machine = machine();
        let mut request = PlacementRequest { skip_cores: 1, ..Default::default() };
        assert_eq!(machine.place_more(&request, Some(1), &[2], 3), [3, 4, 5]);
        request.corelist = Some(vec![2, 5, 9]);
        assert_eq!(machine.place_more(&request, Some(1), &[2], 3), [5, 9, 3]);
        assert_eq!(machine.place_more(&request, None, &[], 20), [2, 5, 9, 1, 3, 4, 8], "no more than there are");
        assert_eq!(machine.check_more(&[4, 8], Some(1), &[2]), Ok(()));
        for (cpus, error) in [
            (&[2][..], PlacementError::Taken(2)),
            (&[4, 4], PlacementError::Taken(4)),
            (&[1], PlacementError::IsMainCore(1)),
            (&[7], PlacementError::Offline(7)),
            (&[10], PlacementError::NotAllowed(10)),
            (&[16], PlacementError::NoSuchCpu(16)),
        ] {
            assert_eq!(machine.check_more(cpus, Some(1), &[2]), Err(error));
        }
    }

    #[test]
    fn too_many_workers_are_refused() {
        let error = PlacementError::TooFew { key: "workers", wanted: 8, usable: 7 };
        assert_eq!(count(None, 8, 0), Err(error));
        assert_eq!(count(None, 64, 0), Err(PlacementError::TooMany(64)));
        assert!(PlacementError::Offline(7).to_string().contains("cpu 7"));
    }
}
