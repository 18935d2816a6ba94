//! Every parser of quiver-wire over the same bytes: none may panic, and what they find must lie within the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::arp::ArpHeader;
use quiver_wire::checksum::{checksum, complete};
use quiver_wire::ethernet::skip_tags;
use quiver_wire::flow::{FlowFields, FlowV4, FlowV6, flow_hash_v4, flow_hash_v6};
use quiver_wire::fragment::{Ipv4Fragments, Ipv6Fragments};
use quiver_wire::group::{Query, SOURCES_MAX};
use quiver_wire::ipv4::{Ipv4Header, Ipv4Options};
use quiver_wire::ipv6::{Extensions, Ipv6Header, Ipv6Options, upper_layer};
use quiver_wire::ndp;
use quiver_wire::tcp::TcpOptions;
use quiver_wire::{Header, IpPrefix, MacAddr, describe};

fn ipv4(packet: &[u8]) {
    if let Ok(header) = Ipv4Header::parse(packet) {
        assert!(header.header_len() + header.payload_len() <= packet.len());
        let fast = header.is_plain_and_valid(packet.len());
        assert_eq!(fast, !header.has_options());
        let mut next_hop = header;
        if header.ttl > 0 && !header.has_options() {
            next_hop.decrement_ttl();
            assert!(next_hop.has_valid_checksum_without_options());
        }
    }
    let _ = Ipv4Options::of_packet(packet).count();
    for mtu in [28, 68, 576] {
        if let Ok(fragments) = Ipv4Fragments::new(packet, mtu) {
            for fragment in fragments {
                assert!(fragment.payload.end <= packet.len());
                let mut out = [0; 60];
                assert_eq!(fragment.write_header(&mut out), Some(fragment.header_len()));
            }
        }
    }
    if let Some(flow) = FlowV4::parse(packet) {
        let fields = FlowFields::DEFAULT | FlowFields::SYMMETRIC;
        assert_eq!(flow_hash_v4(&flow, fields), flow_hash_v4(&flow.reversed(), fields));
    }
}

fn ipv6(packet: &[u8]) {
    if let Ok(header) = Ipv6Header::parse(packet) {
        if let Ok(upper) = upper_layer(&header, packet) {
            assert!(usize::from(upper.offset) <= packet.len());
            assert!(upper.pointer < upper.offset);
        }
        for extension in Extensions::new(&header, packet).flatten() {
            let _ = Ipv6Options::new(extension.bytes).count();
        }
        if let Some(message) = packet.get(40..) {
            let _ = ndp::validate(&header, message);
        }
        for fragment in Ipv6Fragments::new(packet, 1280, 1).into_iter().flatten() {
            assert!(fragment.payload.end <= packet.len());
        }
    }
    if let Some(flow) = FlowV6::parse(packet) {
        let fields = FlowFields::DEFAULT | FlowFields::SYMMETRIC;
        assert_eq!(flow_hash_v6(&flow, fields), flow_hash_v6(&flow.reversed(), fields));
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((offset, _)) = skip_tags(bytes, 4) {
        assert!(offset <= bytes.len());
        ipv4(&bytes[offset..]);
        ipv6(&bytes[offset..]);
    }
    ipv4(bytes);
    ipv6(bytes);
    let _ = ArpHeader::parse(bytes);
    let _ = TcpOptions::of_segment(bytes).count();
    let _ = TcpOptions::new(bytes).mss();
    let _ = describe::Frame(bytes).to_string();
    let _ = describe::Summary(bytes).to_string();
    let _ = describe::Ip4(bytes).to_string();
    let _ = describe::Ip6(bytes).to_string();
    if let Some(offsets) = bytes.first_chunk::<2>() {
        let mut frame = bytes.to_vec();
        let _ = complete(&mut frame, offsets[0].into(), offsets[1].into());
    }
    let _ = checksum(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(prefix) = text.parse::<IpPrefix>() {
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        if let Ok(mac) = text.parse::<MacAddr>() {
            assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    }
    let _ = MacAddr::read(bytes);
    for query in [Query::parse_igmp(bytes), Query::parse_mld(bytes)].into_iter().flatten() {
        assert!(query.sources.as_slice().len() <= SOURCES_MAX);
        assert!(query.group.is_none_or(|group| group.is_multicast()));
    }
});
