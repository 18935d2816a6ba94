//! TCP (RFC 9293).

use crate::header::wire_header;
use crate::{U16Be, U32Be};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of the TCP header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpHeader {
    /// Source port
    pub src_port: U16Be,
    /// Destination port
    pub dst_port: U16Be,
    /// Number of the first data byte (or of SYN)
    pub sequence: U32Be,
    /// Next number expected from the peer
    pub acknowledgment: U32Be,
    /// Header length in 32-bit words (upper 4 bits) and reserved bits
    pub offset_reserved: u8,
    /// Control bits
    pub flags: TcpFlags,
    /// Receive window
    pub window: U16Be,
    /// Checksum over pseudo-header, header and data
    pub checksum: U16Be,
    /// Urgent pointer
    pub urgent: U16Be,
}
wire_header!(TcpHeader = 20);

/// Longest header, options included.
pub const MAX_HEADER_LEN: usize = 60;

/// TCP control bits.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
#[derive(Copy, Clone, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// Synchronise sequence numbers
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// Reset the connection
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// Push
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// Acknowledgment field is significant
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// Urgent pointer is significant
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// ECN echo (RFC 3168)
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// Congestion window reduced (RFC 3168)
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Both sets of flags.
    #[inline(always)]
    pub const fn union(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[inline(always)]
    pub const fn without(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & !other.0)
    }

    /// All flags of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// At least one flag of `other` is set.
    #[inline(always)]
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl core::ops::BitOr for TcpFlags {
    type Output = TcpFlags;

    #[inline(always)]
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        self.union(other)
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut separator = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{separator}{name}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpFlags({self})")
    }
}

impl TcpHeader {
    /// A header without options, with the checksum yet to be filled in.
    pub const fn new(src_port: u16, dst_port: u16, flags: TcpFlags) -> Self {
        Self {
            src_port: U16Be::new(src_port),
            dst_port: U16Be::new(dst_port),
            sequence: U32Be::ZERO,
            acknowledgment: U32Be::ZERO,
            offset_reserved: 5 << 4,
            flags,
            window: U16Be::new(0xffff),
            checksum: U16Be::ZERO,
            urgent: U16Be::ZERO,
        }
    }

    /// Length of the header with its options, in bytes: 0 to 60, at least 20 in a valid header.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        (self.offset_reserved >> 4) as usize * 4
    }

    /// Sets the header length from a number of bytes (a multiple of 4 up to 60).
    #[inline(always)]
    pub const fn set_header_len(&mut self, bytes: usize) {
        self.offset_reserved = self.offset_reserved & 0xf | ((bytes / 4) as u8) << 4;
    }
}

/// One option with its kind and data; no-operation does not appear.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size
    Mss(u16),
    /// Window scale (RFC 7323)
    WindowScale(u8),
    /// Selective acknowledgment permitted (RFC 2018)
    SackPermitted,
    /// Timestamp value and echo reply (RFC 7323)
    Timestamps(u32, u32),
    /// Any other, or one of those with an unusual length
    Other {
        /// Option kind
        kind: u8,
        /// What follows kind and length
        data: &'a [u8],
    },
}

/// An option whose length byte is missing, under 2 or reaches past the options; holds its offset in the options.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TcpOptionError(pub usize);

