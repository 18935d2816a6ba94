//! What the program of the kernel was told: the copy of a part of the FIB, and how it ends when the FIB changes.
//!
//! ```text
//!   destination ──► load-balance ──► adjacency ──► port
//!   (a call of the kernel)  (one word each, in memory that the program reads)
//! ```
//!
//! A change of the FIB is told in its midst ([`ForwardingWatch`]): destinations under a changed prefix are forgotten, and the word of a
//! load-balance that has changed, or whose adjacency has, sends its packets to the graph until the process has looked again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quiver_drivers::fast_path::{FastPath, PATHS, Question, Traffic};
use quiver_graph::IfIndex;
use quiver_net::ProcessSignal;
use quiver_net::watch::ForwardingWatch;

/// A load-balance that leads out by one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The adjacency.
    pub adjacency: u32,
    /// The port.
    pub port: u32,
    /// The neighbour.
    pub mac: [u8; 6],
}

/// A load-balance that destinations go by.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    destinations: usize,
    /// `None`: the graph knows.
    lead: Option<Lead>,
    /// What of its traffic has been counted.
    counted: Traffic,
}

/// Traffic that is to be counted at a load-balance and an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The load-balance.
    pub load_balance: u32,
    /// The adjacency.
    pub adjacency: u32,
    /// What took it.
    pub traffic: Traffic,
}

/// The program, and what it was told.
pub struct Table {
    /// The program.
    pub kernel: FastPath,
    decisions: BTreeMap<Question, u32>,
    paths: BTreeMap<u32, Path>,
    by_adjacency: BTreeMap<u32, BTreeSet<u32>>,
    stale: BTreeSet<u32>,
    /// Traffic of what is gone meanwhile.
    uses: Vec<Use>,
    /// Interfaces that have a port, with the kernel's index of their device.
    pub ports: BTreeMap<IfIndex, (u32, u32)>,
    /// Where the search for unused destinations is.
    swept: Option<Question>,
}

impl Table {
    /// Of a program that knows nothing yet.
    pub fn new(kernel: FastPath) -> Self {
        Self {
            kernel,
            decisions: BTreeMap::new(),
            paths: BTreeMap::new(),
            by_adjacency: BTreeMap::new(),
            stale: BTreeSet::new(),
            uses: Vec::new(),
            ports: BTreeMap::new(),
            swept: None,
        }
    }

    /// Destinations of IPv4 and of IPv6.
    pub fn destinations(&self) -> (usize, usize) {
        let of4 = self.decisions.keys().filter(|question| question.address.is_ipv4()).count();
        (of4, self.decisions.len() - of4)
    }

    /// Whether a destination is decided.
    pub fn knows(&self, question: &Question) -> bool {
        self.decisions.contains_key(question)
    }

    /// Load-balances that are known, and of these the ones that lead out.
    pub fn paths(&self) -> (usize, usize) {
        (self.paths.len(), self.paths.values().filter(|path| path.lead.is_some()).count())
    }

    /// Has packets to a destination go by a load-balance, which leads where `lead` says.
    pub fn decide(&mut self, question: Question, load_balance: u32, round: u32, lead: impl FnOnce() -> Option<Lead>) {
        if load_balance >= PATHS || self.decisions.contains_key(&question) {
            return;
        }
        if !self.paths.contains_key(&load_balance) {
            // What its number was used for before counts no more.
            let counted = self.kernel.used(load_balance).unwrap_or_default();
            self.paths.insert(load_balance, Path { counted, ..Path::default() });
            let lead = lead();
            self.lead(load_balance, lead);
        }
        match self.kernel.decide(&question, load_balance, round) {
            Ok(()) => {
                self.decisions.insert(question, load_balance);
                if let Some(path) = self.paths.get_mut(&load_balance) {
                    path.destinations += 1;
                }
            }
            // The table is full: such packets take the graph.
            Err(_) => self.drop_unused(load_balance),
        }
    }

    /// Says where a load-balance leads.
    pub fn lead(&mut self, load_balance: u32, lead: Option<Lead>) {
        self.count(load_balance);
        let Some(path) = self.paths.get_mut(&load_balance) else { return };
        let before = std::mem::replace(&mut path.lead, lead);
        self.kernel.set_path(load_balance, lead.map(|lead| (lead.port, lead.mac)));
        if let Some(before) = before {
            self.unlink(before.adjacency, load_balance);
        }
        if let Some(lead) = lead {
            self.by_adjacency.entry(lead.adjacency).or_default().insert(load_balance);
        }
    }

    fn unlink(&mut self, adjacency: u32, load_balance: u32) {
        if let Some(all) = self.by_adjacency.get_mut(&adjacency) {
            all.remove(&load_balance);
            if all.is_empty() {
                self.by_adjacency.remove(&adjacency);
            }
        }
    }

    /// Reads what has taken a load-balance since it was last read.
    fn count(&mut self, load_balance: u32) {
        let Some(path) = self.paths.get_mut(&load_balance) else { return };
        let Some(lead) = path.lead else { return };
        let Ok(now) = self.kernel.used(load_balance) else { return };
        let before = std::mem::replace(&mut path.counted, now);
        let traffic = Traffic { packets: now.packets.wrapping_sub(before.packets), bytes: now.bytes.wrapping_sub(before.bytes) };
        if traffic.packets > 0 {
            self.uses.push(Use { load_balance, adjacency: lead.adjacency, traffic });
        }
    }

