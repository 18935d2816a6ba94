//! Where a packet of a capture has room for a signature: at the end of its IP packet, where the receiver looks for it, within the
//! payload of UDP, TCP or an echo. Bytes behind the IP packet (padding of Ethernet) stay.

use quiver_wire::checksum::Sum;
use quiver_wire::ethernet::{EtherType, skip_tags};
use quiver_wire::icmp4::Icmp4Type;
use quiver_wire::icmp6::Icmp6Type;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Ipv6Header, upper_layer};

use crate::signature::LEN;

/// The place, as offsets in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The signature.
    pub at: usize,
    /// The header of layer 4.
    pub l4: usize,
    /// The checksum that covers the signature; none where UDP goes without.
    pub checksum: Option<usize>,
    /// That is UDP's, which is never 0.
    pub udp: bool,
    /// Sum of the checksum's pseudo-header.
    pseudo: u16,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Another protocol of layer 3, or none that can be read.
    #[error("it is no whole packet of IPv4 or IPv6")]
    NotIp,
    /// The payload of a datagram goes on elsewhere.
    #[error("it is a fragment")]
    Fragment,
    /// Its checksum covers another destination than the one in its header.
    #[error("it has a source route")]
    Routed,
    /// Another protocol of layer 4.
    #[error("it is neither UDP, TCP nor an echo")]
    NotL4,
    /// Lengths in its headers contradict each other.
    #[error("the lengths of its headers do not fit together")]
    Lengths,
    /// Too few bytes behind its headers.
    #[error("its payload is {0} bytes, and a signature takes {LEN}")]
    Short(usize),
}

/// Finds it in a frame, or in an IP packet where frames have no Ethernet header.
///
/// # Errors
/// There is none.
pub fn find(frame: &[u8], ethernet: bool) -> Result<Room, NoRoom> {
    let l3 = match ethernet {
        true => match skip_tags(frame, 2) {
            Some((at, EtherType::IPV4 | EtherType::IPV6)) => at,
            _ => return Err(NoRoom::NotIp),
        },
        false => 0,
    };
    let packet = frame.get(l3..).ok_or(NoRoom::NotIp)?;
    let (protocol, start, end, pseudo) = match packet.first().map(|b| b >> 4) {
        Some(4) => ipv4(packet)?,
        Some(6) => ipv6(packet)?,
        _ => return Err(NoRoom::NotIp),
    };
    let covered = packet.get(start..end).ok_or(NoRoom::Lengths)?;
    let word = |at: usize| Some(u16::from_be_bytes([*covered.get(at)?, *covered.get(at + 1)?]));
    let (header, checksum) = match protocol {
        IpProtocol::UDP => {
            // What stands behind UDP's own length is not covered by its checksum.
            if word(4).map(usize::from) != Some(covered.len()) {
                return Err(NoRoom::Lengths);
            }
            (8, (word(6) != Some(0)).then_some(6))
        }
        IpProtocol::TCP => (usize::from(covered.get(12).ok_or(NoRoom::Lengths)? >> 4) * 4, Some(16)),
        IpProtocol::ICMP | IpProtocol::ICMPV6 if is_echo(protocol, covered) => (8, Some(2)),
        _ => return Err(NoRoom::NotL4),
    };
    let payload = covered.len().checked_sub(header).ok_or(NoRoom::Lengths)?;
    if protocol == IpProtocol::TCP && header < 20 {
        return Err(NoRoom::Lengths);
    }
    if payload < LEN {
        return Err(NoRoom::Short(payload));
    }
    let l4 = l3 + start;
    Ok(Room {
        at: l3 + end - LEN,
        l4,
        checksum: checksum.map(|at| l4 + at),
        udp: protocol == IpProtocol::UDP,
        pseudo: pseudo.folded(),
    })
}

