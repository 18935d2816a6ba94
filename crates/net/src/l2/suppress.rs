//! `l2-arp-term`: questions for a MAC address (ARP, neighbour solicitations) are answered from the domain's own table, so
//! that they need not be flooded. What the table does not know, and what is no plain question, is flooded as ever.

use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::{Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, next_nodes};
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::checksum::Sum;
use quiver_wire::ethernet::{EtherType, EthernetHeader};
use quiver_wire::icmp6::Icmp6Type;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ndp::{self, NdpOption, NeighborMessage, neighbor_flags};
use quiver_wire::{Header, MacAddr, U16Be};
use zerocopy::IntoBytes;

use super::bridge::flood_kind;
use super::domain::{DomainView, Domains};
use super::hosts::{Host, Listener};
use super::port::{PortTable, PortWord, port_flags};

next_nodes! {
    /// Where questions and answers go.
    pub enum Next { Flood = "l2-flood", Bridge = "l2-bridge" }
}

drop_reasons! {
    /// What is counted.
    pub enum Drop {
        /// An ARP request was answered by the bridge (`arp term`).
        Arp = "ARP replies sent" (info),
        /// A neighbor solicitation was answered by the bridge (`arp term`).
        Nd = "neighbor advertisements sent" (info),
        /// An ARP request was forwarded to its target only, instead of to all ports.
        Unicast = "ARP requests forwarded to their target" (info),
        /// The frame is for a group or for all, and those are not flooded here.
        Groups = "L2 multicast, flooding is off",
    }
}

/// The node.
#[derive(Clone)]
pub(super) struct Suppress {
    pub ports: PortTable,
    pub domains: Snapshot<Domains>,
    pub listener: Listener,
}

/// What becomes of a question.
enum Answer {
    Flood,
    /// To the one who is asked.
    Unicast(MacAddr),
    /// An answer in the place of it: whole frame, and what is counted.
    Reply(Vec<u8>, Drop),
}

const ETHERNET: usize = size_of::<EthernetHeader>();

fn answer(domain: &DomainView, frame: &[u8]) -> Answer {
    let Some(header) = EthernetHeader::read(frame) else { return Answer::Flood };
    let rest = &frame[ETHERNET..];
    match header.ether_type() {
        EtherType::ARP => arp(domain, rest),
        _ => solicitation(domain, rest),
    }
}

fn arp(domain: &DomainView, message: &[u8]) -> Answer {
    let Ok(request) = ArpHeader::parse(message) else { return Answer::Flood };
    let Some(mac) = domain.mac_of(request.target_ip().into()) else { return Answer::Flood };
    // Announcements are for all; the owner's own probe must not be answered, or it would give its address up (RFC 5227).
    let own = mac == request.sender_mac || request.sender_ip() == request.target_ip();
    if request.operation() != ArpOperation::REQUEST || own {
        return Answer::Flood;
    }
    if domain.unicast_arp {
        return Answer::Unicast(mac);
    }
    let mut bytes = EthernetHeader::new(request.sender_mac, mac, EtherType::ARP).as_bytes().to_vec();
    bytes.extend(request.reply(mac).as_bytes());
    bytes.resize(quiver_wire::ethernet::MIN_FRAME_WITHOUT_FCS, 0);
    Answer::Reply(bytes, Drop::Arp)
}

fn solicitation(domain: &DomainView, packet: &[u8]) -> Answer {
    let Some(ip) = Ipv6Header::read(packet).filter(|ip| ip.next_header == IpProtocol::ICMPV6) else { return Answer::Flood };
    let length = usize::from(ip.payload_len.get());
    let Some(message) = packet[size_of::<Ipv6Header>()..].get(..length) else { return Answer::Flood };
    let Some(asked) = NeighborMessage::read(message).filter(|m| m.icmp.icmp_type == Icmp6Type::NEIGHBOR_SOLICITATION) else {
        return Answer::Flood;
    };
    let sum = Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), IpProtocol::ICMPV6, length as u32).add_bytes(message);
    let right = ndp::validate(&ip, message).is_ok() && sum.is_valid();
    // From nobody: it asks whether the address is free, which only its owner may answer.
    let Some(mac) = domain.mac_of(asked.target_addr().into()).filter(|_| right && ip.src.get() != 0) else {
        return Answer::Flood;
    };
    let sender = ndp::NdpOptions::of_message(message).and_then(|options| {
        options.flatten().find_map(|option| match option {
            NdpOption::SourceLinkAddress(mac) => Some(mac),
            _ => None,
        })
    });
    let Some(sender) = sender.filter(|sender| *sender != mac && sender.is_unicast()) else { return Answer::Flood };
    Answer::Reply(advertisement(asked.target.get(), mac, ip.src.get(), sender), Drop::Nd)
}

