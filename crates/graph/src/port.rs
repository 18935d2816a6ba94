//! The port contract: what a device driver is to the graph, and the nodes that run any driver.
//!
//! ```text
//!   RxQueue::rx ──► DeviceInput node (one per driver kind and worker, polls the queues placed there) ──► ethernet-input
//!   …-output ──► DeviceTx node (one per interface and worker) ──► TxQueue::tx
//! ```
//!
//! A queue belongs to one worker at a time and is moved by the main thread, at any time between two calls; it must not mind on
//! which thread it is called next. Workers come and go: [`Port::open_tx`] is called for a thread that joins, and the queue of one
//! that leaves is dropped; the same thread number may come again. How a queue waits for packets is its [`RxMode`]. What a device cannot take is dropped and counted
//! by the tx node; a driver never waits. A device that dies answers [`RxState::Down`] and takes nothing; the control side
//! re-opens it.

mod watch;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_buffer::{Cache, HEADROOM};

use crate::capture::CapturePoint;
use crate::chain;
use crate::context::NodeCx;
use crate::drop_reasons;
use crate::feature::ArcPoint;
use crate::frame::{Frame, IF_MASK, IfIndex, Span, flags};
use crate::hold::Hold;
use crate::memory::{Memory, Private, Shared};
use crate::node::{Idle, InputNode, NextNodes, NoDrops, NoNext, SHARE, VectorNode, Verdict};
use crate::packet::Pkt;
use watch::Watch;

/// What a device says about itself after a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxState {
    /// In order.
    Up,
    /// The device is gone or its link is down; nothing was received.
    Down,
}

/// A run of packet bytes in a buffer, for devices that work on packet memory itself. Its layout is C's, for drivers that are
/// partly in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// The buffer.
    pub buffer: u32,
    /// Bytes from the start of its headroom to the data.
    pub offset: u32,
    /// Bytes of data.
    pub len: u32,
}

/// Receiving side of a vector: drivers append packets.
pub struct RxBurst<'a, 'c> {
    cx: &'a mut NodeCx<'c>,
    frame: &'a mut Frame<Shared>,
    interface: IfIndex,
    bytes: u64,
}

