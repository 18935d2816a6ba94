use crate::ops::testing::{error, run};
use crate::testing::Harness;

#[test]
fn an_interface_shows_addresses_groups_and_advertisements() {
    let mut h = Harness::new();
    h.interface(0);
    run(&mut h.router, "set ip6 dad disable");
    assert_eq!(run(&mut h.router, "show ip6 dad"), "IPv6 DAD configuration:\n  Enabled: no\n");
    assert_eq!(run(&mut h.router, "show ip6 interface"), "");
    run(&mut h.router, "set interface ip address x0 2001:db8::1/64");
    run(&mut h.router, "ip6 nd x0 ra-interval 40 20");
    run(&mut h.router, "ip6 nd x0 prefix 2001:db8:1::/64 infinite no-autoconfig");
    run(&mut h.router, "ip6 nd x0 prefix 2001:db8:2::/64 100 50 off-link");
    assert_eq!(
        run(&mut h.router, "show ip6 interface x0"),
        "x0 is admin up\n  Link-local address(es):\n    fe80::fe:ff:fe00:0\n  Global unicast address(es):\n    \
         2001:db8::1/64 subnet is 2001:db8::/64\n  Joined group address(es):\n    ff02::1\n    ff02::2\n    ff02::16\n    \
         ff02::1:ff00:0\n    ff02::1:ff00:1\n    ff05::2\n  Advertised Prefixes:\n    prefix 2001:db8::, length 64, valid 2592000, preferred 604800\n    \
         prefix 2001:db8:1::, length 64, valid infinite, preferred infinite, no-autoconfig\n    \
         prefix 2001:db8:2::, length 64, valid 100, preferred 50, off-link\n  MTU is 1500\n  ND DAD is disabled\n  \
         ND router advertisements are sent every 40 seconds (min interval is 20)\n  \
         ND router advertisements live for 120 seconds\n  Hosts use stateless autoconfig for addresses\n  \
         ND router advertisements sent 0\n  ND router solicitations received 0\n  \
         ND router solicitations answered together 0\n"
    );
}

#[test]
fn prefixes_are_sent_and_listed_in_the_order_in_which_they_were_configured() {
    let mut h = Harness::new();
    let x = h.interface(0);
    h.router.enable_ip6(x).unwrap();
    for prefix in ["2001:db8:9::/64", "2001:db8:1::/64", "2001:db8:5::/64", "2001:db8:9::/64 100 50"] {
        run(&mut h.router, &format!("ip6 nd x0 prefix {prefix}"));
    }
    let order: Vec<_> = h.router.ra_prefixes(x).iter().map(|(prefix, p)| (prefix.to_string(), p.valid == 100)).collect();
    let expected = [("2001:db8:9::/64", true), ("2001:db8:1::/64", false), ("2001:db8:5::/64", false)];
    assert_eq!(order, expected.map(|(prefix, changed)| (prefix.to_owned(), changed)));
}

#[test]
fn every_option_can_be_set_and_taken_back() {
    let mut h = Harness::new();
    let x = h.interface(0);
    for (line, back) in [
        ("ra-suppress-link-layer", "no ra-suppress-link-layer"),
        ("ra-managed-config-flag", "no ra-managed-config-flag"),
        ("ra-other-config-flag", "no ra-other-config-flag"),
        ("ra-send-unicast", "no ra-send-unicast"),
        ("ra-lifetime 900", "no ra-lifetime"),
        ("ra-initial 2 10", "no ra-initial"),
        ("ra-interval 30 10", "no ra-interval"),
        ("prefix 2001:db8::/64 100 50", "no prefix 2001:db8::/64"),
        ("no ra-suppress", "ra-suppress"),
    ] {
        let before = h.router.ra_config(x);
        run(&mut h.router, &format!("ip6 nd x0 {line}"));
        let set = h.router.ra_config(x);
        assert!(set != before && set.send, "{line}: an option begins advertisements");
        run(&mut h.router, &format!("ip6 nd x0 {back}"));
        let mut after = h.router.ra_config(x);
        after.send = before.send;
        assert_eq!(after, before, "{back}");
        run(&mut h.router, "ip6 nd x0 ra-suppress");
    }
    run(&mut h.router, "ip6 nd x0 no ra-suppress");
    run(&mut h.router, "ip6 nd x0 ra-cease");
    assert!(!h.router.ra_config(x).send);
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    let mut h = Harness::new();
    let x = h.interface(0);
    for (line, expected) in [
        ("ip6 nd x0 ra-interval 3", "ra-interval 3 is out of range, expected 4 to 1800"),
        ("ip6 nd x0 ra-interval 100 80", "expected 3 to 75"),
        ("ip6 nd x0 ra-lifetime 100", "expected 200 to 9000"),
        ("ip6 nd x0 ra-initial 9 9", "expected 0 to 3"),
        ("ip6 nd x0 prefix 10.0.0.0/8", "an IPv6 prefix is needed"),
        ("ip6 nd x0 prefix 2001:db8::/64 50 100", "preferred lifetime 100 is longer than the valid one, 50"),
        ("ip6 nd x0 no prefix 2001:db8::/64", "no prefix 2001:db8::/64"),
        ("ip6 nd x0 ra-supress", "did you mean `ra-suppress'?"),
        ("ip6 nd x9 ra-suppress", "unknown interface `x9'"),
    ] {
        let text = error(&mut h.router, line);
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert_eq!(h.router.ra_config(x), crate::nd::RaConfig::default());
}
