//! Headers of a stream, and templates of all its sizes.

use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_wire::checksum::Sum;
use quiver_wire::ethernet::EtherType;
use quiver_wire::icmp4::Icmp4Header;
use quiver_wire::icmp6::Icmp6Header;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::vlan::Tci;
use quiver_wire::{MacAddr, build};

use super::{Engine, L4Place, MakeError, Patch, Surroundings, Template, Width};
use crate::profile::{Field, L4, Side, Stream};
use crate::random::Random;
use crate::signature::LEN;

/// Bytes of a frame check sequence.
const FCS: usize = 4;
/// Local experimental EtherType (IEEE 802), for streams without IP.
const EXPERIMENTAL: EtherType = EtherType(0x88b5);

/// RFC 2544, section C.2.2: 198.18.0.0/15, one half for each side.
pub(crate) fn default_v4(side: Side) -> Ipv4Addr {
    match side {
        Side::Left => Ipv4Addr::new(198, 18, 0, 2),
        Side::Right => Ipv4Addr::new(198, 19, 0, 2),
    }
}

/// RFC 5180, section 8: 2001:2::/48, one half for each side.
pub(crate) fn default_v6(side: Side) -> Ipv6Addr {
    match side {
        Side::Left => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2),
        Side::Right => Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 2),
    }
}

/// Headers of a stream, before there is a size.
pub(super) struct Head {
    packet: build::Packet,
    /// Start of the IP header.
    pub(super) l3: usize,
    pub(super) l4: Option<L4Place>,
    headers: usize,
    ethernet: bool,
}

impl Head {
    /// Headers with what varies in them noted in `patches`.
    pub(super) fn new(
        stream: &Stream,
        around: &Surroundings,
        seeds: &mut Random,
        patches: &mut Vec<Patch>,
    ) -> Result<Self, MakeError> {
        let mut seed = || seeds.next_u64();
        let mut add = |at, width, ip, l4, fixed, engine: Option<Engine>| {
            patches.extend(engine.map(|engine| Patch { at, width, ip, l4, fixed, engine }));
        };
        let mut packet = build::Packet::new();
        let mut at = 0;
        let mac = |field: &Option<Field<MacAddr>>, other: Option<MacAddr>| field.clone().or(other.map(Field::Fixed));
        if around.ethernet {
            let src = mac(&stream.ethernet.src, Some(around.src)).unwrap_or(Field::Fixed(around.src));
            let dst = mac(&stream.ethernet.dst, around.dst).ok_or_else(|| MakeError::NoDestination(stream.name.clone()))?;
            packet = build::Packet::ethernet(src.first(), dst.first());
            add(0, Width::Six, false, false, 0, Engine::of(&dst, seed()));
            add(6, Width::Six, false, false, 0, Engine::of(&src, seed()));
            at = 14;
            for (i, tag) in stream.vlan.iter().enumerate() {
                let tpid = if tag.service { EtherType(0x88a8) } else { EtherType::VLAN };
                packet = packet.tag(tpid, Tci::new(tag.priority, false, tag.id.first()));
                let fixed = Tci::new(tag.priority, false, 0).0;
                add(14 + 4 * i, Width::Two, false, false, fixed, Engine::of(&tag.id, seed()));
                at += 4;
            }
        }
        packet = stream.wrap(packet);
        at += stream.around();
        let l3 = at;
        // A checksum of layer 4 covers the addresses; without one, IPv6 has none at all.
        let has_l4 = matches!(stream.l4(), L4::Udp | L4::Tcp);
        if let Some(ip) = &stream.ipv4 {
            let src = ip.src.clone().unwrap_or(Field::Fixed(default_v4(stream.from)));
            let dst = ip.dst.clone().unwrap_or(Field::Fixed(default_v4(stream.from.other())));
            packet = packet.ipv4(src.first(), dst.first()).ttl(ip.ttl).tos(ip.dscp << 2);
            add(l3 + 12, Width::Four, true, has_l4, 0, Engine::of(&src, seed()));
            add(l3 + 16, Width::Four, true, has_l4, 0, Engine::of(&dst, seed()));
            at += 20;
        } else if let Some(ip) = &stream.ipv6 {
            let src = ip.src.clone().unwrap_or(Field::Fixed(default_v6(stream.from)));
            let dst = ip.dst.clone().unwrap_or(Field::Fixed(default_v6(stream.from.other())));
            packet = packet.ipv6(src.first(), dst.first()).ttl(ip.ttl).tos(ip.dscp << 2);
            let covered = stream.l4() != L4::None;
            add(l3 + 8, Width::Sixteen, false, covered, 0, Engine::of(&src, seed()));
            add(l3 + 24, Width::Sixteen, false, covered, 0, Engine::of(&dst, seed()));
            at += 40;
        } else {
            packet = packet.next(EXPERIMENTAL.0);
        }
        let start = at;
        let mut ports = |ports: &crate::profile::Ports| {
            // RFC 4814, section 4.5.
            let src = ports.src.clone().unwrap_or(Field::Random { first: 1024, last: 65_535, step: 1, seed: None });
            let dst = ports.dst.clone().unwrap_or(Field::Random { first: 1, last: 49_151, step: 1, seed: None });
            add(start, Width::Two, false, true, 0, Engine::of(&src, seed()));
            add(start + 2, Width::Two, false, true, 0, Engine::of(&dst, seed()));
            (src.first(), dst.first())
        };
        let mut l4 = None;
        match (&stream.udp, &stream.tcp, &stream.icmp) {
            (Some(udp), _, _) => {
                let (src, dst) = ports(udp);
                packet = packet.udp(src, dst);
                l4 = Some(L4Place { start, checksum: start + 6, udp: true });
                at += 8;
            }
            (_, Some(tcp), _) => {
                let (src, dst) = ports(tcp);
                packet = packet.tcp(src, dst, tcp.tcp_flags());
                l4 = Some(L4Place { start, checksum: start + 16, udp: false });
                at += 20;
            }
            (_, _, Some(echo)) => {
                packet = if stream.ipv4.is_some() {
                    packet.icmp4(Icmp4Header::echo_request(echo.id, 0))
                } else {
                    packet.icmp6(Icmp6Header::echo_request(echo.id, 0))
                };
                l4 = Some(L4Place { start, checksum: start + 2, udp: false });
                at += 8;
            }
            _ => {}
        }
        Ok(Self { packet, l3, l4, headers: at, ethernet: around.ethernet })
    }

