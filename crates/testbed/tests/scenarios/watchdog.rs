//! A worker that hangs for good: the watchdog names it and its node in the log and ends the router, and a supervisor starts it again.

use std::fs;
use std::time::Duration;

use crate::common::{counter, eventually};
use quiver_testbed::stuck::send_into_a_loop;
use quiver_testbed::{Host, Router, Scenario, skip};

/// Processor time that the watchdog wants to see takes longer where others want processors, too.
const PATIENCE: Duration = Duration::from_secs(120);
/// Starts a program again when a signal has ended it, as a service manager would; SIGTERM ends both.
const SUPERVISOR: &str = r#"
trap 'ending=1; kill -TERM "$child"' TERM
while :; do
    "$@" &
    child=$!
    wait "$child"
    status=$?
    [ -z "$ending" ] || { wait "$child"; exit $?; }
    [ "$status" -gt 128 ] || exit "$status"
done
"#;

/// A file that goes with the test.
struct Script(std::path::PathBuf);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The router that the supervisor runs at the moment.
fn daemon(router: &Router) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", router.pid())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A thread of a process by its name.
fn thread(process: u32, name: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut tasks = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    tasks.find(|task| fs::read_to_string(format!("/proc/{process}/task/{task}/comm")).is_ok_and(|comm| comm.trim() == name))
}

#[test]
fn a_worker_that_hangs_is_named_with_its_node_and_the_router_starts_again() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    if !cfg!(target_arch = "x86_64") {
        return skip("threads are sent into endless loops on x86-64 only");
    }
    let host = Host::new("router").unwrap();
    let script = Script(std::env::temp_dir().join(format!("quiver-supervisor-{}", std::process::id())));
    fs::write(&script.0, SUPERVISOR).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let conf = "unix { watchdog 1 }\ncpu { workers 1 }";
    let through = format!("/bin/sh {}", script.0.display());
    let router = Router::builder(&host, conf).through(&through, user).start().expect("router");
    // A thread that has no pause is in a node nearly always, but not at each moment.
    let named = (0..5).any(|_| {
        router
            .script(
                "create packet-generator interface pg0\nset interface state pg0 up\n\
                 packet-generator new { name x limit 0 size 60-60 interface pg0 node ethernet-input data { IP4: \
                 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 UDP: 1234 -> 2345 incrementing 8 } }\n\
                 packet-generator enable-stream",
            )
            .expect("stream");
        eventually("the worker works", PATIENCE, || counter(&router, "pg0", "rx packets") > 0);
        let before = daemon(&router).expect("a router");
        send_into_a_loop(before, thread(before, "quiver_wk_0").expect("a worker")).expect("ptrace");
        eventually("another router has started", PATIENCE, || daemon(&router).is_some_and(|now| now != before));
        eventually("it answers", PATIENCE, || router.cli("show version").is_ok());
        let log = router.log();
        let line = log.lines().rfind(|line| line.contains("is stuck")).unwrap_or_else(|| panic!("nobody is stuck:\n{log}"));
        assert!(line.contains("quiver_wk_0 (thread 1") && line.contains("the router ends"), "{line}");
        println!("{line}");
        line.contains("stuck in node ") || line.contains("stuck in input node ")
    });
    assert!(named, "{}", router.log());
    router.stop().unwrap();
}
