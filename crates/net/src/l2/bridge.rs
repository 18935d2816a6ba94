//! `l2-bridge`: learns where a frame comes from, and finds where it goes.
//!
//! A vector node: both addresses of a group of packets are hashed and their buckets fetched before the first is looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{Frame, IfIndex, NodeCx, Pkt, Snapshot, VectorNode, Verdict, drop_reasons, next_nodes};
use quiver_wire::ethernet::EtherType;

use super::learn::Teller;
use super::mac::{MacTable, MacValue, key};
use super::port::{PortTable, PortWord, port_flags};

next_nodes! {
    /// Where frames go; output nodes are added at run time.
    pub enum Next { Flood = "l2-flood", Suppress = "l2-arp-term", Bvi = "l2-bvi" }
}

drop_reasons! {
    /// Why frames are dropped, and what is counted of them.
    pub enum Drop {
        NotMember = "interface is in no bridge domain",
        GroupSource = "source address is a group or zero",
        Reserved = "link-local protocol address",
        Filtered = "l2fib filter",
        MoveViolation = "L2 mac move violation",
        Reflected = "L2 reflection",
        SplitHorizon = "L2 split horizon",
        ForwardingOff = "L2 forwarding is off",
        Unknown = "L2 unknown unicast, flooding is off",
        Groups = "L2 multicast, flooding is off",
        Misses = "L2 mac misses" (info),
        Moves = "L2 mac moves" (info),
        Full = "L2 not learned due to limit" (info),
        NotTold = "L2 not learned, main thread too busy" (info),
    }
}

/// Packets whose table lines are under way together.
const GROUP: usize = 32;
/// 01:80:c2:00:00:00: the first of sixteen addresses that bridges keep to one link (IEEE 802.1Q, table 8-1).
const LINK_PROTOCOLS: u64 = 0x0180_c200_0000;

/// What the aux lane tells `l2-flood`.
pub(super) mod flood_kind {
    /// To all ports.
    pub const ALL: u32 = 0;
    /// The destination is not known: to the port for such frames, where there is one.
    pub const UNKNOWN: u32 = 1;
    /// Back to where the packet came from: an answer to its sender.
    pub const BACK: u32 = 2;
}

#[derive(Clone, Copy, Default)]
struct Work {
    source: u64,
    destination: u64,
    source_home: usize,
    destination_home: usize,
    port: PortWord,
}

/// The node.
pub(super) struct Bridge {
    pub ports: PortTable,
    pub macs: Snapshot<Arc<MacTable>>,
    /// Seconds, as addresses are stamped.
    pub stamp: Arc<AtomicU32>,
    pub teller: Teller,
}

impl Bridge {
    /// Reads a packet's addresses and asks for their lines.
    #[inline(always)]
    fn look(&self, table: &MacTable, packet: &Pkt<'_>) -> Work {
        let head: [u8; 16] = packet.head();
        let first = u64::from_be_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]]);
        let second = u64::from_be_bytes([head[4], head[5], head[6], head[7], head[8], head[9], head[10], head[11]]);
        let port = self.ports.get(packet.rx_if());
        let (source, destination) = (key(port.domain(), second), key(port.domain(), first >> 16));
        let work = Work { source, destination, source_home: table.home(source), destination_home: table.home(destination), port };
        table.prefetch(work.source_home);
        table.prefetch(work.destination_home);
        work
    }

    /// Decides about a packet; what is rare is not inlined.
    #[inline(always)]
    fn one(&mut self, table: &MacTable, mut packet: Pkt<'_>, x: &Work, stamp: u16, now: u64) -> (Verdict, Told) {
        let mut told = Told::Nothing;
        if !x.port.has(port_flags::MEMBER) {
            return (packet.drop(Drop::NotMember), told);
        }
        let rx = packet.rx_if();
        let source = table.find(x.source, x.source_home);
        if source.0 as u32 != MacValue::learned_on(rx) {
            match self.source(x, rx, source, now) {
                Ok(what) => told = what,
                Err(reason) => return (packet.drop(reason), told),
            }
        } else if x.port.has(port_flags::AGE) && source.stamp() != stamp {
            table.touch(x.source, x.source_home, source, source.with_stamp(stamp));
        }
        if x.destination & 1 << 40 != 0 {
            return (group(&mut packet, x), told);
        }
        let value = table.find(x.destination, x.destination_home);
        let tx = value.interface();
        let port = self.ports.get(tx);
        let known = value.0 != 0 && port.has(port_flags::MEMBER) && port.domain() == x.port.domain();
        let apart = x.port.group() == 0 || x.port.group() != port.group();
        if known && apart && tx != rx && !value.is(MacValue::FILTER) && x.port.has(port_flags::FORWARD) {
            packet.set_aux(tx.0);
            return (port.slot(), told);
        }
        (elsewhere(&mut packet, x, value, known, tx == rx), told)
    }

    /// A source that is not known to be where the frame came from.
    #[inline(never)]
    fn source(&mut self, x: &Work, rx: IfIndex, value: MacValue, now: u64) -> Result<Told, Drop> {
        if x.source & 1 << 40 != 0 || x.source & ((1 << 48) - 1) == 0 {
            return Err(Drop::GroupSource);
        }
        if value.is(MacValue::FILTER) {
            return Err(Drop::Filtered);
        }
        if value.is(MacValue::STATIC) && value.interface() != rx {
            return Err(Drop::MoveViolation);
        }
        if value.is(MacValue::STATIC) || !x.port.has(port_flags::LEARN) {
            return Ok(Told::Nothing);
        }
        // A move is always told; a new address where there is room for it.
        if value.0 == 0 && !x.port.has(port_flags::ROOM) {
            return Ok(Told::Full);
        }
        Ok(match self.teller.tell(x.source, rx, now) {
            Told::New if value.0 != 0 => Told::Moved,
            told => told,
        })
    }
}

