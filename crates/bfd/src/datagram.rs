//! Datagrams of BFD, and what a session is known by.

use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::checksum::{Sum, fill_l4};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;
use quiver_wire::{Header, U16Be};

use crate::auth::{SEALED_MAX, Sealed};
use crate::packet::Echo;

/// UDP port of single-hop control packets (RFC 5881, 4).
pub const PORT: u16 = 3784;
/// UDP port of echo packets (RFC 5881, 4).
pub const ECHO_PORT: u16 = 3785;
/// UDP port of multihop control packets (RFC 5883, 5).
pub const MULTIHOP_PORT: u16 = 4784;
/// First of the source ports that control packets may have (RFC 5881, 4), and how many there are.
const SOURCE_PORTS: (u16, u16) = (49_152, 16_384);
/// TTL and hop limit (RFC 5881, 5): no router has passed the packet on.
pub const TTL: u8 = 255;
/// TOS and traffic class where none is configured: DSCP CS6, as routing protocols have; queues on the way prefer it.
pub const TOS: u8 = 0xc0;

/// What a session is known by: where it is, and between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Interface; [`Key::ANY`] of a multihop session.
    pub interface: IfIndex,
    /// Table of a multihop session: its number, among nodes the index of its FIB.
    pub table: u32,
    /// The other side's address: sessions with the same peer are beside each other in order.
    pub peer: IpAddr,
    /// Own address.
    pub local: IpAddr,
}

impl Key {
    /// Stands for the interface of a multihop session, as in VPP's messages.
    pub const ANY: IfIndex = IfIndex(u32::MAX);

    /// Of a session with a neighbour on an interface.
    pub const fn on(interface: IfIndex, local: IpAddr, peer: IpAddr) -> Self {
        Self { interface, table: 0, peer, local }
    }

    /// Of a session with a router elsewhere, by the routes of a table.
    pub const fn multihop(table: u32, local: IpAddr, peer: IpAddr) -> Self {
        Self { interface: Self::ANY, table, peer, local }
    }

    /// Whether routers may be in between.
    pub fn is_multihop(&self) -> bool {
        self.interface == Self::ANY
    }
}

/// An IP packet of BFD.
pub struct Datagram {
    bytes: [u8; Ipv6Header::LEN + UdpHeader::LEN + SEALED_MAX],
    len: usize,
}

impl Datagram {
    /// A control packet from one side of a session to the other. Addresses of two families give no bytes.
    pub fn control(key: &Key, discriminator: u32, packet: &Sealed, tos: u8) -> Self {
        let to = if key.is_multihop() { MULTIHOP_PORT } else { PORT };
        Self::new([key.local, key.peer], [source_port(discriminator), to], tos, packet.bytes())
    }

    /// An echo packet, whose destination is this router.
    pub fn echo(key: &Key, source: IpAddr, echo: &Echo, tos: u8) -> Self {
        Self::new([source, key.local], [source_port(echo.discriminator), ECHO_PORT], tos, &echo.to_bytes())
    }

    fn new([src, dst]: [IpAddr; 2], [from, to]: [u16; 2], tos: u8, data: &[u8]) -> Self {
        let udp = UdpHeader::new(from, to, data.len() as u16);
        let udp_len = UdpHeader::LEN + data.len();
        let mut datagram = Self { bytes: [0; _], len: 0 };
        let bytes = &mut datagram.bytes;
        let (start, pseudo) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Header::new(src, dst, IpProtocol::UDP);
                header.ttl = TTL;
                header.total_len = U16Be::new((Ipv4Header::LEN + udp_len) as u16);
                header.update_tos(tos);
                header.fill_checksum();
                let _ = header.write(bytes);
                (Ipv4Header::LEN, Sum::new().add_pseudo_v4(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len as u16))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = Ipv6Header::new(src, dst, IpProtocol::UDP);
                header.hop_limit = TTL;
                header.payload_len = U16Be::new(udp_len as u16);
                header.set_traffic_class(tos);
                let _ = header.write(bytes);
                (Ipv6Header::LEN, Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len as u32))
            }
            _ => return datagram,
        };
        let _ = udp.write_at(bytes, start);
        let Some(place) = bytes.get_mut(start + UdpHeader::LEN..start + udp_len) else { return datagram };
        place.copy_from_slice(data);
        let _ = bytes.get_mut(start..start + udp_len).and_then(|l4| fill_l4(IpProtocol::UDP, pseudo, l4));
        datagram.len = start + udp_len;
        datagram
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn source_port(discriminator: u32) -> u16 {
    SOURCE_PORTS.0 + (discriminator % u32::from(SOURCE_PORTS.1)) as u16
}
