//! `l2-bridge`: learns where a frame comes from, and finds where it goes.
//!
//! Frames between two addresses that are known where they are, which is nearly all, are decided in batches: both addresses of
//! all of them are hashed and their buckets fetched before the first is looked up, and one comparison at the end says whether
//! all of it was as it usually is. Batches between the same two addresses are looked up once. [`Bridge::one`] has the rules for any frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{Batch, FastPath, IfIndex, Node, NodeCx, Pkt, Sent, Shared, Snapshot, Verdict, drop_reasons, flags, next_nodes};
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
        /// The interface left its bridge domain meanwhile.
        NotMember = "interface is in no bridge domain",
        /// The source address is a group address or zero, which no host has.
        GroupSource = "source address is a group or zero",
        /// The frame is for a protocol of the link (01:80:c2:00:00:0X), which bridges do not forward.
        Reserved = "link-local protocol address",
        /// A filter of the forwarding table names this MAC address (`l2fib add ... filter`).
        Filtered = "l2fib filter",
        /// The source address is a static entry of another port.
        ///
        /// Causes: a station with a static entry moved to another port, or a loop or forged frames.
        /// Check: `show l2fib verbose`; remove the static entry if the station has moved.
        /// See: `show l2fib verbose`, `l2fib del`.
        MoveViolation = "L2 mac move violation",
        /// The destination is on the port that the frame came from.
        ///
        /// Causes: a switch has not learned yet where the station is, and floods: normal in small numbers.
        /// Check: `show l2fib verbose` for the port of the station.
        /// See: `show l2fib verbose`.
        Reflected = "L2 reflection",
        /// The destination is on a port of the same split-horizon group.
        SplitHorizon = "L2 split horizon",
        /// Forwarding is off in the bridge domain or on the port.
        ///
        /// Causes: `set bridge-domain forward` is off.
        /// Check: `show bridge-domain ID detail`.
        /// See: `show bridge-domain`, `set bridge-domain forward`.
        ForwardingOff = "L2 forwarding is off",
        /// The destination is not known, and unknown ones are not flooded here.
        ///
        /// Causes: `set bridge-domain uu-flood` or `set interface l2 flood` is off, and the station has aged out or never spoke.
        /// Check: `show bridge-domain ID detail`; switch flooding on, or enter the station with `l2fib add`.
        /// See: `show bridge-domain`, `l2fib add`.
        Unknown = "L2 unknown unicast, flooding is off",
        /// The destination is a group or all, and those are not flooded here.
        Groups = "L2 multicast, flooding is off",
        /// The destination was not in the forwarding table.
        Misses = "L2 mac misses" (info),
        /// A source address was seen on another port than before.
        Moves = "L2 mac moves" (info),
        /// A source address was not learned, because the limit of the domain or of the port is reached.
        Full = "L2 not learned due to limit" (info),
        /// A source address was not learned, because the main thread has too many events waiting.
        NotTold = "L2 not learned, main thread too busy" (info),
    }
}

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

/// A frame's addresses as keys of the table, the buckets they belong to, and its port.
#[derive(Clone, Copy)]
struct Work {
    source: u64,
    destination: u64,
    source_home: usize,
    destination_home: usize,
    port: PortWord,
}

/// The node.
#[derive(Clone)]
pub struct Bridge {
    ports: PortTable,
    macs: Snapshot<Arc<MacTable>>,
    /// The table of this vector.
    table: Arc<MacTable>,
    /// Seconds, as addresses are stamped.
    clock: Arc<AtomicU32>,
    stamp: u16,
    now: u64,
    teller: Teller,
    /// An interface and its port, kept for a run of packets.
    run: (u32, PortWord),
    /// By [`Told`].
    counts: [u64; 5],
}

impl Bridge {
    pub(super) fn new(ports: PortTable, macs: Snapshot<Arc<MacTable>>, clock: Arc<AtomicU32>, teller: Teller) -> Self {
        let table = macs.get().clone();
        let run = (u32::MAX, PortWord::default());
        Self { ports, macs, table, clock, stamp: 0, now: 0, teller, run, counts: [0; 5] }
    }

