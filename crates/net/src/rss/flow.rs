//! The hash by which flows are told apart, from the bytes of a frame.

use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;

/// What the hash takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashInput {
    /// Both directions of a flow have the same hash.
    pub symmetric: bool,
    /// Ports, where there are any.
    pub l4: bool,
}

/// VLAN tags that are looked through.
const TAGS_MAX: usize = 2;
/// Most MPLS labels that are skipped.
const LABELS_MAX: usize = 8;
/// IPv6 extension headers that are looked through for ports: more are seen in attacks only.
const EXTENSIONS_MAX: usize = 8;

/// The two ends of a flow, and what else tells it apart.
#[derive(Default)]
struct Flow {
    src: [u64; 2],
    dst: [u64; 2],
    ports: (u16, u16),
    rest: u64,
}

/// Hash of a frame's flow. Frames that end too early are hashed by what is there.
#[inline]
pub fn flow_hash(frame: &[u8], input: HashInput, seed: u64) -> u32 {
    hash(flow(frame, input.l4), input, seed)
}

/// Hash of a frame's MAC addresses, whatever it carries.
#[inline]
pub fn link_hash(frame: &[u8], seed: u64) -> u32 {
    let flow = Flow { src: [address(frame, 6), 0], dst: [address(frame, 0), 0], ..Flow::default() };
    hash(flow, HashInput { symmetric: false, l4: false }, seed)
}

/// Hash of the flow of an IP packet without a link header, the same as in a frame. What is no IP packet will be dropped: any
/// worker will do.
#[inline]
pub fn packet_hash(packet: &[u8], input: HashInput, seed: u64) -> u32 {
    let flow = match packet.first().map(|b| b >> 4) {
        Some(4) => flow4(packet, input.l4),
        Some(6) => flow6(packet, input.l4),
        _ => None,
    };
    hash(flow.unwrap_or_default(), input, seed)
}

#[inline(always)]
fn hash(mut flow: Flow, input: HashInput, seed: u64) -> u32 {
    if input.symmetric {
        // Ends and ports apart: a fragment has no ports, and both directions sort alike.
        if flow.src > flow.dst {
            std::mem::swap(&mut flow.src, &mut flow.dst);
        }
        flow.ports = (flow.ports.0.min(flow.ports.1), flow.ports.0.max(flow.ports.1));
    }
    let ports = u64::from(flow.ports.0) << 48 | u64::from(flow.ports.1) << 32;
    let words = [flow.src[0], flow.src[1], flow.dst[0], flow.dst[1], ports | flow.rest];
    let hash = words.into_iter().fold(seed, mix);
    (hash ^ hash >> 32) as u32
}

/// One round of multiply and fold: every input bit reaches all bits of the result. The factor has no structure (fractional part
/// of the square root of 3).
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15)) * u128::from(0xbb67_ae85_84ca_a73b_u64);
    (product as u64) ^ (product >> 64) as u64
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    number(bytes, at).map_or(0, u16::from_be_bytes)
}

#[inline]
fn flow(frame: &[u8], l4: bool) -> Flow {
    let mut at = 12;
    let mut ether_type = EtherType(u16_at(frame, at));
    for _ in 0..TAGS_MAX {
        if !ether_type.is_vlan() {
            break;
        }
        at += 4;
        ether_type = EtherType(u16_at(frame, at));
    }
    let packet = frame.get(at + 2..).unwrap_or_default();
    let flow = match ether_type {
        EtherType::IPV4 => flow4(packet, l4),
        EtherType::IPV6 => flow6(packet, l4),
        EtherType::MPLS => behind_labels(packet, l4),
        _ => None,
    };
    let of_link = || Flow { src: [address(frame, 6), 0], dst: [address(frame, 0), 0], ports: (0, 0), rest: ether_type.0.into() };
    flow.unwrap_or_else(of_link)
}

/// The flow of the IP packet behind a stack of MPLS labels (RFC 3032); what it is stands in no header, so its version tells (RFC 4928).
fn behind_labels(packet: &[u8], l4: bool) -> Option<Flow> {
    const BOTTOM: u8 = 1;
    let last = packet.chunks_exact(4).take(LABELS_MAX).position(|label| label.get(2).is_some_and(|byte| byte & BOTTOM != 0))?;
    let inner = packet.get((last + 1) * 4..)?;
    match inner.first()? >> 4 {
        4 => flow4(inner, l4),
        6 => flow6(inner, l4),
        _ => None,
    }
}

