//! Configuration that lasts: what was confirmed is there after any end, and what cannot be stored is refused.
//!
//! `QUIVER_KILLS` says how many times the router is killed at a random moment; a few without it.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{Folder, Json, Router, STATE, crash, is_root, output};
use quiver_api::defs::*;
use quiver_api::{Message, Reader, Wire, frame};

/// The configuration, whatever the order: numbers of interfaces depend on which were deleted when.
fn configuration(router: &Router) -> Vec<String> {
    let mut lines: Vec<String> = router.ask("show configuration").unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_was_confirmed_is_there_after_a_crash_and_startup_config_is_not_run_again() {
    let folder = Folder::new();
    let script = folder.file("start", "create loopback interface instance 7\n");
    let conf = format!("unix {{ state-dir @/state startup-config {} }}", script.display());
    let router = Router::start_in(folder, &conf);
    for line in [
        "create loopback interface instance 0",
        "set interface ip address loop0 10.0.0.1/24",
        "set interface state loop0 up",
        "ip route add 192.0.2.0/24 via 10.0.0.2 loop0",
        "create bridge-domain 5",
        "delete loopback interface intfc loop7",
    ] {
        router.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert!(router.ask("show configuration state").unwrap().contains("7 operations recorded"));
    let before = configuration(&router);
    assert!(before.contains(&"ip route add 192.0.2.0/24 via 10.0.0.2 loop0".to_owned()), "{before:?}");

    let router = crash(router, &conf);
    assert_eq!(configuration(&router), before);
    assert!(router.ask("show bridge-domain 5").is_ok(), "recorded, though the configuration does not speak of it yet");

    // The same from a checkpoint, and from what was recorded behind it.
    router.ask("write").unwrap();
    router.ask("set interface tag loop0 cellar").unwrap();
    let before = configuration(&router);
    let router = crash(router, &conf);
    assert_eq!(configuration(&router), before);
    assert!(router.ask("show bridge-domain 5").is_ok());

    // As a file of commands.
    router.ask("save commands").unwrap();
    let text = fs::read_to_string(router.path("files/commands")).unwrap();
    assert!(text.contains("set interface tag loop0 cellar\n"), "{text}");
    let fresh = Router::start("");
    assert!(fresh.ask("write").unwrap_err().contains("state-dir"), "nothing lasts there");
    fs::copy(router.path("files/commands"), fresh.path("files/commands")).unwrap();
    fresh.ask("exec commands").unwrap();
    assert_eq!(configuration(&fresh), before);
}

#[test]
fn a_torn_tail_is_left_out_and_a_folder_has_one_router() {
    let mut router = Router::start(STATE);
    router.ask("create loopback interface instance 0").unwrap();
    let before = configuration(&router);
    let state = router.path("state");
    let folder = Folder::new();
    let second = output(&folder, &format!("unix {{ nodaemon runtime-dir @ state-dir {} }}", state.display()));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another router keeps its state there"), "{second:?}");
    router.kill9();
    // The journal ends where nothing is written any more; a record follows of which the disk has a part.
    let path = state.join("configuration");
    let bytes = fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(end as u64).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    file.write_all(&[40, 0, 0, 0, 1, 2, 3, 4, b'{']).unwrap();
    let router = router.again(STATE);
    assert_eq!(configuration(&router), before);
    assert!(router.console().contains("are not; the file as it was is kept"), "{}", router.console());
    assert!(state.join("configuration.torn").exists());
}

#[test]
fn what_cannot_be_made_again_is_told_and_kept() {
    let router = Router::start(STATE);
    router.ask("create loopback interface instance 3").unwrap();
    router.ask("create pcap-interface name p tx capture").unwrap();
    router.ask("set interface tag p cellar").unwrap();
    let before = configuration(&router);
    // The recording cannot be made where a folder has its name.
    fs::remove_file(router.path("files/capture")).unwrap();
    fs::create_dir(router.path("files/capture")).unwrap();
    let router = crash(router, STATE);
    assert_eq!(configuration(&router), ["create loopback interface instance 3"]);
    let failed = router.data("show configuration state")["failed"].clone();
    assert_eq!((&failed[0]["operation"], failed.as_array().unwrap().len()), (&"pcap_interface_create".into(), 2));
    fs::remove_dir(router.path("files/capture")).unwrap();
    let router = crash(router, STATE);
    assert_eq!(configuration(&router), before);
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// A change of configuration; some are refused.
    fn line(&mut self) -> String {
        let (n, k) = (self.below(5), self.below(4));
        let del = if self.below(3) == 0 { "del " } else { "" };
        match self.below(17) {
            0 | 1 => format!("create loopback interface instance {n}"),
            2 => format!("delete loopback interface intfc loop{n}"),
            3 => format!("set interface state loop{n} {}", if k < 3 { "up" } else { "down" }),
            4 | 5 => format!("set interface ip address {del}loop{n} 10.{n}.{k}.1/24"),
            6 => format!("set interface ip address {del}loop{n} 2001:db8:{n}::{k}/64"),
            7 => format!("ip table {} {}", if del.is_empty() { "add" } else { "del" }, k + 1),
            8 => format!("ip route {} 172.16.{n}{k}.0/24 via loop{n}", if del.is_empty() { "add" } else { "del" }),
            9 => format!("ip route {} count 50 172.20.{k}.0/32 table {k} via drop", if del.is_empty() { "add" } else { "del" }),
            10 => format!("set interface mtu {} loop{n}", 1000 + k),
            11 => format!("set interface tag loop{n} tag {k}"),
            12 => format!("create sub-interfaces loop{n} {}", k + 1),
            13 => format!("configuration checkpoint c{}", k % 2),
            14 => format!("rollback c{}", k % 2),
            _ => "write".to_owned(),
        }
    }

    /// A document of some interfaces and routes, which owns them.
    fn document(&mut self) -> String {
        let (n, k) = (self.below(5), self.below(4));
        let interface = format!("{{loopback: {{}}, mtu: {}, addresses: [10.{n}.{k}.1/24], up: true}}", 1000 + k);
        match self.below(3) {
            0 => format!("own: [interfaces/loop{n}]\ninterfaces: {{loop{n}: {interface}}}"),
            1 => format!(
                "own: [routes/0]\nroutes: {{0: {{172.16.{n}{k}.0/24: [{{kind: drop}}], 172.21.{k}.0/24: [{{kind: drop}}]}}}}"
            ),
            _ => format!(
                "own: [interfaces, routes]\ninterfaces: {{loop{n}: {interface}, loop7: {{loopback: {{}}}}}}\nroutes: {{0: {{10.9.{k}.0/24: [{{interface: loop{n}}}]}}}}"
            ),
        }
    }
}

/// Something that changes configuration as a whole.
#[derive(Debug)]
enum Change {
    Line(String),
    /// Commands that are collected and committed.
    Candidate(Vec<String>),
    /// A document that owns some parts.
    Apply(String),
}

impl Change {
    fn random(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Candidate((0..=random.below(5)).map(|_| random.line()).filter(|line| is_change(line)).collect()),
            1 => Self::Apply(random.document()),
            _ => Self::Line(random.line()),
        }
    }

    /// Whether it was done; none where the router ends before it says so. A candidate that cannot be committed is discarded.
    fn send(&self, client: &mut Json) -> Option<bool> {
        let is_ok = |answer: &serde_json::Value| answer["status"] == "ok";
        match self {
            Self::Line(line) => client.try_ask(line).map(|answer| is_ok(&answer)),
            Self::Apply(document) => {
                let request = serde_json::json!({"op": "configuration_apply", "request": {"document": document}});
                client.try_call(&request).map(|answer| is_ok(&answer))
            }
            Self::Candidate(lines) => {
                assert!(is_ok(&client.try_ask("configure")?));
                for line in lines {
                    client.try_ask(line)?;
                }
                let done = is_ok(&client.try_ask("commit")?);
                if !done {
                    client.try_ask("discard")?;
                }
                Some(done)
            }
        }
    }
}

/// Whether a line may stand in a candidate.
fn is_change(line: &str) -> bool {
    !["write", "rollback", "configuration"].iter().any(|word| line.starts_with(word))
}

/// A router is killed at random moments while its configuration changes. Another one, that nobody kills, runs what was confirmed.
#[test]
fn whenever_it_is_killed_what_was_confirmed_is_there() {
    kill_at_random_moments(Folder::new(), None);
}

/// The same while the disk is full for a part of the time: what is refused there is not confirmed.
#[test]
fn whenever_it_is_killed_on_a_full_disk_what_was_confirmed_is_there() {
    let folder = Folder::new();
    let Some(small) = is_root().then(|| Small::mount(folder.join("state"))).flatten() else {
        println!("skipped: mounting a small file system needs root");
        return;
    };
    kill_at_random_moments(folder, Some(&small));
}

fn kill_at_random_moments(folder: Folder, small: Option<&Small>) {
    let kills: u64 = std::env::var("QUIVER_KILLS").ok().map_or(6, |text| text.parse().expect("QUIVER_KILLS is a number"));
    let mut random = Random(0x0721_2026_1123);
    let model = Router::start("");
    let mut mirror = Json::connect(&model.path("json.sock")).unwrap();
    let mut router = Router::start_in(folder, STATE);
    let (mut confirmed, mut refused, mut in_flight, mut candidates, mut applied) = (0, 0, 0, 0, 0);
    for kill in 0..kills {
        let mut client = Json::connect(&router.path("json.sock")).unwrap();
        let moment = Duration::from_micros(random.below(60_000));
        // From one of the first changes on there is no room.
        let full_from = small.map(|small| (small, random.below(10)));
        let pid = rustix::process::Pid::from_child(&router.child);
        let killer = thread::spawn(move || {
            thread::sleep(moment);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let last = (0..).find_map(|count| {
            if let Some((small, _)) = full_from.filter(|(_, from)| *from == count) {
                small.fill();
            }
            let change = Change::random(&mut random);
            let Some(done) = change.send(&mut client) else { return Some(change) };
            if done && !matches!(&change, Change::Line(line) if line == "write") {
                confirmed += 1;
                match change {
                    Change::Candidate(_) => candidates += 1,
                    Change::Apply(_) => applied += 1,
                    Change::Line(_) => {}
                }
                assert_eq!(change.send(&mut mirror), Some(true), "{change:?}");
            } else {
                refused += 1;
            }
            None
        });
        let last = last.expect("it ends");
        killer.join().unwrap();
        router.child.wait().unwrap();
        small.iter().for_each(|small| small.empty());
        router = router.again(STATE);
        let (is, mut should) = (configuration(&router), configuration(&model));
        if is != should {
            // What was asked for and not answered may be there.
            in_flight += 1;
            last.send(&mut mirror);
            should = configuration(&model);
        }
        let lacks = |of: &[String], other: &[String]| of.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>();
        let (missing, more) = (lacks(&should, &is), lacks(&is, &should));
        let when = format!("kill {kill} after {moment:?}, {confirmed} confirmed, then {last:?}");
        assert!(missing.is_empty() && more.is_empty(), "{when}: missing {missing:?}, too much {more:?}");
        if let Change::Line(line) = &last
            && line.starts_with("configuration checkpoint")
        {
            // Nobody knows which one there is.
            assert_eq!((router.ask(line), mirror.ask(line, false)["status"].as_str()), (Ok(String::new()), Some("ok")));
        }
    }
    println!(
        "{kills} kills, {confirmed} changes confirmed ({candidates} candidates, {applied} documents), {refused} refused, {in_flight} done and not confirmed"
    );
}

/// A client of the binary API.
struct Api {
    stream: UnixStream,
    index: u32,
    table: Vec<MessageTableEntry>,
}

impl Api {
    fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(common::SOON)).unwrap();
        let mut hello = Vec::new();
        frame::push(&mut hello, |out| {
            frame::CREATE.put(out);
            1_u32.put(out);
            SockclntCreate { name: "lasting".into() }.write(out);
        });
        stream.write_all(&hello).unwrap();
        let message = Self::receive(&mut stream);
        let mut reader = Reader::new(&message[2..]);
        let (index, _context) = (u32::get(&mut reader).unwrap(), u32::get(&mut reader).unwrap());
        let table = SockclntCreateReply::read(&mut reader).unwrap().message_table;
        Self { stream, index, table }
    }

    fn receive(stream: &mut UnixStream) -> Vec<u8> {
        let mut header = [0; frame::HEADER];
        stream.read_exact(&mut header).unwrap();
        let mut message = vec![0; u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize];
        stream.read_exact(&mut message).unwrap();
        message
    }

    /// Sends a request; it has been done when this returns.
    fn ask<M: Message>(&mut self, message: &M) {
        let wanted = format!("{}_{:08x}", M::INFO.name, quiver_api::crc(M::INFO));
        let id = self.table.iter().find(|entry| entry.name.as_str() == wanted).expect(&wanted).index;
        let (index, mut out) = (self.index, Vec::new());
        frame::push(&mut out, |out| {
            id.put(out);
            index.put(out);
            7_u32.put(out);
            message.write(out);
        });
        self.stream.write_all(&out).unwrap();
        let reply = Self::receive(&mut self.stream);
        // Number, context, and the code of every reply.
        assert_eq!(reply[6..10], [0; 4], "{}: {reply:?}", M::INFO.name);
    }
}

#[test]
fn changes_of_the_binary_api_last_whether_they_are_an_operation_or_not() {
    let conf = format!("{STATE} socksvr {{ socket-name @/api.sock }}");
    let router = Router::start(&conf);
    let mut client = Api::connect(&router.path("api.sock"));
    client.ask(&CreateLoopbackInstance { is_specified: true, user_instance: 4, ..CreateLoopbackInstance::default() });
    let sw_if_index = InterfaceIndex(1);
    let mut un = AddressUnion::default();
    un.0[..4].copy_from_slice(&[10, 1, 0, 0]);
    let mut message = IpRouteAddDel { is_add: true, ..IpRouteAddDel::default() };
    message.route.prefix = Prefix { address: Address { af: AddressFamily::ADDRESS_IP4, un }, len: 16 };
    message.route.paths = vec![FibPath { sw_if_index: 1, weight: 1, ..FibPath::default() }];
    client.ask(&message);
    let recorded = |router: &Router| router.data("show configuration state")["recorded"].as_u64().unwrap();
    assert_eq!(recorded(&router), 2, "an operation each");
    // This one changes the router itself: a checkpoint follows before the answer.
    client.ask(&SwInterfaceSetFlags { sw_if_index: sw_if_index.clone(), flags: IfStatusFlags(1) });
    assert_eq!(recorded(&router), 3);
    client.ask(&SwInterfaceClearStats { sw_if_index });
    assert_eq!(recorded(&router), 3, "no configuration");
    let before = configuration(&router);
    let expected =
        ["create loopback interface instance 4", "ip route add 10.1.0.0/16 source api via loop4", "set interface state loop4 up"];
    assert_eq!(before, expected);
    let router = crash(router, &conf);
    assert_eq!(configuration(&router), before);
}

#[test]
fn a_checkpoint_holds_everything_once() {
    let conf = format!("{STATE} socksvr {{ socket-name @/api.sock }}");
    let mut router = Router::start(&conf);
    for line in [
        "create packet-generator interface pg0",
        "create bridge-domain 7 learn 0",
        "set interface l2 bridge pg0 7",
        "l2fib add 02:00:00:00:00:05 7 pg0 static",
        "create loopback interface instance 5",
        "set interface ip address loop5 10.0.0.1/24",
        "set ip neighbor loop5 10.0.0.9 02:00:00:00:00:09 static",
        "set ip neighbor-config ip4 limit 77",
        "ip6 nd loop5 ra-interval 30 20",
        "nat44 plugin enable sessions 1000",
        "nat44 add address 192.0.2.1",
        "set interface nat44 out loop5",
        "nat44 add static mapping tcp local 10.0.0.2 80 external 192.0.2.1 8080",
        "set nat timeout udp 99",
    ] {
        router.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let file = router.path("state/configuration");
    let (before, mut sizes) = (configuration(&router), Vec::new());
    // Each time a message that is no operation makes a checkpoint.
    for round in 0..3 {
        let mut client = Api::connect(&router.path("api.sock"));
        client.ask(&SwInterfaceSetFlags { sw_if_index: InterfaceIndex(2), flags: IfStatusFlags(round % 2) });
        router = crash(router, &conf);
        assert_eq!(router.data("show configuration state")["failed"], serde_json::json!([]));
        sizes.push(fs::read(&file).map(|bytes| bytes.iter().filter(|b| **b != 0).count()).unwrap());
    }
    assert_eq!(configuration(&router), before);
    assert_eq!(sizes[0], sizes[2], "the file does not grow: {sizes:?}");
}

/// A small file system of its own, as long as this lives.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(path: std::path::PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&path).status();
        done.is_ok_and(|status| status.success()).then(|| Self(path))
    }

    /// Uses up all its room.
    fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 1 << 16]).is_ok() {}
        while filler.write_all(&[1]).is_ok() {}
    }

    /// Gives the room back.
    fn empty(&self) {
        let _ = fs::remove_file(self.0.join("filler"));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_changes_are_refused_and_the_router_goes_on() {
    let folder = Folder::new();
    let Some(small) = is_root().then(|| Small::mount(folder.join("state"))).flatten() else {
        println!("skipped: mounting a small file system needs root");
        return;
    };
    let mut router = Router::start_in(folder, STATE);
    let text = "x".repeat(30_000);
    let define = |n: usize| format!("define M{n} {text}");
    router.ask(&define(0)).unwrap();
    let mut filler = fs::File::create(small.0.join("filler")).unwrap();
    while filler.write_all(&[1; 1 << 16]).is_ok() {}
    // The space that was reserved is used up, then it is said.
    let refused = (1..1000).find_map(|n| router.ask(&define(n)).err().map(|error| (n, error)));
    let (first, error) = refused.expect("refused at last");
    assert!(error.contains("refused: what changes cannot be stored") && error.contains("No space left"), "{error}");
    assert!(!error.trim_end().contains('\n'), "{error}");
    let names = |router: &Router| router.data("show macro").as_array().map_or(0, Vec::len);
    assert_eq!(names(&router), first, "it is as it was");
    assert!(
        router.ask("show version").is_ok() && router.ask("show configuration state").unwrap().contains("nothing can be stored")
    );
    // What was confirmed is there after a crash, also now.
    router.kill9();
    drop(filler);
    fs::remove_file(small.0.join("filler")).unwrap();
    let mut router = router.again(STATE);
    assert_eq!(names(&router), first);
    // With room again it goes on without being started anew.
    let mut filler = fs::File::create(small.0.join("filler")).unwrap();
    while filler.write_all(&[1; 1 << 16]).is_ok() {}
    let refused = (first..1000).find(|n| router.ask(&define(*n)).is_err()).expect("refused at last");
    drop(filler);
    fs::remove_file(small.0.join("filler")).unwrap();
    router.wait_for("changes are taken again", |router| router.ask(&define(refused)).is_ok());
}
