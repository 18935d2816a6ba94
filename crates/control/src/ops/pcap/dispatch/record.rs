//! Records of dispatch traces: a packet in front of a node, as Wireshark's "VPP Dispatch Trace" reads it (link type 280).
//!
//! ```text
//!   version 1.0 (2 bytes) | strings (1) | protocol hint (1) | buffer (4) | node \0 metadata \0 opaque \0 more \0 [trace \0] | packet
//! ```

use std::fmt::Write as _;

use quiver_graph::{Arrival, Captured, flags};
use quiver_wire::ethernet::EtherType;
use quiver_wire::pcapfile::missing_header;

/// Version of the format.
const VERSION: [u8; 2] = [1, 0];
/// What a packet begins with.
const UNKNOWN: u8 = 0;
const ETHERNET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 3;

/// Names of context flags.
const FLAGS: [(u32, &str); 6] = [
    (flags::META, "metadata"),
    (flags::CHAINED, "chained"),
    (flags::CHECKSUM, "partial-checksum"),
    (flags::TRACED, "traced"),
    (flags::LOCAL, "locally-originated"),
    (flags::LINK_MULTICAST, "link-multicast"),
];

/// The record of a packet in front of `node`. `trace`: what was traced of it before.
pub(super) fn record(packet: &Captured, node: &str, interface: &str, trace: Option<&str>) -> Vec<u8> {
    let Arrival { thread, buffer, offset, segment, flags, aux, table, scratch, .. } =
        packet.arrival.as_deref().cloned().unwrap_or_default();
    let set: Vec<&str> = FLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| *name).collect();
    let mut metadata = format!("thread {thread}, offset {offset}, length {segment}, total {}, rx {interface}", packet.len);
    if !set.is_empty() {
        let _ = write!(metadata, "\nflags: {}", set.join(" "));
    }
    let mut opaque = format!("aux: {aux:#010x}");
    if let Some(table) = table {
        let _ = write!(opaque, "\ntable of the next lookup: {table}");
    }
    let scratch = scratch.map(|word| format!("{word:08x}")).join(" ");
    let strings = [Some(node), Some(&metadata), Some(&opaque), Some(&scratch), trace];
    let mut record = VERSION.to_vec();
    record.extend([strings.iter().flatten().count() as u8, hint(packet)]);
    record.extend(buffer.to_be_bytes());
    for text in strings.into_iter().flatten() {
        record.extend(text.bytes().filter(|byte| *byte != 0));
        record.push(0);
    }
    record.extend(&packet.bytes);
    record
}

/// What the bytes of a packet begin with.
fn hint(packet: &Captured) -> u8 {
    let header = missing_header(&packet.pulled, &packet.bytes, packet.len);
    match header.last_chunk().map(|ether_type| EtherType(u16::from_be_bytes(*ether_type))) {
        None => ETHERNET,
        Some(EtherType::IPV4) => IPV4,
        Some(EtherType::IPV6) => IPV6,
        Some(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use quiver_graph::{CapturePoint, NodeId};
    use quiver_net::IfIndex;

    use super::*;

    fn packet(pulled: &[u8]) -> Captured {
        let arrival =
            Arrival { buffer: 0x0102, offset: 142, segment: 3, flags: flags::TRACED | flags::META, aux: 7, ..Arrival::default() };
        Captured {
            time: 1,
            point: CapturePoint::Node(NodeId(9)),
            interface: IfIndex(1),
            pulled: pulled.to_vec(),
            len: 3,
            bytes: vec![0xaa, 0xbb, 0xcc],
            arrival: Some(Box::new(arrival)),
        }
    }

    #[test]
    fn a_record_has_its_header_its_strings_and_the_packet() {
        let record = record(&packet(&[]), "ip4-lookup", "host-a", Some("00: pg-input\n"));
        let text = "ip4-lookup\0thread 0, offset 142, length 3, total 3, rx host-a\nflags: metadata traced\0aux: 0x00000007\0";
        let scratch = ["00000000"; 9].join(" ");
        let end = [0, b'0', b'0', b':', b' '];
        let expected = [&[1, 0, 5, 1, 0, 0, 1, 2], text.as_bytes(), scratch.as_bytes(), &end, b"pg-input\n\0\xaa\xbb\xcc"].concat();
        assert_eq!(record, expected);
    }

    #[test]
    fn without_a_trace_there_are_four_strings() {
        let record = record(&packet(&[]), "a", "b", None);
        assert_eq!((record[2], record[8..].iter().filter(|byte| **byte == 0).count()), (4, 4));
    }

    #[test]
    fn the_hint_says_what_the_packet_begins_with() {
        let pulled = |ether_type: [u8; 2]| packet(&[&[0x22; 12][..], &ether_type].concat());
        let hints = [packet(&[]), pulled([8, 0]), pulled([0x86, 0xdd]), pulled([8, 6])].map(|packet| hint(&packet));
        assert_eq!(hints, [ETHERNET, IPV4, IPV6, UNKNOWN]);
    }
}
