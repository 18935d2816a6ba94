//! The test bed itself: hosts reach each other, and nothing of them outlives a test.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{BOUND, eventually};
use quiver_testbed::{Host, LinkOptions, Offloads, Scenario};

fn pair(options: &LinkOptions) -> (Host, Host) {
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    a.veth("eth0", &b, "eth0", options).unwrap();
    for (host, last) in [(&a, 1), (&b, 2)] {
        host.address("eth0", &format!("10.9.0.{last}/24")).unwrap();
        host.address("eth0", &format!("2001:db8:9::{last}/64")).unwrap();
    }
    (a, b)
}

fn is_alive(pid: u32) -> bool {
    // A zombie waits only for whoever adopted it to reap it.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn kernel_hosts_ping_each_other_in_both_families() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else {
        return;
    };
    for offloads in [Offloads::On, Offloads::Off] {
        let (a, _b) = pair(&LinkOptions { queues: 2, offloads, ..LinkOptions::default() });
        assert!(a.reaches("10.9.0.2", 3).unwrap());
        assert!(a.reaches("2001:db8:9::2", 3).unwrap());
        assert!(!a.pings("10.9.0.3", 1).unwrap(), "nobody is there");
    }
}

#[test]
fn a_link_has_what_it_was_asked_to_have() {
    let Some(_scenario) = Scenario::begin(&["ethtool"]) else {
        return;
    };
    let macs = [Some([2, 0, 0, 0, 0, 1]), Some([2, 0, 0, 0, 0, 2])];
    let options = LinkOptions { queues: 2, mtu: 9000, macs, offloads: Offloads::Off };
    let (a, b) = pair(&options);
    for (host, mac) in [(&a, macs[0]), (&b, macs[1])] {
        assert_eq!(Some(host.mac("eth0").unwrap()), mac);
        let read = |file: &str| host.run(&format!("cat /sys/class/net/eth0/{file}"), BOUND).unwrap().expect(file);
        assert_eq!(read("mtu"), "9000\n");
        let queues = host.sh("ls -d /sys/class/net/eth0/queues/rx-* | wc -l", BOUND).unwrap().expect("ls");
        assert_eq!(queues, "2\n");
        let features = host.run("ethtool -k eth0", BOUND).unwrap().expect("ethtool");
        for feature in [
            "tx-checksumming",
            "rx-checksumming",
            "scatter-gather",
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "generic-receive-offload",
        ] {
            assert!(features.contains(&format!("{feature}: off")), "{feature} in\n{features}");
        }
        host.set_offloads("eth0", Offloads::On).unwrap();
        let features = host.run("ethtool -k eth0", BOUND).unwrap().expect("ethtool");
        assert!(features.contains("tx-tcp-segmentation: on"), "{features}");
    }
}

#[test]
fn a_deleted_link_can_be_made_again() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else {
        return;
    };
    let (a, b) = pair(&LinkOptions::default());
    b.delete_link("eth0").unwrap();
    assert!(a.mac("eth0").is_err(), "the other end goes with it");
    assert!(a.delete_link("eth0").is_err());
    a.veth("eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    a.address("eth0", "10.9.0.1/24").unwrap();
    b.address("eth0", "10.9.0.2/24").unwrap();
    assert!(b.reaches("10.9.0.1", 2).unwrap());
    a.link_down("eth0").unwrap();
    assert!(!b.pings("10.9.0.1", 1).unwrap());
    a.link_up("eth0").unwrap();
    a.flush_neighbours("eth0").unwrap();
    assert!(b.reaches("10.9.0.1", 5).unwrap());
}

#[test]
fn settings_and_sys_are_the_hosts_own() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    a.sysctl("net.ipv4.ip_forward", "1").unwrap();
    assert_eq!(a.sysctl_value("net.ipv4.ip_forward").unwrap(), "1");
    assert_eq!(b.sysctl_value("net.ipv4.ip_forward").unwrap(), "0");
    assert!(a.sysctl("net.ipv4.no_such_key", "1").is_err());
    assert_eq!(a.run("ls /sys/class/net", BOUND).unwrap().expect("ls"), "lo\n");
    let here = std::env::current_dir().unwrap();
    let there = a.run("pwd", BOUND).unwrap().expect("pwd");
    assert_eq!(there.trim_end(), here.to_str().unwrap(), "the working directory is kept");
}

