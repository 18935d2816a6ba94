//! UDP datagrams that the router itself sends, such as the exports of a plugin: built here, then routed by its own tables like any packet.
//!
//! ```text
//!   a plugin's nodes on a thread ──► Outbox of that thread ──► the plugin's node of [`sender`] ──► ip4-lookup, ip6-lookup
//! ```

mod outbox;

use std::net::IpAddr;

use quiver_graph::{IfIndex, NodeCx, flags, next_nodes};
use quiver_wire::Header;
use quiver_wire::U16Be;
use quiver_wire::checksum::{Sum, fill_l4};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;

pub use outbox::{Outbox, Ready, Sends, Totals, send_all, sender};

next_nodes! {
    /// Where datagrams go: the lookup of their family.
    pub enum Lookup { V4 = "ip4-lookup", V6 = "ip6-lookup" }
}

/// Don't fragment, offset 0 (RFC 791): such a packet needs no identification (RFC 6864, 4.1).
const DONT_FRAGMENT: u16 = 0x4000;

/// From where to where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPath {
    /// Source.
    pub src: IpAddr,
    /// Destination, of the same family.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// FIB in which the destination is looked up.
    pub fib: u32,
    /// Datagrams over IPv4 have a checksum; those over IPv6 always have one (RFC 8200, 8.1).
    pub checksum: bool,
}

impl UdpPath {
    /// Bytes of the headers in front of the data.
    pub const fn headers(&self) -> usize {
        UdpHeader::LEN + if self.dst.is_ipv4() { Ipv4Header::LEN } else { Ipv6Header::LEN }
    }

    /// Writes the packet with this data into `out`. `false` where it is too long, or the addresses are of two families.
    pub fn packet(&self, data: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        out.resize(self.headers() + data.len(), 0);
        let Ok(udp_len) = u16::try_from(UdpHeader::LEN + data.len()) else { return false };
        let (start, pseudo) = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let Some(total) = udp_len.checked_add(Ipv4Header::LEN as u16) else { return false };
                let mut header = Ipv4Header::new(src, dst, IpProtocol::UDP);
                header.total_len = U16Be::new(total);
                header.fragment = U16Be::new(DONT_FRAGMENT);
                header.fill_checksum();
                let _ = header.write(out);
                (Ipv4Header::LEN, Sum::new().add_pseudo_v4(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = Ipv6Header::new(src, dst, IpProtocol::UDP);
                header.payload_len = U16Be::new(udp_len);
                let _ = header.write(out);
                (Ipv6Header::LEN, Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len.into()))
            }
            _ => return false,
        };
        let _ = UdpHeader::new(self.src_port, self.dst_port, data.len() as u16).write_at(out, start);
        if let Some(place) = out.get_mut(start + UdpHeader::LEN..) {
            place.copy_from_slice(data);
        }
        if self.checksum || self.dst.is_ipv6() {
            let _ = out.get_mut(start..).and_then(|l4| fill_l4(IpProtocol::UDP, pseudo, l4));
        }
        true
    }

    /// Sends a datagram; `packet` is room for it, kept by the caller. `false`: buffers have run out, or the datagram cannot be.
    pub fn send(&self, cx: &mut NodeCx<'_>, data: &[u8], packet: &mut Vec<u8>) -> bool {
        if !self.packet(data, packet) {
            return false;
        }
        let Some(mut made) = cx.alloc_bytes(packet, IfIndex::LOCAL0) else { return false };
        let mut view = cx.view(&mut made);
        view.mark(flags::LOCAL);
        view.set_table(self.fib);
        cx.emit(if self.dst.is_ipv4() { Lookup::V4 } else { Lookup::V6 }, made);
        true
    }
}

#[cfg(test)]
mod tests {
    use quiver_wire::checksum::{l4_sum_v4, l4_sum_v6};

    use super::*;

    fn path(src: &str, dst: &str, checksum: bool) -> UdpPath {
        UdpPath { src: src.parse().unwrap(), dst: dst.parse().unwrap(), src_port: 4739, dst_port: 2055, fib: 0, checksum }
    }

    #[test]
    fn lengths_and_checksums_are_right() {
        let mut out = Vec::new();
        for (checksum, len) in [(true, 5), (false, 0), (true, 1400)] {
            let path = path("10.0.0.1", "10.0.0.2", checksum);
            assert!(path.packet(&vec![7; len], &mut out));
            assert_eq!(out.len(), path.headers() + len);
            let ip = Ipv4Header::parse(&out).unwrap();
            let udp = UdpHeader::read_at(&out, 20).unwrap();
            assert_eq!((udp.src_port.get(), udp.dst_port.get(), udp.payload_len(out.len() - 20)), (4739, 2055, Some(len)));
            assert_eq!(udp.checksum.get() != 0, checksum);
            assert!(!checksum || l4_sum_v4(&ip, IpProtocol::UDP, &out[20..]).is_valid());
        }
        let path = path("2001:db8::1", "2001:db8::2", false);
        assert!(path.packet(b"abc", &mut out));
        let ip = Ipv6Header::read(&out).unwrap();
        assert!(l4_sum_v6(&ip, IpProtocol::UDP, &out[40..]).is_valid(), "IPv6 has one in any case");
    }

    #[test]
    fn what_cannot_be_a_datagram_is_refused() {
        let mut out = Vec::new();
        assert!(!path("10.0.0.1", "2001:db8::2", true).packet(b"abc", &mut out));
        assert!(!path("10.0.0.1", "10.0.0.2", true).packet(&vec![0; 65_508], &mut out));
        assert!(path("10.0.0.1", "10.0.0.2", true).packet(&vec![0; 65_507], &mut out));
    }
}
