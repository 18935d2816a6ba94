//! The keys of startup.conf take effect, each seen from outside; and the ways a router starts, refuses to, and ends.

mod common;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Cli, Folder, Json, Router, SOON, allowed_cores, as_plain_user, command, is_root, output, task_status, wait};
use rustix::process::Signal;

/// Text of a failed start; it must have ended with exit code 1 and left no socket.
fn refused(conf: &str) -> String {
    let folder = Folder::new();
    let output = output(&folder, &format!("unix {{ nodaemon runtime-dir @ }} {conf}"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!folder.join("cli.sock").exists() && !folder.join("json.sock").exists(), "sockets are left behind");
    text
}

#[test]
fn an_unknown_key_stops_the_start_and_is_pointed_at() {
    let text = refused("\n\ncpu {\n  main-cor 1\n}");
    assert!(text.contains("startup.conf:4:3: unknown key `main-cor' in section `cpu'; did you mean `main-core'?"), "{text}");
    assert!(refused("nonsense { }").contains("unknown section `nonsense'"));
}

#[test]
fn help_and_version_are_said_without_starting() {
    let say =
        |option: &str| String::from_utf8(Command::new(env!("CARGO_BIN_EXE_quiver")).arg(option).output().unwrap().stdout).unwrap();
    assert!(say("--help").starts_with("Usage: quiver"));
    assert!(say("--version").starts_with("quiver v") && say("-v").contains(" built by "));
    let bad = Command::new(env!("CARGO_BIN_EXE_quiver")).arg("--nonsense").output().unwrap();
    assert_eq!(bad.status.code(), Some(1));
    let missing = Command::new(env!("CARGO_BIN_EXE_quiver")).args(["-c", "/nonexistent"]).output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read /nonexistent: "));
}

#[test]
fn words_on_the_command_line_are_a_configuration_too() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_quiver"));
    let dir = folder.0.to_string_lossy().into_owned();
    command.args(["unix", "{", "nodaemon", "runtime-dir", &dir, "}", "buffers {", "buffers-per-numa 1024 }"]);
    let mut router = Router::spawn(folder, command);
    assert!(router.ask("show version cmdline").unwrap().contains("\n  buffers {\n"));
    assert!(router.stop().success());
}

#[test]
fn a_router_in_the_foreground_stops_cleanly_and_removes_its_files() {
    let mut router = Router::start("unix { pidfile @/pid }");
    assert_eq!(fs::read_to_string(router.path("pid")).unwrap().trim(), router.child.id().to_string());
    assert!(router.path("cli.sock").exists());
    router.signal(Signal::HUP);
    assert!(router.ask("show version").is_ok());
    assert!(router.stop().success());
    for name in ["cli.sock", "json.sock", "pid"] {
        assert!(!router.path(name).exists(), "{name} is left");
    }
}