impl RxBurst<'_, '_> {
    /// Packets that still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.cx.vector_size().saturating_sub(self.frame.len())
    }

    /// Copies a packet in (chained where one buffer is too small). `false` when there was no room or no buffer; a missing
    /// buffer is counted, so the driver just goes on.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.push_parts(&[bytes])
    }

    /// Copies a packet in from several byte runs.
    pub fn push_parts(&mut self, parts: &[&[u8]]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let Some(packet) = self.cx.alloc_parts(parts, self.interface) else { return false };
        self.frame.append(&packet.any());
        self.bytes += parts.iter().map(|p| p.len() as u64).sum::<u64>();
        true
    }

    /// Receives up to `wanted` packets of one buffer each, for drivers whose packets wait in a ring: `fill` gets the number of
    /// the packet and a buffer's data area, writes the packet there and returns its length, or `None` to end before it.
    /// Returns how many were received; a missing buffer is counted, and its packet stays with the driver.
    #[inline(always)]
    pub fn push_many(&mut self, wanted: usize, fill: impl FnMut(usize, &mut [MaybeUninit<u8>]) -> Option<usize>) -> usize {
        let (n, bytes) = self.cx.push_many(self.frame, wanted, self.interface, fill);
        self.bytes += bytes;
        n
    }

    /// Bytes of a packet that fit into one buffer.
    pub fn single_max(&self) -> usize {
        self.cx.env.data_end as usize - HEADROOM
    }

    /// [`RxBurst::push_parts`] for runs that another process may write to at the same time: then the bytes copied are any
    /// mixture.
    ///
    /// # Safety
    /// Each run is mapped and readable during the call.
    pub unsafe fn push_raw(&mut self, runs: &[(*const u8, usize)]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let env = self.cx.env;
        // SAFETY: the caller's promise is that of `build`.
        let Some(packet) = (unsafe { chain::build(self.cx.core, env, runs, self.interface) }) else { return false };
        self.frame.append(&packet.any());
        self.bytes += runs.iter().map(|(_, len)| *len as u64).sum::<u64>();
        true
    }

    /// Copies a packet in whose layer-4 checksum is unfinished: to be summed from `start`, stored `offset` bytes further.
    pub fn push_unfinished(&mut self, parts: &[&[u8]], start: u16, offset: u16) -> bool {
        if !self.push_parts(parts) {
            return false;
        }
        let env = self.cx.env;
        // SAFETY: the lane was just written, and the frame is exclusively borrowed.
        unsafe { Pkt::of_lane(self.frame, self.frame.len - 1, &env) }.set_unfinished_checksum(start, offset);
        true
    }

    /// Takes up to `wanted` free buffers for a device to fill, appended to `out`; returns how many there were. They are the
    /// driver's until it gives them back by [`RxBurst::adopt`], [`RxBurst::give_back`] or [`quiver_buffer::Pool::give`].
    pub fn take_buffers(&mut self, wanted: usize, out: &mut Vec<u32>) -> usize {
        self.cx.core.cache.alloc_bulk(wanted, out)
    }

    /// Gives buffers back that the device did not fill, or has sent.
    ///
    /// # Safety
    /// The caller owns them, nobody else writes them any more, and it forgets them.
    pub unsafe fn give_back(&mut self, buffers: &[u32]) {
        self.cx.core.cache.free_bulk(buffers);
    }

    /// The free buffers of this thread, for drivers whose library takes and gives buffers by itself.
    pub fn cache(&mut self) -> &mut Cache {
        &mut self.cx.core.cache
    }

    /// Appends a packet where it lies: in buffers that the device has filled. `false` (and nothing done) when there is no
    /// room, no segment, or one that does not lie within its buffer's data area.
    ///
    /// # Safety
    /// The caller owns the buffers, each named once, nobody else writes them any more (but a peer, where they are of a
    /// [`quiver_buffer::SharedPool`]); after `true` it forgets them.
    #[inline(always)]
    pub unsafe fn adopt(&mut self, segments: &[Segment]) -> bool {
        let env = self.cx.env;
        let fits = |s: &Segment| s.offset.checked_add(s.len).is_some_and(|end| end <= env.data_end);
        if self.room() == 0 || !segments.iter().all(fits) {
            return false;
        }
        // SAFETY: the caller's promise; every segment ends within the data area (checked above).
        let Some((packet, bytes)) = (unsafe { chain::adopt(env, segments, self.interface) }) else { return false };
        self.frame.append(&packet);
        self.bytes += bytes;
        true
    }

    /// Counts packets that the device itself lost.
    pub fn missed(&mut self, n: u64) {
        let thread = self.cx.thread();
        self.cx.interfaces().rx_miss.add(thread, self.interface.0, n);
    }

    /// Counts packets that came in damaged.
    pub fn damaged(&mut self, n: u64) {
        let thread = self.cx.thread();
        self.cx.interfaces().rx_error.add(thread, self.interface.0, n);
    }

    /// ns of the router's clock.
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
}

impl NodeCx<'_> {
    /// Appends up to `wanted` new packets of one buffer each to a frame, as far as there is room in the vector: `fill` gets the
    /// number of the packet and a buffer's data area, writes the packet there and returns its length, or `None` to end before
    /// it. Returns packets and bytes; a missing buffer is counted.
    #[inline(always)]
    pub fn push_many<M: Memory>(
        &mut self,
        frame: &mut Frame<M>,
        wanted: usize,
        rx_if: IfIndex,
        mut fill: impl FnMut(usize, &mut [MaybeUninit<u8>]) -> Option<usize>,
    ) -> (usize, u64) {
        let (from, wanted) = (frame.len, wanted.min(self.vector_size().saturating_sub(frame.len)));
        let got = self.core.cache.alloc_into(&mut frame.index[from..from + wanted]);
        if got < wanted {
            self.no_buffer(rx_if, (wanted - got) as u64);
        }
        let env = self.env;
        let room = env.data_end as usize - HEADROOM;
        let (mut n, mut bytes) = (0, 0);
        for (index, span) in frame.index[from..from + got].iter().zip(&mut frame.span[from..]) {
            // SAFETY: the index was handed out above, so the buffer lies in the region (R2) and is ours alone; HEADROOM + room
            // is the end of its data area.
            let area = unsafe {
                let first = env.base.add(*index as usize * env.stride as usize + HEADROOM);
                std::slice::from_raw_parts_mut(first.cast::<MaybeUninit<u8>>(), room)
            };
            let Some(len) = fill(n, area) else { break };
            let len = len.min(room);
            *span = Span::new(HEADROOM as u32, len as u32).0;
            bytes += len as u64;
            n += 1;
        }
        frame.context[from..from + n].fill(rx_if.0 & IF_MASK);
        frame.aux[from..from + n].fill(0);
        frame.len = from + n;
        if n < got {
            // Lanes past the end keep these indices, which are valid ones (F2).
            self.core.cache.free_bulk(&frame.index[from + n..from + got]);
        }
        (n, bytes)
    }

    /// Hands a frame to a device's queue, for input nodes that keep what the device does not take and offer it again: what it
    /// took is counted as sent and gone from the frame, what it refused for good is dropped and counted, the rest stays in the
    /// frame in its order. Returns the packets sent and refused, and why the rest was not taken.
    pub fn transmit<M: Memory>(&mut self, frame: &mut Frame<M>, interface: IfIndex, queue: &mut dyn TxQueue) -> Transmitted {
        let frame = frame.any();
        if queue.as_shared().is_none() {
            self.own(frame);
        }
        let (mut refused, before) = (Vec::new(), frame.len);
        let (taken, reason) = hand_over(self, frame, interface, queue, &mut refused);
        self.consume(frame, taken, reason);
        if !refused.is_empty() {
            self.interfaces().tx_error.add(self.thread(), interface.0, refused.len() as u64);
        }
        Transmitted { sent: before - frame.len - refused.len(), refused: refused.len(), reason }
    }
}

