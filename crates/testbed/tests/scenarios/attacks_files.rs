//! What a local user, and a client of the sockets, can do by files: pipes, links, names swapped while a command runs, paths
//! that are not theirs. The router must neither wait, nor touch what lies outside of its folders, nor show what is in it.
//!
//! `QUIVER_ATTACK_SECONDS=N` lets the races go on for N seconds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{BOUND, eventually};
use quiver_api::defs::{CliInband, ControlPing, CreateLoopback, SockclntCreate, SwInterfaceClearStats, SwInterfaceDump};
use quiver_api::{Message, Wire as _, frame};
use quiver_testbed::{Host, NOBODY, Router, Scenario, as_user, make_fifo};
use serde_json::{Value, json};

/// Longest wait for one answer: a router that waits for a pipe would take for ever.
const HANG: Duration = BOUND;
/// A group that nobody is in unless a test says so.
const READERS: u32 = 54_321;
const SECRET: &str = "root:secret:of:somebody";

/// How long a race goes on.
fn race() -> Duration {
    let asked = std::env::var("QUIVER_ATTACK_SECONDS").ok();
    asked.map_or(Duration::from_millis(1500), |text| Duration::from_secs(text.parse().expect("QUIVER_ATTACK_SECONDS is a number")))
}

/// A folder whose owner is root, with a folder in it in which everybody may write. Gone with the value.
struct World {
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("quiver-world-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (folder, mode) in [("", 0o755), ("all", 0o777), ("outside", 0o755)] {
            fs::create_dir(root.join(folder)).expect("folder");
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode)).expect("mode");
        }
        let world = Self { root };
        world.put("outside/secret", SECRET, 0o600);
        // Root's, but links to it may be made by everybody where the kernel does not forbid it.
        world.put("outside/open", "open to all\n", 0o666);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn all(&self, name: &str) -> PathBuf {
        self.root.join("all").join(name)
    }

    fn put(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).expect("file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("mode");
    }

    /// What lies outside of the router's folder: names, contents, rights.
    fn outside(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u64)> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.path("outside")).expect("folder").flatten() {
            let data = entry.metadata().expect("metadata");
            found.insert(entry.path(), (fs::read(entry.path()).unwrap_or_default(), data.mode(), data.ino()));
        }
        found
    }

    /// A router whose commands read and write in the folder of everybody: the worst that an operator can choose.
    fn router(&self, host: &Host) -> Router {
        let folder = self.path("all");
        let router = Router::start(host, &format!("files {{ folder {} }}", folder.display())).expect("router");
        for line in ["create packet-generator interface pg0", "set interface state pg0 up"] {
            router.cli(line).expect(line);
        }
        router
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Ends a race, also one that was lost.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn nobody<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    as_user(NOBODY, NOBODY, &[], work).expect("root becomes nobody")
}

/// A client of json.sock that does not wait for ever.
struct Json(BufReader<UnixStream>);

impl Json {
    fn connect(router: &Router) -> std::io::Result<Self> {
        let stream = UnixStream::connect(router.folder().join("json.sock"))?;
        stream.set_read_timeout(Some(HANG))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The last frame of the answer.
    fn ask(&mut self, call: &Value) -> Value {
        // A client that was turned away may not be able to write any more.
        let _ = self.0.get_mut().write_all(format!("{call}\n").as_bytes());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer in time");
            let reply: Value = serde_json::from_str(&line).expect("a frame");
            if reply["status"] != "more" {
                return reply;
            }
        }
    }
}

/// Asks a command, which must be answered in time; whether it succeeded, and its text.
fn ask(router: &Router, line: &str) -> (bool, String) {
    let reply = Json::connect(router).expect("json.sock").ask(&json!({ "command": line }));
    (reply["status"] == "ok", reply["text"].as_str().unwrap_or_default().to_owned())
}

fn assert_alive(router: &Router) {
    let (fine, text) = ask(router, "show version");
    assert!(fine, "{text}");
}

