//! What one thread has: its sessions, and when each of them is next due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use quiver_graph::IfIndex;
use quiver_net::{Due, ProcessSignal, Timed};
use quiver_wire::checksum::{Sum, fill_l4};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;
use quiver_wire::{Header, U16Be};

use crate::packet::{Control, LEN, State};
use crate::session::{Session, Status};

/// UDP port of single-hop control packets (RFC 5881, 4).
pub const PORT: u16 = 3784;
/// First of the source ports that control packets may have (RFC 5881, 4), and how many there are.
const SOURCE_PORTS: (u16, u16) = (49_152, 16_384);
/// TTL and hop limit (RFC 5881, 5): no router has passed the packet on.
pub const TTL: u8 = 255;
/// DSCP CS6, as routing protocols have: queues on the way prefer it.
const TRAFFIC_CLASS: u8 = 0xc0;

/// What a session is known by: where it is, and between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Interface.
    pub interface: IfIndex,
    /// Own address there.
    pub local: IpAddr,
    /// The other side's.
    pub peer: IpAddr,
}

/// An IP packet with a control packet in it.
pub struct Datagram {
    bytes: [u8; Ipv6Header::LEN + UdpHeader::LEN + LEN],
    len: usize,
}

impl Datagram {
    /// A control packet from one side of a session to the other. Addresses of two families give no bytes.
    pub fn new(key: &Key, control: &Control) -> Self {
        let port = SOURCE_PORTS.0 + (control.my_discriminator % u32::from(SOURCE_PORTS.1)) as u16;
        let udp = UdpHeader::new(port, PORT, LEN as u16);
        let udp_len = UdpHeader::LEN + LEN;
        let mut datagram = Self { bytes: [0; _], len: 0 };
        let bytes = &mut datagram.bytes;
        let (start, pseudo) = match (key.local, key.peer) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Header::new(src, dst, IpProtocol::UDP);
                header.ttl = TTL;
                header.total_len = U16Be::new((Ipv4Header::LEN + udp_len) as u16);
                header.update_tos(TRAFFIC_CLASS);
                header.fill_checksum();
                let _ = header.write(bytes);
                (Ipv4Header::LEN, Sum::new().add_pseudo_v4(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len as u16))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = Ipv6Header::new(src, dst, IpProtocol::UDP);
                header.hop_limit = TTL;
                header.payload_len = U16Be::new(udp_len as u16);
                header.set_traffic_class(TRAFFIC_CLASS);
                let _ = header.write(bytes);
                (Ipv6Header::LEN, Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len as u32))
            }
            _ => return datagram,
        };
        let _ = udp.write_at(bytes, start);
        if let Some(place) = bytes.get_mut(start + UdpHeader::LEN..start + udp_len) {
            place.copy_from_slice(&control.to_bytes());
        }
        let _ = bytes.get_mut(start..start + udp_len).and_then(|l4| fill_l4(IpProtocol::UDP, pseudo, l4));
        datagram.len = start + udp_len;
        datagram
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A session on its thread.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The machine.
    pub session: Session,
    /// Where and between whom.
    pub key: Key,
    /// Its number for users, and in counters.
    pub id: u32,
    /// The load-balance that its packets leave by.
    pub lb: u32,
    /// Earliest time for which the thread has it in its queue.
    queued: u64,
    /// What main was last told.
    notified: Option<(State, bool)>,
}

impl Entry {
    /// A session that no thread has yet.
    pub fn new(session: Session, key: Key, id: u32, lb: u32) -> Self {
        Self { session, key, id, lb, queued: u64::MAX, notified: None }
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
#[derive(Clone)]
pub struct Outbox {
    sender: Sender<Notice>,
    signal: ProcessSignal,
    lost: Arc<AtomicBool>,
}

impl Outbox {
    /// One that sends to a channel; `lost` is set where that is full.
    pub fn new(sender: Sender<Notice>, signal: ProcessSignal, lost: Arc<AtomicBool>) -> Self {
        Self { sender, signal, lost }
    }

    fn tell(&self, notice: Notice) {
        if self.sender.try_send(notice).is_err() {
            self.lost.store(true, Ordering::Release);
        }
        self.signal.raise();
    }
}

/// The sessions of a thread.
pub struct Sessions {
    by_discriminator: HashMap<u32, Entry>,
    /// When a session may be due. Entries that are too early are put back, those that are not the session's earliest ignored.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    outbox: Outbox,
}

impl Sessions {
    /// None.
    pub fn new(outbox: Outbox) -> Self {
        Self { by_discriminator: HashMap::new(), queue: BinaryHeap::new(), outbox }
    }

    /// Takes a session in.
    pub fn insert(&mut self, mut entry: Entry) {
        entry.queued = u64::MAX;
        let discriminator = entry.session.discriminator();
        self.by_discriminator.insert(discriminator, entry);
        self.settle(discriminator);
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
        let status = entry.session.status();
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

impl Due for Sessions {
    fn due(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }
}

/// A thread's sessions, for its nodes and for what main sends it to do.
pub type Shared = Timed<Sessions>;
