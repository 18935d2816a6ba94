//! Reports as whole packets: with the router alert that makes routers and switches look at them, for this link only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::checksum::{Sum, checksum};
use quiver_wire::ethernet::EtherType;
use quiver_wire::group::{self, Record};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header, Ipv4Option};
use quiver_wire::ipv6::address::ALL_ROUTERS;
use quiver_wire::ipv6::{Ipv6Header, Ipv6Option};
use quiver_wire::{Header, MacAddr, U16Be};
use zerocopy::IntoBytes;

use super::membership::Say;
use crate::ip::FamilyId;
use crate::neighbor::View;

/// Where reports of the last versions go: all routers that speak it.
const ROUTERS4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// See [`ROUTERS4`].
pub(super) const ROUTERS6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where IGMPv2 says that a group is left: all routers.
const LEAVE4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Internetwork control (RFC 3376, 4).
const TOS: u8 = 0xc0;
/// Router alert (RFC 2113): routers shall examine the packet.
const ALERT4: [u8; 4] = [Ipv4Option::ROUTER_ALERT, 4, 0, 0];
/// Hop-by-hop header with a router alert for MLD (RFC 2711) and padding.
const ALERT6: [u8; 8] = [IpProtocol::ICMPV6.0, 0, Ipv6Option::ROUTER_ALERT, 2, 0, 0, Ipv6Option::PADN, 0];

fn packet4(view: &View, dst: Ipv4Addr, message: &mut [u8]) -> Vec<u8> {
    // Without an address it is told all the same (RFC 3376, 4.2.13).
    let src = view.source4(0).map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from_bits);
    let sum = checksum(message);
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let mut header = Ipv4Header::new(src, dst, IpProtocol::IGMP);
    header.set_header_len(Ipv4Header::LEN + ALERT4.len());
    (header.ttl, header.tos) = (1, TOS);
    header.total_len = U16Be::new((header.header_len() + message.len()) as u16);
    header.fill_checksum_with_options(&ALERT4);
    [header.as_bytes(), &ALERT4, message].concat()
}

fn packet6(view: &View, dst: Ipv6Addr, message: &mut [u8]) -> Vec<u8> {
    // Only a link-local address that is known to be ours; until then none (RFC 3590).
    let src = view.link_local().map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits);
    let sum = Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::ICMPV6, message.len() as u32);
    let sum = sum.add_bytes(message).checksum();
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let mut header = Ipv6Header::new(src, dst, IpProtocol::HOP_BY_HOP);
    header.hop_limit = 1;
    header.payload_len = U16Be::new((ALERT6.len() + message.len()) as u16);
    [header.as_bytes(), &ALERT6, message].concat()
}

fn frame(view: &View, dst: IpAddr, mut message: Vec<u8>) -> Vec<u8> {
    match dst {
        IpAddr::V4(dst) => view.frame(MacAddr::from_ipv4_multicast(dst), EtherType::IPV4, &packet4(view, dst, &mut message)),
        IpAddr::V6(dst) => view.frame(MacAddr::from_ipv6_multicast(dst), EtherType::IPV6, &packet6(view, dst, &mut message)),
    }
}

/// The frames that say it, none of whose packets is larger than `mtu`.
pub(super) fn frames(view: &View, family: FamilyId, say: Say, mtu: u32) -> Vec<Vec<u8>> {
    match say {
        Say::Records(records) => {
            let (dst, headers) = match family {
                FamilyId::V4 => (IpAddr::from(ROUTERS4), Ipv4Header::LEN + ALERT4.len()),
                FamilyId::V6 => (ROUTERS6.into(), Ipv6Header::LEN + ALERT6.len()),
            };
            let room = (mtu as usize).saturating_sub(headers + 8);
            split(records, room).into_iter().map(|records| frame(view, dst, group::report(&records))).collect()
        }
        Say::Old { version, group, leave } => {
            let dst = match group {
                IpAddr::V4(_) if leave => LEAVE4.into(),
                IpAddr::V6(_) if leave => ALL_ROUTERS.into(),
                group => group,
            };
            vec![frame(view, dst, group::old_report(version, group, leave))]
        }
    }
}

/// Records in portions of at most `room` bytes, or of one record.
fn split(records: Vec<Record>, room: usize) -> Vec<Vec<Record>> {
    let (mut portions, mut len) = (Vec::<Vec<Record>>::new(), 0);
    for record in records {
        len += record.wire_len();
        match portions.last_mut() {
            Some(portion) if len <= room => portion.push(record),
            _ => {
                len = record.wire_len();
                portions.push(vec![record]);
            }
        }
    }
    portions
}
