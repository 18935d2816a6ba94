//! Memif with peers of another make (DPDK's testpmd) and of our own: both roles, traffic, peers that die.

use crate::common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::left::{Left, Survivor};
use common::testpmd::{PROGRAM, Testpmd, Vdev};
use common::{assert_buffers_are_back, counter, eventually, kills, workers};
use quiver_testbed::{Host, Router, Scenario, is_short_pass};

const PATIENCE: Duration = Duration::from_secs(120);

fn router(host: &Host, workers: u32, commands: &str) -> Router {
    let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
    let router = Router::start(host, &cpu).expect("router");
    let commands = commands.replace("@dir@", &router.folder().display().to_string());
    router.script(&commands).expect("configuration");
    router
}

fn link_is(router: &Router, interface: &str, state: &str) -> bool {
    let text = router.cli(&format!("show hardware-interfaces {interface} brief")).expect("show hardware");
    text.lines().any(|l| l.starts_with(interface) && l.split_whitespace().nth(2) == Some(state))
}

fn wait_for_link(router: &Router, interface: &str, state: &str) {
    let shown = || router.cli("show memif").unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while !link_is(router, interface, state) {
        assert!(Instant::now() < deadline, "{interface} is not {state}:\n{}\n{}", shown(), router.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `n` frames of `len` bytes that leave by an interface at a rate that rings take.
fn generate(router: &Router, stream: &str, interface: &str, n: u64, len: usize) {
    let line = format!(
        "packet-generator new {{ name {stream} limit {n} rate 2000 size {len}-{len} tx-interface {interface} node {interface}-output \
         data {{ IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 }} }}"
    );
    router.cli(&line).expect("stream");
    router.cli(&format!("packet-generator enable-stream {stream}")).expect("stream runs");
}

/// What the router is to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Master,
    Slave,
    /// A slave whose packets lie where the peer sees them.
    Lender,
}

impl Role {
    const ALL: [Self; 3] = [Self::Master, Self::Slave, Self::Lender];

    fn words(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Slave => "slave",
            Self::Lender => "slave zero-copy",
        }
    }

    /// Kills the peer. testpmd does not take a dead server's file away when it starts, as ours does.
    fn kill(self, peer: Testpmd, socket: &std::path::Path) {
        peer.kill9();
        if self != Self::Master {
            let _ = std::fs::remove_file(socket);
        }
    }

    /// The peer's end of it.
    fn vdev(self, socket: &std::path::Path, id: u32) -> Vdev {
        if self == Self::Master { Vdev::client(socket, id) } else { Vdev::server(socket, id) }
    }
}

/// testpmd passes frames from one of its ports to the other, between two interfaces of the router.
fn through_testpmd(workers: u32, role: Role, queues: u32, log2_ring: u8, sizes: &[usize]) {
    let host = Host::new("memif").unwrap();
    let rings = format!("ring-size {} rx-queues {queues} tx-queues {queues}", 1 << log2_ring);
    let role_words = if role == Role::Master { "master".to_owned() } else { format!("{} {rings}", role.words()) };
    let commands = format!(
        "create memif socket id 1 filename @dir@/peer.sock zero-copy-buffers 32768\n\
         create interface memif id 0 socket-id 1 {role_words}\n\
         create interface memif id 1 socket-id 1 {role_words}\n\
         set interface state memif1/0 up\nset interface state memif1/1 up"
    );
    let router = router(&host, workers, &commands);
    let socket = router.folder().join("peer.sock");
    let vdev = |id| Vdev { log2_ring, ..role.vdev(&socket, id) };
    let mut peer = Testpmd::start(&host, router.folder(), &[vdev(0), vdev(1)], queues, &["--forward-mode=io"]);
    wait_for_link(&router, "memif1/0", "up");
    wait_for_link(&router, "memif1/1", "up");
    peer.tell("start");
    const FRAMES: u64 = 1000;
    for (k, len) in sizes.iter().enumerate() {
        let [sent, lost, got, bytes] = [("0", "tx packets"), ("0", "tx-error"), ("1", "rx packets"), ("1", "rx bytes")]
            .map(|(n, word)| (n, word, counter(&router, &format!("memif1/{n}"), word)));
        let since = |(n, word, before): (&str, &str, u64)| counter(&router, &format!("memif1/{n}"), word) - before;
        // All that testpmd has received and sent, on both of its ports.
        let handled = |peer: &mut Testpmd| peer.packets().iter().fold((0_u64, 0_u64), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (received, passed) = handled(&mut peer);
        generate(&router, &format!("s{k}"), "memif1/0", FRAMES, *len);
        let what = format!("{FRAMES} frames of {len} bytes");
        // On a machine with fewer processors than pollers a ring may run full: that is counted, and the rest is whole.
        eventually(&what, PATIENCE, || since(sent) + since(lost) == FRAMES);
        assert!(since(sent) > 0, "{what}: none sent");
        // testpmd, too, may find a ring full: then what it could not pass on is not back.
        eventually(&format!("{what} are back"), PATIENCE, || {
            since(got) == since(sent) || handled(&mut peer) == (received + since(sent), passed + since(got))
        });
        assert_eq!(since(bytes), since(got) * *len as u64, "{what}");
    }
    for interface in ["memif1/0", "memif1/1"] {
        assert_eq!(counter(&router, interface, "rx-error"), 0);
    }
    peer.quit();
    wait_for_link(&router, "memif1/0", "down");
    assert_buffers_are_back(&router);
    router.stop().unwrap();
}

#[test]
fn frames_pass_through_a_peer_of_another_make_in_every_role() {
    let Some(_scenario) = Scenario::begin(&[PROGRAM]) else { return };
    for workers in workers() {
        Role::ALL.into_iter().for_each(|role| through_testpmd(*workers, role, 1, 10, &[64, 1500]));
    }
}

#[test]
fn several_queues_and_ring_sizes_work_with_a_peer_of_another_make() {
    let Some(_scenario) = Scenario::begin(&[PROGRAM]) else { return };
    use Role::{Lender, Master, Slave};
    let cases = [(Master, 4, 7), (Slave, 4, 7), (Lender, 4, 7), (Master, 1, 14), (Slave, 1, 14), (Master, 2, 5), (Slave, 2, 5)];
    let cases: Vec<_> = cases.into_iter().chain([(Lender, 1, 12), (Lender, 2, 5)]).collect();
    for (role, queues, log2_ring) in &cases[..if is_short_pass() { 3 } else { cases.len() }] {
        through_testpmd(2, *role, *queues, *log2_ring, &[64, 700]);
    }
}

#[test]
fn a_source_of_another_make_is_cross_connected_and_routed() {
    let Some(_scenario) = Scenario::begin(&[PROGRAM]) else { return };
    for (routed, role) in [(false, Role::Master), (true, Role::Master), (false, Role::Lender), (true, Role::Lender)] {
        let host = Host::new("memif").unwrap();
        let words = role.words();
        let use_it = if routed {
            // What the source sends is from 10.254/16 to 10.253/16; all of it leaves by the second interface.
            "set interface ip address memif1/0 192.0.2.1/24\nset interface ip address memif1/1 198.51.100.1/24\n\
             set ip neighbor memif1/1 198.51.100.2 02:00:00:00:00:02 static\nip route add 10.253.0.0/16 via 198.51.100.2 memif1/1"
        } else {
            "set interface l2 xconnect memif1/0 memif1/1\nset interface l2 xconnect memif1/1 memif1/0"
        };
        let router = router(
            &host,
            1,
            &format!(
                "create memif socket id 1 filename @dir@/peer.sock\n\
                 create interface memif id 0 socket-id 1 {words} hw-addr 00:01:02:03:04:01\n\
                 create interface memif id 1 socket-id 1 {words} hw-addr 00:01:02:03:04:01\n\
                 set interface state memif1/0 up\nset interface state memif1/1 up\n{use_it}"
            ),
        );
        let socket = router.folder().join("peer.sock");
        let vdevs = [role.vdev(&socket, 0), role.vdev(&socket, 1)];
        let mut peer = Testpmd::start(&host, router.folder(), &vdevs, 1, &["--forward-mode=flowgen"]);
        wait_for_link(&router, "memif1/0", "up");
        wait_for_link(&router, "memif1/1", "up");
        peer.tell("start");
        eventually("a hundred thousand packets", PATIENCE, || counter(&router, "memif1/1", "tx packets") > 100_000);
        // Dead in the middle of it, and back.
        role.kill(peer, &socket);
        wait_for_link(&router, "memif1/0", "down");
        wait_for_link(&router, "memif1/1", "down");
        let before = counter(&router, "memif1/1", "tx packets");
        let mut peer = Testpmd::start(&host, router.folder(), &vdevs, 1, &["--forward-mode=flowgen"]);
        wait_for_link(&router, "memif1/1", "up");
        peer.tell("start");
        eventually("packets after the restart", PATIENCE, || counter(&router, "memif1/1", "tx packets") > before + 100_000);
        let figures = peer.packets();
        assert!(figures[1].0 > 0, "nothing came back: {figures:?}\n{}", router.dump());
        peer.quit();
        wait_for_link(&router, "memif1/1", "down");
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}

/// Workers on which a node has run since the last `clear runtime`.
fn workers_of(router: &Router, node: &str) -> usize {
    let text = router.cli("show runtime").unwrap();
    let threads = text.split("Thread ").filter(|part| part.contains("quiver_wk"));
    let has_run = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some(node) && words.nth(2).and_then(|vectors| vectors.parse::<u64>().ok()).is_some_and(|n| n > 0)
    };
    threads.filter(|part| part.lines().any(has_run)).count()
}

#[test]
fn flows_without_link_headers_are_spread_over_workers_and_each_stays_on_one() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("memif").unwrap();
    let folder = Folder::new();
    let memif = |role: &str| {
        let socket = folder.0.join("between.sock");
        format!(
            "create memif socket id 1 filename {}\ncreate interface memif socket-id 1 {role} mode ip\n\
             set interface state memif1/0 up\n",
            socket.display()
        )
    };
    let b = router(
        &host,
        3,
        &format!(
            "{}create packet-generator interface pg0\nset interface state pg0 up\nset interface ip address pg0 10.2.0.1/24\n\
             set ip neighbor pg0 10.2.0.2 02:00:00:00:00:02 static\nset interface ip address memif1/0 192.0.2.1/30\n\
             set interface rss memif1/0 workers 0-2 l4",
            memif("master")
        ),
    );
    let out = "set interface ip address memif1/0 192.0.2.2/30\nip route add 10.2.0.0/24 via memif1/0";
    let a = router(&host, 0, &format!("{}{out}", memif("slave")));
    wait_for_link(&a, "memif1/0", "up");
    wait_for_link(&b, "memif1/0", "up");
    // Packets of one flow differ in length; those of many, in the sender's address.
    for (name, size, from, most) in [("one", "64-512", "10.1.0.2", 1), ("many", "64-64", "10.1.0.2 - 10.1.0.65", 3)] {
        b.cli("clear runtime").unwrap();
        let before = counter(&b, "pg0", "tx packets");
        let line = format!(
            "packet-generator new {{ name {name} limit 1000 rate 20000 size {size} interface memif1/0 node ip4-input \
             data {{ UDP: {from} -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 }} }}"
        );
        a.script(&format!("{line}\npacket-generator enable-stream {name}")).unwrap();
        eventually("all come through", PATIENCE, || counter(&b, "pg0", "tx packets") >= before + 1000);
        eventually(&format!("{name}: {most} workers"), PATIENCE, || workers_of(&b, "ip4-input") == most);
    }
    assert_buffers_are_back(&b);
}

pub fn a_router_that_dies_is_found_again_by_its_peer() {
    let Some(_scenario) = Scenario::alone(&[]) else { return };
    let host = Host::new("memif").unwrap();
    let folder = Folder::new();
    let socket = folder.0.join("between.sock");
    // Frames without end from both, for nobody.
    let load = "packet-generator new { name load limit 0 rate 20000 size 64-64 tx-interface memif1/0 node memif1/0-output \
                data { IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 } }";
    let one = |role: &str, address: &str| {
        let router = router(
            &host,
            1,
            &format!(
                "create memif socket id 1 filename {}\ncreate interface memif socket-id 1 {role}\n\
                 set interface state memif1/0 up\nset interface ip address memif1/0 {address}/24",
                socket.display()
            ),
        );
        router.script(&format!("{load}\npacket-generator enable-stream load")).unwrap();
        router
    };
    let pings = |router: &Router, to: &str| {
        let answer = router.cli(&format!("ping {to} repeat 1 interval 0.1")).unwrap_or_default();
        answer.contains("1 received") || answer.contains("1 sent, 1 received")
    };
    let mut a = one("master", "10.0.0.1");
    let mut b = one("slave", "10.0.0.2");
    let mut before = None;
    for round in 0..kills(2, 6) {
        wait_for_link(&a, "memif1/0", "up");
        wait_for_link(&b, "memif1/0", "up");
        before.get_or_insert_with(|| Left::now(&host)).assert_same(&host);
        for router in [&a, &b] {
            let count = counter(router, "memif1/0", "rx packets");
            eventually("load", PATIENCE, || counter(router, "memif1/0", "rx packets") > count + 100);
        }
        eventually("the one reaches the other", PATIENCE, || pings(&a, "10.0.0.2"));
        eventually("and the other way", PATIENCE, || pings(&b, "10.0.0.1"));
        if round % 2 == 0 {
            b.kill9().unwrap();
            wait_for_link(&a, "memif1/0", "down");
            b = one("slave", "10.0.0.2");
        } else {
            a.kill9().unwrap();
            wait_for_link(&b, "memif1/0", "down");
            a = one("master", "10.0.0.1");
        }
    }
    for router in [&a, &b] {
        router.cli("packet-generator disable-stream load").unwrap();
    }
    assert_buffers_are_back(&a);
    assert_buffers_are_back(&b);
}

pub fn deaths_of_a_peer_under_load_leave_nothing_behind() {
    let Some(_scenario) = Scenario::alone(&[PROGRAM]) else { return };
    [Role::Master, Role::Lender].into_iter().for_each(deaths);
}

fn deaths(role: Role) {
    let host = Host::new("memif").unwrap();
    let router = router(
        &host,
        1,
        &format!(
            "create memif socket id 1 filename @dir@/peer.sock\ncreate interface memif socket-id 1 {words}\n\
             create interface memif id 1 socket-id 1 {words}\nset interface state memif1/0 up\nset interface state memif1/1 up\n\
             set interface l2 xconnect memif1/0 memif1/1\nset interface l2 xconnect memif1/1 memif1/0",
            words = role.words()
        ),
    );
    let socket = router.folder().join("peer.sock");
    let vdevs = [role.vdev(&socket, 0), role.vdev(&socket, 1)];
    let mut survivor = Survivor::default();
    for _ in 0..kills(3, 10) {
        let mut peer = Testpmd::start(&host, router.folder(), &vdevs, 1, &["--forward-mode=flowgen"]);
        wait_for_link(&router, "memif1/1", "up");
        peer.tell("start");
        let before = counter(&router, "memif1/1", "tx packets");
        eventually("load", PATIENCE, || counter(&router, "memif1/1", "tx packets") > before + 10_000);
        role.kill(peer, &socket);
        wait_for_link(&router, "memif1/0", "down");
        wait_for_link(&router, "memif1/1", "down");
        assert_buffers_are_back(&router);
        survivor.check(&router);
        let maps = || std::fs::read_to_string(format!("/proc/{}/maps", router.pid())).unwrap();
        eventually("memory of a dead peer is not mapped any more", PATIENCE, || !maps().contains("memif_region"));
    }
    router.stop().unwrap();
}

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("quiver-memif-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
