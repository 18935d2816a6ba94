//! The machine's processors: which CPUs there are, which share a core or a memory node, and where threads go.
//!
//! [`Topology::read`] takes the sysfs root as a parameter, so that tests, and whoever plans for another machine, can give a
//! made one. What sysfs does not say gets the plain answer: no NUMA folder means one node 0; no topology folder means
//! that each CPU is its own core.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

mod place;
mod thread;
#[cfg(test)]
mod tree;

pub use place::{Placement, PlacementError, PlacementRequest};
pub use thread::{SchedulerPolicy, allowed_cpus, pin_current_thread, set_scheduler, unpin_current_thread};

/// CPU numbers from here on are taken for mistakes: no kernel is built for so many.
const CPUS_MAX: u32 = 8192;

/// One logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number of it.
    pub id: u32,
    /// Socket.
    pub package: u32,
    /// Core within the socket.
    pub core: u32,
    /// Memory node.
    pub numa: u32,
    /// All CPUs of the same core, with this one.
    pub siblings: Vec<u32>,
    /// Whether it runs.
    pub online: bool,
    /// Whether the kernel keeps other work away from it (`isolcpus`).
    pub isolated: bool,
    /// Whether this process may run there.
    pub allowed: bool,
}

/// The processors of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    nodes: Vec<u32>,
}

impl Topology {
    /// Reads the topology below a sysfs root, on a live machine `/sys`.
    ///
    /// # Errors
    /// If the root names no CPU at all, or a CPU list cannot be understood.
    pub fn read(root: &Path) -> io::Result<Self> {
        let folder = root.join("devices/system/cpu");
        let ids = match list_in(&folder.join("present"))? {
            Some(ids) => ids,
            None => numbered(&folder, "cpu"),
        };
        if ids.is_empty() {
            let text = format!("{}: no CPUs found", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let online = list_in(&folder.join("online"))?;
        let isolated = list_in(&folder.join("isolated"))?.unwrap_or_default();
        let mut cpus = Vec::with_capacity(ids.len());
        for id in ids {
            let topology = folder.join(format!("cpu{id}/topology"));
            let siblings = list_in(&topology.join("thread_siblings_list"))?;
            cpus.push(Cpu {
                id,
                package: number_in(&topology.join("physical_package_id")).unwrap_or(0),
                core: number_in(&topology.join("core_id")).unwrap_or(id),
                numa: 0,
                siblings: siblings.unwrap_or_else(|| vec![id]),
                online: online.as_ref().is_none_or(|online| online.contains(&id)),
                isolated: isolated.contains(&id),
                allowed: true,
            });
        }
        let mut topology = Self { cpus, nodes: Vec::new() };
        topology.read_nodes(&root.join("devices/system/node"))?;
        Ok(topology)
    }

    fn read_nodes(&mut self, folder: &Path) -> io::Result<()> {
        for node in numbered(folder, "node") {
            let members = list_in(&folder.join(format!("node{node}/cpulist")))?;
            let members = members.unwrap_or_default();
            for cpu in self.cpus.iter_mut().filter(|cpu| members.contains(&cpu.id)) {
                cpu.numa = node;
            }
            self.nodes.push(node);
        }
        if self.nodes.is_empty() {
            self.nodes.push(0);
        }
        Ok(())
    }

    /// All CPUs that are present, by number.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU of that number.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// Memory nodes, by number; at least one.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The memory node of a CPU.
    pub fn numa_of(&self, cpu: u32) -> Option<u32> {
        self.cpu(cpu).map(|cpu| cpu.numa)
    }

    /// Marks all other CPUs as closed to this process, such as those outside its affinity mask or cpuset.
    pub fn restrict_to(&mut self, allowed: &[u32]) {
        for cpu in &mut self.cpus {
            cpu.allowed = allowed.contains(&cpu.id);
        }
    }
}

/// A list of CPUs that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError {
    /// The part at fault.
    pub part: String,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no list of CPUs such as `2-5,8`", self.part)
    }
}

impl std::error::Error for CpuListError {}

/// Reads a list such as `0-3,8, 10-11`, as in sysfs and in `corelist-workers`. The result is sorted, each CPU once.
///
/// # Errors
/// The part that is neither a number nor a range, or beyond what any kernel supports.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        if part.is_empty() && text.trim().is_empty() {
            break;
        }
        let wrong = || CpuListError { part: part.to_owned() };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.trim().parse::<u32>().ok();
            number.filter(|number| *number < CPUS_MAX)
        };
        let first = number(first).ok_or_else(wrong)?;
        let last = number(last).ok_or_else(wrong)?;
        if first > last {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Reads a hexadecimal mask of CPUs such as `0x3c`, as in `coremask-workers`.
///
/// # Errors
/// The mask, where it is not hexadecimal or beyond what any kernel supports.
pub fn parse_cpu_mask(text: &str) -> Result<Vec<u32>, CpuListError> {
    let text = text.trim();
    let wrong = || CpuListError { part: text.to_owned() };
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.unwrap_or(text);
    if digits.is_empty() || digits.len() > CPUS_MAX as usize / 4 {
        return Err(wrong());
    }
    let mut cpus = Vec::new();
    for (position, digit) in (0u32..).zip(digits.chars().rev()) {
        let digit = digit.to_digit(16).ok_or_else(wrong)?;
        cpus.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| position * 4 + bit));
    }
    Ok(cpus)
}

