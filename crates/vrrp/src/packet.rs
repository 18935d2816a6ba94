//! Advertisements (RFC 9568, 5.2) as bytes, and the IP packets that carry them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::checksum::Sum;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::{Header, MacAddr, U16Be};

use quiver_net::ip::FamilyId;

/// Bytes before the addresses.
pub const HEADER: usize = 8;
/// TTL and hop limit (RFC 9568, 5.1.1.3): no router has passed the packet on.
pub const TTL: u8 = 255;
/// The group of all VRRP routers of a link (RFC 9568, 5.1.1.2).
const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// The same of IPv6 (RFC 9568, 5.1.2.2).
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);
/// Version 3, type 1.
const VERSION_TYPE: u8 = 0x31;
/// DSCP CS6, as routing protocols have: queues on the way prefer it.
const TRAFFIC_CLASS: u8 = 0xc0;
/// Largest interval that the field of 12 bits holds, hundredths of a second.
pub const INTERVAL_MAX: u16 = 0xfff;

/// Where advertisements go.
pub const fn group(family: FamilyId) -> IpAddr {
    match family {
        FamilyId::V4 => IpAddr::V4(GROUP4),
        FamilyId::V6 => IpAddr::V6(GROUP6),
    }
}

/// MAC address of that group.
pub fn group_mac(family: FamilyId) -> MacAddr {
    match family {
        FamilyId::V4 => MacAddr::from_ipv4_multicast(GROUP4),
        FamilyId::V6 => MacAddr::from_ipv6_multicast(GROUP6),
    }
}

/// MAC address of a virtual router (RFC 9568, 7.3).
pub const fn virtual_mac(family: FamilyId, vr_id: u8) -> MacAddr {
    let kind = match family {
        FamilyId::V4 => 1,
        FamilyId::V6 => 2,
    };
    MacAddr([0, 0, 0x5e, 0, kind, vr_id])
}

/// What an advertisement says, but for its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Number of the virtual router.
    pub vr_id: u8,
    /// The sender's priority; 0: it is no longer the master.
    pub priority: u8,
    /// Interval of its advertisements, hundredths of a second.
    pub interval: u16,
}

/// Why bytes are no advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// They end before their fields do.
    Length,
    /// Not version 3.
    Version,
    /// Not type 1.
    Type,
    /// The interval is 0.
    Interval,
    /// The checksum is wrong.
    Checksum,
}

fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Sum::new().add_pseudo_v4(src.to_bits(), dst.to_bits(), IpProtocol::VRRP, len as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::VRRP, len as u32),
        _ => Sum::new(),
    }
}

fn written<H: Header>(header: &H) -> Vec<u8> {
    let mut bytes = vec![0; H::LEN];
    // The room is the header's own.
    let _ = header.write(&mut bytes);
    bytes
}

const fn address_len(family: FamilyId) -> usize {
    match family {
        FamilyId::V4 => 4,
        FamilyId::V6 => 16,
    }
}

impl Advertisement {
    /// Reads an advertisement that came in a packet from `src` to `dst`. `message` may be longer than it.
    ///
    /// The sum over an IPv4 message is taken with a pseudo-header (RFC 5798, 5.2.8) or without, since both are found.
    ///
    /// # Errors
    /// It is none, or another version.
    pub fn parse(src: IpAddr, dst: IpAddr, message: &[u8]) -> Result<Self, Invalid> {
        let [version_type, vr_id, priority, count, high, low, ..] = *message else { return Err(Invalid::Length) };
        if version_type >> 4 != VERSION_TYPE >> 4 {
            return Err(Invalid::Version);
        }
        if version_type & 0xf != VERSION_TYPE & 0xf {
            return Err(Invalid::Type);
        }
        let len = HEADER + usize::from(count) * address_len(FamilyId::of(&src));
        let Some(message) = message.get(..len) else { return Err(Invalid::Length) };
        let with_pseudo = pseudo(src, dst, len).add_bytes(message).is_valid();
        if !(with_pseudo || src.is_ipv4() && Sum::of(message).is_valid()) {
            return Err(Invalid::Checksum);
        }
        let interval = u16::from_be_bytes([high, low]) & INTERVAL_MAX;
        if interval == 0 {
            return Err(Invalid::Interval);
        }
        Ok(Self { vr_id, priority, interval })
    }

