//! Another DSCP in a packet (RFC 2474).

use quiver_graph::Pkt;
use quiver_wire::checksum;

/// Bytes of an Ethernet header without its type.
const MACS: usize = 12;

/// Where the IP header of a frame begins, behind up to two tags; `None` where there is none.
pub fn behind_ethernet(frame: &[u8]) -> Option<usize> {
    let mut at = MACS;
    for _ in 0..=2 {
        let kind = frame.get(at..at + 2)?;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
    None
}

/// Writes a DSCP into the IP header that begins so many bytes into a packet's data. A packet that has none stays as it is.
pub fn mark(packet: &mut Pkt<'_>, at: usize, dscp: u8) {
    if let Some(header) = packet.bytes_mut().get_mut(at..) {
        set(header, dscp);
    }
}

fn set(header: &mut [u8], dscp: u8) {
    match header.first().map(|first| (first >> 4, usize::from(first & 0xf) * 4)) {
        Some((4, len)) if len >= 20 && header.len() >= len => {
            header[1] = dscp << 2 | header[1] & 3;
            header[10..12].fill(0);
            let sum = checksum::checksum(&header[..len]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some((6, _)) if header.len() >= 40 => {
            header[0] = 0x60 | dscp >> 2;
            header[1] = dscp << 6 | header[1] & 0x3f;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_wire::build::Packet;

    #[test]
    fn ecn_and_flow_label_stay_and_the_checksum_is_right() {
        for dscp in 0..64 {
            let mut four = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
            four[1] = 0x03;
            set(&mut four, dscp);
            assert_eq!((four[1], checksum::checksum(&four[..20])), (dscp << 2 | 3, 0));
            let mut six = [0; 40];
            six[..4].copy_from_slice(&[0x6f, 0xfa, 0xbc, 0xde]);
            set(&mut six, dscp);
            let word = u32::from_be_bytes([six[0], six[1], six[2], six[3]]);
            assert_eq!(word, 6 << 28 | u32::from(dscp) << 22 | 0x003a_bcde);
        }
        let mut short = [0x45; 19];
        set(&mut short, 63);
        assert_eq!(short, [0x45; 19]);
    }

    #[test]
    fn the_header_is_found_behind_tags() {
        let frame = |kinds: &[u8]| [&[0; 12][..], kinds, &[0; 40]].concat();
        assert_eq!(behind_ethernet(&frame(&[8, 0])), Some(14));
        assert_eq!(behind_ethernet(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd])), Some(22));
        assert_eq!(behind_ethernet(&frame(&[8, 6])), None);
        assert_eq!(behind_ethernet(&[0x81; 13]), None);
    }
}
