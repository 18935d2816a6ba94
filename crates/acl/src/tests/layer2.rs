//! Frames of bridged interfaces.

use super::*;

fn bridged() -> Scene {
    let mut s = Scene { h: bare() };
    for n in 0..3 {
        s.run(&format!("set interface l2 bridge x{n} 10"));
    }
    s
}

fn frame(six: bool, vlan: bool, from: u8, dport: u16) -> Vec<u8> {
    let packet = Packet::ethernet(host_mac(from), quiver_wire::MacAddr([0xff; 6]));
    let packet = if vlan { packet.vlan(7) } else { packet };
    let packet = if six { packet.ipv6(self::six(0), self::six(1)) } else { packet.ipv4([10, 0, 0, 2], [10, 0, 1, 2]) };
    packet.udp(1, dport).payload(&[1; 20]).build()
}

#[test]
fn frames_are_checked_as_they_come_in_and_leave() {
    for six in [false, true] {
        for vlan in [false, true] {
            let mut s = bridged();
            let any = if six { "::/0" } else { "0.0.0.0/0" };
            s.run(&format!("set acl-plugin acl permit src {any} proto udp dport 53"));
            s.run("set acl-plugin interface x0 input acl 0");
            assert_eq!(out(&mut s, 0, &frame(six, vlan, 0, 53)), 2);
            assert_eq!(out(&mut s, 0, &frame(six, vlan, 0, 54)), 0);
            assert_eq!(out(&mut s, 1, &frame(six, vlan, 1, 54)), 2, "x1 has no list");
            assert_eq!(s.h.count("acl-plugin-in-l2", "ACL deny packets in no rule"), 1);
            s.run("set acl-plugin interface x0 input acl 0 del");
            s.run("set acl-plugin interface x2 output acl 0");
            assert_eq!(out(&mut s, 0, &frame(six, vlan, 0, 54)), 1);
            assert_eq!(out(&mut s, 0, &frame(six, vlan, 0, 53)), 2);
            s.h.assert_buffers_held(0);
        }
    }
}

#[test]
fn other_frames_pass_but_for_those_that_are_not_on_the_list() {
    let mut s = bridged();
    let other = |kind: u16| {
        let mut frame = frame(false, false, 0, 53);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame
    };
    s.run("set acl-plugin acl deny");
    s.run("set acl-plugin interface x0 input acl 0");
    assert_eq!([0x0806, 0xaaaa, 0x0800].map(|kind| out(&mut s, 0, &other(kind))), [2, 2, 0]);
    s.run("set acl-plugin ethertype x0 input type 0x0bbb type 0x0806");
    assert_eq!([0x0806, 0xaaaa, 0x0bbb, 0x0800].map(|kind| out(&mut s, 0, &other(kind))), [2, 0, 2, 0]);
    assert_eq!(s.h.count("acl-plugin-in-l2", "ACL deny frames by EtherType"), 1);
    s.run("set acl-plugin ethertype x0 input");
    assert_eq!(out(&mut s, 0, &other(0xaaaa)), 2);
    let x0 = s.interface("x0");
    s.h.router.delete_interface(x0).unwrap();
    assert_eq!(s.run("show acl-plugin interface"), "");
    s.run("delete acl-plugin acl index 0");
}

#[test]
fn sessions_are_those_of_a_port() {
    let mut s = bridged();
    s.run("set acl-plugin acl permit+reflect src 10.0.0.0/24");
    s.run("set acl-plugin interface x0 input acl 0");
    s.run("set acl-plugin acl deny");
    s.run("set acl-plugin interface x0 output acl 1");
    let answer = Packet::ethernet(host_mac(1), host_mac(0)).ipv4([10, 0, 1, 2], [10, 0, 0, 2]).udp(53, 1).build();
    assert_eq!(out(&mut s, 1, &answer), 1, "flooded to x2 alone");
    assert_eq!(out(&mut s, 0, &frame(false, false, 0, 53)), 2);
    assert_eq!(out(&mut s, 1, &answer), 2);
    assert_eq!(s.h.count("acl-plugin-out-l2", "existing session packets"), 1);
}
