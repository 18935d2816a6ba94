//! The flow hash: which fields count, and how they are mixed.
//!
//! Fields that do not count are masked to zero, so that there is one straight-line path for any selection. Mixing is
//! folded 64×64→128-bit multiplication with odd constants: three multiplications for IPv4. It is not keyed:
//! who can choose addresses and ports can make flows collide, which for load sharing costs balance and nothing else.

use super::{FlowV4, FlowV6};
use core::fmt;

/// Which fields of a flow its hash depends on, as in `set ip flow-hash`.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct FlowFields(u8);

impl FlowFields {
    /// Source address
    pub const SRC: FlowFields = FlowFields(1);
    /// Destination address
    pub const DST: FlowFields = FlowFields(2);
    /// Source port
    pub const SPORT: FlowFields = FlowFields(4);
    /// Destination port
    pub const DPORT: FlowFields = FlowFields(8);
    /// Protocol
    pub const PROTO: FlowFields = FlowFields(16);
    /// Source and destination change places
    pub const REVERSE: FlowFields = FlowFields(32);
    /// Both directions of a flow hash the same
    pub const SYMMETRIC: FlowFields = FlowFields(64);
    /// IPv6 flow label
    pub const FLOW_LABEL: FlowFields = FlowFields(128);
    /// Nothing counts: every flow has the same hash.
    pub const NONE: FlowFields = FlowFields(0);
    /// The 5-tuple
    pub const DEFAULT: FlowFields = FlowFields(1 | 2 | 4 | 8 | 16);

    const NAMES: [(FlowFields, &'static str); 8] = [
        (Self::SRC, "src"),
        (Self::DST, "dst"),
        (Self::SPORT, "sport"),
        (Self::DPORT, "dport"),
        (Self::PROTO, "proto"),
        (Self::REVERSE, "reverse"),
        (Self::SYMMETRIC, "symmetric"),
        (Self::FLOW_LABEL, "flowlabel"),
    ];

    /// Both selections.
    pub const fn union(self, other: FlowFields) -> FlowFields {
        FlowFields(self.0 | other.0)
    }

    /// All fields of `other` count.
    #[inline(always)]
    pub const fn contains(self, other: FlowFields) -> bool {
        self.0 & other.0 == other.0
    }

    /// The field with this name in the command language.
    pub fn from_name(name: &str) -> Option<FlowFields> {
        Self::NAMES.iter().find(|(_, text)| *text == name).map(|(field, _)| *field)
    }

    /// All ones if the field counts, else 0.
    #[inline(always)]
    const fn mask(self, field: FlowFields) -> u64 {
        0u64.wrapping_sub((self.0 & field.0 != 0) as u64)
    }
}

impl Default for FlowFields {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl core::ops::BitOr for FlowFields {
    type Output = FlowFields;

    fn bitor(self, other: FlowFields) -> FlowFields {
        self.union(other)
    }
}

impl fmt::Display for FlowFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (field, name) in Self::NAMES {
            if self.contains(field) {
                write!(f, "{separator}{name}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FlowFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowFields({self})")
    }
}

// Odd, with balanced bits: fractional digits of pi
const K0: u64 = 0x243f_6a88_85a3_08d3;
const K1: u64 = 0x1319_8a2e_0370_7345;
const K2: u64 = 0xa409_3822_299f_31d1;
const K3: u64 = 0x082e_fa98_ec4e_6c89;

#[inline(always)]
const fn mix(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// One end of a flow as one number.
#[inline(always)]
const fn end_v4(address: u32, port: u16) -> u64 {
    (address as u64) << 16 | port as u64
}

/// Both ends in the order in which they are mixed.
#[inline(always)]
const fn ordered(fields: FlowFields, src: u64, dst: u64) -> (u64, u64) {
    let swap = if fields.contains(FlowFields::SYMMETRIC) { src > dst } else { fields.contains(FlowFields::REVERSE) };
    if swap { (dst, src) } else { (src, dst) }
}

#[inline(always)]
const fn finish(first: u64, second: u64, other: u64) -> u32 {
    // Addition keeps the order of the ends apart; a plain XOR of two products would not
    let hash = mix(first ^ K0, K1).wrapping_add(mix(second ^ K2, K3)) ^ other;
    let hash = mix(hash ^ K3, K0);
    (hash ^ hash >> 32) as u32
}

/// Hash of an IPv4 flow over the fields that count.
#[inline(always)]
pub const fn flow_hash_v4(flow: &FlowV4, fields: FlowFields) -> u32 {
    let src = end_v4(flow.src & fields.mask(FlowFields::SRC) as u32, flow.src_port & fields.mask(FlowFields::SPORT) as u16);
    let dst = end_v4(flow.dst & fields.mask(FlowFields::DST) as u32, flow.dst_port & fields.mask(FlowFields::DPORT) as u16);
    let (first, second) = ordered(fields, src, dst);
    finish(first, second, flow.protocol.0 as u64 & fields.mask(FlowFields::PROTO))
}

/// Hash of an IPv6 flow over the fields that count.
#[inline(always)]
pub const fn flow_hash_v6(flow: &FlowV6, fields: FlowFields) -> u32 {
    let src = end_v6(flow.src, fields.mask(FlowFields::SRC), flow.src_port & fields.mask(FlowFields::SPORT) as u16);
    let dst = end_v6(flow.dst, fields.mask(FlowFields::DST), flow.dst_port & fields.mask(FlowFields::DPORT) as u16);
    let (first, second) = ordered(fields, src, dst);
    let protocol = flow.protocol.0 as u64 & fields.mask(FlowFields::PROTO);
    let label = flow.flow_label as u64 & fields.mask(FlowFields::FLOW_LABEL);
    finish(first, second, protocol | label << 8)
}

/// One end of an IPv6 flow, folded into one number.
#[inline(always)]
const fn end_v6(address: u128, mask: u64, port: u16) -> u64 {
    let upper = (address >> 64) as u64 & mask;
    let lower = address as u64 & mask;
    mix(upper ^ K2, K1).wrapping_add(mix(lower ^ port as u64 ^ K0, K3)) ^ (port as u64) << 48
}
