//! `memif`: packets through memory that two processes share, protocol version 2.0.
//!
//! ```text
//!                 control channel: a Unix socket, messages of 128 bytes, descriptors beside them
//!   client  ───────────────────────────────────────────────────────────────────────────────────  server
//!     │ owns the memory                                                                             │ maps it
//!     ├── ring "to server":  client fills buffers, moves head ──►  server takes them, moves tail ───┤
//!     └── ring "to client":  client offers buffers by head    ──►  server fills them, moves tail ───┘
//! ```
//!
//! **Threads.** All of the protocol runs on the main thread, in [`Memif::run`], which never waits: messages are received, and
//! descriptors and memory of peers closed, by threads that may be lost (the module `background`), and whatever cannot be done now
//! is done when [`Memif::fd`] is readable again. Workers see only rings. Each queue has a
//! mutex that the worker takes for a vector and nobody contends for, but the main thread while it exchanges the rings; so a
//! connection that ends is gone from all queues when [`Memif::run`] returns, whether or not they are being polled, and its
//! memory and descriptors soon after.
//!
//! **Trust.** A peer can write to the rings and buffers at any moment, and say anything on the socket. Indices, offsets,
//! lengths and region numbers are loaded once and held against this side's own sizes; a client never reads back where its
//! own buffers are. A bad descriptor is counted (`rx-error`) and skipped, a bad index ends the connection. Regions must be
//! memory files (a file of a user-space file system could make us wait) of at least the size announced, within the limits of
//! the socket ([`Limits`]); memory that vanishes afterwards is replaced by zeros ([`guard`]). Event descriptors must be eventfds,
//! which only the kernel writes to (the module `event`).
//!
//! **Life of a connection.** A client tries again every half second for as long as its interface is up; a server listens
//! for as long as an interface needs it. A peer that dies closes its socket, which ends the connection at once. While there
//! is none the link is down.
//!
//! **Queues.** A server takes as many rings as the client offers and deals them out over its receive queues. Threads send
//! into the ring of their number; where there are fewer rings than threads, some share one.
//!
//! **Copies.** Packets are copied in both directions, exactly: nothing but the packet's own bytes ever reaches the peer. On
//! request a client copies nothing that came from a peer of the same socket (the module `zero_copy`): the peers of that
//! socket then see a pool of packet buffers, with whatever earlier packets *of that socket* have left there.
//!
//! **Lines.** What was copied for the peer is moved out of this core's own caches, where the processor can (the module `demote`).
//!
//! Not checked: who may connect, beyond the file permissions of the socket and the secret.

mod background;
mod connection;
mod demote;
mod error;
mod event;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod guard;
mod hub;
mod info;
pub(crate) mod inherit;
mod memory;
pub mod message;
mod port;
mod rx;
mod session;
mod socket;
mod tx;
mod zero_copy;

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub use demote::demotes;
pub use error::MemifError;
pub use hub::{Memif, POOL_BUFFERS, SocketConfig, SocketInfo};
pub use info::{DescriptorInfo, InterfaceInfo, RegionInfo, RingInfo};
pub use memory::Limits;
pub use port::MemifPort;

use memory::Ring;

/// Largest ring, as a power of two.
pub const LOG2_RING_MAX: u8 = 14;
/// Most rings in one direction.
pub const RINGS_MAX: usize = 256;
/// Most regions of a connection.
const REGIONS_MAX: usize = 256;
/// Largest frame by default, bytes: what VPP's interfaces take, too.
const FRAME_MAX: usize = 9216;

/// Which end of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Owns the memory and connects ("slave").
    #[default]
    Client,
    /// Listens ("master").
    Server,
}

/// What the interface carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IP packets.
    Ip,
}

/// Number of the socket and number on that socket: what an interface is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Socket.
    pub socket: u32,
    /// Number on it.
    pub id: u32,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memif{}/{}", self.socket, self.id)
    }
}

