use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quiver_command::configuration::Restore;
use quiver_command::document::{Changes, Line};
use quiver_command::operation::{Registry, run_to_end};
use quiver_net::Router;
use quiver_net::ops::testing::{configuration, execute, with_undo};
use quiver_net::testing::Harness;

use super::super::testing::registry;

fn made(registry: &Registry<Router>, lines: &str) -> Harness {
    let mut h = Harness::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        execute(registry, &mut h.router, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    h
}

/// What a document would change.
fn plan(registry: &Registry<Router>, h: &Harness, text: &str, own: &[&str]) -> Result<quiver_command::document::Plan, String> {
    let own: Vec<String> = own.iter().map(|part| (*part).to_owned()).collect();
    let book = registry.book();
    let wish = book.read("lab.yaml", text).map_err(|error| error.to_string())?;
    book.plan("lab.yaml", &with_undo(registry, &h.router), wish, &own).map_err(|error| error.to_string())
}

/// Applies a document, and gives the lines of what it changes and the number of operations that took.
fn apply(registry: &Rc<Registry<Router>>, h: &mut Harness, text: &str, own: &[&str]) -> Result<(Vec<String>, usize), String> {
    let plan = plan(registry, h, text, own)?;
    let mut restore = Restore::new(Rc::clone(registry), Arc::new(plan.target)).lenient();
    let count = run_to_end(&mut restore, &mut h.router, &mut String::new(), |_: Duration| ()).map_err(|error| error.to_string())?;
    Ok((lines(&plan.changes), count))
}

fn lines(changes: &Changes) -> Vec<String> {
    changes.changes.iter().map(Line::to_string).collect()
}

const DOCUMENT: &str = "
interfaces:
  loop0:
    loopback: {}
    addresses: [10.0.0.1/24, '2001:db8::1/64']
    mtu: 1400
    up: true
    sub_interfaces:
      100:
  pg0: {packet_generator: {}, tag: uplink}
  loop0.100: {table: {ip4: 5}, addresses: [192.0.2.1/24]}
tables:
  ip4:
    5: {name: blue}
routes:
  0:
    198.51.100.0/24:
      - {next_hop: 10.0.0.2, interface: loop0}
      - next_hop: 10.0.0.3
        interface: loop0
  5:
    203.0.113.0/24: [{kind: drop}]
neighbors:
  loop0: {10.0.0.2: '2:0:0:0:0:2'}
bridge_domains:
  7: {arp_term: true, learn: true, mac_age: 9}
";

#[test]
fn a_document_is_applied_once() {
    let registry = Rc::new(registry());
    let mut h = Harness::new();
    let (lines, _) = apply(&registry, &mut h, DOCUMENT, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(lines.iter().any(|line| line == "+ interfaces/loop0/mtu: 1400"), "{lines:#?}");
    let said = configuration(&registry, &h.router);
    for line in [
        "set interface ip table loop0.100 5",
        "ip neighbor loop0 10.0.0.2 02:00:00:00:00:02 static",
        "set bridge-domain arp term 7",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert_eq!(apply(&registry, &mut h, DOCUMENT, &[]), Ok((Vec::new(), 0)), "{said}");
    // What it does not name goes.
    execute(&registry, &mut h.router, "create loopback interface instance 5").unwrap();
    execute(&registry, &mut h.router, "set interface mtu 1500 loop0").unwrap();
    let expected = ["- interfaces/loop5/loopback: {}", "~ interfaces/loop0/mtu: 1500 -> 1400"].map(str::to_owned).to_vec();
    assert_eq!(apply(&registry, &mut h, DOCUMENT, &[]).map(|(lines, _)| lines), Ok(expected));
    assert_eq!(configuration(&registry, &h.router), said);
}

#[test]
fn a_value_takes_the_place_of_another_one() {
    let registry = Rc::new(registry());
    let base = "create packet-generator interface pg0
        set interface ip address pg0 10.0.0.1/24
        ip table add 5 name red
        ip route add 192.0.2.0/24 via 10.0.0.2 pg0
        set interface mtu 1400 pg0
        set interface tag pg0 cellar
        create bridge-domain 7 mac-age 3
        set ip neighbor-config ip4 limit 9 age 100";
    let document = registry.book().write(&with_undo(&registry, &made(&registry, base).router));
    for (from, to, line) in [
        ("mtu: 1400", "mtu: 1300", "~ interfaces/pg0/mtu: 1400 -> 1300"),
        ("tag: cellar", "tag: attic", "~ interfaces/pg0/tag: cellar -> attic"),
        ("10.0.0.2", "10.0.0.3", "~ routes/0/192.0.2.0/24:"),
        ("name: red", "name: blue", "~ tables/ip4/5:"),
        ("mac_age: 3", "mac_age: 4", "~ bridge_domains/7/mac_age: 3 -> 4"),
        ("age: 100", "age: 101", "~ neighbor_limits/ip4:"),
        ("limit: 9", "probe: false", "~ neighbor_limits/ip4:"),
    ] {
        let mut h = made(&registry, base);
        assert!(document.contains(from), "{from}\n{document}");
        let (lines, count) =
            apply(&registry, &mut h, &document.replace(from, to), &[]).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(lines.len() == 1 && lines[0].starts_with(line), "{to}: {lines:?}");
        assert_eq!(count, 1, "{to}");
    }
}

#[test]
fn what_is_not_owned_is_left_alone() {
    let registry = Rc::new(registry());
    let base = "create packet-generator interface pg0
        set interface ip address pg0 10.0.0.1/24
        set interface mtu 1400 pg0
        ip route add 192.0.2.0/24 via 10.0.0.2 pg0
        ip route add 198.51.100.0/24 via 10.0.0.2 pg0
        create loopback interface instance 0";
    let routes = "routes: {0: {192.0.2.0/24: [{next_hop: 10.0.0.3, interface: pg0}]}}";
    let mut h = made(&registry, base);
    let (lines, count) = apply(&registry, &mut h, routes, &["routes"]).unwrap();
    assert_eq!((lines.len(), count), (2, 2), "{lines:?}");
    assert!(lines[0].starts_with("- routes/0/198.51.100.0/24: "), "{lines:?}");
    // The document may say it itself, and may own a name.
    let part = "own: [interfaces/pg0]\ninterfaces: {pg0: {packet_generator: {}, mtu: 1300}}";
    let (lines, _) = apply(&registry, &mut h, part, &[]).unwrap();
    assert_eq!(lines, ["- interfaces/pg0/addresses: 10.0.0.1/24", "~ interfaces/pg0/mtu: 1400 -> 1300"]);
    let wrong = plan(&registry, &h, "interfaces: {pg0: {mtu: 9}}\n", &["routes"]).unwrap_err();
    assert_eq!(
        wrong,
        "lab.yaml:1:25: interfaces.pg0.mtu is not one of the parts that are owned; own interfaces/pg0/mtu, or take it out"
    );
    let wrong = plan(&registry, &h, "{}", &["rotues/5"]).unwrap_err();
    assert_eq!(wrong, "unknown part `rotues/5'; did you mean `routes'?");
}

#[test]
fn what_goes_without_saying_may_be_said() {
    let registry = Rc::new(registry());
    let mut h = made(&registry, "create packet-generator interface pg0");
    let text = "interfaces: {pg0: {packet_generator: , up: false, promiscuous: false, mtu: 9000}}";
    let (lines, _) = apply(&registry, &mut h, text, &[]).unwrap();
    assert_eq!(lines, ["+ interfaces/pg0/mtu: 9000"]);
    assert_eq!(configuration(&registry, &h.router), "create packet-generator interface pg0\n");
}

#[test]
fn mistakes_have_a_place_and_a_remedy() {
    let registry = registry();
    let h = Harness::new();
    for (text, expected) in [
        ("interfaces: {loop0: {mtuu: 5}}", "lab.yaml:1:22: interfaces.loop0: unknown key `mtuu'; did you mean `mtu'?"),
        ("interfaces:\n  loop0:\n    mtu: abc\n", "lab.yaml:3:10: interfaces.loop0.mtu: expected <bytes>, a number, not `abc'"),
        ("interfaces:\n  loop0:\n    mtu: -1\n", "lab.yaml:3:10: interfaces.loop0.mtu: invalid value: integer `-1`, expected u32"),
        ("interfacs: {}", "lab.yaml:1:1: unknown key `interfacs'; did you mean `interfaces'?"),
        ("routes: {0: {10.0.0.0/33: [{kind: drop}]}}", "lab.yaml:1:27: routes.0.10.0.0.0/33: "),
        ("routes: {0: {10.0.0.0/8: [{next_hup: 10.0.0.1}]}}", "did you mean `next_hop'?"),
        ("routes: {main: {}}", "lab.yaml:1:10: routes: unknown key `main'; expected <table>"),
        (
            "interfaces: {loop0: {addresses: 10.0.0.1/24}}",
            "lab.yaml:1:33: interfaces.loop0.addresses: expected a list, not `10.0.0.1/24'",
        ),
        (
            "interfaces: {loop0: {addresses: [10.0.0.1]}}",
            "interfaces.loop0.addresses: expected link-local or no <address>/<len> or <address>/<len>, not `10.0.0.1'",
        ),
        ("interfaces: [loop0]", "lab.yaml:1:13: interfaces: expected keys ("),
        (
            "interfaces: {loop0: {loopback: {mec: 1}}}",
            "lab.yaml:1:33: interfaces.loop0.loopback: unknown key `mec'; did you mean `mac'?",
        ),
        ("tables: {ip4: {5: {nam: x}}}", "lab.yaml:1:20: tables.ip4.5: unknown key `nam'; did you mean `name'?"),
        ("a: [", "lab.yaml:1:"),
        ("a: {b: 1, b: 2}", "lab.yaml:1:"),
        ("operations: [{operation: interfaec_set}]", "did you mean `interface_set'?"),
    ] {
        let error = plan(&registry, &h, text, &[]).err().unwrap_or_else(|| panic!("{text}: no error"));
        assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn a_document_that_cannot_be_made_says_what_differs() {
    let registry = Rc::new(registry());
    let mut h = Harness::new();
    let text = "interfaces: {pg0: {packet_generator: {}, bridge: {domain: 9}}}";
    let error = apply(&registry, &mut h, text, &[]).unwrap_err();
    assert!(error.contains("create bridge-domain 9"), "{error}");
}

#[test]
fn the_schema_names_all_subjects() {
    let registry = registry();
    let schema = registry.book().schema();
    for subject in ["interfaces", "routes", "tables", "bridge_domains", "neighbors", "own", "operations"] {
        assert!(schema["properties"][subject].is_object(), "{subject}");
    }
    let interface = &schema["properties"]["interfaces"]["patternProperties"]["^.+$"];
    assert_eq!(interface["properties"]["up"]["anyOf"][0]["type"], "boolean", "{interface:#}");
}
