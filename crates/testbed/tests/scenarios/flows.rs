//! Flow records and samples, read by programs of others: the collectors of nfdump (`nfcapd`, `sfcapd`), and tshark.

use std::path::{Path, PathBuf};

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, workers};
use quiver_testbed::{Guard, Host, Router, Scenario, TwoHosts, TwoHostsOptions};

/// A collector that writes files into a folder of its own.
struct Collector {
    _process: Guard,
    folder: PathBuf,
}

impl Collector {
    /// Starts one on a host, at this UDP port.
    fn start(host: &Host, program: &str, port: u16, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let process = host.background(&format!("{program} -w {} -p {port} -t 2", folder.display())).unwrap();
        eventually("the collector listens", BOUND, || {
            host.sh("ss -Hlun", BOUND).unwrap().expect("ss").lines().any(|line| line.contains(&format!(":{port} ")))
        });
        Self { _process: process, folder: folder.to_owned() }
    }

    /// Packets and bytes of all flows of a protocol from one address to another that it has written so far.
    fn sum(&self, host: &Host, protocol: &str, src: &str, dst: &str) -> (u64, u64) {
        let filter = format!("proto {protocol} and src ip {src} and dst ip {dst}");
        let line = format!("nfdump -R {} -q -N -o 'fmt:%pkt %byt' '{filter}'", self.folder.display());
        let out = host.sh(&line, BOUND).unwrap();
        // Before the first file there is nothing to read.
        let numbers = out.stdout.lines().filter_map(|line| {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            Some((words.next()?.ok()?, words.next()?.ok()?))
        });
        numbers.fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }
}

/// Two hosts with a router between them that knows both, and a folder.
fn scene(workers: u32, commands: &str) -> (TwoHosts, Router, PathBuf) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let router = scene.start_router(workers).unwrap();
    eventually("the router forwards IPv6", BOUND, || scene.a.pings(TwoHosts::B6, 1).unwrap());
    assert!(scene.a.reaches(TwoHosts::B4, 1).unwrap());
    let folder = router.folder().join("collected");
    std::fs::create_dir_all(&folder).unwrap();
    router.script(commands).unwrap();
    (scene, router, folder)
}

const IPFIX: &str = "set ipfix exporter collector 10.0.2.2 port 2055 src 10.0.2.1 path-mtu 1400 template-interval 1 udp-checksum";

#[test]
fn collectors_count_what_was_sent() {
    let Some(_scenario) = Scenario::begin(&["nfcapd", "nfdump", "tshark", "tcpdump", "ping", "ss"]) else { return };
    for workers in workers() {
        let (scene, router, folder) = scene(*workers, "");
        let collector = Collector::start(&scene.b, "nfcapd", 2055, &folder);
        let capture = scene.b.capture("eth0", &folder.join("exports.pcap")).unwrap();
        router.script(IPFIX).unwrap();
        router
            .script(
                "flowprobe params record l3 l4 active 1 passive 2\nflowprobe feature add-del host-r0 ip4 rx\n\
                 flowprobe feature add-del host-r1 ip6 tx",
            )
            .unwrap();
        for address in [TwoHosts::B4, TwoHosts::B6] {
            assert!(scene.a.run(&format!("ping -n -q -i 0.01 -c 50 {address}"), BOUND).unwrap().success());
        }
        // 20 or 40 bytes of IP header, 8 of ICMP, 56 of data.
        eventually("the collector has all of IPv4", BOUND, || {
            collector.sum(&scene.b, "icmp", TwoHosts::A4, TwoHosts::B4) == (50, 50 * 84)
        });
        eventually("the collector has all of IPv6", BOUND, || {
            collector.sum(&scene.b, "icmp6", TwoHosts::A6, TwoHosts::B6) == (50, 50 * 104)
        });
        assert_eq!(collector.sum(&scene.b, "icmp", TwoHosts::B4, TwoHosts::A4), (0, 0), "the other direction was not asked for");
        let shown = router.cli("show flowprobe statistics").unwrap();
        assert!(shown.contains("lost: 0 records in 0 messages"), "{shown}");
        capture.stop().unwrap();
        decoded_by_tshark(&scene.b, &folder.join("exports.pcap"));
        assert_buffers_are_back(&router);
    }
}

