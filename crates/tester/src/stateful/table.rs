//! The responder's state table: which four-tuple each connection has behind the device, learnt from the frames that come out of it.
//!
//! A test frame names its connection by its sequence number, so that nothing is searched for: entry *n* is what frame *n* looked
//! like when it arrived. Where several threads send, frame *n* of thread *p* is number *p* + *n* × threads. Twelve bytes a connection
//! of IPv4, 36 of IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use quiver_wire::ethernet::{EtherType, skip_tags};

use super::connections::{Connections, FourTuple, Part, number};
use crate::profile::supply::Values;
use crate::signature::{LEN, Reading, Signature};
use crate::tracker::FIRST;

/// IP protocol numbers with ports in their first four bytes.
const WITH_PORTS: [u8; 2] = [6, 17];

/// The four-tuple of a frame, and how many of its bytes there are up to the end of its IP packet; nothing where it has none, or is
/// a fragment.
pub fn seen(frame: &[u8], ethernet: bool) -> Option<(FourTuple, usize)> {
    let at = if ethernet {
        let (at, ether_type) = skip_tags(frame, 2)?;
        if !matches!(ether_type, EtherType::IPV4 | EtherType::IPV6) {
            return None;
        }
        at
    } else {
        0
    };
    let ip = frame.get(at..)?;
    let word = |i: usize| Some(u16::from_be_bytes([*ip.get(i)?, *ip.get(i + 1)?]));
    let (l4, end, protocol, src, dst) = match ip.first()? >> 4 {
        4 => {
            // More fragments, or not the first one.
            if word(6)? & 0x3fff != 0 {
                return None;
            }
            let address = |i: usize| Some(IpAddr::V4(Ipv4Addr::from(*ip.get(i..i + 4)?.first_chunk::<4>()?)));
            (usize::from(ip[0] & 15) * 4, usize::from(word(2)?), *ip.get(9)?, address(12)?, address(16)?)
        }
        6 => {
            let address = |i: usize| Some(IpAddr::V6(Ipv6Addr::from(*ip.get(i..i + 16)?.first_chunk::<16>()?)));
            (40, 40 + usize::from(word(4)?), *ip.get(6)?, address(8)?, address(24)?)
        }
        _ => return None,
    };
    if !WITH_PORTS.contains(&protocol) || l4 + 4 > end {
        return None;
    }
    Some((FourTuple { src, dst, src_port: word(l4)?, dst_port: word(l4 + 2)? }, at + end))
}

/// Addresses of all entries, source and destination.
#[derive(Clone, Debug)]
enum Addresses {
    V4(Vec<(u32, u32)>),
    V6(Vec<(u128, u128)>),
}

/// What the responder knows: four-tuples as the device sent them, of the connections that came through.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// Connections of the entries, in ascending order; `None` where all are there.
    numbers: Option<Vec<u32>>,
    addresses: Addresses,
    ports: Vec<(u16, u16)>,
    packet: usize,
}

impl StateTable {
    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.ports.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Whether its packets are IPv4.
    pub fn is_ipv4(&self) -> bool {
        matches!(self.addresses, Addresses::V4(_))
    }

    /// Bytes of an IP packet as the device sent it.
    pub fn packet(&self) -> usize {
        self.packet
    }

    /// The connection of an entry.
    pub fn connection(&self, entry: u64) -> Option<u64> {
        match &self.numbers {
            None => (entry < self.len()).then_some(entry),
            Some(numbers) => numbers.get(entry as usize).map(|n| u64::from(*n)),
        }
    }

    /// The four-tuple of an entry, as the device sent it.
    pub fn tuple(&self, entry: u64) -> Option<FourTuple> {
        let at = entry as usize;
        let (src_port, dst_port) = *self.ports.get(at)?;
        let (src, dst) = match &self.addresses {
            Addresses::V4(all) => all.get(at).map(|(s, d)| (Ipv4Addr::from_bits(*s).into(), Ipv4Addr::from_bits(*d).into()))?,
            Addresses::V6(all) => all.get(at).map(|(s, d)| (Ipv6Addr::from_bits(*s).into(), Ipv6Addr::from_bits(*d).into()))?,
        };
        Some(FourTuple { src, dst, src_port, dst_port })
    }
}

