//! The page of counters is what a router counts: `QUIVER_WRITE=1 cargo test -p quiver --test counters` writes it.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use common::Router;
use quiver_control::ops::statistics::MEANINGS;
use serde_json::Value;

/// Owners of counters, by what they count: reasons with severity and meaning.
type Owners = BTreeMap<Vec<(String, String, String)>, Vec<String>>;

/// A router with everything that counts.
fn router() -> Router {
    let router = Router::start("plugins { plugin default { enable } }");
    for line in [
        "nat44 plugin enable",
        "create bridge-domain 10",
        "create bond mode xor",
        "create loopback interface instance 0",
        "create packet-generator interface pg0",
        "create pcap-interface name c tx c.pcap",
        "set interface ip address pg0 10.0.0.1/24",
        "bfd udp session add interface pg0 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 1000000 required-min-rx 1000000 detect-mult 3",
        "vrrp vr add pg0 vr_id 1 10.0.0.100",
    ] {
        router.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    router
}

fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_else(|| panic!("{field}: {row}")).to_owned()
}

/// What nodes count; those of interfaces stand for all interfaces.
fn owners(router: &Router) -> Owners {
    let mut by_node: BTreeMap<String, Vec<(String, String, String)>> = BTreeMap::new();
    for row in router.data("show errors verbose 2")["total"].as_array().unwrap() {
        let node = text(row, "node");
        let node = match node.rsplit_once('-') {
            Some((interface, "tx")) if !interface.contains('-') => "<if>-tx".to_owned(),
            Some((interface, "output")) if ["local0", "loop0", "pg0", "c", "BondEthernet0"].contains(&interface) => {
                "<if>-output".to_owned()
            }
            _ => node,
        };
        let reason = (text(row, "reason"), text(row, "severity"), text(row, "meaning"));
        let reasons = by_node.entry(node).or_default();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let mut owners = Owners::new();
    by_node.into_iter().for_each(|(node, reasons)| owners.entry(reasons).or_default().push(node));
    owners
}

fn page(owners: &Owners) -> String {
    let mut out = String::from(
        "# Counters\n\nEverything that a router counts, generated from its declarations.\n\n## Drops and events\n\n\
         `show errors` shows them by node, `show errors verbose` also by thread; JSON has the meanings too. An `error` is a dropped packet or\n\
         something that should not be, an `info` an event. To find a drop: [why is my packet lost?](how-to/lost-packets.md)\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    let mut sorted: Vec<_> = owners.iter().collect();
    sorted.sort_by_key(|(_, nodes)| nodes.first().cloned());
    for (reasons, nodes) in sorted {
        let nodes: Vec<_> = nodes.iter().map(|node| format!("`{node}`")).collect();
        let _ = writeln!(out, "\n### {}\n\n| reason | severity | meaning |\n| --- | --- | --- |", nodes.join(", "));
        for (reason, severity, meaning) in reasons {
            let _ = writeln!(out, "| `{}` | {severity} | {} |", cell(reason), cell(meaning));
        }
    }
    out.push_str(
        "\n## The statistics segment\n\nWhat readers of `statseg { }` find ([api.md](api.md)); `show statistics segment` lists it. Counters have a row for \
         each thread.\n`<direction>` of NAT44 is `in2out` or `out2in`, `<path>` is `fastpath` for packets of sessions that are there, \
         `slowpath` for those that make\none.\n\n| entry | meaning |\n| --- | --- |\n",
    );
    for (name, meaning) in MEANINGS {
        let _ = writeln!(out, "| `{name}` | {} |", cell(meaning));
    }
    out
}

#[test]
fn the_counters_page_is_what_a_router_counts() {
    let router = router();
    let owners = owners(&router);
    for (reasons, nodes) in &owners {
        for (reason, _, meaning) in reasons {
            assert!(meaning.ends_with('.'), "{nodes:?}: say what `{reason}' means, by a doc comment in its declaration");
        }
    }
    let page = page(&owners);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
    if std::env::var_os("QUIVER_WRITE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(page == written, "docs/counters.md is not up to date (QUIVER_WRITE=1 writes it): {differs:?}");
}

#[test]
fn every_entry_of_the_statistics_has_a_meaning_and_every_meaning_an_entry() {
    let mut router = router();
    router.wait_for("the gauges are there", |router| {
        let rows = router.data("show statistics segment");
        rows.as_array().unwrap().iter().any(|row| row["name"] == "/buffer-pools/default-numa-0/used")
    });
    let rows = router.data("show statistics segment verbose");
    let mut seen: Vec<String> = Vec::new();
    for row in rows.as_array().unwrap() {
        assert!(row["meaning"].is_string(), "{row}: name it in control/src/ops/statistics.rs");
        seen.push(text(row, "meaning"));
    }
    for (name, meaning) in MEANINGS {
        assert!(seen.iter().any(|seen| seen == meaning), "nothing has the name {name}");
    }
}