/// The host that sends a message of ARP or a neighbour solicitation or advertisement, where it says who it is. What comes from elsewhere than the
/// link itself says nothing (RFC 4861, 7.1), nor does a link-local address, which is the same in many networks.
fn sender(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let header = EthernetHeader::read(frame)?;
    let rest = &frame[ETHERNET..];
    let ip: IpAddr = match header.ether_type() {
        EtherType::ARP => {
            let message = ArpHeader::parse(rest).ok().filter(|message| message.sender_mac == header.src)?;
            message.sender_ip().into()
        }
        EtherType::IPV6 => {
            let ip = Ipv6Header::read(rest).filter(|ip| ip.next_header == IpProtocol::ICMPV6)?;
            let message = rest[size_of::<Ipv6Header>()..].get(..usize::from(ip.payload_len.get()))?;
            let kinds = [Icmp6Type::NEIGHBOR_SOLICITATION, Icmp6Type::NEIGHBOR_ADVERTISEMENT];
            let says = NeighborMessage::read(message).is_some_and(|m| kinds.contains(&m.icmp.icmp_type));
            let source = Ipv6Addr::from_bits(ip.src.get());
            (says && ndp::validate(&ip, message).is_ok() && !source.is_unicast_link_local()).then_some(source.into())?
        }
        _ => return None,
    };
    (!ip.is_unspecified() && !ip.is_multicast() && header.src.is_unicast()).then_some((ip, header.src))
}

/// An advertisement of `target`, as its owner would send it when asked (RFC 4861, 7.2.4).
fn advertisement(target: u128, mac: MacAddr, dst: u128, dst_mac: MacAddr) -> Vec<u8> {
    let flags = neighbor_flags::SOLICITED | neighbor_flags::OVERRIDE;
    let mut message = NeighborMessage::advertisement(Ipv6Addr::from_bits(target), flags).as_bytes().to_vec();
    let option = NdpOption::TargetLinkAddress(mac);
    let at = message.len();
    message.resize(at + option.wire_len(), 0);
    // The room is exactly what the option asked for.
    let _ = option.write(&mut message[at..]);
    let sum = Sum::new().add_pseudo_v6(target, dst, IpProtocol::ICMPV6, message.len() as u32).add_bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let mut header = Ipv6Header::new(Ipv6Addr::from_bits(target), Ipv6Addr::from_bits(dst), IpProtocol::ICMPV6);
    header.hop_limit = 255;
    header.payload_len = U16Be::new(message.len() as u16);
    let mut bytes = EthernetHeader::new(dst_mac, mac, EtherType::IPV6).as_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(message);
    bytes
}

impl Suppress {
    /// Floods what has no answer here, where frames to groups are flooded.
    fn flood(mut packet: Pkt<'_>, port: PortWord) -> Verdict {
        if port.has(port_flags::FLOOD_GROUPS) { Next::Flood.into() } else { packet.drop(Drop::Groups) }
    }
}

impl Node for Suppress {
    type Next = Next;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.domains.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        packet.set_aux(flood_kind::ALL);
        let port = self.ports.get(packet.rx_if());
        if self.listener.is_wanted()
            && let Some((ip, mac)) = sender(packet.bytes())
        {
            self.listener.note(Host { ip, mac, interface: packet.rx_if() }, cx.now());
        }
        let Some(domain) = self.domains.get().get(port.domain()) else { return Self::flood(packet, port) };
        match answer(domain, packet.bytes()) {
            Answer::Flood => Self::flood(packet, port),
            Answer::Unicast(mac) => {
                packet.set_head(mac);
                cx.count(Drop::Unicast, 1);
                Next::Bridge.into()
            }
            Answer::Reply(bytes, counted) => {
                packet.trim(bytes.len());
                if !packet.set_len(bytes.len()) {
                    return Self::flood(packet, port);
                }
                packet.bytes_mut().copy_from_slice(&bytes);
                packet.set_aux(flood_kind::BACK);
                cx.count(counted, 1);
                Next::Flood.into()
            }
        }
    }
}

impl DomainView {
    fn mac_of(&self, address: IpAddr) -> Option<MacAddr> {
        self.neighbors.get(&address).copied()
    }
}
