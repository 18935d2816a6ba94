//! The short form of the attack program: counts small enough for every run of the tests. The long form is `scripts/attack`.

use std::process::Command;
use std::time::Duration;

use quiver_testbed::{Host, Router, Scenario};
use serde_json::Value;

#[test]
fn the_short_form_of_the_attack_program_finds_nothing() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    // Only to learn early, and in words, where namespaces or the binary are missing.
    drop(Host::new("probe").expect("a namespace"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_quiver-attack"));
    command.env("QUIVER_BIN", Router::binary().expect("the router"));
    let parts = ["frames", "40000", "memif", "200000", "rings", "3000", "api", "3000", "cli", "3000"];
    command.args(parts).args(["--seed", "1", "--json"]);
    let begun = std::time::Instant::now();
    let out = command.output().expect("quiver-attack");
    let text = String::from_utf8_lossy(&out.stdout);
    let report: Value = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text}\n{out:?}"));
    let parts = report["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), 5);
    for part in parts {
        assert_eq!(part["finds"].as_array().map(Vec::len), Some(0), "{part:#}");
        // CPU time, not time: a bound that a busy machine does not break.
        assert!(part["longest_ms"].as_f64() < Some(1000.0), "{part:#}");
        assert!(part["count"].as_u64() >= Some(3000), "{part:#}");
        let is_request = part["part"] == "api" || part["part"] == "cli";
        assert!(!is_request || part["accepted"].as_u64() > Some(300), "most are refused for the same reason: {part:#}");
    }
    assert!(out.status.success(), "{report:#}");
    assert!(begun.elapsed() < Duration::from_secs(1800));
}