#[test]
fn without_nodaemon_it_goes_into_the_background_when_it_is_ready() {
    let folder = Folder::new();
    let script = folder.file("start", "define READY yes\n");
    let conf = format!("unix {{ runtime-dir @ pidfile @/pid log @/log startup-config {} }}", script.display());
    let output = output(&folder, &conf);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    // It said that it had started: so it answers, and what startup-config says is done.
    let mut client = Json::connect(&folder.join("json.sock")).expect("it answers at once");
    assert_eq!(client.ask("show macro", false)["text"], "READY yes\n");
    let pid: i32 = fs::read_to_string(folder.join("pid")).unwrap().trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().parse().unwrap();
    assert_eq!(session, pid, "it leads a session of its own");
    assert_eq!(fs::read_link(format!("/proc/{pid}/fd/1")).unwrap(), Path::new("/dev/null"));
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while folder.join("pid").exists() {
        assert!(std::time::Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_background_start_that_fails_says_so_to_who_started_it() {
    let folder = Folder::new();
    // A missing folder would be made; a file in its place stays.
    folder.file("taken", "");
    let output = output(&folder, "unix { runtime-dir @ cli-listen @/taken/cli.sock }");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/taken"), "{output:?}");
}

#[test]
fn log_names_the_file() {
    // A section that has no effect whatever the program is built with; its folder is made.
    let router = Router::start("unix { log @/logs/the.log } api-segment { prefix one }");
    let log = fs::read_to_string(router.path("logs/the.log")).unwrap();
    assert!(log.contains("is running") && log.contains("section `api-segment' has no effect"), "{log}");
    assert!(router.ask("show logging").unwrap().contains("section `api-segment' has no effect"));
    assert_eq!(router.console(), "");
}

#[test]
fn cli_listen_takes_a_path_or_a_port() {
    let folder = Folder::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let router = Router::start_in(folder, &format!("unix {{ cli-listen @/other.sock cli-listen 127.0.0.1:{port} }}"));
    assert!(!router.path("cli.sock").exists());
    let mut cli = Cli::terminal(&router.path("other.sock"), "vppctl");
    cli.line("show vector-size");
    assert_eq!(cli.until(b"\0"), b"vector size 256\r\n\0");
    let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tcp.set_read_timeout(Some(SOON)).unwrap();
    let mut greeting = [0; 36];
    std::io::Read::read_exact(&mut &tcp, &mut greeting).unwrap();
    assert_eq!(greeting, common::GREETING);
}

#[test]
fn startup_config_and_exec_run_files_of_commands() {
    let folder = Folder::new();
    folder.file("first", "# a comment\ndefine SIZE 64\nset vector-size \\\n  $(SIZE)\n");
    folder.file("second", "define LAST set\n");
    let router = Router::start_in(folder, "unix { startup-config @/first exec @/second }");
    assert_eq!(router.ask("show vector-size").unwrap(), "vector size 64\n");
    assert_eq!(router.ask("show macro").unwrap(), "LAST set\nSIZE 64\n");
}

/// The third command fails; the one before it is done then.
const FAILS: &str = "set vector-size 32\nset vector-size 2\nset vector-size 64\n";

#[test]
fn a_start_up_command_that_fails_ends_the_router_with_a_status_of_its_own() {
    let folder = Folder::new();
    folder.file("start", FAILS);
    folder.file("next", "set vector-size 128\n");
    // Whoever starts it in the background sees the error, too.
    for place in ["nodaemon", "log @/log"] {
        let conf = format!("unix {{ {place} runtime-dir @ startup-config @/start exec @/next state-dir @/state }}");
        let output = output(&folder, &conf);
        assert_eq!(output.status.code(), Some(78), "{place}");
        let said = String::from_utf8(output.stderr).unwrap();
        let last = said.lines().last().unwrap_or_default();
        for part in
            ["quiver: startup-config failed", "/start:2: set vector-size: ", "what stands before it took effect", "startup-lenient"]
        {
            assert!(last.contains(part), "{place}: {part}: {said}");
        }
    }
    assert!(fs::read_to_string(folder.join("log")).unwrap().contains("/start:2: set vector-size: "));
    // Nothing of it is kept: the next start runs the files again.
    folder.file("start", "set vector-size 32\n");
    let router = Router::start_in(folder, "unix { startup-config @/start state-dir @/state }");
    assert_eq!(router.ask("show vector-size").unwrap(), "vector size 32\n");
    assert!(router.ask("show configuration state").unwrap().contains("1 operations recorded"), "kept when all was done");
}

#[test]
fn a_lenient_router_goes_on_with_what_was_done_before_the_command_that_fails() {
    let folder = Folder::new();
    folder.file("start", FAILS);
    folder.file("next", "define NEXT done\n");
    let router = Router::start_in(folder, "unix { startup-lenient startup-config @/start exec @/next }");
    assert_eq!(router.ask("show vector-size").unwrap(), "vector size 32\n");
    assert_eq!(router.ask("show macro").unwrap(), "NEXT done\n");
    let log = router.ask("show logging").unwrap();
    assert!(log.contains("exec: CLI line error: ") && log.contains("/start:2: set vector-size: "), "{log}");
}

#[test]
fn missing_folders_are_made_and_a_missing_plugin_is_told_where_the_router_is_started() {
    let conf = "unix { log @/log/vpp/log pidfile @/run/vpp/pid cli-listen @/run/vpp/cli.sock } plugins { plugin snort_plugin.so { enable } \
        plugin dpdk_plugin.so { disable } }";
    let router = Router::start(conf);
    assert_eq!(fs::read_to_string(router.path("run/vpp/pid")).unwrap().trim(), router.child.id().to_string());
    let log = fs::read_to_string(router.path("log/vpp/log")).unwrap();
    let line = log.lines().find(|line| line.contains("snort_plugin.so")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(" warn ") && line.contains("is not built in"), "{line}");
    let told = router.console();
    assert!(told.starts_with("quiver: ") && told.contains("`snort_plugin.so' is not built in") && !told.contains("dpdk"), "{told}");
}

#[test]
fn sighup_has_the_log_opened_anew() {
    let mut router = Router::start("unix { log @/log }");
    fs::rename(router.path("log"), router.path("log.1")).unwrap();
    router.signal(Signal::HUP);
    router.wait_for("there is a new log", |router| {
        fs::read_to_string(router.path("log")).is_ok_and(|log| log.contains("the log is opened anew"))
    });
    assert!(!fs::read_to_string(router.path("log.1")).unwrap().contains("anew"));
    assert!(router.stop().success());
}

#[test]
fn what_clients_change_is_in_the_log_where_it_is_asked_for() {
    let lines = |router: &Router| {
        let log = router.ask("show logging").unwrap();
        let of_audit = log.lines().filter_map(|line| Some(line.split_once(" audit ")?.1.trim().to_owned()));
        of_audit.collect::<Vec<_>>()
    };
    let router = Router::start("logging { audit }");
    router.ask("set vector-size 64").unwrap();
    router.ask("set vector-size 2").unwrap_err();
    router.ask("set vector-sieze 2").unwrap_err();
    router.ask("show vector-size").unwrap();
    let mut json = Json::connect(&router.path("json.sock")).unwrap();
    json.try_call(&serde_json::json!({"op": "loopback_create", "request": {"instance": 4}})).unwrap();
    let who = format!("json, user {}, process {}: ", rustix::process::getuid().as_raw(), std::process::id());
    let told = lines(&router);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with(&who)), "{told:?}");
    assert!(told[0].ends_with(": set vector-size 64: done"), "{told:?}");
    assert!(told[1].contains(": set vector-size 2: failed: ") && told[1].contains("out of range"), "{told:?}");
    assert!(told[2].contains(": loopback_create {") && told[2].ends_with(": done"), "{told:?}");
    let router = Router::start("");
    router.ask("set vector-size 64").unwrap();
    assert_eq!(lines(&router), Vec::<String>::new());
}

#[test]
fn sockets_belong_to_the_group_of_gid() {
    let gid = if is_root() { "12345".to_owned() } else { rustix::process::getgid().as_raw().to_string() };
    let router = Router::start(&format!("unix {{ gid {gid} }}"));
    for name in ["cli.sock", "json.sock"] {
        let data = fs::metadata(router.path(name)).unwrap();
        assert_eq!((data.gid().to_string(), data.permissions().mode() & 0o777), (gid.clone(), 0o660), "{name}");
    }
    assert!(refused("unix { gid no-such-group }").contains("there is no group `no-such-group'"));
}

#[test]
fn prompt_banner_and_history_are_as_wanted() {
    let router = Router::start("unix { cli-prompt edge1> cli-no-banner cli-history-limit 2 cli-no-pager }");
    let mut cli = Cli::terminal(&router.path("cli.sock"), "dumb");
    assert_eq!(cli.until(b"> "), b"edge1> ");
    for line in ["show vector-size", "show clock", "history"] {
        cli.stream.write_all_line(line);
        cli.until(b"\n");
        let answer = String::from_utf8(cli.until(b"edge1> ")).unwrap();
        if line == "history" {
            assert!(answer.contains("show clock") && !answer.contains("vector-size"), "{answer}");
        }
    }
}

/// A line as a terminal in raw mode sends it.
trait RawLine {
    fn write_all_line(&mut self, line: &str);
}

impl RawLine for std::os::unix::net::UnixStream {
    fn write_all_line(&mut self, line: &str) {
        std::io::Write::write_all(self, format!("{line}\r").as_bytes()).unwrap();
    }
}

#[test]
fn poll_sleep_usec_slows_the_main_loop() {
    let router = Router::start("unix { poll-sleep-usec 20000 }");
    std::thread::sleep(Duration::from_millis(500));
    let loops = router.data("show runtime")["threads"][0]["loops_per_second"].as_f64().unwrap();
    // 50 a second, and some for the commands.
    assert!(loops < 500.0, "{loops} turns a second");
}

#[test]
fn an_idle_router_takes_next_to_no_processor_time() {
    let router = Router::start("");
    std::thread::sleep(Duration::from_millis(300));
    let (before, start) = (router.cpu_time(), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (used, passed) = (router.cpu_time() - before, start.elapsed());
    // Unoptimised, and on a busy machine: a tenth of what polling would take is the bound, a hundredth is usual.
    assert!(used <= passed / 10, "{used:?} in {passed:?}");
}

#[test]
fn threads_run_where_the_cpu_section_says() {
    let cores = allowed_cores();
    let [first, second, ..] = cores[..] else {
        eprintln!("skipped: needs two cores");
        return;
    };
    for conf in [
        format!("main-core {first} workers 1"),
        format!("main-core {first} corelist-workers {second}"),
        format!("main-core {first} coremask-workers {:#x}", 1_u64 << second),
    ] {
        let router = Router::start(&format!("cpu {{ {conf} scheduler-policy batch }}"));
        let threads = router.data("show threads");
        let pid = router.child.id();
        for (thread, core) in [(0, first), (1, second)] {
            let thread = &threads[thread];
            assert_eq!(
                (thread["lcore"].as_u64(), thread["policy"].as_str()),
                (Some(core.into()), Some("batch")),
                "{conf}: {threads}"
            );
            let tid = thread["lwp"].as_u64().unwrap();
            assert_eq!(task_status(pid, tid, "Cpus_allowed_list"), core.to_string(), "{conf}");
            // The 41st field is the policy; SCHED_BATCH is 3.
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
            assert_eq!(stat.rsplit_once(") ").unwrap().1.split(' ').nth(38), Some("3"), "{conf}");
        }
        assert_eq!(threads[1]["name"], "quiver_wk_0");
    }
}

#[test]
fn priorities_are_set_where_the_system_allows_it() {
    let folder = Folder::new();
    let conf = "unix { nodaemon runtime-dir @ } cpu { scheduler-policy rr scheduler-priority 7 }";
    let mut command = command(&folder, conf);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let deadline = std::time::Instant::now() + SOON;
    // Once it answers, its threads are as they are to be.
    let answers = || Json::connect(&folder.join("json.sock")).is_some_and(|mut client| client.try_ask("show version").is_some());
    while child.try_wait().unwrap().is_none() && !answers() {
        assert!(std::time::Instant::now() < deadline, "it neither answers nor ends");
        std::thread::sleep(Duration::from_millis(10));
    }
    match child.try_wait().unwrap() {
        // No right to it: that must be said.
        Some(status) => {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
            assert!(status.code() == Some(1) && text.contains("scheduler-policy rr (needs CAP_SYS_NICE)"), "{text}");
        }
        None => {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
            assert_eq!((fields[37], fields[38]), ("7", "2"), "priority and policy");
            child.kill().unwrap();
            wait(&mut child);
        }
    }
}

#[test]
fn a_placement_that_cannot_be_is_refused_with_the_core_at_fault() {
    assert!(refused("cpu { main-core 4095 }").contains("cpu 4095 does not exist"));
    assert!(refused("cpu { corelist-workers 1 }").contains("corelist-workers needs main-core"));
    assert!(refused("cpu { main-core 0 corelist-workers 0, 4094 }").contains("cpu "));
    assert!(refused("cpu { main-core 0 skip-cores 4000 }").contains("skip-cores"));
}

#[test]
fn buffers_are_as_many_as_large_and_on_such_pages_as_wanted() {
    let router = Router::start("buffers { buffers-per-numa 3000 default data-size 1024 page-size 4K }");
    let pool = &router.data("show buffers")[0];
    assert!(pool["total"].as_u64().unwrap() >= 3000, "{pool}");
    assert_eq!((pool["data_size"].as_u64(), pool["numa"].as_u64()), (Some(1024), Some(0)));
    assert!(router.data("show physmem")["pages"].as_str().unwrap().contains("4 kB"), "{}", router.data("show physmem"));
}

#[test]
fn forwarding_tables_have_a_copy_on_each_memory_node_where_it_is_asked_for() {
    let router = Router::start("ip { fib-per-numa } cpu { workers 1 }");
    for line in ["show ip fib memory", "show ip6 fib memory"] {
        // How many nodes there are is the machine's affair.
        let text = router.ask(line).unwrap();
        assert!(text.contains("\n  prefixes: ") && text.contains("\n  lookup, numa "), "{text}");
        let table = router.data(line)["tables"][0].clone();
        let copies = table["memory_parts"]["copies"].as_array().unwrap_or_else(|| panic!("{table}"));
        let bytes: u64 = copies.iter().map(|copy| copy["memory"].as_u64().unwrap()).sum();
        assert_eq!(
            table["memory_parts"]["prefixes"].as_u64().map(|prefixes| prefixes + bytes),
            table["memory"].as_u64(),
            "{table}"
        );
    }
    let plain = Router::start("cpu { workers 1 }").ask("show ip fib memory").unwrap();
    assert!(plain.lines().count() == 1 && plain.starts_with("ipv4-VRF:0: "), "{plain}");
}

#[test]
fn a_page_size_that_is_not_to_be_had_is_refused_and_the_default_falls_back() {
    // 1 GB pages are set aside at boot or not at all: hardly any machine has them.
    let folder = Folder::new();
    let output =
        command(&folder, "unix { runtime-dir @ pidfile @/pid } buffers { buffers-per-numa 1024 page-size 1G }").output().unwrap();
    match fs::read_to_string(folder.join("pid")) {
        Ok(pid) => {
            let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
        }
        Err(_) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && text.contains("1 GB"), "{text}");
        }
    }
    let router = Router::start("");
    let memory = router.data("show memory");
    let pages = memory["buffer_pages"].as_str().unwrap();
    assert!(pages.contains("2 MB") || (pages.contains("4 kB") && memory["notice"].is_string()), "{memory}");
}

