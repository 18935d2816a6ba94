//! Frames that a kernel on this machine sends over a device that is no wire (veth, tun).
//!
//! Such a kernel leaves two jobs to the "device": the checksum of TCP and UDP is unfinished (the field holds the folded sum of
//! the pseudo-header), and with generic XDP a frame can be a super-frame of up to 64 kB. Other drivers are told so by a header
//! before the frame; AF_XDP has none. So it is read from the frame: a field that equals the pseudo-header's sum is taken as
//! unfinished. A finished checksum has that value once in 65,536 packets, and then finishing it again gives the same value, so
//! nothing goes wrong; what cannot be told apart is a packet that was damaged before it reached the peer's kernel.
//!
//! Limits: unfinished checksums inside tunnels (VXLAN, IP in IP) and SCTP's CRC are not seen. `ethtool -K PEER tx off` on the
//! other side avoids all of it.

use quiver_wire::checksum::{self, Sum};
use quiver_wire::ethernet::{EtherType, skip_tags};
use quiver_wire::gso::GsoKind;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::{Header, U16Be};

use crate::virtio_net::VnetHeader;

/// More tags before the IP header than this are not looked through.
const MAX_TAGS: usize = 4;
/// Bytes from the start of the TCP header to its checksum, and in UDP.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Bits 12-15 of TCP's byte 12: header length in words.
const TCP_DATA_OFFSET: usize = 12;

/// Drivers whose frames come from a kernel on this machine.
pub(super) fn sends_unfinished(driver: &str) -> bool {
    matches!(driver, "veth" | "tun")
}

/// Where TCP or UDP lies in a frame.
struct Upper {
    protocol: IpProtocol,
    /// First byte of its header, and behind its last byte.
    start: usize,
    end: usize,
    /// The pseudo-header.
    pseudo: Sum,
    ipv6: bool,
}

/// Finds TCP or UDP directly behind the IP header; nothing in fragments.
#[inline(always)]
fn upper(frame: &[u8]) -> Option<Upper> {
    let (l3, ether_type) = skip_tags(frame, MAX_TAGS)?;
    if ether_type == EtherType::IPV4 {
        let ip = Ipv4Header::read_at(frame, l3)?;
        let header_len = ip.header_len();
        let payload = usize::from(ip.total_len.get()).checked_sub(header_len)?;
        if header_len < Ipv4Header::LEN || ip.is_fragment() {
            return None;
        }
        let pseudo = Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), ip.protocol, payload as u16);
        let start = l3 + header_len;
        return Some(Upper { protocol: ip.protocol, start, end: start + payload, pseudo, ipv6: false });
    }
    if ether_type == EtherType::IPV6 {
        let ip = Ipv6Header::read_at(frame, l3)?;
        let payload = usize::from(ip.payload_len.get());
        let pseudo = Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), ip.next_header, payload as u32);
        let start = l3 + Ipv6Header::LEN;
        return Some(Upper { protocol: ip.next_header, start, end: start + payload, pseudo, ipv6: true });
    }
    None
}

impl Upper {
    /// Bytes from the start of the header to its checksum.
    fn field(&self) -> Option<usize> {
        match self.protocol {
            IpProtocol::TCP => Some(TCP_CHECKSUM),
            IpProtocol::UDP => Some(UDP_CHECKSUM),
            _ => None,
        }
    }
}

/// Finishes an unfinished checksum; leaves all other frames as they are.
#[inline(always)]
pub fn finish_checksum(frame: &mut [u8]) {
    let Some(upper) = upper(frame) else { return };
    let Some(field) = upper.field() else { return };
    let is_unfinished = U16Be::read_at(frame, upper.start + field).is_some_and(|f| f.get() == upper.pseudo.folded());
    if is_unfinished && let Some(frame) = frame.get_mut(..upper.end) {
        // The offsets were just read from the frame; what does not fit is left for the checks that follow.
        let _ = checksum::complete(frame, upper.start as u16, field as u16);
    }
}