/// What became of a frame that was handed to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmitted {
    /// Packets sent.
    pub sent: usize,
    /// Packets dropped because the device can never send them.
    pub refused: usize,
    /// Why the device did not take what is left, where something is left.
    pub reason: TxDrop,
}

/// Hands a frame to a queue and counts what it sent. Packets that the queue keeps or refuses are gone from the frame; those
/// that it has copied are the first ones left, and their number is returned.
fn hand_over(
    cx: &mut NodeCx<'_>,
    frame: &mut Frame<Shared>,
    interface: IfIndex,
    queue: &mut dyn TxQueue,
    refused: &mut Vec<(usize, TxDrop)>,
) -> (usize, TxDrop) {
    let (mut taken, reason, (kept, kept_bytes)) = match queue.as_shared() {
        Some(queue) => TxBatch::new(cx, frame, interface, refused).run(|batch| queue.tx(batch)),
        None => {
            cx.own(frame);
            // SAFETY: F3: what lay in shared memory has just been copied.
            TxBatch::new(cx, unsafe { frame.of_memory() }, interface, refused).run(|batch| queue.tx(batch))
        }
    };
    let (thread, n) = (cx.thread(), frame.len());
    // Refused after the last one taken: it is one of those left.
    refused.retain(|(i, _)| *i < taken);
    if kept == n {
        // All lanes are marked: nothing is left to drop or free.
        frame.forget_taken();
        taken = 0;
    } else if kept > 0 || !refused.is_empty() {
        taken -= cx.drop_some(frame, refused, taken) + kept.min(taken);
    }
    if kept > 0 {
        cx.core.interfaces.tx.add(thread, interface.0, kept as u64, kept_bytes);
    }
    if taken > 0 {
        let chained = frame.context[..taken].iter().fold(0, |a, c| a | c) & flags::CHAINED != 0;
        let mut sent = 0;
        if chained || cx.core.captures.active() {
            for i in 0..taken {
                // SAFETY: i < len, and the frame is exclusively borrowed.
                let packet = unsafe { Pkt::of_lane(frame, i, &cx.env) };
                sent += packet.total_len() as u64;
                if cx.core.captures.active() {
                    let now = cx.core.now;
                    cx.core.captures.copy(CapturePoint::Tx, interface, now, &packet);
                }
            }
        } else {
            sent = frame.span[..taken].iter().map(|s| u64::from(s & 0xffff)).sum();
        }
        cx.core.interfaces.tx.add(thread, interface.0, taken as u64, sent);
    }
    (taken, reason)
}

/// One receive queue of a device.
pub trait RxQueue: Send {
    /// Appends what is there, until [`RxBurst::room`] is 0.
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState;

    /// Arms the device's event before the thread sleeps; `false` when packets are there already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Descriptor that becomes readable when packets arrive; `None`: the queue must be polled.
    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    /// Looking for packets is a system call, and [`RxQueue::event_fd`] stays readable while packets wait in the device. Where there are
    /// several such queues, the kernel is asked once which of them have packets, and the others are left alone.
    fn asks_by_call(&self) -> bool {
        false
    }

    /// Throws away what waits: the interface comes up and must not deliver what arrived while it was down.
    fn discard(&mut self) {}

    /// Takes up what [`Port::refresh`] has re-opened; the event descriptor may be another one afterwards.
    fn renew(&mut self) {}

    /// Receives for the first time in a process that takes over from another one, which stopped receiving at `since` (ns of the
    /// kernel's wall clock): what arrived before was the other one's.
    fn begin(&mut self, _since: u64) {
        self.discard();
    }
}

