//! Another process takes over while packets flow: sessions, connections, neighbours and the host's interfaces stay.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::process::Stdio;

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, workers};
use quiver_testbed::{Guard, Host, Router, Scenario, TwoHosts, TwoHostsOptions};

const POOL: &str = "10.0.2.100";

/// Sends a numbered line each 10 ms and prints what comes back, for as long as its input is open; says at the end how many were answered.
const CLIENT: &str = r#"
import socket, sys, select
s = socket.create_connection((sys.argv[1], 7000))
s.settimeout(60)
n = 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    s.sendall(b"%08d" % n)
    got = b""
    while len(got) < 8:
        part = s.recv(8 - len(got))
        if not part:
            sys.exit("the connection ended")
        got += part
    if int(got) != n:
        sys.exit("out of order")
    n += 1
    sys.stdout.write("%d\n" % n)
    sys.stdout.flush()
print("done", n)
"#;
const SERVER: &str = r#"
import socket
l = socket.create_server(("0.0.0.0", 7000))
c = l.accept()[0]
while True:
    data = c.recv(4096)
    if not data:
        break
    c.sendall(data)
"#;

fn python(host: &Host, program: &str, arguments: &[&str]) -> Guard {
    let mut command = host.command("python3");
    command.args(["-c", program]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    host.spawn(command).expect("python3")
}

/// A connection through the router on which something is said all the time.
struct Talk {
    client: Guard,
    _server: Guard,
    said: std::process::ChildStdout,
}

impl Talk {
    fn begin(scene: &TwoHosts) -> Self {
        let server = python(&scene.b, SERVER, &[]);
        assert!(scene.b.wait_for_listener(7000, BOUND).unwrap());
        let mut client = python(&scene.a, CLIENT, &[TwoHosts::B4]);
        let said = client.take_stdout().unwrap();
        let mut talk = Self { client, _server: server, said };
        talk.go_on();
        talk
    }

    /// Waits until some more has been answered.
    fn go_on(&mut self) {
        let mut lines = 0;
        let mut byte = [0];
        while lines < 20 {
            assert_eq!(self.said.read(&mut byte).unwrap(), 1, "the connection has ended");
            lines += usize::from(byte[0] == b'\n');
        }
    }

    fn end(mut self) {
        let mut stdin = self.client.take_stdin().unwrap();
        stdin.write_all(b"x").unwrap();
        drop(stdin);
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("done"), "{rest}");
        assert!(self.client.wait(BOUND).unwrap().unwrap().success());
    }
}

fn scene(workers: u32, commands: &str) -> (TwoHosts, Router) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    scene.b.ip("route del default").expect("no way back");
    let router = scene.start_router(workers).expect("router");
    let nat = format!("nat44 plugin enable\nset interface nat44 in host-r0 out host-r1\nnat44 add address {POOL}\n{commands}");
    router.script(&nat).expect("configuration");
    (scene, router)
}

/// What `show restart` says, as JSON.
fn began(router: &Router) -> serde_json::Value {
    serde_json::from_str(&router.cli_json("show restart").unwrap()).unwrap()
}

fn routes(router: &Router) -> String {
    router.cli("show ip fib summary").unwrap() + &router.cli("show ip6 fib summary").unwrap()
}

