//! 802.1Q and 802.1ad VLAN tags.
//!
//! ```text
//!  dst(6) src(6) | TPID(2) TCI(2) | type(2) …      the tag as a whole, inserted before the type: VlanTag
//!                | type(2) | TCI(2) type(2) …      the same bytes as a parser meets them: VlanHeader
//! ```

use crate::U16Be;
use crate::ethernet::EtherType;
use crate::header::wire_header;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A tag as pushed into or popped from a frame: its protocol identifier and control information.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol identifier, 0x8100, 0x88a8 or 0x9100
    pub tpid: U16Be,
    /// Priority, drop eligibility and VLAN id
    pub tci: U16Be,
}

/// What follows a tag's protocol identifier: control information and the type of the content.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanHeader {
    /// Priority, drop eligibility and VLAN id
    pub tci: U16Be,
    /// Type of what follows, possibly another tag
    pub ether_type: U16Be,
}
wire_header!(VlanTag = 4, VlanHeader = 4);

impl VlanTag {
    /// A tag with priority 0.
    #[inline(always)]
    pub const fn new(tpid: EtherType, vlan_id: u16) -> Self {
        Self { tpid: tpid.to_be(), tci: U16Be::new(vlan_id & Tci::ID_MASK) }
    }

    /// The control information, taken apart.
    #[inline(always)]
    pub const fn tci(&self) -> Tci {
        Tci(self.tci.get())
    }

    /// The tag protocol identifier as a value to match on.
    #[inline(always)]
    pub const fn tpid(&self) -> EtherType {
        EtherType(self.tpid.get())
    }
}

impl VlanHeader {
    /// The control information, taken apart.
    #[inline(always)]
    pub const fn tci(&self) -> Tci {
        Tci(self.tci.get())
    }

    /// Type of what follows, as a value to match on.
    #[inline(always)]
    pub const fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }
}

/// Tag control information in host order: priority (3 bits), drop eligible (1), VLAN id (12).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tci(pub u16);

impl Tci {
    const ID_MASK: u16 = 0x0fff;

    /// From the three parts; bits that a part cannot hold are cut off.
    #[inline(always)]
    pub const fn new(priority: u8, drop_eligible: bool, vlan_id: u16) -> Self {
        let priority = (priority as u16 & 7) << 13;
        Self(priority | ((drop_eligible as u16) << 12) | (vlan_id & Self::ID_MASK))
    }

    /// VLAN id, 0 (priority tag) to 4095.
    #[inline(always)]
    pub const fn vlan_id(self) -> u16 {
        self.0 & Self::ID_MASK
    }

    /// Priority code point, 0 to 7.
    #[inline(always)]
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline(always)]
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    #[test]
    fn every_control_value_round_trips() {
        for value in 0..=u16::MAX {
            let tci = Tci(value);
            let again = Tci::new(tci.priority(), tci.drop_eligible(), tci.vlan_id());
            assert_eq!(again, tci);
        }
    }

    #[test]
    fn parts_too_large_are_cut_off() {
        assert_eq!(Tci::new(15, false, 0xffff), Tci(0xefff));
        assert_eq!(VlanTag::new(EtherType::QINQ, 0xf064).tci().vlan_id(), 0x064);
    }

    #[test]
    fn the_two_views_see_the_same_bytes() {
        let bytes = [0x88, 0xa8, 0xb0, 0x64, 0x08, 0x00];
        let tag = VlanTag::read(&bytes).unwrap();
        let header = VlanHeader::read_at(&bytes, 2).unwrap();
        assert_eq!(tag.tpid(), EtherType::QINQ);
        assert_eq!(tag.tci(), header.tci());
        assert_eq!(header.tci(), Tci::new(5, true, 100));
        assert_eq!(header.ether_type(), EtherType::IPV4);
    }
}