    /// The frame of `size` bytes with FCS.
    pub(super) fn template(&self, stream: &Stream, size: u16, signed: bool, patches: &[Patch]) -> Template {
        let len = usize::from(size) - FCS - if self.ethernet { 0 } else { 14 };
        let given = &stream.payload.0;
        let payload: Vec<u8> = (0..len.saturating_sub(self.headers)).map(|i| given.get(i).copied().unwrap_or(i as u8)).collect();
        let mut bytes = self.packet.clone().payload(&payload).build();
        let signature = bytes.len() - LEN.min(bytes.len());
        let zero = |bytes: &mut [u8], at: usize, n: usize| {
            if let Some(place) = bytes.get_mut(at..at + n) {
                place.fill(0);
            }
        };
        for patch in patches {
            zero(&mut bytes, patch.at, patch.width.bytes());
        }
        if signed {
            zero(&mut bytes, signature, LEN);
        }
        let mut ip = Sum::new();
        if stream.ipv4.is_some() && patches.iter().any(|p| p.ip) {
            zero(&mut bytes, self.l3 + 10, 2);
            ip = Sum::of(&bytes[self.l3..self.l3 + 20]);
        }
        let mut l4 = Sum::new();
        if let Some(place) = self.l4 {
            // Only what varies is written later; what does not vary keeps the checksum that the builder has given it.
            if signed || !patches.is_empty() {
                zero(&mut bytes, place.checksum, 2);
            }
            let protocol = match stream.l4() {
                L4::Udp => IpProtocol::UDP,
                L4::Tcp => IpProtocol::TCP,
                _ if stream.ipv6.is_some() => IpProtocol::ICMPV6,
                _ => IpProtocol::ICMP,
            };
            let covered = &bytes[place.start..];
            let pseudo = |from: usize, n: usize| Sum::of(&bytes[self.l3 + from..self.l3 + from + n]).folded();
            if stream.ipv6.is_some() {
                l4 = l4.add_u16(pseudo(8, 32)).add_u16(covered.len() as u16).add_u16(u16::from(protocol.0));
            } else if protocol != IpProtocol::ICMP {
                l4 = l4.add_u16(pseudo(12, 8)).add_u16(covered.len() as u16).add_u16(u16::from(protocol.0));
            }
            // Folded first, so that whole words can be added behind an odd number of bytes.
            l4 = l4.add_u16(Sum::of(covered).folded());
        }
        Template::new(bytes, ip, l4, signature)
    }
}