/// Sending side of a vector.
pub struct TxBatch<'a, 'c, M = Private> {
    cx: &'a mut NodeCx<'c>,
    frame: &'a mut Frame<M>,
    refused: &'a mut Vec<(usize, TxDrop)>,
    reason: TxDrop,
    interface: IfIndex,
    /// Packets and bytes that the device has kept.
    kept: (usize, u64),
}

impl<'a, 'c, M: Memory> TxBatch<'a, 'c, M> {
    fn new(cx: &'a mut NodeCx<'c>, frame: &'a mut Frame<M>, interface: IfIndex, refused: &'a mut Vec<(usize, TxDrop)>) -> Self {
        Self { cx, frame, refused, reason: TxDrop::NoRoom, interface, kept: (0, 0) }
    }

    /// Hands the packets to a queue: how many it took, why not the others, and packets and bytes that it has kept.
    fn run(mut self, tx: impl FnOnce(&mut Self) -> usize) -> (usize, TxDrop, (usize, u64)) {
        let taken = tx(&mut self).min(self.frame.len());
        (taken, self.reason, self.kept)
    }

    /// Packets to send.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Packet `i`: its bytes by [`Pkt::bytes`] or [`Pkt::for_each_segment`], where they are private, or by [`Pkt::copy_out`].
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    pub fn packet(&mut self, i: usize) -> Pkt<'_, M> {
        self.cx.packet(self.frame, i)
    }

    /// First byte and length of packet `i` where it lies in one buffer and can go out as it is; `None` where it goes over several
    /// buffers or its checksum is unfinished. For who copies it by [`copy_shared`](quiver_buffer::copy_shared).
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    #[inline(always)]
    pub fn run_of(&mut self, i: usize) -> Option<(*const u8, usize)> {
        assert!(i < self.frame.len);
        if self.frame.context[i] & (flags::CHAINED | flags::CHECKSUM) != 0 {
            return None;
        }
        let (index, span) = (self.frame.index[i], Span(self.frame.span[i]));
        let env = &self.cx.env;
        // SAFETY: F2: the index is below the capacity and the span inside the buffer.
        Some(unsafe { (env.base.add(index as usize * env.stride as usize + span.offset()).cast_const(), span.len()) })
    }

    /// Number of the first buffer of packet `i`.
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    #[inline(always)]
    pub fn buffer(&self, i: usize) -> u32 {
        assert!(i < self.frame.len);
        self.frame.index[i]
    }

    /// Notes that packet `i` can never be sent: it is dropped for this reason, and counts among those taken. In ascending
    /// order of `i`.
    pub fn refuse(&mut self, i: usize, reason: TxDrop) {
        debug_assert!(i < self.frame.len() && self.refused.last().is_none_or(|(last, _)| *last < i));
        self.refused.push((i, reason));
    }

    /// Hands packet `i` to the device as it lies: its segments are appended to `out`, and their buffers (also those of empty
    /// segments) are the driver's from now on, to be given back by [`TxBatch::give_back`] or [`quiver_buffer::Pool::give`].
    /// The packet counts among those taken; it must not be looked at again.
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    #[inline(always)]
    pub fn keep(&mut self, i: usize, out: &mut Vec<Segment>) {
        assert!(i < self.frame.len());
        if self.cx.core.trace.live() {
            self.cx.trace_one(self.frame.any(), i);
        }
        // SAFETY: i < len, and the frame is exclusively borrowed.
        let packet = unsafe { Pkt::of_lane(self.frame.any(), i, &self.cx.env) };
        if self.cx.core.captures.active() {
            let now = self.cx.core.now;
            self.cx.core.captures.copy(CapturePoint::Tx, self.interface, now, &packet);
        }
        self.kept.0 += 1;
        self.kept.1 += packet.total_len() as u64;
        packet.segments(out);
        // Marks the lane: from here on the buffers are the driver's.
        let _ = packet.take();
    }

    /// Undoes [`TxBatch::keep`] for a packet that the device did not take after all; `first` is the buffer of its first segment.
    ///
    /// # Safety
    /// Packet `i` was kept in this batch with that buffer, and its buffers, meanwhile unchanged, are still the caller's.
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    #[cold]
    pub unsafe fn take_back(&mut self, i: usize, first: u32) {
        assert!(i < self.frame.len());
        // The other lanes are as they were.
        self.frame.index[i] = first;
        self.frame.taken -= 1;
        let len = self.packet(i).total_len() as u64;
        self.kept = (self.kept.0 - 1, self.kept.1 - len);
    }

    /// The free buffers of this thread, for drivers whose library takes and gives buffers by itself.
    pub fn cache(&mut self) -> &mut Cache {
        &mut self.cx.core.cache
    }

    /// Gives buffers back that the device has sent.
    ///
    /// # Safety
    /// The caller owns them, nobody else writes them any more, and it forgets them.
    pub unsafe fn give_back(&mut self, buffers: &[u32]) {
        self.cx.core.cache.free_bulk(buffers);
    }

    /// Why the packets that are not taken are dropped; [`TxDrop::NoRoom`] unless said.
    pub fn set_reason(&mut self, reason: TxDrop) {
        self.reason = reason;
    }

    /// ns of the router's clock.
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
}

