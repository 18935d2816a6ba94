//! The tester's connections of TCP through the router, with and without NAT44 between clients and servers.

use crate::common;

use std::time::Duration;

use common::assert_buffers_are_back;
use quiver_testbed::{Host, Output, Router, Scenario};
use serde_json::Value;

use crate::nat44_stateful::{beside, router};

/// Time for one measurement.
const BOUND: Duration = Duration::from_secs(300);

/// A profile's file in the router's folder.
fn profile(router: &Router) -> String {
    let file = router.folder().join("tcp.yaml");
    let text = "name: test\nclients: 198.18.0.1-198.18.0.9\nservers: 198.19.0.1-198.19.0.3\nconnections:\n\
                - { name: page, share: 3, port: 80, request: { text: \"GET / HTTP/1.1\\r\\n\\r\\n\" }, response: 30000 }\n\
                - { name: upload, port: 443, request: 20000, response: 100, exchanges: 2, think: 1ms }\n";
    std::fs::write(&file, text).expect("a profile");
    file.display().to_string()
}

/// Runs the tester between the router's two memif interfaces; times are for a machine that is busy with something else.
fn tcp(host: &Host, router: &Router, rate: &str, more: &[&str]) -> Output {
    tcp_of(host, router, &profile(router), rate, more)
}

fn tcp_of(host: &Host, router: &Router, profile: &str, rate: &str, more: &[&str]) -> Output {
    let (program, socket) = (beside("QUIVER_TESTER_BIN", "quiver-tester"), router.folder().join("tester.sock"));
    let port = |id: u32, n: u32| {
        format!("memif:socket={},id={id},role=client,ring=16384,ip4=192.0.{n}.2/24,gateway=192.0.{n}.1", socket.display())
    };
    let (left, right) = (port(0, 2), port(1, 3));
    let mut words = vec![program.to_str().expect("a path"), "tcp", "--json", "--port", &left, "--port", &right];
    words.extend(["--profile", profile, "--rate", rate, "--duration", "1", "--departure-limit", "60000000", "--wait", "60"]);
    words.extend(more);
    host.run_args(&words, BOUND).expect("the tester runs")
}

fn report(output: Output) -> Value {
    let text = output.trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(report["schema"], "quiver-tcp-trial/1");
    report
}

/// What became of all connections: opened, established, completed, failed.
fn counts(report: &Value) -> [u64; 4] {
    let count = |key: &str| report[key].as_u64().expect("a count");
    let failed = ["reset", "timed_out", "corrupted", "unfinished"].map(count).iter().sum();
    [count("opened"), count("established"), count("completed"), failed]
}

#[test]
fn connections_say_all_they_have_to_say_with_a_translator_between_and_without() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for translated in [true, false] {
        let host = Host::new("tester").unwrap();
        let router = router(&host, 10_000);
        if !translated {
            router.cli("set interface nat44 in memif1/0 out memif1/1 del").expect("no translation");
        }
        let report = report(tcp(&host, &router, "200", &["--settle", "120", "--timeout", "60"]));
        let [opened, established, completed, failed] = counts(&report);
        assert!(opened > 0 && [established, completed, failed] == [opened, opened, 0], "{report:#}");
        let [page, upload] = [0, 1].map(|at| &report["connections"][at]);
        assert_eq!(page["response_bytes"].as_u64(), page["completed"].as_u64().map(|n| n * 30_000), "{page:#}");
        assert_eq!(upload["request_bytes"].as_u64(), upload["completed"].as_u64().map(|n| n * 40_000), "{upload:#}");
        assert_eq!(report["client"]["strange"].as_u64(), Some(0), "{report:#}");
        let shown: Value = serde_json::from_str(&router.cli_json("show nat44 sessions").expect("sessions")).expect("JSON");
        let sessions = shown["sessions"].as_array().map_or(0, Vec::len);
        assert_eq!(sessions > 0, translated, "{shown:#}");
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}

#[test]
fn connections_that_nobody_answers_are_counted_and_have_a_hint() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    let router = router(&host, 100);
    router.cli("ip route del 198.19.0.0/16 via 192.0.3.2 memif1/1").expect("no way");
    let report = report(tcp(&host, &router, "5", &["--settle", "120", "--timeout", "1"]));
    let [opened, established, completed, failed] = counts(&report);
    assert!(opened > 0 && (established, completed, failed) == (0, 0, opened), "{report:#}");
    assert_eq!(report["timed_out"], report["opened"], "{report:#}");
    assert!(report["hint"].as_str().is_some_and(|hint| hint.starts_with("nothing came to the servers")), "{report:#}");
    router.stop().unwrap();
}

#[test]
fn what_cannot_be_is_one_clear_line() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    let router = router(&host, 100);
    let missing = router.folder().join("missing.yaml").display().to_string();
    for (output, words) in [
        (tcp(&host, &router, "0", &[]), "a rate of 0 connections a second"),
        (tcp_of(&host, &router, &missing, "5", &[]), "missing.yaml: "),
        (tcp(&host, &router, "5", &["--port", "tap:third"]), "3 ports were given"),
    ] {
        assert!(!output.success() && output.stderr.contains(words) && output.stderr.lines().count() == 1, "{output}");
    }
    router.stop().unwrap();
}