/// The list in a file, nothing where there is no such file.
fn list_in(file: &Path) -> io::Result<Option<Vec<u32>>> {
    let Ok(text) = fs::read_to_string(file) else {
        return Ok(None);
    };
    let list = parse_cpu_list(&text).map_err(|error| {
        let text = format!("{}: {error}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(Some(list))
}

/// The number in a file. The kernel writes -1 where it does not know: that is none.
fn number_in(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The numbers of entries such as `cpu0`, `cpu1`, sorted.
fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: PathBuf| name.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = names.filter_map(|entry| number(entry.path())).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::tree::Tree;
    use super::*;

    #[test]
    fn two_nodes_of_four_cores_with_two_threads_each() {
        let topology = Topology::read(Tree::two_nodes().root()).unwrap();
        assert_eq!(topology.nodes(), [0, 1]);
        assert_eq!(topology.cpus().len(), 16);
        let numa: Vec<_> = (0..16).map(|cpu| topology.numa_of(cpu).unwrap()).collect();
        assert_eq!(numa, [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
        let cpu = topology.cpu(13).unwrap();
        assert_eq!((cpu.package, cpu.core, cpu.siblings.as_slice()), (1, 1, &[5, 13][..]));
        assert_eq!(topology.numa_of(16), None);
    }

    #[test]
    fn without_a_numa_folder_all_cpus_are_on_node_0() {
        let tree = Tree::new();
        tree.write("devices/system/cpu/present", "0-3\n");
        let topology = Topology::read(tree.root()).unwrap();
        assert_eq!((topology.nodes(), topology.cpus().len()), (&[0][..], 4));
        let cpu = topology.cpu(2).unwrap();
        assert!(cpu.online && !cpu.isolated);
        assert_eq!((cpu.core, cpu.siblings.as_slice()), (2, &[2][..]));
    }

    #[test]
    fn offline_and_isolated_cpus_are_marked() {
        let tree = Tree::two_nodes();
        tree.write("devices/system/cpu/online", "0-6,8-15\n");
        tree.write("devices/system/cpu/isolated", "2-3\n");
        let topology = Topology::read(tree.root()).unwrap();
        let such = |which: fn(&Cpu) -> bool| {
            let cpus = topology.cpus().iter().filter(|cpu| which(cpu));
            cpus.map(|cpu| cpu.id).collect::<Vec<_>>()
        };
        assert_eq!(such(|cpu| !cpu.online), [7]);
        assert_eq!(such(|cpu| cpu.isolated), [2, 3]);
    }

    #[test]
    fn a_root_without_cpus_or_with_nonsense_is_an_error() {
        let tree = Tree::new();
        assert_eq!(Topology::read(tree.root()).unwrap_err().kind(), io::ErrorKind::NotFound);
        tree.write("devices/system/cpu/present", "0-x");
        let error = Topology::read(tree.root()).unwrap_err();
        assert!(error.to_string().contains("`0-x`"), "{error}");
    }

    #[test]
    fn cpu_folders_are_enough_where_there_is_no_list() {
        let tree = Tree::new();
        for cpu in [0, 1, 10] {
            tree.write(&format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "-1\n");
        }
        tree.write("devices/system/cpu/cpufreq/boost", "1");
        let topology = Topology::read(tree.root()).unwrap();
        let ids: Vec<_> = topology.cpus().iter().map(|cpu| (cpu.id, cpu.package)).collect();
        assert_eq!(ids, [(0, 0), (1, 0), (10, 0)]);
    }

    #[test]
    fn lists_and_masks_of_cpus() {
        let list = |text| parse_cpu_list(text).ok();
        assert_eq!(list("0-3,8, 10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("4, 6"), Some(vec![4, 6]));
        assert_eq!(list("6,4,4-6"), Some(vec![4, 5, 6]));
        assert_eq!(list("\n"), Some(vec![]));
        for wrong in ["a", "3-1", "1,,2", "1-", "-1", "8192", "0-4000000000", "1,", "1-2-3"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        assert_eq!(parse_cpu_mask("0x3c"), Ok(vec![2, 3, 4, 5]));
        assert_eq!(parse_cpu_mask("100000000000000001").map(|cpus| cpus[1]), Ok(68));
        assert!(parse_cpu_mask("0x").is_err() && parse_cpu_mask("0xg").is_err());
        assert!(parse_cpu_mask(&"f".repeat(3000)).is_err());
    }

    #[test]
    fn this_machine_can_be_read() {
        let topology = Topology::read(Path::new("/sys")).unwrap();
        assert!(topology.cpus().iter().any(|cpu| cpu.online));
    }
}
