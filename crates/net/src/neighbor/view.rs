//! What ARP and ND nodes know of an interface: own addresses and how its frames begin. Published as a snapshot.

use std::cmp::Reverse;
use std::net::Ipv6Addr;
use std::sync::Arc;

use quiver_graph::{IfIndex, Pkt};
use quiver_tables::chunks::Chunks;
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv6::address::is_link_local;

use crate::Interface;
use crate::nd::{AddressState, Proxied};

/// Bytes of the longest link header: Ethernet with two tags.
pub(crate) const LINK_HEADER_MAX: usize = 22;

/// A prefix of the interface, with our address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own4 {
    pub address: u32,
    pub len: u8,
}

/// A prefix of the interface, with our address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own6 {
    pub address: u128,
    pub len: u8,
    pub state: AddressState,
}

/// An interface as ARP and ND nodes see it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub interface: IfIndex,
    pub mac: MacAddr,
    pub tags: Vec<(u16, u16)>,
    pub v4: Vec<Own4>,
    pub v6: Vec<Own6>,
    /// Its addresses are another interface's: any sender is a neighbour.
    pub unnumbered: bool,
    /// User's number of its IPv4 table.
    pub table4: u32,
    /// Answers for the configured ranges of its table.
    pub proxy_arp: bool,
    /// Answers for the ranges of its table that a feature holds.
    pub holds_proxy: bool,
    /// Sends router advertisements.
    pub advertises: bool,
    /// Takes addresses or routes from advertisements of others.
    pub autoconfigures: bool,
    /// User's number of its IPv6 table.
    pub table6: u32,
    /// Answers every solicitation.
    pub mirrors6: bool,
    /// What it sends comes back to it.
    pub loops: bool,
}

impl Own4 {
    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.len.min(32))).unwrap_or(0)
    }

    fn contains(self, address: u32) -> bool {
        (self.address ^ address) & self.mask() == 0
    }

    /// Whether a host of this prefix can have the address: not the network's own, nor its broadcast.
    fn is_host(self, address: u32) -> bool {
        let host = address & !self.mask();
        self.contains(address) && (self.len >= 31 || (host != 0 && host != !self.mask()))
    }
}

impl Own6 {
    fn contains(self, address: u128) -> bool {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.len.min(128))).unwrap_or(0);
        (self.address ^ address) & mask == 0
    }
}

