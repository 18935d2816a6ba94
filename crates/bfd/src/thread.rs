//! What one thread has: its sessions, and when each of them is next due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use crate::auth::{self, Authentication, Sealed};
use crate::datagram::{Datagram, Key};
use crate::packet::{Control, Echo, State};
use crate::session::{self, Echoes, Heard, Session, Status};
use quiver_net::ip::FamilyId;
use quiver_net::{Due, Notices, Timed};

/// Where a session's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// To a neighbour, by this load-balance.
    Neighbor(u32),
    /// By the routes of this FIB.
    Routes(u32),
}

/// A session on its thread.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The machine.
    pub session: Session,
    /// Who may have sent a packet.
    pub authentication: Authentication,
    /// Where and between whom.
    pub key: Key,
    /// Its number for users, and in counters.
    pub id: u32,
    /// Where its packets go.
    pub path: Path,
    /// Earliest time for which the thread has it in its queue.
    queued: u64,
    /// What main was last told.
    notified: Option<(State, bool)>,
}

impl Entry {
    /// A session that no thread has yet.
    pub fn new(session: Session, authentication: Authentication, key: Key, id: u32, path: Path) -> Self {
        Self { session, authentication, key, id, path, queued: u64::MAX, notified: None }
    }

    /// What others see of it.
    pub fn status(&self) -> Status {
        Status { auth_pending: self.authentication.is_pending(), ..self.session.status() }
    }

    /// Gives the session a packet that [`Authentication::check`] found right.
    pub fn receive(&mut self, control: &Control, now: u64) -> Heard {
        let heard = self.session.receive(control, now);
        self.authentication.taken(now, self.session.status().detection_time * 1000);
        heard
    }

    /// The packet to send now, see [`Session::send`].
    pub fn send(&mut self, is_final: bool, now: u64) -> Sealed {
        let control = self.session.send(is_final, now);
        self.authentication.seal(&control)
    }
}

/// A session's state has changed.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// Its discriminator.
    pub discriminator: u32,
    /// What it is like now.
    pub status: Status,
}

/// The way of notices to the main thread.
pub type Outbox = Notices<Notice>;

/// Source addresses of echo packets, by family.
pub type EchoSources = [Option<IpAddr>; 2];

/// The sessions of a thread.
pub struct Sessions {
    by_discriminator: HashMap<u32, Entry>,
    /// When a session may be due. Entries that are too early are put back, those that are not the session's earliest ignored.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    outbox: Outbox,
    echo_sources: EchoSources,
    /// Makes the proof in echo packets: a keyed hash with a random key, the same on all threads.
    proofs: RandomState,
}

impl Sessions {
    /// None.
    pub fn new(outbox: Outbox, proofs: RandomState) -> Self {
        Self { by_discriminator: HashMap::new(), queue: BinaryHeap::new(), outbox, echo_sources: [None; 2], proofs }
    }

    /// Says from which addresses echo packets are sent; a family without one sends none.
    pub fn set_echo_sources(&mut self, sources: EchoSources, now: u64) {
        self.echo_sources = sources;
        let all: Vec<u32> = self.by_discriminator.keys().copied().collect();
        for discriminator in all {
            self.follow_echo_source(discriminator, now);
        }
    }

    fn follow_echo_source(&mut self, discriminator: u32, now: u64) {
        let Some(entry) = self.by_discriminator.get_mut(&discriminator) else { return };
        entry.session.set_echoes(echoes(&self.echo_sources, &entry.key), now);
        self.settle(discriminator);
    }

    /// An echo packet of a session.
    pub fn echo(&self, entry: &Entry, now: u64, tos: u8) -> Option<Datagram> {
        let source = self.echo_sources[FamilyId::of(&entry.key.peer) as usize]?;
        let discriminator = entry.session.discriminator();
        let echo = Echo { discriminator, sent: now, proof: self.proofs.hash_one((discriminator, now)) };
        Some(Datagram::echo(&entry.key, source, &echo, tos))
    }

    /// Takes a session in. All sessions send echo packets from the same sources.
    pub fn insert(&mut self, mut entry: Entry, sources: EchoSources, now: u64) {
        self.echo_sources = sources;
        entry.queued = u64::MAX;
        let discriminator = entry.session.discriminator();
        self.by_discriminator.insert(discriminator, entry);
        self.follow_echo_source(discriminator, now);
    }

    /// Has a session go on as that of another process, with the discriminator that it had there. Main knows of it. `None`: it stays as
    /// it is.
    pub fn adopt(&mut self, discriminator: u32, kept: &session::Kept, authentication: &auth::Kept, now: u64) -> Option<Status> {
        let entry = self.by_discriminator.get_mut(&discriminator)?;
        if !entry.session.adopt(kept, now) {
            return None;
        }
        let mut entry = self.by_discriminator.remove(&discriminator)?;
        entry.authentication.adopt(authentication);
        let status = entry.status();
        entry.notified = Some((status.state, status.failed));
        self.insert(entry, self.echo_sources, now);
        Some(status)
    }

    /// Takes a session out.
    pub fn remove(&mut self, discriminator: u32) -> Option<Entry> {
        self.by_discriminator.remove(&discriminator)
    }

    /// Takes all sessions out.
    pub fn take_all(&mut self) -> Vec<Entry> {
        self.queue.clear();
        self.by_discriminator.drain().map(|(_, entry)| entry).collect()
    }

    /// A session. Call [`settle`](Self::settle) after a change.
    pub fn get_mut(&mut self, discriminator: u32) -> Option<&mut Entry> {
        self.by_discriminator.get_mut(&discriminator)
    }

    /// A session.
    pub fn get(&self, discriminator: u32) -> Option<&Entry> {
        self.by_discriminator.get(&discriminator)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_discriminator.values()
    }

    /// Notes when a session is due, and tells main of a new state.
    pub fn settle(&mut self, discriminator: u32) {
        let Some(entry) = self.by_discriminator.get_mut(&discriminator) else { return };
        let due = entry.session.due();
        if due < entry.queued {
            entry.queued = due;
            self.queue.push(Reverse((due, discriminator)));
        }
        let status = entry.status();
        let now = (status.state, status.failed);
        if entry.notified != Some(now) {
            entry.notified = Some(now);
            self.outbox.tell(Notice { discriminator, status });
        }
    }

    /// A session that is due now; it is not queued until it has been settled.
    pub fn next_due(&mut self, now: u64) -> Option<u32> {
        while let Some(Reverse((time, discriminator))) = self.queue.peek().copied() {
            if time > now {
                return None;
            }
            self.queue.pop();
            let Some(entry) = self.by_discriminator.get_mut(&discriminator).filter(|entry| entry.queued == time) else { continue };
            entry.queued = u64::MAX;
            let due = entry.session.due();
            if due <= now {
                return Some(discriminator);
            }
            if due < u64::MAX {
                entry.queued = due;
                self.queue.push(Reverse((due, discriminator)));
            }
        }
        None
    }
}

/// What a session may do with echo packets.
fn echoes(sources: &EchoSources, key: &Key) -> Echoes {
    match sources[FamilyId::of(&key.peer) as usize] {
        _ if key.is_multihop() => Echoes::None,
        Some(_) => Echoes::Sent,
        None => Echoes::Returned,
    }
}

impl Due for Sessions {
    fn due(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }
}

/// A thread's sessions, for its nodes and for what main sends it to do.
pub type Shared = Timed<Sessions>;