    /// Traffic since the last call, of all load-balances.
    pub fn take_uses(&mut self) -> Vec<Use> {
        let all: Vec<u32> = self.paths.keys().copied().collect();
        all.into_iter().for_each(|load_balance| self.count(load_balance));
        std::mem::take(&mut self.uses)
    }

    /// A load-balance whose lead is to be looked up again.
    pub fn take_stale(&mut self) -> Option<u32> {
        self.stale.pop_first()
    }

    /// Has the leads of all load-balances be looked up again: what may leave by a port has changed. Until then their packets go to the graph, for
    /// the number of a port that is gone may soon be another one's.
    pub fn doubt_all(&mut self) {
        self.paths.keys().for_each(|load_balance| self.kernel.set_path(*load_balance, None));
        self.stale.extend(self.paths.keys().copied());
    }

    /// Forgets a destination.
    fn forget(&mut self, question: &Question) {
        let Some(load_balance) = self.decisions.remove(question) else { return };
        let _ = self.kernel.forget(question);
        if let Some(path) = self.paths.get_mut(&load_balance) {
            path.destinations -= 1;
        }
        self.drop_unused(load_balance);
    }

    fn drop_unused(&mut self, load_balance: u32) {
        if self.paths.get(&load_balance).is_some_and(|path| path.destinations == 0) {
            self.lead(load_balance, None);
            self.paths.remove(&load_balance);
            self.stale.remove(&load_balance);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        while let Some((question, _)) = self.decisions.first_key_value() {
            let question = *question;
            self.forget(&question);
        }
    }

    /// Looks at up to `n` destinations, going round, and forgets those that no packet has gone to for more than `rounds`.
    pub fn sweep(&mut self, n: usize, round: u32, rounds: u32) {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = self.swept.map_or(Unbounded, Excluded);
        let some: Vec<Question> = self.decisions.range((from, Unbounded)).take(n).map(|(question, _)| *question).collect();
        self.swept = if some.len() < n { None } else { some.last().copied() };
        for question in some {
            let is_unused = self.kernel.last_used(&question).is_ok_and(|used| round.wrapping_sub(used) > rounds);
            if is_unused {
                self.forget(&question);
            }
        }
    }

    fn route_changed(&mut self, fib: u32, prefix: IpAddr, len: u8) {
        let (first, last) = range(prefix, len);
        let question = |address| Question { fib, address };
        let under: Vec<Question> = self.decisions.range(question(first)..=question(last)).map(|(question, _)| *question).collect();
        under.iter().for_each(|question| self.forget(question));
    }

    fn doubt(&mut self, load_balance: u32) -> bool {
        if !self.paths.contains_key(&load_balance) {
            return false;
        }
        self.kernel.set_path(load_balance, None);
        self.stale.insert(load_balance)
    }
}

/// First and last address of a prefix.
fn range(prefix: IpAddr, len: u8) -> (IpAddr, IpAddr) {
    match prefix {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let first = address.to_bits() & !hosts;
            (Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(first | hosts).into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            let first = address.to_bits() & !hosts;
            (Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(first | hosts).into())
        }
    }
}

/// The table, as the router tells it of changes. All of it happens on the main thread, so the lock is never waited for.
pub struct Shared {
    table: Mutex<Table>,
    /// Interfaces are to be looked at.
    review: AtomicBool,
    signal: ProcessSignal,
}

impl Shared {
    /// Of a program that knows nothing yet; `signal` makes the process run.
    pub fn new(kernel: FastPath, signal: ProcessSignal) -> Self {
        Self { table: Mutex::new(Table::new(kernel)), review: AtomicBool::new(true), signal }
    }

    /// The table.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether interfaces are to be looked at since the last call.
    pub fn take_review(&self) -> bool {
        self.review.swap(false, Ordering::AcqRel)
    }

    /// Has interfaces be looked at.
    pub fn ask_review(&self) {
        self.review.store(true, Ordering::Release);
        self.signal.raise();
    }
}

impl ForwardingWatch for Shared {
    fn route(&self, fib: u32, prefix: IpAddr, len: u8) {
        self.table().route_changed(fib, prefix, len);
    }

    fn load_balance(&self, index: u32) {
        if self.table().doubt(index) {
            self.signal.raise();
        }
    }

    fn adjacency(&self, index: u32) {
        let mut table = self.table();
        let users: Vec<u32> = table.by_adjacency.get(&index).into_iter().flatten().copied().collect();
        let doubted = users.into_iter().fold(false, |any, load_balance| table.doubt(load_balance) | any);
        drop(table);
        if doubted {
            self.signal.raise();
        }
    }

    fn interface(&self, index: IfIndex) {
        let table = self.table();
        if let Some((number, device)) = table.ports.get(&index) {
            table.kernel.close_input(*device);
            table.kernel.close_port(*number);
            drop(table);
            self.ask_review();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_a_first_and_a_last_address() {
        for (prefix, len, first, last) in [
            ("10.1.2.3", 8, "10.0.0.0", "10.255.255.255"),
            ("10.1.2.3", 32, "10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", 0, "0.0.0.0", "255.255.255.255"),
            ("2001:db8::1", 32, "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::1", 128, "2001:db8::1", "2001:db8::1"),
            ("::", 0, "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let address = |text: &str| text.parse::<IpAddr>().unwrap();
            assert_eq!(range(address(prefix), len), (address(first), address(last)), "{prefix}/{len}");
        }
    }
}
