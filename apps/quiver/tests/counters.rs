//! The pages of counters and of drops are what a router counts: `QUIVER_WRITE=1 cargo test -p quiver --test counters` writes them.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use common::Router;
use quiver_control::ops::explain::word_of;
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
        "set acl-plugin acl permit src 192.0.2.0/24",
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

/// Explanations of reasons that say more than a sentence, by reason.
type Explained = BTreeMap<String, Vec<Value>>;

fn explained(router: &Router, owners: &Owners) -> Explained {
    let mut explained = Explained::new();
    for (reason, ..) in owners.keys().flatten() {
        let answer = router.data(&format!("explain drop {reason}"));
        let rows = answer.as_array().unwrap().iter().filter(|row| row["reason"] == reason.as_str());
        let long: Vec<_> = rows.filter(|row| row["causes"] != "").cloned().collect();
        if !long.is_empty() {
            explained.insert(reason.clone(), long);
        }
    }
    explained
}

fn drops(owners: &Owners, explained: &Explained) -> String {
    let mut out = String::from(
        "# Drops explained\n\nThe drop reasons that operators meet most: what each means, where it often comes from, and what to do. \
         `explain drop REASON` prints\nthe same with the counts of the router; Tab completes reasons. Generated from the declarations. \
         [Counters](counters.md) lists all reasons.\n\n\
         ```\nquiver# explain drop                      # everything that was dropped since the last `clear errors\'\n\
         quiver# explain drop no route\n```\n",
    );
    for (reason, rows) in explained {
        let _ = writeln!(out, "\n## {reason}");
        for row in rows {
            let meaning = text(row, "meaning");
            let is_this = |reasons: &[(String, String, String)]| reasons.iter().any(|(r, _, m)| r == reason && *m == meaning);
            let nodes: Vec<_> = owners.iter().filter(|(reasons, _)| is_this(reasons)).flat_map(|(_, nodes)| nodes).collect();
            let nodes: Vec<_> = nodes.iter().map(|node| format!("`{node}`")).collect();
            let see: Vec<_> = row["see"].as_array().unwrap().iter().map(|see| format!("`{}`", see.as_str().unwrap())).collect();
            let _ = writeln!(out, "\n{meaning} Counted by {}.\n", nodes.join(", "));
            let _ = writeln!(out, "- Causes: {}", text(row, "causes"));
            let _ = writeln!(out, "- Check: {}", text(row, "check"));
            let _ = writeln!(out, "- See: {}", see.join(", "));
        }
    }
    out
}

/// Writes a page where that is asked for, and compares it with what is there.
fn check_page(name: &str, page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("QUIVER_WRITE").is_some() {
        std::fs::write(&file, page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(page == written, "docs/{name} is not up to date (QUIVER_WRITE=1 writes it): {differs:?}");
}

fn page(owners: &Owners, explained: &Explained) -> String {
    let mut out = String::from(
        "# Counters\n\nEverything that a router counts, generated from its declarations.\n\n## Drops and events\n\n\
         `show errors` shows them by node, `show errors verbose` also by thread; JSON has the meanings too. An `error` is a dropped packet or\n\
         something that should not be, an `info` an event. To find a drop: [why is my packet lost?](how-to/lost-packets.md)\n\
         Reasons with a link are [explained](drops.md) with causes and what to do, by `explain drop REASON` too.\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    let mut sorted: Vec<_> = owners.iter().collect();
    sorted.sort_by_key(|(_, nodes)| nodes.first().cloned());
    for (reasons, nodes) in sorted {
        let nodes: Vec<_> = nodes.iter().map(|node| format!("`{node}`")).collect();
        let _ = writeln!(out, "\n### {}\n\n| reason | severity | meaning |\n| --- | --- | --- |", nodes.join(", "));
        for (reason, severity, meaning) in reasons {
            let has_more = explained.get(reason).is_some_and(|rows| rows.iter().any(|row| row["meaning"] == meaning.as_str()));
            let name = match has_more {
                true => format!("[`{}`](drops.md#{})", cell(reason), word_of(reason)),
                false => format!("`{}`", cell(reason)),
            };
            let _ = writeln!(out, "| {name} | {severity} | {} |", cell(meaning));
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
    let explained = explained(&router, &owners);
    assert!(explained.len() > 60, "{}", explained.len());
    check_page("counters.md", &page(&owners, &explained));
    check_page("drops.md", &drops(&owners, &explained));
}

#[test]
fn what_explanations_point_at_is_there() {
    let router = router();
    let commands = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md")).unwrap();
    for (reason, rows) in explained(&router, &owners(&router)) {
        for row in rows {
            for field in ["meaning", "causes", "check"] {
                assert!(text(&row, field).ends_with('.'), "{reason}: {field}");
            }
            let see = row["see"].as_array().unwrap();
            assert!(!see.is_empty(), "{reason}: name commands");
            for see in see.iter().map(|see| see.as_str().unwrap()) {
                let is_there = match see.starts_with('/') {
                    true => MEANINGS.iter().any(|(name, _)| *name == see),
                    false => {
                        let words: Vec<_> = see.split(' ').take_while(|word| !word.contains(|c: char| c.is_uppercase())).collect();
                        // Words behind the path of a command are some of its arguments.
                        (1..=words.len()).any(|n| commands.contains(&format!("\n| `{}", words[..n].join(" "))))
                    }
                };
                assert!(is_there, "{reason}: there is no `{see}'");
            }
        }
    }
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
