//! Live captures and filters, by quiverctl, tcpdump and tshark.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, ping_in_turn};
use quiver_testbed::{Guard, Host, Router, Scenario, TwoHosts, TwoHostsOptions};

fn scene() -> (TwoHosts, Router) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let router = scene.start_router(1).unwrap();
    assert!(scene.a.reaches(TwoHosts::B4, 3).unwrap());
    (scene, router)
}

/// The program beside the router's.
fn quiverctl() -> PathBuf {
    Router::binary().unwrap().with_file_name("quiverctl")
}

/// Runs quiverctl where the router is; gives what it prints, or what it fails with.
fn ctl(scene: &TwoHosts, router: &Router, line: &str) -> Result<String, String> {
    let command = format!("{} -s {} {line}", quiverctl().display(), router.socket().display());
    let out = scene.middle.sh(&command, BOUND).unwrap();
    if out.success() { Ok(out.stdout) } else { Err(out.stderr) }
}

/// Numbers of the echo requests and replies in a file.
fn echoes(host: &Host, file: &Path) -> usize {
    let line = format!("tshark -n -r {} -Y 'icmp.type == 8 or icmp.type == 0' -T fields -e icmp.seq", file.display());
    host.sh(&line, BOUND).unwrap().stdout.lines().count()
}

fn ping(scene: &TwoHosts, count: u32) {
    ping_in_turn(&scene.a, count, TwoHosts::B4);
}

#[test]
fn a_filter_chooses_what_a_capture_has() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "tshark", "ping"]) else { return };
    let (scene, router) = scene();
    let wrong = ctl(&scene, &router, "pcap trace rx filter icmp and prt 80").unwrap_err();
    assert!(wrong.contains("wrong behind `icmp'") && wrong.lines().count() == 1, "{wrong}");
    ctl(&scene, &router, "pcap trace rx tx file some.pcap filter 'icmp[icmptype] = icmp-echo'").unwrap();
    ping(&scene, 20);
    let said = ctl(&scene, &router, "pcap trace off").unwrap();
    // In by one interface, out by the other; no answers, no ARP.
    assert!(said.starts_with("Write 40 packets to "), "{said}");
    let file = said.split_whitespace().nth(4).unwrap().trim_end_matches(',').to_owned();
    assert_eq!(echoes(&scene.middle, Path::new(&file)), 40);
}

#[test]
fn a_live_capture_is_read_by_tshark_and_costs_the_router_nothing_when_nobody_reads() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "tshark", "ping", "mkfifo"]) else { return };
    let (scene, router) = scene();
    let file = router.file("live.pcapng");
    let capture = capture(&scene, &router, &format!("-i host-r0 -c 40 -w {} icmp", file.display()));
    // Until it has begun; it ends by itself.
    eventually("all packets are in the file", BOUND, || {
        ping(&scene, 5);
        echoes(&scene.middle, &file) == 40
    });
    drop(capture);
    let names = scene.middle.sh(&format!("tshark -n -r {} -T fields -e frame.interface_name", file.display()), BOUND).unwrap();
    assert!(names.stdout.lines().all(|name| name == "host-r0"), "{names}");
    // Nobody reads at the other end of this pipe: the router forwards as before.
    let fifo = router.file("pipe");
    let script = format!(
        "mkfifo {pipe}; sleep 1000 < {pipe} & exec {ctl} -s {socket} capture -w {pipe}",
        pipe = fifo.display(),
        ctl = quiverctl().display(),
        socket = router.socket().display()
    );
    let mut command = scene.middle.command("sh");
    command.args(["-c", &script]);
    let stuck = scene.middle.spawn(command).unwrap();
    ping(&scene, 200);
    assert!(router.cli("show version").is_ok());
    drop(stuck);
    assert_buffers_are_back(&router);
}

