//! Packets and settings, in a router with made-up interfaces: `x0`, `x1` and `x2` with 10.0.n.1/24 and 2001:db8:n::1/64.

use quiver_api::defs::{AddressFamily, InterfaceIndex};
use quiver_net::api::testing::{ask, assert_names, read, table};
use quiver_net::interface::{SubMatch, VlanId};
use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac, router_mac};
use quiver_wire::build::Packet;

use crate::api::{UrpfInterfaceDetails, UrpfInterfaceDump, UrpfMode, UrpfUpdate, UrpfUpdateV2};

/// Without addresses.
fn bare() -> Harness {
    Harness::with_plugin(&crate::plugin(), 0, 3)
}

fn scene() -> Scene {
    Scene { h: bare().with_hosts() }
}

/// How many of some packets of a source that come in on `x0` leave for the host on `x1`, one by one and many at a time.
fn pass(s: &mut Scene, source: &str) -> usize {
    let packet = Packet::ethernet(host_mac(0), router_mac(0));
    let packet = match source.contains(':') {
        false => packet.ipv4(source.parse::<std::net::Ipv4Addr>().unwrap(), [10, 0, 1, 2]),
        true => packet.ipv6(source.parse::<std::net::Ipv6Addr>().unwrap(), "2001:db8:1::2".parse::<std::net::Ipv6Addr>().unwrap()),
    };
    let frame = packet.udp(1, 2).payload(b"content").build();
    let x0 = s.interface("x0");
    let mut passed = s.h.exchange(x0, &frame).len();
    for many in [8, 29] {
        s.h.inject_many(x0, &vec![frame.clone(); many], 0);
        passed += s.h.run().len();
    }
    s.h.assert_buffers_held(0);
    passed
}

/// All that [`pass`] sends.
const SENT: usize = 38;

#[test]
fn a_strict_check_wants_the_route_to_the_source_by_the_interface() {
    let mut s = scene();
    s.run("ip route add 20.0.0.0/8 via 10.0.0.2 x0");
    s.run("ip route add 20.0.0.0/8 via 10.0.2.2 x2");
    s.run("ip route add 20.1.0.0/16 via drop");
    let sources = ["10.0.0.9", "10.0.2.9", "20.2.0.1", "20.1.0.1", "3.3.3.3", "10.0.0.1"];
    let passed = |s: &mut Scene| sources.map(|source| pass(s, source) == SENT);
    assert_eq!(passed(&mut s), [true; 6]);
    s.run("set urpf ip4 rx strict x0");
    assert_eq!(
        passed(&mut s),
        [true, false, true, false, false, false],
        "a link, another, one of two paths, drop, none, the router's own"
    );
    assert_eq!(s.h.count("ip4-rx-urpf-strict", "uRPF Drop"), 4 * SENT as u64);
    s.run("set urpf ip4 rx loose x0");
    assert_eq!(passed(&mut s), [true, true, true, false, false, false]);
    assert_eq!(s.h.count("ip4-rx-urpf-loose", "uRPF Drop"), 3 * SENT as u64);
    s.run("ip route add 0.0.0.0/0 via 10.0.2.2 x2");
    assert_eq!(passed(&mut s), [true, true, true, false, true, false], "the default route is a route");
    s.run("set urpf off x0");
    assert_eq!(passed(&mut s), [true; 6]);
    assert_eq!(pass(&mut s, "2001:db8:2::9"), SENT);
}

