//! The tester's measurements of RFC 9693 against the router's NAT44, whose table has a known size.

use crate::common;

use std::path::PathBuf;
use std::time::Duration;

use common::assert_buffers_are_back;
use quiver_testbed::{Host, Output, Router, Scenario};
use serde_json::Value;

/// Time for one measurement.
const BOUND: Duration = Duration::from_secs(180);
/// Sessions that the router has room for.
const LIMIT: u64 = 40;

/// A program beside the router's, unless an environment variable names it.
pub(crate) fn beside(variable: &str, name: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.unwrap_or_else(|| Router::binary().expect("a router").with_file_name(name))
}

/// A router between two memif interfaces, inside and outside, the tester as the next hop on both.
pub(crate) fn router(host: &Host, sessions: u64) -> Router {
    let router = Router::start(host, "").expect("router");
    let socket = router.folder().join("tester.sock");
    let script = format!(
        "create memif socket id 1 filename {}\n\
         create interface memif id 0 socket-id 1 master\ncreate interface memif id 1 socket-id 1 master\n\
         set interface state memif1/0 up\nset interface state memif1/1 up\n\
         set interface ip address memif1/0 192.0.2.1/24\nset interface ip address memif1/1 192.0.3.1/24\n\
         ip route add 198.18.0.0/16 via 192.0.2.2 memif1/0\nip route add 198.19.0.0/16 via 192.0.3.2 memif1/1\n\
         nat44 plugin enable sessions {sessions}\nnat44 add address 203.0.113.1\nset interface nat44 in memif1/0 out memif1/1\n",
        socket.display()
    );
    router.script(&script).expect("configuration");
    router
}

fn stateful(host: &Host, router: &Router, measure: &str, more: &[&str]) -> Output {
    let (program, control) = (beside("QUIVER_TESTER_BIN", "quiver-tester"), beside("QUIVERCTL_BIN", "quiverctl"));
    let socket = router.folder().join("tester.sock");
    let port = |id: u32, n: u32| {
        let keys = format!("ring=16384,ip4=192.0.{n}.2/24,gateway=192.0.{n}.1");
        format!("memif:socket={},id={id},role=client,{keys}", socket.display())
    };
    let clear = format!("{} -s {} clear nat44 ed sessions", control.display(), router.socket().display());
    let (left, right) = (port(0, 2), port(1, 3));
    let mut words = vec![program.to_str().expect("a path"), "stateful", measure, "--json", "--port", &left, "--port", &right];
    // Fewer frames than the tester's rings hold, and time for a router that is kept from running: none is lost by accident.
    words.extend(["--open-rate", "4000pps", "--timeout", "5"]);
    if !more.contains(&"--clear") {
        words.extend(["--clear", &clear]);
    }
    words.extend(more);
    host.run_args(&words, BOUND).expect("the tester runs")
}

fn outcome(output: Output) -> Value {
    let text = output.expect("an outcome");
    let outcome: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(outcome["schema"], "quiver-stateful/1");
    outcome
}

/// Sessions that the router shows.
fn sessions(router: &Router) -> u64 {
    let all: Value = serde_json::from_str(&router.cli_json("show nat44 sessions").expect("sessions")).expect("JSON");
    all["sessions"].as_array().expect("a list").len() as u64
}

#[test]
fn the_capacity_found_is_the_number_of_sessions_that_the_router_has_room_for() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    let router = router(&host, LIMIT);
    let outcome = outcome(stateful(&host, &router, "capacity", &["--connections", "32"]));
    let found = &outcome["found"];
    assert_eq!((found["capacity"].as_u64(), found["capacity_below"].as_u64()), (Some(LIMIT), Some(LIMIT + 1)), "{outcome:#}");
    assert_buffers_are_back(&router);
    router.stop().unwrap();
}

#[test]
fn open_connections_are_the_sessions_that_the_router_shows_and_carry_traffic() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    let router = router(&host, 300);
    for (asked, open) in [("200", 200), ("400", 300)] {
        let outcome = outcome(stateful(&host, &router, "connections", &["--connections", asked]));
        assert_eq!((outcome["found"]["connections"].as_u64(), sessions(&router)), (Some(open), open), "{outcome:#}");
    }
    let more = ["--connections", "300", "--rate", "1000pps", "--duration", "1"];
    let outcome = outcome(stateful(&host, &router, "trial", &more));
    let totals = &outcome["report"]["totals"];
    assert_eq!((totals["received"].as_u64(), sessions(&router)), (totals["sent"].as_u64(), 300), "{outcome:#}");
    assert!(totals["sent"].as_u64().is_some_and(|n| n > 0) && totals["foreign"] == 0, "{outcome:#}");
    // All of them go with the command.
    let outcome = self::outcome(stateful(&host, &router, "tear-down-rate", &["--connections", "300"]));
    assert_eq!((&outcome["found"]["left"], sessions(&router)), (&0.into(), 0), "{outcome:#}");
    assert_buffers_are_back(&router);
    router.stop().unwrap();
}

#[test]
fn a_measurement_that_cannot_be_is_one_clear_line() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    let router = router(&host, LIMIT);
    for (measure, more, words) in [
        ("capacity", &["--connections", "0"][..], "1 to 6451200 are possible"),
        ("connections", &["--connections", "9", "--responders", "2001:2::2"], "different families"),
        ("connections", &["--connections", "9", "--clear", "echo broken >&2; exit 3"], "broken (exit status: 3)"),
    ] {
        let output = stateful(&host, &router, measure, more);
        assert!(!output.success() && output.stderr.contains(words) && output.stderr.lines().count() == 1, "{output}");
    }
    router.stop().unwrap();
}