impl TxBatch<'_, '_, Private> {
    /// Bytes of packet `i` where they lie in one buffer and can go out as they are; `None` where it goes over several buffers
    /// or its checksum is unfinished.
    ///
    /// # Panics
    /// Where `i` is not below [`TxBatch::len`].
    #[inline(always)]
    pub fn single(&mut self, i: usize) -> Option<&[u8]> {
        // SAFETY: the run lies inside the packet's buffer, whose memory is private (F3); F1 and the borrow of the batch keep other
        // access to these bytes away.
        self.run_of(i).map(|(first, len)| unsafe { std::slice::from_raw_parts(first, len) })
    }
}

/// One transmit queue of a device, owned by one worker. To it packets come in private memory; a [`SharedTxQueue`] takes them as they lie.
pub trait TxQueue: Send {
    /// Copies packets to the device in order and returns how many it took, [refused](TxBatch::refuse) ones included; the rest
    /// stays with the caller.
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize;

    /// The queue, where it is a [`SharedTxQueue`].
    fn as_shared(&mut self) -> Option<&mut dyn SharedTxQueue> {
        None
    }
}

/// A transmit queue that also takes packets in memory of a [`quiver_buffer::SharedPool`], which a peer changes meanwhile.
pub trait SharedTxQueue: Send {
    /// As [`TxQueue::tx`].
    fn tx(&mut self, batch: &mut TxBatch<'_, '_, Shared>) -> usize;
}

impl<Q: SharedTxQueue> TxQueue for Q {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let TxBatch { cx, frame, refused, reason, interface, kept } = batch;
        let mut any = TxBatch { cx, frame: frame.any(), refused, reason: *reason, interface: *interface, kept: *kept };
        let taken = SharedTxQueue::tx(self, &mut any);
        (*reason, *kept) = (any.reason, any.kept);
        taken
    }

    fn as_shared(&mut self) -> Option<&mut dyn SharedTxQueue> {
        Some(self)
    }
}

/// State of a device's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it carries.
    pub up: bool,
    /// Bits a second, where the device knows.
    pub speed: Option<u64>,
}

/// What a device is at one moment, as [`Port::refresh`] finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// There is such a device.
    pub present: bool,
    /// Its link.
    pub link: Link,
    /// Hardware address that the interface has, where it has one.
    pub mac: Option<[u8; 6]>,
    /// Largest frame, bytes without FCS.
    pub max_frame: usize,
    /// The device was opened anew: queues must [take it up](DeviceInput::renew).
    pub reopened: bool,
}

/// A device: opened by its driver, taken apart into queues by the control side.
pub trait Port {
    /// Name of the input node that polls its queues, such as `af-packet-input`.
    fn input_node(&self) -> &'static str;

    /// Takes the receive queues out, all that the device has.
    ///
    /// # Errors
    /// The operating system's.
    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>>;

    /// A transmit queue for a thread.
    ///
    /// # Errors
    /// The operating system's.
    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>>;

    /// Link state now.
    fn link(&mut self) -> Link;

    /// Hardware address, where the device has one.
    fn mac(&self) -> Option<[u8; 6]>;

    /// What tells the device from others on its link: the hardware address, or bytes like one that the driver has drawn. The interface's
    /// link-local IPv6 address follows from it. All zeroes where there is nothing.
    fn identity(&self) -> [u8; 6] {
        self.mac().unwrap_or_default()
    }

    /// Largest frame that the device takes, bytes without FCS.
    fn max_frame(&self) -> usize;

    /// Descriptor that becomes readable when the device may have changed: call [`Port::refresh`] then. `None`: a watch of
    /// the driver's tells.
    fn link_fd(&self) -> Option<RawFd> {
        None
    }

