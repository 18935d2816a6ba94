//! The data path.

use std::collections::BTreeSet;

use quiver_wire::Header;
use quiver_wire::checksum::l4_sum_v6;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;

use super::*;

#[test]
fn a_frame_gets_outer_headers_and_its_flow_a_source_port() {
    let mut s = connected("src 10.0.0.1 dst 10.0.0.2 vni 74565 src_port 1111 dst_port 2222");
    let (x0, x1) = (s.interface("x0"), s.interface("x1"));
    let mut ports = BTreeSet::new();
    for flow in 0..20 {
        let frame = inner(1000 + flow, 100);
        let sent = s.h.exchange(x1, &frame);
        let [(interface, outer)] = &sent[..] else { panic!("{} packets", sent.len()) };
        assert_eq!((*interface, &outer[..6]), (x0, &host_mac(0).0[..]));
        let ip = Ipv4Header::parse(&outer[14..]).unwrap();
        assert_eq!((ip.src_addr().octets(), ip.dst_addr().octets()), ([10, 0, 0, 1], [10, 0, 0, 2]));
        assert!(!ip.dont_fragment());
        let udp = UdpHeader::read_at(outer, 34).unwrap();
        assert_eq!((udp.dst_port.get(), udp.checksum.get()), (2222, 0));
        assert_eq!(udp.payload_len(outer.len() - 34), Some(outer.len() - 42));
        assert_eq!(outer[42..50], [8, 0, 0, 0, 1, 0x23, 0x45, 0]);
        assert_eq!(outer[50..], frame);
        ports.insert(udp.src_port.get());
    }
    assert!(ports.len() > 10 && ports.iter().all(|port| *port >= 49_152), "{ports:?}");
    let tunnel = s.interface("vxlan_tunnel0");
    assert_eq!(s.h.router.graph.interfaces().tx.sum(tunnel.0), (20, 20 * 142));
    s.h.assert_buffers_held(0);
}

#[test]
fn over_ipv6_there_is_a_checksum() {
    let mut s = connected("src 2001:db8::1 dst 2001:db8::2 vni 7");
    let x1 = s.interface("x1");
    for len in [99, 100, 3000] {
        let frame = inner(1000, len);
        let sent = s.h.exchange(x1, &frame);
        if len > 1400 {
            assert!(sent.len() > 1, "its source cuts it");
            continue;
        }
        let [(_, outer)] = &sent[..] else { panic!("{} packets", sent.len()) };
        let ip = Ipv6Header::read_at(outer, 14).unwrap();
        assert_ne!(UdpHeader::read_at(outer, 54).unwrap().checksum.get(), 0);
        assert!(l4_sum_v6(&ip, IpProtocol::UDP, &outer[54..]).is_valid());
        assert_eq!(outer[70..], frame);
    }
    s.h.assert_buffers_held(0);
}

#[test]
fn what_the_peer_sends_comes_in_on_the_tunnel() {
    let mut s = connected("src 10.0.0.1 dst 10.0.0.2 vni 13");
    let (x0, x1, tunnel) = (s.interface("x0"), s.interface("x1"), s.interface("vxlan_tunnel0"));
    let frame = inner(1000, 100);
    let sent = s.h.exchange(x0, &outer4([10, 0, 0, 2], [10, 0, 0, 1], 4789, 13, &frame));
    assert_eq!(sent, [(x1, frame.clone())]);
    assert_eq!(s.h.router.graph.interfaces().rx.sum(tunnel.0), (1, frame.len() as u64));
    for (src, vni) in [([10, 0, 0, 3], 13), ([10, 0, 0, 2], 14)] {
        assert!(s.h.exchange(x0, &outer4(src, [10, 0, 0, 1], 4789, vni, &frame)).is_empty());
    }
    assert_eq!(s.h.count("vxlan4-input", "no such tunnel"), 2);
    let mut bad = outer4([10, 0, 0, 2], [10, 0, 0, 1], 4789, 13, &frame);
    bad[42] = 0;
    bad[40..42].copy_from_slice(&[0, 0]);
    assert!(s.h.exchange(x0, &bad).is_empty());
    assert_eq!(s.h.count("vxlan4-input", "bad VXLAN header"), 1);
    s.run("set interface state vxlan_tunnel0 down");
    assert!(s.h.exchange(x0, &outer4([10, 0, 0, 2], [10, 0, 0, 1], 4789, 13, &frame)).is_empty());
    s.h.assert_buffers_held(0);
}

