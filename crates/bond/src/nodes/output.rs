//! `<bond>-tx`: packets of a bond leave by one of its members, or by all.

use std::sync::Arc;

use quiver_graph::{IfIndex, InterfaceCounters, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, flags};
use quiver_net::rss::{HashInput, flow_hash, link_hash};

use crate::members::{Masks, Table, Way, Ways};

drop_reasons! {
    /// Why packets do not leave.
    pub enum Drop {
        /// No member of the bond can send: all are down, or there is none.
        ///
        /// Causes: all links of the bond are down; with LACP, the other side has not agreed.
        /// Check: `show bond details` and `show lacp`.
        /// See: `show bond details`, `show lacp`.
        NoMember = "no active member",
        /// No packet buffer was free for the copy to one of the members.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`.
        NoBuffer = "no buffer for a copy",
    }
}

/// How packets are given to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One after the other.
    RoundRobin,
    /// A copy for each.
    Broadcast,
    /// By the MAC addresses.
    L2,
    /// By the flow: with ports, or by addresses alone.
    Flow(HashInput),
}

/// The node. The control side says in the masks which members send; of an active-backup bond that is one.
#[derive(Clone)]
pub struct Output {
    /// The bond.
    pub bond: IfIndex,
    /// How to choose.
    pub choice: Choice,
    /// Of the hash.
    pub seed: u64,
    /// Members.
    pub ways: Snapshot<Ways>,
    /// Those that send.
    pub masks: Arc<Masks>,
    /// Where the bond's packets are counted.
    pub counters: Arc<InterfaceCounters>,
    state: State,
}

/// What a thread's instance keeps.
#[derive(Clone, Default)]
struct State {
    /// The mask that the table was filled by.
    sending: u32,
    filled: bool,
    table: Table,
    /// Where the next packet goes, one after the other.
    next: usize,
    /// Packets and bytes of this vector.
    sum: (u64, u64),
    /// The packet being copied.
    bytes: Vec<u8>,
}

impl Output {
    /// A node of a bond.
    pub fn new(
        bond: IfIndex,
        choice: Choice,
        seed: u64,
        ways: Snapshot<Ways>,
        masks: Arc<Masks>,
        counters: Arc<InterfaceCounters>,
    ) -> Self {
        Self { bond, choice, seed, ways, masks, counters, state: State::default() }
    }

    #[inline(always)]
    fn choose(&mut self, packet: &Pkt<'_>) -> Option<Way> {
        let table = &self.state.table;
        match (table.working(), self.choice) {
            ([], _) => None,
            ([only], _) => Some(*only),
            (_, Choice::L2) => Some(table.of(link_hash(packet.bytes(), self.seed))),
            (_, Choice::Flow(input)) => Some(table.of(flow_hash(packet.bytes(), input, self.seed))),
            (all, Choice::RoundRobin | Choice::Broadcast) => {
                self.state.next += 1;
                if self.state.next >= all.len() {
                    self.state.next = 0;
                }
                all.get(self.state.next).copied()
            }
        }
    }

    /// Sends copies to all members but the last.
    #[inline(never)]
    fn copy(&mut self, cx: &mut NodeCx<'_>, packet: &mut Pkt<'_>) {
        let State { table, bytes, .. } = &mut self.state;
        let Some((_, others)) = table.working().split_last() else { return };
        bytes.clear();
        packet.for_each_segment(|part| bytes.extend_from_slice(part));
        let (partial, context) = (packet.unfinished_checksum(), packet.context() & (flags::LINK_MULTICAST | flags::LOCAL));
        for way in others {
            let Some(mut copy) = cx.alloc_bytes(bytes, packet.rx_if()) else {
                cx.count(Drop::NoBuffer, 1);
                continue;
            };
            let mut view = cx.view(&mut copy);
            view.mark(context);
            view.set_aux(way.interface.0);
            if let Some((start, offset)) = partial {
                view.set_unfinished_checksum(start, offset);
            }
            cx.emit(way.slot, copy);
        }
    }
}

impl Node for Output {
    type Next = NoNext;
    type Drop = Drop;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        let (changed, sending) = (self.ways.refresh(), self.masks.sending());
        if changed || !self.state.filled || sending != self.state.sending {
            self.state.table.fill(self.ways.get(), sending);
            (self.state.filled, self.state.sending) = (true, sending);
        }
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let way = if self.choice == Choice::Broadcast {
            self.copy(cx, &mut packet);
            self.state.table.working().last().copied()
        } else {
            self.choose(&packet)
        };
        let Some(way) = way else { return packet.drop(Drop::NoMember) };
        self.state.sum.0 += 1;
        self.state.sum.1 += packet.total_len() as u64;
        packet.set_aux(way.interface.0);
        way.slot
    }

    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        let (packets, bytes) = std::mem::take(&mut self.state.sum);
        self.counters.tx.add(cx.thread(), self.bond.0, packets, bytes);
    }
}
