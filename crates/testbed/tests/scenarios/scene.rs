//! The router's handle against a stand-in for the daemon, and the two-host scene with the kernel as the router.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use quiver_testbed::{Host, Offloads, Router, Scenario, Side, TwoHosts, TwoHostsOptions};

/// Tells the second copy of this test program where its `startup.conf` is, and so that it plays the daemon.
const ROLE: &str = "QUIVER_TESTBED_STAND_IN_CONF";

/// What the stand-in answers everything with but `die` (ends it with status 3).
const ANSWER: &str = "one line\r\nanother\r\n";

/// A daemon of twenty lines: VPP's greeting, then [`ANSWER`] and a NUL for each line.
fn play_the_daemon(conf: &Path) {
    let text = std::fs::read_to_string(conf).unwrap();
    let word = |key: &str| text.split_whitespace().skip_while(|w| *w != key).nth(1).map(str::to_owned);
    if let Some(code) = word("fail") {
        eprintln!("told to fail");
        std::process::exit(code.parse().unwrap());
    }
    // Said first: who finds the socket may end it at once.
    eprintln!("listening");
    let listener = UnixListener::bind(word("cli-listen").unwrap()).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        // The router's handle tries the socket out by a connection that it closes at once.
        let _ = stream.write_all(b"\xff\xfb\x01\xff\xfd\x18\xff\xfa\x18\x01\xff\xf0");
        let mut seen = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|count| count == 1) {
            seen.push(byte[0]);
            if byte[0] == b'\n' {
                assert!(seen.starts_with(b"\xff\xfa\x18\0vppctl\xff\xf0"));
                if seen.ends_with(b"die\n") {
                    std::process::exit(3);
                }
                stream.write_all(ANSWER.as_bytes()).unwrap();
                stream.write_all(&[0]).unwrap();
            }
        }
    }
}

/// A script that is started as `quiver -c FILE` would be and becomes the stand-in.
fn stand_in() -> PathBuf {
    let path = std::env::temp_dir().join(format!("quiver-stand-in-{}-{:?}", std::process::id(), std::thread::current().id()));
    let exe = std::env::current_exe().unwrap();
    let exe = exe.display();
    let script = format!("#!/bin/sh\n{ROLE}=$2 exec '{exe}' --exact scene::the_stand_in_for_the_daemon --nocapture\n");
    // Another program writes it: a file that some child of another test has inherited open for writing cannot be started.
    let write = r#"printf '%s' "$1" >"$2" && chmod 755 "$2""#;
    assert!(Command::new("sh").args(["-c", write, "sh", &script]).arg(&path).status().unwrap().success());
    path
}

fn start(host: &Host, conf: &str) -> std::io::Result<Router> {
    let script = stand_in();
    let router = Router::builder(host, conf).binary(&script).ready_within(Duration::from_secs(60)).start();
    std::fs::remove_file(script).unwrap();
    router
}

#[test]
fn the_stand_in_for_the_daemon() {
    if let Some(conf) = std::env::var_os(ROLE) {
        play_the_daemon(Path::new(&conf));
    }
}

#[test]
fn a_router_starts_answers_is_measured_and_killed() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let host = Host::new("router").unwrap();
    let mut router = start(&host, "cpu { workers 1 }").unwrap();
    assert_eq!(router.vppctl("show version").unwrap(), "one line\nanother\n");
    assert!(router.log().contains("listening"));
    assert!(router.dump().contains("--- show errors\none line\nanother\n--- show runtime"));
    let usage = router.usage().unwrap();
    assert!(usage.memory() > 100_000 && usage.descriptors >= 4 && usage.threads >= 1, "{usage:?}");
    assert!(router.cli("show version").is_err(), "there is no quiverctl beside the stand-in");
    let folder = router.folder().to_owned();
    assert!(folder.join("startup.conf").is_file() && router.is_running());
    router.kill9().unwrap();
    assert!(!router.is_running());
    drop(router);
    assert!(!folder.exists());
}

#[test]
fn a_stop_that_is_not_clean_is_an_error() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let router = start(&Host::new("router").unwrap(), "").unwrap();
    // The stand-in has no handler for SIGTERM.
    let error = router.stop().unwrap_err().to_string();
    assert!(error.contains("signal: 15") && error.contains("listening"), "{error}");
}

#[test]
fn a_daemon_that_fails_at_its_start_is_reported_with_its_log() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let error = start(&Host::new("router").unwrap(), "test { fail 5 }").unwrap_err().to_string();
    assert!(error.contains("exit status: 5") && error.contains("told to fail"), "{error}");
}

#[test]
fn a_router_that_ends_by_itself_fails_the_test() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let mut router = start(&Host::new("router").unwrap(), "").unwrap();
    assert!(router.vppctl("die").is_err());
    while router.is_running() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let dropped = std::thread::Builder::new().name("failing on purpose".into()).spawn(move || drop(router));
    let words = dropped.unwrap().join().unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("ended by itself") && words.contains("listening"), "{words}");
}

#[test]
fn the_two_hosts_meet_when_the_middle_forwards() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else {
        return;
    };
    let scene = TwoHosts::new(TwoHostsOptions { offloads: Offloads::Off, ..TwoHostsOptions::default() }).unwrap();
    assert!(!scene.a.pings(TwoHosts::B4, 1).unwrap(), "nobody forwards yet");
    let forward = |scene: &TwoHosts| {
        for (port, net) in [("r0", 1), ("r1", 2)] {
            scene.middle.sysctl(&format!("net.ipv6.conf.{port}.disable_ipv6"), "0").unwrap();
            scene.middle.address(port, &format!("10.0.{net}.1/24")).unwrap();
            scene.middle.address(port, &format!("2001:db8:{net}::1/64")).unwrap();
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            scene.middle.sysctl(key, "1").unwrap();
        }
    };
    forward(&scene);
    scene.a.flush_neighbours("eth0").unwrap();
    assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap());
    assert!(scene.b.reaches(TwoHosts::A6, 5).unwrap());

    scene.a.delete_link("eth0").unwrap();
    assert!(!scene.b.pings(TwoHosts::A4, 1).unwrap());
    scene.connect(Side::A).unwrap();
    scene.middle.sysctl("net.ipv6.conf.r0.disable_ipv6", "0").unwrap();
    scene.middle.address("r0", "10.0.1.1/24").unwrap();
    assert!(scene.b.reaches(TwoHosts::A4, 5).unwrap(), "the link is back");
}
