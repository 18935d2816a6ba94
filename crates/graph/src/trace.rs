//! Packet trace: what every node made of a packet, kept as bytes and put into words only when shown.

use crate::capture::{Wanted, wants};
use crate::context::{Core, ERROR_DROP, PACKET_LOOP};
use crate::frame::{Frame, IF_MASK, IfIndex, TAKEN, flags};
use crate::memory::Shared;
use crate::packet::{Env, Packet, Pkt};

/// Bytes kept of the packet after each node.
pub const TRACE_BYTES: usize = 128;
/// Most bytes kept of what a node has pulled: an Ethernet header with two tags.
pub(crate) const PULLED_MAX: usize = 22;

/// A packet as one node left it.
#[derive(Clone, Debug)]
pub struct TraceEntry {
    /// The node.
    pub node: u16,
    /// The node it goes to.
    pub next: u16,
    /// ns of the router's clock.
    pub time: u64,
    /// Logical rx interface.
    pub rx_if: IfIndex,
    /// Context flags ([`flags`]).
    pub flags: u32,
    /// Aux lane: drop reason, load-balance, adjacency or tx interface, by the node's convention.
    pub aux: u32,
    /// Length of the whole packet, bytes.
    pub len: usize,
    /// Offset of the data in its buffer: tells how many bytes nodes have pulled or pushed.
    pub offset: usize,
    /// By how much this node has moved the start of the data: bytes pulled, or pushed where it is negative.
    pub moved: isize,
    /// What this node has pulled off the front, as far as a link header goes; empty where it has not.
    pub pulled: Vec<u8>,
    /// Buffer.
    pub buffer: u32,
    /// First bytes from the data offset on.
    pub bytes: Vec<u8>,
}

/// One packet's way.
#[derive(Clone, Debug, Default)]
pub struct TraceRecord {
    /// Stations in order.
    pub entries: Vec<TraceEntry>,
}

/// A packet's trace as far as it went at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceMark {
    /// Which one: no other of this thread has the number, not after `clear trace` either.
    pub trace: u32,
    /// Entries that it had.
    pub entries: usize,
}

/// Packets that are still to be traced.
struct Order {
    /// The input node that brings them in.
    node: u16,
    left: u32,
    /// Only those of which this says yes.
    wanted: Option<Wanted>,
}

/// A worker's traces.
#[derive(Default)]
pub struct TraceBuffer {
    orders: Vec<Order>,
    records: Vec<TraceRecord>,
    /// Handles of an earlier buffer are not ours.
    generation: u32,
}

const SLOT_BITS: u32 = 20;
/// Most packets traced at a time on a worker.
pub const TRACE_MAX: usize = 1 << 16;
/// Most stations kept of one packet (a loop would go on).
const ENTRIES_MAX: usize = 64;
/// Stations kept beyond them: `packet-loop` and `error-drop`.
const ENDS: usize = 2;

