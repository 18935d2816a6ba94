//! Clients that stall, vanish, do not read, or come by the thousand: none of them holds up another client or a packet.
//!
//! `QUIVER_ATTACK_SECONDS=N` goes on with random mixtures of them for N seconds. Beside that, what interfaces cost is printed.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::{counter, eventually};
use quiver_testbed::{Host, Router, Scenario, is_sanitized, is_short_pass, skip};
use serde_json::Value;

/// Far more than anything takes on a busy machine: something hangs that takes longer.
const HANG: Duration = Duration::from_secs(120);
/// Frames that pass the router while it is attacked.
const FRAMES: u64 = 4_000;
/// Connections to each socket at once.
const CROWD: usize = 1_000;

const SOCKETS: [&str; 3] = ["cli.sock", "json.sock", "api.sock"];

fn start(host: &Host) -> Router {
    Router::start(host, "cpu { workers 1 } socksvr { default }").expect("router")
}

fn connect(router: &Router, socket: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(router.folder().join(socket))?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(stream)
}

/// Writes what is taken. The router may stop reading, or close.
fn push(stream: &mut UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// The telnet answer that makes `cli.sock` speak as to a program.
fn terminal_type(name: &str) -> Vec<u8> {
    [&[255, 250, 24, 0], name.as_bytes(), &[255, 240]].concat()
}

/// A message of the binary API in its frame.
fn api_message(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 16];
    frame[8..12].copy_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// `sockclnt_create`, by which a client says its name.
fn api_create() -> Vec<u8> {
    let mut message = vec![0, 15, 0, 0, 0, 1];
    message.extend([b'x'; 63]);
    message.push(0);
    api_message(&message)
}

/// What a client does before it stalls.
#[derive(Clone, Copy, Debug)]
enum Stall {
    Silent,
    HalfHandshake,
    HalfLine,
    HalfHeader,
    NeverReads,
    ScriptNeverRead,
    OptionFlood,
    EndlessLine,
}

impl Stall {
    const ALL: [Self; 8] = [
        Self::Silent,
        Self::HalfHandshake,
        Self::HalfLine,
        Self::HalfHeader,
        Self::NeverReads,
        Self::ScriptNeverRead,
        Self::OptionFlood,
        Self::EndlessLine,
    ];

    /// A client that has come so far, still connected.
    fn client(self, router: &Router, socket: &str, noisy: &str) -> Option<UnixStream> {
        let mut stream = connect(router, socket).ok()?;
        let request = |command: &str| match socket {
            "json.sock" => format!("{{\"id\":1,\"command\":\"{command}\"}}\n").into_bytes(),
            "api.sock" => [api_create(), api_create()].concat(),
            _ => [terminal_type("vppctl"), format!("{command}\n").into_bytes()].concat(),
        };
        match self {
            Self::Silent => {}
            Self::HalfHandshake => push(&mut stream, if socket == "api.sock" { &[0, 15] } else { &[255, 250, 24, 0, b'v'] }),
            Self::HalfLine => push(&mut stream, b"show ver"),
            Self::HalfHeader => push(&mut stream, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            Self::NeverReads => (0..200).for_each(|_| push(&mut stream, &request("show runtime"))),
            Self::ScriptNeverRead => push(&mut stream, &request(noisy)),
            Self::OptionFlood => push(&mut stream, &[255, 253, 31, 255, 251, 24].repeat(100_000)),
            Self::EndlessLine => push(&mut stream, &vec![b'a'; 3 << 20]),
        }
        Some(stream)
    }
}

/// A command that never ends, however fast the router is: files of ten thousand lines run each other, four deep. They lie where
/// clients may have the router read files.
fn endless(router: &Router, name: &str, line: &str) -> String {
    (0..4).fold(line.to_owned(), |line, depth| {
        let file = router.file(&format!("{name}-{depth}"));
        fs::write(&file, format!("{line}\n").repeat(10_000)).expect("file");
        format!("exec {}", file.display())
    })
}

fn sessions(router: &Router) -> Vec<Value> {
    let text = router.cli_json("show sessions").expect("sessions");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["sessions"].as_array().expect("a list").clone()
}

fn running(router: &Router, kind: &str) -> Vec<u64> {
    let runs = |session: &&Value| session["kind"] == kind && session["running"] == true;
    sessions(router).iter().filter(runs).map(|session| session["id"].as_u64().expect("a number")).collect()
}

fn answers(router: &Router, what: &str) {
    let answer = router.cli("show version").unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(answer.contains("quiver"), "{what}: {answer}");
}

/// Frames on their way from one port of the packet generator to another, over a worker, at a rate that rings take.
fn frames(router: &Router) {
    let data = "data { IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 }";
    let script = format!(
        "create packet-generator interface pg0\ncreate packet-generator interface pg1\n\
         set interface state pg0 up\nset interface state pg1 up\n\
         set interface l2 xconnect pg0 pg1\nset interface l2 xconnect pg1 pg0\n\
         packet-generator new {{ name s limit {FRAMES} rate 2000 size 64-64 interface pg0 node ethernet-input {data} }}\n\
         packet-generator enable-stream s"
    );
    router.script(&script).expect("stream");
}

fn assert_all_frames_passed(router: &Router) {
    eventually("all frames passed", HANG, || counter(router, "pg1", "tx packets") >= FRAMES);
    assert_eq!(counter(router, "pg1", "tx packets"), FRAMES);
}

#[test]
fn stalled_clients_hold_up_neither_others_nor_packets() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").expect("host");
    let router = start(&host);
    let noisy = endless(&router, "noisy", "show version");
    frames(&router);
    answers(&router, "at rest");
    let before = router.usage().expect("usage");

    let mut held = Vec::new();
    for stall in Stall::ALL {
        for socket in SOCKETS {
            held.extend((0..5).filter_map(|_| stall.client(&router, socket, &noisy)));
            answers(&router, &format!("{stall:?} on {socket}"));
        }
    }
    // Scripts that nobody reads are held, not ended.
    for kind in ["cli", "json"] {
        eventually("scripts wait for their readers", HANG, || running(&router, kind).len() >= 5);
    }
    // What waits for those that do not read is bounded.
    for session in sessions(&router) {
        assert!(session["queue"].as_u64().expect("a number") < 4 << 20, "{session}");
    }
    drop(held);

    for socket in SOCKETS {
        let crowd: Vec<UnixStream> = (0..CROWD).filter_map(|_| connect(&router, socket).ok()).collect();
        answers(&router, &format!("{} connections to {socket}", crowd.len()));
        // This program has its share; others are told why there is no more for it.
        if socket != "api.sock" {
            let refused = refusal(crowd.last().expect("connections"));
            assert!(refused.contains("places for sessions of one process are taken"), "{socket}: {refused:?}");
        }
    }
    eventually("all sessions are gone", HANG, || sessions(&router).len() == 1);
    eventually("all descriptors are back", HANG, || router.usage().expect("usage").descriptors <= before.descriptors + 2);
    if let Some(seconds) = std::env::var("QUIVER_ATTACK_SECONDS").ok().and_then(|text| text.parse().ok()) {
        mixtures(&router, &noisy, Duration::from_secs(seconds));
    }
    assert_all_frames_passed(&router);
}

/// What a client is told that is turned away, up to the end of its connection.
fn refusal(mut stream: &UnixStream) -> String {
    stream.set_read_timeout(Some(HANG)).expect("time-out");
    let mut bytes = Vec::new();
    // It may be reset.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Clients of all kinds come and go at random.
fn mixtures(router: &Router, noisy: &str, time: Duration) {
    let mut seed = 0x9e37_79b9_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (end, mut held, mut made) = (Instant::now() + time, Vec::new(), 0_u64);
    while Instant::now() < end {
        let (stall, socket) = (Stall::ALL[random(Stall::ALL.len())], SOCKETS[random(SOCKETS.len())]);
        held.extend(stall.client(router, socket, noisy));
        made += 1;
        if held.len() > random(120) {
            held.swap_remove(random(held.len()));
        }
        if made.is_multiple_of(20) {
            answers(router, &format!("after {made} clients"));
        }
    }
    println!("{made} clients in {time:?}, {:?}", router.usage());
}

#[test]
fn a_script_stops_at_the_next_line_when_its_client_is_gone_or_its_session_is_cleared() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").expect("host");
    let router = start(&host);
    router.cli("create loopback interface").expect("loopback");
    let silent = endless(&router, "silent", "set interface mtu packet 1500 loop0");

    // Answers between its lines are what shows that others are not held up.
    for clear in [false, true] {
        let mut client = connect(&router, "json.sock").expect("client");
        push(&mut client, format!("{{\"command\":\"{silent}\"}}\n").as_bytes());
        eventually("the script runs", HANG, || !running(&router, "json").is_empty());
        let mut others: Vec<UnixStream> = (0..5).map(|_| connect(&router, "json.sock").expect("client")).collect();
        others.iter_mut().for_each(|other| push(other, format!("{{\"command\":\"{silent}\"}}\n").as_bytes()));
        eventually("six run side by side", HANG, || running(&router, "json").len() == 6);
        answers(&router, "beside six scripts");
        drop(others);
        eventually("one is left", HANG, || running(&router, "json").len() == 1);
        if clear {
            let id = running(&router, "json")[0];
            router.cli(&format!("clear session {id}")).expect("clear");
            let mut text = Vec::new();
            client.set_read_timeout(Some(HANG)).expect("time-out");
            client.read_to_end(&mut text).expect("the end");
            assert!(String::from_utf8_lossy(&text).contains("closed by `clear session'"), "{text:?}");
        }
        drop(client);
        eventually("none is left", HANG, || sessions(&router).len() == 1);
    }
    assert!(router.cli("clear session 999999").expect_err("none").contains("no such session"));
}

#[test]
fn an_idle_session_ends_after_its_time_and_says_why() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").expect("host");
    let router = Router::start(&host, "unix { cli-idle-timeout 1 } socksvr { default idle-timeout 1 }").expect("router");
    for socket in SOCKETS {
        let mut client = connect(&router, socket).expect("client");
        if socket == "api.sock" {
            push(&mut client, &api_create());
        }
        let mut text = Vec::new();
        client.set_read_timeout(Some(HANG)).expect("time-out");
        client.read_to_end(&mut text).expect("the end");
        let text = String::from_utf8_lossy(&text);
        assert!(socket == "api.sock" || text.contains("idle for too long"), "{socket}: {text}");
    }
}

