//! What one thread has: its virtual routers, and when each of them is next due.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::IfIndex;
use quiver_net::ip::FamilyId;
use quiver_net::neighbor::Station;
use quiver_net::{Due, Notices, Timed};

use crate::machine::{Kept, Machine, State, Status};

/// What a virtual router is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Interface.
    pub interface: IfIndex,
    /// Family of its addresses; each family has numbers of its own.
    pub family: FamilyId,
    /// Its number.
    pub vr_id: u8,
}

/// A virtual router on its thread.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The machine.
    pub machine: Machine,
    /// Where it is.
    pub key: Key,
    /// What is known by no other virtual router, now or later.
    pub serial: u32,
    /// How its frames look; none where the interface has no link layer.
    pub station: Option<Arc<Station>>,
    /// Its addresses.
    pub addresses: Arc<[IpAddr]>,
    /// Whom it sends to instead of the group, each with the load-balance that leads there.
    pub peers: Vec<(IpAddr, u32)>,
    /// Advertisements go to the peers.
    pub unicast: bool,
    /// Set while it is the master; what answers for its addresses looks here.
    pub master: Arc<AtomicBool>,
    /// Advertisements received.
    pub received: u64,
    /// Advertisements sent.
    pub sent: u64,
    /// It goes once it has sent its last words.
    pub leaving: bool,
    /// When it is in the queue.
    queued: u64,
    /// What main was last told.
    notified: Option<State>,
}

impl Entry {
    /// A virtual router that no thread has yet.
    pub fn new(machine: Machine, key: Key, serial: u32, addresses: Arc<[IpAddr]>, master: Arc<AtomicBool>) -> Self {
        Self {
            machine,
            key,
            serial,
            station: None,
            addresses,
            peers: Vec::new(),
            unicast: false,
            master,
            received: 0,
            sent: 0,
            leaving: false,
            queued: u64::MAX,
            notified: None,
        }
    }

    /// What can be seen of it, with advertisements received and sent.
    pub fn figures(&self) -> Figures {
        Figures { status: self.machine.status(), received: self.received, sent: self.sent }
    }
}

/// What a thread says of a virtual router when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Its state.
    pub status: Status,
    /// Advertisements received.
    pub received: u64,
    /// Advertisements sent.
    pub sent: u64,
}

/// The state of a virtual router has changed.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// Which one.
    pub serial: u32,
    /// What it is like now.
    pub status: Status,
}

/// The way of notices to the main thread.
pub type Outbox = Notices<Notice>;

/// The virtual routers of a thread.
pub struct Routers {
    by_serial: HashMap<u32, Entry>,
    /// When each of them is next due.
    queue: BTreeSet<(u64, u32)>,
    outbox: Outbox,
}

impl Routers {
    /// None.
    pub fn new(outbox: Outbox) -> Self {
        Self { by_serial: HashMap::new(), queue: BTreeSet::new(), outbox }
    }

    /// Takes a virtual router in.
    pub fn insert(&mut self, mut entry: Entry) {
        entry.queued = u64::MAX;
        let serial = entry.serial;
        self.by_serial.insert(serial, entry);
        self.settle(serial);
    }

    /// Has one go on as that of another process. Main knows of it. Gives its state; `None`: it stays as it is.
    pub fn adopt(&mut self, serial: u32, kept: &Kept, [received, sent]: [u64; 2], now: u64) -> Option<State> {
        let entry = self.by_serial.get_mut(&serial).filter(|entry| !entry.leaving)?;
        if !entry.machine.adopt(kept, now) {
            return None;
        }
        let state = entry.machine.state();
        (entry.received, entry.sent, entry.notified) = (received, sent, Some(state));
        self.settle(serial);
        Some(state)
    }

    /// Takes all of them out.
    pub fn take_all(&mut self) -> Vec<Entry> {
        self.queue.clear();
        self.by_serial.drain().map(|(_, entry)| entry).collect()
    }

    /// One of them. Call [`settle`](Self::settle) after a change.
    pub fn get_mut(&mut self, serial: u32) -> Option<&mut Entry> {
        self.by_serial.get_mut(&serial)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_serial.values()
    }

    /// Notes when one is due, has the data path know whether it is the master, and tells main of a new state. One that has left is
    /// removed.
    pub fn settle(&mut self, serial: u32) {
        let Some(entry) = self.by_serial.get_mut(&serial) else { return };
        let due = entry.machine.due();
        if due != entry.queued {
            self.queue.remove(&(entry.queued, serial));
            entry.queued = due;
            if due < u64::MAX {
                self.queue.insert((due, serial));
            }
        }
        let status = entry.machine.status();
        entry.master.store(status.state == State::Master, Ordering::Release);
        if entry.leaving {
            if due != 0 {
                self.queue.remove(&(due, serial));
                self.by_serial.remove(&serial);
            }
            return;
        }
        if entry.notified != Some(status.state) {
            entry.notified = Some(status.state);
            self.outbox.tell(Notice { serial, status });
        }
    }

    /// One that is due now. It has to be settled before the next is asked for.
    pub fn next_due(&self, now: u64) -> Option<u32> {
        self.queue.first().filter(|(time, _)| *time <= now).map(|(_, serial)| *serial)
    }
}

impl Due for Routers {
    fn due(&self) -> u64 {
        self.queue.first().map_or(u64::MAX, |(time, _)| *time)
    }
}

/// A thread's virtual routers, for its nodes and for what main sends it to do.
pub type Shared = Timed<Routers>;