impl View {
    /// Reads what is configured; `lender` is the interface whose addresses it borrows.
    pub fn of(interface: &Interface, lender: Option<&Interface>, state: impl Fn(IfIndex, Ipv6Addr) -> AddressState) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for owner in [Some(interface), lender].into_iter().flatten() {
            for (address, len) in &owner.addresses {
                match address {
                    std::net::IpAddr::V4(a) => v4.push(Own4 { address: a.to_bits(), len: *len }),
                    // A link-local address belongs to its own link.
                    std::net::IpAddr::V6(a) if owner.index != interface.index && is_link_local(a.to_bits()) => {}
                    std::net::IpAddr::V6(a) => {
                        v6.push(Own6 { address: a.to_bits(), len: *len, state: state(owner.index, *a) });
                    }
                }
            }
        }
        Self {
            interface: interface.index,
            mac: interface.mac,
            tags: interface.tags(),
            v4,
            v6,
            unnumbered: lender.is_some(),
            table4: interface.tables.0,
            proxy_arp: false,
            holds_proxy: false,
            advertises: false,
            autoconfigures: false,
            table6: interface.tables.1,
            mirrors6: false,
            loops: interface.kind.is_loop() && interface.l2 == crate::interface::L2Mode::L3,
        }
    }

    /// An interface with these IPv4 addresses.
    #[cfg(test)]
    pub fn for_tests(mac: MacAddr, addresses: &[([u8; 4], u8)]) -> Self {
        let own = |(a, len): &([u8; 4], u8)| Own4 { address: u32::from_be_bytes(*a), len: *len };
        Self {
            interface: IfIndex(1),
            mac,
            tags: Vec::new(),
            v4: addresses.iter().map(own).collect(),
            v6: Vec::new(),
            unnumbered: false,
            table4: 0,
            proxy_arp: false,
            holds_proxy: false,
            advertises: false,
            autoconfigures: false,
            table6: 0,
            mirrors6: false,
            loops: false,
        }
    }

    /// Whether the address is ours here.
    pub fn owns4(&self, address: u32) -> bool {
        self.v4.iter().any(|own| own.address == address)
    }

    /// Whether a neighbour on this link may have the address.
    pub fn on_link4(&self, address: u32) -> bool {
        self.covers4(address) || (self.unnumbered && !quiver_wire::ipv4::is_martian_src(address))
    }

    /// Whether the address is one of a host on one of the interface's prefixes.
    pub fn covers4(&self, address: u32) -> bool {
        self.v4.iter().any(|own| own.is_host(address))
    }

    /// Our address of the longest prefix that covers `target`, the first of several, else the first of all.
    pub fn source4(&self, target: u32) -> Option<u32> {
        let covering = self.v4.iter().filter(|own| own.contains(target)).min_by_key(|own| Reverse(own.len));
        covering.or(self.v4.first()).map(|own| own.address)
    }

    /// Our address that is `address`, with its state.
    pub fn owns6(&self, address: u128) -> Option<AddressState> {
        self.v6.iter().find(|own| own.address == address).map(|own| own.state)
    }

    /// Whether a neighbour on this link may have the address.
    pub fn on_link6(&self, address: u128) -> bool {
        is_link_local(address) || self.unnumbered || self.v6.iter().any(|own| own.contains(address))
    }

    /// The address that asks for `target` (RFC 4861, 7.2.2): our link-local one, as Linux and VPP have it, which every host on the link
    /// answers whatever its routes are; else the one of the longest prefix that covers the target, else any.
    pub fn source6(&self, target: u128) -> Option<u128> {
        self.link_local().or_else(|| self.covering6(target)).or_else(|| self.usable6().next().map(|own| own.address))
    }

    /// Our usable address in the target's prefix, or else what [`source6`](Self::source6) says.
    pub fn source_beside6(&self, target: u128) -> Option<u128> {
        self.covering6(target).or_else(|| self.source6(target))
    }

    fn usable6(&self) -> impl Iterator<Item = &Own6> {
        self.v6.iter().filter(|own| own.state == AddressState::Preferred)
    }

    fn covering6(&self, target: u128) -> Option<u128> {
        self.usable6().filter(|own| own.contains(target)).min_by_key(|own| Reverse(own.len)).map(|own| own.address)
    }

    /// Our usable link-local address.
    pub fn link_local(&self) -> Option<u128> {
        let usable = |own: &&Own6| own.state == AddressState::Preferred && is_link_local(own.address);
        self.v6.iter().find(usable).map(|own| own.address)
    }

    /// The link header of a frame from here: destination, own address, tags, type.
    pub fn link_header(&self, dst: MacAddr, ether_type: EtherType) -> ([u8; LINK_HEADER_MAX], usize) {
        let mut bytes = [0; LINK_HEADER_MAX];
        let mut len = 0;
        if self.mac.is_zero() {
            // No link layer: packets go out as they are.
            return (bytes, 0);
        }
        let mut put = |part: &[u8]| {
            if let Some(to) = bytes.get_mut(len..len + part.len()) {
                to.copy_from_slice(part);
                len += part.len();
            }
        };
        put(&dst.0);
        put(&self.mac.0);
        for (tpid, id) in &self.tags {
            put(&tpid.to_be_bytes());
            put(&id.to_be_bytes());
        }
        put(&ether_type.0.to_be_bytes());
        (bytes, len)
    }

    /// Puts a link header before a packet's data; `false` where there is no room.
    pub fn push_link_header(&self, packet: &mut Pkt<'_>, dst: MacAddr, ether_type: EtherType) -> bool {
        let (bytes, len) = self.link_header(dst, ether_type);
        if !packet.push(len) {
            return false;
        }
        packet.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
        true
    }

    /// A whole frame.
    pub fn frame(&self, dst: MacAddr, ether_type: EtherType, content: &[u8]) -> Vec<u8> {
        let (bytes, len) = self.link_header(dst, ether_type);
        let mut frame = bytes[..len].to_vec();
        frame.extend_from_slice(content);
        frame
    }

    /// Link address of the sender of a packet that came in here, from the header that `ethernet-input` has pulled.
    pub fn link_source(&self, packet: &mut Pkt<'_>) -> Option<MacAddr> {
        let back = 14 + 4 * self.tags.len();
        if self.mac.is_zero() || !packet.push(back) {
            return None;
        }
        let source = packet.head_at::<[u8; 6], 6>();
        packet.pull(back);
        Some(MacAddr(source))
    }
}

