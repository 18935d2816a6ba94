//! Ethernet (EUI-48) addresses.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An Ethernet address, in transmission order.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// `00:00:00:00:00:00`
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// `02:fe` and a number: an address that this router makes up for an interface.
    #[inline(always)]
    pub const fn numbered(number: u32) -> MacAddr {
        let b = number.to_be_bytes();
        MacAddr([0x02, 0xfe, b[0], b[1], b[2], b[3]])
    }

    /// The address whose 48 bits are the low bits of `value`.
    #[inline(always)]
    pub const fn from_u64(value: u64) -> MacAddr {
        let b = value.to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }

    /// The 48 bits as a number; the upper 16 bits are 0. A handy hash key.
    #[inline(always)]
    pub const fn to_u64(self) -> u64 {
        let b = self.0;
        u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]])
    }

    /// Group bit set: multicast, and broadcast too.
    #[inline(always)]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// All ones.
    #[inline(always)]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == 0xffff_ffff_ffff
    }

    /// All zeros.
    #[inline(always)]
    pub const fn is_zero(self) -> bool {
        self.to_u64() == 0
    }

    /// An address that one station may have: neither a group address nor all zeros.
    #[inline(always)]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !self.is_zero()
    }

    /// Universal/local bit set: not from a vendor's range.
    #[inline(always)]
    pub const fn is_locally_administered(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// The Ethernet group of an IPv4 multicast group: `01:00:5e` and the low 23 bits (RFC 1112, 6.4).
    pub const fn from_ipv4_multicast(group: Ipv4Addr) -> MacAddr {
        let b = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b[1] & 0x7f, b[2], b[3]])
    }

    /// The Ethernet group of an IPv6 multicast group: `33:33` and the low 32 bits (RFC 2464, 7).
    pub const fn from_ipv6_multicast(group: Ipv6Addr) -> MacAddr {
        let b = group.octets();
        MacAddr([0x33, 0x33, b[12], b[13], b[14], b[15]])
    }

    /// The modified EUI-64 interface identifier (RFC 4291, appendix A).
    pub const fn eui64(self) -> u64 {
        let b = self.0;
        u64::from_be_bytes([b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]])
    }

    /// The link-local IPv6 address `fe80::` plus [`eui64`](Self::eui64) (RFC 4862, 5.3).
    pub const fn link_local(self) -> Ipv6Addr {
        Ipv6Addr::from_bits((0xfe80 << 112) | self.eui64() as u128)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5])
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacAddrError(String);

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid MAC address: {} (expected aa:bb:cc:dd:ee:ff or aabb.ccdd.eeff)", self.0)
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Accepts `aa:bb:cc:dd:ee:ff`, `aa-bb-cc-dd-ee-ff` and `aabb.ccdd.eeff`; leading zeros of a group may be left out, as in `1.2.3`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| MacAddrError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<MacAddr> {
    if text.contains('.') {
        let words = groups::<3>(text, '.', 1..=4)?;
        let [a, b, c] = words.map(u16::to_be_bytes);
        return Some(MacAddr([a[0], a[1], b[0], b[1], c[0], c[1]]));
    }
    let separator = if text.contains('-') { '-' } else { ':' };
    let octets = groups::<6>(text, separator, 1..=2)?;
    Some(MacAddr(octets.map(|octet| octet as u8)))
}

/// Exactly `N` hexadecimal groups of the given number of digits each.
fn groups<const N: usize>(text: &str, separator: char, digits: core::ops::RangeInclusive<usize>) -> Option<[u16; N]> {
    let mut parts = text.split(separator);
    let mut values = [0; N];
    for value in &mut values {
        let part = parts.next()?;
        // from_str_radix alone would also take a sign
        if !digits.contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *value = u16::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(values)
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::MacAddr;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    impl Serialize for MacAddr {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for MacAddr {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_written_forms_mean_the_same_address() {
        let mac = MacAddr([0x02, 0xfe, 0x0a, 0xbc, 0x00, 0x01]);
        assert_eq!(mac.to_string(), "02:fe:0a:bc:00:01");
        for text in ["02:fe:0a:bc:00:01", "2:FE:a:bc:0:1", "02-fe-0a-bc-00-01", "02fe.0abc.0001", "2fe.abc.1"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_text_that_was_wrong() {
        for text in [
            "",
            "02:fe:0a:bc:00",
            "02:fe:0a:bc:00:01:02",
            "02:fe:0a:bc:00:0g",
            "002:fe:0a:bc:00:01",
            "+2:fe:0a:bc:00:01",
            "02fe.0abc.00001",
            "02fe..0001",
            "02fe.0abc",
            "02:fe-0a:bc:00:01",
            "é:fe:0a:bc:00:01",
        ] {
            let error = text.parse::<MacAddr>().unwrap_err();
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn group_bit_tells_multicast() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::BROADCAST.is_unicast() && !MacAddr::ZERO.is_unicast());
        assert!(MacAddr([3, 0, 0, 0, 0, 0]).is_multicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 0]).is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 0]).is_locally_administered());
    }

    #[test]
    fn multicast_groups_map_to_their_ethernet_groups() {
        let mac = MacAddr::from_ipv4_multicast(Ipv4Addr::new(239, 255, 1, 2));
        assert_eq!(mac.to_string(), "01:00:5e:7f:01:02");
        let mac = MacAddr::from_ipv6_multicast("ff02::1:ff28:9c5a".parse().unwrap());
        assert_eq!(mac.to_string(), "33:33:ff:28:9c:5a");
    }

    #[test]
    fn link_local_address_carries_the_modified_eui64() {
        let mac: MacAddr = "39:a7:94:07:cb:d0".parse().unwrap();
        assert_eq!(mac.link_local().to_string(), "fe80::3ba7:94ff:fe07:cbd0");
    }

    proptest! {
        #[test]
        fn text_and_number_round_trip(bytes: [u8; 6]) {
            let mac = MacAddr(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(MacAddr::from_u64(mac.to_u64()), mac);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            let _ = text.parse::<MacAddr>();
        }
    }
}
