//! A TPACKET_V2 ring: equal slots in blocks of memory shared with the kernel, used in turn.
//!
//! ```text
//!   block 0                          block 1
//!   ┌────────┬────────┬───────┬────┐ ┌────────┬────────┬─ ─
//!   │ slot 0 │ slot 1 │ …     │    │ │ slot n │        │        a block is whole pages; a rest is smaller than a slot
//!   └────────┴────────┴───────┴────┘ └────────┴────────┴─ ─
//!
//!   slot, received:  tpacket2_hdr 32 │ sockaddr_ll 20 │ pad │ vnet header 10 │ frame (from tp_mac on)
//!   slot, to send:   tpacket2_hdr 32 │ vnet header 10 │ frame
//! ```
//!
//! The first word of a slot says whose it is; both sides change it with release and read it with acquire order.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use libc::{tpacket_req, tpacket2_hdr};

use crate::sys::{self, Map};
use crate::virtio_net::VnetHeader;

const PAGE: usize = 4096;
const LINE: usize = 64;

/// Where the frame begins in a slot to send, its vnet header included.
pub(super) const TX_DATA: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();
/// At most so many bytes of a received slot stand before the frame: header, address, alignment, vnet header.
pub(super) const RX_OVERHEAD: usize = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(libc::TPACKET_ALIGNMENT) + VnetHeader::LEN;

const _: () = assert!(TX_DATA == 32 && size_of::<tpacket2_hdr>() == 32);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_status) == 0);

/// Which ring of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Rx,
    Tx,
}

/// Layout of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a slot.
    pub slot: usize,
    /// Slots of a block: a power of two.
    pub per_block: usize,
    /// Slots in all: a multiple of `per_block`.
    pub slots: usize,
}

impl Shape {
    /// A ring of at least `slots` slots for `bytes` bytes each. The stride is an odd number of cache lines, so that slot
    /// headers do not meet in the same cache sets.
    pub(super) fn new(bytes: usize, slots: usize, per_block: usize) -> Self {
        let slot = (bytes.div_ceil(LINE) | 1) * LINE;
        let mut per_block = per_block.clamp(1, slots.max(1)).next_power_of_two();
        // The kernel puts as many slots into a block as fit. From 64 on (64 lines are a page) nothing is left over.
        while (slot * per_block).next_multiple_of(PAGE) / slot != per_block {
            per_block *= 2;
        }
        Self { slot, per_block, slots: slots.max(1).next_multiple_of(per_block) }
    }

    /// Bytes of a block.
    pub(super) const fn block(self) -> usize {
        (self.slot * self.per_block).next_multiple_of(PAGE)
    }

    /// Bytes of the ring.
    pub(super) const fn bytes(self) -> usize {
        self.block() * (self.slots / self.per_block)
    }

    /// Where slot `i` begins.
    #[inline(always)]
    pub(super) const fn offset(self, i: usize) -> usize {
        let shift = self.per_block.trailing_zeros();
        (i >> shift) * self.block() + (i & (self.per_block - 1)) * self.slot
    }
}

/// A mapped ring and the next slot to look at.
#[derive(Debug)]
pub(super) struct Ring {
    map: Map,
    shape: Shape,
    at: usize,
    /// Offset of slot `at`.
    offset: usize,
}

impl Ring {
    /// Makes the ring of a socket whose version is set, and maps it.
    pub(super) fn new(socket: &OwnedFd, direction: Direction, shape: Shape) -> io::Result<Self> {
        let request = tpacket_req {
            tp_block_size: shape.block() as _,
            tp_block_nr: (shape.slots / shape.per_block) as _,
            tp_frame_size: shape.slot as _,
            tp_frame_nr: shape.slots as _,
        };
        let name = if direction == Direction::Rx { libc::PACKET_RX_RING } else { libc::PACKET_TX_RING };
        sys::set_option(socket, libc::SOL_PACKET, name, &request)?;
        Ok(Self { map: Map::shared(socket, shape.bytes())?, shape, at: 0, offset: 0 })
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of the current slot.
    #[inline(always)]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Status word of the current slot.
    #[inline(always)]
    pub(super) fn status(&self) -> u32 {
        self.map.word(self.offset).load(Ordering::Acquire)
    }

    /// Gives the current slot to the other side.
    #[inline(always)]
    pub(super) fn set_status(&self, status: u32) {
        self.map.word(self.offset).store(status, Ordering::Release);
    }

    /// Status word of slot `i`.
    #[inline(always)]
    pub(super) fn status_of(&self, i: usize) -> u32 {
        self.map.word(self.shape.offset(i)).load(Ordering::Acquire)
    }

    /// Sets the status word of slot `i`.
    pub(super) fn set_status_of(&self, i: usize, status: u32) {
        self.map.word(self.shape.offset(i)).store(status, Ordering::Release);
    }

    /// The slot `n` after slot `i`.
    #[inline(always)]
    pub(super) fn after(&self, i: usize, n: usize) -> usize {
        let sum = i + n;
        if sum >= self.shape.slots { sum - self.shape.slots } else { sum }
    }

    /// On to the next slot.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.at = self.after(self.at, 1);
        self.offset = self.shape.offset(self.at);
    }

