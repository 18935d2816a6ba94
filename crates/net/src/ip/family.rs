//! The two address families as types, so that tables and nodes are written once.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_tables::address::Address;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::V4 {}
    impl Sealed for super::V6 {}
}

/// A family as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FamilyId {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl FamilyId {
    /// Family of an address.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// `ip4` or `ip6`, as nodes are named.
    pub const fn node_prefix(self) -> &'static str {
        match self {
            Self::V4 => "ip4",
            Self::V6 => "ip6",
        }
    }
}

impl Display for FamilyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V4;
/// IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V6;

/// What differs between IPv4 and IPv6.
pub trait Family: sealed::Sealed + Copy + Debug + Eq + Hash + Send + Sync + 'static {
    /// An address as a number, first bit highest.
    type Addr: Address;
    /// As a value.
    const ID: FamilyId;
    /// Bits of an address.
    const BITS: u8 = Self::ID.bits();

    /// The number behind an address, where it is of this family.
    fn number(address: IpAddr) -> Option<Self::Addr>;

    /// The address behind a number.
    fn address(number: Self::Addr) -> IpAddr;
}

impl Family for V4 {
    type Addr = u32;
    const ID: FamilyId = FamilyId::V4;

    fn number(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(a) => Some(a.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }
}

impl Family for V6 {
    type Addr = u128;
    const ID: FamilyId = FamilyId::V6;

    fn number(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(a) => Some(a.to_bits()),
        }
    }

    fn address(number: u128) -> IpAddr {
        Ipv6Addr::from_bits(number).into()
    }
}
