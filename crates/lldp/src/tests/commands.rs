//! Commands, what they show, and what is refused.

use quiver_command::operation::{Outcome, View};
use quiver_net::ops::testing::{assert_rebuilt, registry};

use super::{bed, error, index, pass, ports, run, said, settle};

#[test]
fn interfaces_and_neighbours_are_shown() {
    let mut h = bed(0);
    assert_eq!(run(&mut h, "show lldp").lines().count(), 1);
    run(&mut h, "set lldp system-name edge1\nset interface lldp x0 port-desc core mgmt-ip4 192.0.2.1\nset interface lldp x1");
    settle(&mut h);
    let x0 = index(&h, "x0");
    h.inject_many(x0, &[said(1, 120), said(2, 120)], 0);
    settle(&mut h);
    let table = run(&mut h, "show lldp");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[0].starts_with("Local interface           Peer chassis ID           Remote port ID"), "{table}");
    assert!(lines[1].starts_with("x0                        02:00:00:00:20:01         port1"), "{table}");
    assert!(lines[2].contains("system2") && lines[2].ends_with("active"), "{table}");
    assert!(lines[3].starts_with("x1") && lines[3].contains("never") && lines[3].ends_with("inactive"), "{table}");
    let detail = run(&mut h, "show lldp detail");
    for line in [
        "System name: edge1",
        "Local Interface name: x0",
        "Local Port Description: core",
        "Local Management address: 192.0.2.1",
        "Peer chassis ID: 02:00:00:00:20:02(MAC address)",
        "  Remote port ID: port2(Interface name)",
        "  Capabilities: bridge, router; enabled: bridge",
        "  Management address: 10.0.0.2, interface 0",
        "Frames in 2, discarded 0, errors 0",
        "Neighbors in 2, out 0 (aged 0), dropped 0",
        "Local Management MAC address: 02:fe:00:00:00:01",
    ] {
        assert!(detail.lines().any(|one| one == line), "{line}:\n{detail}");
    }
    let answer = match registry(&[crate::ops::register]).execute(&mut h.router, "show lldp", &View::JSON) {
        Ok(Outcome::Done(answer)) => answer.json.unwrap(),
        _ => panic!("no answer"),
    };
    assert!(answer.contains(r#""chassis":{"kind":"mac-address","value":"02:00:00:00:20:01"}"#), "{answer}");
    assert!(answer.contains(r#""enabled_capabilities":["bridge"]"#) && answer.contains(r#""frames_in":2"#), "{answer}");
    pass(&mut h, 121_000);
    assert!(run(&mut h, "show lldp detail").contains("Interface/peer state: inactive(timeout)"));
    run(&mut h, "set interface state x0 down");
    assert!(run(&mut h, "show lldp").lines().nth(1).unwrap().ends_with("down"));
}

#[test]
fn what_cannot_speak_lldp_is_refused() {
    let mut h = bed(0);
    run(&mut h, "create sub-interfaces x0 7\ncreate loopback interface instance 0");
    for (line, text) in [
        ("set interface lldp x0.7", "x0.7 is a sub-interface: LLDP belongs on the whole link"),
        ("set interface lldp loop0", "loop0 is a loopback"),
        ("set interface lldp local0", "local0 has no packets"),
        ("set interface lldp nowhere", "nowhere"),
        ("set lldp tx-hold 101", "expected 1 to 100"),
        ("set lldp tx-interval 0", "expected 1 to 3600"),
        ("set interface lldp x0 mgmt-ip4 2001:db8::1", "mgmt-ip4"),
    ] {
        let said = error(&mut h, line);
        assert!(said.contains(text) && !said.contains('\n'), "{line}: {said}");
    }
    let long = "x".repeat(256);
    assert!(error(&mut h, &format!("set lldp system-name {long}")).contains("at most 255 bytes"));
    assert!(error(&mut h, &format!("set interface lldp x0 port-desc {long}")).contains("at most 255 bytes"));
    assert!(error(&mut h, &format!("set interface lldp x0 mgmt-oid {long}")).contains("at most 128 bytes"));
    assert!(ports(&h).is_empty());
    assert!(settle(&mut h).is_empty());
}

#[test]
fn lldp_is_configured_again_as_it_was() {
    assert_rebuilt(
        &[crate::ops::register],
        || bed(1),
        "set lldp system-name \"edge 1\" tx-interval 10
         set interface lldp x2 port-desc \"to the core\" mgmt-ip4 192.0.2.1 mgmt-ip6 2001:db8::1 mgmt-oid 1.3.6.1.4.1
         set interface lldp x0",
        &["show lldp"],
    );
}
