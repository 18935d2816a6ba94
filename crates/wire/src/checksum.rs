//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), and the sums of TCP, UDP and ICMPv6.
//!
//! A ones'-complement sum does not care about byte order as long as bytes keep their place in the 16-bit words
//! (RFC 1071, 2 B), so words are added in the machine's order and only the folded result is put back into memory order.
//! Words of 32 bits go into a 64-bit accumulator: no carry is lost below 16 GB, and compilers vectorise the loop.

use crate::U16Be;
use crate::header::Header;
use crate::ipv4::{IpProtocol, Ipv4Header};
use crate::ipv6::Ipv6Header;

mod offload;
pub use offload::{OffloadError, complete};

/// A ones'-complement sum under way, over pieces of any length.
#[derive(Copy, Clone, Debug, Default)]
pub struct Sum {
    /// Sum of the machine-order words so far
    acc: u64,
    /// An odd number of bytes has been added: the next byte is the second of its word
    odd: bool,
}

impl Sum {
    /// Nothing added yet.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { acc: 0, odd: false }
    }

    /// The sum over `bytes`.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Self {
        Self::new().add_bytes(bytes)
    }

    /// Adds a piece; after a piece of odd length the next one goes on in the middle of the word, so the pieces of a
    /// buffer chain can be added one after the other.
    #[inline(always)]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let sum = sum_words(bytes);
        let sum = if self.odd { u64::from(fold(sum).swap_bytes()) } else { sum };
        Self { acc: add_carry(self.acc, sum), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Adds a 16-bit value given in host order. Only between whole words.
    #[inline(always)]
    pub const fn add_u16(self, value: u16) -> Self {
        Self { acc: add_carry(self.acc, value.to_be() as u64), odd: self.odd }
    }

    /// Adds a 32-bit value given in host order, such as an IPv4 address. Only between whole words.
    #[inline(always)]
    pub const fn add_u32(self, value: u32) -> Self {
        Self { acc: add_carry(self.acc, value.to_be() as u64), odd: self.odd }
    }

    /// Adds a 128-bit value given in host order, such as an IPv6 address. Only between whole words.
    #[inline(always)]
    pub const fn add_u128(self, value: u128) -> Self {
        let value = value.to_be();
        let acc = add_carry(self.acc, value as u64);
        Self { acc: add_carry(acc, (value >> 64) as u64), odd: self.odd }
    }

    /// Adds TCP's, UDP's or ICMP's pseudo-header for IPv4 (RFC 9293, 3.1). `len` counts the L4 header and its data.
    #[inline(always)]
    pub const fn add_pseudo_v4(self, src: u32, dst: u32, protocol: IpProtocol, len: u16) -> Self {
        self.add_u32(src).add_u32(dst).add_u16(protocol.0 as u16).add_u16(len)
    }

    /// Adds the pseudo-header for IPv6 (RFC 8200, 8.1). `dst` is the final destination.
    #[inline(always)]
    pub const fn add_pseudo_v6(self, src: u128, dst: u128, protocol: IpProtocol, len: u32) -> Self {
        self.add_u128(src).add_u128(dst).add_u32(len).add_u16(protocol.0 as u16)
    }

    /// The folded sum in host order, not complemented: 0xffff over data whose checksum field is right.
    #[inline(always)]
    pub const fn folded(self) -> u16 {
        u16::from_be(fold(self.acc))
    }

    /// The checksum field in host order: the complement of the sum.
    #[inline(always)]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The checksum field of UDP, where 0 means "none" and is sent as 0xffff (RFC 768).
    #[inline(always)]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// The data that was added, checksum field included, is intact.
    #[inline(always)]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

#[inline(always)]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Machine-order words summed; a last odd byte counts as the first of a word whose second is 0.
#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum = 0u64;
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum + u64::from(u32::from_ne_bytes(last))
}

