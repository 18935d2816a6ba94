//! Segmentation of any bytes: the segments' payloads are the super-frame's, in order, and headers parse again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::gso::{GsoKind, Segments};
use quiver_wire::ipv4::Ipv4Header;
use quiver_wire::ipv6::Ipv6Header;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, l3, high, low], frame)) = input.split_first_chunk() else { return };
    let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp][usize::from(kind) % 3];
    let l3 = usize::from(l3 % 32);
    let Ok(plan) = Segments::new(frame, l3, kind, u16::from_be_bytes([high, low])) else { return };
    let mut at = plan.header_len();
    let mut header = vec![0; plan.header_len()];
    for segment in plan.iter() {
        assert_eq!(segment.payload.start, at);
        at = segment.payload.end;
        assert_eq!(plan.write_header(segment.index, &mut header), Some(header.len()));
        let packet = [&header[l3..], &frame[segment.payload]].concat();
        if packet[0] >> 4 == 4 {
            let ip = Ipv4Header::parse(&packet).expect("a segment is a valid IPv4 packet");
            assert_eq!(usize::from(ip.total_len.get()), packet.len());
        } else {
            let ip = Ipv6Header::parse(&packet).expect("a segment is a valid IPv6 packet");
            assert_eq!(usize::from(ip.payload_len.get()) + 40, packet.len());
        }
    }
    assert!(at <= frame.len());
});