/// tshark finds nothing malformed in the exports, and reads the addresses.
fn decoded_by_tshark(host: &Host, file: &Path) {
    let tshark = |what: &str| {
        let line = format!("tshark -n -r {} -d udp.port==2055,cflow {what}", file.display());
        host.sh(&line, BOUND).unwrap().expect("tshark")
    };
    assert_eq!(tshark("-Y 'cflow and (_ws.malformed or _ws.expert.severity == error)'"), "");
    let sources = tshark("-Y cflow -T fields -e cflow.srcaddr -e cflow.srcaddrv6");
    assert!(sources.contains(TwoHosts::A4) && sources.contains(TwoHosts::A6), "{sources}");
    let versions = tshark("-Y cflow -T fields -e cflow.version");
    assert!(versions.lines().count() > 1 && versions.lines().all(|version| version == "10"), "{versions}");
}

#[test]
fn sampled_flows_say_how_packets_were_chosen() {
    let Some(_scenario) = Scenario::begin(&["nfcapd", "nfdump", "tshark", "ping", "ss"]) else { return };
    let (scene, router, folder) = scene(1, "");
    let collector = Collector::start(&scene.b, "nfcapd", 2055, &folder);
    let capture = scene.b.capture("eth0", &folder.join("exports.pcap")).unwrap();
    router.script(IPFIX).unwrap();
    router.script("flowprobe params record l3 l4 active 1 passive 2 sample 10\nflowprobe feature add-del host-r0 ip4 rx").unwrap();
    assert!(scene.a.run("ping -n -q -i 0.01 -c 100 10.0.2.2", BOUND).unwrap().success());
    // Every tenth packet, of whatever protocol: one that the kernel sends by itself can take a turn. This version of the collector does
    // not multiply.
    let sum = || collector.sum(&scene.b, "icmp", TwoHosts::A4, TwoHosts::B4);
    eventually("the collector has the packets that were recorded", BOUND, || sum().0 >= 9);
    let (packets, bytes) = sum();
    assert!((9..=11).contains(&packets) && bytes == packets * 84, "{packets} packets, {bytes} bytes");
    capture.stop().unwrap();
    let fields = "-e cflow.selector_algorithm -e cflow.sampling_packet_interval -e cflow.sampling_packet_space";
    let line =
        format!("tshark -n -r {} -d udp.port==2055,cflow -Y cflow -T fields {fields}", folder.join("exports.pcap").display());
    let told = scene.b.sh(&line, BOUND).unwrap().expect("tshark");
    let told: Vec<&str> = told.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(!told.is_empty() && told.iter().all(|line| *line == "1\t1\t9"), "count-based, one packet, then nine skipped: {told:?}");
}

