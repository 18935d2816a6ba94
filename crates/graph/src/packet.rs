//! What a node sees of one packet: a view into lanes and bytes, and the owned form of a packet that a node holds.

use std::marker::PhantomData;

use quiver_buffer::{HEADER_WINDOW, Meta, NO_BUFFER};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::batch::first_of;
use crate::frame::{IF_MASK, IfIndex, Span, flags};
use crate::memory::{self, Memory, Private, Shared};
use crate::node::{DropReasons, Verdict};
use crate::port::Segment;

/// Copies of what every access needs. `base`, `meta` and the sizes are the region's (its invariants R1, R2).
#[derive(Clone, Copy)]
pub(crate) struct Env {
    pub base: *mut u8,
    pub meta: *mut Meta,
    pub stride: u32,
    pub data_end: u32,
    pub error_base: u32,
}

/// A packet in a frame, for the time of one node's step on it.
///
/// The view is the only live access to its lanes and its bytes (F1: no index twice; the framework makes one view at a time),
/// and headers are copied in and out by value, so no reference into packet memory outlives a call.
///
/// Lanes are read once, when the view is made, and written through: what packet bytes are written meanwhile cannot make the
/// compiler read them again (measured: a third of a forwarding node's instructions).
///
/// Its bytes can be looked at as slices where they are [`Private`], and only be copied where they are [`Shared`].
pub struct Pkt<'a, M = Private> {
    pub(crate) lanes: Lanes,
    buffer: *mut u8,
    index: u32,
    span: u32,
    context: u32,
    aux: u32,
    pub(crate) env: &'a Env,
    memory: PhantomData<M>,
}

/// Where a packet's lanes are.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub index: *mut u32,
    pub span: *mut u32,
    pub context: *mut u32,
    pub aux: *mut u32,
    /// Count of packets taken out of the frame; null for a packet that is in none.
    pub taken: *mut usize,
}

impl<'a, M: Memory> Pkt<'a, M> {
    /// A view of a packet.
    ///
    /// # Safety
    /// The lanes are live and nobody else's for 'a, and hold to F2; the packet lies in memory that `M` tells.
    #[inline(always)]
    pub(crate) unsafe fn new(lanes: Lanes, env: &'a Env) -> Self {
        // SAFETY: the caller's promise.
        let (index, span, context, aux) = unsafe { (*lanes.index, *lanes.span, *lanes.context, *lanes.aux) };
        // In the region by F2 (R2); not dereferenced for a stale lane, which is only prefetched.
        let buffer = env.base.wrapping_add(index as usize * env.stride as usize);
        Pkt { lanes, buffer, index, span, context, aux, env, memory: PhantomData }
    }

    #[inline(always)]
    fn put_span(&mut self, value: u32) {
        self.span = value;
        // SAFETY: the lanes of a view are live for 'a, and the view is the only access to them.
        unsafe { *self.lanes.span = value }
    }

    #[inline(always)]
    fn put_context(&mut self, value: u32) {
        self.context = value;
        // SAFETY: as above.
        unsafe { *self.lanes.context = value }
    }

    /// The lanes as they are.
    pub(crate) fn copy_lanes(&self) -> Packet<M> {
        Packet::new(self.index, self.span, self.context, self.aux)
    }

    /// Takes span and context over from an owned packet that is this one.
    pub(crate) fn put_lanes(&mut self, packet: &Packet<M>) {
        self.put_span(packet.span);
        self.put_context(packet.context);
    }

