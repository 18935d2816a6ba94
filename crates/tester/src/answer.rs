//! The port as a host: answers ARP, neighbour solicitations and pings for its addresses, and learns its gateway.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::build::Packet;
use quiver_wire::checksum::{self, Sum};
use quiver_wire::ethernet::{EtherType, skip_tags};
use quiver_wire::icmp4::Icmp4Type;
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Ipv6Header, address};
use quiver_wire::ndp::{NdpOption, NdpOptions, NeighborMessage, neighbor_flags};
use quiver_wire::vlan::Tci;
use quiver_wire::{Header, IpPrefix, MacAddr};
use zerocopy::IntoBytes;

use crate::port::Tags;

/// What a frame without signature is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// None of the host's business.
    No,
    /// Of the link's own traffic, and what to answer.
    Control(Option<Vec<u8>>),
}

/// A port's addresses and neighbours.
#[derive(Clone, Debug)]
pub struct Host {
    /// Hardware address.
    pub mac: MacAddr,
    /// Whether the port carries Ethernet frames.
    pub ethernet: bool,
    /// Its own addresses.
    pub addresses: Vec<IpPrefix>,
    /// Further addresses that it answers for.
    pub answers: Vec<IpPrefix>,
    /// Tags that it speaks under; where there are none, it asks without and answers under those of the question.
    pub vlan: Tags,
    /// Whom it has asked for, and the answers.
    asked: BTreeMap<IpAddr, Option<MacAddr>>,
}

impl Host {
    /// A host with these addresses.
    pub fn new(mac: MacAddr, ethernet: bool, addresses: Vec<IpPrefix>, answers: Vec<IpPrefix>) -> Self {
        Self { mac, ethernet, addresses, answers, vlan: Tags::default(), asked: BTreeMap::new() }
    }

    /// The same behind tags.
    #[must_use]
    pub fn behind(self, vlan: Tags) -> Self {
        Self { vlan, ..self }
    }

