//! What is changed as a whole or not at all: files of commands, at start, too, and over crashes.
//!
//! `QUIVER_KILLS` says how many times the router is killed at a random moment; a few without it.

mod common;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Folder, Json, Router, STATE, configuration, crash, is_root};
use serde_json::json;

/// Puts a file where the router's commands read them.
fn file(router: &Router, name: &str, text: &str) {
    fs::write(router.path("files").join(name), text).unwrap();
}

fn recorded(router: &Router) -> u64 {
    router.data("show configuration state")["recorded"].as_u64().unwrap()
}

const GOOD: &str = "create loopback interface instance 1\n\
                    set interface ip address loop1 10.0.1.1/24\n\
                    set interface mtu 1400 loop0\n\
                    set interface ip address del loop0 10.0.0.1/24\n\
                    define SIZE 64\n\
                    ip route add 198.51.100.0/24 via loop1\n";

#[test]
fn a_file_is_run_as_a_whole_or_not_at_all() {
    for conf in ["", STATE] {
        let router = Router::start(conf);
        for line in ["create loopback interface instance 0", "set interface ip address loop0 10.0.0.1/24"] {
            router.ask(line).unwrap();
        }
        let before = configuration(&router);
        file(&router, "good", GOOD);
        file(&router, "bad", &format!("{GOOD}set interface state loop7 up\ncreate loopback interface instance 2\n"));
        file(&router, "typo", &format!("{GOOD}set intreface\n"));
        file(&router, "write", "create loopback interface instance 3\nwrite\n");

        // Behind what the commands said.
        let error = router.ask("exec bad atomic").unwrap_err();
        let expected =
            "loop1\nexec: CLI line error: bad:7: set interface state: unknown interface `loop7'; all is as before; did you mean";
        assert!(error.starts_with(expected) && error.lines().count() == 2, "{error}");
        assert_eq!(configuration(&router), before, "{conf}");
        assert!(router.ask("exec typo atomic").unwrap_err().contains("; all is as before"));
        assert_eq!(configuration(&router), before, "{conf}");
        let error = router.ask("exec write atomic").unwrap_err();
        assert!(error.contains(if conf.is_empty() { "does not last" } else { "not now" }), "{error}");
        assert_eq!(configuration(&router), before, "{conf}");
        // To programs.
        let mut client = Json::connect(&router.path("json.sock")).unwrap();
        client.send(&json!({"op": "exec", "request": {"file": "bad", "atomic": true}}));
        assert_eq!(client.answer()["status"], "error");
        let lines = [(1, "create loopback interface instance 4"), (2, "rollback 9")];
        client.send(&json!({"op": "exec_lines", "request": {"name": "mine", "lines": lines, "atomic": true}}));
        let answer = client.answer();
        assert!(answer["text"].as_str().unwrap().contains("mine:2: rollback: "), "{answer}");
        assert_eq!(configuration(&router), before, "{conf}");
        assert_eq!(recorded(&router), if conf.is_empty() { 0 } else { 2 }, "what went back is not recorded");

        router.ask("exec good atomic").unwrap();
        let after = configuration(&router);
        assert!(after.contains("mtu packet 1400 loop0") && after.contains("198.51.100.0/24"), "{after}");
        if !conf.is_empty() {
            assert_eq!(recorded(&router), 3, "one record has it all");
            let router = crash(router, conf);
            assert_eq!(configuration(&router), after);
            // A checkpoint after it, and what follows that.
            router.ask("write").unwrap();
            assert!(router.ask("exec bad atomic").is_err());
            let router = crash(router, conf);
            assert_eq!(configuration(&router), after);
        }
    }
}

#[test]
fn start_up_configuration_is_a_whole_where_it_is_wished() {
    let files = |second: &str| {
        let folder = Folder::new();
        folder.file("first", "create loopback interface instance 0\nset interface mtu 1400 loop0\n");
        folder.file("second", second);
        folder
    };
    let conf = "unix { startup-lenient startup-atomic startup-config @/first exec @/second state-dir @/state }";
    let router = Router::start_in(files("create loopback interface instance 1\nset interface mtu 1400 loop7\n"), conf);
    assert_eq!(configuration(&router), "");
    let log = router.ask("show logging").unwrap();
    assert!(log.contains("/second:2: set interface mtu: ") && log.contains("all is as before"), "{log}");
    assert_eq!(recorded(&router), 0);
    // Nothing is kept, so the files are run at the next start, too; now they are right.
    fs::write(router.path("second"), "create loopback interface instance 1\n").unwrap();
    let router = crash(router, conf);
    let expected =
        "create loopback interface instance 0\ncreate loopback interface instance 1\nset interface mtu packet 1400 loop0\n";
    assert_eq!(configuration(&router), expected);
    assert_eq!(recorded(&router), 1);
    let router = crash(router, conf);
    assert_eq!(configuration(&router), expected);
}