#[test]
fn samples_and_counters_reach_a_collector_of_sflow() {
    let Some(_scenario) = Scenario::begin(&["sfcapd", "nfdump", "tshark", "tcpdump", "ping", "ss"]) else { return };
    for workers in workers() {
        let (scene, router, folder) = scene(*workers, "");
        let collector = Collector::start(&scene.b, "sfcapd", 6343, &folder);
        let capture = scene.b.capture("eth0", &folder.join("samples.pcap")).unwrap();
        router
            .script(
                "sflow collector 10.0.2.2 src 10.0.2.1\nsflow sampling-rate 1\nsflow polling-interval 1\n\
                 sflow enable-disable host-r0",
            )
            .unwrap();
        assert!(scene.a.run("ping -n -q -i 0.01 -c 50 10.0.2.2", BOUND).unwrap().success());
        // Frames with their Ethernet header, and the FCS that was taken off.
        eventually("the collector has all samples", BOUND, || collector.sum(&scene.b, "icmp", TwoHosts::A4, TwoHosts::B4).0 == 50);
        let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show sflow").unwrap()).unwrap();
        assert_eq!(shown["status"]["lost_samples"], 0, "{shown}");
        eventually("counters are sent", BOUND, || {
            let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show sflow").unwrap()).unwrap();
            shown["status"]["counter_samples"].as_u64().unwrap() > 2
        });
        capture.stop().unwrap();
        let tshark = |what: &str| {
            let line = format!("tshark -n -r {} {what}", folder.join("samples.pcap").display());
            scene.b.sh(&line, BOUND).unwrap().expect("tshark")
        };
        assert_eq!(tshark("-Y 'sflow and (_ws.malformed or _ws.expert.severity == error)'"), "");
        assert!(!tshark("-Y 'sflow_245.numsamples > 0'").is_empty());
        assert_buffers_are_back(&router);
    }
}

#[test]
fn translations_are_read_by_programs_of_others() {
    let Some(_scenario) = Scenario::begin(&["nfcapd", "nfdump", "tshark", "tcpdump", "python3", "ss"]) else { return };
    let (scene, router, folder) =
        scene(1, "nat44 plugin enable\nset interface nat44 in host-r0 out host-r1\nnat44 add address 10.0.2.100");
    let collector = Collector::start(&scene.b, "nfcapd", 2055, &folder.join("nfcapd"));
    let capture = scene.b.capture("eth0", &folder.join("translations.pcap")).unwrap();
    router.script(IPFIX).unwrap();
    router.script("nat ipfix logging").unwrap();
    let sent = || {
        let shown = router.cli("show nat44 logging").unwrap();
        shown.split("records ").nth(1).and_then(|rest| rest.split(',').next()?.trim().parse::<u64>().ok()).unwrap()
    };
    let send = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 5353)); s.sendto(b'hello', ('10.0.2.2', 9999))";
    assert!(scene.a.run_args(&["python3", "-c", send], BOUND).unwrap().success());
    eventually("the router has told that the session began", BOUND, || sent() > 0);
    router.cli("clear nat44 ed sessions").unwrap();
    eventually("and that it ended", BOUND, || sent() > 1);
    router.cli("ipfix flush").unwrap();
    // A line of an event: its time, its kind, the endpoints before and after.
    let events = || {
        let line = format!("nfdump -R {} -q -N -o nel", collector.folder.display());
        let lines = scene.b.sh(&line, BOUND).unwrap().stdout;
        let words: Vec<Vec<String>> = lines.lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect();
        words.into_iter().filter_map(|words| words.get(4..).map(|ends| ends.join(" "))).collect::<Vec<_>>()
    };
    let expected = "10.0.1.2:5353 -> 10.0.2.2:9999 10.0.2.100:5353 -> 10.0.2.2:9999";
    eventually("the collector has both events", BOUND, || events() == [expected, expected]);
    // What the collector has, the capture has.
    capture.stop().unwrap();
    let tshark = |what: &str| {
        let line = format!("tshark -n -r {} -d udp.port==2055,cflow {what}", folder.join("translations.pcap").display());
        scene.b.sh(&line, BOUND).unwrap().expect("tshark")
    };
    assert_eq!(tshark("-Y 'cflow and (_ws.malformed or _ws.expert.severity == error)'"), "");
    // In one message or in two.
    let told = |field: &str| tshark(&format!("-Y cflow.nat_event -T fields -e cflow.{field}")).trim_end().replace('\n', ",");
    assert_eq!(told("nat_event"), "4,5");
    assert_eq!(told("post_natsource_ipv4_address"), "10.0.2.100,10.0.2.100");
    assert_eq!(told("post_naptsource_transport_port"), "5353,5353");
    assert_buffers_are_back(&router);
}
