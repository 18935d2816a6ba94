//! sFlow version 5 as bytes (sFlow.org, "sFlow Version 5", July 2004): XDR, all numbers big-endian and in words of 4 bytes.

use std::net::IpAddr;

/// Version of the protocol.
const VERSION: u32 = 5;
/// Samples and records of the standard, enterprise 0.
const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const RAW_HEADER: u32 = 1;
const GENERIC_COUNTERS: u32 = 1;
/// Header of the kind Ethernet.
const ETHERNET: u32 = 1;
/// Bytes of a frame that are taken off before it is sampled: the FCS.
const STRIPPED: u32 = 4;
/// Type of an interface in the MIB-II: ethernetCsmacd (6).
const IF_ETHERNET: u32 = 6;
/// Full duplex.
const FULL_DUPLEX: u32 = 1;

/// A sampled frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// Number of the sample, of its source.
    pub sequence: u32,
    /// Interface that it was taken on.
    pub source: u32,
    /// One frame in so many is sampled.
    pub rate: u32,
    /// Frames that could have been sampled.
    pub pool: u32,
    /// Samples that were lost.
    pub drops: u32,
    /// Interface that it came in by, 0 where that is not known.
    pub input: u32,
    /// Interface that it leaves by, 0 where that is not known.
    pub output: u32,
    /// Bytes of the frame, without FCS.
    pub len: u32,
    /// Its first bytes.
    pub header: &'a [u8],
}

/// Counters of an interface (MIB-II, RFC 2863).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of the interface.
    pub index: u32,
    /// Bits a second, 0 where that is not known.
    pub speed: u64,
    /// Administratively up.
    pub admin_up: bool,
    /// Its link is up.
    pub link_up: bool,
    /// Received.
    pub rx: Counted,
    /// Sent.
    pub tx: Counted,
    /// Takes frames to any address.
    pub promiscuous: bool,
}

/// What is counted in a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes.
    pub octets: u64,
    /// Packets to one station.
    pub unicast: u64,
    /// Packets to a group.
    pub multicast: u64,
    /// Packets to all.
    pub broadcast: u64,
    /// Packets dropped.
    pub discards: u64,
    /// Packets with errors.
    pub errors: u64,
}

fn put(out: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    words.into_iter().for_each(|word| out.extend(word.to_be_bytes()));
}

/// Bytes of a flow sample with a header of so many bytes.
pub const fn flow_sample_len(header: usize) -> usize {
    4 * 16 + header.next_multiple_of(4)
}

impl FlowSample<'_> {
    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let padded = self.header.len().next_multiple_of(4);
        put(out, [FLOW_SAMPLE, (flow_sample_len(self.header.len()) - 8) as u32]);
        put(out, [self.sequence, self.source, self.rate, self.pool, self.drops, self.input, self.output, 1]);
        put(out, [RAW_HEADER, 16 + padded as u32, ETHERNET, self.len.saturating_add(STRIPPED), STRIPPED, self.header.len() as u32]);
        out.extend(self.header);
        out.extend(std::iter::repeat_n(0, padded - self.header.len()));
    }
}

/// Bytes of a counters sample.
pub const COUNTERS_SAMPLE_LEN: usize = 8 + 12 + 8 + GENERIC_LEN;
/// Bytes of the generic interface counters.
const GENERIC_LEN: usize = 88;
/// What is not counted (the maximum, by the standard).
const UNKNOWN: u32 = u32::MAX;

impl Counters {
    /// Appends a sample with them.
    pub fn write(&self, sequence: u32, out: &mut Vec<u8>) {
        put(
            out,
            [COUNTERS_SAMPLE, (COUNTERS_SAMPLE_LEN - 8) as u32, sequence, self.index, 1, GENERIC_COUNTERS, GENERIC_LEN as u32],
        );
        put(out, [self.index, IF_ETHERNET]);
        out.extend(self.speed.to_be_bytes());
        put(out, [FULL_DUPLEX, u32::from(self.admin_up) | u32::from(self.link_up) << 1]);
        let packets = |counted: &Counted| [counted.unicast, counted.multicast, counted.broadcast, counted.discards, counted.errors];
        // 32 bits of the standard: they wrap.
        let low = |counts: [u64; 5]| counts.map(|count| count as u32);
        out.extend(self.rx.octets.to_be_bytes());
        put(out, low(packets(&self.rx)));
        put(out, [UNKNOWN]);
        out.extend(self.tx.octets.to_be_bytes());
        put(out, low(packets(&self.tx)));
        put(out, [u32::from(self.promiscuous)]);
    }
}

/// Bytes of a datagram's header.
pub const fn header_len(agent: &IpAddr) -> usize {
    24 + if agent.is_ipv4() { 4 } else { 16 }
}

/// A datagram that is put together.
#[derive(Debug, Default)]
pub struct Datagram {
    bytes: Vec<u8>,
    samples: u32,
}

impl Datagram {
    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Samples in it.
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// Whether a sample of `len` bytes fits, where it may have `most` bytes.
    pub fn fits(&self, agent: &IpAddr, len: usize, most: usize) -> bool {
        self.bytes.len().max(header_len(agent)) + len <= most
    }

    /// Appends a sample.
    pub fn push(&mut self, agent: &IpAddr, sample: impl FnOnce(&mut Vec<u8>)) {
        if self.samples == 0 {
            self.bytes.clear();
            self.bytes.resize(header_len(agent), 0);
        }
        sample(&mut self.bytes);
        self.samples += 1;
    }

    /// Completes it; it is empty again, with `room` for the next one. `uptime`: milliseconds.
    pub fn finish(&mut self, agent: &IpAddr, sub_agent: u32, sequence: u32, uptime: u32, room: Vec<u8>) -> Vec<u8> {
        let mut bytes = std::mem::replace(&mut self.bytes, room);
        let samples = std::mem::take(&mut self.samples);
        let mut header = Vec::with_capacity(header_len(agent));
        put(&mut header, [VERSION]);
        match agent {
            IpAddr::V4(agent) => {
                put(&mut header, [1]);
                header.extend(agent.octets());
            }
            IpAddr::V6(agent) => {
                put(&mut header, [2]);
                header.extend(agent.octets());
            }
        }
        put(&mut header, [sub_agent, sequence, uptime, samples]);
        if let Some(place) = bytes.get_mut(..header.len()) {
            place.copy_from_slice(&header);
        }
        bytes
    }
}