/// Addresses for which this router answers ARP requests in the place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyRange {
    /// User's number of the table.
    pub table: u32,
    /// First address.
    pub first: std::net::Ipv4Addr,
    /// Last address.
    pub last: std::net::Ipv4Addr,
}

/// All interfaces. A copy shares what did not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    by_index: Chunks<Option<Arc<View>>>,
    pub proxies: Arc<[ProxyRange]>,
    /// Ranges that a feature holds: no part of the configuration.
    pub held: Arc<[ProxyRange]>,
    /// Hosts for which solicitations are answered.
    pub proxied6: Arc<Proxied>,
}

impl Views {
    /// An interface.
    pub fn get(&self, interface: IfIndex) -> Option<&View> {
        self.by_index.get(interface.0 as usize)?.as_deref()
    }

    /// Sets or removes an interface.
    pub fn set(&mut self, interface: IfIndex, view: Option<View>) {
        *self.by_index.get_mut(interface.0 as usize) = view.map(Arc::new);
    }

    /// Behind which interface a host is that solicitations of `view`'s table are answered for.
    pub fn proxied6(&self, view: &View, host: u128) -> Option<IfIndex> {
        self.proxied6.get(&(view.table6, host)).copied()
    }

    /// Whether an ARP request for `address` from `view`'s link is answered in the place of others.
    pub fn is_proxied(&self, view: &View, address: u32) -> bool {
        let covers = |r: &ProxyRange| r.table == view.table4 && (r.first.to_bits()..=r.last.to_bits()).contains(&address);
        view.proxy_arp && self.proxies.iter().any(covers) || view.holds_proxy && self.held.iter().any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let mut view = View::for_tests(MacAddr([2, 0, 0, 0, 0, 1]), &[([10, 0, 0, 1], 24), ([10, 0, 1, 1], 31)]);
        view.tags = vec![(0x88a8, 10), (0x8100, 20)];
        view
    }

    #[test]
    fn network_and_broadcast_addresses_are_no_neighbours() {
        let view = view();
        for (address, on_link) in [
            (0x0a00_0000, false),
            (0x0a00_0002, true),
            (0x0a00_00ff, false),
            (0x0a00_0100, true),
            (0x0a00_0102, false),
            (0x0b00_0001, false),
        ] {
            assert_eq!(view.on_link4(address), on_link, "{address:x}");
        }
    }

    #[test]
    fn the_source_is_the_address_next_to_the_target() {
        let view = view();
        assert_eq!(view.source4(0x0a00_0100), Some(0x0a00_0101));
        assert_eq!(view.source4(0x0a00_0005), Some(0x0a00_0001));
        assert_eq!(view.source4(0xc0a8_0001), Some(0x0a00_0001));
    }

    #[test]
    fn frames_carry_the_tags_of_their_interface() {
        let frame = view().frame(MacAddr::BROADCAST, EtherType::ARP, &[1, 2]);
        let expected = [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xa8, 0, 10, 0x81, 0, 0, 20, 8, 6, 1, 2];
        assert_eq!(frame, expected);
    }

    #[test]
    fn a_mask_of_any_length_is_a_mask() {
        let own = |len| Own4 { address: 0x0a00_0001, len };
        assert!(own(0).contains(0xffff_ffff) && own(32).contains(0x0a00_0001) && !own(32).contains(0x0a00_0002));
        let own = |len| Own6 { address: 1, len, state: AddressState::Preferred };
        assert!(own(0).contains(u128::MAX) && own(128).contains(1) && !own(128).contains(0));
    }
}