    /// Decides about a packet; what is rare is not inlined.
    #[inline(always)]
    fn one(&mut self, mut packet: Pkt<'_, Shared>, x: &Work) -> (Verdict, Told) {
        let mut told = Told::Nothing;
        if !x.port.has(port_flags::MEMBER) {
            return (packet.drop(Drop::NotMember), told);
        }
        let rx = packet.rx_if();
        let source = self.table.find(x.source, x.source_home);
        if source.0 as u32 != MacValue::learned_on(rx) {
            match self.source(x, rx, source) {
                Ok(what) => told = what,
                Err(reason) => return (packet.drop(reason), told),
            }
        } else if x.port.has(port_flags::AGE) && source.stamp() != self.stamp {
            self.table.touch(x.source, x.source_home, source, source.with_stamp(self.stamp));
        }
        if x.destination & 1 << 40 != 0 {
            return (group(&mut packet, x), told);
        }
        let value = self.table.find(x.destination, x.destination_home);
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

    /// A whole step for one packet.
    #[inline(never)]
    fn step(&mut self, packet: Pkt<'_, Shared>) -> Verdict {
        // The first two words of a frame: destination in the high 48 bits of the one, source in the low 48 of the other.
        let (first, second) = (u64::from_be(packet.head()), u64::from_be(packet.head_at::<_, 4>()));
        let port = self.ports.get(packet.rx_if());
        let (source, destination) = (key(port.domain(), second), key(port.domain(), first >> 16));
        let (source_home, destination_home) = (self.table.home(source), self.table.home(destination));
        let (verdict, told) = self.one(packet, &Work { source, destination, source_home, destination_home, port });
        self.counts[told as usize] += u64::from(told != Told::Nothing);
        verdict
    }

    /// A source that is not known to be where the frame came from.
    #[inline(never)]
    fn source(&mut self, x: &Work, rx: IfIndex, value: MacValue) -> Result<Told, Drop> {
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
        Ok(match self.teller.tell(x.source, rx, self.now) {
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
fn group(packet: &mut Pkt<'_, Shared>, x: &Work) -> Verdict {
    let address = x.destination & ((1 << 48) - 1);
    // Spanning tree's (…:00) pass: this bridge takes no part in it, and its neighbours' must see each other to break loops.
    // Pause frames, LACP, 802.1X, LLDP and their like speak of one link.
    if address & !0xf == LINK_PROTOCOLS && address != LINK_PROTOCOLS {
        return packet.drop(Drop::Reserved);
    }
    packet.set_aux(flood_kind::ALL);
    let ether_type = u16::from_be_bytes(packet.head_at::<[u8; 2], 12>());
    let asks = ether_type == EtherType::ARP.0 || ether_type == EtherType::IPV6.0;
    // Questions are answered from the domain's table whether frames to groups are flooded or not.
    if x.port.has(port_flags::SUPPRESS) && asks {
        return Next::Suppress.into();
    }
    if !x.port.has(port_flags::FLOOD_GROUPS) {
        return packet.drop(Drop::Groups);
    }
    Next::Flood.into()
}

/// A unicast frame that is not simply forwarded.
#[inline(never)]
fn elsewhere(packet: &mut Pkt<'_, Shared>, x: &Work, value: MacValue, known: bool, back: bool) -> Verdict {
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

/// What a batch's frames have in common, and how nearly all frames are: from where their source is known to be (heard there lately, or
/// configured), to another port.
#[derive(Clone, Copy)]
struct Usual {
    rx: IfIndex,
    port: PortWord,
    /// The value of a source, in the bits of `mask`.
    here: u64,
    mask: u64,
}

impl Usual {
    /// Keys of destination and source.
    #[inline(always)]
    fn keys(&self, first: u64, second: u64) -> (u64, u64) {
        let domain = self.port.domain();
        (key(domain, u64::from_be(first) >> 16), key(domain, u64::from_be(second)))
    }

    /// Zero where a source was heard here lately.
    #[inline(always)]
    fn elsewhere(&self, source: MacValue) -> u64 {
        (source.0 ^ self.here) & self.mask
    }

    /// Whether a source is here, be it by configuration.
    #[inline(always)]
    fn is_here(&self, source: MacValue) -> bool {
        self.elsewhere(source) == 0 || source.0 as u32 == MacValue::static_on(self.rx)
    }

    /// Where a frame goes by the value of its destination, and zero where that is usual.
    #[inline(always)]
    fn way(&self, ports: &PortTable, destination: MacValue) -> (u64, IfIndex, Verdict) {
        let tx = destination.interface();
        let out = ports.get(tx);
        let odd = destination.obstacle() | out.obstacle(self.port) | u64::from(tx == self.rx);
        (odd, tx, out.slot())
    }
}

impl Node<Shared> for Bridge {
    type Next = Next;
    type Drop = Drop;

    #[inline(always)]
    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        if self.macs.refresh() {
            self.table = self.macs.get().clone();
        }
        (self.stamp, self.now) = (self.clock.load(Ordering::Relaxed) as u16, cx.now());
        self.run.0 = u32::MAX;
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
        self.step(packet)
    }

    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        if self.counts != [0; 5] {
            self.tell_counts(cx);
        }
    }
}

impl FastPath<Shared> for Bridge {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let rx = batch.first_rx_if();
        if rx.0 != self.run.0 {
            self.run = (rx.0, self.ports.get(rx));
        }
        let port = self.run.1;
        if !batch.all_from(rx, flags::LOCAL) || !port.has(port_flags::MEMBER) || !port.has(port_flags::FORWARD) {
            return None;
        }
        let first: [u64; W] = batch.heads::<_, 0>();
        let second: [u64; W] = batch.heads::<_, 4>();
        // Where addresses grow old, the stamp too.
        let mask = u64::from(u32::MAX) | if port.has(port_flags::AGE) { 0xffff << 32 } else { 0 };
        let usual = Usual { rx, port, here: u64::from(MacValue::learned_on(rx)) | u64::from(self.stamp) << 32, mask };
        let table = &*self.table;
        let mut odd = 0;
        if W > 1 && (1..W).fold(0, |differ, k| differ | (first[k] ^ first[0]) | (second[k] ^ second[0])) == 0 {
            // Between the same two: routers at the ends of a link, or a train of one flow.
            let (to, from) = usual.keys(first[0], second[0]);
            let (source, destination) = (table.near(from, table.home(from)), table.near(to, table.home(to)));
            let (obstacle, tx, slot) = usual.way(&self.ports, destination);
            if obstacle | (to & 1 << 40) != 0 || !usual.is_here(source) {
                return None;
            }
            batch.set_aux([tx.0; W]);
            return Some(batch.send_all(slot));
        }
        // Each bucket is found once, asked for, and kept until all are on their way.
        let nowhere = MacTable::nowhere();
        let (mut source, mut destination) = ([(0, nowhere); W], [(0, nowhere); W]);
        for k in 0..W {
            let (to, from) = usual.keys(first[k], second[k]);
            odd |= to & 1 << 40;
            source[k] = (from, table.fetch(table.home(from)));
            destination[k] = (to, table.fetch(table.home(to)));
        }
        let (mut aux, mut verdicts, mut elsewhere) = ([0; W], [Verdict::DROP; W], 0);
        for k in 0..W {
            elsewhere |= usual.elsewhere(source[k].1.value(source[k].0));
            let (obstacle, tx, slot) = usual.way(&self.ports, destination[k].1.value(destination[k].0));
            odd |= obstacle;
            (aux[k], verdicts[k]) = (tx.0, slot);
        }
        // Looked at once more where one was not heard: configured stations never are.
        if odd != 0 || elsewhere != 0 && !source.iter().all(|(key, bucket)| usual.is_here(bucket.value(*key))) {
            return None;
        }
        batch.set_aux(aux);
        Some(batch.send(verdicts))
    }
}

impl Bridge {
    #[cold]
    fn tell_counts(&mut self, cx: &mut NodeCx<'_>) {
        let events = [(Drop::Misses, Told::New), (Drop::Moves, Told::Moved), (Drop::Full, Told::Full), (Drop::NotTold, Told::Busy)];
        for (event, told) in events {
            cx.count(event, self.counts[told as usize]);
        }
        self.counts = [0; 5];
    }
}