/// A part of what the responder sends back, or of what the initiator sends, for a field of a stream.
#[derive(Debug)]
pub(super) struct Column<T> {
    pub(super) of: Arc<T>,
    pub(super) part: Part,
}

impl Values for Column<Connections> {
    fn value(&self, n: u64) -> u128 {
        self.of.part(n, self.part)
    }
}

impl Values for Column<StateTable> {
    fn value(&self, n: u64) -> u128 {
        // As an answer: what the device sent, the other way round.
        self.of.tuple(n).map_or(0, |tuple| match self.part {
            Part::Src => number(tuple.dst),
            Part::Dst => number(tuple.src),
            Part::SrcPort => tuple.dst_port.into(),
            Part::DstPort => tuple.src_port.into(),
        })
    }
}

/// Fills a state table.
#[derive(Clone, Debug)]
pub struct Learner {
    known: Vec<u64>,
    learnt: u64,
    end: u64,
    addresses: Option<Addresses>,
    ports: Vec<(u16, u16)>,
    packet: usize,
}

impl Learner {
    /// For connections numbered below `end`.
    pub fn new(end: u64) -> Self {
        let known = vec![0; end.div_ceil(64) as usize];
        Self { known, learnt: 0, end, addresses: None, ports: vec![(0, 0); end as usize], packet: 0 }
    }

    /// How many connections are known.
    pub fn learnt(&self) -> u64 {
        self.learnt
    }

    fn note(&mut self, number: u64, tuple: FourTuple, packet: usize) {
        let (Some(word), bit) = (self.known.get_mut((number / 64) as usize), 1 << (number % 64)) else { return };
        if number >= self.end || *word & bit != 0 {
            return;
        }
        let (at, end) = (number as usize, self.end as usize);
        let addresses = self.addresses.get_or_insert_with(|| {
            if tuple.src.is_ipv4() { Addresses::V4(vec![(0, 0); end]) } else { Addresses::V6(vec![(0, 0); end]) }
        });
        match (addresses, tuple.src, tuple.dst) {
            (Addresses::V4(all), IpAddr::V4(src), IpAddr::V4(dst)) => all[at] = (src.to_bits(), dst.to_bits()),
            (Addresses::V6(all), IpAddr::V6(src), IpAddr::V6(dst)) => all[at] = (src.to_bits(), dst.to_bits()),
            // A device speaks one family on a side.
            _ => return,
        }
        self.ports[at] = (tuple.src_port, tuple.dst_port);
        self.packet = packet;
        *word |= bit;
        self.learnt += 1;
    }

    /// What has been learnt.
    pub fn table(self) -> StateTable {
        let Self { known, learnt, end, addresses, mut ports, packet } = self;
        let mut addresses = addresses.unwrap_or(Addresses::V4(Vec::new()));
        if learnt == end {
            return StateTable { numbers: None, addresses, ports, packet };
        }
        let is_known = |n: u32| known[(n / 64) as usize] & 1 << (n % 64) != 0;
        let numbers: Vec<u32> = (0..end as u32).filter(|n| is_known(*n)).collect();
        fn keep<T: Copy>(all: &mut Vec<T>, numbers: &[u32]) {
            // Each goes to its own place or one before it.
            numbers.iter().enumerate().for_each(|(to, from)| all[to] = all[*from as usize]);
            all.truncate(numbers.len());
        }
        match &mut addresses {
            Addresses::V4(all) => keep(all, &numbers),
            Addresses::V6(all) => keep(all, &numbers),
        }
        keep(&mut ports, &numbers);
        StateTable { numbers: Some(numbers), addresses, ports, packet }
    }
}

/// Sees whether what the device makes of the responder's frames are the initiator's own connections.
#[derive(Clone, Debug)]
pub struct Checker {
    table: Arc<StateTable>,
    connections: Arc<Connections>,
    wrong: u64,
}

impl Checker {
    /// For frames that the responder sends by turns, an entry of the table each.
    pub fn new(table: Arc<StateTable>, connections: Arc<Connections>) -> Self {
        Self { table, connections, wrong: 0 }
    }

