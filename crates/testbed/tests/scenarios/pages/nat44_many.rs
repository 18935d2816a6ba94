//! NAT44 with the published scenario: 65,536 clients, one destination, one source port, a pool of 256 addresses, no answers.
//!
//! The router makes the load itself, so that it comes as fast as the graph takes it: a stream of clients (10.0.0.1 and the
//! 65,535 addresses after it, UDP 1025 to 12) and a stream that stands for measured latency (16.0.0.1, UDP 1234 to 1234, 5,000
//! packets a second), both to 48.0.0.1. `QUIVER_NAT_SECONDS` sets how long each frame size runs.

use crate::common;

use std::collections::HashSet;
use std::time::Duration;

use common::{BOUND, assert_buffers_are_back, counter, errors, eventually};
use quiver_testbed::{Host, Router, Scenario, is_short_pass};
use serde_json::Value;

const CLIENTS: u64 = 65_536;
const LATENCY_RATE: u64 = 5_000;
/// Sizes of Ethernet frames with FCS.
const FRAMES: [usize; 5] = [64, 512, 889, 1280, 1518];
const FCS: usize = 4;
/// Packets that leave on pg1 by themselves.
const ANNOUNCED: u64 = 2;

fn seconds() -> u64 {
    std::env::var("QUIVER_NAT_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn router(host: &Host, workers: u32, size: usize, seconds: u64) -> Router {
    let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}\n") };
    let router = Router::start(host, &format!("unix {{ }}\n{cpu}")).expect("router");
    let stream = |name: &str, size: usize, more: &str, ends: &str| {
        format!(
            "packet-generator new {{ name {name} size {size}-{size} interface pg0 node ethernet-input {more} \
             data {{ IP4: 02:00:00:00:00:09 -> 02:00:00:00:00:01 {ends} incrementing 18 }} }}\n"
        )
    };
    let clients = stream("clients", size - FCS, "", "UDP: 10.0.0.1 - 10.1.0.0 -> 48.0.0.1 UDP: 1025 -> 12");
    let limit = format!("limit {} rate {LATENCY_RATE}", LATENCY_RATE * seconds);
    let latency = stream("latency", 64 - FCS, &limit, "UDP: 16.0.0.1 -> 48.0.0.1 UDP: 1234 -> 1234");
    let script = format!(
        "create packet-generator interface pg0 hw-addr 02:00:00:00:00:01\n\
         create packet-generator interface pg1 hw-addr 02:00:00:00:00:02\n\
         set interface state pg0 up\nset interface state pg1 up\n\
         set interface ip address pg0 172.16.0.1/24\nset interface ip address pg1 198.51.100.1/24\n\
         set ip neighbor pg1 198.51.100.2 02:00:00:00:00:03 static\nip route add 48.0.0.0/8 via 198.51.100.2 pg1\n\
         nat44 plugin enable\nnat44 add address 203.0.113.0 - 203.0.113.255\nset interface nat44 in pg0 out pg1\n\
         {clients}{latency}"
    );
    router.script(&script).expect("configuration");
    // An address is announced twice (RFC 5227): what is counted after that is the load.
    eventually("pg1's address is announced", BOUND, || counter(&router, "pg1", "tx packets") == ANNOUNCED);
    router
}

fn json(router: &Router, line: &str) -> Value {
    serde_json::from_str(&router.cli_json(line).expect("an answer")).expect("JSON")
}

/// Packets that a stream has sent, and whether it is done.
fn stream(router: &Router, name: &str) -> (u64, bool) {
    let all = json(router, "show packet-generator");
    let one = all["streams"].as_array().and_then(|list| list.iter().find(|s| s["name"] == name)).expect("the stream");
    (one["sent"].as_u64().expect("a number"), one["enabled"] == false)
}

/// Runs both streams until the latency stream has sent all of its packets and every client at least one.
fn load(router: &Router, seconds: u64) -> (u64, u64) {
    router.cli("packet-generator enable-stream").expect("streams run");
    eventually("the streams send", BOUND + Duration::from_secs(seconds), || {
        stream(router, "latency").1 && stream(router, "clients").0 >= CLIENTS
    });
    router.cli("packet-generator disable-stream clients").expect("the stream stops");
    eventually("everything has left", BOUND, || stream(router, "clients").1);
    (stream(router, "clients").0, stream(router, "latency").0)
}

/// Packets that the sessions of the clients and the one of the latency stream have carried. Asserts that there is one for
/// each endpoint inside, so many in all, and that none shares what it looks like from outside.
fn sessions(router: &Router, wanted: Option<usize>) -> (u64, u64) {
    let all = json(router, "show nat44 sessions");
    let list = all["sessions"].as_array().expect("a list");
    let ends = |key: &str| -> HashSet<String> { list.iter().map(|s| format!("{} {}", s["proto"], s[key])).collect() };
    let wanted = wanted.unwrap_or(list.len());
    assert_eq!((list.len(), ends("i2o").len(), ends("o2i").len()), (wanted, wanted, wanted), "sessions, inside, outside");
    let carried = |latency: bool| {
        let of = list.iter().filter(|s| (s["i2o"]["saddr"] == "16.0.0.1") == latency);
        of.map(|s| s["packets"].as_u64().expect("a number")).sum()
    };
    (carried(false), carried(true))
}

#[test]
fn no_packet_of_65536_clients_is_lost_at_any_frame_size() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let seconds = seconds();
    let sizes = if is_short_pass() { &FRAMES[..1] } else { &FRAMES[..] };
    for size in sizes {
        let host = Host::new("nat").expect("host");
        let router = router(&host, 1, *size, seconds);
        let (clients, latency) = load(&router, seconds);
        assert_eq!(latency, LATENCY_RATE * seconds);
        assert_eq!(sessions(&router, Some(CLIENTS as usize + 1)), (clients, latency), "translated");
        assert_eq!(counter(&router, "pg1", "tx packets") - ANNOUNCED, clients + latency, "sent on");
        println!("{size} bytes: {clients} + {latency} packets in {seconds} s, none lost");
        assert_buffers_are_back(&router);
    }
}

#[test]
fn several_workers_account_for_every_packet_of_all_clients() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for workers in [0, 2, 4] {
        let host = Host::new("nat").expect("host");
        let router = router(&host, workers, 64, 1);
        let (clients, latency) = load(&router, 1);
        // One worker makes the load of all: what the others do not keep up with is counted, and what it has handed to them leaves later.
        let left = || counter(&router, "pg1", "tx packets") - ANNOUNCED;
        eventually("every packet is accounted for", BOUND, || {
            left() + errors(&router, "nat44-ed-in2out-handoff", "congestion") == clients + latency
        });
        let (clients, latency) = sessions(&router, None);
        assert_eq!(counter(&router, "pg1", "tx packets") - ANNOUNCED, clients + latency, "{workers} workers");
        assert_buffers_are_back(&router);
    }
}
