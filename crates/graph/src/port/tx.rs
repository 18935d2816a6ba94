//! Sending: a device's queue, the vector that it takes packets from, and the last node of an interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_buffer::Cache;

use super::Segment;
use crate::capture::CapturePoint;
use crate::context::NodeCx;
use crate::drop_reasons;
use crate::frame::{Frame, IfIndex, Span, flags};
use crate::hold::Hold;
use crate::memory::{Memory, Private, Shared};
use crate::node::{NoNext, VectorNode};
use crate::packet::Pkt;

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
impl NodeCx<'_> {
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
