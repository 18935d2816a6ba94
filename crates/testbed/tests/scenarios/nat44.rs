//! NAT44 between kernel hosts: those inside know nothing of it, those outside see only outside addresses.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, iperf3, traceroute, workers};
use quiver_testbed::{Guard, Host, Router, Scenario, TwoHosts, TwoHostsOptions};

/// The pool; outside addresses of static mappings.
const POOL: &str = "10.0.2.100";
const SERVICE: &str = "10.0.2.50";

/// Host a inside, host b outside, which has no route to the inside.
fn scene(workers: u32, commands: &str) -> (TwoHosts, Router) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    scene.b.ip("route del default").expect("no way back");
    let router = scene.start_router(workers).expect("router");
    let nat = format!("nat44 plugin enable\nset interface nat44 in host-r0 out host-r1\nnat44 add address {POOL}\n{commands}");
    router.script(&nat).expect("configuration");
    (scene, router)
}

fn serve(host: &Host, port: u16) -> Guard {
    let server = host.background(&format!("iperf3 --server --port {port}")).expect("server");
    assert!(host.wait_for_listener(port, BOUND).expect("listener"));
    server
}

fn runs(host: &Host, line: &str) -> String {
    let out = host.run(line, BOUND).expect("the program runs");
    assert!(out.success(), "{line}: {out}");
    out.stdout
}

#[test]
fn hosts_inside_reach_the_outside_and_are_seen_by_the_pools_address() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let (scene, router) = scene(*workers, "");
        assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap(), "ping");
        for options in
            ["--bytes 32M", "--bytes 32M --reverse", "--bytes 4M --udp --bitrate 50M", "--bytes 4M --udp --bitrate 50M --reverse"]
        {
            iperf3(&scene.a, &scene.b, &format!("--client {} {options}", TwoHosts::B4));
        }
        let sessions = router.cli("show nat44 sessions").unwrap();
        assert!(sessions.contains(&format!("o2i {POOL} proto TCP")), "{sessions}");
        assert!(!scene.b.pings(TwoHosts::A4, 1).unwrap(), "from outside nobody gets in");
        router.cli("nat44 plugin disable").unwrap();
        assert_buffers_are_back(&router);
    }
}

#[test]
fn a_mapped_service_is_reached_from_outside_and_from_inside() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "curl", "python3"]) else { return };
    for workers in workers() {
        let commands = format!("nat44 add static mapping tcp local {} 8000 external {SERVICE} 80", TwoHosts::A4);
        let (scene, router) = scene(*workers, &commands);
        let _server = scene.a.background("python3 -m http.server 8000 --directory /etc").unwrap();
        assert!(scene.a.wait_for_listener(8000, BOUND).unwrap());
        let page = runs(&scene.b, &format!("curl --silent --show-error --max-time 60 http://{SERVICE}/hostname"));
        assert_eq!(page, std::fs::read_to_string("/etc/hostname").unwrap());
        // Hairpin: the host reaches itself by its outside endpoint.
        let page = runs(&scene.a, &format!("curl --silent --show-error --max-time 60 http://{SERVICE}/hostname"));
        assert_eq!(page, std::fs::read_to_string("/etc/hostname").unwrap());
        let sessions = router.cli("show nat44 sessions").unwrap();
        assert!(sessions.contains("static translation") && sessions.contains("dynamic translation"), "{sessions}");
        assert_buffers_are_back(&router);
    }
}

#[test]
fn traceroute_sees_the_router_and_the_host_behind_it() {
    let Some(_scenario) = Scenario::begin(&["traceroute"]) else { return };
    let (scene, _router) = scene(1, "");
    for method in ["", "--icmp", "--tcp"] {
        assert_eq!(traceroute(&scene.a, method, TwoHosts::B4), ["10.0.1.1", TwoHosts::B4], "{method}");
    }
}

#[test]
fn the_path_mtu_is_found_through_the_nat() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, router) = scene(1, "set interface mtu packet 1300 host-r1");
    let line = format!("ping -n -c 2 -i 0.2 -W 60 -M do -s 1400 {}", TwoHosts::B4);
    let first = scene.a.run(&line, BOUND).unwrap();
    assert!(!first.success() && first.to_string().contains("mtu = 1300"), "{first}");
    let route = runs(&scene.a, &format!("ip route get {}", TwoHosts::B4));
    assert!(route.contains("mtu 1300"), "{route}");
    // Without the flag it passes in fragments.
    runs(&scene.a, &format!("ping -n -c 2 -i 0.2 -W 60 -M dont -s 1400 {}", TwoHosts::B4));
    runs(&scene.a, &format!("ping -n -c 2 -i 0.2 -W 60 -M dont -s 4000 {}", TwoHosts::B4));
    assert_buffers_are_back(&router);
}

#[test]
fn the_routers_own_address_can_be_the_outside() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    let (scene, router) = scene(1, &format!("nat44 add address {POOL} del\nnat44 add interface address host-r1"));
    assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap());
    let _server = serve(&scene.b, 5201);
    runs(&scene.a, &format!("iperf3 --client {} --time 1", TwoHosts::B4));
    assert!(router.cli("show nat44 sessions").unwrap().contains("o2i 10.0.2.1 proto TCP"));
    assert!(scene.b.reaches("10.0.2.1", 3).unwrap(), "the router itself still answers");
}

#[test]
fn a_pool_that_is_taken_away_under_load_is_counted_and_comes_back() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    let (scene, router) = scene(1, "");
    assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap());
    let _server = serve(&scene.b, 5201);
    let load = scene.a.background(&format!("iperf3 --client {} --udp --bitrate 20M --time 600", TwoHosts::B4)).unwrap();
    eventually("the load runs", BOUND, || router.cli("show nat44 sessions").unwrap().contains("proto UDP"));
    router.cli(&format!("nat44 add address {POOL} del")).unwrap();
    eventually("drops are counted", BOUND, || common::errors(&router, "nat44-ed-in2out", "out of ports") > 100);
    router.cli(&format!("nat44 add address {POOL}")).unwrap();
    assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap(), "it works again");
    drop(load);
    router.cli("nat44 plugin disable").unwrap();
    assert_buffers_are_back(&router);
}

#[test]
fn an_interface_that_goes_under_load_comes_back() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in [1, 2] {
        let (scene, router) = scene(workers, "");
        assert!(scene.a.reaches(TwoHosts::B4, 5).unwrap());
        let _server = serve(&scene.b, 5201);
        let load = scene.a.background(&format!("iperf3 --client {} --udp --bitrate 20M --time 600", TwoHosts::B4)).unwrap();
        eventually("the load runs", BOUND, || router.cli("show nat44 sessions").unwrap().contains("proto UDP"));
        router.cli("delete host-interface name r1").unwrap();
        assert_eq!(router.cli("show nat44 interfaces").unwrap(), "NAT44 interfaces:\n host-r0 in\n");
        let again = "create host-interface name r1\nset interface state host-r1 up\nset interface ip address host-r1 10.0.2.1/24\n\
                     set interface nat44 out host-r1";
        router.script(again).unwrap();
        assert!(scene.a.reaches(TwoHosts::B4, 10).unwrap(), "it works again");
        assert!(router.cli("show nat44 sessions").unwrap().contains(&format!("o2i {POOL} proto ICMP")));
        drop(load);
        router.cli("nat44 plugin disable").unwrap();
        assert_buffers_are_back(&router);
    }
}