    /// Frames that arrived with addresses or ports of another connection than theirs.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    fn note(&mut self, number: u64, tuple: FourTuple) {
        let Some(connection) = self.table.connection(number) else { return };
        self.wrong += u64::from(self.connections.tuple(connection).reversed() != tuple);
    }
}

/// What looks at the headers of test frames.
#[derive(Clone, Debug)]
pub enum Task {
    /// Learn them.
    Learn(Learner),
    /// Compare them.
    Check(Checker),
}

/// Looks at the test frames that a port receives, beside their account.
#[derive(Clone, Debug)]
pub struct Tap {
    tag: u8,
    ethernet: bool,
    /// Threads that send the stream; each has a stream number, from 0.
    senders: u16,
    task: Task,
}

impl Tap {
    /// On a port, for frames of the one stream of a trial.
    pub fn new(task: Task, ethernet: bool, tag: u8) -> Self {
        Self { tag, ethernet, senders: 1, task }
    }

    /// The same for a stream that so many threads send.
    #[must_use]
    pub fn of_senders(self, senders: u16) -> Self {
        Self { senders, ..self }
    }

    /// What it has found.
    pub fn into_task(self) -> Task {
        self.task
    }

    /// Looks at a frame: its first bytes, and its last ones where it is longer than these.
    pub fn note(&mut self, head: &[u8], tail: Option<&[u8; LEN]>) {
        let Some((tuple, end)) = seen(head, self.ethernet) else { return };
        let reading = match (head.get(..end), tail) {
            (Some(packet), None) => Signature::read(packet),
            (_, Some(tail)) => Signature::read(tail),
            _ => return,
        };
        let Reading::Valid(signature) = reading else { return };
        if signature.tag != self.tag || signature.stream >= self.senders {
            return;
        }
        let number = u64::from(signature.sequence.wrapping_sub(FIRST)) * u64::from(self.senders) + u64::from(signature.stream);
        let packet = end - if self.ethernet { skip_tags(head, 2).map_or(0, |(at, _)| at) } else { 0 };
        match &mut self.task {
            Task::Learn(learner) => learner.note(number, tuple, packet),
            Task::Check(checker) => checker.note(number, tuple),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connections::{Ends, Order};
    use super::*;
    use quiver_wire::MacAddr;
    use quiver_wire::build::Packet;

    const TAG: u8 = 4;

    fn tuple(n: u16) -> FourTuple {
        FourTuple { src: [10, 0, 0, 1].into(), dst: [10, 1, 0, 1].into(), src_port: 1000 + n, dst_port: 7 }
    }

    /// A frame of connection `n` with this four-tuple.
    fn frame(n: u32, tuple: FourTuple) -> Vec<u8> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (tuple.src, tuple.dst) else { panic!("IPv4") };
        let signature = Signature { tag: TAG, stream: 0, sequence: FIRST.wrapping_add(n), time: 5 };
        let head = Packet::ethernet(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])).ipv4(src, dst);
        head.udp(tuple.src_port, tuple.dst_port).payload(&signature.to_bytes()).build()
    }

    fn learner(tap: Tap) -> Learner {
        let Task::Learn(learner) = tap.into_task() else { panic!("a learner") };
        learner
    }

    #[test]
    fn entries_are_those_of_the_frames_that_came_and_holes_close() {
        let mut tap = Tap::new(Task::Learn(Learner::new(200)), true, TAG);
        for n in (0..200).filter(|n| n % 3 != 1).rev() {
            tap.note(&frame(n, tuple(n as u16)), None);
            // A copy, a number beyond the end, another trial and a frame that is none teach nothing.
            tap.note(&frame(n, tuple(9999)), None);
            tap.note(&frame(200 + n, tuple(1)), None);
            tap.tag += 1;
            tap.note(&frame(1, tuple(1)), None);
            tap.tag -= 1;
            tap.note(&[0; 60], None);
        }
        let learner = learner(tap);
        assert_eq!(learner.learnt(), 133);
        let table = learner.table();
        assert_eq!((table.len(), table.packet(), table.is_ipv4()), (133, 46, true));
        for (entry, n) in (0..200_u16).filter(|n| n % 3 != 1).enumerate() {
            assert_eq!((table.connection(entry as u64), table.tuple(entry as u64)), (Some(n.into()), Some(tuple(n))));
        }
        assert_eq!((table.connection(133), table.tuple(133)), (None, None));
    }

    #[test]
    fn frames_of_several_threads_are_numbered_in_turn() {
        for senders in [1, 2, 3] {
            let mut tap = Tap::new(Task::Learn(Learner::new(100)), true, TAG).of_senders(senders);
            for n in 0..100_u32 {
                let mut bytes = frame(0, tuple(n as u16));
                let (stream, sequence) = ((n % u32::from(senders)) as u16, FIRST.wrapping_add(n / u32::from(senders)));
                let signature = Signature { tag: TAG, stream, sequence, time: 5 };
                let at = bytes.len() - LEN;
                bytes[at..].copy_from_slice(&signature.to_bytes());
                tap.note(&bytes, None);
                // A thread that is not there.
                bytes[at..].copy_from_slice(&Signature { stream: senders, ..signature }.to_bytes());
                tap.note(&bytes, None);
            }
            let table = learner(tap).table();
            assert!(table.len() == 100 && (0..100).all(|n| table.tuple(n) == Some(tuple(n as u16))), "{senders} threads");
        }
    }

    #[test]
    fn padding_behind_the_packet_and_chains_are_no_hindrance() {
        let mut tap = Tap::new(Task::Learn(Learner::new(3)), true, TAG);
        let mut padded = frame(0, tuple(0));
        padded.extend([0; 9]);
        tap.note(&padded, None);
        let whole = frame(1, tuple(1));
        let tail = *whole.last_chunk().unwrap();
        tap.note(&whole[..50], Some(&tail));
        // Cut off without its tail.
        tap.note(&frame(2, tuple(2))[..50], None);
        assert_eq!(learner(tap).learnt(), 2);
    }

    #[test]
    fn nothing_is_seen_in_what_has_no_ports() {
        let whole = frame(0, tuple(0));
        assert_eq!(seen(&whole, true), Some((tuple(0), whole.len())));
        assert_eq!(seen(&whole[14..], false), Some((tuple(0), whole.len() - 14)));
        for len in 0..38 {
            assert_eq!(seen(&whole[..len], true), None, "{len}");
        }
        for (at, byte) in [(12, 9), (14, 0x55), (20, 0x20), (23, 1)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert_eq!(seen(&other, true), None, "byte {at}");
        }
        let v6 = Packet::new().ipv6("2001:2::1".parse::<Ipv6Addr>().unwrap(), "2001:2::2".parse::<Ipv6Addr>().unwrap());
        let v6 = v6.udp(5, 6).payload(&[0; 4]).build();
        let (tuple, end) = seen(&v6, false).unwrap();
        assert_eq!((tuple.src_port, tuple.dst_port, end, tuple.src.to_string().as_str()), (5, 6, 52, "2001:2::1"));
    }

    #[test]
    fn frames_of_other_connections_are_found_out() {
        let connections = Arc::new(Connections::new(Ends::default(), Order::Random, 1).unwrap());
        let mut tap = Tap::new(Task::Learn(Learner::new(4)), true, TAG);
        [0, 1, 3].into_iter().for_each(|n| tap.note(&frame(n, tuple(n as u16)), None));
        let table = Arc::new(learner(tap).table());
        let mut tap = Tap::new(Task::Check(Checker::new(table.clone(), connections.clone())), true, TAG);
        // Entry 2 is connection 3.
        for (entry, connection) in [(0, 0), (1, 1), (2, 3)] {
            tap.note(&frame(entry, connections.tuple(connection).reversed()), None);
        }
        let Task::Check(checker) = &tap.task else { panic!("a checker") };
        assert_eq!(checker.wrong(), 0);
        tap.note(&frame(2, connections.tuple(2).reversed()), None);
        let Task::Check(checker) = tap.into_task() else { panic!("a checker") };
        assert_eq!(checker.wrong(), 1);
        // What the responder sends is what it has seen, the other way round.
        let value = |part| Column { of: table.clone(), part }.value(2);
        assert_eq!((value(Part::SrcPort), value(Part::DstPort)), (7, 1003));
        assert_eq!((value(Part::Src), value(Part::Dst)), (0x0a01_0001, 0x0a00_0001));
    }
}
