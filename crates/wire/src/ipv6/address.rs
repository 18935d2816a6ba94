//! IPv6 addresses as 128-bit numbers in host order, as table keys have them.

use core::net::Ipv6Addr;

/// `ff02::1`, all nodes on the link
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// `ff02::2`, all routers on the link
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group that a neighbour solicitation for `addr` goes to: `ff02::1:ff` and the low 24 bits (RFC 4291, 2.7.1).
#[inline(always)]
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let group = 0xff02_0000_0000_0000_0000_0001_ff00_0000_u128;
    Ipv6Addr::from_bits(group | addr.to_bits() & 0xff_ffff)
}

/// `ff00::/8`
#[inline(always)]
pub const fn is_multicast(addr: u128) -> bool {
    addr >> 120 == 0xff
}

/// `fe80::/10`
#[inline(always)]
pub const fn is_link_local(addr: u128) -> bool {
    addr >> 118 == 0xfe80 >> 6
}

/// Scope of a multicast address (RFC 4291, 2.7): 1 interface, 2 link, 5 site, 8 organisation, 14 global.
#[inline(always)]
pub const fn multicast_scope(addr: u128) -> u8 {
    (addr >> 112) as u8 & 0xf
}

/// A source that no forwarded packet may have: multicast, unspecified and loopback (RFC 4291, 2.5.2, 2.5.3, 2.7).
/// Link-local sources are not forwarded either, but that has an ICMP error of its own (RFC 4443, 3.1, code 2).
#[inline(always)]
pub const fn is_martian_src(addr: u128) -> bool {
    is_multicast(addr) | (addr <= 1)
}

/// A destination that no packet may be forwarded to: unspecified, loopback, and multicast of interface or reserved scope.
#[inline(always)]
pub const fn is_martian_dst(addr: u128) -> bool {
    (addr <= 1) | (is_multicast(addr) & (multicast_scope(addr) <= 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str) -> u128 {
        text.parse::<Ipv6Addr>().unwrap().to_bits()
    }

    #[test]
    fn solicited_node_group_takes_the_low_24_bits() {
        let addr = "4037::1:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(addr).to_string(), "ff02::1:ff0e:8c6c");
    }

    #[test]
    fn ranges_end_where_rfc_4291_says() {
        assert!(is_link_local(bits("fe80::1")) && is_link_local(bits("febf:ffff::")));
        assert!(!is_link_local(bits("fec0::")) && !is_link_local(bits("fe7f::")));
        assert!(is_multicast(bits("ff00::")) && !is_multicast(bits("feff::")));
        assert_eq!(multicast_scope(bits("ff15::7")), 5);
    }

    #[test]
    fn martians_are_known_for_source_and_destination() {
        for (text, src, dst) in [
            ("::", true, true),
            ("::1", true, true),
            ("::2", false, false),
            ("2001:db8::1", false, false),
            ("fe80::1", false, false),
            ("ff02::1", true, false),
            ("ff01::1", true, true),
            ("ff00::1", true, true),
        ] {
            assert_eq!((is_martian_src(bits(text)), is_martian_dst(bits(text))), (src, dst), "{text}");
        }
    }
}
