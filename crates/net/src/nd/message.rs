//! Neighbour-discovery messages that this router sends, as whole frames.

use std::net::Ipv6Addr;

use quiver_wire::checksum::Sum;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ipv6::address::{ALL_NODES, solicited_node};
use quiver_wire::ndp::{NdpOption, NeighborMessage, neighbor_flags};
use quiver_wire::{MacAddr, U16Be};
use zerocopy::IntoBytes;

use super::AddressState;
use crate::neighbor::View;

/// Hop limit of all messages: one that has crossed a router has another (RFC 4861, 7.1).
const HOP_LIMIT: u8 = 255;

/// Length of an IPv6 packet with a neighbour advertisement of ours: one option.
pub(super) const ADVERTISEMENT_LEN: usize = size_of::<Ipv6Header>() + size_of::<NeighborMessage>() + 8;

/// An IPv6 packet with an ICMPv6 message, whose checksum is filled in.
pub(super) fn packet(src: u128, dst: u128, message: &mut [u8]) -> Vec<u8> {
    let mut header = Ipv6Header::new(Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst), IpProtocol::ICMPV6);
    header.hop_limit = HOP_LIMIT;
    header.payload_len = U16Be::new(message.len() as u16);
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
    }
    let sum = Sum::new().add_pseudo_v6(src, dst, IpProtocol::ICMPV6, message.len() as u32).add_bytes(message);
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.checksum().to_be_bytes());
    }
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// Appends an option.
pub(super) fn push_option(message: &mut Vec<u8>, option: &NdpOption<'_>) {
    let at = message.len();
    message.resize(at + option.wire_len(), 0);
    // The room is exactly what the option asked for.
    let _ = option.write(&mut message[at..]);
}

fn group_mac(group: u128) -> MacAddr {
    MacAddr::from_ipv6_multicast(Ipv6Addr::from_bits(group))
}

/// A solicitation for `target`, as a frame: to its solicited-node group, or to the one who is thought to have it. `None`
/// where the interface has no usable address.
pub(crate) fn solicitation(view: &View, target: u128, to: Option<MacAddr>) -> Option<Vec<u8>> {
    Some(solicitation_from(view, view.source6(target)?, target, to))
}

/// The same from one of our addresses.
pub(crate) fn solicitation_from(view: &View, source: u128, target: u128, to: Option<MacAddr>) -> Vec<u8> {
    let mut message = NeighborMessage::solicitation(Ipv6Addr::from_bits(target)).as_bytes().to_vec();
    push_option(&mut message, &NdpOption::SourceLinkAddress(view.mac));
    let group = solicited_node(Ipv6Addr::from_bits(target)).to_bits();
    let (dst, mac) = match to {
        Some(mac) => (target, mac),
        None => (group, group_mac(group)),
    };
    view.frame(mac, EtherType::IPV6, &packet(source, dst, &mut message))
}

/// The question whether somebody has an address already (RFC 4862, 5.4.2), as a frame.
pub(super) fn probe(view: &View, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target).to_bits();
    let mut message = NeighborMessage::solicitation(target).as_bytes().to_vec();
    view.frame(group_mac(group), EtherType::IPV6, &packet(0, group, &mut message))
}

/// The bytes of an advertisement of one of our addresses, or of one that we answer for: that one does not override what the host itself
/// may say (RFC 4861, 7.2.8).
pub(super) fn advertisement(view: &View, address: u128, dst: u128, (solicited, overrides): (bool, bool)) -> Vec<u8> {
    let set = |on, flag| if on { flag } else { 0 };
    let flags = set(solicited, neighbor_flags::SOLICITED) | set(overrides, neighbor_flags::OVERRIDE) | neighbor_flags::ROUTER;
    let mut message = NeighborMessage::advertisement(Ipv6Addr::from_bits(address), flags).as_bytes().to_vec();
    push_option(&mut message, &NdpOption::TargetLinkAddress(view.mac));
    packet(address, dst, &mut message)
}

/// An unsolicited advertisement of one of our usable addresses to all nodes (RFC 4861, 7.2.6), as a frame.
pub(crate) fn announcement(view: &View, address: u128) -> Option<Vec<u8>> {
    (view.owns6(address) == Some(AddressState::Preferred)).then(|| {
        let dst = ALL_NODES.to_bits();
        view.frame(group_mac(dst), EtherType::IPV6, &advertisement(view, address, dst, (false, true)))
    })
}
