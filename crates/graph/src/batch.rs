//! Several packets at a time, for nodes that decide the common case by wide comparisons.
//!
//! A loop of one packet leaves the processor with what overlaps by itself: a window of two or three packets of a node. With the
//! values of a batch in arrays, the compiler checks several headers by one instruction (measured: half of the clocks of
//! `ip4-input`). A batch has one path only, the fast one; a packet that is not for it sends its batch to the loop of one.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use quiver_buffer::HEADER_WINDOW;

use crate::frame::{Frame, IF_MASK, IfIndex};
use crate::loops::each;
use crate::memory::{Memory, Shared};
use crate::node::Verdict;
use crate::packet::Env;

/// `W` packets of a frame that stand side by side, for the time of a node's step on them.
///
/// It is the only live access to their lanes and bytes (F1: no index twice, so no two of its packets share bytes).
pub struct Batch<'a, const W: usize> {
    frame: *mut Frame<Shared>,
    at: usize,
    /// Where the slots of its packets are noted.
    next: *mut u16,
    /// First bytes of the data.
    data: [*mut u8; W],
    spans: [u32; W],
    _env: &'a Env,
}

/// Proof that the packets of a batch have been sent: [`Batch::send`] and [`Batch::send_all`] make it.
///
/// A token instead of the slots themselves: paths through a node that end alike would else meet in `W` registers.
#[must_use]
pub struct Sent(());

macro_rules! lane {
    ($self:ident, $lane:ident) => {
        // In `unsafe` of its users: `at` + W is within the lanes (`Batch::new`); no reference to the frame is made.
        (&raw mut (*$self.frame).$lane).cast::<u32>().add($self.at).cast::<[u32; W]>()
    };
}