fn capture(scene: &TwoHosts, router: &Router, arguments: &str) -> Guard {
    let line = format!("{} -s {} capture {arguments}", quiverctl().display(), router.socket().display());
    let guard = scene.middle.background(&line).unwrap();
    eventually("the file has begun", BOUND, || {
        let word = arguments.split_whitespace().skip_while(|word| *word != "-w").nth(1).unwrap();
        std::fs::metadata(word).is_ok_and(|file| file.len() > 0)
    });
    guard
}

/// What tshark has of each packet of a file in a field.
fn field(host: &Host, file: &Path, field: &str) -> Vec<String> {
    let line = format!("tshark -n -r {} -T fields -e {field}", file.display());
    host.sh(&line, BOUND).unwrap().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn packets_are_captured_in_front_of_any_node_as_ethernet_frames() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "tshark", "ping"]) else { return };
    let (scene, router) = scene();
    let wrong = ctl(&scene, &router, "pcap trace node ip4-lokup").unwrap_err();
    assert!(wrong.contains("no such node") && wrong.contains("did you mean `ip4-lookup'"), "{wrong}");
    // To a file: the filter sees Ethernet frames, though the node gets packets without their header.
    ctl(&scene, &router, "pcap trace node ip4-lookup file node.pcap filter 'ip and icmp[icmptype] = icmp-echo'").unwrap();
    ping(&scene, 20);
    let status = || ctl(&scene, &router, "pcap trace status").unwrap();
    eventually("all are written", BOUND, || status().starts_with("pcap node ip4-lookup capture is on: 20 of 1000 pkts"));
    let said = ctl(&scene, &router, "pcap trace off").unwrap();
    assert!(said.starts_with("Write 20 packets to "), "{said}");
    let file = PathBuf::from(said.split_whitespace().nth(4).unwrap().trim_end_matches(','));
    assert_eq!(echoes(&scene.middle, &file), 20);
    assert!(field(&scene.middle, &file, "eth.type").iter().all(|ether_type| ether_type == "0x0800"));
    assert!(field(&scene.middle, &file, "eth.src").iter().all(|source| source != "00:00:00:00:00:00"), "the header that it had");
    // Live: where each packet was stands beside it.
    let file = router.file("nodes.pcapng");
    let capture = capture(&scene, &router, &format!("--node ip4-lookup,host-r1-tx -c 40 -w {} icmp", file.display()));
    eventually("all packets are in the file", BOUND, || {
        ping(&scene, 5);
        echoes(&scene.middle, &file) == 40
    });
    drop(capture);
    let comments = field(&scene.middle, &file, "frame.comment");
    let at = |node: &str| comments.iter().filter(|comment| **comment == format!("at {node}")).count();
    // Requests pass both, replies the first alone.
    assert!(at("ip4-lookup") > at("host-r1-tx") && at("host-r1-tx") > 0 && comments.len() == 40, "{comments:?}");
    // Fused chains run again.
    ping(&scene, 20);
    assert_buffers_are_back(&router);
}

#[test]
fn wireshark_reads_the_path_of_each_packet_from_a_dispatch_trace() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "tshark", "ping"]) else { return };
    let (scene, router) = scene();
    let filter = "filter 'icmp[icmptype] = icmp-echo'";
    ctl(&scene, &router, &format!("pcap dispatch trace on max 5000 file path.pcap buffer-trace af-packet-input 3 {filter}"))
        .unwrap();
    ping(&scene, 3);
    let said = ctl(&scene, &router, "pcap dispatch trace off").unwrap();
    assert!(said.starts_with("Write "), "{said}");
    let file = PathBuf::from(said.split_whitespace().nth(4).unwrap().trim_end_matches(','));
    let nodes = field(&scene.middle, &file, "vpp.NodeName");
    // Three requests at each of the nodes, in order.
    let visits = |node: &str| nodes.iter().filter(|name| *name == node).count();
    for node in ["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite"] {
        assert_eq!(visits(node), 3, "{node}: {nodes:?}");
    }
    assert_eq!(nodes.first().map(String::as_str), Some("ethernet-input"));
    assert_eq!(nodes.last().map(String::as_str), Some("host-r1-tx"));
    // The packet behind the description is read, and what was traced.
    assert!(field(&scene.middle, &file, "ip.dst").iter().all(|address| address == TwoHosts::B4), "{nodes:?}");
    let traced = format!("tshark -n -r {} -V | grep -c 'af-packet-input'", file.display());
    let lines: usize = scene.middle.sh(&traced, BOUND).unwrap().stdout.trim().parse().unwrap();
    assert!(lines >= nodes.len(), "{lines} of {}", nodes.len());
    assert_eq!(ctl(&scene, &router, "pcap dispatch trace status").unwrap(), "pcap dispatch capture is off\n");
    assert_buffers_are_back(&router);
}