/// Commands that write a file of this name, or make one ready. Each is followed by what ends it.
fn writers(name: &str) -> Vec<Vec<String>> {
    let of = |lines: &[String]| lines.to_vec();
    vec![
        of(&[format!("show vlib graph svg all file {name}")]),
        of(&[format!("event-logger save {name}")]),
        of(&[
            format!("pcap trace rx tx drop max 10 file {name}"),
            "packet-generator enable-stream".into(),
            "pcap trace off".into(),
        ]),
        of(&[format!("create pcap-interface name rec tx {name}"), "delete pcap-interface rec".into()]),
        of(&[format!("packet-generator capture pg0 pcap {name}"), "packet-generator capture pg0 disable".into()]),
    ]
}

/// Commands that read a file of this name.
fn readers(name: &str) -> Vec<String> {
    vec![
        format!("exec {name}"),
        format!("packet-generator new {{ name s pcap {name} }}"),
        format!("create pcap-interface name rec rx {name}"),
    ]
}

fn stream(router: &Router) {
    let data = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 30";
    let line =
        format!("packet-generator new {{ name load limit 20 size 80-80 interface pg0 node ethernet-input data {{ {data} }} }}");
    router.cli(&line).expect("stream");
}

#[test]
fn pipes_links_and_sockets_in_a_folder_of_everybody_neither_hang_nor_mislead_the_router() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let world = World::new();
    let host = Host::new("files").expect("host");
    let router = world.router(&host);
    stream(&router);
    let before = world.outside();
    let names = ["pipe", "link", "dangling", "door", "socket", "folder"];
    let _socket = nobody(|| {
        make_fifo(&world.all("pipe")).expect("pipe");
        symlink(world.path("outside/secret"), world.all("link")).expect("link");
        symlink(world.path("outside/new"), world.all("dangling")).expect("link");
        symlink(world.path("outside"), world.all("door")).expect("link");
        fs::create_dir(world.all("folder")).expect("folder");
        // The name that was written to first before, and followed.
        for name in names {
            symlink(world.path("outside/open"), world.all(&format!("{name}.part"))).expect("link");
        }
        UnixListener::bind(world.all("socket")).expect("socket")
    });
    for name in names.into_iter().chain(["door/new", "door/secret", "folder/../x"]) {
        for lines in writers(name) {
            let (fine, text) = ask(&router, &lines[0]);
            assert!(!fine && text.trim_end().lines().count() == 1, "{}: {text}", lines[0]);
        }
        for line in readers(name) {
            let (fine, text) = ask(&router, &line);
            assert!(!fine && !text.contains("secret:of"), "{line}: {text}");
        }
        assert_alive(&router);
    }
    // A plain name is replaced, whoever had it: what it was linked to stays as it is.
    let foreign = ["mine", "hard"];
    nobody(|| {
        fs::write(world.all("mine"), "of nobody").expect("file");
        fs::set_permissions(world.all("mine"), fs::Permissions::from_mode(0o666)).expect("mode");
    });
    fs::hard_link(world.path("outside/open"), world.all("hard")).expect("hard link");
    for name in foreign {
        for lines in writers(name).into_iter().take(4) {
            for line in &lines {
                let (fine, text) = ask(&router, line);
                assert!(fine, "{line}: {text}");
            }
            let data = fs::metadata(world.all(name)).expect("file");
            assert_eq!((data.uid(), data.mode() & 0o777), (0, 0o600), "{}", lines[0]);
            assert!(nobody(|| fs::read(world.all(name))).is_err(), "nobody reads packets");
        }
    }
    assert_eq!(world.outside(), before, "nothing outside of the folder changed");
    assert!(fs::read_dir(world.path("all")).unwrap().flatten().all(|e| !e.file_name().to_string_lossy().starts_with(".quiver")));
}