impl Room {
    /// Zeroes signature and checksum in `frame`, and returns the sum over what the checksum covers then.
    pub fn clear(&self, frame: &mut [u8]) -> Sum {
        let zero = |frame: &mut [u8], at: usize, n: usize| frame.get_mut(at..at + n).into_iter().for_each(|place| place.fill(0));
        zero(frame, self.at, LEN);
        self.checksum.into_iter().for_each(|at| zero(frame, at, 2));
        let covered = frame.get(self.l4..self.at + LEN).unwrap_or_default();
        // Folded first, so that whole words can be added behind an odd number of bytes.
        Sum::new().add_u16(self.pseudo).add_u16(Sum::of(covered).folded())
    }
}

fn is_echo(protocol: IpProtocol, l4: &[u8]) -> bool {
    let kind = l4.first().copied();
    match protocol {
        IpProtocol::ICMP => [Icmp4Type::ECHO_REQUEST.0, Icmp4Type::ECHO_REPLY.0].map(Some).contains(&kind),
        _ => [Icmp6Type::ECHO_REQUEST.0, Icmp6Type::ECHO_REPLY.0].map(Some).contains(&kind),
    }
}

/// Protocol, layer 4 (from, to), and the sum of its pseudo-header.
type Upper = (IpProtocol, usize, usize, Sum);

fn ipv4(packet: &[u8]) -> Result<Upper, NoRoom> {
    let header = Ipv4Header::parse(packet).map_err(|_| NoRoom::NotIp)?;
    if header.is_fragment() {
        return Err(NoRoom::Fragment);
    }
    let (start, end) = (header.header_len(), usize::from(header.total_len.get()));
    let pseudo = match header.protocol {
        IpProtocol::ICMP => Sum::new(),
        // Of the other family: no echo.
        IpProtocol::ICMPV6 => return Err(NoRoom::NotL4),
        protocol => Sum::new().add_pseudo_v4(header.src.get(), header.dst.get(), protocol, end.saturating_sub(start) as u16),
    };
    Ok((header.protocol, start, end, pseudo))
}

