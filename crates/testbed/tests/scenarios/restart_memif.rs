//! Another process takes over from a router with memif interfaces: the peer does not notice, or connects again.

use crate::common;

use common::{BOUND, assert_buffers_are_back, counter, eventually};
use quiver_testbed::{Host, Router, Scenario};

/// A router whose frames go through a second one, from `memif1/0` back to `memif1/1`.
struct Pair {
    host: Host,
    peer: Router,
    router: Router,
}

const STREAM: &str = "packet-generator new { name load limit 0 rate 3000 size 64-512 tx-interface memif1/0 node memif1/0-output \
                      data { IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 } }";

impl Pair {
    /// `roles`: of the peer and of the router; `socket`: more words for the socket.
    fn new(workers: u32, roles: [&str; 2], socket: &str) -> Self {
        let host = Host::new("memif").unwrap();
        let conf = format!("cpu {{ workers {workers} }}");
        let start = || Router::start(&host, if workers == 0 { "" } else { &conf }).unwrap();
        let (peer, router) = (start(), start());
        let path = peer.folder().join("between.sock").display().to_string();
        let make = |router: &Router, role: &str| {
            let interface =
                |id: u32| format!("create interface memif id {id} socket-id 1 {role}\nset interface state memif1/{id} up\n");
            let socket = format!("create memif socket id 1 filename {path} {socket}\n");
            router.script(&format!("{socket}{}{}", interface(0), interface(1))).unwrap();
        };
        make(&peer, roles[0]);
        make(&router, roles[1]);
        router.script("set interface l2 xconnect memif1/0 memif1/1\nset interface l2 xconnect memif1/1 memif1/0").unwrap();
        let pair = Self { host, peer, router };
        pair.wait_for_links();
        pair.peer.script(&format!("{STREAM}\npacket-generator enable-stream load")).unwrap();
        pair.go_on();
        pair
    }

    fn wait_for_links(&self) {
        for router in [&self.peer, &self.router] {
            for interface in ["memif1/0", "memif1/1"] {
                let shown = || router.cli(&format!("show hardware-interfaces {interface} brief")).unwrap();
                let is_up = |line: &str| line.starts_with(interface) && line.split_whitespace().nth(2) == Some("up");
                eventually("connected", BOUND, || shown().lines().any(is_up));
            }
        }
    }

    /// Waits until some more frames are back.
    fn go_on(&self) {
        let before = counter(&self.peer, "memif1/1", "rx packets");
        eventually("frames pass", BOUND, || counter(&self.peer, "memif1/1", "rx packets") > before + 300);
    }

    fn began(&self) -> serde_json::Value {
        serde_json::from_str(&self.router.cli_json("show restart").unwrap()).unwrap()
    }

    /// Ends the load. Every frame that was sent is back once, or was counted where it found a full ring.
    fn settle(&self) {
        self.peer.cli("packet-generator disable-stream load").unwrap();
        let count = |router: &Router, interface: &str, word: &str| counter(router, interface, word);
        let sent = || count(&self.peer, "memif1/0", "tx packets");
        let back = || count(&self.peer, "memif1/1", "rx packets") + count(&self.router, "memif1/1", "tx-error");
        let came = || count(&self.router, "memif1/0", "rx packets");
        eventually("every frame is accounted for", BOUND, || sent() == back() && sent() == came());
        for (router, interface) in [(&self.peer, "memif1/1"), (&self.router, "memif1/0")] {
            assert_eq!(count(router, interface, "rx-error"), 0);
        }
        assert!(!self.peer.log().contains("disconnected"), "{}", self.peer.log());
    }
}

#[test]
fn a_memif_peer_does_not_notice_that_another_process_takes_over() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for (workers, roles) in [(0, ["master", "slave"]), (1, ["slave", "master"]), (2, ["master", "slave"])] {
        let mut pair = Pair::new(workers, roles, "unsealed");
        for _ in 0..2 {
            pair.router.take_over(&pair.host, None).unwrap();
            pair.go_on();
            let report = pair.began();
            let passed = report["descriptors"].to_string();
            assert!(passed.contains("memif1/0") && passed.contains("memif1/1"), "{report}");
            let numbers = ["retried", "failed"].map(|key| report[key].as_u64());
            assert_eq!((numbers, report["anew"].as_array().map(Vec::len)), ([Some(0); 2], Some(0)), "{report}");
        }
        pair.settle();
        // What was passed on ends and begins again as anything else.
        pair.router.cli("set interface state memif1/0 down").unwrap();
        eventually("the peer sees it", BOUND, || pair.peer.log().contains("memif1/0 is disconnected"));
        pair.router.cli("set interface state memif1/0 up").unwrap();
        pair.wait_for_links();
        assert_buffers_are_back(&pair.router);
        pair.router.stop().unwrap();
    }
}

#[test]
fn a_process_that_goes_away_with_a_memif_connection_leaves_it_as_it_was() {
    let Some(_scenario) = Scenario::begin(&["python3"]) else { return };
    // It gets the descriptors of all connections, and ends.
    let gone = r#"
import array, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(sys.argv[2].encode())
devices, fds = [], 0
while True:
    data, ancillary, flags, address = s.recvmsg(65536, socket.CMSG_SPACE(253 * 4))
    fds += sum(len(bytes) // 4 for level, kind, bytes in ancillary)
    if b"device" in data:
        devices.append(data.decode())
    if b"opened" in data:
        break
print(fds, *devices)
"#;
    for roles in [["master", "slave"], ["slave", "master"]] {
        let pair = Pair::new(1, roles, "unsealed");
        let socket = pair.router.folder().join("restart.sock").display().to_string();
        let meet = |said: &str| pair.host.run_args(&["python3", "-c", gone, &socket, said], BOUND).unwrap().expect("python3");
        let out = meet(r#"{"hello":{"protocol":1,"version":"v9","takes":["tap","memif-1"]}}"#);
        assert!(out.contains("memif1/0") && out.contains("memif1/1"), "{out}");
        pair.go_on();
        // One that knows another version of it, and one from before there was any, get none of it.
        for said in [
            r#"{"hello":{"protocol":1,"version":"v9","takes":["tap","memif-2"]}}"#,
            r#"{"hello":{"protocol":1,"version":"v0.1.0"}}"#,
        ] {
            let out = meet(said);
            assert!(!out.contains("memif"), "{out}");
            pair.go_on();
        }
        pair.settle();
        pair.router.stop().unwrap();
    }
}

#[test]
fn a_memif_peer_whose_memory_is_sealed_connects_again() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for roles in [["master", "slave"], ["slave", "master"]] {
        let mut pair = Pair::new(1, roles, "");
        pair.router.take_over(&pair.host, None).unwrap();
        pair.wait_for_links();
        pair.go_on();
        let report = pair.began();
        assert_eq!(["retried", "failed"].map(|key| report[key].as_u64()), [Some(0); 2], "{report}");
        assert!(report["anew"].to_string().contains("memif1/0"), "{report}");
        pair.router.stop().unwrap();
    }
}
