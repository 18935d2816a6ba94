//! The BVI, and answers in place of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::ethernet::EthernetHeader;
use quiver_wire::icmp6::Icmp6Type;
use quiver_wire::ipv6::address::solicited_node;
use quiver_wire::ndp::{NdpOption, NeighborMessage};
use quiver_wire::{Header, MacAddr};

use super::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

fn arp_of(frame: &[u8]) -> ArpHeader {
    ArpHeader::parse(&frame[14..]).unwrap()
}

/// Ports x0 and x1 and loop0 in one domain; x2 is routed.
fn routed_bed(workers: usize) -> (Harness, Vec<IfIndex>, IfIndex) {
    let (mut h, mut x) = bed(workers, 2);
    x.push(h.interface(2));
    let bvi = h.router.create_loopback(None, None).unwrap();
    h.router.set_bridge(bvi, 10, PortKind::Bvi, 0).unwrap();
    h.router.set_interface_up(bvi, true).unwrap();
    h.router.add_address(bvi, ROUTER.into(), 24).unwrap();
    h.router.add_address(x[2], Ipv4Addr::new(10, 2, 0, 1).into(), 24).unwrap();
    h.router.neighbor_update(x[2], Ipv4Addr::new(10, 2, 0, 2).into(), Some(host_mac(2))).unwrap();
    settle(&mut h);
    h.run();
    (h, x, bvi)
}

#[test]
fn a_host_of_the_domain_reaches_the_router_and_what_is_behind_it() {
    for workers in [0, 1, 2, 4] {
        let (mut h, x, bvi) = routed_bed(workers);
        let loop_mac = h.router.interfaces.get(bvi).unwrap().mac;
        let request = Packet::ethernet(host_mac(0), MacAddr::BROADCAST).arp(ArpHeader::request((host_mac(0), HOST), ROUTER));
        let got = h.exchange(x[0], &request.build());
        let replies: Vec<_> = got.iter().filter(|(_, f)| arp_of(f).operation() == ArpOperation::REPLY).collect();
        // Until x0's host is learned the answer is flooded.
        assert!(replies.iter().any(|(port, _)| *port == x[0]), "{got:?}");
        assert!(replies.iter().all(|(_, reply)| arp_of(reply).sender_mac == loop_mac));
        settle(&mut h);
        h.run();
        // Into the routed network …
        let out = Packet::ethernet(host_mac(0), loop_mac).ipv4(HOST, [10, 2, 0, 2]).udp(5, 6).payload(b"there").build();
        let got = h.exchange(x[0], &out);
        assert_eq!(got.len(), 1, "{:?}", h.counts());
        assert_eq!((got[0].0, EthernetHeader::read(&got[0].1).unwrap().dst), (x[2], host_mac(2)));
        // … and back, to the one port where the host is.
        let back = Packet::ethernet(host_mac(2), router_mac(2)).ipv4([10, 2, 0, 2], HOST).udp(6, 5).payload(b"back").build();
        let got = h.exchange(x[2], &back);
        assert_eq!(got.len(), 1, "{:?}", h.counts());
        assert_eq!((got[0].0, EthernetHeader::read(&got[0].1).unwrap().dst), (x[0], host_mac(0)));
        // Packets between hosts do not concern the router.
        let between = Packet::ethernet(host_mac(1), host_mac(0)).ipv4([10, 1, 0, 3], HOST).udp(1, 1).payload(b"peer").build();
        let got = h.exchange(x[1], &between);
        assert_eq!(got, [(x[0], between)]);
        let counters = h.router.graph.interfaces();
        assert_eq!(counters.rx.sum(bvi.0).0, 2, "the request and the packet, not what the router itself sent");
        h.router.delete_interface(bvi).unwrap();
        assert_eq!(h.router.bridge_domain(10).unwrap().bvi(), None);
        assert!(h.router.macs().iter().all(|m| m.mac != loop_mac));
        h.assert_buffers_held(0);
    }
}

#[test]
fn the_bvis_entry_follows_its_address() {
    let (mut h, x, bvi) = routed_bed(0);
    let new = MacAddr([2, 0xbb, 0, 0, 0, 1]);
    h.router.set_mac(bvi, new).unwrap();
    let bvis: Vec<_> = h.router.macs().into_iter().filter(|m| m.kind == MacKind::Bvi(bvi)).map(|m| m.mac).collect();
    assert_eq!(bvis, [new]);
    let out = Packet::ethernet(host_mac(0), new).ipv4(HOST, [10, 2, 0, 2]).udp(5, 6).build();
    assert_eq!(h.exchange(x[0], &out).len(), 1);
    h.router.set_interface_up(bvi, false).unwrap();
    assert!(h.exchange(x[0], &out).is_empty());
    assert_eq!(h.count("l2-bvi", "BVI is down"), 1);
}

#[test]
fn only_a_loopback_is_a_bvi_and_only_one() {
    let (mut h, x, bvi) = routed_bed(0);
    let other = h.router.create_loopback(None, None).unwrap();
    assert!(h.router.set_bridge(x[0], 10, PortKind::Bvi, 0).is_err());
    assert!(h.router.set_bridge(other, 10, PortKind::Bvi, 0).is_err());
    assert!(h.router.set_bridge(other, 10, PortKind::Normal, 0).is_err());
    h.router.set_bridge(bvi, 10, PortKind::Bvi, 0).unwrap();
    h.router.set_bridge(other, 11, PortKind::Bvi, 0).unwrap();
}