#[test]
fn what_leaves_is_checked_against_the_interface_that_it_leaves_by() {
    let mut s = scene();
    let sources = ["10.0.0.9", "10.0.2.9", "10.0.1.9", "3.3.3.3"];
    let passed = |s: &mut Scene| sources.map(|source| pass(s, source) == SENT);
    s.run("set urpf tx loose x1");
    assert_eq!(passed(&mut s), [true, true, true, false]);
    s.run("set urpf tx strict x1");
    assert_eq!(passed(&mut s), [true, true, false, false], "nobody behind x1 sends to x1 from elsewhere");
    s.run("set urpf ip6 tx strict x1");
    assert_eq!(["2001:db8:0::9", "2001:db8:1::9", "3::3"].map(|source| pass(&mut s, source) == SENT), [true, false, false]);
    // What the router sends has its own address, which no route leads to.
    let x1 = s.interface("x1");
    let echo =
        Packet::ethernet(host_mac(1), router_mac(1)).ipv4([10, 0, 1, 2], [10, 0, 1, 1]).echo_request(1, 1).payload(b"x").build();
    assert_eq!(s.h.exchange(x1, &echo).len(), 1);
}

#[test]
fn the_header_is_found_behind_tags() {
    let mut s = scene();
    let x1 = s.interface("x1");
    let tagged = SubMatch::Tagged { dot1ad: true, outer: VlanId::Exactly(7), inner: Some(VlanId::Exactly(8)), exact: true };
    let sub = s.h.router.create_sub_interface(x1, 7, tagged).unwrap();
    s.h.router.set_interface_up(sub, true).unwrap();
    s.h.router.add_address(sub, "10.7.0.1".parse().unwrap(), 24).unwrap();
    s.run(&format!("set ip neighbor x1.7 10.7.0.2 {}", host_mac(7)));
    s.h.run();
    s.run("set urpf tx loose x1.7");
    let x0 = s.interface("x0");
    let sent = |source: [u8; 4]| {
        Packet::ethernet(host_mac(0), router_mac(0)).ipv4(source, [10, 7, 0, 2]).udp(1, 2).payload(b"content").build()
    };
    assert_eq!(s.h.exchange(x0, &sent([10, 0, 0, 9])).len(), 1);
    assert_eq!(s.h.exchange(x0, &sent([3, 3, 3, 3])).len(), 0);
}

#[test]
fn link_local_sources_and_hosts_without_an_address_pass() {
    let mut s = scene();
    s.run("set urpf rx strict x0");
    s.run("set urpf ip6 rx strict x0");
    assert_eq!(["2001:db8:0::9", "2001:db8:2::9", "3::3"].map(|source| pass(&mut s, source) == SENT), [true, false, false]);
    let x0 = s.interface("x0");
    let solicited = Packet::ethernet(host_mac(0), router_mac(0))
        .ipv6("fe80::9".parse::<std::net::Ipv6Addr>().unwrap(), "2001:db8:0::1".parse::<std::net::Ipv6Addr>().unwrap())
        .echo_request(1, 1)
        .build();
    s.h.exchange(x0, &solicited);
    assert_eq!(s.h.count("ip6-rx-urpf-strict", "uRPF Drop"), 2 * SENT as u64, "not the echo");
    let discover = Packet::ethernet(host_mac(0), quiver_wire::MacAddr([0xff; 6])).ipv4([0; 4], [255; 4]).udp(68, 67).build();
    s.h.exchange(x0, &discover);
    assert_eq!(s.h.count("ip4-rx-urpf-strict", "uRPF Drop"), 0);
}

#[test]
fn accepted_prefixes_and_another_table() {
    let mut s = scene();
    s.run("set urpf loose x0");
    s.run("set urpf-accept 3.3.0.0/16");
    assert_eq!(["3.3.3.3", "3.4.3.3"].map(|source| pass(&mut s, source)), [SENT, 0]);
    s.run("set urpf strict x0");
    assert_eq!(pass(&mut s, "3.3.3.3"), 0, "as VPP, only under a loose check");
    s.run("set urpf-accept del 3.3.0.0/16");
    assert!(s.error("set urpf-accept del 3.3.0.0/16").contains("is not accepted in table 0"));
    assert!(s.error("set urpf loose x0 table 9").contains("9"), "no such table");
    s.run("ip table add 9");
    s.run("ip route add 4.0.0.0/8 table 9 via 10.0.2.2 x2");
    s.run("set urpf loose x0 table 9");
    assert_eq!(["4.3.3.3", "10.0.0.9"].map(|source| pass(&mut s, source)), [SENT, 0]);
    assert_eq!(s.error("ip table del 9"), "ip table: table 9 is in use by checks of source addresses (uRPF)");
    s.run("set urpf off x0");
    s.run("ip table del 9");
    assert_eq!(pass(&mut s, "10.0.0.9"), SENT);
}

