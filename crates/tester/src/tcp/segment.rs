//! What must be known of a packet with a segment of TCP: whose it is, and how far it reaches.

use quiver_wire::Header;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::tcp::{TcpFlags, TcpHeader};

use crate::stateful::connections::FourTuple;

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Addresses and ports, as its sender writes them.
    pub tuple: FourTuple,
    /// Its flags.
    pub flags: TcpFlags,
    /// Number of its first byte.
    pub sequence: u32,
    /// Numbers that it takes: bytes of data, SYN and FIN.
    pub length: u32,
}

impl Segment {
    /// Reads an IP packet; none where it has no whole segment of TCP: another protocol, a fragment, extension headers, cut off.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (src, dst, start, end) = match packet.first()? >> 4 {
            4 => {
                let header = Ipv4Header::parse(packet).ok()?;
                if header.protocol != IpProtocol::TCP || header.is_fragment() {
                    return None;
                }
                let (start, end) = (header.header_len(), usize::from(header.total_len.get()));
                (header.src_addr().into(), header.dst_addr().into(), start, end)
            }
            6 => {
                let header = Ipv6Header::parse(packet).ok()?;
                if header.next_header != IpProtocol::TCP {
                    return None;
                }
                (header.src_addr().into(), header.dst_addr().into(), 40, 40 + usize::from(header.payload_len.get()))
            }
            _ => return None,
        };
        let bytes = packet.get(start..end)?;
        let header = TcpHeader::read(bytes)?;
        let data = bytes.len().checked_sub(usize::from(header.offset_reserved >> 4) * 4)?;
        let counts = |flag| u32::from(header.flags.contains(flag));
        Some(Self {
            tuple: FourTuple { src, dst, src_port: header.src_port.get(), dst_port: header.dst_port.get() },
            flags: header.flags,
            sequence: header.sequence.get(),
            length: data as u32 + counts(TcpFlags::SYN) + counts(TcpFlags::FIN),
        })
    }

    /// The number behind its last one.
    pub fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.length)
    }

    /// Whether it opens a connection.
    pub fn opens(&self) -> bool {
        self.flags.contains(TcpFlags::SYN) && !self.flags.contains(TcpFlags::ACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_wire::build::Packet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn segments_are_read_and_nothing_else() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1));
        let packet = Packet::new().ipv4(a, b).tcp(1024, 80, TcpFlags::ACK | TcpFlags::FIN).payload(&[7; 5]).build();
        let segment = Segment::read(&packet).unwrap();
        assert_eq!((segment.tuple.src_port, segment.tuple.dst_port, segment.length, segment.opens()), (1024, 80, 6, false));
        assert_eq!(segment.end(), segment.sequence.wrapping_add(6));
        // Padding of the link is no data.
        let padded = [&packet[..], &[0; 9]].concat();
        assert_eq!(Segment::read(&padded), Some(segment));
        for len in 0..packet.len() {
            assert_eq!(Segment::read(&packet[..len]), None, "{len}");
        }
        let (a, b) = (Ipv6Addr::LOCALHOST, "2001:db8::1".parse::<Ipv6Addr>().unwrap());
        let packet = Packet::new().ipv6(a, b).tcp(1, 2, TcpFlags::SYN).build();
        let segment = Segment::read(&packet).unwrap();
        assert!(segment.opens() && segment.length == 1 && segment.tuple.src == a);
        let udp = Packet::new().ipv6(a, b).udp(1, 2).payload(&[0; 30]).build();
        assert_eq!(Segment::read(&udp), None);
        // An offset beyond the segment.
        let mut wrong = packet;
        wrong[52] = 0xf0;
        assert_eq!(Segment::read(&wrong), None);
    }
}