#[test]
fn changes_of_routes_take_effect_and_a_missing_route_drops() {
    let mut s = connected("src 10.0.0.1 dst 192.0.2.9 vni 13");
    let (x0, x1) = (s.interface("x0"), s.interface("x1"));
    let frame = inner(1000, 100);
    assert!(s.h.exchange(x1, &frame).is_empty());
    s.run("ip route add 192.0.2.0/24 via 10.0.0.2 x0");
    assert_eq!(s.h.exchange(x1, &frame).len(), 1);
    s.run("ip route del 192.0.2.0/24");
    assert!(s.h.exchange(x1, &frame).is_empty());
    s.run("ip route add 192.0.2.9/32 via 10.0.0.2 x0");
    assert_eq!(s.h.exchange(x1, &frame)[0].0, x0);
    s.h.assert_buffers_held(0);
}

#[test]
fn a_tunnel_whose_route_leads_into_itself_ends() {
    let mut s = scene();
    s.run("create vxlan tunnel src 10.0.0.1 dst 192.0.2.9 vni 13");
    s.run("set interface ip address vxlan_tunnel0 10.9.0.1/24");
    s.run(&format!("set ip neighbor vxlan_tunnel0 10.9.0.2 {}", host_mac(5)));
    s.run("ip route add 192.0.2.0/24 via 10.9.0.2 vxlan_tunnel0");
    s.h.run();
    let x0 = s.interface("x0");
    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 9, 0, 2]).udp(1, 2).payload(b"loop").build();
    assert!(s.h.exchange(x0, &packet).is_empty());
    assert_eq!(s.h.count("vxlan_tunnel0-tx", "the route to the other end leads into the tunnel"), 1);
    s.h.assert_buffers_held(0);
}

#[test]
fn a_tunnel_can_be_routed() {
    let mut s = scene();
    s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13");
    s.run("set interface ip address vxlan_tunnel0 10.9.0.1/24");
    s.run(&format!("set ip neighbor vxlan_tunnel0 10.9.0.2 {}", host_mac(5)));
    s.h.run();
    let (x0, tunnel) = (s.interface("x0"), s.interface("vxlan_tunnel0"));
    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 9, 0, 2]).udp(1, 2).payload(b"in").build();
    let sent = s.h.exchange(x0, &packet);
    let [(_, outer)] = &sent[..] else { panic!("{} packets", sent.len()) };
    assert_eq!(outer[50..56], host_mac(5).0);
    let mac = s.h.router.interfaces.get(tunnel).unwrap().mac;
    let back = Packet::ethernet(host_mac(5), mac).ipv4([10, 9, 0, 2], [10, 0, 0, 2]).udp(2, 1).payload(b"out").build();
    let sent = s.h.exchange(x0, &outer4([10, 0, 0, 2], [10, 0, 0, 1], 4789, 13, &back));
    assert_eq!((sent.len(), sent[0].0), (1, x0));
    s.h.assert_buffers_held(0);
}