/// What a virtio header would say of a super-frame on a device with this MTU; `None` for what cannot be cut.
pub fn describe(frame: &[u8], mtu: usize) -> Option<VnetHeader> {
    let upper = upper(frame)?;
    let (l3, _) = skip_tags(frame, MAX_TAGS)?;
    let header_len = match upper.protocol {
        IpProtocol::TCP => usize::from(frame.get(upper.start + TCP_DATA_OFFSET)? >> 4) * 4,
        _ => return None,
    };
    let gso_size = mtu.checked_sub(upper.start - l3 + header_len)?;
    let kind = if upper.ipv6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
    let gso_type = match kind {
        GsoKind::TcpV4 => 1,
        GsoKind::TcpV6 => 4,
        GsoKind::Udp => return None,
    };
    Some(VnetHeader { gso_type, gso_size: u16::try_from(gso_size).ok()?, ..VnetHeader::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_wire::MacAddr;
    use quiver_wire::build::Packet;
    use quiver_wire::tcp::TcpFlags;

    const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));

    /// Frames of both families and protocols, with and without tags, of many lengths; with the offset of the checksum.
    fn frames() -> Vec<(Vec<u8>, usize)> {
        let mut frames = Vec::new();
        for len in (0..70).chain([1459, 1460]) {
            let payload: Vec<u8> = (0..len).map(|i| (i * 31 + len) as u8).collect();
            for tags in 0..=2 {
                let link = || (0..tags).fold(Packet::ethernet(MACS.0, MACS.1), |p, tag| p.vlan(10 + tag));
                let v4 = || link().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
                let v6 = || link().ipv6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0xfe; 16]);
                let l4 = 14 + 4 * usize::from(tags);
                frames.push((v4().udp(1000, 2000).payload(&payload).build(), l4 + 20 + UDP_CHECKSUM));
                frames.push((v4().tcp(1000, 2000, TcpFlags::ACK).payload(&payload).build(), l4 + 20 + TCP_CHECKSUM));
                frames.push((v6().udp(1000, 2000).payload(&payload).build(), l4 + 40 + UDP_CHECKSUM));
                frames.push((v6().tcp(1000, 2000, TcpFlags::ACK).payload(&payload).build(), l4 + 40 + TCP_CHECKSUM));
            }
        }
        frames
    }

    /// What the kernel leaves in the field.
    fn unfinish(frame: &[u8], field: usize) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let pseudo = upper(&frame).unwrap().pseudo.folded();
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    #[test]
    fn unfinished_checksums_are_finished_and_padding_is_left_out() {
        for (whole, field) in frames() {
            let mut frame = unfinish(&whole, field);
            finish_checksum(&mut frame);
            assert_eq!(frame, whole);
            let mut padded = [unfinish(&whole, field), vec![0xa5; 9]].concat();
            finish_checksum(&mut padded);
            assert_eq!(padded[..whole.len()], whole);
        }
    }

    #[test]
    fn finished_and_damaged_checksums_and_other_protocols_stay_as_they_are() {
        for (whole, field) in frames() {
            let mut frame = whole.clone();
            finish_checksum(&mut frame);
            assert_eq!(frame, whole);
            frame[field] ^= 0x10;
            let damaged = frame.clone();
            finish_checksum(&mut frame);
            assert_eq!(frame, damaged);
        }
        let arp = [&[0xff; 6][..], &MACS.0.0, &[8, 6], &[0; 46]].concat();
        let mut frame = arp.clone();
        finish_checksum(&mut frame);
        assert_eq!(frame, arp);
    }

    #[test]
    fn no_frame_however_short_or_wrong_is_read_past_its_end() {
        for (whole, field) in frames().into_iter().step_by(37) {
            let whole = unfinish(&whole, field);
            for len in 0..whole.len() {
                finish_checksum(&mut whole[..len].to_vec());
                let _ = describe(&whole[..len], 1500);
                for value in [0, 0xff] {
                    let mut wrong = whole.clone();
                    wrong[len] = value;
                    finish_checksum(&mut wrong);
                    let _ = describe(&wrong, 1500);
                }
            }
        }
    }

    #[test]
    fn a_super_frame_is_cut_to_the_mtu() {
        let payload = vec![7; 20_000];
        let frame =
            Packet::ethernet(MACS.0, MACS.1).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, TcpFlags::ACK).payload(&payload).build();
        let header = describe(&frame, 1500).unwrap();
        assert_eq!((header.gso_type, header.gso_size), (1, 1460));
        let udp = Packet::ethernet(MACS.0, MACS.1).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&payload).build();
        assert_eq!(describe(&udp, 1500), None, "a datagram is not cut");
        assert_eq!(describe(&frame, 30), None, "no MTU for these headers");
    }
}
