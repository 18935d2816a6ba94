//! A vector of packets, as a node sees it.

use std::marker::PhantomData;

use crate::abi::{self, DROP, WINDOW};

/// A vector of packets, for the time of one call.
pub struct Batch<'a> {
    raw: *mut abi::Batch,
    life: PhantomData<&'a mut abi::Batch>,
}

/// Interfaces are the low bits of the context.
const INTERFACE: u32 = (1 << 24) - 1;

impl Batch<'_> {
    /// A vector that the router hands over.
    ///
    /// # Safety
    /// It is one of the router's, and nobody else uses it meanwhile.
    pub unsafe fn new(raw: *mut abi::Batch) -> Self {
        Self { raw, life: PhantomData }
    }

    #[inline(always)]
    fn raw(&self) -> &abi::Batch {
        // SAFETY: of the router, and this view's alone (`new`).
        unsafe { &*self.raw }
    }

    /// Packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.raw().count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time, ns.
    pub fn now(&self) -> u64 {
        self.raw().now
    }

    /// Number of the thread.
    pub fn thread(&self) -> u32 {
        self.raw().thread
    }

    /// A value of a lane.
    ///
    /// # Safety
    /// The lane has a value for each packet.
    #[inline(always)]
    unsafe fn lane<T: Copy>(&self, lane: *const T, packet: usize) -> T {
        assert!(packet < self.len(), "packet {packet} of {}", self.len());
        // SAFETY: below `count`, and the caller's promise.
        unsafe { *lane.add(packet) }
    }

    /// Interface that a packet came in on.
    #[inline(always)]
    pub fn rx_interface(&self, packet: usize) -> u32 {
        self.context(packet) & INTERFACE
    }

    /// That, and the packet's flags.
    #[inline(always)]
    pub fn context(&self, packet: usize) -> u32 {
        // SAFETY: a lane.
        unsafe { self.lane(self.raw().context, packet) }
    }

    /// What the nodes before have noted; on output arcs the interface that the packet leaves by.
    #[inline(always)]
    pub fn note(&self, packet: usize) -> u32 {
        // SAFETY: a lane.
        unsafe { self.lane(self.raw().note, packet) }
    }

    /// The first 64 bytes; what lies behind the packet's end is stale.
    #[inline(always)]
    pub fn window(&self, packet: usize) -> &[u8; WINDOW] {
        // SAFETY: a lane; so many bytes can be read from each packet's start, and nobody else writes them.
        unsafe { &*self.lane(self.raw().head, packet).cast() }
    }

    /// The bytes in the packet's first buffer.
    #[inline(always)]
    pub fn bytes(&self, packet: usize) -> &[u8] {
        // SAFETY: two lanes; the bytes are the packet's, which is ours.
        unsafe {
            std::slice::from_raw_parts(
                self.lane(self.raw().head, packet).cast_const(),
                self.lane(self.raw().length, packet) as usize,
            )
        }
    }

    /// The same, to be written.
    #[inline(always)]
    pub fn bytes_mut(&mut self, packet: usize) -> &mut [u8] {
        // SAFETY: as `bytes`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.lane(self.raw().head, packet), self.lane(self.raw().length, packet) as usize) }
    }

    /// Sends a packet to a next node of this one, by its place in the list, and not on along the arc.
    #[inline(always)]
    pub fn send(&mut self, packet: usize, next: u16) {
        assert!(packet < self.len(), "packet {packet} of {}", self.len());
        // SAFETY: below `count`.
        unsafe { *self.raw().next.add(packet) = next + 1 }
    }

    /// Drops a packet for a reason of this node, by its place in the list.
    #[inline(always)]
    pub fn drop(&mut self, packet: usize, reason: u16) {
        assert!(packet < self.len(), "packet {packet} of {}", self.len());
        // SAFETY: below `count`.
        unsafe {
            *self.raw().next.add(packet) = DROP;
            *self.raw().reason.add(packet) = reason;
        }
    }

    /// Moves the start of a packet: takes `bytes` off the front, or puts so many in front where it is negative. `false`: there are not
    /// so many.
    pub fn shift(&mut self, packet: usize, bytes: i32) -> bool {
        // SAFETY: the router's function on its own batch; it looks at the number itself.
        unsafe { (self.raw().shift)(self.raw, packet as u32, bytes) == 0 }
    }

    /// Counts events by the place of a reason.
    pub fn count(&mut self, reason: u32, events: u64) {
        // SAFETY: as `shift`.
        unsafe { (self.raw().count_events)(self.raw, reason, events) }
    }

    /// Adds to a counter of the plugin, by its place in the list.
    pub fn add(&mut self, counter: u32, index: u32, packets: u64, bytes: u64) {
        // SAFETY: as `shift`.
        unsafe { (self.raw().add)(self.raw, counter, index, packets, bytes) }
    }
}
