//! Commands: what they refuse, and what is configured again.

use quiver_net::ip::FamilyId;
use quiver_net::ops::testing::assert_rebuilt;

use super::{add, bed, error, run, sessions};

const OF: &str = "interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2";

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let mut h = bed(0);
    let with = |from: &str, to: &str| add(0).replace(from, to);
    assert!(error(&mut h, &with("local-addr 10.0.0.1", "local-addr 10.0.0.3")).contains("x0 has no address 10.0.0.3"));
    assert!(error(&mut h, &with("peer-addr 10.0.0.2", "peer-addr 2001:db8::2")).contains("must be IPv4 or both IPv6"));
    assert!(error(&mut h, &with("peer-addr 10.0.0.2", "peer-addr 10.0.0.1")).contains("another address"));
    assert!(error(&mut h, &with("peer-addr 10.0.0.2", "peer-addr 224.0.0.1")).contains("next hop"));
    assert!(error(&mut h, &with("interface x0", "interface x9")).contains("x9"));
    assert!(error(&mut h, &with("desired-min-tx 20000", "desired-min-tx 999")).contains("1000"));
    assert!(error(&mut h, &with("detect-mult 3", "detect-mult 0")).contains("1 to 255"));
    assert!(sessions(&mut h).is_empty());
    run(&mut h, &add(0));
    assert!(error(&mut h, &add(0)).contains("there already"));
    run(&mut h, &format!("bfd udp session del {OF}"));
    for line in [
        format!("bfd udp session del {OF}"),
        format!("bfd udp session mod {OF} desired-min-tx 5000 required-min-rx 5000 detect-mult 1"),
        format!("bfd udp session set-flags {OF} admin down"),
    ] {
        assert!(error(&mut h, &line).contains("no session between 10.0.0.1 and 10.0.0.2"), "{line}");
    }
}

#[test]
fn a_port_that_cannot_be_had_refuses_a_session_and_leaves_the_others_as_they_were() {
    let mut h = bed(0);
    h.router.register_udp_port(FamilyId::V4, 3785, "null-node").unwrap();
    let before = h.router.udp_ports(FamilyId::V4);
    assert!(error(&mut h, &add(0)).contains("3785"));
    assert_eq!(h.router.udp_ports(FamilyId::V4), before, "3784 was not kept");
    assert!(sessions(&mut h).is_empty());
    h.router.unregister_udp_port(FamilyId::V4, 3785);
    run(&mut h, &add(0));
}

#[test]
fn sessions_are_shown() {
    let mut h = bed(0);
    run(&mut h, &add(0));
    run(&mut h, &add(1));
    let table = run(&mut h, "show bfd sessions");
    assert!(table.contains("10.0.0.2") && table.contains("2001:db8::2") && table.contains("sessions: 2"), "{table}");
    let one = run(&mut h, "show bfd session 1");
    assert!(one.contains("2001:db8::2") && one.contains("20000"), "{one}");
}

#[test]
fn sessions_are_configured_again_as_they_were() {
    assert_rebuilt(
        &[crate::ops::register],
        || quiver_net::testing::Harness::with_plugin(&crate::plugin(), 1, 0),
        "create packet-generator interface pg0
         set interface ip address pg0 10.0.0.1/24
         set interface ip address pg0 2001:db8::1/64
         bfd udp session add interface pg0 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 20000 required-min-rx 30000 detect-mult 3
         bfd udp session add interface pg0 local-addr 2001:db8::1 peer-addr 2001:db8::2 desired-min-tx 10000 required-min-rx 10000 detect-mult 5
         bfd udp session mod interface pg0 local-addr 2001:db8::1 peer-addr 2001:db8::2 desired-min-tx 50000 required-min-rx 10000 detect-mult 4
         bfd udp session set-flags interface pg0 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin down
         ip table add 7
         create packet-generator interface pg1
         set interface ip table pg1 7
         set interface ip address pg1 10.0.7.1/24
         bfd key set conf-key-id 1 type meticulous-keyed-sha1 secret 5ec12e7a90
         bfd key set conf-key-id 9 type simple-password secret 70617373
         bfd udp session add multihop local-addr 10.0.0.1 peer-addr 192.0.2.9 desired-min-tx 20000 required-min-rx 30000 detect-mult 3 conf-key-id 1 bfd-key-id 7
         bfd udp session add multihop table 7 local-addr 10.0.7.1 peer-addr 192.0.2.9 desired-min-tx 20000 required-min-rx 30000 detect-mult 3
         bfd udp session auth activate interface pg0 local-addr 2001:db8::1 peer-addr 2001:db8::2 conf-key-id 9 bfd-key-id 0 delayed yes
         bfd udp echo-source set interface pg1
         bfd udp tos 184",
        &[],
    );
}