/// The options in the bytes after the fixed header, each with its offset there; ends after the first malformed one.
#[derive(Copy, Clone, Debug)]
pub struct TcpOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TcpOptions<'a> {
    /// Over `bytes`, those between the fixed header and the data.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Over the options of a whole segment; none if its header length is impossible.
    pub fn of_segment(segment: &'a [u8]) -> Self {
        let header_len = segment.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        Self::new(segment.get(20..header_len).unwrap_or_default())
    }

    /// Where in the options the value of the MSS option lies, with the value: what MSS clamping rewrites.
    pub fn mss(self) -> Option<(usize, u16)> {
        self.map_while(Result::ok).find_map(|(offset, option)| match option {
            TcpOption::Mss(mss) => Some((offset + 2, mss)),
            _ => None,
        })
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<(usize, TcpOption<'a>), TcpOptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = loop {
            match *self.bytes.get(self.at)? {
                0 => return None,
                1 => self.at += 1,
                _ => break self.at,
            }
        };
        let (kind, data) = match self.bytes[offset..] {
            [kind, len, ..] if len >= 2 && offset + usize::from(len) <= self.bytes.len() => {
                self.at = offset + usize::from(len);
                (kind, &self.bytes[offset + 2..self.at])
            }
            _ => {
                self.at = self.bytes.len();
                return Some(Err(TcpOptionError(offset)));
            }
        };
        let option = match (kind, data) {
            (2, &[a, b]) => TcpOption::Mss(u16::from_be_bytes([a, b])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, &[]) => TcpOption::SackPermitted,
            (8, &[a, b, c, d, e, f, g, h]) => {
                TcpOption::Timestamps(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
            }
            _ => TcpOption::Other { kind, data },
        };
        Some(Ok((offset, option)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;
    use proptest::prelude::*;

    #[test]
    fn header_length_and_flags_round_trip_all_their_values() {
        let mut header = TcpHeader::default();
        for words in 0..16 {
            header.set_header_len(words * 4);
            assert_eq!(header.header_len(), words * 4);
        }
        for bits in 0..=255 {
            let names = TcpFlags(bits).to_string();
            assert_eq!(names.split_whitespace().count() as u32, bits.count_ones());
        }
        assert_eq!((TcpFlags::SYN | TcpFlags::ACK).to_string(), "SYN ACK");
        assert_eq!((TcpFlags::SYN | TcpFlags::ACK).without(TcpFlags::SYN), TcpFlags::ACK);
    }

    #[test]
    fn a_linux_syn_has_its_five_options() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7];
        let options: Vec<_> = TcpOptions::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                (0, TcpOption::Mss(1460)),
                (4, TcpOption::SackPermitted),
                (6, TcpOption::Timestamps(1, 2)),
                (17, TcpOption::WindowScale(7)),
            ]
        );
        assert_eq!(TcpOptions::new(&bytes).mss(), Some((2, 1460)));
        assert_eq!(TcpOptions::new(&bytes[4..]).mss(), None);
    }

    #[test]
    fn a_malformed_option_is_reported_once_with_its_place() {
        for bytes in [&[1, 2][..], &[1, 2, 0, 0], &[1, 2, 1], &[1, 2, 4, 5]] {
            let options: Vec<_> = TcpOptions::new(bytes).collect();
            assert_eq!(options, [Err(TcpOptionError(1))]);
        }
        let odd_length = TcpOptions::new(&[2, 3, 9, 0]).next();
        assert_eq!(odd_length, Some(Ok((0, TcpOption::Other { kind: 2, data: &[9] }))));
    }

    proptest! {
        #[test]
        fn random_bytes_end_within_one_step_per_byte(bytes: Vec<u8>) {
            prop_assert!(TcpOptions::new(&bytes).count() <= bytes.len());
            let _ = TcpOptions::of_segment(&bytes).count();
        }

        #[test]
        fn etherparse_reads_what_we_write(ports: [u16; 2], numbers: [u32; 2], flags: u8, rest: [u16; 3]) {
            let mut ours = TcpHeader::new(ports[0], ports[1], TcpFlags(flags));
            ours.sequence = U32Be::new(numbers[0]);
            ours.acknowledgment = U32Be::new(numbers[1]);
            ours.window = U16Be::new(rest[0]);
            ours.checksum = U16Be::new(rest[1]);
            ours.urgent = U16Be::new(rest[2]);
            let (theirs, _) = etherparse::TcpHeader::from_slice(ours.as_bytes()).unwrap();
            prop_assert_eq!((theirs.source_port, theirs.destination_port), (ports[0], ports[1]));
            prop_assert_eq!((theirs.sequence_number, theirs.acknowledgment_number), (numbers[0], numbers[1]));
            prop_assert_eq!((theirs.window_size, theirs.checksum, theirs.urgent_pointer), (rest[0], rest[1], rest[2]));
            let bits = [theirs.fin, theirs.syn, theirs.rst, theirs.psh, theirs.ack, theirs.urg, theirs.ece, theirs.cwr];
            let bits = bits.iter().enumerate().fold(0, |all, (bit, set)| all | u8::from(*set) << bit);
            prop_assert_eq!(bits, flags);
            let mut again = Vec::new();
            theirs.write(&mut again).unwrap();
            prop_assert_eq!(TcpHeader::read(&again), Some(ours));
        }
    }
}
