//! Tables, messages, nodes, commands and binary messages.

mod api;
mod decode;
mod flows;
mod nodes;

use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, error, host_mac, index, run};

/// Without addresses.
fn bare(workers: usize) -> Harness {
    Harness::with_plugin(&crate::plugin(), workers, 3)
}

/// x0, x1 and x2 with 10.0.n.1/24 and 2001:db8:n::1/64, hosts `.2` that are known, and a collector behind x2.
fn bed(workers: usize) -> Harness {
    let mut h = bare(workers).with_hosts();
    run(&mut h, "set ipfix exporter collector 10.0.2.2 port 2055 src 10.0.2.1 path-mtu 1400 udp-checksum");
    h.run();
    h
}

#[test]
fn the_configuration_rebuilds_exporter_params_and_features() {
    let lines = "set interface ip address x2 10.0.2.1/24
        ip table add 7
        set ipfix exporter collector 10.0.2.9 port 2055 src 10.0.2.1 fib-id 7 path-mtu 1400 template-interval 5 udp-checksum
        flowprobe params record l2 l3 l4 active 5 passive 30 sample 10
        flowprobe feature add-del x0 ip4 both
        flowprobe feature add-del x1 l2 rx";
    let shows = ["show ipfix exporter", "show flowprobe params", "show flowprobe feature"];
    assert_rebuilt(&[crate::ops::register], || bare(0), lines, &shows);
}

#[test]
fn what_is_shown_has_vpps_words() {
    let mut h = bed(0);
    run(
        &mut h,
        "flowprobe params record l3 l4 active 20 passive 120\nflowprobe feature add-del x0 ip4\nflowprobe feature add-del x1 l2 both",
    );
    assert_eq!(run(&mut h, "show flowprobe params"), " l3 l4 active: 20 passive: 120\n");
    assert_eq!(run(&mut h, "show flowprobe feature"), " x0 ip4 tx\n x1 l2 rx tx\n");
    run(&mut h, "flowprobe params record l3 sample 100");
    assert_eq!(run(&mut h, "show flowprobe params"), " l3 active: 15 passive: 120 sample: 1 in 100\n");
    assert!(run(&mut h, "show ipfix exporter").starts_with("collector 10.0.2.2 port 2055 from 10.0.2.1, table 0, path MTU 1400"));
}

#[test]
fn errors_say_what_is_wrong_and_change_nothing() {
    let mut h = bed(0);
    let wrong = error(&mut h, "flowprobe feature add-del x0 ip4 rx");
    assert!(wrong.contains("nothing is said yet of what to record") && wrong.contains("flowprobe params record l3 l4"), "{wrong}");
    run(&mut h, "flowprobe params record l3");
    let wrong = error(&mut h, "flowprobe params record l3 active 60 passive 30");
    assert!(wrong.contains("the passive timeout of 30 s is shorter than the active one of 60 s"), "{wrong}");
    run(&mut h, "flowprobe feature add-del x0 ip4 rx");
    let wrong = error(&mut h, "flowprobe feature add-del x0 ip6 rx");
    assert!(wrong.contains("x0 records ip4 flows already, rx"), "{wrong}");
    let wrong = error(&mut h, "flowprobe feature add-del x0 ip6 rx disable");
    assert!(wrong.contains("x0 records ip4 flows, not those of ip6"), "{wrong}");
    assert!(error(&mut h, "flowprobe feature add-del x1 ip6 rx disable").contains("x1 records no flows"));
    assert!(error(&mut h, "flowprobe params active 5").contains("a record must contain something"));
    assert!(error(&mut h, "set ipfix exporter collector 10.0.0.9").contains("need a source address"));
    assert!(error(&mut h, "set ipfix exporter collector 10.0.0.9 src 2001:db8::1").contains("must both be IPv4 or both IPv6"));
    assert!(error(&mut h, "set ipfix exporter collector 10.0.0.9 src 10.0.0.1 fib-id 9").contains('9'));
    assert!(error(&mut h, "set ipfix exporter collector 10.0.0.9 src 10.0.0.1 path-mtu 100").contains("256 to 1450"));
    run(&mut h, "create sub-interfaces x1 7");
    let wrong = error(&mut h, "flowprobe feature add-del x1.7 l2 rx");
    assert!(wrong.contains("x1.7 is a sub-interface") && wrong.contains("name x1"), "{wrong}");
    assert_eq!(run(&mut h, "show flowprobe feature"), " x0 ip4 rx\n");
}

#[test]
fn the_table_of_the_exporter_is_held_and_released() {
    let mut h = bed(0);
    run(&mut h, "ip table add 7\nset ipfix exporter collector 10.0.2.2 src 10.0.2.1 fib-id 7");
    assert!(error(&mut h, "ip table del 7").contains("exporter of IPFIX"));
    run(&mut h, "set ipfix exporter collector 0.0.0.0\nip table del 7");
    assert_eq!(run(&mut h, "show ipfix exporter"), "no collector\n");
}
