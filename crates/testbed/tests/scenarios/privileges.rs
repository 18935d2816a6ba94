//! A router that has given its rights up: as whom it runs, what still works, what the helper does, and starts without root.

use std::fs;
use std::path::Path;

use quiver_testbed::{Guard, Host, Router, RouterBuilder, Scenario, TwoHosts, TwoHostsOptions};
use serde_json::Value;

use crate::common::{BOUND, eventually};

/// A user that owns nothing.
const USER: u32 = 65_534;

/// A line of `/proc/…/status`.
fn field(status: &str, key: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {key} in:\n{status}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = |entry: fs::DirEntry| {
        Some((fs::read_to_string(entry.path().join("comm")).ok()?, fs::read_to_string(entry.path().join("status")).ok()?))
    };
    tasks.filter_map(status).collect()
}

/// The bits that a capability set may have: what a router keeps, and what stands in for limits that cannot be raised here.
const NET_ADMIN_AND_RAW: u64 = 1 << 12 | 1 << 13;
const IN_PLACE_OF_LIMITS: u64 = 1 << 14 | 1 << 23;

/// Every thread is the user's, has two capabilities, and can get no more.
fn assert_threads_are_confined(router: &Router, at_least: usize) {
    let threads = threads(router.pid());
    assert!(threads.len() >= at_least, "{threads:?}");
    for (name, status) in &threads {
        for key in ["Uid", "Gid"] {
            assert_eq!(
                field(status, key),
                [USER.to_string(), USER.to_string(), USER.to_string(), USER.to_string()].join(" "),
                "{key} of {name}"
            );
        }
        assert_eq!(field(status, "Groups"), "", "{name}");
        for key in ["CapPrm", "CapEff", "CapBnd"] {
            let set = u64::from_str_radix(&field(status, key), 16).unwrap();
            assert_eq!(set & !IN_PLACE_OF_LIMITS, NET_ADMIN_AND_RAW, "{key} {set:x} of {name}");
        }
        for key in ["CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&field(status, key), 16).unwrap(), 0, "{key} of {name}");
        }
        assert_eq!((field(status, "NoNewPrivs").as_str(), field(status, "Seccomp").as_str()), ("1", "2"), "{name}");
    }
}

fn privileges(router: &Router) -> Value {
    serde_json::from_str(&router.cli_json("show privileges").unwrap()).unwrap()
}

fn assert_pings(host: &Host, to: &str) {
    eventually(&format!("ping {to}"), BOUND, || host.pings(to, 1).unwrap());
}

/// A process in a host, by which the router finds its namespace.
fn keeper(host: &Host) -> Guard {
    host.background("sleep 86400").unwrap()
}

fn tap(id: u32, namespace: &str) -> String {
    format!(
        "create tap id {id} {namespace} host-if-name net{id} host-ip4-addr 10.7.{id}.2/24
         set interface state tap{id} up
         set interface ip address tap{id} 10.7.{id}.1/24"
    )
}

/// `net0` of the router's own host, then of another one.
fn add_taps(router: &Router, scene: &TwoHosts, other: &Guard) {
    router.script(&tap(0, "")).unwrap();
    assert_pings(&scene.middle, "10.7.0.1");
    router.script(&tap(1, &format!("host-ns pid:{}", other.pid()))).unwrap();
    assert_pings(&scene.a, "10.7.1.1");
}