    /// The IP packet of a frame that comes under its tags.
    pub fn packet<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        if !self.ethernet {
            return Some(frame);
        }
        let (at, ether_type) = skip_tags(frame, 2)?;
        let is_ip = matches!(ether_type, EtherType::IPV4 | EtherType::IPV6);
        frame.get(at..).filter(|_| is_ip && self.hears(frame.get(12..at - 2).unwrap_or_default()))
    }

    /// What stands before an IP packet to a neighbour.
    pub fn head(&self, mac: MacAddr, is_ipv4: bool) -> Vec<u8> {
        if !self.ethernet {
            return Vec::new();
        }
        let packet = self.to(mac);
        let whole = match is_ipv4 {
            true => packet.ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED).build(),
            false => packet.ipv6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED).build(),
        };
        let len = 14 + 4 * self.vlan.all().count();
        whole[..len].to_vec()
    }

    /// The beginning of a frame of its own.
    fn to(&self, mac: MacAddr) -> Packet {
        let tag = |packet: Packet, (id, service)| {
            let tpid = if service { EtherType::QINQ } else { EtherType::VLAN };
            packet.tag(tpid, Tci::new(0, false, id))
        };
        self.vlan.all().fold(Packet::ethernet(self.mac, mac), tag)
    }

    /// Whether tags, as they stand in a frame, are those that it speaks under.
    fn hears(&self, tags: &[u8]) -> bool {
        let (tags, _) = tags.as_chunks::<4>();
        let same = |(tag, (id, service)): (&[u8; 4], (u16, bool))| {
            let [a, b, c, d] = *tag;
            let tpid = EtherType(u16::from_be_bytes([a, b]));
            Tci(u16::from_be_bytes([c, d])).vlan_id() == id && (tpid == EtherType::QINQ) == service
        };
        self.vlan.is_empty() || tags.len() == self.vlan.all().count() && tags.iter().zip(self.vlan.all()).all(same)
    }

    fn owns(&self, address: IpAddr) -> bool {
        let own = self.addresses.iter().any(|p| p.addr() == address) || self.answers.iter().any(|p| p.contains(address));
        own || address == IpAddr::V6(self.mac.link_local())
    }

    /// The frame that asks for a neighbour's hardware address.
    pub fn ask(&mut self, target: IpAddr) -> Vec<u8> {
        self.asked.entry(target).or_insert(None);
        let own4 = self.addresses.iter().find_map(|p| if let IpAddr::V4(a) = p.addr() { Some(a) } else { None });
        let own6 = self.addresses.iter().find_map(|p| if let IpAddr::V6(a) = p.addr() { Some(a) } else { None });
        match target {
            IpAddr::V4(target) => {
                let request = ArpHeader::request((self.mac, own4.unwrap_or(Ipv4Addr::UNSPECIFIED)), target);
                self.to(MacAddr([0xff; 6])).arp(request).build()
            }
            IpAddr::V6(target) => {
                let group = address::solicited_node(target);
                self.to(MacAddr::from_ipv6_multicast(group))
                    .ipv6(own6.unwrap_or(self.mac.link_local()), group)
                    .neighbor_solicitation(target)
                    .ndp_option(NdpOption::SourceLinkAddress(self.mac))
                    .build()
            }
        }
    }

    /// What has been learnt of a neighbour that was asked for, and has answered.
    ///
    /// What it announces by itself does not count: who has answered a question has learnt who asked, so that the first test
    /// frames need not wait until the neighbour has asked in its turn (a router announces itself when its link comes up, just
    /// before a trial begins; frames beyond the few that it holds meanwhile would be lost).
    pub fn learnt(&self, target: IpAddr) -> Option<MacAddr> {
        self.asked.get(&target).copied().flatten()
    }

    fn learn(&mut self, address: IpAddr, mac: MacAddr) {
        if let Some(place) = self.asked.get_mut(&address).filter(|_| mac.is_unicast()) {
            *place = Some(mac);
        }
    }

    /// Looks at a frame that is no test frame.
    pub fn handle(&mut self, frame: &[u8]) -> Handled {
        let (at, ether_type) = if self.ethernet {
            let Some(found) = skip_tags(frame, 2) else { return Handled::No };
            found
        } else {
            let version = frame.first().map_or(0, |b| b >> 4);
            (0, if version == 4 { EtherType::IPV4 } else { EtherType::IPV6 })
        };
        let Some(l3) = frame.get(at..) else { return Handled::No };
        if self.ethernet && !self.hears(frame.get(12..at - 2).unwrap_or_default()) {
            // The link's own traffic of other VLANs is none of the host's business, and no test frame either.
            let is_control = ether_type == EtherType::ARP || ether_type == EtherType::IPV6 && is_discovery(l3);
            return if is_control { Handled::Control(None) } else { Handled::No };
        }
        let answer = match ether_type {
            EtherType::ARP => self.arp(l3),
            EtherType::IPV4 => self.ipv4(l3),
            EtherType::IPV6 => self.ipv6(l3),
            _ => None,
        };
        match answer {
            None => Handled::No,
            Some(None) => Handled::Control(None),
            Some(Some(l3)) if self.ethernet => {
                // The same tags and type go back.
                let (Some(from), Some(kind)) = (frame.get(6..12), frame.get(12..at)) else { return Handled::No };
                Handled::Control(Some([from, &self.mac.0, kind, &l3].concat()))
            }
            Some(Some(l3)) => Handled::Control(Some(l3)),
        }
    }

    fn arp(&mut self, l3: &[u8]) -> Option<Option<Vec<u8>>> {
        let message = ArpHeader::parse(l3).ok()?;
        if message.operation() == ArpOperation::REPLY && message.target_mac == self.mac {
            self.learn(message.sender_ip().into(), message.sender_mac);
        }
        if message.operation() != ArpOperation::REQUEST || !self.owns(message.target_ip().into()) {
            return Some(None);
        }
        Some(Some(message.reply(self.mac).as_bytes().to_vec()))
    }

    fn ipv4(&self, l3: &[u8]) -> Option<Option<Vec<u8>>> {
        let mut header = Ipv4Header::parse(l3).ok()?;
        if header.protocol == IpProtocol::IGMP {
            return Some(None);
        }
        let (start, end) = (header.header_len(), usize::from(header.total_len.get()));
        let l4 = l3.get(start..end)?;
        let echo = header.protocol == IpProtocol::ICMP && l4.len() >= 8 && l4[0] == Icmp4Type::ECHO_REQUEST.0;
        if !echo || header.has_options() || !self.owns(header.dst_addr().into()) {
            return None;
        }
        (header.src, header.dst) = (header.dst, header.src);
        header.ttl = 64;
        header.fill_checksum();
        let mut l4 = l4.to_vec();
        l4[0] = Icmp4Type::ECHO_REPLY.0;
        checksum::fill_l4(IpProtocol::ICMP, Sum::new(), &mut l4)?;
        Some(Some([header.as_bytes(), &l4].concat()))
    }

    fn ipv6(&mut self, l3: &[u8]) -> Option<Option<Vec<u8>>> {
        let header = Ipv6Header::parse(l3).ok()?;
        let l4 = l3.get(40..40 + usize::from(header.payload_len.get()))?;
        if header.next_header == IpProtocol::HOP_BY_HOP && address::is_multicast(header.dst.get()) {
            // Multicast listeners.
            return Some(None);
        }
        if header.next_header != IpProtocol::ICMPV6 {
            return None;
        }
        let icmp = Icmp6Header::read(l4)?;
        match icmp.icmp_type {
            Icmp6Type::NEIGHBOR_SOLICITATION => {
                let target = NeighborMessage::read(l4)?.target_addr();
                let source = header.src_addr();
                // A probe for duplicates has no source, and its answer would go to all.
                if quiver_wire::ndp::validate(&header, l4).is_err() || !self.owns(target.into()) || source.is_unspecified() {
                    return Some(None);
                }
                let flags = neighbor_flags::SOLICITED | neighbor_flags::OVERRIDE;
                let reply = Packet::new()
                    .ipv6(target, source)
                    .neighbor_advertisement(target, flags)
                    .ndp_option(NdpOption::TargetLinkAddress(self.mac))
                    .build();
                Some(Some(reply))
            }
            Icmp6Type::NEIGHBOR_ADVERTISEMENT => {
                let message = NeighborMessage::read(l4)?;
                let target = message.target_addr();
                if quiver_wire::ndp::validate(&header, l4).is_ok()
                    && message.icmp.rest.get() & neighbor_flags::SOLICITED != 0
                    && let Some(mac) = NdpOptions::of_message(l4).and_then(NdpOptions::target_link_address)
                {
                    self.learn(target.into(), mac);
                }
                Some(None)
            }
            Icmp6Type::ECHO_REQUEST if self.owns(header.dst_addr().into()) => {
                let reply = Packet::new()
                    .ipv6(header.dst_addr(), header.src_addr())
                    .icmp6(Icmp6Header { icmp_type: Icmp6Type::ECHO_REPLY, ..icmp })
                    .payload(l4.get(8..)?)
                    .build();
                Some(Some(reply))
            }
            kind if kind.is_neighbor_discovery() => Some(None),
            _ => None,
        }
    }
}

