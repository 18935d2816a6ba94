//! Which addresses a router must not accept as source or destination, whatever its routes say.

/// A source that no forwarded packet may have (RFC 1812, 5.3.7 and 4.2.2.11): this network, loopback, multicast and the
/// reserved block with limited broadcast.
///
/// Private, link-local and documentation addresses are left to policy. 0.0.0.0 as source of DHCP and IGMP is for packets to
/// the router itself and is decided there.
#[inline(always)]
pub const fn is_martian_src(addr: u32) -> bool {
    let top = (addr >> 24) as u8;
    (top == 0) | (top == 127) | (top >= 224)
}

/// A destination that no packet may be forwarded to: this network, loopback, and the reserved block with limited
/// broadcast. Multicast is not martian, it is another kind of forwarding.
#[inline(always)]
pub const fn is_martian_dst(addr: u32) -> bool {
    let top = (addr >> 24) as u8;
    (top == 0) | (top == 127) | (top >= 240)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn martian_blocks_end_where_the_registry_says() {
        let cases = [
            ("0.0.0.0", true, true),
            ("0.255.255.255", true, true),
            ("1.0.0.0", false, false),
            ("10.0.0.1", false, false),
            ("126.255.255.255", false, false),
            ("127.0.0.1", true, true),
            ("128.0.0.0", false, false),
            ("169.254.0.1", false, false),
            ("223.255.255.255", false, false),
            ("224.0.0.1", true, false),
            ("239.255.255.255", true, false),
            ("240.0.0.0", true, true),
            ("255.255.255.255", true, true),
        ];
        for (text, src, dst) in cases {
            let addr = text.parse::<Ipv4Addr>().unwrap().to_bits();
            assert_eq!((is_martian_src(addr), is_martian_dst(addr)), (src, dst), "{text}");
        }
    }
}