#[test]
fn names_swapped_while_commands_run_lead_nowhere() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let world = World::new();
    let host = Host::new("files").expect("host");
    let router = world.router(&host);
    stream(&router);
    nobody(|| fs::create_dir(world.all("sub")).expect("folder"));
    let before = world.outside();
    let (stop, swaps, commands) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let swap = || {
        nobody(|| {
            let (name, aside, sub) = (world.all("x"), world.all("aside"), world.all("sub"));
            while !stop.load(Ordering::Relaxed) {
                for kind in 0..5 {
                    let _ = fs::remove_file(&aside);
                    let _ = match kind {
                        0 => make_fifo(&aside),
                        1 => symlink(world.path("outside/secret"), &aside),
                        2 => fs::write(&aside, "show version\n"),
                        3 => fs::hard_link(world.path("outside/open"), &aside),
                        _ => symlink("/dev/zero", &aside),
                    };
                    let _ = fs::rename(&aside, &name);
                    // The folder on the way becomes a link, and a folder again.
                    let _ = fs::rename(&sub, world.all("sub-aside"));
                    let _ = symlink(world.path("outside"), &sub);
                    let _ = fs::remove_file(&sub);
                    let _ = fs::rename(world.all("sub-aside"), &sub);
                    // Files in the making are taken away too: it is a folder of everybody.
                    for entry in fs::read_dir(world.path("all")).into_iter().flatten().flatten() {
                        if entry.file_name().to_string_lossy().ends_with(".part") {
                            let _ = fs::remove_file(entry.path());
                        }
                    }
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(swap);
        let _stop = SetOnDrop(&stop);
        eventually("names are swapped", BOUND, || swaps.load(Ordering::Relaxed) > 0);
        let end = Instant::now() + race();
        while Instant::now() < end {
            for name in ["x", "sub/x", "sub/secret", "sub/new"] {
                for line in writers(name).concat().into_iter().chain(readers(name)) {
                    let (_, text) = ask(&router, &line);
                    assert!(!text.contains("secret:of"), "{line}: {text}");
                    commands.fetch_add(1, Ordering::Relaxed);
                }
                let _ = ask(&router, "delete pcap-interface rec");
                let _ = ask(&router, "packet-generator delete s");
            }
        }
    });
    assert_alive(&router);
    assert_eq!(world.outside(), before, "nothing outside of the folder changed");
    assert!(swaps.load(Ordering::Relaxed) > 0 && commands.load(Ordering::Relaxed) > 0);
    println!("{} commands against {} swaps", commands.into_inner(), swaps.into_inner());
}

#[test]
fn a_client_of_the_sockets_names_no_file_outside_and_reads_none() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let world = World::new();
    let host = Host::new("files").expect("host");
    let folder = world.path("allowed");
    fs::create_dir(&folder).expect("folder");
    let router = Router::start(&host, &format!("files {{ read {} }}", folder.display())).expect("router");
    router.cli("create packet-generator interface pg0").expect("port");
    let mode = |path: &Path| fs::metadata(path).expect("file").permissions().mode() & 0o777;
    assert_eq!(mode(&router.folder().join("files")), 0o750);
    let before = world.outside();
    let secret = world.path("outside/secret").display().to_string();
    let new = world.path("outside/new").display().to_string();
    let long = "x".repeat(5000);
    let bad =
        ["/etc/shadow", "/proc/self/environ", "/dev/zero", "/dev/null", "..", "../x", "a/../../x", "", ".", "/", "a\u{0}b", "a\nb"];
    for name in bad.into_iter().chain([secret.as_str(), new.as_str(), long.as_str()]) {
        for (op, request) in [
            ("exec", json!({ "file": name })),
            ("pcap_trace_on", json!({ "rx": true, "file": name })),
            ("events_save", json!({ "file": name })),
            ("api_trace_save", json!({ "file": name })),
            ("graph_draw", json!({ "format": "svg", "file": name })),
            ("pg_stream_new", json!({ "name": "s", "pcap": name })),
            ("pcap_interface_create", json!({ "name": "p", "rx": name, "rounds": 1 })),
            ("pcap_interface_create", json!({ "name": "p", "tx": name })),
            ("pg_capture", json!({ "interface": "pg0", "file": name })),
        ] {
            let reply = Json::connect(&router).expect("json.sock").ask(&json!({ "op": op, "request": request }));
            let text = reply["text"].as_str().unwrap_or_default().to_owned();
            let excerpt: String = name.chars().take(40).collect();
            assert_eq!(reply["status"], "error", "{op} {excerpt:?}: {reply}");
            assert!(
                text.trim_end().lines().count() == 1 && text.len() < 400 && !text.contains("secret:of"),
                "{op} {excerpt:?}: {text}"
            );
        }
    }
    // A folder that may be read is not shown where it holds no commands, and is not written to.
    fs::copy(world.path("outside/secret"), folder.join("secret")).expect("copy");
    let (fine, text) = ask(&router, &format!("exec {}", folder.join("secret").display()));
    assert!(!fine && text.contains("no such command") && !text.contains("of:somebody"), "{text}");
    let (fine, text) = ask(&router, &format!("event-logger save {}", folder.join("new").display()));
    assert!(!fine && text.contains("files { write"), "{text}");
    // What is allowed works.
    fs::write(folder.join("good"), "create loopback interface\n").expect("file");
    assert_eq!(ask(&router, &format!("exec {}", folder.join("good").display())), (true, String::new()));
    // The client reads its own files by its own rights.
    world.put("outside/own.cli", "define A version\nshow $(A)\n", 0o600);
    let text = router.cli(&format!("exec {}", world.path("outside/own.cli").display())).expect("the client's own file");
    assert!(text.contains("quiver"), "{text}");
    let error = router.cli(&format!("exec {secret}")).unwrap_err();
    assert!(error.contains("unknown input"), "it is the client's own: {error}");
    fs::remove_file(world.path("outside/own.cli")).expect("file");
    assert_eq!(world.outside(), before);
    assert_alive(&router);
}

/// A client of the binary API.
struct Api {
    stream: UnixStream,
    received: Vec<u8>,
    messages: BTreeMap<String, u16>,
    /// Of the last request: a dump has more answers than the first, which is the one that is looked at.
    context: u32,
}

impl Api {
    fn connect(router: &Router) -> std::io::Result<Self> {
        let stream = UnixStream::connect(router.folder().join("api.sock"))?;
        stream.set_read_timeout(Some(HANG))?;
        let mut api = Self { stream, received: Vec::new(), messages: BTreeMap::new(), context: 0 };
        let mut hello = Vec::new();
        frame::push(&mut hello, |out| {
            frame::CREATE.put(out);
            0_u32.put(out);
            SockclntCreate { name: "attack".into() }.write(out);
        });
        api.stream.write_all(&hello)?;
        let answer = api.receive()?;
        let mut reader = quiver_api::Reader::new(&answer[10..]);
        let reply = quiver_api::defs::SockclntCreateReply::read(&mut reader).map_err(|_| std::io::ErrorKind::InvalidData)?;
        for entry in reply.message_table {
            let name = entry.name.as_str().rsplit_once('_').map_or("", |(name, _)| name).to_owned();
            api.messages.insert(name, entry.index);
        }
        Ok(api)
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            if let frame::Front::Message(message, taken) = frame::front(&self.received) {
                let message = message.to_vec();
                self.received.drain(..taken);
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => self.received.extend_from_slice(&bytes[..n]),
            }
        }
    }

    /// The first answer to a request, behind its number and context.
    fn ask<M: Message>(&mut self, message: &M) -> Vec<u8> {
        let id = self.messages[M::INFO.name];
        self.context += 1;
        let mut bytes = Vec::new();
        frame::push(&mut bytes, |out| {
            id.put(out);
            0_u32.put(out);
            self.context.put(out);
            message.write(out);
        });
        self.stream.write_all(&bytes).expect("request");
        loop {
            let answer = self.receive().expect("answer");
            if answer[2..6] == self.context.to_be_bytes() {
                return answer[6..].to_vec();
            }
        }
    }

    fn code<M: Message>(&mut self, message: &M) -> i32 {
        i32::from_be_bytes(self.ask(message)[..4].try_into().expect("a code"))
    }
}

