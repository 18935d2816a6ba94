use crate::ops::testing::{error, run};
use crate::testing::Harness;

fn bed() -> Harness {
    let mut h = Harness::new();
    h.interface(0);
    run(&mut h.router, "set interface ip address x0 10.0.0.1/24");
    run(&mut h.router, "set interface ip address x0 2001:db8::1/64");
    h
}

/// The table without the ages, which depend on the clock.
fn shown(h: &mut Harness, line: &str) -> String {
    let text = run(&mut h.router, line);
    text.lines().skip(1).map(|line| format!("{}\n", &line[12..])).collect()
}

#[test]
fn neighbours_are_shown_in_the_usual_columns() {
    let mut h = bed();
    assert_eq!(run(&mut h.router, "show ip neighbors"), "", "an empty table prints nothing");
    run(&mut h.router, "set ip neighbor x0 10.0.0.2 02:00:00:00:00:01");
    run(&mut h.router, "ip neighbor x0 2001:db8::2 0200.0000.0002 static no-fib-entry");
    let text = run(&mut h.router, "show ip neighbors");
    assert_eq!(
        text.lines().next(),
        Some("     Age                       IP                    Flags      Ethernet              Interface       ")
    );
    let age = &text.lines().nth(1).unwrap()[..12];
    assert!(age.starts_with("       .") && age.trim().len() == 5, "{age:?}");
    let row = "                10.0.0.2                   D    02:00:00:00:00:01 x0\n";
    assert_eq!(shown(&mut h, "show ip4 neighbors x0"), row);
    let row = "               2001:db8::2                SN    02:00:00:00:00:02 x0\n";
    assert_eq!(shown(&mut h, "show ip6 neighbors"), row);
    assert!(run(&mut h.router, "show ip fib 10.0.0.2").contains("10.0.0.2/32"));
}

#[test]
fn neighbours_are_removed_one_by_one_in_a_row_and_by_flushing() {
    let mut h = bed();
    run(&mut h.router, "ip neighbor x0 10.0.0.2 02:00:00:00:00:fe count 3");
    let macs = shown(&mut h, "show ip neighbors");
    assert!(macs.contains("10.0.0.4 ") && macs.contains("02:00:00:00:01:00 x0"), "{macs}");
    run(&mut h.router, "ip neighbor del x0 10.0.0.3");
    assert_eq!(error(&mut h.router, "ip neighbor del x0 10.0.0.3"), "ip neighbor: no neighbor 10.0.0.3 on x0 (address)");
    run(&mut h.router, "set ip neighbor static x0 10.0.0.9 02:00:00:00:00:09");
    run(&mut h.router, "ip neighbor x0 flush");
    assert!(shown(&mut h, "show ip neighbors").contains("10.0.0.9") && !shown(&mut h, "show ip neighbors").contains("10.0.0.2 "));
}

#[test]
fn what_is_wrong_is_named() {
    let mut h = bed();
    for (line, expected) in [
        ("ip neighbor x0 10.0.0.2", "missing MAC address"),
        ("ip neighbor x0 02:00:00:00:00:01", "missing address"),
        ("ip neighbor x9 10.0.0.2 02:00:00:00:00:01", "unknown interface `x9'"),
        ("ip neighbor x0 10.0.0.2 01:00:00:00:00:01", "01:00:00:00:00:01 is not a unicast MAC address"),
        ("ip neighbor x0 255.255.255.255 02:00:00:00:00:01", "255.255.255.255 cannot be a neighbor's address"),
        ("ip neighbor x0 10.0.0.2 02:00:00:00:00:01 statc", "did you mean `static'?"),
        ("set ip neighbor-config ip5", "unknown input `ip5'"),
        ("set arp proxy start 10.0.0.9 end 10.0.0.1", "the range ends before it begins"),
        ("set arp proxy table-id 7 start 10.0.0.1 end 10.0.0.9", "Nonexistent table id 7"),
        ("set arp proxy del start 10.0.0.1 end 10.0.0.9", "no such proxy range"),
    ] {
        let text = error(&mut h.router, line);
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert_eq!(run(&mut h.router, "show ip neighbors"), "");
}

#[test]
fn limits_are_set_and_shown() {
    let mut h = bed();
    run(&mut h.router, "set ip neighbor-config ip4 limit 2 interface-limit 7 age 100 unused 60 recycle hold 9 request-interval 20");
    assert_eq!(
        run(&mut h.router, "show ip neighbor-config"),
        "ip4:\n  limit:2, age:100, recycle:1\n  interface-limit:7, unused:60, probe:1, announce:1\n\
         \x20 hold:9, request-interval:20\n\
         \x20 entries:0, pending:0, refused:0, recycled:0\n  lost:0, forgotten:0, conflicts:0\n\
         ip6:\n  limit:50000, age:0, recycle:1\n  interface-limit:8192, unused:600, probe:1, announce:1\n\
         \x20 hold:4, request-interval:0\n\
         \x20 entries:0, pending:0, refused:0, recycled:0\n  lost:0, forgotten:0, conflicts:0\n"
    );
    run(&mut h.router, "set ip neighbor-config ip4 norecycle");
    let text = error(&mut h.router, "ip neighbor x0 10.0.0.2 02:00:00:00:00:01 count 5");
    assert_eq!(text, "ip neighbor: the limit of 2 dynamic neighbors is reached; 2 neighbors before it were changed");
}

#[test]
fn proxy_arp_is_switched_and_shown() {
    let mut h = bed();
    run(&mut h.router, "set arp proxy table-id 0 start 10.5.0.1 end 10.5.0.9");
    run(&mut h.router, "set interface proxy-arp x0 enable");
    assert_eq!(run(&mut h.router, "show arp proxy"), "Proxy arps enabled for:\ntable 0   10.5.0.1 - 10.5.0.9 \n  x0\n");
    run(&mut h.router, "set interface proxy-arp x0 disable");
    run(&mut h.router, "set arp proxy del table-id 0 start 10.5.0.1 end 10.5.0.9");
    assert_eq!(run(&mut h.router, "show arp proxy"), "Proxy arps enabled for:\n");
}
