//! DPDK's virtual devices under the router: no NIC is needed. Each end of a link is a process of its own.
//!
//! Needs a router that was built with the feature `dpdk` (`scripts/test` does that where libdpdk-dev is installed).

use crate::common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{BOUND, assert_buffers_are_back, counter, eventually, iperf3, kills, number_after};
use quiver_testbed::{Guard, Host, Offloads, Router, Scenario, TwoHosts, TwoHostsOptions, is_short_pass, skip};

/// The test begins where the router has DPDK.
pub fn begin(needs: &[&str]) -> Option<Scenario> {
    with_dpdk(Scenario::begin(needs)?)
}

fn with_dpdk(scenario: Scenario) -> Option<Scenario> {
    let host = Host::new("trial").expect("host");
    match Router::start(&host, "") {
        Ok(router) if router.cli("show dpdk version").is_ok() => Some(scenario),
        Ok(_) => {
            skip("needs a router with DPDK (libdpdk-dev and scripts/test, or cargo build --features quiver/dpdk)");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// DPDK's own forwarder in a host, as a client of the memif socket.
fn testpmd(host: &Host, socket: &str, queues: u32, mode: &str) -> Guard {
    let mut command = host.command("dpdk-testpmd");
    let vdev = format!("net_memif0,role=client,id=0,socket={socket},socket-abstract=no");
    command.args(["--no-huge", "--no-shconf", "-m", "256", "--no-pci", "--no-telemetry", "--iova-mode=va"]);
    command.args(["--file-prefix", &format!("testpmd-{}-{:?}", std::process::id(), std::thread::current().id())]);
    command.args(["-l", "0,1", "--main-lcore", "0", "--vdev", &vdev, "--"]);
    let queues = queues.to_string();
    command.args(["--auto-start", "--stats-period", "1", "--no-lsc-interrupt", "--forward-mode", mode]);
    command.args(["--rxq", &queues, "--txq", &queues, "--total-num-mbufs", "8192"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    host.spawn(command).expect("testpmd")
}

fn link_is_up(router: &Router, interface: &str) -> bool {
    let text = router.cli(&format!("show hardware-interfaces {interface}")).expect("show");
    text.lines().nth(1).is_some_and(|line| line.contains(" up "))
}

const TWO_DEVICES: &str = "dpdk {
    vdev net_af_packet0,iface=r0 { name left }
    vdev net_af_packet1,iface=r1 { name right }
}";

const TWO_NETWORKS: &str = "
    set interface state left up
    set interface state right up
    set interface ip address left 10.0.1.1/24
    set interface ip address right 10.0.2.1/24
    set interface ip address left 2001:db8:1::1/64
    set interface ip address right 2001:db8:2::1/64
";

#[test]
fn real_hosts_reach_one_another_over_devices_of_dpdk() {
    let Some(_scenario) = begin(&["ping", "iperf3", "ethtool"]) else { return };
    // The driver knows nothing of unfinished checksums, which a kernel host leaves to its device.
    let scene = TwoHosts::new(TwoHostsOptions { offloads: Offloads::Off, ..Default::default() }).expect("two hosts");
    let workers: &[u32] = if is_short_pass() { &[1] } else { &[0, 1, 2] };
    for workers in workers {
        let router = scene.start_router_with(*workers, TWO_DEVICES, TWO_NETWORKS).expect("router");
        for (host, to) in [(&scene.a, TwoHosts::B4), (&scene.b, TwoHosts::A6)] {
            eventually(&format!("an answer from {to}"), BOUND, || host.pings(to, 1).expect("ping"));
        }
        for size in [0, 1, 18, 1400, 1472] {
            let line = format!("ping -c 2 -i 0.01 -W 60 -s {size} {}", TwoHosts::B4);
            assert!(scene.a.run(&line, BOUND).expect("ping").success(), "{size} bytes, {workers} workers");
        }
        for to in [TwoHosts::B4, TwoHosts::B6] {
            let out = iperf3(&scene.a, &scene.b, &format!("--client {to} --bytes 16M --json"));
            let sum = &out[out.find("\"sum_received\"").expect("a sum")..];
            assert!(number_after(sum, "\"bytes\"").expect("bytes") > 1e6, "{out}");
        }
        let hardware = router.cli("show hardware-interfaces left").expect("show");
        for expected in ["driver net_af_packet", "extended stats:", "rx_good_packets", "tx_good_packets"] {
            assert!(hardware.contains(expected), "no `{expected}' in\n{hardware}");
        }
        let before = router.usage().expect("usage").threads;
        router.cli("delete dpdk-interface left").expect("delete");
        router.cli("delete dpdk-interface right").expect("delete");
        assert_buffers_are_back(&router);
        // What was deleted can be made again, at once or as soon as the last worker has let go of it.
        eventually("the device can be opened again", BOUND, || {
            router.cli("create dpdk-interface device net_af_packet0,iface=r0 name left").is_ok()
        });
        eventually("no thread is left behind", BOUND, || router.usage().expect("usage").threads <= before);
        router.stop().expect("a clean end");
    }
}

#[test]
fn a_peer_of_dpdks_own_sends_over_memif_is_killed_and_comes_back() {
    let Some(_scenario) = begin(&["dpdk-testpmd"]) else { return };
    let host = Host::new("router").expect("host");
    let queues: &[u32] = if is_short_pass() { &[1] } else { &[1, 2] };
    for queues in queues {
        let conf = format!(
            "cpu {{ workers 1 }} dpdk {{
                vdev net_memif0,role=server,id=0,socket=@dir@/memif.sock,socket-abstract=no {{
                    name m0 num-rx-queues {queues} num-tx-queues {queues}
                }}
            }}"
        );
        let router = Router::start(&host, &conf).expect("router");
        // What comes in goes out again: an interface that is its own peer, by way of a second address of the same network.
        router.script("set interface state m0 up\nset interface promiscuous on m0").expect("commands");
        assert!(!link_is_up(&router, "m0"));
        let rounds = kills(1, 3);
        for round in 0..rounds {
            let socket = router.folder().join("memif.sock");
            let mut peer = testpmd(&host, &socket.to_string_lossy(), *queues, "txonly");
            eventually("the link comes up", BOUND, || link_is_up(&router, "m0"));
            let before = counter(&router, "m0", "rx packets");
            eventually(&format!("packets, round {round}"), BOUND, || counter(&router, "m0", "rx packets") > before + 10_000);
            // DPDK's driver unmaps the memory of a peer that has gone, also while a worker reads a ring there (docs/dpdk.md). Once the command
            // has returned, no worker does: it waits until the worker has taken the interface's queues out of its polls.
            router.cli("set interface state m0 down").expect("down");
            peer.kill().expect("kill");
            eventually("the link goes down", BOUND, || !link_is_up(&router, "m0"));
            router.cli("set interface state m0 up").expect("up");
        }
        assert_buffers_are_back(&router);
        let hardware = router.cli("show hardware-interfaces m0").expect("show");
        assert!(hardware.contains(&format!("rx: queues {queues} ")), "{hardware}");
        router.stop().expect("a clean end");
    }
}

#[test]
fn packets_go_round_between_two_routers_over_memif() {
    let Some(_scenario) = begin(&[]) else { return };
    let host = Host::new("router").expect("host");
    let folder = std::env::temp_dir().join(format!("quiver-dpdk-memif-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&folder).expect("folder");
    // A router that is not root makes its socket there, too.
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("rights");
    let conf = |role: &str| {
        // Frames of this driver have 1518 bytes at most, so small buffers are what makes long packets here.
        format!(
            "unix {{ allow-path {0} }} buffers {{ default data-size 512 }}
             dpdk {{ vdev net_memif0,role={role},id=7,socket={0}/m.sock,socket-abstract=no {{ name m0 }} }}",
            folder.display()
        )
    };
    // The client is there first, and waits.
    let two = Router::start(&host, &conf("client")).expect("router");
    assert!(two.cli("show hardware-interfaces m0").expect("show").contains("waits for its peer"));
    let one = Router::start(&host, &conf("server")).expect("router");
    for (router, address) in [(&one, "192.0.2.1/24"), (&two, "192.0.2.2/24")] {
        router.script(&format!("set interface state m0 up\nset interface ip address m0 {address}")).expect("commands");
    }
    eventually("both links are up", BOUND, || link_is_up(&one, "m0") && link_is_up(&two, "m0"));
    let pings = |size: u32| {
        // Three at once, whose answers have a second.
        let said = one.cli(&format!("ping 192.0.2.2 repeat 1 interval 1 burst 3 size {size}"));
        said.is_ok_and(|text| text.contains("3 sent, 3 received"))
    };
    eventually("an answer", BOUND, || pings(64));
    // Larger than a buffer: such a packet lies in several, in both directions.
    for size in [64, 400, 512, 513, 1000, 1472] {
        eventually(&format!("an answer to {size} bytes"), BOUND, || pings(size));
    }
    for router in [&one, &two] {
        router.cli("set interface state m0 down").expect("down");
        assert_buffers_are_back(router);
    }
    one.stop().expect("a clean end");
    two.stop().expect("a clean end");
    let _ = std::fs::remove_dir_all(&folder);
}

pub fn devices_without_a_peer_show_what_the_path_itself_costs() {
    let Some(_scenario) = Scenario::alone(&[]).and_then(with_dpdk) else { return };
    let host = Host::new("router").expect("host");
    let conf = "cpu { workers 1 } buffers { buffers-per-numa 8192 } dpdk {
        vdev net_null0,copy=0 { name n0 num-rx-queues 2 num-tx-queues 2 }
        vdev net_ring0 { name ring0 }
    }";
    let router = Router::start(&host, conf).expect("router");
    router.script("set interface l2 xconnect n0 n0\nset interface state n0 up").expect_err("an interface is not its own peer");
    router.script("set interface l2 xconnect n0 ring0\nset interface l2 xconnect ring0 n0").expect("cross-connect");
    router.script("set interface state ring0 up\nset interface state n0 up").expect("up");
    let (before, start) = (counter(&router, "n0", "rx packets"), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let packets = counter(&router, "n0", "rx packets") - before;
    let rate = packets as f64 / start.elapsed().as_secs_f64() / 1e6;
    eprintln!("net_null to net_ring and back: {rate:.2} M packets/s received\n{}", router.cli("show runtime").expect("runtime"));
    // The rate is told and not judged.
    eventually("a hundred thousand packets", BOUND, || counter(&router, "n0", "rx packets") - before > 100_000);
    router.script("set interface state n0 down\nset interface state ring0 down").expect("down");
    // The ring device keeps what was sent into it: that is a peer's memory, until the device is closed.
    router.script("delete dpdk-interface n0\ndelete dpdk-interface ring0").expect("delete");
    router.stop().expect("a clean end");
}

pub fn a_device_that_cannot_be_opened_is_told_of_with_its_place_and_the_others_work() {
    let Some(_scenario) = Scenario::alone(&[]).and_then(with_dpdk) else { return };
    let host = Host::new("router").expect("host");
    let conf = "dpdk {\n  dev 0000:ff:1f.7\n  vdev net_nothing0\n  vdev net_null0 { name n0 }\n}";
    let router = Router::start(&host, conf).expect("router");
    assert!(router.cli("show hardware-interfaces n0").expect("show").contains("driver net_null"));
    let log = router.log();
    for expected in ["startup.conf:3:", "0000:ff:1f.7: attaching it", "net_nothing0: attaching it"] {
        assert!(log.contains(expected), "no `{expected}' in\n{log}");
    }
    for (line, expected) in [
        ("create dpdk-interface device net_null0", "in use already"),
        ("create dpdk-interface device net_null1 name n0", "exists already"),
        ("create dpdk-interface", "device"),
        ("delete dpdk-interface local0", "no device of DPDK"),
        ("set dpdk interface descriptors n0", "rx <n> or tx <n>"),
    ] {
        let error = router.cli(line).expect_err(line);
        assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
    }
    let version = router.cli("show dpdk version").expect("version");
    assert!(version.starts_with("DPDK Version:             DPDK 2"), "{version}");
    assert!(router.cli("show dpdk buffer").expect("buffer").contains("mbufs"));
    router.stop().expect("a clean end");
    let left: Vec<_> = std::fs::read_dir("/var/run/dpdk").into_iter().flatten().flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("quiver-")), "{left:?}");
}

#[test]
fn unknown_keys_stop_the_start_with_their_place() {
    let Some(_scenario) = begin(&[]) else { return };
    let host = Host::new("router").expect("host");
    let error = Router::start(&host, "dpdk {\n  dev 0000:01:00.0 { num-rx-queue 4 }\n}").expect_err("an unknown key").to_string();
    assert!(error.contains("unknown key `num-rx-queue'") && error.contains("did you mean `num-rx-queues'"), "{error}");
}

#[test]
fn a_sleeping_router_is_woken_by_a_device_with_interrupts() {
    let Some(_scenario) = begin(&["ping"]) else { return };
    let host = Host::new("router").expect("host");
    if !std::path::Path::new("/dev/net/tun").exists() {
        quiver_testbed::skip_for_kernel("has no TUN devices");
        return;
    }
    let conf = "cpu { workers 1 } dpdk { vdev net_tap0,iface=t0 { name tap } }";
    let router = Router::start(&host, conf).expect("router");
    router.script("set interface state tap up\nset interface ip address tap 192.0.2.1/24").expect("commands");
    // The driver gives its own address to the kernel's end too; the two must differ.
    host.ip("link set t0 address 02:00:00:00:09:02").expect("address");
    host.address("t0", "192.0.2.2/24").expect("address");
    host.link_up("t0").expect("up");
    eventually("an answer", BOUND, || host.pings("192.0.2.1", 1).expect("ping"));
    assert!(router.cli("show hardware-interfaces tap").expect("show").contains("rx interrupts: on"));
    std::thread::sleep(Duration::from_millis(300));
    let before = router.usage().expect("usage").cpu_time;
    std::thread::sleep(Duration::from_secs(2));
    let idle = router.usage().expect("usage").cpu_time - before;
    assert!(idle < Duration::from_millis(400), "{idle:?} of processor time in 2 s of idleness");
    // One at a time, so that none is woken by the next: a wake-up that is missed is an answer that does not come.
    for turn in 0..40 {
        let out = host.run("ping -c 1 -W 60 192.0.2.1", BOUND).expect("ping");
        assert!(out.success(), "turn {turn}: not woken\n{out}");
    }
}
