//! A disk without any space: every command that writes a file says so in one line, and the router goes on.

use std::path::Path;
use std::time::Duration;

use crate::common::{Open, counter, eventually};
use quiver_testbed::{Host, Router, Scenario};

const PATIENCE: Duration = Duration::from_secs(60);

/// A file system in memory that is full. Gone with the value.
struct Full<'a> {
    host: &'a Host,
    folder: Open,
}

impl<'a> Full<'a> {
    fn new(host: &'a Host) -> Self {
        let full = Self { host, folder: Open::new() };
        let folder = full.path().display();
        // A last file takes what is left; that it does not fit is its purpose.
        let script = format!("mount -t tmpfs -o size=64k,mode=777 none {folder} && {{ cat /dev/zero > {folder}/fill || true; }}");
        full.host.sh(&script, PATIENCE).unwrap().expect("a full file system");
        full
    }

    fn path(&self) -> &Path {
        &self.folder.0
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        let _ = self.host.sh(&format!("umount -l {}", self.path().display()), PATIENCE);
    }
}

#[test]
fn commands_that_write_files_say_that_the_disk_is_full_and_the_router_goes_on() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let full = Full::new(&host);
    let router = Router::start(&host, &format!("files {{ folder {} }}", full.path().display())).expect("router");
    let data = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 1000";
    router
        .script(&format!(
            "create packet-generator interface pg0\ncreate packet-generator interface pg1\n\
             set interface state pg0 up\nset interface state pg1 up\nset interface l2 xconnect pg0 pg1\n\
             packet-generator new {{ name x limit 200 interface pg0 node ethernet-input data {{ {data} }} }}\napi trace on"
        ))
        .expect("configuration");
    let mut sent = 0;
    for (what, lines) in [
        ("a drawing", ["show vlib graph svg all file a.svg", "", ""]),
        ("the event log", ["event-logger save a.elog", "", ""]),
        ("a trace of the binary API", ["api trace save a.api", "", ""]),
        ("pcap trace", ["pcap trace rx tx max 1000 file a.pcap", "packet-generator enable-stream x", "pcap trace off"]),
        (
            "packet-generator capture",
            [
                "packet-generator capture pg1 pcap b.pcap",
                "packet-generator enable-stream x",
                "packet-generator capture pg1 disable",
            ],
        ),
    ] {
        let mut errors = Vec::new();
        for line in lines.iter().filter(|line| !line.is_empty()) {
            errors.extend(router.cli(line).err());
            if line.contains("enable-stream") {
                sent += 200;
                eventually("all packets have passed", PATIENCE, || counter(&router, "pg1", "tx packets") == sent);
            }
        }
        let [error] = errors.as_slice() else { panic!("{what}: {errors:?}") };
        assert!(error.contains("No space left") && error.lines().count() == 1, "{what}: {error}");
        let left: Vec<_> = host
            .sh(&format!("ls -A {}", full.path().display()), PATIENCE)
            .unwrap()
            .expect("ls")
            .lines()
            .map(str::to_owned)
            .collect();
        assert!(left.iter().all(|name| name == "fill" || name == "b.pcap"), "{what} leaves {left:?}");
    }
    router.cli("show version").expect("an answer");
    router.stop().unwrap();
}

/// Packets that a recording interface dropped because it records no more.
fn not_recorded(router: &Router) -> u64 {
    let errors = router.cli("show errors").expect("show errors");
    let line = errors.lines().find(|line| line.contains("rec-tx") && line.contains("device is gone or down"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_recording_interface_whose_disk_is_full_says_so_counts_what_it_drops_and_the_router_goes_on() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let full = Full::new(&host);
    let conf = format!("cpu {{ workers 1 }} files {{ folder {} }}", full.path().display());
    let router = Router::start(&host, &conf).expect("router");
    let frame = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 1000";
    let stream = |name: &str, from: &str| {
        format!("packet-generator new {{ name {name} limit 200 interface {from} node ethernet-input data {{ {frame} }} }}\n")
    };
    let up = |name: &str| format!("create packet-generator interface {name}\nset interface state {name} up\n");
    let made: String = ["pg0", "pg1", "pg2"].iter().map(|name| up(name)).collect();
    router
        .script(&format!("{made}set interface l2 xconnect pg1 pg2\n{}{}", stream("x", "pg0"), stream("y", "pg1")))
        .expect("configuration");
    // Without room for its first bytes there is no interface.
    let error = router.cli("create pcap-interface name rec tx a.pcap").unwrap_err();
    assert!(error.contains("No space left") && error.lines().count() == 1, "{error}");
    // With room for some packets it is made, and its disk is full later.
    host.sh(&format!("truncate -s 32k {}/fill", full.path().display()), PATIENCE).unwrap().expect("room");
    router
        .script("create pcap-interface name rec tx b.pcap\nset interface state rec up\nset interface l2 xconnect pg0 rec")
        .expect("an interface");
    router.cli("packet-generator enable-stream x").unwrap();
    eventually("the stream is over", PATIENCE, || counter(&router, "pg0", "rx packets") == 200);
    eventually("the recording has ended", PATIENCE, || {
        router.cli("show pcap-interface rec").unwrap().contains("the recording has ended: No space left")
    });
    router.cli("packet-generator enable-stream y").unwrap();
    eventually("other interfaces forward", PATIENCE, || counter(&router, "pg2", "tx packets") == 200);
    // Their packets came behind the first stream's, which the worker has counted by now.
    let before = not_recorded(&router);
    router.cli("packet-generator enable-stream x").unwrap();
    eventually("what is not recorded is counted", PATIENCE, || not_recorded(&router) == before + 200);
    router.cli("delete pcap-interface rec").expect("it can be removed");
    crate::common::assert_buffers_are_back(&router);
    router.stop().unwrap();
}
