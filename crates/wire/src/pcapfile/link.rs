//! Captured packets as Ethernet frames, wherever on their path they were copied.

use crate::checksum::Sum;
use crate::ethernet::{EtherType, EthernetHeader, skip_tags};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::{Header, MacAddr};

/// VLAN tags of a frame at most.
const TAGS: usize = 2;
/// Bytes behind a packet at most, where it is shorter than the shortest frame (46 bytes of payload).
const PADDING: usize = 46 - Ipv4Header::LEN;

/// The Ethernet header that is missing in front of a captured packet; empty where the packet begins with its own.
///
/// `pulled`: what was in front of it when it was received; `data`: its first bytes; `len`: its length. What was pulled is the header where
/// it is one. A packet that begins with an IP header, and never had another one or has lost it, gets one with addresses of zeros.
pub fn missing_header(pulled: &[u8], data: &[u8], len: usize) -> Vec<u8> {
    if is_header(pulled) {
        return pulled.to_vec();
    }
    ip_type(data, len).map_or_else(Vec::new, |ether_type| {
        let mut header = vec![0; EthernetHeader::LEN];
        EthernetHeader::new(MacAddr::ZERO, MacAddr::ZERO, ether_type).write_at(&mut header, 0);
        header
    })
}

/// Whether the bytes are an Ethernet header with its VLAN tags, and nothing else.
fn is_header(bytes: &[u8]) -> bool {
    skip_tags(bytes, TAGS).is_some_and(|(end, _)| end == bytes.len())
}

/// The type of a packet that begins with an IP header, by all that its header says of itself: an Ethernet header does not pass for one.
fn ip_type(data: &[u8], len: usize) -> Option<EtherType> {
    let ends = |total: usize| total <= len && len - total <= PADDING;
    match data.first()? >> 4 {
        4 => {
            let header = Ipv4Header::read(data)?;
            let bytes = data.get(..header.header_len()).filter(|bytes| bytes.len() >= Ipv4Header::LEN)?;
            let total = usize::from(header.total_len.get());
            (Sum::of(bytes).is_valid() && total >= bytes.len() && ends(total)).then_some(EtherType::IPV4)
        }
        6 => {
            let header = Ipv6Header::read(data)?;
            ends(Ipv6Header::LEN + usize::from(header.payload_len.get())).then_some(EtherType::IPV6)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Packet;
    use proptest::prelude::*;

    fn frame() -> Vec<u8> {
        Packet::ethernet(MacAddr([0x60, 1, 2, 3, 0, 4]), MacAddr([2, 1, 2, 3, 4, 5]))
            .ipv4([1, 1, 1, 1], [2, 2, 2, 2])
            .udp(1, 2)
            .build()
    }

    #[test]
    fn what_was_pulled_is_the_header_where_it_is_one() {
        let frame = frame();
        assert_eq!(missing_header(&frame[..14], &frame[14..], frame.len() - 14), frame[..14]);
        // Too little or too much for one: a packet in a tunnel, a frame that lost a tag.
        for pulled in [4, 13, 15, 18, 22] {
            let header = missing_header(&vec![0x11; pulled], &frame[14..], frame.len() - 14);
            assert_eq!(header, [&[0; 12][..], &[8, 0]].concat(), "{pulled}");
        }
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..14]].concat();
        assert_eq!(missing_header(&tagged, &frame[14..], frame.len() - 14), tagged);
    }

    #[test]
    fn a_packet_without_link_layer_gets_one_of_zeros() {
        let frame = frame();
        let header = missing_header(&[], &frame[14..], frame.len() - 14);
        assert_eq!(header, [&[0; 12][..], &[8, 0]].concat());
        let mut six = vec![0; 48];
        (six[0], six[5]) = (0x60, 8);
        assert_eq!(missing_header(&[], &six, 48)[12..], [0x86, 0xdd]);
        // Its first bytes are enough.
        assert_eq!(missing_header(&[], &six[..40], 48)[12..], [0x86, 0xdd]);
    }

    #[test]
    fn frames_and_what_is_no_packet_stay_as_they_are() {
        let frame = frame();
        assert!(missing_header(&[], &frame, frame.len()).is_empty());
        let mut broken = frame[14..].to_vec();
        broken[10] ^= 1;
        assert!(missing_header(&[], &broken, broken.len()).is_empty());
        assert!(missing_header(&[], &[], 0).is_empty());
        assert!(missing_header(&[], &[0x45], 1).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(pulled in prop::collection::vec(any::<u8>(), 0..30), data in prop::collection::vec(any::<u8>(), 0..80), more in 0_usize..2000) {
            let header = missing_header(&pulled, &data, data.len() + more);
            prop_assert!(header.is_empty() || header == pulled || header.len() == 14);
        }
    }
}