    /// The same view once more, for a call that is not inlined. A view whose own address goes into a call lives on the
    /// stack from then on, in the hot way too: six stores for each packet (measured: half of a node's time). What the call
    /// changes is not seen by the old view.
    #[inline(always)]
    pub fn again(&mut self) -> Pkt<'_, M> {
        Pkt { ..*self }
    }

    /// Offset and length of the first segment.
    #[inline(always)]
    pub fn span(&self) -> Span {
        Span(self.span)
    }

    /// Bytes in the first segment.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.span().len()
    }

    /// Whether there is no data in the first segment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the whole packet, all segments.
    #[inline(always)]
    pub fn total_len(&self) -> usize {
        if self.has(flags::CHAINED) { self.len() + self.meta().rest_len as usize } else { self.len() }
    }

    /// Logical interface that the packet came in on.
    #[inline(always)]
    pub fn rx_if(&self) -> IfIndex {
        IfIndex(self.context & IF_MASK)
    }

    /// Changes the logical rx interface (VLAN, decapsulation, BVI).
    #[inline(always)]
    pub fn set_rx_if(&mut self, interface: IfIndex) {
        let c = self.context;
        self.put_context((c & !IF_MASK) | (interface.0 & IF_MASK));
    }

    /// Whether any of the given flags is set.
    #[inline(always)]
    pub fn has(&self, flag: u32) -> bool {
        self.context & flag != 0
    }

    /// The context lane as it is: rx interface and flags.
    #[inline(always)]
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Sets [`flags::LOCAL`] or [`flags::LINK_MULTICAST`]; the other flags belong to the functions that keep what they imply.
    #[inline(always)]
    pub fn mark(&mut self, flag: u32) {
        let c = self.context;
        self.put_context(c | (flag & (flags::LOCAL | flags::LINK_MULTICAST)));
    }

    /// Removes [`flags::LOCAL`] or [`flags::LINK_MULTICAST`].
    #[inline(always)]
    pub fn unmark(&mut self, flag: u32) {
        let c = self.context;
        self.put_context(c & !(flag & (flags::LOCAL | flags::LINK_MULTICAST)));
    }

    /// Counts in [`flags::AGAIN`] that the packet is taken once more; `false`, and nothing changed, where the bits are full.
    #[inline]
    pub fn take_again(&mut self) -> bool {
        let c = self.context;
        let free = c & flags::AGAIN != flags::AGAIN;
        if free {
            // Plus one in the two bits, which are the topmost.
            self.put_context(c + (flags::AGAIN & flags::AGAIN.wrapping_neg()));
        }
        free
    }

    /// The aux lane: what the node before left for this one.
    #[inline(always)]
    pub fn aux(&self) -> u32 {
        self.aux
    }

    /// Sets the aux lane.
    #[inline(always)]
    pub fn set_aux(&mut self, value: u32) {
        self.aux = value;
        // SAFETY: as in `put_span`.
        unsafe { *self.lanes.aux = value }
    }

    /// Number of its first buffer.
    pub(crate) fn buffer_index(&self) -> u32 {
        self.index
    }

    /// First byte of the data.
    #[inline(always)]
    pub(crate) fn data(&self) -> *mut u8 {
        // SAFETY: F2: the offset lies inside the buffer.
        unsafe { self.buffer.add(self.span().offset()) }
    }

    /// The header at the start of the data, copied. Bytes past the packet's end are stale, never foreign memory: check
    /// [`Pkt::len`] where that matters.
    #[inline(always)]
    pub fn head<H: FromBytes>(&self) -> H {
        self.head_at::<H, 0>()
    }

    /// The header `OFFSET` bytes into the data, copied; `OFFSET` + size must fit the header window (checked when compiled).
    #[inline(always)]
    pub fn head_at<H: FromBytes, const OFFSET: usize>(&self) -> H {
        const { assert!(OFFSET + size_of::<H>() <= HEADER_WINDOW) };
        // SAFETY: F2 leaves HEADER_WINDOW readable bytes behind every data offset; any bytes are a valid H.
        unsafe { memory::read::<M, H>(self.data().add(OFFSET)) }
    }

    /// The header `at` bytes into the data, copied; `None` where the first segment ends before it does.
    #[inline(always)]
    pub fn read_at<H: FromBytes>(&self, at: usize) -> Option<H> {
        let fits = at.checked_add(size_of::<H>()).is_some_and(|end| end <= self.len());
        // SAFETY: F2: the segment lies inside the buffer, and the header in the segment; any bytes are a valid H.
        fits.then(|| unsafe { memory::read::<M, H>(self.data().add(at)) })
    }

    /// Writes a header at the start of the data.
    #[inline(always)]
    pub fn set_head<H: IntoBytes + Immutable>(&mut self, header: H) {
        self.set_head_at::<H, 0>(header);
    }

    /// Writes a header `OFFSET` bytes into the data; bytes past the packet's end are spent, not foreign.
    #[inline(always)]
    pub fn set_head_at<H: IntoBytes + Immutable, const OFFSET: usize>(&mut self, header: H) {
        const { assert!(OFFSET + size_of::<H>() <= HEADER_WINDOW) };
        // SAFETY: as in `head_at`, and the view is the only access to the buffer's bytes.
        unsafe { memory::write::<M, H>(self.data().add(OFFSET), &header) }
    }

    /// The header that begins `n` bytes in front of the data, copied: one that was pulled, if nothing was written there since. `None` where
    /// the buffer does not reach that far, or the header reaches into the data.
    #[inline(always)]
    pub fn read_before<H: FromBytes>(&self, n: usize) -> Option<H> {
        if n > self.span().offset() || size_of::<H>() > n {
            return None;
        }
        // SAFETY: F2: the data offset lies inside the buffer, `n` is not more than it, and the header ends at the data at the latest.
        Some(unsafe { memory::read::<M, H>(self.data().sub(n)) })
    }

    /// Copies of the `n` bytes in front of the data, or as many as there are: what was pulled, if nothing was written there since.
    pub(crate) fn before(&self, n: usize) -> Vec<u8> {
        let n = n.min(self.span().offset());
        let mut bytes = vec![0; n];
        // SAFETY: F2: the data offset lies inside the buffer, and `n` is not more than it.
        unsafe { memory::copy::<M>(bytes.as_mut_ptr(), self.data().sub(n), n) };
        bytes
    }

    /// Removes `n` bytes from the front; `false` and no change where the first segment is shorter.
    #[inline(always)]
    pub fn pull(&mut self, n: usize) -> bool {
        let span = self.span;
        let fits = (span & 0xffff) as usize >= n;
        let change = ((n as u32) << 16).wrapping_sub(n as u32);
        self.put_span(if fits { span.wrapping_add(change) } else { span });
        fits
    }

    /// Adds `n` bytes (of stale content) at the front; `false` and no change where the headroom is too small.
    #[inline(always)]
    pub fn push(&mut self, n: usize) -> bool {
        let span = self.span;
        let fits = (span >> 16) as usize >= n;
        let change = ((n as u32) << 16).wrapping_sub(n as u32);
        self.put_span(if fits { span.wrapping_sub(change) } else { span });
        fits
    }

    /// Puts the last `len` of 24 bytes in front of the data; `false` and no change where the headroom is too small for all of
    /// them.
    ///
    /// Stores overlap, so that the header stays on the line where the frame began. What shorter ones than 16 bytes have too much lands in the
    /// headroom.
    #[inline(always)]
    pub fn prepend(&mut self, bytes: [u64; 3], len: usize) -> bool {
        let fits = (self.span >> 16) as usize >= 24;
        if fits {
            let data = self.data();
            // SAFETY: F2: the data offset is 24 or more, so the 24 bytes in front of it lie in the buffer.
            unsafe {
                if len == 14 {
                    // Bytes 10 to 18 of the 24.
                    let first = u64::from_le(bytes[1]) >> 16 | u64::from_le(bytes[2]) << 48;
                    memory::write::<M, u64>(data.sub(14), &first.to_le());
                    memory::write::<M, u64>(data.sub(8), &bytes[2]);
                } else {
                    if len > 16 {
                        memory::write::<M, u64>(data.sub(len.min(24)), &first_of(bytes, len.min(24) as u32));
                    }
                    memory::write::<M, [u64; 2]>(data.sub(16), &[bytes[1], bytes[2]]);
                }
            }
            let n = len.min(24) as u32;
            self.put_span(self.span.wrapping_add(n).wrapping_sub(n << 16));
        }
        fits
    }

    /// Cuts the first segment to at most `len` bytes. For packets of one segment, as [`flags::CHAINED`] tells.
    #[inline(always)]
    pub fn cut(&mut self, len: usize) {
        let span = self.span;
        self.put_span((span & 0xffff_0000) | (span & 0xffff).min(len as u32));
    }

    /// Cuts or extends the first segment to `len` bytes; `false` and no change where the buffer is too small.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> bool {
        let offset = self.span().offset();
        let fits = offset + len <= self.env.data_end as usize;
        if fits {
            self.put_span(Span::new(offset as u32, len as u32).0);
        }
        fits
    }

    /// Cuts the whole packet to `len` bytes (Ethernet padding past the IP length); longer than it is: no change.
    #[inline(always)]
    pub fn trim(&mut self, len: usize) {
        if self.has(flags::CHAINED) {
            let mut view = self.again();
            view.trim_chain(len);
            let (span, context) = (view.span, view.context);
            (self.span, self.context) = (span, context);
        } else if len < self.len() {
            self.set_len(len);
        }
    }

    #[cold]
    fn trim_chain(&mut self, len: usize) {
        // Buffers past the new end stay chained with length 0 and are freed with the packet.
        let mut left = len;
        let first = self.len().min(left);
        self.set_len(first);
        left -= first;
        let rest = left.min(self.meta().rest_len as usize);
        self.meta_mut().rest_len = rest as u32;
        let mut next = self.meta().next;
        let mut left = rest;
        while let Some(meta) = self.chain_meta(next) {
            let span = Span(meta.segment);
            let keep = span.len().min(left);
            meta.segment = Span::new(span.offset() as u32, keep as u32).0;
            left -= keep;
            next = meta.next;
        }
    }

    #[allow(clippy::mut_from_ref)]
    fn chain_meta(&self, index: u32) -> Option<&mut Meta> {
        // SAFETY: chain links are indices of buffers owned with the packet; their lines are inside the array (R1). Callers
        // keep at most one of these references at a time.
        (index != NO_BUFFER).then(|| unsafe { &mut *self.env.meta.add(index as usize) })
    }

    /// The metadata line. Only meaningful where [`flags::META`] is set.
    #[inline(always)]
    pub fn meta(&self) -> &Meta {
        // SAFETY: F2 and R1; the view is the only access to the line of a buffer that its frame owns.
        unsafe { &*self.env.meta.add(self.index as usize) }
    }

    /// The metadata line, made valid first if it was not.
    #[inline(always)]
    pub(crate) fn meta_mut(&mut self) -> &mut Meta {
        let c = self.context;
        let index = self.index;
        // SAFETY: as in `meta`.
        let meta = unsafe { &mut *self.env.meta.add(index as usize) };
        if c & flags::META == 0 {
            *meta = Meta::EMPTY;
            self.put_context(c | flags::META);
        }
        meta
    }

    /// FIB that lookups must use instead of the rx interface's, where a node has set one.
    #[inline(always)]
    pub fn table(&self) -> Option<u32> {
        if self.has(flags::META) { Some(self.meta().table).filter(|t| *t != u32::MAX) } else { None }
    }

    /// Makes the next lookup use this FIB.
    pub fn set_table(&mut self, fib: u32) {
        self.meta_mut().table = fib;
    }

    /// Words that a plugin's nodes keep with the packet between one another; zeros where none were set.
    #[inline(always)]
    pub fn scratch(&self) -> [u32; 9] {
        if self.has(flags::META) { self.meta().scratch } else { [0; 9] }
    }

    /// Sets the words that a plugin's nodes keep with the packet.
    #[inline(always)]
    pub fn set_scratch(&mut self, words: [u32; 9]) {
        self.meta_mut().scratch = words;
    }

    /// Sets the flow hash that a node has computed.
    pub fn set_flow_hash(&mut self, hash: u32) {
        self.meta_mut().flow_hash = hash;
    }

    /// Where an unfinished checksum starts (bytes from the start of the data now, whatever was pushed or pulled meanwhile) and
    /// how much further it is stored, where [`flags::CHECKSUM`] is set and the start still lies in the data.
    pub fn unfinished_checksum(&self) -> Option<(u16, u16)> {
        if !self.has(flags::CHECKSUM) {
            return None;
        }
        let start = self.meta().checksum_start.checked_sub(self.span().offset() as u16)?;
        Some((start, self.meta().checksum_offset))
    }

    /// Notes that the checksum has been finished.
    pub fn clear_unfinished_checksum(&mut self) {
        let c = self.context;
        self.put_context(c & !flags::CHECKSUM);
    }

    /// Notes that the layer-4 checksum is unfinished: to be summed from `start` (bytes from the start of the data now) and
    /// stored `offset` bytes further.
    pub fn set_unfinished_checksum(&mut self, start: u16, offset: u16) {
        // Kept from the start of the buffer, which pushing and pulling headers does not move.
        let start = start.saturating_add(self.span().offset() as u16);
        let meta = self.meta_mut();
        meta.checksum_start = start;
        meta.checksum_offset = offset;
        let c = self.context;
        self.put_context(c | flags::CHECKSUM);
    }

    /// Calls `f` with each segment in order: its first byte and its length, which lie inside a buffer of the packet. For who copies
    /// them by [`copy_shared`](quiver_buffer::copy_shared).
    pub fn for_each_run(&self, mut f: impl FnMut(*const u8, usize)) {
        f(self.data(), self.len());
        if !self.has(flags::CHAINED) {
            return;
        }
        let mut index = self.meta().next;
        while index != NO_BUFFER {
            // SAFETY: chain links name buffers owned with the packet; their segment spans keep F2 (written by `chain`).
            let (meta, start, len) = unsafe {
                let meta = *self.env.meta.add(index as usize);
                let span = Span(meta.segment);
                (meta, self.env.base.add(index as usize * self.env.stride as usize + span.offset()), span.len())
            };
            f(start, len);
            index = meta.next;
        }
    }

    /// Buffers that the packet lies in.
    pub fn segment_count(&self) -> usize {
        let mut count = 0;
        self.for_each_run(|_, _| count += 1);
        count
    }

    /// Where the packet lies, segment by segment, appended to `out`.
    #[inline(always)]
    pub(crate) fn segments(&self, out: &mut Vec<Segment>) {
        let span = self.span();
        out.push(Segment { buffer: self.index, offset: span.offset() as u32, len: span.len() as u32 });
        if self.has(flags::CHAINED) {
            self.rest_of_segments(out);
        }
    }

    #[cold]
    fn rest_of_segments(&self, out: &mut Vec<Segment>) {
        let mut index = self.meta().next;
        while let Some(meta) = self.chain_meta(index) {
            let span = Span(meta.segment);
            out.push(Segment { buffer: index, offset: span.offset() as u32, len: span.len() as u32 });
            index = meta.next;
        }
    }

    /// Copies bytes from `from` on into `to`, across segments; returns how many there were.
    pub fn copy_out(&self, from: usize, to: &mut [u8]) -> usize {
        let (mut skip, mut done) = (from, 0);
        self.for_each_run(|first, len| {
            let start = skip.min(len);
            skip -= start;
            let n = (len - start).min(to.len() - done);
            // SAFETY: F2: the run lies inside a buffer of the packet, which this view alone accesses, and start + n is at most its
            // length.
            unsafe { memory::copy::<M>(to[done..done + n].as_mut_ptr(), first.add(start), n) };
            done += n;
        });
        done
    }

    /// Drops the packet for a counted reason of this node.
    #[inline(always)]
    pub fn drop<D: DropReasons>(&mut self, reason: D) -> Verdict {
        self.set_aux(self.env.error_base + u32::from(reason.index()));
        Verdict::DROP
    }

    /// What to put in the aux lane to drop for this reason: for nodes that select between dropping and forwarding without a
    /// branch.
    #[inline(always)]
    pub fn drop_code<D: DropReasons>(&self, reason: D) -> u32 {
        self.env.error_base + u32::from(reason.index())
    }

    /// Takes the packet out of the frame: the caller owns it now and must send or free it.
    pub fn take(self) -> (Packet<M>, Verdict) {
        let packet = self.copy_lanes();
        // SAFETY: lane pointers are live (see `put_span`); marking the lane ends the frame's ownership (F1).
        unsafe {
            *self.lanes.index = crate::frame::TAKEN;
            // A view of an owned packet counts nowhere: that packet is simply empty from now on.
            if !self.lanes.taken.is_null() {
                *self.lanes.taken += 1;
            }
        }
        (packet, Verdict::DROP)
    }

    #[inline(always)]
    pub(crate) fn prefetch_header(&self) {
        prefetch(self.data());
    }

    /// Fetches the metadata line ahead of its use.
    #[inline(always)]
    pub fn prefetch_meta(&self) {
        // SAFETY: F2 and R1; only the address is used.
        prefetch(unsafe { self.env.meta.add(self.index as usize) }.cast());
    }
}