#[test]
fn plugins_are_switched_by_name_and_all_at_once() {
    let create = "create host-interface name no-such-device";
    let plugins = |router: &Router| router.ask("show plugins").unwrap();
    let router = Router::start("");
    assert!(plugins(&router).contains("af_packet_plugin.so"));
    let without = Router::start("plugins { plugin af_packet_plugin.so { disable } }");
    assert!(!plugins(&without).contains("af_packet_plugin.so"));
    assert!(without.ask(create).unwrap_err().contains("unknown input"), "{:?}", without.ask(create));
    let none = Router::start("plugins { plugin default { disable } }");
    assert!(none.ask(create).unwrap_err().contains("unknown input"));
    let one = Router::start("plugins { plugin default { disable } plugin af_packet_plugin.so { enable } }");
    assert!(plugins(&one).contains("af_packet_plugin.so"));
    assert!(!one.ask(create).unwrap_err().contains("unknown input"));
}

#[test]
fn the_api_trace_can_be_on_from_the_start() {
    assert_eq!(Router::start("api-trace { on }").ask("show api trace-status").unwrap(), "RX Trace is enabled\n");
    let router = Router::start("");
    assert_eq!(router.ask("show api trace-status").unwrap(), "RX Trace is disabled\n");
    router.ask("api trace on").unwrap();
    assert_eq!(router.data("show api trace-status")["on"], true);
}

