//! IPv4 and IPv6 prefixes: an address and how many of its leading bits count.
//!
//! The address is kept as given (`10.0.0.1/24` names an interface's address and its subnet at once);
//! [`network`](Ipv4Prefix::network) and [`masked`](Ipv4Prefix::masked) clear the host bits, which is the form that
//! tables hold.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Why a text or a pair of address and length is no prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// The length is larger than the address has bits; the text names it as it was written
    Len(String),
    /// The part before the slash is no address
    Address(String),
    /// There is no slash
    NoLen(String),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Len(len) => write!(f, "Invalid prefix len: {len}"),
            Self::Address(address) => write!(f, "Invalid address: {address}"),
            Self::NoLen(text) => write!(f, "Missing prefix length: {text} (expected {text}/LEN)"),
        }
    }
}

impl core::error::Error for PrefixError {}

/// Text of the form `ADDRESS/LEN`, with a length of at most `max` bits.
fn parse<A: FromStr>(text: &str, max: u8) -> Result<(A, u8), PrefixError> {
    let Some((address, len)) = text.split_once('/') else {
        return match text.parse::<A>() {
            Ok(_) => Err(PrefixError::NoLen(text.to_owned())),
            Err(_) => Err(PrefixError::Address(text.to_owned())),
        };
    };
    let address = address.parse().map_err(|_| PrefixError::Address(address.to_owned()))?;
    // u8's parser alone would also take a sign
    let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    match len.parse::<u8>() {
        Ok(bits) if digits && bits <= max => Ok((address, bits)),
        _ => Err(PrefixError::Len(len.to_owned())),
    }
}