fn ipv6(packet: &[u8]) -> Result<Upper, NoRoom> {
    let header = Ipv6Header::parse(packet).map_err(|_| NoRoom::NotIp)?;
    let upper = upper_layer(&header, packet).map_err(|_| NoRoom::Lengths)?;
    if upper.fragment.is_some() {
        return Err(NoRoom::Fragment);
    }
    if upper.routing_offset != 0 {
        return Err(NoRoom::Routed);
    }
    if upper.protocol == IpProtocol::ICMP {
        return Err(NoRoom::NotL4);
    }
    let (start, end) = (usize::from(upper.offset), 40 + usize::from(header.payload_len.get()));
    let pseudo = Sum::new().add_pseudo_v6(header.src.get(), header.dst.get(), upper.protocol, end.saturating_sub(start) as u32);
    Ok((upper.protocol, start, end, pseudo))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_wire::build::Packet;
    use quiver_wire::tcp::TcpFlags;
    use quiver_wire::{Header, MacAddr};
    use std::net::Ipv6Addr;

    fn ether() -> Packet {
        Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6]))
    }

    fn v4() -> Packet {
        ether().ipv4([10, 0, 0, 1], [10, 0, 0, 2])
    }

    fn v6() -> Packet {
        let [src, dst] = ["2001:2::1", "2001:2::2"].map(|a| a.parse::<Ipv6Addr>().unwrap());
        ether().ipv6(src, dst)
    }

    #[test]
    fn the_signature_ends_where_the_packet_does_whatever_pads_the_frame() {
        for (packet, l4, checksum) in [
            (v4().udp(5, 6), 34, 40),
            (v4().tcp(5, 6, TcpFlags::ACK), 34, 50),
            (v4().echo_request(1, 2), 34, 36),
            (v6().udp(5, 6), 54, 60),
            (v6().tcp(5, 6, TcpFlags::ACK), 54, 70),
            (v6().echo_request(1, 2), 54, 56),
        ] {
            for len in [18, 19, 100] {
                let whole = packet.clone().payload_len(len).build();
                for padding in [0, 3, 40] {
                    let mut frame = whole.clone();
                    frame.resize(frame.len() + padding, 0x5a);
                    let room = find(&frame, true).unwrap();
                    assert_eq!((room.at + LEN, room.l4, room.checksum), (whole.len(), l4, Some(checksum)));
                    // The sum is that of the headers: with the payload as it was, it gives the checksum as it was.
                    let before = frame.clone();
                    let sum = room.clear(&mut frame);
                    assert_eq!(&frame[room.at + LEN..], &before[whole.len()..], "padding stays");
                    let tail = Sum::of(&before[room.at..whole.len()]).folded();
                    let tail = if (room.at - l4).is_multiple_of(2) { tail } else { tail.swap_bytes() };
                    let field = u16::from_be_bytes([before[checksum], before[checksum + 1]]);
                    assert_eq!(sum.add_u16(tail).checksum(), field);
                }
                let room = find(&whole[14..], false).unwrap();
                assert_eq!((room.at, room.l4), (whole.len() - 14 - LEN, l4 - 14));
            }
            let short = packet.payload_len(17).build();
            assert_eq!(find(&short, true), Err(NoRoom::Short(17)));
        }
        let tagged = ether().vlan(7).vlan(8).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(5, 6).payload_len(18).build();
        assert_eq!(find(&tagged, true).unwrap().l4, 42);
    }

    #[test]
    fn udp_without_a_checksum_keeps_none() {
        let mut frame = v4().udp(5, 6).payload_len(30).build();
        frame[40..42].fill(0);
        let room = find(&frame, true).unwrap();
        assert_eq!((room.checksum, room.udp), (None, true));
    }

    #[test]
    fn what_has_no_room_says_why() {
        let whole = v4().udp(5, 6).payload_len(30).build();
        let mend = |at: usize, byte: u8| {
            let mut frame = whole.clone();
            frame[at] = byte;
            let mut header = Ipv4Header::read(&frame[14..]).unwrap();
            header.fill_checksum();
            frame[14..34].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header));
            find(&frame, true)
        };
        assert_eq!(mend(20, 0x20), Err(NoRoom::Fragment), "more follow");
        assert_eq!(mend(21, 9), Err(NoRoom::Fragment), "a later one");
        assert_eq!(mend(23, 47), Err(NoRoom::NotL4));
        assert_eq!(mend(39, 20), Err(NoRoom::Lengths), "UDP ends before its packet");
        assert_eq!(find(&ether().next(0x88b5).payload_len(60).build(), true), Err(NoRoom::NotIp));
        let unreachable = v4().next(1).payload(&[3; 40]).build();
        assert_eq!(find(&unreachable, true), Err(NoRoom::NotL4));
        let mut tcp = v4().tcp(5, 6, TcpFlags::ACK).payload_len(30).build();
        tcp[46] = 0x40;
        assert_eq!(find(&tcp, true), Err(NoRoom::Lengths));
        tcp[46] = 0xf0;
        assert_eq!(find(&tcp, true), Err(NoRoom::Lengths));
        for len in 0..whole.len() {
            assert!(find(&whole[..len], true).is_err(), "cut to {len} bytes");
        }
    }

    #[test]
    fn extension_headers_are_walked_and_fragments_and_source_routes_are_none() {
        let (udp, udp_header) = (30, [0, 5, 0, 6, 0, 38, 1, 1]);
        let with = |kind: u8, extension: [u8; 8]| {
            let payload = [&extension[..], &udp_header, &vec![1; udp]].concat();
            v6().next(kind.into()).payload(&payload).build()
        };
        assert_eq!(find(&with(0, [17, 0, 1, 4, 0, 0, 0, 0]), true).unwrap().l4, 62);
        assert_eq!(find(&with(44, [17, 0, 0, 1, 0, 0, 0, 1]), true), Err(NoRoom::Fragment));
        assert_eq!(find(&with(43, [17, 0, 4, 1, 0, 0, 0, 0]), true), Err(NoRoom::Routed));
    }
}
