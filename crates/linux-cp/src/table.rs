//! What the nodes know of pairs: published by the control side as a whole, read as a snapshot.

use std::sync::Arc;

use quiver_graph::{IfIndex, Verdict};
use quiver_tables::chunks::Chunks;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;
/// Bytes of the two MAC addresses: tags stand behind them.
pub const ADDRESSES: usize = 12;

/// VLAN tags of a sub-interface, as they are in its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    bytes: [u8; 8],
    len: u8,
}

impl Tags {
    /// Tags by TPID and VLAN, outermost first; `None` for more than two.
    pub fn new(tags: &[(u16, u16)]) -> Option<Self> {
        let mut all = Self::default();
        for (at, (tpid, vlan)) in tags.iter().enumerate() {
            let place = all.bytes.get_mut(4 * at..4 * at + 4)?;
            place[..2].copy_from_slice(&tpid.to_be_bytes());
            place[2..].copy_from_slice(&vlan.to_be_bytes());
            all.len += 4;
        }
        Some(all)
    }

    /// As in a frame, behind the MAC addresses.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// How many bytes they take.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The other side of an interface's pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// The interface there.
    pub interface: IfIndex,
    /// Slot of the node that sends there, which leads to its output node. What comes from a TUN device and needs an Ethernet header is
    /// routed: by the slot of `ip-input`.
    pub slot: Verdict,
    /// Tags that frames have on the router's side and do not have on the side of Linux.
    pub tags: Tags,
    /// Towards Linux: it gets no Ethernet headers. From Linux: packets are routed.
    pub tun: bool,
}

impl Other {
    /// Bytes in front of the IP header that Linux gets, too.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        if self.tun { 0 } else { ETHERNET + self.tags.len() }
    }
}

/// All pairs. A copy shares what did not change.
#[derive(Clone, Debug, Default)]
pub struct PairTable {
    by_phy: Chunks<Option<Other>>,
    by_host: Chunks<Option<Other>>,
    types: Arc<[u16]>,
}

impl PairTable {
    /// The side of Linux, by the router's interface.
    #[inline(always)]
    pub fn host_of(&self, phy: IfIndex) -> Option<&Other> {
        self.by_phy.get(phy.0 as usize)?.as_ref()
    }

    /// The router's interface, by the TAP interface.
    #[inline(always)]
    pub fn phy_of(&self, host: IfIndex) -> Option<&Other> {
        self.by_host.get(host.0 as usize)?.as_ref()
    }

    /// Whether frames of an EtherType go to Linux.
    pub fn takes(&self, ether_type: u16) -> bool {
        self.types.contains(&ether_type)
    }

    /// Sets or forgets the side of Linux of an interface.
    pub(crate) fn set_host(&mut self, phy: IfIndex, host: Option<Other>) {
        *self.by_phy.get_mut(phy.0 as usize) = host;
    }

    /// Sets or forgets the router's interface of a TAP interface.
    pub(crate) fn set_phy(&mut self, host: IfIndex, phy: Option<Other>) {
        *self.by_host.get_mut(host.0 as usize) = phy;
    }

    /// Says which EtherTypes go to Linux.
    pub(crate) fn set_types(&mut self, types: &[u16]) {
        self.types = types.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_as_in_a_frame() {
        let tags = Tags::new(&[(0x88a8, 100), (0x8100, 10)]).unwrap();
        assert_eq!(tags.bytes(), [0x88, 0xa8, 0, 100, 0x81, 0, 0, 10]);
        assert!(Tags::new(&[]).unwrap().is_empty());
        assert_eq!(Tags::new(&[(0x8100, 1); 3]), None);
    }

    #[test]
    fn both_sides_find_each_other_until_they_are_forgotten() {
        let (phy, host) = (IfIndex(1), IfIndex(2));
        let other = |interface| Other { interface, slot: Verdict::slot(3), tags: Tags::default(), tun: false };
        let mut table = PairTable::default();
        table.set_host(phy, Some(other(host)));
        table.set_phy(host, Some(other(phy)));
        assert_eq!(table.host_of(phy).map(|o| o.interface), Some(host));
        assert_eq!(table.phy_of(host).map(|o| o.interface), Some(phy));
        assert_eq!((table.host_of(host), table.phy_of(IfIndex(99_999))), (None, None));
        table.set_host(phy, None);
        assert_eq!(table.host_of(phy), None);
    }
}