#[test]
fn an_interface_that_goes_takes_its_checks_along() {
    let mut s = scene();
    s.run("ip table add 9");
    s.run("set urpf tx loose x2 table 9");
    assert!(s.error("set urpf loose x9").contains("unknown interface `x9'"));
    let x2 = s.interface("x2");
    s.h.router.delete_interface(x2).unwrap();
    assert!(!s.run("show urpf").contains("loose"));
    s.run("ip table del 9");
}

#[test]
fn it_is_shown_and_made_again() {
    let mut s = scene();
    s.run("set urpf ip4 rx loose x1");
    s.run("set urpf ip6 tx strict x0");
    s.run("set urpf-accept 3.3.0.0/16");
    let shown = "Interface                Family  Direction  Mode    Table
x0                       ip6     tx         strict  0
x1                       ip4     rx         loose   0
accepted: 3.3.0.0/16 in table 0
";
    assert_eq!(s.run("show urpf"), shown);
    assert_eq!(s.run("show urpf x1").lines().count(), 2);
    let lines = "ip table add 9
ip6 table add 9
set urpf-accept 3.3.0.0/16 table 9
set urpf-accept 4::/16
set urpf ip4 rx loose x1 table 9
set urpf ip6 tx strict x0";
    assert_rebuilt(&[crate::ops::register], bare, lines, &["show urpf"]);
}

#[test]
fn messages_are_those_of_vpp() {
    let table = table(crate::api::add);
    let names = [
        "urpf_update_cc274cd1",
        "urpf_update_reply_e8d4e804",
        "urpf_update_v2_b873d028",
        "urpf_update_v2_reply_e8d4e804",
        "urpf_interface_dump_f9e6675e",
        "urpf_interface_details_f94b5374",
    ];
    assert_names(table.catalog(), &names);
    let mut s = scene();
    let (x0, six) = (s.interface("x0").0, AddressFamily::ADDRESS_IP6);
    let (index, strict, loose) = (|| InterfaceIndex(x0), UrpfMode::URPF_API_MODE_STRICT, UrpfMode::URPF_API_MODE_LOOSE);
    let update = UrpfUpdate { is_input: false, mode: strict.clone(), af: six, sw_if_index: index() };
    assert_eq!(ask(&mut s.h, &table, 1, &update), [0_i32.to_be_bytes()]);
    let af = AddressFamily::ADDRESS_IP4;
    let mut v2 = UrpfUpdateV2 { is_input: true, mode: loose.clone(), af, sw_if_index: index(), table_id: 0 };
    assert_eq!(ask(&mut s.h, &table, 1, &v2), [0_i32.to_be_bytes()]);
    v2.table_id = 9;
    assert_eq!(ask(&mut s.h, &table, 1, &v2), [(-3_i32).to_be_bytes()], "no such table");
    let all = ask(&mut s.h, &table, 1, &UrpfInterfaceDump { sw_if_index: InterfaceIndex(u32::MAX) });
    let details: Vec<_> =
        all.iter().map(|d| read::<UrpfInterfaceDetails>(d)).map(|d| (d.sw_if_index.0, d.is_input, d.mode, d.table_id)).collect();
    assert_eq!(details, [(x0, true, loose, 0), (x0, false, strict, 0)]);
    assert!(ask(&mut s.h, &table, 1, &UrpfInterfaceDump { sw_if_index: InterfaceIndex(77) }).is_empty());
}