    /// Looks at the device again after something has changed, and opens it anew where it had gone and is back. Queues keep
    /// their places; where `reopened` is set, the caller has each thread call [`DeviceInput::renew`].
    ///
    /// # Errors
    /// The device is there but cannot be opened.
    fn refresh(&mut self) -> io::Result<PortState> {
        let link = self.link();
        Ok(PortState { present: true, link, mac: self.mac(), max_frame: self.max_frame(), reopened: false })
    }

    /// Takes the device up or down with its interface, where the device has such a state.
    ///
    /// # Errors
    /// The operating system's.
    fn set_up(&mut self, _up: bool) -> io::Result<()> {
        Ok(())
    }

    /// NUMA node that the device is attached to, where it is known: its queues go to workers of that node.
    fn numa(&self) -> Option<usize> {
        None
    }

    /// Zeroes the counters that the device itself keeps, where it does.
    fn clear_counters(&mut self) {}

    /// Further lines for `show hardware-interfaces`.
    fn describe(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the device is made of, with a key by which the next process asks for it: for a device that cannot be opened twice, and
    /// whose state must not be lost. `None`: the next process opens it itself.
    ///
    /// # Errors
    /// No descriptors are left.
    fn descriptors(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        Ok(None)
    }

    /// The process before this one has stopped: from now on the device is this one's.
    ///
    /// # Errors
    /// The operating system's.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The driver's own type, for a `show` of that driver.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }

    /// The same, for what can be changed of that driver's devices alone.
    fn as_any_mut(&mut self) -> Option<&mut dyn std::any::Any> {
        None
    }
}

/// Where received frames go: the `device-input` arc decides by interface; its end is `ethernet-input` (or an IP input node
/// for interfaces without a link layer).
#[derive(Clone, Copy, Debug)]
pub enum DeviceNext {
    /// Parse the link layer.
    Ethernet,
}

impl NextNodes for DeviceNext {
    const NAMES: &'static [&'static str] = &["ethernet-input"];
    fn slot(self) -> u16 {
        1
    }
}

/// A queue placed on a worker.
pub struct PlacedQueue {
    /// Interface that it receives for.
    pub interface: IfIndex,
    /// Number of the queue on that interface.
    pub queue: u16,
    /// Where its packets go unless a feature takes them.
    pub next: Verdict,
    /// Administratively up: a queue that is down is not polled.
    pub up: bool,
    /// The driver's part.
    pub rx: Box<dyn RxQueue>,
}

/// How a thread learns of a queue's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxMode {
    /// The queue is polled without end: the shortest latency, for a whole core.
    Polling,
    /// The thread sleeps as soon as the queue is empty, until the device's event.
    Interrupt,
    /// The thread polls while packets come and for a while after the last one, then sleeps until the device's event.
    #[default]
    Adaptive,
}

impl RxMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Polling, Self::Interrupt, Self::Adaptive];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Interrupt => "interrupt",
            Self::Adaptive => "adaptive",
        }
    }
}

/// A queue at its place.
struct Placed {
    queue: PlacedQueue,
    mode: RxMode,
    /// It may have packets: its device must be asked.
    ready: bool,
    /// See [`Watch`].
    number: u64,
}

/// A queue between two threads: what waits in it and how it is used stay as they are.
pub struct MovingQueue(Placed);

/// Input node of a driver kind.
pub struct DeviceInput {
    queues: Vec<Placed>,
    /// The queue whose turn it is, where those before it brought in enough for one go.
    turn: usize,
    /// Tells which queues have packets, where asking each would be a system call.
    watch: Watch,
    arc: ArcPoint,
}

impl DeviceInput {
    /// A node without queues; `arc` is its point on the `device-input` arc.
    pub fn new(arc: ArcPoint) -> Self {
        Self { queues: Vec::new(), turn: 0, watch: Watch::default(), arc }
    }

    /// Places a new queue here, in the mode that all start with. What waits in it from before is thrown away.
    pub fn place(&mut self, mut queue: PlacedQueue) {
        if queue.up {
            queue.rx.discard();
        }
        self.put(Placed { queue, mode: RxMode::default(), ready: true, number: 0 });
    }

    fn put(&mut self, placed: Placed) {
        let placed = Placed { ready: true, number: self.watch.number(), ..placed };
        if placed.queue.up {
            self.watch.add(&placed);
        }
        self.queues.push(placed);
    }

    /// Takes a queue away, to close it.
    pub fn unplace(&mut self, interface: IfIndex, queue: u16) -> Option<PlacedQueue> {
        self.take(interface, queue).map(|moving| moving.0.queue)
    }

