//! Documents of the configuration: what the router exports is valid by the published schema, and applied by `quiverctl` it is the same.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Folder, Json, Router, STATE};
use serde_json::{Value, json};

/// A configuration with something of most subjects.
const LINES: &str = "create packet-generator interface pg0
create packet-generator interface pg1
create packet-generator interface pg2
create loopback interface instance 0
create loopback interface instance 3 mac 2:0:0:0:0:3
create sub-interfaces pg0 7
create sub-interfaces pg0 8 dot1ad 9 inner-dot1q 10
set interface name loop3 inner
ip table add 5 name blue
ip6 table add 5
set ip flow-hash table 5 src dst
set interface ip table inner 5
set interface ip address pg0 10.0.0.1/24
set interface ip address pg0 2001:db8::1/64
set interface ip address inner 192.0.2.1/32
set interface unnumbered pg0.7 use loop0
set interface mtu 1400 pg0
set interface mtu ip6 1300 pg0
set interface mac address pg1 2:0:0:0:0:8
set interface tag pg0 to the  cellar
set interface promiscuous on pg0
set interface state pg0 up
set interface proxy-arp pg0 enable
set arp proxy start 10.5.0.1 end 10.5.0.9
create bridge-domain 7 learn 0 arp-term 1 mac-age 9 bd-tag red
set bridge-domain arp entry 7 10.0.0.9 02:00:00:00:00:09
set interface l2 bridge pg1 7 3
set interface l2 learn pg1 disable
l2fib add 02:00:00:00:00:01 7 pg1 static
ip route add 10.9.0.0/16 table 5 via 10.0.0.2 pg0 weight 2 via 10.0.0.3 pg0 preference 1
ip route add source api 10.9.0.0/16 via drop
ip route add 10.9.0.0/16 via 10.0.0.9 next-hop-table 5 resolve-via-attached
set ip pmtu 10.0.0.2 900
ip neighbor pg0 10.0.0.2 02:00:00:00:00:02 static
ip neighbor pg0 10.0.0.3 02:00:00:00:00:03 static no-fib-entry
set ip neighbor-config ip4 limit 9 age 100 norecycle
set ip icmp-rate-limit total 9 ip4
ip6 nd pg0 ra-interval 40 20
ip6 nd pg0 prefix 2001:db8:1::/64 infinite no-autoconfig
set urpf ip4 rx loose pg0
set urpf-accept 198.51.100.0/24
classify table mask l3 ip4 src acl-miss-next deny
classify table mask l3 ip4 dst next-table 0
classify session table-index 0 match l3 ip4 src 10.0.0.9 opaque-index 4
set interface input acl intfc pg0 ip4-table 1
set acl-plugin acl deny proto tcp dport 22, permit+reflect src 2001:db8::/32 tag in
set acl-plugin acl index 7 permit src 192.0.2.0/24 proto 6 sport 1-9 tcpflags 2 mask 18
set acl-plugin interface pg0 input acl 7
set acl-plugin interface pg0 input acl 0
set acl-plugin interface pg2 output acl 0
set acl-plugin ethertype pg0 input type 0x0806 type 0x88cc
set acl-plugin session timeout tcp transient 60
set acl-plugin session table max-entries 9000
set acl-plugin reclassify-sessions 1
policer add name gold type 1r3c cir 8000 cb 10000 eb 10000 exceed-action mark-and-transmit AF12
policer input name gold pg0
policer output name gold pg2
ip punt policer name gold
set logging size 200
define LINK pg0
nat44 plugin enable sessions 1000
nat44 add address 192.0.2.10 - 192.0.2.20
set interface nat44 in pg0
set interface nat44 out pg2
nat44 add static mapping tcp local 10.0.0.5 80 external 192.0.2.5 8080
set nat timeout udp 77 icmp 8
vrrp vr add pg0 vr_id 51 priority 120 10.0.0.254
vrrp vr track-if add pg0 vr_id 51 track-index pg2 priority 9
vrrp proto start pg0 vr_id 51
bfd udp session add interface pg0 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 100000 required-min-rx 100000 detect-mult 3
create bond mode lacp load-balance l34 id 1";

fn asked(router: &Router, op: &str, request: Value) -> Value {
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    client.send(&json!({"op": op, "request": request}));
    client.answer()
}