#[test]
fn a_command_is_killed_at_its_deadline_with_all_its_children() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let host = Host::new("a").unwrap();
    let start = Instant::now();
    // The shell has time to begin, on a busy machine too.
    let output = host.sh("echo begun; sleep 86399 & echo $!; wait", Duration::from_secs(15)).unwrap();
    assert!(output.timed_out && !output.success());
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    let (begun, sleeper) = output.stdout.split_once('\n').unwrap();
    assert_eq!(begun, "begun");
    let sleeper = sleeper.trim().parse().unwrap();
    eventually("the grandchild is gone", BOUND, || !is_alive(sleeper));
}

#[test]
fn large_output_and_exit_codes_come_back_whole() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let host = Host::new("a").unwrap();
    let output = host.sh("seq 1 200000; echo wrong >&2; exit 7", BOUND).unwrap();
    assert_eq!((output.status.code(), output.stderr.as_str()), (Some(7), "wrong\n"));
    assert_eq!(output.stdout.lines().count(), 200_000);
    assert!(host.run("no-such-program", BOUND).is_err());
}

#[test]
fn a_background_command_ends_with_its_guard_not_with_the_thread_that_started_it() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let host = Host::new("a").unwrap();
    let starter = host.clone();
    let mut guard = std::thread::spawn(move || starter.background("sleep 86398").unwrap()).join().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(guard.is_running());
    let pid = guard.pid();
    drop(guard);
    assert!(!is_alive(pid));
}

#[test]
fn a_failing_test_leaves_no_process() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let failing = std::thread::Builder::new().name("failing on purpose".into()).spawn(|| {
        let host = Host::new("a").unwrap();
        let guard = host.background("sleep 86397").unwrap();
        std::panic::panic_any(guard.pid());
    });
    let pid = *failing.unwrap().join().unwrap_err().downcast::<u32>().unwrap();
    assert!(!is_alive(pid));
}

/// Names the part that a second copy of this test program plays, and the process whose descriptor is a host to link to.
const ROLE: &str = "QUIVER_TESTBED_TO_BE_KILLED";

/// The second copy makes a host, links it to one of ours and starts a process in it. When it is killed, our end of the link
/// goes as well, which the kernel does only when it frees the other namespace.
#[test]
fn a_killed_test_leaves_no_process_and_no_namespace() {
    if let Ok(pid) = std::env::var(ROLE) {
        return play_the_killed_test(pid.parse().unwrap());
    }
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let ours = Host::new("ours").unwrap();
    let holder = ours.background("sleep 86396").unwrap();
    let mut copy = ours.command(std::env::current_exe().unwrap().to_str().unwrap());
    copy.args(["--exact", "hosts::a_killed_test_leaves_no_process_and_no_namespace", "--nocapture"]);
    copy.env(ROLE, holder.pid().to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut copy = ours.spawn(copy).unwrap();
    let mut said = BufReader::new(copy.take_stdout().unwrap()).lines().map_while(Result::ok);
    let sleeper = said.find_map(|line| line.strip_prefix("sleeper ").map(str::to_owned));
    let sleeper: u32 = sleeper.expect("the copy reports").parse().unwrap();
    assert!(is_alive(sleeper) && ours.mac("shared").is_ok());
    copy.kill().unwrap();
    eventually("its process is gone", BOUND, || !is_alive(sleeper));
    eventually("its namespace is gone", BOUND, || ours.mac("shared").is_err());
}

fn play_the_killed_test(holder: u32) {
    let host = Host::new("theirs").unwrap();
    host.ip(&format!("link add eth0 type veth peer name shared netns {holder}")).unwrap();
    // A group of its own, like every child here: nothing but the parent-death signal reaches it.
    let guard = host.background("sleep 86395").unwrap();
    println!("\nsleeper {}", guard.pid());
    std::thread::sleep(10 * BOUND);
}