/// A script run as one command, and how long it took.
fn timed(router: &Router, name: &str, lines: impl Iterator<Item = String>) -> Duration {
    let file = router.file("figures");
    fs::write(&file, lines.map(|line| line + "\n").collect::<String>()).expect("file");
    let client = UnixStream::connect(router.folder().join("json.sock")).expect("client");
    // One answer stands for up to 9,000 interfaces, and each of them waits for a turn of every worker: milliseconds on a busy machine.
    client.set_read_timeout(Some(10 * HANG)).expect("time-out");
    let begin = Instant::now();
    (&client).write_all(format!("{{\"command\":\"exec {}\"}}\n", file.display()).as_bytes()).expect("request");
    // Frames with names of what was created come before the last one.
    for line in BufReader::new(&client).lines() {
        let line = line.expect("an answer");
        assert!(!line.contains("\"status\":\"error\""), "{name}: {line}");
        if line.contains("\"status\":\"ok\"") {
            return begin.elapsed();
        }
    }
    panic!("{name}: no answer");
}

/// Prints what interfaces cost, and holds their memory to a bound. What they cost in work is held by the bench `interfaces` of
/// `quiver-net`, which counts instructions.
#[test]
fn figures_of_nine_thousand_interfaces() {
    /// Heap that the 22 names of a sub-interface's counters take in the statistics' directory: a text and an entry of a hash each
    /// (2,250 bytes by valgrind's dhat, beside 4,000 sub-interfaces).
    const NAMES: u64 = 2_250;
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (loops, subs) = if is_short_pass() { (1_000, 1_000) } else { (9_000, 4_094) };
    let host = Host::new("router").expect("host");
    let router = start(&host);
    let resident = || router.usage().expect("usage").resident;
    let own = || router.usage().expect("usage").own;
    router.cli("create loopback interface").expect("parent");
    let (before, own_before) = (resident(), own());
    let made = timed(&router, "subs", std::iter::once(format!("create sub-interfaces loop0 1-{subs}")));
    let (each, own_each) = ((resident() - before) / subs, (own() - own_before) / subs);
    println!("{subs} sub-interfaces: created {made:.2?}, {each} bytes each, {own_each} of them heap");
    if is_sanitized() {
        skip("memory of a sub-interface: a sanitizer's own is counted with it");
    } else {
        // The rest of the resident ones are its counters and their entries in the statistics' memory. The heap holds their names too.
        assert!(own_each < 5_000 + NAMES, "{own_each} bytes of heap a sub-interface");
        assert!(each < 16_000, "{each} bytes a sub-interface");
    }
    let up = timed(&router, "up", (1..=subs).map(|n| format!("set interface state loop0.{n} up")));
    let ip4 =
        timed(&router, "ip4", (1..=subs).map(|n| format!("set interface ip address loop0.{n} 20.{}.{}.1/24", n >> 8, n & 255)));
    let deleted = timed(&router, "delete", std::iter::once("delete loopback interface intfc loop0".to_owned()));
    println!("  up {up:.2?}, IPv4 addresses {ip4:.2?}, deleted {deleted:.2?}");

    let made = timed(&router, "loops", (0..loops).map(|_| "create loopback interface".to_owned()));
    let up = timed(&router, "up", (0..loops).map(|n| format!("set interface state loop{n} up")));
    let ip4 = timed(&router, "ip4", (0..loops).map(|n| format!("set interface ip address loop{n} 10.{}.{}.1/24", n >> 8, n & 255)));
    let ip6 = timed(&router, "ip6", (0..loops).map(|n| format!("set interface ip address loop{n} 2001:db8:{n:x}::1/64")));
    let resident = resident();
    let deleted = timed(&router, "delete", (0..loops).map(|n| format!("delete loopback interface intfc loop{n}")));
    println!(
        "{loops} loopbacks: created {made:.2?}, up {up:.2?}, IPv4 {ip4:.2?}, IPv6 {ip6:.2?}, deleted {deleted:.2?}; {} bytes each",
        resident.saturating_sub(before) / loops
    );
    assert_eq!(router.cli("show interface").expect("interfaces").lines().filter(|line| line.starts_with("loop")).count(), 0);
}

#[test]
fn a_router_whose_log_nobody_reads_goes_on_and_stops() {
    /// Lines of the log; a pipe takes some 700 of them.
    const LINES: usize = 5_000;
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let conf = "cpu { workers 1 } socksvr { default } logging { size 10000 }";
    let router = Router::builder(&host, conf).unread().start().expect("router");
    router.cli("set logging class api rate-limit 1000000").unwrap();
    let mut client = connect(&router, "api.sock").expect("a connection");
    client.set_write_timeout(Some(HANG)).unwrap();
    client.write_all(&api_create()).unwrap();
    // A number that no message has, which is noted in the log.
    client.write_all(&api_message(&[0xff, 0xf0, 0, 0, 0, 1, 0, 0, 0, 0]).repeat(LINES)).expect("they are taken");
    eventually("all are noted", HANG, || {
        let lines = router.cli("show logging").expect("an answer");
        lines.lines().filter(|line| line.contains("is not answered")).count() == LINES
    });
    router.cli("create loopback interface").expect("an answer");
    router.stop().expect("it ends although its last line cannot be written");
}