impl<'a, const W: usize> Batch<'a, W> {
    /// The batch that begins at packet `at`.
    ///
    /// # Safety
    /// `at` + `W` is at most the length of the frame, which is nobody else's for 'a and holds to F1 and F2; `next` has room for
    /// as many slots, which nobody else uses meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn new<M: Memory>(frame: *mut Frame<M>, at: usize, next: *mut u16, env: &'a Env) -> Self {
        let mut batch = Self { frame: frame.cast(), at, next, data: [std::ptr::null_mut(); W], spans: [0; W], _env: env };
        // SAFETY: the lanes are live (the caller's promise).
        let (index, spans) = unsafe { (*lane!(batch, index), *lane!(batch, span)) };
        batch.spans = spans;
        // SAFETY: R2, F2: the buffer and the offset in it lie in the region.
        batch.data = each(|k| unsafe { env.base.add(index[k] as usize * env.stride as usize + (spans[k] >> 16) as usize) });
        batch
    }

    /// Context lanes: rx interface and flags.
    #[inline(always)]
    pub fn contexts(&self) -> [u32; W] {
        // SAFETY: the lanes are live and this is the only access to them.
        unsafe { *lane!(self, context) }
    }

    /// Interface that the first packet came in on.
    #[inline(always)]
    pub fn first_rx_if(&self) -> IfIndex {
        IfIndex(self.contexts()[0] & IF_MASK)
    }

    /// Whether all packets came in on `interface` and have none of these flags; there should be one, if only one that never comes:
    /// where `interface` is the first packet's, the compiler else leaves that packet's lane out, and with it wide comparisons (measured).
    #[inline(always)]
    pub fn all_from(&self, interface: IfIndex, without: u32) -> bool {
        // Masked in each lane: behind the sum the mask would keep the compiler from testing all lanes at once (measured).
        self.contexts().iter().fold(0, |differ, context| differ | (context ^ interface.0) & (IF_MASK | without)) == 0
    }

    /// The interfaces that packets came in on, where they are several and no packet has any of these flags.
    #[inline(always)]
    pub fn interfaces(&self, without: u32) -> Option<[IfIndex; W]> {
        let contexts = self.contexts();
        let flags = contexts.iter().fold(0, |union, context| union | context) & without;
        (W > 1 && flags == 0).then(|| each(|k| IfIndex(contexts[k] & IF_MASK)))
    }

    /// Says which interfaces the packets came in on.
    #[inline(always)]
    pub fn set_rx_ifs(&mut self, interfaces: [IfIndex; W]) {
        let contexts = self.contexts();
        // SAFETY: as in `contexts`.
        unsafe { *lane!(self, context) = each(|k| contexts[k] & !IF_MASK | interfaces[k].0 & IF_MASK) }
    }

    /// What any of the packets has of these flags.
    #[inline(always)]
    pub fn any_has(&self, flags: u32) -> u32 {
        self.contexts().iter().fold(0, |union, context| union | context) & flags
    }

    /// Aux lanes.
    #[inline(always)]
    pub fn aux(&self) -> [u32; W] {
        // SAFETY: as in `contexts`.
        unsafe { *lane!(self, aux) }
    }

    /// Sets the aux lanes.
    #[inline(always)]
    pub fn set_aux(&mut self, aux: [u32; W]) {
        // SAFETY: as in `contexts`.
        unsafe { *lane!(self, aux) = aux }
    }

    #[inline(always)]
    fn put_spans(&mut self, spans: [u32; W]) {
        self.spans = spans;
        // SAFETY: as in `contexts`.
        unsafe { *lane!(self, span) = spans }
    }

    /// Sends each packet on.
    #[inline(always)]
    pub fn send(&mut self, verdicts: [Verdict; W]) -> Sent {
        // SAFETY: `next` has room for the slots of this batch (`Batch::new`).
        unsafe { self.next.add(self.at).cast::<[u16; W]>().write_unaligned(each(|k| verdicts[k].0)) };
        Sent(())
    }

    /// Sends all packets the same way.
    #[inline(always)]
    pub fn send_all(&mut self, verdict: Verdict) -> Sent {
        self.send([verdict; W])
    }

    /// Position of its first packet.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether all packets have been sent to this slot.
    #[inline(always)]
    pub(crate) fn all_sent(&self, slot: u16) -> bool {
        // SAFETY: `next` has room for the slots of this batch (`Batch::new`), and `send` has written them.
        let slots = unsafe { self.next.add(self.at).cast::<[u16; W]>().read_unaligned() };
        slots.iter().fold(0, |differ, sent| differ | (sent ^ slot)) == 0
    }

    /// Bytes in the first segments.
    #[inline(always)]
    pub fn lens(&self) -> [u32; W] {
        each(|k| self.spans[k] & 0xffff)
    }

    /// Whether every first segment has `len` bytes or more.
    #[inline(always)]
    pub fn all_have(&self, len: u32) -> bool {
        self.spans.iter().fold(0, |short, span| short | (span & 0xffff).wrapping_sub(len)) >> 31 == 0
    }

    /// The headers `OFFSET` bytes into the data, copied: by plain loads, also of memory that a peer writes (the crate's module `memory`
    /// says why). Bytes past a packet's end are stale, never foreign memory.
    #[inline(always)]
    pub fn heads<H: FromBytes + Copy, const OFFSET: usize>(&self) -> [H; W] {
        const { assert!(OFFSET + size_of::<H>() <= HEADER_WINDOW) };
        // SAFETY: F2 leaves HEADER_WINDOW readable bytes behind every data offset; any bytes are a valid H.
        each(|k| unsafe { self.data[k].add(OFFSET).cast::<H>().read_unaligned() })
    }

    /// Writes headers `OFFSET` bytes into the data.
    #[inline(always)]
    pub fn set_heads<H: IntoBytes + Immutable + Copy, const OFFSET: usize>(&mut self, headers: [H; W]) {
        const { assert!(OFFSET + size_of::<H>() <= HEADER_WINDOW) };
        let mut k = 0;
        while k < W {
            // SAFETY: as in `heads`; the batch is the only access to these bytes.
            unsafe { self.data[k].add(OFFSET).cast::<H>().write_unaligned(headers[k]) };
            k += 1;
        }
    }

    /// Removes `N` bytes from the front of every packet; `false` and no change where one is shorter.
    #[inline(always)]
    pub fn pull<const N: u32>(&mut self) -> bool {
        const { assert!(N <= 0xffff) };
        let fits = self.all_have(N);
        if fits {
            self.put_spans(each(|k| self.spans[k].wrapping_add((N << 16).wrapping_sub(N))));
            self.data = each(|k| self.data[k].wrapping_add(N as usize));
        }
        fits
    }

    /// Cuts the first segments to at most so many bytes.
    #[inline(always)]
    pub fn cut(&mut self, lens: [u32; W]) {
        self.put_spans(each(|k| (self.spans[k] & 0xffff_0000) | (self.spans[k] & 0xffff).min(lens[k])));
    }

    /// Whether every packet has so many bytes of headroom.
    #[inline(always)]
    pub fn all_have_room(&self, bytes: u32) -> bool {
        self.spans.iter().fold(0, |small, span| small | (span >> 16).wrapping_sub(bytes)) >> 31 == 0
    }

    /// Puts an Ethernet header in front of the data of every packet: the last 14 of the 16 bytes that `header` gives for a
    /// position. `false` and no change where a packet has less than 16 bytes of headroom.
    #[inline(always)]
    pub fn prepend_ethernet(&mut self, header: impl Fn(usize) -> [u64; 2]) -> bool {
        if !self.all_have_room(16) {
            return false;
        }
        let mut k = 0;
        while k < W {
            let [first, last] = header(k);
            // Bytes 2 to 10 of the 16: two stores that overlap stay on the line where the frame began.
            let first = u64::from_le(first) >> 16 | u64::from_le(last) << 48;
            // SAFETY: F2: the data offset is 16 or more, so the 14 bytes in front of it lie in the buffer.
            unsafe {
                self.data[k].sub(14).cast::<u64>().write_unaligned(first.to_le());
                self.data[k].sub(8).cast::<u64>().write_unaligned(last);
            }
            k += 1;
        }
        self.put_spans(each(|k| self.spans[k].wrapping_sub((14 << 16) - 14)));
        self.data = each(|k| self.data[k].wrapping_sub(14));
        true
    }

    /// Puts the same link header of 16 to 24 bytes in front of the data of every packet: the last so many of these 24. `false` and no change
    /// where it is shorter, or a packet has less than 24 bytes of headroom.
    #[inline(always)]
    pub fn prepend_same(&mut self, header: [u64; 3], len: u32) -> bool {
        let len = len.min(24);
        if len < 16 || !self.all_have_room(24) {
            return false;
        }
        let first = first_of(header, len);
        let mut k = 0;
        while k < W {
            // SAFETY: F2: the data offset is 24 or more, so the 24 bytes in front of it lie in the buffer.
            unsafe {
                self.data[k].sub(len as usize).cast::<u64>().write_unaligned(first);
                self.data[k].sub(16).cast::<[u64; 2]>().write_unaligned([header[1], header[2]]);
            }
            k += 1;
        }
        self.put_spans(each(|k| self.spans[k].wrapping_add(len).wrapping_sub(len << 16)));
        self.data = each(|k| self.data[k].wrapping_sub(len as usize));
        true
    }

    /// Puts a link header in front of the data of every packet: for a position, the last so many of 24 bytes. What is too much lands in the
    /// headroom. `false` and no change where a packet has less than 24 bytes of headroom.
    #[inline(always)]
    pub fn prepend(&mut self, header: impl Fn(usize) -> ([u64; 3], u32)) -> bool {
        if !self.all_have_room(24) {
            return false;
        }
        let mut lens = [0; W];
        let mut k = 0;
        while k < W {
            let (bytes, len) = header(k);
            lens[k] = len.min(24);
            // SAFETY: F2: the data offset is 24 or more, so the 24 bytes in front of it lie in the buffer.
            unsafe {
                if lens[k] > 16 {
                    self.data[k].sub(lens[k] as usize).cast::<u64>().write_unaligned(first_of(bytes, lens[k]));
                }
                self.data[k].sub(16).cast::<[u64; 2]>().write_unaligned([bytes[1], bytes[2]]);
            }
            k += 1;
        }
        self.put_spans(each(|k| self.spans[k].wrapping_add(lens[k]).wrapping_sub(lens[k] << 16)));
        self.data = each(|k| self.data[k].wrapping_sub(lens[k] as usize));
        true
    }
}

/// The first word of a header of 16 to 24 bytes, which are the last ones of these: by a store for it, one that overlaps it, and one for the
/// rest, it stays on the line where the frame began, if that had as long a header.
#[inline(always)]
pub(crate) fn first_of(bytes: [u64; 3], len: u32) -> u64 {
    let pair = u128::from(u64::from_le(bytes[0])) | u128::from(u64::from_le(bytes[1])) << 64;
    ((pair >> (8 * (24 - len))) as u64).to_le()
}