#[test]
fn nodes_and_logging_are_set_from_the_start() {
    // The lowest that each processor has.
    let variant = if cfg!(target_arch = "x86_64") { "v2" } else { "base" };
    let conf = "node { default { variant VARIANT } } logging { size 30 class cli { level debug } class clj { level debug } }";
    let router = Router::start(&conf.replace("VARIANT", variant));
    let node = router.data("show node ethernet-input");
    assert_eq!(node["loop"]["variant"], variant, "{node}");
    let settings = router.data("show logging configuration");
    let cli = settings["classes"].as_array().unwrap().iter().find(|class| class["class"] == "cli").unwrap();
    assert_eq!((settings["default"]["size"].as_u64(), cli["level"].as_str()), (Some(30), Some("debug")), "{settings}");
    assert!(router.ask("show logging").unwrap().contains("logging: there is no class `clj' in the log"));
    assert!(refused(&format!("node {{ no-such-node {{ variant {variant} }} }}")).contains("no node `no-such-node'"));
}

#[test]
fn a_second_router_on_the_same_sockets_is_refused_and_a_dead_ones_are_taken_over() {
    let mut router = Router::start("");
    let second = output(&router.folder, "unix { nodaemon runtime-dir @ }");
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(1) && text.contains("json.sock is in use"), "{text}");
    assert!(router.ask("show version").is_ok(), "the first is not disturbed");
    router.kill9();
    assert!(router.path("cli.sock").exists());
    let folder = Folder::new();
    let dir = router.folder.0.display().to_string();
    let again = command(&folder, &format!("unix {{ nodaemon runtime-dir {dir} }}"));
    router.child = { again }.spawn().unwrap();
    router.wait_for("the new one answers", |router| Json::connect(&router.path("json.sock")).is_some());
}