#[test]
fn all_threads_are_confined_and_devices_made_later_work() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let other = keeper(&scene.a);
    let router = Router::builder(&scene.middle, "cpu { workers 1 }").user(USER).start().unwrap();
    // Its sockets are there before it gives its rights up; it answers only then.
    router.cli("show version").unwrap();
    assert_threads_are_confined(&router, 2);
    router
        .script(
            "create host-interface name r0
             set interface state host-r0 up
             set interface ip address host-r0 10.0.1.1/24
             create interface af_xdp host-if r1 name x1
             set interface state x1 up
             set interface ip address x1 10.0.2.1/24",
        )
        .unwrap();
    assert_pings(&scene.a, TwoHosts::B4);
    router.script("set workers 2").unwrap();
    assert_threads_are_confined(&router, 3);
    assert_pings(&scene.a, TwoHosts::B4);
    add_taps(&router, &scene, &other);
    router.script("create interface memif id 0 master\nset interface state memif0/0 up").unwrap();
    eventually("memif listens", BOUND, || router.cli("show memif").unwrap().contains("yes"));

    let info = privileges(&router);
    assert_eq!((info["uid"].as_u64(), info["gid"].as_u64()), (Some(USER.into()), Some(USER.into())), "{info}");
    assert_eq!((&info["different_threads"], &info["not_possible"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!((info["seccomp_mode"].as_str(), info["no_new_privs"].as_bool()), (Some("on"), Some(true)));
    assert!(info["helper"]["requests"].as_u64() >= Some(2), "{info}");
    let text = router.cli("show privileges").unwrap();
    assert!(text.contains("net_admin") && text.contains("all with these rights"), "{text}");
    // What other commands read of the machine is open to it, and what they write has its place.
    router.script("show cpu\nshow memory map\nshow threads\nshow hardware-interfaces\nshow plugins").unwrap();
    router.cli("pcap trace rx max 10 file rights.pcap").unwrap();
    assert_pings(&scene.a, TwoHosts::B4);
    router.cli("pcap trace off").unwrap();
    assert!(router.file("rights.pcap").is_file());
    // Not by `exec`, whose file quiverctl reads, as root here.
    let error = router.cli("packet-generator new { name x limit 1 interface host-r0 pcap /etc/shadow }").unwrap_err();
    assert!(!error.contains("root:") && !error.trim_end().contains('\n'), "{error}");
    router.stop().unwrap();
}

#[test]
fn the_router_goes_on_without_its_helper_and_the_helper_not_without_its_router() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let other = keeper(&scene.a);
    let router = Router::builder(&scene.middle, "").user(USER).start().unwrap();
    router.script(TwoHosts::COMMANDS).unwrap();
    assert_pings(&scene.a, TwoHosts::B4);
    let helper = privileges(&router)["helper"]["pid"].as_u64().unwrap() as u32;
    // It gives its own rights up meanwhile.
    let status = || fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
    eventually("the helper's calls are filtered", BOUND, || field(&status(), "Seccomp") == "2");
    let status = status();
    assert_eq!(field(&status, "Uid").split(' ').next(), Some("65534"));
    // SYS_ADMIN, SYS_PTRACE, NET_ADMIN, BPF.
    let set = u64::from_str_radix(&field(&status, "CapEff"), 16).unwrap();
    assert_eq!(set & !IN_PLACE_OF_LIMITS, 1 << 12 | 1 << 19 | 1 << 21 | 1 << 39, "{set:x}");
    assert_eq!((field(&status, "NoNewPrivs").as_str(), field(&status, "Seccomp").as_str()), ("1", "2"));

    for odd in ["no-such", "/dev/null", "/etc/passwd", "pid:1x", "../x"] {
        let error = router.cli(&format!("create tap host-ns {odd}")).unwrap_err();
        assert!(error.contains(odd) && !error.contains('\n'), "{error}");
    }
    assert!(scene.middle.run(&format!("kill -9 {helper}"), BOUND).unwrap().success());
    eventually("the helper is seen to be lost", BOUND, || privileges(&router)["helper"]["lost"].is_string());
    for line in [format!("create tap host-ns pid:{}", other.pid()), "create interface af_xdp host-if lo".to_owned()] {
        let error = router.cli(&line).unwrap_err();
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
    }
    let error = router.cli(&format!("create tap host-ns pid:{}", other.pid())).unwrap_err();
    assert!(error.contains("helper is lost") && error.contains("start the router anew"), "{error}");
    router.script(&tap(0, "")).unwrap();
    assert_pings(&scene.middle, "10.7.0.1");
    assert_pings(&scene.a, TwoHosts::B4);
    router.stop().unwrap();

    let mut router = Router::builder(&scene.middle, "").user(USER).start().unwrap();
    let helper = privileges(&router)["helper"]["pid"].as_u64().unwrap();
    router.kill9().unwrap();
    eventually("the helper ends with its router", BOUND, || !Path::new(&format!("/proc/{helper}")).exists());
}

/// Words of `setpriv` that start a program as the user, with these capabilities.
fn plain(capabilities: &str) -> String {
    let mut words = format!("setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all{capabilities}");
    if !capabilities.is_empty() {
        words.push_str(&format!(" --ambient-caps=-all{capabilities}"));
    }
    words
}

fn start_plain(host: &Host, conf: &str, capabilities: &str) -> RouterBuilder {
    Router::builder(host, conf).no_user().through(&plain(capabilities), USER)
}

#[test]
fn a_plain_user_starts_it_and_is_told_what_will_not_work() {
    let Some(_scenario) = Scenario::begin(&["ping", "setpriv"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    for conf in ["", "unix { user 65534 }"] {
        let router = start_plain(&scene.middle, conf, "").start().unwrap();
        router.script("create loopback interface\ncreate interface memif id 0 master\nset interface state memif0/0 up").unwrap();
        let error = router.cli("create host-interface name r0").unwrap_err();
        assert!(error.to_lowercase().contains("not permitted") && !error.contains('\n'), "{error}");
        let log = router.log();
        for what in
            ["host-interface: cap_net_admin, cap_net_raw missing", "AF_XDP interfaces: ", "TAP interfaces: cap_net_admin missing"]
        {
            assert!(log.contains(&format!("not possible here: {what}")), "{what}:\n{log}");
        }
        assert!(!log.contains("all rights of root"), "{log}");
        assert!(router.cli("show privileges").unwrap().contains("effective  none\n"));
        router.stop().unwrap();
    }
    // Capabilities as systemd hands them out.
    let handed = ",+net_admin,+net_raw";
    let router = start_plain(&scene.middle, "unix { user 65534 } cpu { workers 1 }", handed).start().unwrap();
    router.script(TwoHosts::COMMANDS).unwrap();
    assert_pings(&scene.a, TwoHosts::B4);
    router.script(&tap(0, "")).unwrap();
    assert_pings(&scene.middle, "10.7.0.1");
    let info = privileges(&router);
    assert_eq!((info["effective"].to_string().as_str(), &info["ambient"]), (r#"["net_admin","net_raw"]"#, &serde_json::json!([])));
    assert_eq!(info["helper"], Value::Null, "there is nothing that it could do");
    // Entering a namespace is refused in one line, and does not end the router.
    let error = router.cli("create tap host-ns pid:1").unwrap_err();
    assert!(error.contains("CAP_SYS_ADMIN") && !error.contains('\n'), "{error}");
    router.stop().unwrap();
}

#[test]
fn users_that_cannot_be_had_end_the_start_with_one_line() {
    let Some(_scenario) = Scenario::begin(&["setpriv"]) else { return };
    let host = Host::new("router").unwrap();
    let fails = |builder: RouterBuilder| {
        let text = builder.start().expect_err("it must not start").to_string();
        text.lines().find(|line| line.starts_with("quiver: ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let line = fails(Router::builder(&host, "unix { user no-such-user }").no_user());
    assert!(line.contains("there is no user `no-such-user'") && line.contains("startup.conf:1:"), "{line}");
    let line = fails(Router::builder(&host, "unix { user 65534 gid no-such-group }").no_user());
    assert!(line.contains("there is no group `no-such-group'"), "{line}");
    let line = fails(start_plain(&host, "unix { user root }", ""));
    assert!(line.contains("cannot become user root") && line.contains("start it as root"), "{line}");
}

#[test]
fn root_without_a_user_stays_root_and_is_advised_once() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("router").unwrap();
    let router = Router::builder(&host, "").no_user().start().unwrap();
    // The router logs its rights before it answers the first command.
    let info = privileges(&router);
    assert_eq!(router.log().matches("all rights of root").count(), 1, "{}", router.log());
    assert_eq!((info["uid"].as_u64(), info["seccomp_mode"].as_str(), &info["helper"]), (Some(0), Some("off"), &Value::Null));
    router.stop().unwrap();
}