/// A router is killed at random moments while files are run as a whole: each was run whole or not at all.
#[test]
fn whenever_it_is_killed_there_is_all_of_a_file_or_nothing() {
    let kills: u64 = std::env::var("QUIVER_KILLS").ok().map_or(6, |text| text.parse().expect("QUIVER_KILLS is a number"));
    let mut router = Router::start(STATE);
    router.ask("create loopback interface instance 0").unwrap();
    // Each file makes 300 routes in place of those of the file before.
    let routes = |n: u64, word: &str| {
        (0..300).map(|k| format!("ip route {word} {}.{}.{}.0/24 via loop0\n", 100 + n % 20, k / 200, k % 200)).collect::<String>()
    };
    // How long a file takes here and now: the moments are to lie in files, and between them, however busy the machine is.
    file(&router, "next", &routes(0, "add"));
    let start = Instant::now();
    router.ask("exec next atomic").unwrap();
    let span = start.elapsed().as_micros() as u64;
    let mut done = 1;
    let (mut seed, mut cut_off) = (0x2026_1123_u64, 0);
    for kill in 0..kills {
        let mut client = Json::connect(&router.path("json.sock")).unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = Duration::from_micros((seed >> 33) % (3 * span));
        let pid = rustix::process::Pid::from_child(&router.child);
        let killer = thread::spawn(move || {
            thread::sleep(moment);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        loop {
            file(&router, "next", &format!("{}{}", routes(done - 1, "del"), routes(done, "add")));
            let Some(answer) = client.try_ask("exec next atomic") else { break };
            assert_eq!(answer["status"], "ok", "{answer}");
            done += 1;
        }
        killer.join().unwrap();
        router.child.wait().unwrap();
        router = router.again(STATE);
        let is = configuration(&router);
        let of = |n: u64| {
            let mut lines: Vec<String> = routes(n, "add").lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let mut found: Vec<String> = is.lines().filter(|line| line.starts_with("ip route")).map(str::to_owned).collect();
        found.sort_unstable();
        if found == of(done) {
            // It was done, and nobody was told.
            done += 1;
            cut_off += 1;
        }
        let expected = of(done - 1);
        assert!(found == expected, "kill {kill} after {moment:?}, {done} files: {} routes, {:?} …", found.len(), found.first());
    }
    println!("{kills} kills within {span} µs, {done} files of 300 or 600 commands, {cut_off} of them done and not confirmed");
}

/// A small file system of its own, as long as this lives.
struct Small(std::path::PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_finds_no_room_on_the_disk_as_a_whole_is_not_done() {
    let folder = Folder::new();
    let path = folder.join("state");
    fs::create_dir_all(&path).unwrap();
    let mount = || Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&path).status();
    if !is_root() || !mount().is_ok_and(|status| status.success()) {
        println!("skipped: mounting a small file system needs root");
        return;
    }
    let _small = Small(path);
    let router = Router::start_in(folder, STATE);
    router.ask("define FIRST word").unwrap();
    let before = configuration(&router);
    let text = "x".repeat(30_000);
    let lines = |count: usize| (0..count).map(|n| format!("define M{n} {text}\n")).collect::<String>();
    // 6 MB fit: more than was reserved when the file began. 30 MB do not.
    file(&router, "much", &lines(1000));
    let error = router.ask("exec much atomic").unwrap_err();
    assert!(error.contains("refused: what changes cannot be stored") && error.contains("all is as before"), "{error}");
    assert_eq!(configuration(&router), before);
    let mut router = crash(router, STATE);
    assert_eq!(configuration(&router), before);
    // What was reserved for it is given back.
    file(&router, "some", &lines(200));
    router.wait_for("changes are taken again", |router| router.ask("exec some atomic").is_ok());
    let after = configuration(&router);
    let router = crash(router, STATE);
    assert_eq!(configuration(&router), after);
    assert_eq!(router.data("show macro").as_array().map(Vec::len), Some(201));
}
