//! Counters of translated packets by interface, `/nat44-ed/…` in the statistics, under VPP's names.
//!
//! *Fast* is what belongs to a known session, *slow* what begins one or comes to nothing. A node counts a frame's packets from
//! one interface in itself and adds them up when the interface changes.

use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_graph::stats::{SimpleCounters, Stats};

/// Interfaces with counters: those with greater numbers are not counted. The space of a counter is that of all threads, and there
/// are twenty.
const INTERFACES: u32 = 4096;

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// TCP packets.
    Tcp,
    /// UDP packets.
    Udp,
    /// ICMP messages.
    Icmp,
    /// Packets of other protocols.
    Other,
    /// Packets that were dropped.
    Drops,
}

const NAMES: [&str; 5] = ["tcp", "udp", "icmp", "other", "drops"];

impl What {
    /// Packets of a protocol.
    #[inline(always)]
    pub fn of(proto: u8) -> Self {
        match proto {
            6 => Self::Tcp,
            17 => Self::Udp,
            1 => Self::Icmp,
            _ => Self::Other,
        }
    }
}

/// The counters of a direction, and the sessions of all threads.
#[derive(Clone)]
pub struct Counters {
    fast: [Arc<SimpleCounters>; 5],
    slow: [Arc<SimpleCounters>; 5],
    sessions: Arc<SimpleCounters>,
}

impl Counters {
    /// Those of a direction.
    pub fn new(stats: &Stats, outside: bool) -> Self {
        let direction = if outside { "out2in" } else { "in2out" };
        let all = |path: &str| NAMES.map(|name| stats.simple(&format!("/nat44-ed/{direction}/{path}/{name}"), INTERFACES));
        let sessions = stats.simple("/nat44-ed/total-sessions", 1);
        sessions.set_len(1);
        Self { fast: all("fastpath"), slow: all("slowpath"), sessions }
    }

    /// Makes room for interfaces below `n` in what readers see.
    pub fn set_len(&self, n: u32) {
        self.fast.iter().chain(&self.slow).for_each(|counters| counters.set_len(n));
    }

    /// Sets how many sessions a thread has; called on that thread.
    pub fn sessions(&self, thread: usize, n: u64) {
        self.sessions.clear_index_thread(thread, 0);
        self.sessions.add(thread, 0, n);
    }
}

/// What a node has counted of one interface and not added up yet.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    interface: IfIndex,
    fast: [u32; 5],
    slow: [u32; 5],
}

impl Tally {
    /// Nothing yet.
    pub fn new(interface: IfIndex) -> Self {
        Self { interface, fast: [0; 5], slow: [0; 5] }
    }

    /// Turns to an interface; what was counted of another one is added up.
    #[inline(always)]
    pub fn turn(&mut self, interface: IfIndex, counters: &Counters, thread: usize) {
        if interface != self.interface {
            self.flush(counters, thread);
            self.interface = interface;
        }
    }

    /// Counts a packet of a known session.
    #[inline(always)]
    pub fn fast(&mut self, what: What) {
        self.fast[what as usize] += 1;
    }

    /// Counts another one.
    pub fn slow(&mut self, what: What) {
        self.slow[what as usize] += 1;
    }

    /// Adds everything up.
    #[inline(never)]
    pub fn flush(&mut self, counters: &Counters, thread: usize) {
        for (tally, all) in [(&mut self.fast, &counters.fast), (&mut self.slow, &counters.slow)] {
            for (n, counter) in tally.iter_mut().zip(all) {
                if *n > 0 {
                    counter.add(thread, self.interface.0, u64::from(std::mem::take(n)));
                }
            }
        }
    }
}