impl TraceBuffer {
    /// Traces the next `n` packets that `node` brings in, of those that are `wanted`.
    pub(crate) fn add(&mut self, node: u16, n: u32, wanted: Option<Wanted>) {
        if n > 0 {
            self.orders.push(Order { node, left: n, wanted });
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.orders.clear();
        self.records.clear();
        self.generation = (self.generation + 1) & ((1 << (32 - SLOT_BITS)) - 1);
    }

    pub(crate) fn records(&self) -> &[TraceRecord] {
        &self.records
    }

    #[inline(always)]
    pub(crate) fn armed(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Whether any packet may carry a trace.
    #[inline(always)]
    pub(crate) fn live(&self) -> bool {
        !self.records.is_empty()
    }

    /// Whether packets are traced, or are to be.
    pub(crate) fn is_on(&self) -> bool {
        self.live() || !self.orders.is_empty()
    }

    /// A new trace; gives its number.
    fn open(&mut self) -> u32 {
        self.records.push(TraceRecord::default());
        self.handle(self.records.len() - 1)
    }

    /// The traces by their numbers ([`TraceMark::trace`]).
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &TraceRecord)> {
        self.records.iter().enumerate().map(|(at, record)| (self.handle(at), record))
    }

    /// How far the trace of a packet went; nothing where it is not traced.
    pub(crate) fn mark(&self, packet: &Pkt<'_, Shared>) -> Option<TraceMark> {
        let trace = packet.has(flags::TRACED).then(|| packet.meta().trace)?;
        let entries = self.records.get(self.slot(trace)?)?.entries.len();
        Some(TraceMark { trace, entries })
    }

    fn handle(&self, slot: usize) -> u32 {
        self.generation << SLOT_BITS | slot as u32
    }

    fn slot(&self, handle: u32) -> Option<usize> {
        (handle >> SLOT_BITS == self.generation).then_some((handle & ((1 << SLOT_BITS) - 1)) as usize)
    }
}

/// Starts traces for packets that an input node sends.
#[cold]
pub(crate) fn begin(core: &mut Core, env: &Env, node: u16, next: u16, frame: &mut Frame<Shared>) {
    for i in 0..frame.len {
        if core.trace.records.len() >= TRACE_MAX {
            core.trace.orders.retain(|order| order.node != node);
        }
        if !core.trace.orders.iter().any(|order| order.node == node) {
            break;
        }
        // SAFETY: i < len, and the frame is exclusively borrowed.
        let mut packet = unsafe { Pkt::of_lane(frame, i, env) };
        let asks = |order: &Order| order.node == node && wants(order.wanted.as_ref(), &[], &packet);
        let Some(at) = core.trace.orders.iter().position(asks) else { continue };
        packet.meta_mut().trace = core.trace.open();
        frame.context[i] |= flags::TRACED;
        record_one(core, env, node, next, frame, i);
        let order = &mut core.trace.orders[at];
        order.left -= 1;
        if order.left == 0 {
            core.trace.orders.remove(at);
        }
    }
    core.watch();
}

/// Records what `node` made of the traced packets of a frame.
#[cold]
pub(crate) fn record(core: &mut Core, env: &Env, node: u16, nexts: &[u16], next: &[u16], frame: &mut Frame<Shared>) {
    if frame.flags_any() & flags::TRACED == 0 {
        return;
    }
    for (i, slot) in next.iter().enumerate().take(frame.len) {
        if frame.context[i] & flags::TRACED != 0 && frame.index[i] != TAKEN {
            let to = nexts.get(usize::from(*slot)).copied().unwrap_or(crate::context::NULL_NODE);
            record_one(core, env, node, to, frame, i);
        }
    }
}

/// Starts a trace of a packet that was traced on the thread that handed it over.
#[cold]
pub(crate) fn resume(core: &mut Core, env: &Env, node: u16, next: u16, packet: &mut Packet<Shared>) {
    if core.trace.records.len() >= TRACE_MAX {
        return;
    }
    let handle = core.trace.open();
    core.watch();
    packet.context |= flags::TRACED;
    let mut view = Pkt::of_packet(packet, env);
    view.meta_mut().trace = handle;
    add_entry(core, node, next, &view);
}

/// Records packet `i` of a frame, which ends its way in `node`.
///
/// # Panics
/// Where `i` is not a packet of the frame.
#[cold]
pub(crate) fn record_at(core: &mut Core, env: &Env, node: u16, frame: &mut Frame<Shared>, i: usize) {
    assert!(i < frame.len);
    if frame.context[i] & flags::TRACED != 0 && frame.index[i] != TAKEN {
        record_one(core, env, node, crate::context::NULL_NODE, frame, i);
    }
}

/// Records what `node` made of packet `i` of a frame, if that is traced.
#[cold]
pub(crate) fn record_one(core: &mut Core, env: &Env, node: u16, next: u16, frame: &mut Frame<Shared>, i: usize) {
    // SAFETY: i < len, and the frame is exclusively borrowed.
    let packet = unsafe { Pkt::of_lane(frame, i, env) };
    add_entry(core, node, next, &packet);
}

fn add_entry(core: &mut Core, node: u16, next: u16, packet: &Pkt<'_, Shared>) {
    let Some(record) = core.trace.slot(packet.meta().trace).and_then(|s| core.trace.records.get_mut(s)) else { return };
    // The end of a packet that went round is worth more than its rounds: there is room for it in any case.
    let ends = matches!(node, PACKET_LOOP | ERROR_DROP);
    if record.entries.len() >= ENTRIES_MAX + if ends { ENDS } else { 0 } {
        return;
    }
    let mut bytes = vec![0; packet.total_len().min(TRACE_BYTES)];
    packet.copy_out(0, &mut bytes);
    let offset = packet.span().offset();
    let last = record.entries.last().filter(|last| last.buffer == packet.buffer_index());
    let moved = last.map_or(0, |last| offset as isize - last.offset as isize);
    record.entries.push(TraceEntry {
        node,
        next,
        time: core.now,
        rx_if: IfIndex(packet.context() & IF_MASK),
        flags: packet.context() & !IF_MASK,
        aux: packet.aux(),
        len: packet.total_len(),
        offset,
        moved,
        pulled: packet.before(usize::try_from(moved).unwrap_or(0).min(PULLED_MAX)),
        buffer: packet.buffer_index(),
        bytes,
    });
}
