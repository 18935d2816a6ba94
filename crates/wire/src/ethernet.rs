//! The Ethernet II header.

use crate::header::wire_header;
use crate::vlan::VlanHeader;
use crate::{Header, MacAddr, U16Be};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Shortest frame without FCS that a wire carries; shorter ones are padded.
pub const MIN_FRAME_WITHOUT_FCS: usize = 60;

/// Destination, source and type of an Ethernet frame.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EthernetHeader {
    /// Destination address
    pub dst: MacAddr,
    /// Source address
    pub src: MacAddr,
    /// Type of what follows; values under 1536 are an 802.3 length
    pub ether_type: U16Be,
}
wire_header!(EthernetHeader = 14);

impl EthernetHeader {
    /// A header from its three fields.
    #[inline(always)]
    pub const fn new(dst: MacAddr, src: MacAddr, ether_type: EtherType) -> Self {
        Self { dst, src, ether_type: ether_type.to_be() }
    }

    /// The type as a value that can be matched on.
    #[inline(always)]
    pub const fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }
}

/// Where the header after the Ethernet header and up to `max_tags` VLAN tags begins, and its type. `None` if the frame ends
/// before.
#[inline]
pub fn skip_tags(frame: &[u8], max_tags: usize) -> Option<(usize, EtherType)> {
    let mut ether_type = EthernetHeader::read(frame)?.ether_type();
    let mut offset = EthernetHeader::LEN;
    for _ in 0..max_tags {
        if !ether_type.is_vlan() {
            break;
        }
        ether_type = VlanHeader::read_at(frame, offset)?.ether_type();
        offset += VlanHeader::LEN;
    }
    Some((offset, ether_type))
}

/// What an Ethernet frame or VLAN tag carries, as a host-order value to match on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894)
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP (RFC 826)
    pub const ARP: EtherType = EtherType(0x0806);
    /// 802.1Q customer tag
    pub const VLAN: EtherType = EtherType(0x8100);
    /// 802.1ad service tag (QinQ)
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// Old QinQ outer tag, before 802.1ad
    pub const QINQ_OLD: EtherType = EtherType(0x9100);
    /// IPv6 (RFC 2464)
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// MPLS unicast (RFC 3032)
    pub const MPLS: EtherType = EtherType(0x8847);
    /// 802.3 slow protocols (LACP)
    pub const SLOW_PROTOCOLS: EtherType = EtherType(0x8809);
    /// LLDP (802.1AB)
    pub const LLDP: EtherType = EtherType(0x88cc);
    /// Loopback of the configuration testing protocol
    pub const LOOPBACK: EtherType = EtherType(0x9000);
    /// Local experimental (802a)
    pub const EXPERIMENTAL: EtherType = EtherType(0x88b5);

    /// Smallest value that is a type; anything under it is an 802.3 length.
    pub const FIRST_TYPE: EtherType = EtherType(0x0600);

    /// In network order, as the header fields hold it.
    #[inline(always)]
    pub const fn to_be(self) -> U16Be {
        U16Be::new(self.0)
    }

    /// One of the three tag protocol identifiers: a VLAN tag follows.
    #[inline(always)]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ | Self::QINQ_OLD)
    }

    /// An 802.3 length (an LLC frame), not a type.
    #[inline(always)]
    pub const fn is_length(self) -> bool {
        self.0 < Self::FIRST_TYPE.0
    }

    /// The name that packet traces use, if the type is a known one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::IPV4 => "IP4",
            Self::ARP => "ARP",
            Self::VLAN => "VLAN",
            Self::QINQ => "DOT1AD",
            Self::QINQ_OLD => "VLAN_9100",
            Self::IPV6 => "IP6",
            Self::MPLS => "MPLS",
            Self::SLOW_PROTOCOLS => "SLOW_PROTOCOLS",
            Self::LLDP => "802_1_LLDP",
            Self::LOOPBACK => "LOOPBACK",
            _ => return None,
        })
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "0x{:04x}", self.0),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_in_wire_order() {
        let dst = MacAddr([1, 2, 3, 4, 5, 6]);
        let src = MacAddr([7, 8, 9, 10, 11, 12]);
        let header = EthernetHeader::new(dst, src, EtherType::IPV6);
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd];
        assert_eq!(header.as_bytes(), bytes);
        assert_eq!(EthernetHeader::read(&bytes), Some(header));
        assert_eq!(header.ether_type(), EtherType::IPV6);
    }

    #[test]
    fn only_the_three_tag_protocol_identifiers_are_vlan() {
        let tags: Vec<u16> = (0..=u16::MAX).filter(|&t| EtherType(t).is_vlan()).collect();
        assert_eq!(tags, [0x8100, 0x88a8, 0x9100]);
        assert!(EtherType(1535).is_length() && !EtherType(1536).is_length());
    }

    #[test]
    fn tags_are_skipped_up_to_the_limit() {
        let mut frame = [0u8; 22];
        frame[12..].copy_from_slice(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]);
        assert_eq!(skip_tags(&frame, 2), Some((22, EtherType::IPV4)));
        assert_eq!(skip_tags(&frame, 1), Some((18, EtherType::VLAN)));
        assert_eq!(skip_tags(&frame, 0), Some((14, EtherType::QINQ)));
        assert_eq!(skip_tags(&frame[..21], 2), None);
        assert_eq!(skip_tags(&frame[..13], 0), None);
    }

    #[test]
    fn an_unknown_type_is_shown_as_its_number() {
        assert_eq!(EtherType(0x1234).to_string(), "0x1234");
        assert_eq!(EtherType::IPV4.to_string(), "IP4");
    }
}
