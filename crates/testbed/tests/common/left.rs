//! What a router could leave behind, in the kernel or in its own process.

use std::fs;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router, Usage, xdp_programs};

/// What a killed router could leave behind where it ran.
#[derive(Debug)]
pub struct Left {
    processes: usize,
    packet_sockets: usize,
    unix_sockets: usize,
    xdp_sockets: u64,
    /// `None` without the right to list them.
    xdp_programs: Option<usize>,
    links: usize,
    huge_pages_in_use: u64,
    shared_memory_files: usize,
}

impl Left {
    /// What is there now, in a host and in the machine.
    pub fn now(host: &Host) -> Self {
        let numeric = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        // In this host: others of the machine may have routers of their own.
        let space = host.enter(|| fs::read_link("/proc/thread-self/ns/net")).unwrap();
        let is_here = |entry: &fs::DirEntry| fs::read_link(entry.path().join("ns/net")).is_ok_and(|other| other == space);
        let name = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let entries = fs::read_dir("/proc").unwrap().flatten().filter(|e| numeric(&e.file_name()) && is_here(e));
        let processes = entries.map(name);
        let text = |file: &str| host.sh(&format!("cat {file}"), super::BOUND).unwrap().stdout;
        let lines = |file: &str| text(file).lines().count();
        // Columns: protocol, size, sockets.
        let protocols = text("/proc/net/protocols");
        let xdp = protocols.lines().find(|line| line.starts_with("XDP ")).and_then(|line| line.split_whitespace().nth(2));
        let memory = fs::read_to_string("/proc/meminfo").unwrap();
        let pages = |key: &str| super::number_after(&memory, key).unwrap_or(0.0) as u64;
        Self {
            processes: processes.filter(|comm| comm.trim() == "quiver").count(),
            packet_sockets: lines("/proc/net/packet"),
            unix_sockets: lines("/proc/net/unix"),
            xdp_sockets: xdp.and_then(|n| n.parse().ok()).unwrap_or(0),
            xdp_programs: xdp_programs().ok().map(|ids| ids.len()),
            links: lines("/proc/net/dev"),
            huge_pages_in_use: pages("HugePages_Total:") - pages("HugePages_Free:"),
            shared_memory_files: fs::read_dir("/dev/shm").map_or(0, |folder| folder.flatten().count()),
        }
    }

    /// Whether this is as it was before. What the whole machine has may be less: other programs end, too.
    fn is_as(&self, before: &Self) -> bool {
        let of_host = |one: &Self| (one.processes, one.packet_sockets, one.unix_sockets, one.xdp_sockets, one.links);
        of_host(self) == of_host(before)
            && self.xdp_programs <= before.xdp_programs
            && self.huge_pages_in_use <= before.huge_pages_in_use
            && self.shared_memory_files <= before.shared_memory_files
    }

    /// Waits until all is as it was.
    pub fn assert_same(&self, host: &Host) {
        let mut now = Self::now(host);
        let deadline = Instant::now() + super::BOUND;
        while !now.is_as(self) {
            assert!(Instant::now() < deadline, "left behind: before {self:?}, now {now:?}");
            std::thread::sleep(Duration::from_millis(20));
            now = Self::now(host);
        }
    }
}

/// What a router's descriptors stand for.
fn open_files(router: &Router) -> String {
    let folder = fs::read_dir(format!("/proc/{}/fd", router.pid())).unwrap();
    let names = folder.flatten().filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.join("\n")
}

/// Most by which a router's memory may grow over a scenario: what allocators and caches need to settle.
const SETTLING: u64 = 8 << 20;

/// Descriptors of devices that are gone which threads hold that have sent nothing since: one a thread and interface.
const LAGGING: usize = 4;

/// A router that lives on while others die: its descriptors, threads and memory must not grow.
#[derive(Debug, Default)]
pub struct Survivor(Option<Usage>);

impl Survivor {
    /// To be called in the same situation each time; the first call is what the others are held against.
    pub fn check(&mut self, router: &Router) {
        let mut now = router.usage().unwrap();
        let first = *self.0.get_or_insert(now);
        let deadline = Instant::now() + super::BOUND;
        // What is being closed takes its time.
        while now.descriptors > first.descriptors + LAGGING || now.threads > first.threads {
            assert!(Instant::now() < deadline, "descriptors or threads: at first {first:?}, now {now:?}\n{}", open_files(router));
            std::thread::sleep(Duration::from_millis(20));
            now = router.usage().unwrap();
        }
        assert!(now.memory() < first.memory() + SETTLING, "memory grows: {first:?} {now:?}");
    }
}