#[test]
fn a_group_is_sent_to_and_its_packets_are_of_the_tunnel_to_their_sender() {
    let mut s = scene();
    s.run("create vxlan tunnel src 10.0.0.1 group 239.1.1.1 x0 vni 13");
    s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13");
    s.run("set interface l2 xconnect x1 vxlan_tunnel0");
    s.run("set interface l2 xconnect vxlan_tunnel1 x2");
    let (x0, x1, x2) = (s.interface("x0"), s.interface("x1"), s.interface("x2"));
    let frame = inner(1000, 100);
    let sent = s.h.exchange(x1, &frame);
    let [(interface, outer)] = &sent[..] else { panic!("{} packets", sent.len()) };
    assert_eq!((*interface, &outer[..6], &outer[6..12]), (x0, &[1, 0, 0x5e, 1, 1, 1][..], &router_mac(0).0[..]));
    assert_eq!((&outer[30..34], &outer[50..]), (&[239, 1, 1, 1][..], &frame[..]));
    for (src, taken) in [([10, 0, 0, 2], 1), ([10, 0, 0, 3], 0)] {
        let mut packet = outer4(src, [239, 1, 1, 1], 4789, 13, &frame);
        packet[..6].copy_from_slice(&[1, 0, 0x5e, 1, 1, 1]);
        let sent = s.h.exchange(x0, &packet);
        assert_eq!(sent.len(), taken, "{src:?}: {:?}", s.h.counts());
        assert!(sent.iter().all(|(interface, _)| *interface == x2));
    }
    assert!(s.h.exchange(x1, &inner(1000, 1460)).is_empty());
    assert_eq!(s.h.count("vxlan_tunnel0-tx", "packet too big for the interface of the group"), 1);
    s.h.router.delete_interface(x0).unwrap();
    assert!(s.h.exchange(x1, &frame).is_empty());
    assert_eq!(s.h.count("vxlan_tunnel0-tx", "interface of the group has gone"), 1);
    s.h.assert_buffers_held(0);
}

#[test]
fn over_ipv6_a_datagram_without_checksum_is_taken_while_there_is_a_tunnel() {
    let mut s = connected("src 2001:db8::1 dst 2001:db8::2 vni 13");
    let (x0, x1) = (s.interface("x0"), s.interface("x1"));
    let frame = inner(1000, 100);
    let content = [&header::emit(13)[..], &frame].concat();
    let [src, dst] = ["2001:db8::2", "2001:db8::1"].map(|text| text.parse::<std::net::Ipv6Addr>().unwrap());
    // Nobody takes the second port.
    for port in [4789, 4790] {
        let outer = Packet::ethernet(host_mac(0), router_mac(0)).ipv6(src, dst).udp(50_000, port).payload(&content);
        assert_eq!(s.h.exchange(x0, &outer.checksum(0).build()).len(), usize::from(port == 4789));
    }
    assert_eq!(s.h.count("ip6-receive", "bad udp checksum"), 1);
    let outer = Packet::ethernet(host_mac(0), router_mac(0)).ipv6(src, dst).udp(50_000, 4789).payload(&content);
    assert_eq!(s.h.exchange(x0, &outer.build()), [(x1, frame)]);
    s.run("create vxlan tunnel src 2001:db8::1 dst 2001:db8::2 vni 13 del");
    assert!(s.h.exchange(x0, &outer.checksum(0).build()).is_empty());
    assert_eq!(s.h.count("ip6-receive", "bad udp checksum"), 2);
    s.h.assert_buffers_held(0);
}

#[test]
fn a_domain_with_a_tunnel_to_the_group_floods_to_no_peer_of_it() {
    let mut s = scene();
    s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13");
    s.run("create bridge-domain 7");
    s.run("set interface l2 bridge vxlan_tunnel0 7");
    s.run("set interface l2 bridge x1 7");
    let x1 = s.interface("x1");
    let to = |sent: &[(quiver_net::IfIndex, Vec<u8>)]| sent.iter().map(|(_, outer)| outer[30..34].to_vec()).collect::<Vec<_>>();
    assert_eq!(to(&s.h.exchange(x1, &inner(1000, 100))), [[10, 0, 0, 2]]);
    s.run("create vxlan tunnel src 10.0.0.1 group 239.1.1.1 x0 vni 13");
    s.run("set interface l2 bridge vxlan_tunnel1 7");
    assert_eq!(to(&s.h.exchange(x1, &inner(1000, 100))), [[239, 1, 1, 1]]);
    s.h.router.delete_interface(s.interface("vxlan_tunnel1")).unwrap();
    assert_eq!(to(&s.h.exchange(x1, &inner(1000, 100))), [[10, 0, 0, 2]]);
    s.h.assert_buffers_held(0);
}
