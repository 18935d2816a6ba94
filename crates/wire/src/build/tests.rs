use super::*;
use crate::Ipv6Prefix;
use crate::arp::ArpHeader;
use crate::checksum::{checksum, l4_sum_v6};
use crate::ndp::{self, PrefixInfo};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const A6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

proptest! {
    #[test]
    fn etherparse_builds_the_same_udp_packet(
        src: [u8; 4], dst: [u8; 4], ttl: u8, ports: [u16; 2], payload: Vec<u8>, vlan in 0u16..4096,
    ) {
        let ours = Packet::ethernet(A, B).vlan(vlan).ipv4(src, dst).ttl(ttl).udp(ports[0], ports[1])
            .payload(&payload).build();
        // etherparse sets don't-fragment
        let ours_df = Packet::ethernet(A, B).vlan(vlan).ipv4(src, dst).ttl(ttl).dont_fragment()
            .udp(ports[0], ports[1]).payload(&payload).build();
        let theirs = etherparse::PacketBuilder::ethernet2(A.0, B.0)
            .single_vlan(vlan.try_into().unwrap())
            .ipv4(src, dst, ttl).udp(ports[0], ports[1]);
        let mut bytes = Vec::new();
        theirs.write(&mut bytes, &payload).unwrap();
        prop_assert_eq!(ours_df, bytes);
        let header = Ipv4Header::parse(&ours[18..]).unwrap();
        prop_assert_eq!((header.dont_fragment(), header.ttl), (false, ttl));
    }

    #[test]
    fn etherparse_builds_the_same_tcp_packet(src: u128, dst: u128, hop_limit: u8, ports: [u16; 2], payload: Vec<u8>) {
        let ours = Packet::ethernet(A, B).ipv6(src, dst).ttl(hop_limit)
            .tcp(ports[0], ports[1], TcpFlags::SYN).sequence(7).options(&[2, 4, 5, 0xb4])
            .payload(&payload).build();
        let theirs = etherparse::PacketBuilder::ethernet2(A.0, B.0)
            .ipv6(src.to_be_bytes(), dst.to_be_bytes(), hop_limit)
            .tcp(ports[0], ports[1], 7, 0xffff).syn().options_raw(&[2, 4, 5, 0xb4]).unwrap();
        let mut bytes = Vec::new();
        theirs.write(&mut bytes, &payload).unwrap();
        prop_assert_eq!(ours, bytes);
    }
}

#[test]
fn etherparse_finds_every_layer_of_a_deep_packet() {
    let bytes = Packet::ethernet(A, B)
        .tag(EtherType::QINQ, Tci::new(3, false, 7))
        .vlan(8)
        .ipv6(A6, B6)
        .hop_by_hop(&[5, 2, 0, 0])
        .destination_options(&[])
        .udp(1, 2)
        .payload_len(100)
        .build();
    let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
    assert_eq!(sliced.vlan_ids().len(), 2);
    assert!(matches!(sliced.net, Some(NetSlice::Ipv6(_))));
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP found") };
    assert_eq!((udp.source_port(), udp.payload().len()), (1, 100));
}

#[test]
fn echo_requests_take_the_family_of_their_packet() {
    let v4 = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).echo_request(1, 2).payload_len(5).build();
    assert_eq!((v4[9], v4[20]), (1, 8));
    assert_eq!(checksum(&v4[20..]), 0);
    let v6 = Packet::new().ipv6(A6, B6).echo_request(1, 2).payload_len(5).build();
    assert_eq!((v6[6], v6[40]), (58, 128));
    let header = Ipv6Header::parse(&v6).unwrap();
    assert!(l4_sum_v6(&header, IpProtocol::ICMPV6, &v6[40..]).is_valid());
}

#[test]
fn neighbour_discovery_messages_pass_its_checks() {
    let slla = NdpOption::SourceLinkAddress(A);
    let prefix: Ipv6Prefix = "2001:db8::/64".parse().unwrap();
    let group = crate::ipv6::address::solicited_node(B6);
    for packet in [
        Packet::new().ipv6(A6, group).neighbor_solicitation(B6).ndp_option(slla),
        Packet::new().ipv6(A6, B6).neighbor_advertisement(A6, ndp::neighbor_flags::SOLICITED),
        Packet::new().ipv6(A6, B6).router_solicitation().ndp_option(slla),
        Packet::new()
            .ipv6(A6, B6)
            .router_advertisement(RouterAdvertisement::new(1800))
            .ndp_option(slla)
            .ndp_option(NdpOption::Mtu(1400))
            .ndp_option(NdpOption::Prefix(PrefixInfo::new(prefix, 100, 50))),
    ] {
        let bytes = packet.build();
        let header = Ipv6Header::parse(&bytes).unwrap();
        assert_eq!(ndp::validate(&header, &bytes[40..]), Ok(()));
        assert!(l4_sum_v6(&header, IpProtocol::ICMPV6, &bytes[40..]).is_valid());
    }
}

#[test]
fn fragments_are_marked_in_either_family() {
    let v4 = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(9, 16, true).payload(&[1; 8]);
    let header = Ipv4Header::parse(&v4.build()).unwrap();
    assert_eq!((header.fragment_offset(), header.more_fragments()), (16, true));
    assert_eq!(header.identification.get(), 9);
    let v6 = Packet::new().ipv6(A6, B6).fragment(9, 16, true).payload(&[1; 8]).build();
    let upper = crate::ipv6::upper_layer(&Ipv6Header::parse(&v6).unwrap(), &v6).unwrap();
    let info = upper.fragment.unwrap();
    assert_eq!((info.identification, info.offset, info.more), (9, 16, true));
}

#[test]
fn wrong_values_are_written_as_given() {
    let packet = || Packet::ethernet(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let bytes = packet().checksum(0xdead).udp(1, 2).checksum(0xbeef).length_field(3).build();
    assert_eq!(bytes[24..26], [0xde, 0xad]);
    assert_eq!(bytes[38..42], [0, 3, 0xbe, 0xef]);
    let bytes = packet().length_field(19).next(200).udp(1, 2).build();
    assert_eq!((bytes[16..18].to_vec(), bytes[23]), (vec![0, 19], 200));
    let bytes = packet().edit_ipv4(|header| header.version_ihl = 0x6f).udp(1, 2).build();
    assert_eq!(bytes[14], 0x6f);
    assert_eq!(Packet::ethernet(A, B).next(0x1234).payload(b"x").build()[12..14], [0x12, 0x34]);
}

#[test]
fn arp_and_padding_make_the_shortest_frame() {
    let message = ArpHeader::request((A, [10, 0, 0, 1].into()), [10, 0, 0, 2].into());
    let bytes = Packet::ethernet(A, MacAddr::BROADCAST).arp(message).pad_to(60).build();
    assert_eq!((bytes.len(), &bytes[12..14]), (60, &[8, 6][..]));
    assert_eq!(ArpHeader::parse(&bytes[14..]), Ok(message));
}

#[test]
fn a_tunnelled_packet_has_right_checksums_inside_and_outside() {
    let bytes = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ipv6(A6, B6).udp(1, 2).payload(b"inner").build();
    let outer = Ipv4Header::parse(&bytes).unwrap();
    assert_eq!(outer.protocol, IpProtocol::IPV6);
    let inner = Ipv6Header::parse(&bytes[20..]).unwrap();
    assert!(l4_sum_v6(&inner, IpProtocol::UDP, &bytes[60..]).is_valid());
}