    /// Back to slot `i`.
    pub(super) fn rewind(&mut self, i: usize) {
        self.at = i;
        self.offset = self.shape.offset(i);
    }

    /// Bytes of the current slot.
    ///
    /// # Safety
    /// The slot is ours: its status said so.
    #[inline(always)]
    pub(super) unsafe fn slot(&mut self) -> &mut [u8] {
        // SAFETY: ours by the caller's word; `offset` is a slot's (shape).
        unsafe { self.map.bytes(self.offset, self.shape.slot) }
    }

    /// Brings the head of the slot `n` after the current one towards the cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, n: usize) {
        let offset = self.shape.offset(self.after(self.at, n));
        quiver_graph::prefetch(self.map.address(offset));
        quiver_graph::prefetch(self.map.address(offset + LINE));
    }

    /// Bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.map.len()
    }
}

/// A received slot's header, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RxSlot {
    /// Where the frame lies in the slot.
    pub frame: (usize, usize),
    /// Bytes that the frame had: more than lie in the slot when it was cut.
    pub whole: usize,
    /// Tag that the kernel took out of the frame: TPID, TCI.
    pub tag: Option<[u8; 4]>,
    /// What is to be done with the frame.
    pub vnet: VnetHeader,
    /// The whole frame waits in the socket's queue.
    pub copied: bool,
    /// Frames were lost before this one.
    pub losing: bool,
    /// Sent by this machine (seen only on kernels that cannot leave such frames out).
    pub outgoing: bool,
}

impl RxSlot {
    /// Reads the header of a slot whose status is `status`. `None` where it contradicts itself.
    #[inline]
    pub(super) fn parse(status: u32, slot: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*slot.get(at..at + 4)?.first_chunk()?));
        let half = |at: usize| Some(u16::from_ne_bytes(*slot.get(at..at + 2)?.first_chunk()?));
        let (len, cut) = (word(4)? as usize, word(8)? as usize);
        let mac = usize::from(half(12)?);
        if cut > slot.len() || mac > slot.len() - cut || mac < TX_DATA {
            return None;
        }
        let vnet = VnetHeader::parse(slot.get(mac.checked_sub(VnetHeader::LEN)?..)?)?;
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(()).and_then(|()| {
            let (tci, tpid) = (half(24)?, half(26)?);
            // Kernels before 3.14 do not say which tag it was.
            let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { libc::ETH_P_8021Q as u16 };
            let (tpid, tci) = (tpid.to_be_bytes(), tci.to_be_bytes());
            Some([tpid[0], tpid[1], tci[0], tci[1]])
        });
        Some(Self {
            frame: (mac, cut),
            whole: len,
            tag,
            vnet,
            copied: status & libc::TP_STATUS_COPY != 0,
            losing: status & libc::TP_STATUS_LOSING != 0,
            outgoing: slot.get(PACKET_TYPE_AT).copied() == Some(libc::PACKET_OUTGOING),
        })
    }
}

/// When the frame of a received slot arrived, ns of the wall clock.
pub(super) fn arrival(slot: &[u8]) -> u64 {
    let word = |at: usize| slot.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word));
    u64::from(word(16)) * 1_000_000_000 + u64::from(word(20))
}

/// Where `sll_pkttype` lies in a received slot.
const PACKET_TYPE_AT: usize = TX_DATA + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype);

const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_len) == 4);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_snaplen) == 8);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_mac) == 12);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_sec) == 16);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_nsec) == 20);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_vlan_tci) == 24);
const _: () = assert!(std::mem::offset_of!(tpacket2_hdr, tp_vlan_tpid) == 26);

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
