//! Capture files: writing classic pcap with nanoseconds, reading classic pcap and simple pcapng.
//!
//! Reading takes any bytes: a damaged file ends with an error, never with a panic or an allocation beyond
//! [`MAX_PACKET`].

use std::io::{self, Write};

mod link;
mod reader;
pub use link::missing_header;
pub use reader::{PcapError, Reader};

/// Longest packet that is written or read.
pub const MAX_PACKET: usize = 256 * 1024;

/// What the packets of a file begin with (the numbers of tcpdump.org).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// Ethernet header
    pub const ETHERNET: LinkType = LinkType(1);
    /// IPv4 or IPv6 header
    pub const RAW_IP: LinkType = LinkType(101);
    /// Description of a packet at a node of a graph, then the packet (VPP's dispatch traces)
    pub const DISPATCH_TRACE: LinkType = LinkType(280);
}

/// A packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Nanoseconds since 1970; 0 where the file has none
    pub time_ns: u64,
    /// What the packet begins with
    pub link_type: LinkType,
    /// Length on the wire; at least the length of `bytes` unless the file is odd
    pub original_len: u32,
    /// The bytes that were captured
    pub bytes: Vec<u8>,
}

/// Nanosecond variant of the classic magic number, in the writer's byte order.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// Microsecond variant.
const MAGIC_US: u32 = 0xa1b2_c3d4;

/// Writes a classic pcap file, little-endian, with nanosecond stamps.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    pub fn new(mut out: W, link_type: LinkType) -> io::Result<Self> {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&MAGIC_NS.to_le_bytes());
        header[4..8].copy_from_slice(&[2, 0, 4, 0]); // version 2.4
        header[16..20].copy_from_slice(&(MAX_PACKET as u32).to_le_bytes());
        header[20..].copy_from_slice(&link_type.0.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Writes one packet; `original_len` is its length before it was cut for the capture.
    pub fn write(&mut self, time_ns: u64, bytes: &[u8], original_len: usize) -> io::Result<()> {
        let bytes = &bytes[..bytes.len().min(MAX_PACKET)];
        let seconds = (time_ns / 1_000_000_000) as u32;
        let nanos = (time_ns % 1_000_000_000) as u32;
        let original_len = u32::try_from(original_len).unwrap_or(u32::MAX);
        let mut record = [0; 16];
        for (to, value) in record.as_chunks_mut::<4>().0.iter_mut().zip([seconds, nanos, bytes.len() as u32, original_len]) {
            *to = value.to_le_bytes();
        }
        self.out.write_all(&record)?;
        self.out.write_all(bytes)
    }

    /// Brings what was written so far to its place.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Flushes and hands the output back.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests;
