use super::*;
use crate::MacAddr;
use crate::build::Packet;
use crate::icmp4::Icmp4Header;
use crate::ndp::NdpOption;
use crate::tcp::TcpFlags;
use crate::vlan::Tci;
use core::net::Ipv6Addr;
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0xfe, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0xfe, 0, 0, 0, 2]);
const A6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

#[test]
fn a_ping_shows_in_trace_style() {
    let bytes = Packet::ethernet(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).echo_request(1, 2).payload_len(56).build();
    let expected = "\
IP4: 02:fe:00:00:00:01 -> 02:fe:00:00:00:02
ICMP: 10.0.0.1 -> 10.0.0.2
  tos 0x00, ttl 64, length 84, checksum 0x66a7 dscp CS0 ecn NON_ECN
  fragment id 0x0000
ICMP echo_request checksum 0x00ea id 1 seq 2";
    assert_eq!(Frame(&bytes).to_string(), expected);
    let summary = "10.0.0.1 -> 10.0.0.2 ICMP echo_request length 98";
    assert_eq!(Summary(&bytes).to_string(), summary);
}

#[test]
fn a_tagged_tcp_segment_shows_flags_and_options() {
    let bytes = Packet::ethernet(A, B)
        .tag(EtherType::QINQ, Tci::new(5, true, 100))
        .vlan(200)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tos(0xb9)
        .dont_fragment()
        .identification(0x1234)
        .tcp(1000, 80, TcpFlags::SYN)
        .options(&[2, 4, 5, 0xb4])
        .checksum(0xabcd)
        .build();
    let expected = "\
IP4: 02:fe:00:00:00:01 -> 02:fe:00:00:00:02 802.1ad vlan 100 priority 5 dei 802.1q vlan 200
TCP: 10.0.0.1 -> 10.0.0.2
  tos 0xb9, ttl 64, length 44, checksum 0x13dd dscp EF ecn ECT_1
  fragment id 0x1234, flags DONT_FRAGMENT
TCP: 1000 -> 80
  seq. tx 0x00000000 rx 0x00000000
  flags 0x02 SYN, tcp header: 24 bytes
  window 65535, checksum 0xabcd, mss 1460";
    assert_eq!(Frame(&bytes).to_string(), expected);
    assert_eq!(Summary(&bytes).to_string(), "10.0.0.1 -> 10.0.0.2 TCP 1000 -> 80 length 66");
}

#[test]
fn a_neighbour_solicitation_shows_its_target_and_option() {
    let bytes =
        Packet::new().ipv6(A6, B6).neighbor_solicitation(B6).ndp_option(NdpOption::SourceLinkAddress(A)).checksum(0x1111).build();
    let expected = "\
ICMP6: fe80::1 -> fe80::2
  tos 0x00, flow label 0x0, hop limit 255, payload length 32
ICMP neighbor_solicitation checksum 0x1111
  target address fe80::2
  source_link_layer_address 02:fe:00:00:00:01";
    assert_eq!(Ip6(&bytes).to_string(), expected);
}

#[test]
fn a_wrong_header_checksum_shows_the_right_one() {
    let packet = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).checksum(0xdead).udp(1, 2).build();
    assert!(Ip4(&packet).to_string().contains("checksum 0xdead (should be 0x66cf)"));
}

#[test]
fn fragments_show_their_place_and_no_transport_header() {
    let packet = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, 1480, true);
    let text = Ip4(&packet.next(17).payload(&[0; 8]).build()).to_string();
    assert!(text.ends_with("fragment id 0x0007 offset 1480, flags MORE_FRAGMENTS"), "{text}");
    let packet = Packet::new().ipv6(A6, B6).fragment(7, 1480, true).next(17).payload(&[0; 8]);
    let text = Ip6(&packet.build()).to_string();
    assert!(text.ends_with("fragment id 0x00000007 offset 1480, more"), "{text}");
}

#[test]
fn arp_shows_both_ends() {
    let message = ArpHeader::request((A, [10, 0, 0, 1].into()), [10, 0, 0, 2].into());
    let bytes = Packet::ethernet(A, MacAddr::BROADCAST).arp(message).build();
    let expected = "\
ARP: 02:fe:00:00:00:01 -> ff:ff:ff:ff:ff:ff
request, type ethernet/IP4, address size 6/4
02:fe:00:00:00:01/10.0.0.1 -> 00:00:00:00:00:00/10.0.0.2";
    assert_eq!(Frame(&bytes).to_string(), expected);
}

#[test]
fn every_cut_of_a_packet_says_where_it_ends() {
    let too_big = Icmp4Header::fragmentation_needed(1400);
    for packet in [
        Packet::ethernet(A, B).vlan(1).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2),
        Packet::ethernet(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).icmp4(too_big),
        Packet::ethernet(A, B).ipv6(A6, B6).hop_by_hop(&[]).tcp(1, 2, TcpFlags::ACK),
        Packet::ethernet(A, B).ipv6(A6, B6).neighbor_solicitation(B6),
    ] {
        let bytes = packet.build();
        for len in 0..bytes.len() {
            let text = Frame(&bytes[..len]).to_string();
            let says = text.contains("truncated") || text.contains("malformed");
            assert!(says, "{len} of {}: {text}", bytes.len());
            assert!(!Summary(&bytes[..len]).to_string().contains('\n') || len < 54);
        }
        assert!(!Frame(&bytes).to_string().contains("truncated"));
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes: Vec<u8>, kind in prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x8100), any::<u16>()]) {
        if let Some(at) = bytes.get_mut(12..14) {
            at.copy_from_slice(&kind.to_be_bytes());
        }
        for text in [Frame(&bytes).to_string(), Summary(&bytes).to_string()] {
            prop_assert!(!text.is_empty() && !text.ends_with('\n'));
        }
        let _ = (Ip4(&bytes).to_string(), Ip6(&bytes).to_string(), Arp(&bytes).to_string());
    }
}