#[test]
fn a_read_only_group_reads_by_all_three_sockets_and_changes_nothing() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("files").expect("host");
    let conf = format!("unix {{ read-only-gid {READERS} }} socksvr {{ default }} statseg {{ default }}");
    let router = Router::start(&host, &conf).expect("router");
    router.cli("create loopback interface").expect("root does everything");
    let interfaces = || router.cli("show interface").expect("show").lines().filter(|line| line.starts_with("loop")).count();
    // By a supplementary group, as a member of it would be.
    as_user(NOBODY, NOBODY, &[7, READERS], || {
        let mut json = Json::connect(&router).expect("json.sock");
        assert_eq!(json.ask(&json!({ "command": "show interface" }))["status"], "ok");
        assert_eq!(json.ask(&json!({ "op": "interfaces_show" }))["status"], "ok");
        for call in [
            json!({ "command": "create loopback interface" }),
            json!({ "command": "clear interfaces" }),
            json!({ "command": "pcap trace rx" }),
            json!({ "command": "show vlib graph svg file x" }),
            json!({ "command": "exec x" }),
            json!({ "op": "loopback_create" , "request": {} }),
            json!({ "op": "exec_lines", "request": { "name": "x", "lines": [[1, "create loopback interface"]] } }),
        ] {
            let reply = json.ask(&call);
            assert!(reply["status"] == "error" && reply["text"].as_str().unwrap().contains("permission denied"), "{call}: {reply}");
        }
        // The command socket speaks the same frames where it is asked to; a terminal's client gets the text.
        let mut api = Api::connect(&router).expect("api.sock");
        assert_eq!(api.code(&ControlPing {}), 0);
        assert!(
            !api.ask(&SwInterfaceDump { sw_if_index: quiver_api::defs::InterfaceIndex(u32::MAX), ..Default::default() }).is_empty()
        );
        assert_eq!(api.code(&CreateLoopback::default()), -85);
        assert_eq!(api.code(&SwInterfaceClearStats::default()), -85);
        let answer = api.ask(&CliInband { cmd: "create loopback interface".into() });
        assert!(String::from_utf8_lossy(&answer).contains("permission denied"));
        assert!(!String::from_utf8_lossy(&api.ask(&CliInband { cmd: "show version".into() })).contains("denied"));
        let mut cli = UnixStream::connect(router.socket()).expect("cli.sock");
        cli.set_read_timeout(Some(HANG)).expect("time limit");
        // A terminal type that is no terminal, as vppctl says it for one command.
        cli.write_all(b"\xff\xfb\x18\xff\xfa\x18\x00vppctl\xff\xf0create loopback interface\n").expect("command");
        let mut said = Vec::new();
        let mut chunk = [0; 1024];
        while !String::from_utf8_lossy(&said).contains("permission denied") {
            let n = cli.read(&mut chunk).expect("an answer in time");
            assert!(n > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&chunk[..n]);
        }
    })
    .expect("root becomes nobody");
    assert_eq!(interfaces(), 1, "root's loopback only");
    // Who is in no group is turned away, with one line where the socket has lines.
    nobody(|| {
        let reply = Json::connect(&router).expect("json.sock").ask(&json!({ "command": "show version" }));
        assert!(reply["text"].as_str().unwrap().contains("permission denied"), "{reply}");
        assert!(Api::connect(&router).is_err());
        let mut text = String::new();
        let mut cli = UnixStream::connect(router.socket()).expect("cli.sock");
        cli.set_read_timeout(Some(HANG)).expect("time limit");
        cli.read_to_string(&mut text).expect("the refusal, and the end");
        assert!(text.contains("permission denied"), "{text:?}");
    });
}

#[test]
fn without_a_read_only_group_others_reach_no_socket() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let world = World::new();
    let host = Host::new("files").expect("host");
    let runtime = world.path("runtime");
    let conf = format!("unix {{ runtime-dir {} gid {READERS} }} socksvr {{ default }} statseg {{ default }}", runtime.display());
    // The test bed adds its own runtime folder before ours; the last one named counts.
    let _router = Router::start(&host, &conf).expect("router");
    let mode = |path: &Path| fs::metadata(path).expect("file").permissions().mode() & 0o777;
    assert_eq!(mode(&runtime), 0o750);
    assert_eq!(fs::metadata(&runtime).expect("folder").gid(), READERS);
    for name in ["json.sock", "api.sock", "stats.sock"] {
        assert_eq!(mode(&runtime.join(name)), 0o660, "{name}");
        assert!(nobody(|| UnixStream::connect(runtime.join(name))).is_err(), "{name}");
    }
    let member = as_user(NOBODY, NOBODY, &[READERS], || UnixStream::connect(runtime.join("json.sock")).map(drop));
    assert!(member.expect("root becomes nobody").is_ok(), "members of the group may");
}