/// Defines the prefix type of one family over its address type and number of bits.
macro_rules! prefix {
    ($(#[$doc:meta])* $name:ident, $addr:ty, $bits:ty) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            addr: $addr,
            len: u8,
        }

        impl $name {
            /// Longest length: all bits of an address.
            pub const MAX_LEN: u8 = <$bits>::BITS as u8;
            /// Every address.
            pub const DEFAULT: Self = Self { addr: <$addr>::UNSPECIFIED, len: 0 };

            /// A prefix with the host bits as given.
            pub fn new(addr: $addr, len: u8) -> Result<Self, PrefixError> {
                if len > Self::MAX_LEN {
                    return Err(PrefixError::Len(len.to_string()));
                }
                Ok(Self { addr, len })
            }

            /// The prefix of this one address.
            #[inline(always)]
            pub const fn host(addr: $addr) -> Self {
                Self { addr, len: Self::MAX_LEN }
            }

            /// The address as given, host bits included.
            #[inline(always)]
            pub const fn addr(self) -> $addr {
                self.addr
            }

            /// Number of leading bits that count.
            #[inline(always)]
            #[allow(clippy::len_without_is_empty)]
            pub const fn len(self) -> u8 {
                self.len
            }

            /// Ones where the prefix counts.
            #[inline(always)]
            pub const fn mask(self) -> $bits {
                match <$bits>::MAX.checked_shl((Self::MAX_LEN - self.len) as u32) {
                    Some(mask) => mask,
                    None => 0,
                }
            }

            /// The first address: host bits cleared.
            #[inline(always)]
            pub const fn network(self) -> $addr {
                <$addr>::from_bits(self.addr.to_bits() & self.mask())
            }

            /// The last address: host bits set (IPv4's directed broadcast).
            #[inline(always)]
            pub const fn last(self) -> $addr {
                <$addr>::from_bits(self.addr.to_bits() | !self.mask())
            }

            /// The same prefix with the host bits cleared.
            #[inline(always)]
            pub const fn masked(self) -> Self {
                Self { addr: self.network(), len: self.len }
            }

            /// Whether `addr` lies in the prefix.
            #[inline(always)]
            pub const fn contains(self, addr: $addr) -> bool {
                (self.addr.to_bits() ^ addr.to_bits()) & self.mask() == 0
            }

            /// Whether every address of `other` lies in this prefix.
            #[inline(always)]
            pub const fn covers(self, other: Self) -> bool {
                self.len <= other.len && self.contains(other.addr)
            }

            /// All bits count: one address.
            #[inline(always)]
            pub const fn is_host(self) -> bool {
                self.len == Self::MAX_LEN
            }

            /// The prefix that lies `n` prefixes of the same length further, or `None` past the end of the address
            /// space; what `ip route add … count` counts by.
            pub fn nth(self, n: $bits) -> Option<Self> {
                let shift = (Self::MAX_LEN - self.len) as u32;
                let step = match n.checked_shl(shift) {
                    Some(step) if step >> shift == n => step,
                    None if n == 0 => 0,
                    _ => return None,
                };
                let bits = self.network().to_bits().checked_add(step)?;
                Some(Self { addr: <$addr>::from_bits(bits), len: self.len })
            }
        }

        impl From<$addr> for $name {
            fn from(addr: $addr) -> Self {
                Self::host(addr)
            }
        }

        impl FromStr for $name {
            type Err = PrefixError;

            fn from_str(text: &str) -> Result<Self, PrefixError> {
                let (addr, len) = parse(text, Self::MAX_LEN)?;
                Ok(Self { addr, len })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.addr, self.len)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

prefix!(
    /// An IPv4 address and prefix length.
    Ipv4Prefix,
    Ipv4Addr,
    u32
);
prefix!(
    /// An IPv6 address and prefix length.
    Ipv6Prefix,
    Ipv6Addr,
    u128
);

/// A prefix of either family.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// IPv4
    V4(Ipv4Prefix),
    /// IPv6
    V6(Ipv6Prefix),
}

impl IpPrefix {
    /// A prefix of the address's family.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, PrefixError> {
        Ok(match addr {
            IpAddr::V4(addr) => Self::V4(Ipv4Prefix::new(addr, len)?),
            IpAddr::V6(addr) => Self::V6(Ipv6Prefix::new(addr, len)?),
        })
    }

    /// The prefix of this one address.
    pub const fn host(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::V4(Ipv4Prefix::host(addr)),
            IpAddr::V6(addr) => Self::V6(Ipv6Prefix::host(addr)),
        }
    }

    /// The address as given, host bits included.
    pub const fn addr(self) -> IpAddr {
        match self {
            Self::V4(prefix) => IpAddr::V4(prefix.addr()),
            Self::V6(prefix) => IpAddr::V6(prefix.addr()),
        }
    }

    /// Number of leading bits that count.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.len(),
            Self::V6(prefix) => prefix.len(),
        }
    }

    /// The same prefix with the host bits cleared.
    pub const fn masked(self) -> Self {
        match self {
            Self::V4(prefix) => Self::V4(prefix.masked()),
            Self::V6(prefix) => Self::V6(prefix.masked()),
        }
    }

    /// Whether `addr` lies in the prefix; never across families.
    pub const fn contains(self, addr: IpAddr) -> bool {
        match (self, addr) {
            (Self::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr),
            (Self::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr),
            _ => false,
        }
    }

    /// All bits count: one address.
    pub const fn is_host(self) -> bool {
        match self {
            Self::V4(prefix) => prefix.is_host(),
            Self::V6(prefix) => prefix.is_host(),
        }
    }
}

impl From<Ipv4Prefix> for IpPrefix {
    fn from(prefix: Ipv4Prefix) -> Self {
        Self::V4(prefix)
    }
}

impl From<Ipv6Prefix> for IpPrefix {
    fn from(prefix: Ipv6Prefix) -> Self {
        Self::V6(prefix)
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        // A colon decides the family, so that `10.0.0.0/33` is a wrong IPv4 length and not a wrong address
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Debug for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::{IpPrefix, Ipv4Prefix, Ipv6Prefix};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    macro_rules! as_text {
        ($($name:ty),+) => { $(
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                }
            }
        )+ };
    }
    as_text!(Ipv4Prefix, Ipv6Prefix, IpPrefix);
}

#[cfg(test)]
mod tests;