    /// Takes a queue away, for [`DeviceInput::adopt`] on another thread.
    pub fn take(&mut self, interface: IfIndex, queue: u16) -> Option<MovingQueue> {
        let at = self.queues.iter().position(|p| p.queue.interface == interface && p.queue.queue == queue)?;
        let placed = self.queues.remove(at);
        self.watch.remove(&placed);
        Some(MovingQueue(placed))
    }

    /// Takes over a queue from another thread, with what waits in it.
    pub fn adopt(&mut self, queue: MovingQueue) {
        self.put(queue.0);
    }

    fn of(&mut self, interface: IfIndex) -> impl Iterator<Item = &mut Placed> {
        self.queues.iter_mut().filter(move |p| p.queue.interface == interface)
    }

    /// Sets how a queue waits for packets. `false` and no change where there is no such queue here, or its device has no events
    /// to wait for.
    pub fn set_mode(&mut self, interface: IfIndex, queue: u16, mode: RxMode) -> bool {
        let Some(placed) = self.of(interface).find(|p| p.queue.queue == queue) else { return false };
        if mode != RxMode::Polling && placed.queue.rx.event_fd().is_none() {
            return false;
        }
        placed.mode = mode;
        true
    }

    /// Switches an interface's queues on or off.
    pub fn set_up(&mut self, interface: IfIndex, up: bool) {
        for placed in self.queues.iter_mut().filter(|placed| placed.queue.interface == interface && placed.queue.up != up) {
            placed.queue.up = up;
            if up {
                placed.queue.rx.discard();
                placed.ready = true;
                self.watch.add(placed);
            } else {
                self.watch.remove(placed);
            }
        }
    }

    /// Has an interface's queues take up a device that was opened anew. Reach this node by [`crate::Worker::input`], which
    /// has the thread look at the event descriptors again.
    pub fn renew(&mut self, interface: IfIndex) {
        self.of(interface).for_each(|placed| placed.queue.rx.renew());
        self.watch.renew();
    }

    /// Interfaces and queue numbers placed here.
    pub fn placed(&self) -> Vec<(IfIndex, u16)> {
        self.queues.iter().map(|p| (p.queue.interface, p.queue.queue)).collect()
    }

    fn up(&self) -> impl Iterator<Item = &Placed> {
        self.queues.iter().filter(|p| p.queue.up)
    }
}