impl Pkt<'_, Private> {
    /// Bytes of the first segment.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: F2: offset + length lie inside the buffer; the memory is private, and the borrow keeps other access through this
        // view away.
        unsafe { std::slice::from_raw_parts(self.data(), self.len()) }
    }

    /// Bytes of the first segment, to be changed.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the view is the only access to the buffer's bytes.
        unsafe { std::slice::from_raw_parts_mut(self.data(), self.len()) }
    }

    /// Calls `f` with each segment's bytes in order.
    pub fn for_each_segment(&self, mut f: impl FnMut(&[u8])) {
        // SAFETY: the run lies inside a buffer of the packet; the memory is private, and this view is the only access to it.
        self.for_each_run(|first, len| f(unsafe { std::slice::from_raw_parts(first, len) }));
    }
}

/// Brings the line of `address` towards the L1 cache; without effect on memory, valid for any address.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing architecturally and faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address.cast(), std::arch::x86_64::_MM_HINT_T0)
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// A packet that a node holds outside of any frame (reassembly, pending neighbour, newly made).
///
/// It is the owner of its buffers: give it back by [`crate::NodeCx::emit`] or [`crate::NodeCx::free`]. Dropping it instead
/// leaks its buffers, which the tests' pool check finds.
#[must_use = "a packet must be emitted or freed"]
#[derive(Debug)]
pub struct Packet<M = Private> {
    pub(crate) index: u32,
    pub(crate) span: u32,
    pub(crate) context: u32,
    pub(crate) aux: u32,
    memory: PhantomData<M>,
}

impl<M: Memory> Packet<M> {
    /// A packet of these lanes. Its memory is what `M` tells: that is the caller's to see to.
    #[inline(always)]
    pub(crate) fn new(index: u32, span: u32, context: u32, aux: u32) -> Self {
        Self { index, span, context, aux, memory: PhantomData }
    }

    /// The packet for who takes it in any memory.
    #[inline(always)]
    pub(crate) fn any(self) -> Packet<Shared> {
        Packet::new(self.index, self.span, self.context, self.aux)
    }
}