#[inline(always)]
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The checksum over `bytes` (RFC 1071), in host order.
#[inline(always)]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::of(bytes).checksum()
}

/// A checksum field, followed through changes of the data it covers (RFC 1624, equation 3).
///
/// ```
/// # use quiver_wire::checksum::{checksum, Update};
/// let mut data = [0x45, 0, 0, 20];
/// let before = checksum(&data);
/// data[3] = 40;
/// assert_eq!(Update::new(before).u16(20, 40).finish(), checksum(&data));
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Update {
    /// Complement of the field, plus what changed
    sum: u64,
}

impl Update {
    /// Starts from the field's value in host order.
    #[inline(always)]
    pub const fn new(field: u16) -> Self {
        Self { sum: !field as u64 }
    }

    /// A covered 16-bit word changes from `old` to `new`.
    #[inline(always)]
    pub const fn u16(self, old: u16, new: u16) -> Self {
        Self { sum: self.sum + !old as u64 + new as u64 }
    }

    /// A covered, word-aligned 32-bit value changes.
    #[inline(always)]
    pub const fn u32(self, old: u32, new: u32) -> Self {
        Self { sum: add_carry(self.sum, !old as u64 + new as u64) }
    }

    /// A covered, word-aligned 128-bit value changes.
    #[inline(always)]
    pub const fn u128(self, old: u128, new: u128) -> Self {
        let sum = add_carry(self.sum, !old as u64);
        let sum = add_carry(sum, (!old >> 64) as u64);
        let sum = add_carry(sum, new as u64);
        Self { sum: add_carry(sum, (new >> 64) as u64) }
    }

    /// The field's new value in host order.
    #[inline(always)]
    pub const fn finish(self) -> u16 {
        !fold(self.sum)
    }

    /// The field's new value for UDP: a field of 0 (no checksum) must not be updated at all, which the caller checks,
    /// and a new value of 0 is written as 0xffff.
    #[inline(always)]
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// Sum over an L4 datagram in IPv4 with its pseudo-header; `.is_valid()` verifies, and with the field zeroed
/// `.checksum()` computes. ICMP has no pseudo-header: use [`Sum::of`].
#[inline(always)]
pub fn l4_sum_v4(ip: &Ipv4Header, protocol: IpProtocol, l4: &[u8]) -> Sum {
    Sum::of(l4).pad().add_pseudo_v4(ip.src.get(), ip.dst.get(), protocol, l4.len() as u16)
}

/// Sum over an L4 datagram in IPv6 (ICMPv6 included) with its pseudo-header.
#[inline(always)]
pub fn l4_sum_v6(ip: &Ipv6Header, protocol: IpProtocol, l4: &[u8]) -> Sum {
    Sum::of(l4).pad().add_pseudo_v6(ip.src.get(), ip.dst.get(), protocol, l4.len() as u32)
}

impl Sum {
    /// Fills up an odd number of bytes with a 0, so that whole words may follow.
    #[inline(always)]
    pub(crate) const fn pad(self) -> Self {
        Self { acc: self.acc, odd: false }
    }
}

/// Where TCP, UDP and ICMP keep their checksum, from the start of the L4 header.
#[inline(always)]
pub const fn field_offset(protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP => Some(6),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => Some(2),
        _ => None,
    }
}

/// Writes the right checksum into an L4 datagram whose sum over the pseudo-header is `pseudo` (nothing added for ICMP).
/// `None`, and nothing written, for a protocol without a checksum here or a datagram too short for its field.
pub fn fill_l4(protocol: IpProtocol, pseudo: Sum, l4: &mut [u8]) -> Option<()> {
    let at = field_offset(protocol)?;
    U16Be::ZERO.write_at(l4, at)?;
    let sum = pseudo.add_bytes(l4);
    let field = if protocol == IpProtocol::UDP { sum.udp_checksum() } else { sum.checksum() };
    U16Be::new(field).write_at(l4, at)
}

#[cfg(test)]
mod tests;