/// What became of a report to main.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// There was nothing to report, or it was reported a moment ago.
    Nothing,
    /// A new address.
    New,
    /// An address that was known elsewhere.
    Moved,
    /// The domain has as many as it may.
    Full,
    /// The channel is full.
    Busy,
}

/// A frame to a group.
#[inline(never)]
fn group(packet: &mut Pkt<'_>, x: &Work) -> Verdict {
    let address = x.destination & ((1 << 48) - 1);
    // Spanning tree's (…:00) pass: this bridge takes no part in it, and its neighbours' must see each other to break loops.
    // Pause frames, LACP, 802.1X, LLDP and their like speak of one link.
    if address & !0xf == LINK_PROTOCOLS && address != LINK_PROTOCOLS {
        return packet.drop(Drop::Reserved);
    }
    if !x.port.has(port_flags::FLOOD_GROUPS) {
        return packet.drop(Drop::Groups);
    }
    packet.set_aux(flood_kind::ALL);
    let ether_type = u16::from_be_bytes(packet.head_at::<[u8; 2], 12>());
    let asks = ether_type == EtherType::ARP.0 || ether_type == EtherType::IPV6.0;
    Verdict::select(x.port.has(port_flags::SUPPRESS) && asks, Next::Suppress.into(), Next::Flood.into())
}

/// A unicast frame that is not simply forwarded.
#[inline(never)]
fn elsewhere(packet: &mut Pkt<'_>, x: &Work, value: MacValue, known: bool, back: bool) -> Verdict {
    if value.is(MacValue::FILTER) {
        packet.drop(Drop::Filtered)
    } else if !known {
        if !x.port.has(port_flags::FLOOD_UNKNOWN) {
            return packet.drop(Drop::Unknown);
        }
        packet.set_aux(flood_kind::UNKNOWN);
        Next::Flood.into()
    } else if !x.port.has(port_flags::FORWARD) {
        packet.drop(Drop::ForwardingOff)
    } else if back {
        packet.drop(Drop::Reflected)
    } else {
        packet.drop(Drop::SplitHorizon)
    }
}

impl VectorNode for Bridge {
    type Next = Next;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.macs.refresh();
        let table = self.macs.get().clone();
        let (stamp, now) = (self.stamp.load(Ordering::Relaxed) as u16, cx.now());
        let mut work = [Work::default(); GROUP];
        let mut counts = [0; 5];
        let n = frame.len();
        for start in (0..n).step_by(GROUP) {
            let group = GROUP.min(n - start);
            for (k, work) in work.iter_mut().enumerate().take(group) {
                *work = self.look(&table, &cx.packet(frame, start + k));
            }
            for (k, work) in work.iter().enumerate().take(group) {
                let (verdict, told) = self.one(&table, cx.packet(frame, start + k), work, stamp, now);
                if told != Told::Nothing {
                    counts[told as usize] += 1;
                }
                cx.decide(start + k, verdict);
            }
        }
        let events = [(Drop::Misses, Told::New), (Drop::Moves, Told::Moved), (Drop::Full, Told::Full), (Drop::NotTold, Told::Busy)];
        for (event, told) in events {
            if counts[told as usize] > 0 {
                cx.count(event, counts[told as usize]);
            }
        }
    }
}