#[test]
fn a_trace_takes_only_what_its_filter_chooses() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "ping"]) else { return };
    let (scene, router) = scene();
    let wrong = ctl(&scene, &router, "trace add af-packet-input 5 filter icmp and prt").unwrap_err();
    assert!(wrong.contains("wrong behind `icmp'"), "{wrong}");
    ctl(&scene, &router, "trace add af-packet-input 5 filter 'icmp[icmptype] = icmp-echoreply'").unwrap();
    ping(&scene, 20);
    let shown = router.cli("show trace max 100").unwrap();
    assert_eq!(shown.matches("Packet ").count(), 5, "{shown}");
    assert!(shown.contains("ICMP echo_reply") && !shown.contains("ICMP echo_request"), "{shown}");
}

#[test]
fn wireshark_finds_the_routers_interfaces_and_captures_there() {
    let Some(_scenario) = Scenario::begin(&["tcpdump", "tshark", "ping", "setpriv"]) else { return };
    let (scene, router) = scene();
    // Wireshark looks into a folder that the environment names only where it does not run as root.
    let folder = router.folder().join("extcap");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("quiver-extcap");
    std::fs::copy(quiverctl(), &program).unwrap();
    for (path, mode) in [(router.folder(), 0o755), (&*folder, 0o777), (&*program, 0o755), (&*router.socket(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let ask =
        |arguments: &str| scene.middle.sh(&format!("{} {arguments}", program.display()), BOUND).unwrap().expect("quiver-extcap");
    let interfaces = ask(&format!("--extcap-interfaces --socket {}", router.socket().display()));
    assert!(interfaces.contains("interface {value=quiver-host-r0}{display=Quiver: host-r0}"), "{interfaces}");
    assert!(ask("--extcap-interface quiver-host-r0 --extcap-dlts").contains("{number=1}"));
    let settings = ask(&format!("--extcap-interface quiver-host-r0 --extcap-config --socket {}", router.socket().display()));
    assert!(settings.contains("{call=--at}") && settings.contains("value {arg=2}{value=ip4-lookup}"), "{settings}");
    // tshark as the client: it starts the program with a pipe, for an interface that it has asked for.
    let file = folder.join("tshark.pcapng");
    let mut command = scene.middle.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "tshark", "-n", "-i", "quiver"]);
    command.args(["-o", &format!("extcap.quiver.socket:{}", router.socket().display()), "-f", "icmp", "-w"]).arg(&file);
    command.env("WIRESHARK_EXTCAP_DIR", &folder).env("HOME", &folder);
    let tshark = scene.middle.spawn(command).unwrap();
    eventually("tshark has packets", BOUND, || {
        ping(&scene, 5);
        echoes(&scene.middle, &file) >= 10
    });
    drop(tshark);
    // In front of a node.
    let pipe = router.file("extcap");
    let line = format!(
        "{} --capture --extcap-interface quiver --node ip4-rewrite --socket {} --fifo {}",
        program.display(),
        router.socket().display(),
        pipe.display()
    );
    let extcap = scene.middle.background(&line).unwrap();
    eventually("the program has packets of the node", BOUND, || {
        ping(&scene, 5);
        field(&scene.middle, &pipe, "frame.comment").iter().filter(|comment| *comment == "at ip4-rewrite").count() >= 10
    });
    drop(extcap);
}
