//! IPv4 (RFC 791), with the input checks of RFC 1812.

use crate::checksum::{Sum, Update};
use crate::header::wire_header;
use crate::{Header, U16Be, U32Be};
use core::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod address;
mod options;
mod protocol;
pub use address::{is_martian_dst, is_martian_src};
pub use options::{Ipv4Option, Ipv4OptionError, Ipv4Options};
pub use protocol::IpProtocol;

/// The fixed part of the IPv4 header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ipv4Header {
    /// Version (upper 4 bits) and header length in 32-bit words
    pub version_ihl: u8,
    /// DSCP (upper 6 bits) and ECN
    pub tos: u8,
    /// Length of header and payload
    pub total_len: U16Be,
    /// Identifies the fragments of one datagram
    pub identification: U16Be,
    /// Flags (upper 3 bits) and fragment offset in units of 8 bytes
    pub fragment: U16Be,
    /// Time to live
    pub ttl: u8,
    /// Protocol of the payload
    pub protocol: IpProtocol,
    /// Header checksum
    pub checksum: U16Be,
    /// Source address
    pub src: U32Be,
    /// Destination address
    pub dst: U32Be,
}
wire_header!(Ipv4Header = 20);

/// Don't-fragment flag in [`Ipv4Header::fragment`].
pub const DONT_FRAGMENT: u16 = 0x4000;
/// More-fragments flag in [`Ipv4Header::fragment`].
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Offset bits of [`Ipv4Header::fragment`].
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;
/// Longest header, options included.
pub const MAX_HEADER_LEN: usize = 60;

/// Why a router must not take a packet for IPv4, in the order of RFC 1812, 5.2.2.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ipv4Error {
    /// Fewer than 20 bytes (test 1)
    TooShort,
    /// Header checksum is wrong (test 2)
    BadChecksum,
    /// Version is not 4 (test 3)
    BadVersion,
    /// Header length under 5 words, or more than there are bytes (test 4)
    BadHeaderLength,
    /// Total length is less than the header's (test 5)
    BadTotalLength,
    /// Total length is more than the link layer delivered (5.2.2, last paragraph)
    Truncated,
}