/// Whether an IPv6 packet is of neighbour discovery.
fn is_discovery(l3: &[u8]) -> bool {
    let Ok(header) = Ipv6Header::parse(l3) else { return false };
    let kind = l3.get(40).filter(|_| header.next_header == IpProtocol::ICMPV6);
    kind.is_some_and(|kind| Icmp6Type(*kind).is_neighbor_discovery())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn host() -> Host {
        let prefix = |t: &str| t.parse::<IpPrefix>().unwrap();
        Host::new(OURS, true, vec![prefix("192.0.2.1/24"), prefix("2001:db8::1/64")], vec![prefix("198.19.0.0/16")])
    }

    fn answer(host: &mut Host, frame: &[u8]) -> Vec<u8> {
        match host.handle(frame) {
            Handled::Control(Some(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_for_its_addresses_are_answered_with_the_tags_they_had() {
        let from: Ipv4Addr = "192.0.2.9".parse().unwrap();
        for (target, ours) in [("192.0.2.1", true), ("198.19.77.7", true), ("192.0.2.2", false)] {
            let request = ArpHeader::request((PEER, from), target.parse().unwrap());
            let frame = Packet::ethernet(PEER, MacAddr([0xff; 6])).vlan(7).arp(request).build();
            if !ours {
                assert_eq!(host().handle(&frame), Handled::Control(None));
                continue;
            }
            let reply = answer(&mut host(), &frame);
            assert_eq!((&reply[..6], &reply[6..12], &reply[12..18]), (&PEER.0[..], &OURS.0[..], &frame[12..18]));
            let message = ArpHeader::parse(&reply[18..]).unwrap();
            assert_eq!((message.sender_mac, message.sender_ip().to_string()), (OURS, target.to_owned()));
        }
    }

    #[test]
    fn a_ping_comes_back_whole() {
        let frame = Packet::ethernet(PEER, OURS).ipv4([192, 0, 2, 9], [192, 0, 2, 1]).echo_request(1, 2).payload_len(33).build();
        let reply = answer(&mut host(), &frame);
        let ip = Ipv4Header::parse(&reply[14..]).unwrap();
        assert_eq!((ip.src_addr().octets(), ip.dst_addr().octets()), ([192, 0, 2, 1], [192, 0, 2, 9]));
        assert!(Sum::of(&reply[14..34]).is_valid() && Sum::of(&reply[34..]).is_valid());
        assert_eq!((reply[34], &reply[38..]), (0, &frame[38..]));
        let (a, b) = ("2001:db8::9".parse::<Ipv6Addr>().unwrap(), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
        let frame = Packet::ethernet(PEER, OURS).ipv6(a, b).echo_request(1, 2).payload_len(5).build();
        let reply = answer(&mut host(), &frame);
        let ip = Ipv6Header::parse(&reply[14..]).unwrap();
        assert!(checksum::l4_sum_v6(&ip, IpProtocol::ICMPV6, &reply[54..]).is_valid());
        assert_eq!((reply[54], ip.dst_addr(), &reply[58..]), (129, a, &frame[58..]));
    }

    #[test]
    fn neighbours_are_asked_for_and_learnt() {
        for target in ["192.0.2.9", "2001:db8::9"] {
            let target: IpAddr = target.parse().unwrap();
            let mut asker = host();
            let question = asker.ask(target);
            assert_eq!(asker.learnt(target), None);
            let mut other = Host::new(PEER, true, vec![IpPrefix::host(target)], Vec::new());
            let reply = answer(&mut other, &question);
            assert_eq!(asker.handle(&reply), Handled::Control(None));
            assert_eq!(asker.learnt(target), Some(PEER));
        }
        // What a neighbour announces by itself does not say that it knows us.
        let v4 = Ipv4Addr::new(192, 0, 2, 9);
        let arp = Packet::ethernet(PEER, MacAddr([0xff; 6])).arp(ArpHeader::request((PEER, v4), v4)).build();
        let v6: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let advert = Packet::ethernet(PEER, OURS)
            .ipv6(v6, "ff02::1".parse::<Ipv6Addr>().unwrap())
            .neighbor_advertisement(v6, neighbor_flags::OVERRIDE)
            .ndp_option(NdpOption::TargetLinkAddress(PEER))
            .build();
        for (target, frame) in [(IpAddr::from(v4), arp), (v6.into(), advert)] {
            let mut asker = host();
            asker.ask(target);
            assert_eq!(asker.handle(&frame), Handled::Control(None));
            assert_eq!(asker.learnt(target), None);
        }
        // An answer that nobody asked for teaches nothing.
        let target: IpAddr = "192.0.2.9".parse().unwrap();
        let reply = answer(&mut Host::new(PEER, true, vec![IpPrefix::host(target)], vec![]), &host().ask(target));
        let mut bystander = host();
        bystander.handle(&reply);
        assert_eq!(bystander.learnt(target), None);
    }

    #[test]
    fn behind_tags_it_asks_and_answers_under_these_only() {
        for (tags, bytes) in [("7", &[0x81, 0, 0, 7][..]), ("100.200", &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 200])] {
            for target in ["192.0.2.9", "2001:db8::9"] {
                let target: IpAddr = target.parse().unwrap();
                let mut asker = host().behind(tags.parse().unwrap());
                let question = asker.ask(target);
                assert_eq!(&question[12..12 + bytes.len()], bytes);
                let neighbour = || Host::new(PEER, true, vec![IpPrefix::host(target)], Vec::new());
                let other = |vlan: &str| neighbour().behind(vlan.parse().unwrap());
                for vlan in ["8", "7.7", "100.201", "200.100"] {
                    assert_eq!(other(vlan).handle(&question), Handled::Control(None), "{vlan}");
                }
                let mut reply = answer(&mut other(tags), &question);
                assert_eq!(reply[12..12 + bytes.len()], *bytes);
                // Under another number it is not for this host; the priority does not matter.
                reply[bytes.len() + 11] ^= 1;
                assert_eq!((asker.handle(&reply), asker.learnt(target)), (Handled::Control(None), None));
                reply[bytes.len() + 11] ^= 1;
                reply[bytes.len() + 10] |= 0xe0;
                assert_eq!((asker.handle(&reply), asker.learnt(target)), (Handled::Control(None), Some(PEER)));
            }
            let ping = Packet::ethernet(PEER, OURS).ipv4([192, 0, 2, 9], [192, 0, 2, 1]).echo_request(1, 2).build();
            assert_eq!(host().behind(tags.parse().unwrap()).handle(&ping), Handled::No, "untagged");
        }
    }

    #[test]
    fn packets_come_and_go_under_its_tags() {
        let packet = Packet::new().ipv4([192, 0, 2, 9], [192, 0, 2, 1]).udp(1, 2).payload_len(30).build();
        for tags in ["", "7", "100.200"] {
            let host = || if tags.is_empty() { host() } else { host().behind(tags.parse().unwrap()) };
            let frame = [host().head(PEER, true), packet.clone()].concat();
            assert_eq!(
                (&frame[..6], &frame[6..12], host().packet(&frame)),
                (&PEER.0[..], &OURS.0[..], Some(&packet[..])),
                "{tags}"
            );
            if !tags.is_empty() {
                assert_eq!(host().behind("8".parse().unwrap()).packet(&frame), None, "{tags}");
            }
            assert_eq!(host().head(PEER, false)[frame.len() - packet.len() - 2..], [0x86, 0xdd]);
        }
        let arp =
            Packet::ethernet(PEER, OURS).arp(ArpHeader::request((PEER, [192, 0, 2, 9].into()), [192, 0, 2, 1].into())).build();
        assert_eq!(host().packet(&arp), None);
        let bare = Host::new(OURS, false, vec![], vec![]);
        assert_eq!((bare.head(PEER, true), bare.packet(&packet)), (vec![], Some(&packet[..])));
    }

    #[test]
    fn other_traffic_is_not_the_hosts() {
        let frame = Packet::ethernet(PEER, OURS).ipv4([192, 0, 2, 9], [192, 0, 2, 1]).udp(1, 2).payload_len(30).build();
        assert_eq!(host().handle(&frame), Handled::No);
        for len in 0..frame.len() {
            assert_eq!(host().handle(&frame[..len]), Handled::No);
        }
    }
}
