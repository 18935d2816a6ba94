//! Commands: what they refuse, what they change, and what is configured again.

use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::router_mac;

use super::*;

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let mut h = bed(0);
    for (line, text) in [
        ("create bond", "missing mode"),
        ("create bond mode fast", "round-robin"),
        ("create bond mode active-backup load-balance l34", "only modes xor and lacp balance flows"),
        ("create bond mode xor hw-addr 01:00:00:00:00:01", "unicast"),
        ("create bond mode xor id 65536", "65535"),
        ("bond add x0 x1", "x0 is not a bond"),
        ("delete bond x0", "x0 is not a bond"),
        ("bond del x0", "x0 is not a member of a bond"),
        ("set interface bond x0 weight 1", "x0 is not a member of a bond"),
        ("show bond x0", "x0 is not a bond"),
    ] {
        let said = error(&mut h, line);
        assert!(said.contains(text) && !said.contains('\n'), "{line}: {said}");
    }
    assert!(bonds(&h).is_empty());
    run(
        &mut h,
        "create bond mode xor id 7
         create bond mode xor
         create loopback interface
         create sub-interfaces x1 5
         set interface ip address x2 10.0.2.1/24
         create bridge-domain 10
         set interface l2 bridge x3 10
         bond add BondEthernet7 x0",
    );
    for (line, text) in [
        ("create bond mode xor id 7", "there is a bond 7 already"),
        ("bond add BondEthernet0 BondEthernet7", "BondEthernet7 is a bond itself"),
        ("bond add BondEthernet0 x0", "x0 is a member of BondEthernet7 already"),
        ("bond add BondEthernet0 x1", "x1 has sub-interfaces"),
        ("bond add BondEthernet0 x1.5", "x1.5 is a sub-interface"),
        ("bond add BondEthernet0 x2", "x2 has addresses"),
        ("bond add BondEthernet0 x3", "x3 is a port of a bridge"),
        ("bond add BondEthernet0 loop0", "loop0 is a loopback"),
        ("bond add BondEthernet0 local0", "local0 has no packets"),
        ("set interface bond x0 weight 1", "only members of active-backup bonds have weights"),
    ] {
        let said = error(&mut h, line);
        assert!(said.contains(text) && !said.contains('\n'), "{line}: {said}");
    }
    assert_eq!(bonds(&h).iter().map(|bond| bond.members.len()).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_bond_has_32_members_at_most() {
    let mut h = bed(0);
    run(&mut h, "create bond mode xor");
    for n in 0..32 {
        if n > 3 {
            h.interface(n);
        }
        run(&mut h, &format!("bond add BondEthernet0 x{n}"));
    }
    h.interface(32);
    assert!(error(&mut h, "bond add BondEthernet0 x32").contains("32 members at most"));
    run(&mut h, "bond del x5\nbond add BondEthernet0 x32");
    assert_eq!(bonds(&h)[0].members.len(), 32);
}

#[test]
fn members_have_the_bonds_mac_address_and_get_their_own_back() {
    let mut h = bed(0);
    run(&mut h, "create bond mode xor");
    let without = mac(&h, "BondEthernet0");
    run(&mut h, "bond add BondEthernet0 x1\nbond add BondEthernet0 x2");
    for name in ["BondEthernet0", "x1", "x2"] {
        assert_eq!(mac(&h, name), router_mac(1), "{name}");
    }
    run(&mut h, "set interface mac address x2 02:00:00:00:00:77");
    assert_eq!(mac(&h, "x2"), router_mac(1), "a member has the bond's");
    run(&mut h, "bond del x1");
    let own = MacAddr([2, 0, 0, 0, 0, 0x77]);
    assert_eq!([mac(&h, "BondEthernet0"), mac(&h, "x1"), mac(&h, "x2")], [own, router_mac(1), own], "no address stands twice");
    run(&mut h, "set interface mac address BondEthernet0 02:00:00:00:00:88\nbond add BondEthernet0 x1");
    let chosen = MacAddr([2, 0, 0, 0, 0, 0x88]);
    assert_eq!([mac(&h, "BondEthernet0"), mac(&h, "x1"), mac(&h, "x2")], [chosen; 3]);
    run(&mut h, "delete bond BondEthernet0");
    assert_eq!([mac(&h, "x1"), mac(&h, "x2")], [router_mac(1), own]);
    run(&mut h, "create bond mode xor\nbond add BondEthernet0 x1\nbond del x1");
    assert_eq!([mac(&h, "BondEthernet0"), mac(&h, "x1")], [without, router_mac(1)]);
    run(&mut h, "create bond mode xor hw-addr 02:00:00:00:00:99\nbond add BondEthernet1 x1");
    assert_eq!([mac(&h, "BondEthernet1"), mac(&h, "x1")], [MacAddr([2, 0, 0, 0, 0, 0x99]); 2]);
}

#[test]
fn the_mtu_follows_what_all_members_take_unless_somebody_has_chosen_it() {
    let mut h = bed(0);
    let mtu = |h: &Harness, name: &str| h.router.interfaces.by_name(name).unwrap().mtu.l3;
    let x1 = index(&h, "x1");
    h.router.interfaces.get_mut(x1).unwrap().max_frame = 1514;
    run(&mut h, "create bond mode xor\ncreate sub-interfaces BondEthernet0 7\nbond add BondEthernet0 x0");
    assert_eq!([mtu(&h, "BondEthernet0"), mtu(&h, "BondEthernet0.7")], [9202; 2]);
    run(&mut h, "bond add BondEthernet0 x1");
    assert_eq!([mtu(&h, "BondEthernet0"), mtu(&h, "BondEthernet0.7")], [1500; 2]);
    assert!(error(&mut h, "set interface mtu packet 9000 BondEthernet0").contains("1500"));
    run(&mut h, "set interface mtu packet 1400 BondEthernet0\nbond del x1");
    assert_eq!([mtu(&h, "BondEthernet0"), mtu(&h, "BondEthernet0.7")], [1400, 9202]);
}

#[test]
fn members_and_bonds_that_are_deleted_leave_nothing_behind() {
    let mut h = routed(1, "xor");
    let nodes = h.router.graph.nodes().len();
    let [x0, bond] = ["x0", "BondEthernet0"].map(|name| index(&h, name));
    h.router.delete_interface(x0).unwrap();
    assert_eq!(bonds(&h)[0].members.len(), 2);
    assert_eq!(forwarded(&mut h, 20, 0).len(), 20);
    h.router.delete_interface(bond).unwrap();
    assert!(bonds(&h).is_empty());
    let frame = flow(&h, 1);
    receive(&mut h, "x1", &[frame], 0);
    h.run();
    assert_eq!(h.router.graph.nodes().len(), nodes - 4, "two nodes for each interface");
    h.assert_buffers_held(0);
}

#[test]
fn bonds_are_shown() {
    let mut h = routed(0, "active-backup");
    run(&mut h, "create bond mode xor load-balance l34 id 3\nset interface state x1 down");
    let shown = run(&mut h, "show bond");
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["BondEthernet0", "5", "active-backup", "active-backup", "1", "3"], "{shown}");
    assert_eq!(lines[2], ["BondEthernet3", "6", "xor", "l34", "0", "0"], "{shown}");
    let details = run(&mut h, "show bond BondEthernet0 details");
    for text in ["mode: active-backup", "number of active members: 1\n    x0\n      weight: 0", "number of members: 3"] {
        assert!(details.contains(text), "{text}: {details}");
    }
}

#[test]
fn bonds_are_configured_again_as_they_were() {
    assert_rebuilt(
        &[crate::ops::register],
        || Harness::with_plugin(&crate::plugin(), 1, 0),
        "create packet-generator interface pg0
         create packet-generator interface pg1
         create packet-generator interface pg2
         create packet-generator interface pg3
         create bond mode active-backup id 4
         create bond mode xor load-balance l34 hw-addr 02:00:00:00:00:99
         create bond mode broadcast
         set interface mac address pg1 02:00:00:00:00:55
         bond add BondEthernet4 pg1
         bond add BondEthernet4 pg0
         bond add BondEthernet0 pg3
         bond add BondEthernet0 pg2
         set interface bond pg0 weight 7
         create sub-interfaces BondEthernet4 9
         set interface mtu packet 1400 BondEthernet4.9
         set interface state pg0 up
         set interface state BondEthernet4 up
         set interface ip address BondEthernet4 10.0.0.1/24
         set interface mac address BondEthernet1 02:00:00:00:00:66
         delete bond BondEthernet1",
        &["show bond details", "show interface address", "show hardware-interfaces"],
    );
}