impl Ipv4Header {
    /// A header without options, TTL 64, with the length and checksum yet to be filled in.
    #[inline(always)]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol) -> Self {
        Self {
            version_ihl: 0x45,
            tos: 0,
            total_len: U16Be::ZERO,
            identification: U16Be::ZERO,
            fragment: U16Be::ZERO,
            ttl: 64,
            protocol,
            checksum: U16Be::ZERO,
            src: U32Be::new(src.to_bits()),
            dst: U32Be::new(dst.to_bits()),
        }
    }

    /// All checks of RFC 1812, 5.2.2, on a packet that may carry options and link-layer padding. The reason is the first
    /// that applies, except that a version other than 4 is named before the checksum.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Ipv4Error> {
        let header = Self::read(packet).ok_or(Ipv4Error::TooShort)?;
        if header.version() != 4 {
            return Err(Ipv4Error::BadVersion);
        }
        if header.header_len() < Self::LEN {
            return Err(Ipv4Error::BadHeaderLength);
        }
        let bytes = packet.get(..header.header_len()).ok_or(Ipv4Error::BadHeaderLength)?;
        if !Sum::of(bytes).is_valid() {
            return Err(Ipv4Error::BadChecksum);
        }
        if usize::from(header.total_len.get()) < header.header_len() {
            return Err(Ipv4Error::BadTotalLength);
        }
        if usize::from(header.total_len.get()) > packet.len() {
            return Err(Ipv4Error::Truncated);
        }
        Ok(header)
    }

    /// The same checks for the common case, in straight-line code: true for a valid packet without options; false means
    /// that [`parse`](Self::parse) has to find out (options, or an error). `available` counts from the header's start.
    #[inline(always)]
    pub const fn is_plain_and_valid(&self, available: usize) -> bool {
        let total = self.total_len.get() as usize;
        (self.version_ihl == 0x45) & (total >= 20) & (total <= available) & self.has_valid_checksum_without_options()
    }

    /// Header checksum of a header without options is right.
    #[inline(always)]
    pub const fn has_valid_checksum_without_options(&self) -> bool {
        self.sum_without_options().is_valid()
    }

    /// Sum over the 20 bytes, as five words.
    #[inline(always)]
    const fn sum_without_options(&self) -> Sum {
        let first = (self.version_ihl as u32) << 24 | (self.tos as u32) << 16 | self.total_len.get() as u32;
        let second = (self.identification.get() as u32) << 16 | self.fragment.get() as u32;
        Sum::new().add_u32(first).add_u32(second).add_u32(self.ttl_word()).add_u32(self.src.get()).add_u32(self.dst.get())
    }

    /// Fills in the checksum of a header without options.
    #[inline(always)]
    pub const fn fill_checksum(&mut self) {
        self.checksum = U16Be::ZERO;
        self.checksum = U16Be::new(self.sum_without_options().checksum());
    }

    /// Fills in the checksum of a header that `options` follow.
    pub fn fill_checksum_with_options(&mut self, options: &[u8]) {
        self.checksum = U16Be::ZERO;
        self.checksum = U16Be::new(self.sum_without_options().add_bytes(options).checksum());
    }

    /// Version field; 4 in a valid header.
    #[inline(always)]
    pub const fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Length of the header with its options, in bytes: 0 to 60, at least 20 in a valid header.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        (self.version_ihl as usize & 0xf) * 4
    }

    /// Sets version 4 and the header length from a number of bytes (a multiple of 4 up to 60).
    #[inline(always)]
    pub const fn set_header_len(&mut self, bytes: usize) {
        self.version_ihl = 0x40 | (bytes / 4) as u8 & 0xf;
    }

    /// The header carries options.
    #[inline(always)]
    pub const fn has_options(&self) -> bool {
        self.version_ihl & 0xf > 5
    }

    /// Length of the payload according to the header; 0 if the lengths contradict each other.
    #[inline(always)]
    pub const fn payload_len(&self) -> usize {
        (self.total_len.get() as usize).saturating_sub(self.header_len())
    }

    /// Differentiated services code point, 0 to 63.
    #[inline(always)]
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Explicit congestion notification, 0 to 3.
    #[inline(always)]
    pub const fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Sets the code point; the checksum is not touched.
    #[inline(always)]
    pub const fn set_dscp(&mut self, dscp: u8) {
        self.tos = dscp << 2 | self.ecn();
    }

    /// Sets the congestion notification; the checksum is not touched.
    #[inline(always)]
    pub const fn set_ecn(&mut self, ecn: u8) {
        self.tos = self.tos & !3 | ecn & 3;
    }

    /// The packet must not be fragmented.
    #[inline(always)]
    pub const fn dont_fragment(&self) -> bool {
        self.fragment.get() & DONT_FRAGMENT != 0
    }

    /// More fragments follow.
    #[inline(always)]
    pub const fn more_fragments(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment's payload lies in the datagram's, in bytes.
    #[inline(always)]
    pub const fn fragment_offset(&self) -> usize {
        (self.fragment.get() & FRAGMENT_OFFSET_MASK) as usize * 8
    }

    /// Part of a fragmented datagram, the first fragment included.
    #[inline(always)]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | FRAGMENT_OFFSET_MASK) != 0
    }

    /// A fragment without the L4 header.
    #[inline(always)]
    pub const fn is_later_fragment(&self) -> bool {
        self.fragment.get() & FRAGMENT_OFFSET_MASK != 0
    }

    /// A second TCP fragment that would overwrite the flags of the first (RFC 1858, 3).
    #[inline(always)]
    pub const fn is_tiny_tcp_fragment(&self) -> bool {
        self.protocol.0 == IpProtocol::TCP.0 && self.fragment.get() & FRAGMENT_OFFSET_MASK == 1
    }

    /// Source address.
    #[inline(always)]
    pub const fn src_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.src.get())
    }

    /// Destination address.
    #[inline(always)]
    pub const fn dst_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.dst.get())
    }

    /// TTL, protocol and checksum as one word, TTL in the top byte.
    #[inline(always)]
    pub const fn ttl_word(&self) -> u32 {
        (self.ttl as u32) << 24 | (self.protocol.0 as u32) << 16 | self.checksum.get() as u32
    }

    /// Writes back what [`ttl_word`](Self::ttl_word) read.
    #[inline(always)]
    pub const fn set_ttl_word(&mut self, word: u32) {
        self.ttl = (word >> 24) as u8;
        self.protocol = IpProtocol((word >> 16) as u8);
        self.checksum = U16Be::new(word as u16);
    }

    /// Takes one from the TTL and repairs the checksum (RFC 1624). The caller has seen to it that the TTL is not 0.
    #[inline(always)]
    pub const fn decrement_ttl(&mut self) {
        self.set_ttl_word(ttl_word_decremented(self.ttl_word()));
    }

    /// Sets the total length and repairs the checksum.
    #[inline(always)]
    pub const fn update_total_len(&mut self, total_len: u16) {
        let update = Update::new(self.checksum.get()).u16(self.total_len.get(), total_len);
        self.total_len = U16Be::new(total_len);
        self.checksum = U16Be::new(update.finish());
    }

    /// Sets DSCP and ECN and repairs the checksum.
    #[inline(always)]
    pub const fn update_tos(&mut self, tos: u8) {
        let update = Update::new(self.checksum.get()).u16(self.tos as u16, tos as u16);
        self.tos = tos;
        self.checksum = U16Be::new(update.finish());
    }
}

/// The word of [`Ipv4Header::ttl_word`] after one hop: TTL less one, checksum repaired by RFC 1624. One load, three adds,
/// one store.
#[inline(always)]
pub const fn ttl_word_decremented(word: u32) -> u32 {
    // The covered word falls by 0x0100, so its complement rises by as much; a carry out of 16 bits comes back as 1.
    // 0xffff becomes 0x0000, the only form in which a full computation writes zero.
    let checksum = (word & 0xffff) + 0x0100;
    let checksum = checksum + (checksum >= 0xffff) as u32;
    word.wrapping_sub(0x0100_0000) & 0xffff_0000 | checksum & 0xffff
}

/// [`ttl_word_decremented`] for a word as it stands in memory: without turning its bytes, and without a branch, so that the
/// words of several packets are done at once. A one's complement sum does not ask for the order of bytes (RFC 1071, 2(B)).
#[inline(always)]
#[must_use]
pub const fn ttl_word_decremented_raw(word: u32) -> u32 {
    let word = u32::from_le(word);
    // Both fields by one addition. TTL 0, of which there is nothing to take, would take from the protocol.
    let carry = (word >= 0xfffe_0000) as u32;
    word.wrapping_add(0xffff).wrapping_add(carry << 16).to_le()
}

#[cfg(test)]
mod tests;
