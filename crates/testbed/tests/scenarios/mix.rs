//! The shipped MIX configuration: IPv4, IPv6 and bridging at once on the same ports, each frame treated as what it is.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, workers};
use quiver_testbed::{Host, Router, Scenario};

/// The configuration that is shipped.
const MIX: &str = include_str!("../../../../docs/mix.cli");
/// Packets of each kind and direction.
const N: usize = 20_000;
const PORT: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
const HOST: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];

/// The shipped commands on generator ports in place of kernel ones, and what hosts behind them would have told.
fn router(host: &Host, workers: u32) -> Router {
    let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}\n") };
    let router = Router::start(host, &cpu).expect("router");
    for (n, mac) in PORT.iter().enumerate() {
        router.cli(&format!("create packet-generator interface pg{n} hw-addr {mac}")).expect("port");
    }
    let own = MIX.lines().filter(|line| !line.starts_with("create host-interface")).collect::<Vec<_>>().join("\n");
    router.script(&own.replace("host-r0", "pg0").replace("host-r1", "pg1")).expect("the shipped configuration");
    for (n, mac) in HOST.iter().enumerate() {
        for address in [format!("10.0.{}.2", n + 1), format!("2001:db8:{}::2", n + 1)] {
            router.cli(&format!("set ip neighbor pg{n} {address} {mac} static")).expect("neighbour");
        }
    }
    router
}

/// Streams of all kinds into port `n`, for what is behind the other one.
fn streams(router: &Router, n: usize, workers: u32) {
    let (here, there) = (n + 1, 2 - n);
    let worker = if workers > 1 { n } else { 0 };
    let kinds = [
        ("four", format!("IP4: {} -> {} UDP: 10.0.{here}.2 -> 10.0.{there}.2 UDP: 1 - 999 -> 9", HOST[n], PORT[n])),
        ("six", format!("IP6: {} -> {} UDP: 2001:db8:{here}::2 -> 2001:db8:{there}::2 UDP: 1 - 999 -> 9", HOST[n], PORT[n])),
        ("two", format!("IP4: {} -> {} vlan 100 UDP: 192.0.2.1 -> 192.0.2.2 UDP: 1 - 999 -> 9", HOST[n], HOST[1 - n])),
    ];
    for (kind, data) in kinds {
        let stream = format!("name {kind}{n} limit {N} size 80-80 interface pg{n} node ethernet-input worker {worker}");
        router.cli(&format!("packet-generator new {{ {stream} data {{ {data} incrementing 10 }} }}")).expect("stream");
    }
}

/// Frames of the load in a capture file: IPv4, IPv6, bridged; each as it has to leave port `n`.
fn count(pcap: &[u8], n: usize) -> [usize; 3] {
    let mac = |text: &str| -> Vec<u8> { text.split(':').map(|b| u8::from_str_radix(b, 16).expect("hex")).collect() };
    let (host, port, other) = (mac(HOST[n]), mac(PORT[n]), mac(HOST[1 - n]));
    let mut counts = [0; 3];
    let mut rest = &pcap[24..];
    while rest.len() >= 16 {
        let len = u32::from_ne_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let frame = &rest[16..16 + len];
        rest = &rest[16 + len..];
        let routed = frame[..6] == host && frame[6..12] == port;
        let bridged = frame[..6] == host && frame[6..12] == other;
        // The TTL is one less where the frame was routed, and only there.
        match (&frame[12..14], routed, bridged) {
            ([8, 0], true, _) if frame[23] == 17 && frame[22] == 63 => counts[0] += 1,
            ([0x86, 0xdd], true, _) if frame[20] == 17 && frame[21] == 63 => counts[1] += 1,
            ([0x81, 0], _, true) if frame[14..18] == [0, 100, 8, 0] && frame[26] == 64 => counts[2] += 1,
            _ => {}
        }
    }
    counts
}

#[test]
fn three_kinds_of_traffic_share_two_ports_and_none_is_lost() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for workers in workers() {
        let host = Host::new("mix").expect("host");
        let router = router(&host, *workers);
        let file = |n: usize| router.file(&format!("pg{n}.pcap"));
        for n in 0..2 {
            router.cli(&format!("packet-generator capture pg{n} pcap {}", file(n).display())).expect("capture");
            streams(&router, n, *workers);
        }
        router.cli("packet-generator enable-stream").expect("streams run");
        eventually("all has been sent", BOUND, || !router.cli("show packet-generator").unwrap().contains("Yes"));
        for n in 0..2 {
            router.cli(&format!("packet-generator capture pg{n} disable")).expect("end of capture");
            let pcap = std::fs::read(file(n)).expect("a capture file");
            assert_eq!(count(&pcap, n), [N; 3], "IPv4, IPv6, bridged out of port {n} with {workers} workers");
        }
        let addresses = router.cli("show l2fib all").expect("show l2fib");
        assert!(HOST.iter().all(|mac| addresses.contains(mac)), "{addresses}");
        assert_buffers_are_back(&router);
    }
}