    /// The message with these addresses, of at most 255 that are those of the family of `src`.
    pub fn message(&self, src: IpAddr, dst: IpAddr, addresses: &[IpAddr]) -> Vec<u8> {
        let addresses = &addresses[..addresses.len().min(255)];
        let [high, low] = (self.interval & INTERVAL_MAX).to_be_bytes();
        let mut bytes = vec![VERSION_TYPE, self.vr_id, self.priority, addresses.len() as u8, high, low, 0, 0];
        for address in addresses {
            match address {
                IpAddr::V4(a) => bytes.extend(a.octets()),
                IpAddr::V6(a) => bytes.extend(a.octets()),
            }
        }
        let sum = pseudo(src, dst, bytes.len()).add_bytes(&bytes).checksum();
        bytes[6..HEADER].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// An IP packet with the message. Addresses of two families give no bytes.
    pub fn packet(&self, src: IpAddr, dst: IpAddr, addresses: &[IpAddr]) -> Vec<u8> {
        let message = self.message(src, dst, addresses);
        let mut bytes = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Header::new(src, dst, IpProtocol::VRRP);
                header.ttl = TTL;
                header.total_len = U16Be::new((Ipv4Header::LEN + message.len()) as u16);
                header.update_tos(TRAFFIC_CLASS);
                header.fill_checksum();
                written(&header)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = Ipv6Header::new(src, dst, IpProtocol::VRRP);
                header.hop_limit = TTL;
                header.payload_len = U16Be::new(message.len() as u16);
                header.set_traffic_class(TRAFFIC_CLASS);
                written(&header)
            }
            _ => return Vec::new(),
        };
        bytes.extend(message);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_advertisement_has_the_bytes_of_the_rfc() {
        let advertisement = Advertisement { vr_id: 51, priority: 100, interval: 100 };
        let packet = advertisement.packet(ip("10.0.0.1"), group(FamilyId::V4), &[ip("10.0.0.100"), ip("10.0.0.101")]);
        assert_eq!(packet[..12], [0x45, 0xc0, 0, 36, 0, 0, 0, 0, 255, 112, packet[10], packet[11]]);
        assert_eq!(packet[12..20], [10, 0, 0, 1, 224, 0, 0, 18]);
        assert_eq!(packet[20..26], [0x31, 51, 100, 2, 0, 100]);
        assert_eq!(packet[28..], [10, 0, 0, 100, 10, 0, 0, 101]);
        let packet = advertisement.packet(ip("fe80::1"), group(FamilyId::V6), &[ip("fe80::100")]);
        assert_eq!((packet[6], packet[7], packet[40..46].to_vec(), packet.len()), (112, 255, vec![0x31, 51, 100, 1, 0, 100], 64));
        assert_eq!(virtual_mac(FamilyId::V6, 51), MacAddr([0, 0, 0x5e, 0, 2, 51]));
    }

    #[test]
    fn the_sum_of_ipv4_may_leave_the_pseudo_header_out_and_that_of_ipv6_may_not() {
        let advertisement = Advertisement { vr_id: 1, priority: 2, interval: 3 };
        for (src, dst, accepted) in [("10.0.0.1", "224.0.0.18", true), ("fe80::1", "ff02::12", false)] {
            let (src, dst) = (ip(src), ip(dst));
            let mut message = advertisement.message(src, dst, &[src]);
            message[6..8].fill(0);
            let sum = Sum::of(&message).checksum();
            message[6..8].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(Advertisement::parse(src, dst, &message).is_ok(), accepted);
        }
    }

    #[test]
    fn each_fault_is_told_apart() {
        let (src, dst) = (ip("10.0.0.1"), group(FamilyId::V4));
        let good = Advertisement { vr_id: 1, priority: 100, interval: 100 }.message(src, dst, &[src]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Advertisement::parse(src, dst, &bytes)
        };
        assert_eq!(with(0, 0x21), Err(Invalid::Version));
        assert_eq!(with(0, 0x32), Err(Invalid::Type));
        assert_eq!(with(2, 101), Err(Invalid::Checksum));
        assert_eq!(with(3, 2), Err(Invalid::Length));
        assert_eq!(Advertisement::parse(src, dst, &good[..11]), Err(Invalid::Length));
        assert_eq!(Advertisement::parse(src, dst, &[]), Err(Invalid::Length));
        let zero = Advertisement { vr_id: 1, priority: 100, interval: 0 }.message(src, dst, &[src]);
        assert_eq!(Advertisement::parse(src, dst, &zero), Err(Invalid::Interval));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(vr_id: u8, priority: u8, interval in 1..=INTERVAL_MAX, count in 0_usize..40, v6: bool) {
            let (src, dst) = if v6 { (ip("fe80::1"), group(FamilyId::V6)) } else { (ip("10.0.0.1"), group(FamilyId::V4)) };
            let advertisement = Advertisement { vr_id, priority, interval };
            let mut bytes = advertisement.message(src, dst, &vec![src; count]);
            prop_assert_eq!(Advertisement::parse(src, dst, &bytes), Ok(advertisement));
            // Padding of the link.
            bytes.extend([0xa5; 20]);
            prop_assert_eq!(Advertisement::parse(src, dst, &bytes), Ok(advertisement));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80), v6: bool) {
            let (src, dst) = if v6 { (ip("fe80::1"), group(FamilyId::V6)) } else { (ip("10.0.0.1"), group(FamilyId::V4)) };
            let _ = Advertisement::parse(src, dst, &bytes);
        }
    }
}