#[test]
fn a_start_right_after_kill_9_waits_for_the_one_that_ends() {
    let mut router = Router::start("");
    let (folder, dir) = (Folder::new(), router.folder.0.display().to_string());
    for _ in 0..3 {
        // Not reaped, and its memory not given back yet.
        router.child.kill().unwrap();
        let next = command(&folder, &format!("unix {{ nodaemon runtime-dir {dir} }}")).spawn().unwrap();
        let mut ended = std::mem::replace(&mut router.child, next);
        ended.wait().unwrap();
        router.wait_for("the new one answers", |router| Json::connect(&router.path("json.sock")).is_some());
    }
}

#[test]
fn mac_addresses_are_the_same_at_each_start_and_differ_between_routers() {
    let mac = |router: &Router| {
        router.ask("create interface memif id 0 master").unwrap();
        let shown = router.ask("show hardware-interfaces memif0/0").unwrap();
        shown.split_whitespace().find(|word| word.starts_with("02:fe:")).expect("an address").to_owned()
    };
    let mut router = Router::start("");
    let first = mac(&router);
    router.kill9();
    let (folder, dir) = (Folder::new(), router.folder.0.display().to_string());
    router.child = command(&folder, &format!("unix {{ nodaemon runtime-dir {dir} }}")).spawn().unwrap();
    router.wait_for("the new one answers", |router| Json::connect(&router.path("json.sock")).is_some());
    assert_eq!(mac(&router), first);
    assert_ne!(mac(&Router::start("")), first);
}

#[test]
fn a_plain_user_can_run_a_router() {
    let folder = Folder::new();
    let mut command = command(&folder, "unix { nodaemon runtime-dir @ cli-listen @/cli.sock }");
    as_plain_user(&mut command, &folder);
    let mut router = Router::spawn(folder, command);
    assert!(router.ask("show version").is_ok());
    assert_eq!(
        fs::metadata(router.path("cli.sock")).unwrap().uid(),
        if is_root() { 65_534 } else { rustix::process::getuid().as_raw() }
    );
    assert!(router.stop().success());
}

#[test]
fn interactive_reads_commands_from_standard_input_and_ends_with_it() {
    let folder = Folder::new();
    let mut command = command(&folder, "unix { interactive runtime-dir @ log @/log }");
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"show vector-size\nset vector-size 8\nshow vector-size\n")
        .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(text, "vector size 256\nvector size 8\n");
    assert!(wait(&mut child).success());
    assert!(!folder.join("cli.sock").exists());
}