/// Sessions without their ages and counts.
fn sessions(router: &Router) -> Vec<String> {
    let text = router.cli("show nat44 sessions").unwrap();
    let mut lines: Vec<String> = text.lines().filter(|l| l.contains("i2o") || l.contains("o2i")).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_connection_through_nat_goes_on_when_another_process_takes_over() {
    let Some(_scenario) = Scenario::begin(&["ping", "python3"]) else { return };
    for workers in workers().iter().copied().filter(|n| *n < 3) {
        let (scene, mut router) = scene(workers, "ip route add 192.0.2.0/24 via 10.0.2.2 host-r1\ncreate loopback interface");
        assert!(scene.a.reaches(TwoHosts::B4, 3).unwrap());
        let mut talk = Talk::begin(&scene);
        let (before, table) = (sessions(&router), routes(&router));
        assert!(!before.is_empty());
        let numbers = router.cli("show interface").unwrap();
        let first = router.pid();
        router.take_over(&scene.middle, None).unwrap();
        assert_ne!(router.pid(), first);
        talk.go_on();
        assert_eq!((sessions(&router), routes(&router)), (before, table), "{workers} workers");
        let names = |text: &str| -> Vec<String> {
            let heads = text.lines().filter(|l| !l.starts_with(' ') && !l.is_empty());
            heads.map(|l| l.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(names(&router.cli("show interface").unwrap()), names(&numbers));
        let report = began(&router);
        assert_eq!((report["start"].as_str(), report["failed"].as_u64()), (Some("warm"), Some(0)), "{report}");
        assert!(report["outage_ms"].as_f64().is_some(), "{report}");
        // And once more, from a process that has taken over itself.
        router.take_over(&scene.middle, None).unwrap();
        talk.go_on();
        talk.end();
        assert!(scene.a.reaches(TwoHosts::B4, 3).unwrap());
        router.cli("nat44 plugin disable").unwrap();
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}

#[test]
fn the_configuration_that_lasts_goes_on_lasting() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let conf = "unix { state-dir @dir@/state pidfile @dir@/pid }";
    let mut router = Router::start(&host, conf).unwrap();
    router.script("create loopback interface instance 3\nset interface ip address loop3 10.9.0.1/24").unwrap();
    router.take_over(&host, None).unwrap();
    let pid = std::fs::read_to_string(router.folder().join("pid")).unwrap();
    assert_eq!(pid.trim(), router.pid().to_string());
    router.cli("ip route add 192.0.2.0/24 via 10.9.0.2 loop3").unwrap();
    let before = router.cli("show configuration").unwrap();
    assert!(before.contains("loop3 10.9.0.1/24") && before.contains("192.0.2.0/24"), "{before}");
    // What was changed after that is on the disk: a third process that starts by itself has it.
    router.kill9().unwrap();
    let state = router.folder().join("state");
    let copy = std::env::temp_dir().join(format!("quiver-restart-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(state.join("configuration"), copy.join("configuration")).unwrap();
    let third = Router::start(&host, &format!("unix {{ state-dir {} }}", copy.display())).unwrap();
    eventually("the configuration is made again", BOUND, || third.cli("show configuration").unwrap() == before);
    drop(third);
    std::fs::remove_dir_all(&copy).unwrap();
}

#[test]
fn a_process_that_cannot_take_over_leaves_the_router_as_it_was() {
    let Some(_scenario) = Scenario::begin(&["ping", "python3"]) else { return };
    let (scene, mut router) = scene(1, "");
    let mut talk = Talk::begin(&scene);
    let (first, before) = (router.pid(), sessions(&router));
    // It ends before it has anything.
    let error = router.take_over(&scene.middle, Some(std::path::Path::new("/bin/false"))).unwrap_err();
    assert!(error.to_string().contains("ExitStatus"), "{error}");
    // Something that speaks another protocol, and something that speaks none.
    let socket = router.folder().join("restart.sock");
    let hello = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(sys.argv[2].encode())
print(s.recv(65536).decode())
"#;
    let path = socket.display().to_string();
    for (said, expected) in [(r#"{"hello":{"protocol":99,"version":"v9"}}"#, "by protocol 99"), ("hello?", "not understood")] {
        let out = scene.middle.run_args(&["python3", "-c", hello, &path, said], BOUND).unwrap().expect("python3");
        assert!(out.contains("refused") && out.contains(expected), "{out}");
    }
    talk.go_on();
    // One that goes away in the middle, when operations already wait for it.
    let gone = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(b'{"hello":{"protocol":1,"version":"v1"}}')
while b"opened" not in s.recv(65536):
    pass
"#;
    scene.middle.run_args(&["python3", "-c", gone, &path], BOUND).unwrap().expect("python3");
    talk.go_on();
    assert_eq!((router.pid(), sessions(&router)), (first, before));
    let resumed = || router.log().lines().filter(|l| l.contains("this router goes on")).count();
    eventually("it has noticed that each of them has gone", BOUND, || resumed() >= 3);
    // And then one that can.
    router.take_over(&scene.middle, None).unwrap();
    talk.go_on();
    talk.end();
    router.stop().unwrap();
}

#[test]
fn a_host_interface_stays_up_with_its_carrier() {
    let Some(_scenario) = Scenario::begin(&["ping", "ip"]) else { return };
    let [a, middle, linux] = ["a", "router", "linux"].map(|name| Host::new(name).unwrap());
    a.veth("eth0", &middle, "r0", &quiver_testbed::LinkOptions::default()).unwrap();
    middle.disable_ipv6("r0").unwrap();
    a.address("eth0", "10.0.1.2/24").unwrap();
    let keeper = linux.background("sleep 86400").unwrap();
    let mut router = Router::start(&middle, "linux-cp { lcp-sync }").unwrap();
    router
        .script(&format!(
            "create host-interface name r0\nset interface state host-r0 up\nset interface ip address host-r0 10.0.1.1/24\n\
             lcp create host-r0 host-if e0 netns pid:{keeper}\ncreate tap id 5 host-ns pid:{keeper}\nset interface state tap5 up\n\
             create tap id 6 host-ns pid:{keeper} tun\nset interface state tap6 up",
            keeper = keeper.pid()
        ))
        .unwrap();
    let link = |name: &str| linux.run(&format!("ip -o link show {name}"), BOUND).unwrap().expect("ip link");
    const NAMES: [&str; 3] = ["e0", "tap5", "tap6"];
    eventually("the host interfaces are up", BOUND, || NAMES.iter().all(|name| link(name).contains("LOWER_UP")));
    eventually("Linux has the address, and answers there", BOUND, || a.pings("10.0.1.1", 1).unwrap());
    let number = |text: &str| text.split(':').next().map(str::to_owned);
    let before = NAMES.map(|name| number(&link(name)));
    let heard = router.folder().join("monitor");
    let mut command = linux.command("ip");
    command.args(["-o", "monitor", "link"]).stdin(Stdio::null()).stderr(Stdio::null()).stdout(File::create(&heard).unwrap());
    let monitor = linux.spawn(command).unwrap();
    // It hears what happens from its start on: a change of its own tells that it does.
    eventually("the monitor hears", BOUND, || {
        linux.ip("link set lo up\nlink set lo down").unwrap();
        std::fs::read_to_string(&heard).unwrap().contains("lo")
    });
    router.take_over(&middle, None).unwrap();
    assert!(a.reaches("10.0.1.1", 3).unwrap(), "Linux answers by the new process");
    assert_eq!(NAMES.map(|name| number(&link(name))), before, "the same devices");
    drop(monitor);
    let text = std::fs::read_to_string(&heard).unwrap();
    let lost = |l: &&str| {
        NAMES.iter().any(|name| l.contains(name)) && (l.contains("NO-CARRIER") || l.contains("Deleted") || !l.contains("LOWER_UP"))
    };
    assert_eq!(text.lines().filter(lost).collect::<Vec<_>>(), Vec::<&str>::new(), "{text}");
    assert_eq!(began(&router)["failed"].as_u64(), Some(0), "{}", began(&router));
    router.stop().unwrap();
}

/// Sends a numbered datagram each millisecond for as long as its input is open, and says how many these were. That it is the end is said
/// until the receiver has heard it, which may be busy.
const SENDER: &str = r#"
import socket, sys, select, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    s.sendto(b"%08d" % n, (sys.argv[1], 7001))
    n += 1
print(n, flush=True)
while True:
    s.sendto(b"end", (sys.argv[1], 7001))
    time.sleep(0.02)
"#;
/// Says the number of each datagram that comes, with the time at which it came.
const RECEIVER: &str = r#"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("0.0.0.0", 7001))
print("listens", flush=True)
while True:
    data = s.recv(100)
    if data == b"end":
        break
    print(int(data), time.monotonic_ns(), flush=True)
"#;

/// Numbered datagrams through the router.
struct Datagrams {
    sender: Guard,
    receiver: Guard,
    heard: std::io::BufReader<std::process::ChildStdout>,
    came: Vec<(u64, u64)>,
}

impl Datagrams {
    fn begin(scene: &TwoHosts) -> Self {
        let mut receiver = python(&scene.b, RECEIVER, &[]);
        let mut heard = std::io::BufReader::new(receiver.take_stdout().unwrap());
        let mut line = String::new();
        heard.read_line(&mut line).unwrap();
        assert_eq!(line, "listens\n");
        let sender = python(&scene.a, SENDER, &[TwoHosts::B4]);
        let mut datagrams = Self { sender, receiver, heard, came: Vec::new() };
        datagrams.go_on();
        datagrams
    }

    fn hear(&mut self) -> bool {
        let mut line = String::new();
        let n = self.heard.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
        self.came.extend(words.next().zip(words.next()));
        n > 0
    }

    /// Waits until some more have come.
    fn go_on(&mut self) {
        for _ in 0..100 {
            assert!(self.hear(), "the receiver has ended");
        }
    }

    /// How many were sent, and what came of them.
    fn end(mut self) -> (u64, Vec<(u64, u64)>) {
        drop(self.sender.take_stdin());
        let mut sent = String::new();
        std::io::BufReader::new(self.sender.take_stdout().unwrap()).read_line(&mut sent).unwrap();
        while self.hear() {}
        assert!(self.receiver.wait(BOUND).unwrap().unwrap().success());
        (sent.trim().parse().unwrap(), self.came)
    }
}

#[test]
fn af_xdp_queues_pass_from_one_process_to_the_next() {
    let Some(_scenario) = Scenario::begin(&["ping", "python3", "ip", Scenario::BPF]) else { return };
    for workers in workers().iter().copied().filter(|n| *n < 3) {
        let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
        let commands = [0, 1].map(|n| {
            let net = n + 1;
            format!(
                "create interface af_xdp host-if r{n} name x{n}\nset interface state x{n} up\n\
                 set interface ip address x{n} 10.0.{net}.1/24\n"
            )
        });
        let mut router = scene.start_router_with(workers, "", &commands.concat()).expect("router");
        eventually("ping", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
        let mut datagrams = Datagrams::begin(&scene);
        let programs = || -> Vec<String> {
            let text = scene.middle.run("ip -d link", BOUND).unwrap().expect("ip link");
            text.lines().filter(|l| l.contains("prog/xdp")).map(str::to_owned).collect()
        };
        let before = programs();
        assert_eq!(before.len(), 2);
        for _ in 0..2 {
            router.take_over(&scene.middle, None).unwrap();
            datagrams.go_on();
            let report = began(&router);
            let retried = (report["retried"].as_u64(), report["failed"].as_u64());
            assert_eq!(retried, (Some(0), Some(0)), "{report}");
            assert_eq!(programs(), before, "the program stays attached");
        }
        assert!(scene.a.reaches(TwoHosts::B4, 3).unwrap());
        let (sent, came) = datagrams.end();
        let mut numbers: Vec<u64> = came.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), came.len(), "no datagram comes twice");
        let gap = came.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0);
        println!("{workers} workers: {} of {sent} datagrams lost, longest gap {} ms", sent - numbers.len() as u64, gap / 1_000_000);
        router.stop().unwrap();
    }
}

#[test]
fn without_a_router_the_start_is_cold_and_says_why() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let router = Router::builder(&host, "").arguments(&["--detached", "--take-over"]).start().unwrap();
    let text = router.cli("show restart").unwrap();
    assert!(text.starts_with("cold start: no router waits on ") && text.contains("another process may take over"), "{text}");
    router.stop().unwrap();
    let router = Router::start(&host, "unix { warm-restart off }").unwrap();
    assert!(router.cli("show restart").unwrap().contains("take over from this one: no"));
    assert!(!router.folder().join("restart.sock").exists());
}