/// A MAC address as a number.
fn address(frame: &[u8], at: usize) -> u64 {
    number::<6>(frame, at).map_or(0, |[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

fn flow4(packet: &[u8], l4: bool) -> Option<Flow> {
    let header: [u8; 20] = number(packet, 0)?;
    let address = |at| number::<4>(&header, at).map_or(0, u32::from_be_bytes).into();
    let is_fragment = u16_at(&header, 6) & 0x3fff != 0;
    let transport = packet.get(usize::from(header[0] & 0xf) * 4..).filter(|_| l4 && !is_fragment);
    let ports = transport.map_or((0, 0), |t| ports(header[9], t));
    Some(Flow { src: [address(12), 0], dst: [address(16), 0], ports, rest: header[9].into() })
}

fn flow6(packet: &[u8], l4: bool) -> Option<Flow> {
    let header: [u8; 40] = number(packet, 0)?;
    let half = |at| number(&header, at).map_or(0, u64::from_be_bytes);
    let (protocol, ports) = if l4 { upper6(header[6], packet) } else { (0, (0, 0)) };
    Some(Flow { src: [half(8), half(16)], dst: [half(24), half(32)], ports, rest: protocol.into() })
}

/// Protocol and ports behind extension headers; of fragments nothing, because only the first has them.
fn upper6(first: u8, packet: &[u8]) -> (u8, (u16, u16)) {
    let (mut protocol, mut at) = (first, 40);
    for _ in 0..EXTENSIONS_MAX {
        let rest = packet.get(at..).unwrap_or_default();
        match protocol {
            // Hop-by-hop, routing and destination options: next header, length in units of 8 bytes beyond the first.
            0 | 43 | 60 => {
                let Some([next, len]) = number(rest, 0) else { return (0, (0, 0)) };
                (protocol, at) = (next, at + 8 + usize::from(len) * 8);
            }
            44 => return (0, (0, 0)),
            _ => return (protocol, ports(protocol, rest)),
        }
    }
    (0, (0, 0))
}

/// Ports of the protocols that have them in their first four bytes: TCP, UDP, DCCP, SCTP, UDP-Lite.
fn ports(protocol: u8, transport: &[u8]) -> (u16, u16) {
    match IpProtocol(protocol) {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol(33 | 132 | 136) => (u16_at(transport, 0), u16_at(transport, 2)),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: HashInput = HashInput { symmetric: true, l4: true };
    const ONE: HashInput = HashInput { symmetric: false, l4: true };

    fn frame4(src: u32, dst: u32, ports: (u16, u16), fragment: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 1];
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 17, 0, 0]);
        frame.extend(src.to_be_bytes());
        frame.extend(dst.to_be_bytes());
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    fn frame6(src: u128, dst: u128, headers: &[u8], first: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, headers.len() as u8, first, 64];
        frame.extend(src.to_be_bytes());
        frame.extend(dst.to_be_bytes());
        frame.extend(headers);
        frame
    }

    #[test]
    fn both_directions_of_a_flow_have_one_hash_where_that_was_asked_for() {
        let there = frame4(0x0a00_0001, 0x0a00_0002, (1000, 80), 0);
        let back = frame4(0x0a00_0002, 0x0a00_0001, (80, 1000), 0);
        assert_eq!(flow_hash(&there, BOTH, 7), flow_hash(&back, BOTH, 7));
        assert_ne!(flow_hash(&there, ONE, 7), flow_hash(&back, ONE, 7));
        let there = frame6(1 << 100, 5, &[3, 232, 0, 80], 17);
        let back = frame6(5, 1 << 100, &[0, 80, 3, 232], 17);
        assert_eq!(flow_hash(&there, BOTH, 7), flow_hash(&back, BOTH, 7));
        assert_ne!(flow_hash(&there, ONE, 7), flow_hash(&back, ONE, 7));
    }

    #[test]
    fn a_packet_without_a_link_header_has_the_hash_of_its_frame() {
        for input in [BOTH, ONE, HashInput { l4: false, ..ONE }] {
            for frame in [frame4(1, 2, (1000, 80), 0), frame4(1, 2, (7, 7), 185), frame6(1, 2, &[3, 232, 0, 80], 17)] {
                assert_eq!(packet_hash(&frame[14..], input, 3), flow_hash(&frame, input, 3));
                for len in 0..frame.len() - 14 {
                    let _ = packet_hash(&frame[14..14 + len], input, 3);
                }
            }
        }
        assert_eq!(packet_hash(&[], ONE, 3), packet_hash(&[0x99; 40], ONE, 3), "no IP packets");
    }

    #[test]
    fn all_fragments_of_a_datagram_meet() {
        let first = frame4(1, 2, (1000, 80), 0x2000);
        let later = frame4(1, 2, (0xdead, 0xbeef), 185);
        let last = frame4(1, 2, (7, 7), 0x2000 | 370);
        let hash = flow_hash(&first, ONE, 9);
        assert!([later, last].iter().all(|f| flow_hash(f, ONE, 9) == hash));
        let fragment = |offset: u8, data: [u8; 4]| {
            let mut headers = vec![17, 0, 0, offset, 0, 0, 0, 1];
            headers.extend(data);
            frame6(1, 2, &headers, 44)
        };
        assert_eq!(flow_hash(&fragment(1, [3, 232, 0, 80]), ONE, 9), flow_hash(&fragment(64, [1, 2, 3, 4]), ONE, 9));
    }

    #[test]
    fn tags_and_extension_headers_are_looked_through() {
        let plain = frame4(1, 2, (1000, 80), 0);
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
        assert_eq!(flow_hash(&plain, ONE, 1), flow_hash(&tagged, ONE, 1));
        let plain = frame6(1, 2, &[3, 232, 0, 80], 17);
        let mut headers = vec![60, 0, 0, 0, 0, 0, 0, 0, 17, 1];
        headers.resize(24, 0);
        headers.extend([3, 232, 0, 80]);
        assert_eq!(flow_hash(&plain, ONE, 1), flow_hash(&frame6(1, 2, &headers, 0), ONE, 1));
        let other = frame6(1, 2, &[3, 233, 0, 80], 17);
        assert_ne!(flow_hash(&plain, ONE, 1), flow_hash(&other, ONE, 1));
        let coarse = HashInput { l4: false, ..ONE };
        assert_eq!(flow_hash(&plain, coarse, 1), flow_hash(&other, coarse, 1));
    }

    #[test]
    fn the_hash_of_a_link_is_that_of_its_addresses_in_their_direction() {
        let frame = frame4(1, 2, (1000, 80), 0);
        assert_eq!(link_hash(&frame, 1), link_hash(&frame4(3, 4, (5, 6), 0), 1));
        let mut back = frame.clone();
        back[..12].rotate_left(6);
        assert_ne!(link_hash(&frame, 1), link_hash(&back, 1));
        for len in 0..14 {
            link_hash(&frame[..len], 1);
        }
    }

    #[test]
    fn frames_of_any_length_have_a_hash() {
        for frame in [frame4(1, 2, (3, 4), 0), frame6(1, 2, &[17, 255, 0, 0], 0), frame6(1, 2, &[0; 80], 0), vec![0xff; 64]] {
            for len in 0..=frame.len() {
                flow_hash(&frame[..len], BOTH, 3);
            }
        }
    }

    #[test]
    fn flows_are_spread_evenly() {
        for threads in [2_u64, 3, 4, 7] {
            let mut hits = vec![0_u32; threads as usize];
            for n in 0..10_000_u32 {
                let frame = frame4(0x0a00_0000 + n % 100, 0xc0a8_0001, (1024 + (n / 100) as u16, 443), 0);
                hits[((u64::from(flow_hash(&frame, BOTH, 0x1234)) * threads) >> 32) as usize] += 1;
            }
            let share = 10_000 / threads as u32;
            assert!(hits.iter().all(|h| h.abs_diff(share) < share / 8), "{hits:?}");
        }
    }
}