/// How to make an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifConfig {
    /// What it is known by.
    pub key: Key,
    /// Which end.
    pub role: Role,
    /// What it carries.
    pub mode: Mode,
    /// Descriptors of a ring: a power of two (client).
    pub ring_size: u32,
    /// The same of rings to the client, where they are of another size.
    pub rx_ring_size: Option<u32>,
    /// Bytes of a buffer in shared memory (client).
    pub buffer_size: u32,
    /// Receive queues: rings to the client, or what a server deals its rings out over.
    pub rx_queues: usize,
    /// Rings to the server (client).
    pub tx_queues: usize,
    /// Hardware address of the interface; drawn at random for `None`.
    pub mac: Option<[u8; 6]>,
    /// What a client must know.
    pub secret: Option<String>,
    /// Packets lie where the peer sees them, in a pool of the socket (client).
    pub zero_copy: bool,
}

impl MemifConfig {
    /// The usual settings.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            role: Role::Client,
            mode: Mode::Ethernet,
            ring_size: 1024,
            rx_ring_size: None,
            buffer_size: 2048,
            rx_queues: 1,
            tx_queues: 1,
            mac: None,
            secret: None,
            zero_copy: false,
        }
    }

    /// Slots of all its rings together (client).
    fn ring_slots(&self) -> usize {
        self.rx_queues * self.rx_ring() as usize + self.tx_queues * self.ring_size as usize
    }

    /// Descriptors of a ring to the client.
    fn rx_ring(&self) -> u32 {
        self.rx_ring_size.unwrap_or(self.ring_size)
    }

    /// # Errors
    /// The first setting that cannot be.
    fn check(&self) -> Result<(), MemifError> {
        let range = |key, value: usize, allowed| Err(MemifError::Range { key, value: value as u64, allowed });
        for (key, size) in [("ring-size", self.ring_size), ("rx-ring-size", self.rx_ring())] {
            if !size.is_power_of_two() || size > 1 << LOG2_RING_MAX {
                return range(key, size as usize, "a power of two from 1 to 16384");
            }
        }
        if !(64..=65_535).contains(&self.buffer_size) {
            return range("buffer-size", self.buffer_size as usize, "64 to 65535");
        }
        for (key, n) in [("rx-queues", self.rx_queues), ("tx-queues", self.tx_queues)] {
            if !(1..=RINGS_MAX - 1).contains(&n) {
                return range(key, n, "1 to 255");
            }
        }
        if let Some(secret) = self.secret.as_ref().filter(|secret| secret.len() > message::SECRET_BYTES) {
            return Err(MemifError::Secret(secret.len()));
        }
        if self.zero_copy && self.role == Role::Server {
            return Err(MemifError::ZeroCopyServer);
        }
        if self.role == Role::Client && !self.zero_copy && connection::memory_bytes(self) > memory::REGION_MAX {
            return range("ring-size", self.ring_size as usize, "fewer slots: all buffers have to fit into 4 GB");
        }
        Ok(())
    }
}

/// A client's buffers behind a ring: slot i of the ring has buffer i, whatever the peer writes into the descriptor.
///
/// Invariant S3: `stride × ring size` bytes from `base` on lie inside a region that the ring keeps alive, and `size` is at
/// most `stride`.
#[derive(Clone, Copy, Debug)]
struct Buffers {
    base: NonNull<u8>,
    region: u16,
    stride: u32,
    size: u32,
}

// SAFETY: an address; the bytes are accessed by raw copies only.
unsafe impl Send for Buffers {}

impl Buffers {
    #[inline(always)]
    fn address(&self, slot: u16) -> *mut u8 {
        self.base.as_ptr().wrapping_add(usize::from(slot) * self.stride as usize)
    }

    /// Offers the buffer of a slot to the peer, empty.
    #[inline(always)]
    fn offer(&self, ring: &Ring, slot: u16) {
        ring.set_first(slot, 0, self.region, self.size);
    }
}

/// What an interface's queues tell the main thread.
#[derive(Debug)]
struct Shared {
    wrong: Mutex<Option<&'static str>>,
    wake: Arc<OwnedFd>,
}

impl Shared {
    /// The peer broke the rules: the connection must end.
    #[cold]
    fn report(&self, reason: &'static str) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        hub::give(&self.wake);
    }

    fn take(&self) -> Option<&'static str> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests;