impl InputNode for DeviceInput {
    type Next = DeviceNext;
    type Drop = NoDrops;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut packets = 0;
        // A frame that stays empty is the next queue's: most queues bring nothing most of the time.
        let mut frame = cx.core.queue.new_frame();
        let first = std::mem::take(&mut self.turn);
        let watched = self.watch.look(&mut self.queues);
        for (at, Placed { queue, ready, .. }) in
            self.queues.iter_mut().enumerate().skip(first).filter(|(_, p)| p.queue.up && p.ready)
        {
            let mut burst = RxBurst { cx, frame: &mut frame, interface: queue.interface, bytes: 0 };
            let _ = queue.rx.rx(&mut burst);
            let bytes = burst.bytes;
            let n = frame.len();
            if n == 0 {
                *ready = !watched;
                continue;
            }
            packets += n;
            let thread = cx.thread();
            cx.core.interfaces.rx.add(thread, queue.interface.0, n as u64, bytes);
            cx.capture_received(&mut frame, queue.interface);
            let empty = cx.core.queue.new_frame();
            cx.send(self.arc.next(queue.interface, queue.next), std::mem::replace(&mut frame, empty));
            if packets >= SHARE {
                self.turn = (at + 1) % self.queues.len();
                break;
            }
        }
        cx.recycle(frame);
        packets
    }

    fn unfinished(&self) -> bool {
        // Queues that are taken away meanwhile shorten the list.
        (1..self.queues.len()).contains(&self.turn)
    }

    fn arm(&mut self, _now: u64) -> Idle {
        // One that must be polled keeps the thread awake, so none need be armed.
        if self.up().any(|p| p.mode == RxMode::Polling || p.queue.rx.event_fd().is_none()) {
            return Idle::Busy;
        }
        // Every queue is armed, also past the first that is ready, so that none depends on the order.
        let mut idle = Idle::Sleep { until: None };
        for Placed { queue, .. } in self.queues.iter_mut().filter(|p| p.queue.up) {
            if !queue.rx.arm() {
                idle = Idle::Busy;
            }
        }
        idle
    }

    fn spins(&self) -> Option<bool> {
        let mut queues = self.up().peekable();
        queues.peek()?;
        Some(queues.any(|p| p.mode != RxMode::Interrupt))
    }

    fn event_fds(&self, fds: &mut Vec<RawFd>) {
        match self.watch.fd() {
            Some(fd) => fds.push(fd),
            None => fds.extend(self.up().filter_map(|p| p.queue.rx.event_fd())),
        }
    }

    fn discard(&mut self) {
        self.queues.iter_mut().filter(|p| p.queue.up).for_each(|p| p.queue.rx.discard());
    }

    fn begin(&mut self, since: u64) {
        self.queues.iter_mut().filter(|p| p.queue.up).for_each(|p| p.queue.rx.begin(since));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

drop_reasons! {
    /// Why a device's tx node drops.
    pub enum TxDrop {
        /// The device's transmit queue is full: packets come faster than the device sends.
        ///
        /// Causes: the link is slower than the traffic; a burst is longer than the ring; the peer of a memif, TAP or veth does not
        /// read; transmit descriptors are few.
        /// Check: compare the rate of the interface with its link. Give the interface more descriptors, or the peer more
        /// processor.
        /// See: `show interface`, `show hardware-interfaces`, `/if/tx-error`.
        NoRoom = "no free tx slots",
        /// The interface is down.
        ///
        /// Causes: the interface was set down while packets for it were on their way.
        /// Check: `show interface`, then `set interface state IF up`.
        /// See: `show interface`, `set interface state IF up`.
        Down = "interface is down",
        /// The thread has no transmit queue of this device.
        ///
        /// Causes: there are more threads than transmit queues.
        /// Check: `show hardware-interfaces` shows the queues; create the interface with more of them.
        /// See: `show hardware-interfaces`, `show threads`.
        NoQueue = "no tx queue",
        /// The device is gone or down.
        ///
        /// Causes: the link is down, a memif peer has disconnected, or Linux' interface was deleted or set down.
        /// Check: `show hardware-interfaces IF` and `show logging`; on Linux, `ip link show`.
        /// See: `show hardware-interfaces`, `show logging`, `show memif`.
        NoDevice = "device is gone or down",
        /// The frame is larger than the device can send.
        ///
        /// Causes: the MTU of the interface is larger than that of the device or of Linux' interface; a super-frame (GSO) for a
        /// device that cannot segment.
        /// Check: `show interface` and `ip link show`: make both MTUs equal (`set interface mtu`).
        /// See: `show interface`, `set interface mtu`.
        TooLarge = "frame is larger than the device takes",
        /// The device's driver did not take the frame.
        ///
        /// Causes: the driver found a descriptor that it cannot send.
        /// Check: `show logging` and `show hardware-interfaces IF` for errors of the driver.
        /// See: `show logging`, `show hardware-interfaces`.
        Refused = "refused by the device",
        /// Another process sends on the device: this one is about to take over from it.
        Held = "held until the restart",
    }
}

/// State that the control side and an interface's tx nodes share.
#[derive(Debug, Default)]
pub struct TxState {
    /// Bit 0: administratively up.
    up: AtomicU64,
}

impl TxState {
    /// Switches sending on or off.
    pub fn set_up(&self, up: bool) {
        self.up.store(u64::from(up), Ordering::Release);
    }

    /// Whether sending is on.
    #[inline(always)]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed) != 0
    }
}

/// Last node of an interface: hands frames to the device's queue.
pub struct DeviceTx {
    interface: IfIndex,
    state: Arc<TxState>,
    queue: Option<Box<dyn TxQueue>>,
    refused: Vec<(usize, TxDrop)>,
}

impl DeviceTx {
    /// The node of one thread. Without a queue everything is dropped, counted.
    pub fn new(interface: IfIndex, state: Arc<TxState>, queue: Option<Box<dyn TxQueue>>) -> Self {
        Self { interface, state, queue, refused: Vec::new() }
    }
}

impl VectorNode<Shared> for DeviceTx {
    type Next = NoNext;
    type Drop = TxDrop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        let thread = cx.thread();
        self.refused.clear();
        let (taken, reason) = match &mut self.queue {
            _ if !self.state.is_up() => (0, TxDrop::Down),
            _ if cx.core.hold == Hold::All => (0, TxDrop::Held),
            None => (0, TxDrop::NoQueue),
            Some(queue) => hand_over(cx, frame, self.interface, &mut **queue, &mut self.refused),
        };
        let errors = frame.len() - taken + self.refused.len();
        if errors > 0 {
            cx.core.interfaces.tx_error.add(thread, self.interface.0, errors as u64);
        }
        cx.consume(frame, taken, reason);
    }
}