#[test]
fn arp_requests_are_answered_from_the_table_or_sent_to_the_one_asked() {
    let (mut h, x) = bed(1, 3);
    let target: Ipv4Addr = [10, 1, 0, 9].into();
    h.router.set_bridge_neighbor(10, target.into(), Some(mac(9))).unwrap();
    let request = |from: MacAddr, ip: [u8; 4], target: Ipv4Addr| {
        Packet::ethernet(from, MacAddr::BROADCAST).arp(ArpHeader::request((from, ip.into()), target)).pad_to(60).build()
    };
    let asked = request(mac(1), [10, 1, 0, 1], target);
    assert_eq!(h.exchange(x[0], &asked).len(), 2, "not while it is off");
    h.router.set_bridge_switch(10, BdSwitch::ArpTerm, true).unwrap();
    let got = h.exchange(x[0], &asked);
    assert_eq!(got.len(), 1);
    let (header, reply) = (EthernetHeader::read(&got[0].1).unwrap(), arp_of(&got[0].1));
    assert_eq!((got[0].0, header.dst, reply.operation()), (x[0], mac(1), ArpOperation::REPLY));
    assert_eq!((reply.sender_mac, reply.sender_ip(), got[0].1.len()), (mac(9), target, 60));
    assert_eq!(h.exchange(x[0], &request(mac(1), [10, 1, 0, 1], [10, 1, 0, 8].into())).len(), 2, "not in the table");
    assert_eq!(h.exchange(x[0], &request(mac(1), target.octets(), target)).len(), 2, "an announcement");
    assert_eq!(h.exchange(x[0], &request(mac(9), [0; 4], target)).len(), 2, "its owner's own probe");
    assert_eq!(h.exchange(x[0], &request(mac(1), [0; 4], target)).len(), 1, "another's probe");
    // Where frames to groups are not flooded, what the table knows is answered all the same.
    h.router.set_bridge_switch(10, BdSwitch::Flood, false).unwrap();
    assert_eq!(h.exchange(x[0], &asked), got);
    assert!(h.exchange(x[0], &request(mac(1), [10, 1, 0, 1], [10, 1, 0, 8].into())).is_empty());
    assert_eq!(h.count("l2-arp-term", "L2 multicast, flooding is off"), 1);
    h.router.set_bridge_switch(10, BdSwitch::Flood, true).unwrap();
    // To the one asked, as a unicast frame.
    h.router.set_bridge_switch(10, BdSwitch::ArpForward, true).unwrap();
    h.router.add_mac(10, mac(9), MacKind::Static(x[2])).unwrap();
    let got = h.exchange(x[0], &asked);
    assert_eq!((got.len(), got[0].0, EthernetHeader::read(&got[0].1).unwrap().dst), (1, x[2], mac(9)));
    assert_eq!(h.count("l2-arp-term", "ARP replies sent"), 3);
    h.router.set_bridge_neighbor(10, target.into(), None).unwrap();
    assert!(h.router.set_bridge_neighbor(10, target.into(), None).is_err());
    assert_eq!(h.exchange(x[0], &asked).len(), 2);
    h.assert_buffers_held(0);
}

#[test]
fn solicitations_are_answered_from_the_table() {
    let (mut h, x) = bed(1, 3);
    let (asker, target): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::9".parse().unwrap());
    h.router.set_bridge_neighbor(10, IpAddr::V6(target), Some(mac(9))).unwrap();
    h.router.set_bridge_switch(10, BdSwitch::ArpTerm, true).unwrap();
    let group = solicited_node(target);
    let ask = |src: Ipv6Addr, hops: u8| {
        let packet = Packet::ethernet(mac(1), MacAddr::from_ipv6_multicast(group)).ipv6(src, group);
        let packet = packet.neighbor_solicitation(target);
        let packet = if src.is_unspecified() { packet } else { packet.ndp_option(NdpOption::SourceLinkAddress(mac(1))) };
        packet.ttl(hops).build()
    };
    let got = h.exchange(x[0], &ask(asker, 255));
    assert_eq!(got.len(), 1);
    let (port, bytes) = &got[0];
    let message = NeighborMessage::read(&bytes[54..]).unwrap();
    assert_eq!((*port, EthernetHeader::read(bytes).unwrap().dst), (x[0], mac(1)));
    assert_eq!((message.icmp.icmp_type, message.target_addr()), (Icmp6Type::NEIGHBOR_ADVERTISEMENT, target));
    assert_eq!(&bytes[78..86], [&[2, 1], mac(9).0.as_slice()].concat());
    let expected = Packet::ethernet(mac(9), mac(1)).ipv6(target, asker).ttl(255);
    let flags = quiver_wire::ndp::neighbor_flags::SOLICITED | quiver_wire::ndp::neighbor_flags::OVERRIDE;
    let expected = expected.neighbor_advertisement(target, flags).ndp_option(NdpOption::TargetLinkAddress(mac(9)));
    assert_eq!(*bytes, expected.build(), "checksum and all");
    assert_eq!(h.exchange(x[0], &ask(asker, 64)).len(), 2, "from off the link");
    assert_eq!(h.exchange(x[0], &ask(Ipv6Addr::UNSPECIFIED, 255)).len(), 2, "duplicate address detection");
    h.assert_buffers_held(0);
}
