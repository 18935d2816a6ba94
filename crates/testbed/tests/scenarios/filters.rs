//! What may pass, and how much of it, among kernel hosts: the classifier's ACLs and filters, policers.

use crate::common;

use common::{BOUND, assert_buffers_are_back, errors, eventually, lost_pings, ping_in_turn};
use quiver_testbed::{Host, Router, Scenario, TwoHosts, TwoHostsOptions};

fn scene() -> (TwoHosts, Router) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    let router = scene.start_router(1).expect("router");
    for to in [TwoHosts::B4, TwoHosts::B6] {
        eventually(&format!("an answer from {to}"), BOUND, || scene.a.pings(to, 1).expect("ping"));
    }
    (scene, router)
}

fn run(router: &Router, lines: &[&str]) {
    for line in lines {
        router.cli(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Echo requests that a host has received.
fn echo_requests(host: &Host) -> u64 {
    let text = host.run("cat /proc/net/snmp", BOUND).expect("cat").expect("counters of ICMP");
    let [names, numbers] = [0, 1].map(|n| text.lines().filter(|line| line.starts_with("Icmp:")).nth(n).expect("ICMP").split(' '));
    let found = names.zip(numbers).find(|(name, _)| *name == "InEchos").expect("a counter");
    found.1.parse().expect("a number")
}

#[test]
fn an_acl_keeps_one_host_out_and_counts_its_packets() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, router) = scene();
    scene.a.ip("addr add 10.0.1.66/24 dev eth0").expect("second address");
    let pings = |from: &str| ping_in_turn(&scene.a, 5, &format!("-I {from} {}", TwoHosts::B4));
    pings("10.0.1.66");
    run(
        &router,
        &[
            "classify table mask l3 ip4 src acl-miss-next permit",
            "classify session table-index 0 match l3 ip4 src 10.0.1.66 acl-hit-next deny",
            "set interface input acl intfc host-r0 ip4-table 0",
        ],
    );
    let refused = scene.a.run(&format!("ping -c 5 -i 0.01 -W 1 -I 10.0.1.66 {}", TwoHosts::B4), BOUND).expect("ping").stdout;
    assert!(refused.contains(" 0 received"), "{refused}");
    pings(TwoHosts::A4);
    eventually("each is a hit", BOUND, || router.cli("show classify tables verbose").expect("show").contains("hits 5\n"));
    eventually("each is counted", BOUND, || errors(&router, "ip4-inacl", "input ACL session deny drops") == 5);
    run(&router, &["set interface input acl intfc host-r0 ip4-table 0 del"]);
    pings("10.0.1.66");
    assert_buffers_are_back(&router);
}

#[test]
fn a_trace_and_a_capture_take_what_the_classifier_chooses() {
    let Some(_scenario) = Scenario::begin(&["ping", "tcpdump"]) else { return };
    let (scene, router) = scene();
    scene.a.ip("addr add 10.0.1.66/24 dev eth0").expect("second address");
    let chosen = "mask l3 ip4 src match l3 ip4 src 10.0.1.66";
    run(
        &router,
        &[
            &format!("classify filter trace {chosen}"),
            &format!("classify filter pcap {chosen}"),
            "trace add af-packet-input 100 filter",
            "pcap trace rx tx max 100 file chosen.pcap filter",
        ],
    );
    for from in ["10.0.1.66", TwoHosts::A4] {
        ping_in_turn(&scene.a, 3, &format!("-I {from} {}", TwoHosts::B4));
    }
    let traced = router.cli("show trace").expect("show trace");
    assert!(traced.contains("Packet 3\n") && !traced.contains("Packet 4\n"), "{traced}");
    assert!(traced.contains("10.0.1.66 -> 10.0.2.2") && !traced.contains("10.0.1.2 -> 10.0.2.2"), "{traced}");
    // Each comes in and leaves.
    let written = router.cli("pcap trace off").expect("pcap trace off");
    assert!(written.starts_with("Write 6 packets to "), "{written}");
    let file = written.split_whitespace().nth(4).expect("file").trim_end_matches(',').to_owned();
    let listed = scene.a.run(&format!("tcpdump -n -r {file}"), BOUND).expect("tcpdump").stdout;
    assert_eq!(listed.lines().filter(|line| line.contains("10.0.1.66 > 10.0.2.2: ICMP echo request")).count(), 6, "{listed}");
    assert_buffers_are_back(&router);
}

#[test]
fn a_policer_passes_its_burst_and_drops_the_rest() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, router) = scene();
    run(
        &router,
        &[
            // Ten packets, and another one each second.
            "policer add name p type 1r2c rate pps cir 1 cb 10000 conform-action transmit exceed-action drop violate-action drop",
            "policer input name p host-r0",
        ],
    );
    // Counted where they arrive: the sender may take late answers for lost.
    let before = echo_requests(&scene.b);
    let passed = || echo_requests(&scene.b) - before;
    let dropped = || errors(&router, "policer-input", "Packets Dropped");
    scene.a.run(&format!("ping -c 200 -i 0.002 -W 1 {}", TwoHosts::B4), BOUND).expect("ping");
    eventually("each passes or is dropped", BOUND, || passed() + dropped() == 200);
    assert!((10..200).contains(&passed()), "{} passed", passed());
    run(&router, &["policer input name p unapply host-r0"]);
    assert_eq!(lost_pings(&scene.a, 200, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
    assert_buffers_are_back(&router);
}