fn document(router: &Router) -> String {
    asked(router, "configuration_document_show", Value::Null)["data"]["document"].as_str().unwrap().to_owned()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_a_router_exports_makes_another_one_the_same() {
    let first = Router::start("");
    for line in LINES.lines() {
        first.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let text = document(&first);
    assert!(!text.contains("operations:"), "all of it has its place: {text}");
    // By a program that knows nothing but the schema, where it is installed.
    let folder = Folder::new();
    let as_json = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.schema.json");
    let check = |text: &str| {
        let as_json = as_json.clone();
        let script = "import json, sys, yaml, jsonschema\n\
            schema = json.load(open(sys.argv[1])); jsonschema.Draft202012Validator.check_schema(schema)\n\
            errors = [f'{e.json_path}: {e.message}' for e in jsonschema.Draft202012Validator(schema).iter_errors(json.loads(json.dumps(yaml.safe_load(open(sys.argv[2])))))]\n\
            sys.exit('\\n'.join(errors)[:2000] or 0)";
        let file = folder.file("document.yaml", text);
        move |python: &str| Command::new(python).args(["-c", script]).arg(&as_json).arg(&file).output().unwrap()
    };
    let has = |python: &&&str| {
        let output = Command::new(python).args(["-c", "import jsonschema, yaml; jsonschema.Draft202012Validator"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if let Some(python) = ["python3", "/usr/bin/python3"].iter().find(has) {
        let output = check(&text)(python);
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        let output = check(&text.replace("mtu: 1400", "mtu: large"))(python);
        assert!(String::from_utf8_lossy(&output.stderr).contains("mtu"), "a mistake is found: {output:?}");
    } else {
        println!("skipped: no Python has jsonschema and yaml");
    }
    // It changes nothing here, and another router becomes the same by it.
    let plan = asked(&first, "configuration_apply", json!({"document": text, "plan": true}));
    assert_eq!((&plan["status"], &plan["data"]["changes"]), (&json!("ok"), &json!([])), "{plan}");
    let second = Router::start("");
    let applied = asked(&second, "configuration_apply", json!({"document": text}));
    assert_eq!((&applied["status"], &applied["data"]["applied"]), (&json!("ok"), &json!(true)), "{applied}\n{text}");
    let configuration = |router: &Router| router.ask("show configuration").unwrap();
    assert_eq!(sorted(&configuration(&second)), sorted(&configuration(&first)));
    assert_eq!(document(&second).len(), text.len());
    // And taken back.
    second.ask("rollback 1").unwrap();
    assert_eq!(configuration(&second), "");
}

#[test]
fn an_application_that_fails_leaves_all_as_it_was_and_one_that_waits_goes_back() {
    let router = Router::start(STATE);
    router.ask("create loopback interface instance 0").unwrap();
    let before = router.ask("show configuration").unwrap();
    // The second interface has the first one's address.
    let wrong = "interfaces: {loop0: {loopback: {}, addresses: [10.0.0.1/24]}, loop1: {loopback: {}, addresses: [10.0.0.1/24]}}";
    let answer = asked(&router, "configuration_apply", json!({"document": wrong, "name": "lab.yaml"}));
    assert_eq!(answer["status"], "error", "{answer}");
    let said = answer["text"].as_str().unwrap();
    assert!(said.contains("all is as before") && said.contains("10.0.0.1"), "{said}");
    assert_eq!(router.ask("show configuration").unwrap(), before);
    // Until it is confirmed it may go back.
    let right = "interfaces: {loop0: {loopback: {}, addresses: [10.0.0.1/24]}}";
    let answer = asked(&router, "configuration_apply", json!({"document": right, "confirmed": "1h"}));
    assert_eq!((&answer["data"]["applied"], &answer["data"]["confirm_within"]), (&json!(true), &json!("1h")), "{answer}");
    router.ask("revert").unwrap();
    assert_eq!(router.ask("show configuration").unwrap(), before);
    // Not within a candidate.
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    assert_eq!(client.ask("configure", false)["status"], "ok");
    client.send(&json!({"op": "configuration_apply", "request": {"document": right}}));
    assert!(client.answer()["text"].as_str().unwrap().contains("candidate"));
}
