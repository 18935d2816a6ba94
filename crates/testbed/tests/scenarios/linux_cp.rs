//! The Linux control plane: a host interface in a namespace stands for the router's interface, and programs there are the router's.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, iperf3, workers};
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario, Tag};

/// A host `a`, the router behind its only link, and the namespace of the router's Linux side.
struct Scene {
    a: Host,
    middle: Host,
    linux: Host,
    /// By which the router finds the namespace.
    keeper: Guard,
}

/// Link addresses: host, router.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 1, 1]];

impl Scene {
    fn new() -> Self {
        let [a, middle, linux] = ["a", "router", "linux"].map(|name| Host::new(name).unwrap());
        let options = LinkOptions { macs: MACS.map(Some), ..LinkOptions::default() };
        a.veth("eth0", &middle, "r0", &options).unwrap();
        middle.disable_ipv6("r0").unwrap();
        let keeper = linux.background("sleep 86400").unwrap();
        Self { a, middle, linux, keeper }
    }

    fn addresses(&self) {
        self.a.address("eth0", "10.0.1.2/24").unwrap();
        self.a.address("eth0", "2001:db8:1::2/64").unwrap();
    }

    fn netns(&self) -> String {
        format!("pid:{}", self.keeper.pid())
    }

    /// A router with the interface to the host, up.
    fn router(&self, workers: u32, commands: &str) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&self.middle, &cpu).expect("router");
        let first = "create host-interface name r0 hw-addr 02:00:00:00:01:01\nset interface state host-r0 up\n";
        router.script(&format!("{first}{commands}")).expect("configuration");
        router
    }

    fn has(&self, name: &str) -> bool {
        self.linux.mac(name).is_ok()
    }

    /// Waits until Linux can send on a host interface, and lets it be patient there.
    fn can_send(&self, name: &str) {
        assert!(self.linux.wait_for_carrier(name, BOUND).unwrap(), "{name} has no carrier");
        self.linux.ask_neighbours_patiently(name).unwrap();
    }

    /// What `ip` says of a host interface, in a line.
    fn ip(&self, what: &str) -> String {
        self.linux.run(&format!("ip -o {what}"), BOUND).unwrap().expect(what)
    }
}

const ADDRESSES: &str = "set interface ip address host-r0 10.0.1.1/24\nset interface ip address host-r0 2001:db8:1::1/64\n";

fn frame(dst: [u8; 6], src: [u8; 6], ether_type: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    bytes.extend(ether_type.to_be_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// IS-IS hello (as far as matters here), LLDP, and an OSPF hello with a right header checksum.
fn protocols(src: [u8; 6]) -> [(&'static str, Vec<u8>); 3] {
    let mut ospf = vec![0x45, 0xc0, 0, 64, 0, 1, 0, 0, 1, 89, 0xcd, 0x9d, 10, 0, 1, 2, 224, 0, 0, 5, 2, 1, 0, 44];
    ospf.resize(64, 0);
    let lldp = [2, 7, 4, 2, 0, 0, 0, 1, 2, 4, 2, 7, b'e', 6, 2, 0, 120, 0, 0];
    [
        ("IS-IS", frame([0x01, 0x80, 0xc2, 0, 0, 0x14], src, 46, &[0xfe, 0xfe, 0x03, 0x83, 27, 1, 0, 15, 1, 0, 0])),
        ("LLDP", frame([0x01, 0x80, 0xc2, 0, 0, 0x0e], src, 0x88cc, &lldp)),
        ("OSPF", frame([0x01, 0, 0x5e, 0, 0, 5], src, 0x0800, &ospf)),
    ]
}

#[test]
fn programs_in_linux_are_reached_at_the_routers_addresses() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let scene = Scene::new();
        scene.addresses();
        let Scene { a, linux, .. } = &scene;
        let router = scene.router(*workers, ADDRESSES);
        assert!(a.reaches("10.0.1.1", 1).unwrap(), "without a pair the router answers");
        router.cli(&format!("lcp create host-r0 host-if e0 netns {}", scene.netns())).unwrap();
        assert_eq!(linux.mac("e0").unwrap(), MACS[1], "the interface's own MAC address");
        scene.can_send("e0");
        assert!(!a.pings("10.0.1.1", 1).unwrap(), "Linux has no such address yet");
        linux.address("e0", "10.0.1.1/24").unwrap();
        linux.address("e0", "2001:db8:1::1/64").unwrap();
        for address in ["10.0.1.1", "2001:db8:1::1"] {
            assert!(a.reaches(address, 3).unwrap(), "{address}");
        }
        let neighbours = linux.run("ip neigh show dev e0", BOUND).unwrap().expect("ip neigh");
        assert!(neighbours.contains("10.0.1.2 lladdr 02:00:00:00:01:02"), "{neighbours}");
        let known = router.cli("show ip neighbors").unwrap();
        assert!(known.contains("10.0.1.2"), "{known}");
        linux.flush_neighbours("e0").unwrap();
        a.flush_neighbours("eth0").unwrap();
        for address in ["10.0.1.2", "2001:db8:1::2"] {
            assert!(linux.reaches(address, 3).unwrap(), "Linux to {address}");
        }
        // It waits for a second.
        eventually("the router's own ping", BOUND, || {
            router.cli("ping 10.0.1.2 repeat 1").is_ok_and(|said| said.contains("1 received"))
        });
        for line in ["-c 10.0.1.1 -n 64M", "-c 10.0.1.1 -n 64M -R", "-c 2001:db8:1::1 -n 32M"] {
            let out = iperf3(a, linux, line);
            println!("{workers} workers: {line}: {}", out.lines().rfind(|l| l.contains("receiver")).unwrap_or(""));
        }
        assert_buffers_are_back(&router);
        let text = router.cli("show lcp").unwrap();
        assert!(text.contains("itf-pair: [0] host-r0 tap4096 e0 "), "{text}");
        router.cli("lcp delete host-r0").unwrap();
        eventually("the host interface goes", BOUND, || !scene.has("e0"));
        assert!(a.reaches("10.0.1.1", 1).unwrap(), "the router answers again");
        assert!(router.cli("show interface").is_ok_and(|text| !text.contains("tap4096")));
    }
}

#[test]
fn frames_of_routing_protocols_pass_in_both_directions() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let scene = Scene::new();
    let commands = format!("lcp create host-r0 host-if e0 netns {}", scene.netns());
    let router = scene.router(1, &commands);
    scene.can_send("e0");
    let (mut outside, mut inside) = (scene.a.raw("eth0").unwrap(), scene.linux.raw("e0").unwrap());
    for (what, frame) in protocols(MACS[0]) {
        outside.send(&frame).unwrap();
        assert!(inside.recv_matching(BOUND, |got| got == frame).unwrap().is_some(), "{what} to Linux");
    }
    for (what, frame) in protocols(MACS[1]) {
        inside.send(&frame).unwrap();
        assert!(outside.recv_matching(BOUND, |got| got == frame).unwrap().is_some(), "{what} from Linux");
    }
    let slow = frame([0x01, 0x80, 0xc2, 0, 0, 2], MACS[0], 0x8809, &[1; 46]);
    outside.send(&slow).unwrap();
    eventually("a type that is not enabled is dropped", BOUND, || {
        common::errors(&router, "linux-cp-punt-ethernet", "ethernet type not enabled") == 1
    });
    router.cli("lcp ethertype enable 0x8809").unwrap();
    outside.send(&slow).unwrap();
    assert!(inside.recv_matching(BOUND, |got| got == slow).unwrap().is_some());
    assert_buffers_are_back(&router);
}

#[test]
fn sub_interfaces_have_host_interfaces_of_their_own() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", Scenario::BPF]) else { return };
    for (tags, sub) in [
        (vec![Tag::dot1q(10)], "10 dot1q 10 exact-match"),
        (vec![Tag::dot1ad(100), Tag::dot1q(10)], "10 dot1ad 100 inner-dot1q 10 exact-match"),
    ] {
        let options = LinkOptions { offloads: quiver_testbed::Offloads::Off, macs: MACS.map(Some), ..LinkOptions::default() };
        let scene = Scene::new();
        scene.middle.delete_link("r0").unwrap();
        scene.a.veth("eth0", &scene.middle, "r0", &options).unwrap();
        scene.middle.disable_ipv6("r0").unwrap();
        scene.addresses();
        let commands = format!(
            "lcp lcp-sync on\nlcp lcp-auto-subint on\nlcp create host-r0 host-if e0 netns {}\n\
             create sub-interfaces host-r0 {sub}\nset interface mtu packet 1400 host-r0.10\nset interface state host-r0.10 up\n\
             set interface ip address host-r0.10 10.0.1.1/24\nset interface ip address host-r0.10 2001:db8:1::1/64",
            scene.netns()
        );
        let router = scene.router(1, &commands);
        let _program = scene.a.speak_vlan("eth0", &tags).unwrap();
        eventually("another thread has made the host interface", BOUND, || {
            let text = router.cli("show lcp").unwrap();
            text.contains(" host-r0.10 ") && text.contains(" e0.10 ")
        });
        eventually("it has the addresses", BOUND, || {
            let shown = scene.ip("addr show dev e0.10");
            shown.contains("10.0.1.1/24") && shown.contains("2001:db8:1::1/64")
        });
        scene.can_send("e0.10");
        for address in ["10.0.1.1", "2001:db8:1::1"] {
            assert!(scene.a.reaches(address, 3).unwrap(), "{tags:?} {address}");
        }
        assert!(scene.linux.reaches("10.0.1.2", 3).unwrap());
        iperf3(&scene.a, &scene.linux, "-c 10.0.1.1 -n 8M");
        iperf3(&scene.a, &scene.linux, "-c 10.0.1.1 -n 8M -R");
        assert_buffers_are_back(&router);
        router.cli("delete sub-interface host-r0.10").unwrap();
        eventually("the host interface goes with the sub-interface", BOUND, || !scene.has("e0.10"));
        assert!(scene.has("e0"));
    }
}

/// State, MTU and addresses of `e0`, as far as they are looked at.
fn assert_mirrored(scene: &Scene, name: &str, up: bool, mtu: u32, addresses: &[&str]) {
    let mirrored = || {
        let (link, all) = (scene.ip(&format!("link show {name}")), scene.ip(&format!("addr show dev {name}")));
        let flags = link.split(['<', '>']).nth(1).unwrap_or_default();
        let wanted = addresses.iter().all(|a| all.contains(&format!(" {a} ")));
        let count = all.lines().filter(|l| l.contains(" scope global")).count();
        flags.split(',').any(|flag| flag == "UP") == up
            && link.contains(&format!("mtu {mtu} "))
            && wanted
            && count == addresses.len()
    };
    eventually(&format!("{name}: up {up}, mtu {mtu}, {addresses:?}"), BOUND, mirrored);
}

#[test]
fn a_host_interface_follows_its_interface_in_whichever_order_things_are_made() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let four = ["10.0.1.1/24", "2001:db8:1::1/64"];
    let scene = Scene::new();
    let create = format!("lcp create host-r0 host-if e0 netns {}", scene.netns());
    let state = "set interface mtu packet 1400 host-r0";
    // The pair last, the pair first, and the switch last.
    for order in [
        format!("{ADDRESSES}{state}\nlcp lcp-sync on\n{create}"),
        format!("lcp lcp-sync on\n{create}\n{state}\n{ADDRESSES}"),
        format!("{create}\n{ADDRESSES}{state}\nlcp lcp-sync on"),
    ] {
        let router = scene.router(1, &order);
        assert_mirrored(&scene, "e0", true, 1400, &four);
        router.cli("set interface ip address del host-r0 10.0.1.1/24").unwrap();
        assert_mirrored(&scene, "e0", true, 1400, &four[1..]);
        router.cli("set interface mtu packet 1450 host-r0").unwrap();
        assert_mirrored(&scene, "e0", true, 1450, &four[1..]);
        router.cli("set interface mac address host-r0 02:00:00:00:00:77").unwrap();
        eventually("MAC address", BOUND, || scene.linux.mac("e0").unwrap() == [2, 0, 0, 0, 0, 0x77]);
        router.cli("set interface state host-r0 down").unwrap();
        eventually("down", BOUND, || !scene.ip("link show e0").contains(",UP"));
        router.cli("set interface state host-r0 up").unwrap();
        // Linux forgets IPv6 addresses of an interface that goes down; they are given again.
        assert_mirrored(&scene, "e0", true, 1450, &four[1..]);
        router.script("lcp lcp-sync off\nset interface ip address host-r0 10.0.1.1/24").unwrap();
        assert_mirrored(&scene, "e0", true, 1450, &four[1..]);
        drop(router);
        eventually("the host interface goes with the router", BOUND, || !scene.has("e0"));
    }
}

#[test]
fn loopbacks_and_bridges_have_host_interfaces() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = Scene::new();
    scene.addresses();
    let netns = scene.netns();
    let router = scene.router(
        1,
        &format!(
            "lcp lcp-sync on\nlcp default netns {netns}\ncreate loopback interface\nset interface state loop0 up\n\
             set interface ip address loop0 10.9.9.9/32\nlcp create loop0 host-if lo9\n\
             create loopback interface\nset interface state loop1 up\nset interface l2 bridge loop1 7 bvi\n\
             set interface l2 bridge host-r0 7\nset interface ip address loop1 10.0.1.1/24\nlcp create loop1 host-if bvi7"
        ),
    );
    assert_mirrored(&scene, "lo9", true, 9000, &["10.9.9.9/32"]);
    eventually("the bridge's address in Linux", BOUND, || scene.ip("addr show dev bvi7").contains("10.0.1.1/24"));
    scene.can_send("bvi7");
    assert!(scene.a.reaches("10.0.1.1", 3).unwrap(), "the bridge's own address, in Linux");
    assert!(scene.linux.reaches("10.0.1.2", 3).unwrap(), "from Linux through the bridge");
    scene.a.route("10.9.9.9/32", "10.0.1.1").unwrap();
    assert!(scene.a.reaches("10.9.9.9", 3).unwrap(), "the loopback's address, by the interface that leads there");
    let text = router.cli("show lcp phy loop1").unwrap();
    assert!(text.contains(" loop1 ") && text.contains(" bvi7 ") && !text.contains(" lo9 "), "{text}");
    router.cli("delete loopback interface intfc loop0").unwrap();
    eventually("the host interface goes with the loopback", BOUND, || !scene.has("lo9"));
    assert_buffers_are_back(&router);
}

#[test]
fn a_host_interface_that_somebody_deletes_is_made_again_as_it_was() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let scene = Scene::new();
    let router = scene.router(1, &format!("{ADDRESSES}lcp lcp-sync on\nlcp create host-r0 host-if e0"));
    let number = || {
        let text = router.cli("show lcp").unwrap();
        text.split(" e0 ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let before = number();
    scene.middle.delete_link("e0").unwrap();
    eventually("it has another number", BOUND, || number() != before);
    // What it had is given to it after that.
    eventually("its addresses are back", BOUND, || {
        let text = scene.middle.run("ip -o addr show dev e0", BOUND).unwrap().stdout;
        text.contains("10.0.1.1/24") && text.contains("2001:db8:1::1/64") && scene.middle.mac("e0").unwrap() == MACS[1]
    });
}

#[test]
fn what_linux_is_told_holds_for_the_router_without_an_echo() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = Scene::new();
    scene.addresses();
    let router = scene.router(1, &format!("lcp lcp-sync on\nlcp create host-r0 host-if e0 netns {}", scene.netns()));
    let shows = |command: &str, text: &str| router.cli(command).unwrap().contains(text);
    scene.linux.address("e0", "10.0.1.1/24").unwrap();
    eventually("the address is the router's", BOUND, || shows("show interface addr", "10.0.1.1/24"));
    eventually("Linux answers there", BOUND, || scene.a.pings("10.0.1.1", 1).unwrap());
    scene.linux.ip("route add 10.7.0.0/16 via 10.0.1.2").unwrap();
    eventually("the route is the router's", BOUND, || shows("show ip fib 10.7.1.1", "10.0.1.2"));
    // Quick changes back and forth: both sides end as Linux left it.
    for _ in 0..5 {
        scene.linux.link_down("e0").unwrap();
        scene.linux.link_up("e0").unwrap();
    }
    eventually("Linux answers again", BOUND, || scene.a.pings("10.0.1.1", 1).unwrap());
    assert!(scene.ip("link show e0").contains(",UP"), "as Linux left it");
    scene.linux.link_down("e0").unwrap();
    eventually("the router's interface follows", BOUND, || shows("show interface host-r0", " down "));
    scene.linux.link_up("e0").unwrap();
    eventually("up again", BOUND, || scene.a.pings("10.0.1.1", 1).unwrap());
    scene.linux.ip("addr del 10.0.1.1/24 dev e0").unwrap();
    eventually("the address is gone", BOUND, || !shows("show interface addr", "10.0.1.1/24"));
    assert_buffers_are_back(&router);
}

#[test]
fn a_dhcp_client_of_linux_gets_an_address_that_is_the_routers() {
    let Some(_scenario) = Scenario::begin(&["ping", "dhclient", "dnsmasq"]) else { return };
    let scene = Scene::new();
    scene.addresses();
    let netns = scene.netns();
    let router = scene.router(1, &format!("lcp lcp-sync on\nlcp create host-r0 host-if e0 netns {netns}"));
    eventually("carrier", BOUND, || scene.ip("link show e0").contains("LOWER_UP"));
    let folder = router.folder().display().to_string();
    // It sends its offers to the address that it offers: nobody has that yet, and the client asks for no broadcast.
    let server = format!(
        "dnsmasq --keep-in-foreground --port=0 --conf-file=/dev/null --user=root --no-ping --interface=eth0 --bind-interfaces \
         --dhcp-range=10.0.1.100,10.0.1.100,1h --dhcp-leasefile={folder}/leases --pid-file={folder}/dnsmasq.pid"
    );
    let _server = scene.a.background(&server).unwrap();
    let script = router.file("dhclient-script");
    let text = "#!/bin/sh\ncase $reason in BOUND|RENEW|REBIND|REBOOT) ip addr replace $new_ip_address/24 dev $interface;; esac\n";
    std::fs::write(&script, text).unwrap();
    scene.linux.run(&format!("chmod 755 {}", script.display()), BOUND).unwrap().expect("chmod");
    let client = format!("dhclient -d -sf {} -lf {folder}/client.leases -pf {folder}/client.pid e0", script.display());
    let _client = scene.linux.background(&client).unwrap();
    eventually("Linux has an address", BOUND, || scene.ip("addr show dev e0").contains("10.0.1.100/24"));
    eventually("it is the router's", BOUND, || router.cli("show interface addr").unwrap().contains("10.0.1.100/24"));
    assert!(scene.a.reaches("10.0.1.100", 3).unwrap());
    let features = router.cli("show interface features host-r0").unwrap();
    assert!(!features.contains("linux-cp-dhcp"), "from then on answers come to the router's own address: {features}");
    assert_buffers_are_back(&router);
}

/// Linux has an address of the router and asks for no neighbours: the router asks, and routes what Linux sends.
#[test]
fn an_interface_with_ethernet_headers_can_have_a_tun_device_in_linux() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = Scene::new();
    scene.addresses();
    let netns = scene.netns();
    let commands = format!(
        "{ADDRESSES}lcp lcp-sync on\nlcp create host-r0 host-if e0 netns {netns} tun\n\
         create loopback interface\nset interface state loop0 up\nset interface ip address loop0 10.9.9.9/32\n\
         lcp create loop0 host-if lo9 netns {netns} tun"
    );
    let router = scene.router(1, &commands);
    assert_mirrored(&scene, "e0", true, 1500, &["10.0.1.1/24", "2001:db8:1::1/64"]);
    assert!(scene.ip("link show e0").contains("NOARP"), "{}", scene.ip("link show e0"));
    for address in ["10.0.1.1", "2001:db8:1::1"] {
        assert!(scene.a.reaches(address, 3).unwrap(), "{address}");
    }
    for address in ["10.0.1.2", "2001:db8:1::2"] {
        assert!(scene.linux.reaches(address, 3).unwrap(), "Linux to {address}");
    }
    assert!(router.cli("show ip neighbors").unwrap().contains("10.0.1.2"), "the router has asked");
    scene.a.route("10.9.9.9/32", "10.0.1.1").unwrap();
    assert!(scene.a.reaches("10.9.9.9", 3).unwrap(), "the loopback's address");
    router.cli("set interface mac address host-r0 02:00:00:00:00:77").unwrap();
    // Host a learns of it by an announcement.
    eventually("an answer from the other MAC address", BOUND, || scene.a.pings("10.0.1.1", 1).unwrap());
    assert_buffers_are_back(&router);
}

/// Two routers whose link is memif without Ethernet headers; what each of them has of Linux is by a TUN device there.
#[test]
fn an_interface_without_ethernet_headers_has_a_tun_device_in_linux() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    let middle = Host::new("router").unwrap();
    let linux = ["left", "right"].map(|name| Host::new(name).unwrap());
    let keepers = linux.each_ref().map(|host| host.background("sleep 86400").unwrap());
    let routers = [0, 1].map(|_| Router::start(&middle, "cpu { workers 1 }").expect("router"));
    let socket = routers[0].folder().join("link.sock");
    for (n, (router, role)) in routers.iter().zip(["master", "slave"]).enumerate() {
        let commands = format!(
            "create memif socket id 1 filename {}\ncreate interface memif id 0 socket-id 1 mode ip {role}\n\
             set interface state memif1/0 up\nset interface ip address memif1/0 10.0.9.{}/30\n\
             set interface ip address memif1/0 2001:db8:9::{}/64\nlcp lcp-sync on",
            socket.display(),
            n + 1,
            n + 1,
        );
        router.script(&commands).expect("configuration");
    }
    let create = |n: usize| format!("lcp create memif1/0 host-if e0 netns pid:{}", keepers[n].pid());
    let error = routers[0].cli(&create(0)).unwrap_err();
    assert!(error.contains("add `tun'") && !error.contains('\n'), "{error}");
    for (n, router) in routers.iter().enumerate() {
        router.cli(&format!("{} tun", create(n))).unwrap();
        let text = router.cli("show lcp").unwrap();
        assert!(text.contains(" memif1/0 tap4096 e0 ") && text.contains(" type tun "), "{text}");
    }
    let address = |n: usize| linux[n].run("ip -o addr show dev e0", BOUND).unwrap().expect("ip addr");
    for n in [0, 1] {
        // The kernel adds no link-local address.
        eventually("Linux has the addresses", BOUND, || {
            let text = address(n);
            text.contains(&format!("10.0.9.{}/30", n + 1)) && text.matches("inet6 fe80:").count() == 1
        });
    }
    let link_local = |n: usize| address(n).split_whitespace().find(|w| w.starts_with("fe80:")).map(|w| w.replace("/64", "%e0"));
    assert_ne!(link_local(0), link_local(1), "both ends of a link differ");
    // The routers' link has its own time, and nothing waits for it.
    eventually("the link is up", BOUND, || linux[0].pings("10.0.9.2", 1).unwrap());
    for to in ["10.0.9.2", "2001:db8:9::2", &link_local(1).expect("an address")] {
        assert!(linux[0].reaches(to, 3).unwrap(), "{to}");
    }
    // A route of Linux by the device, without a gateway, holds for the router: its own packets follow it, too.
    routers[1].cli("set interface ip address memif1/0 10.7.0.1/32").unwrap();
    linux[0].ip("route add 10.7.0.0/24 dev e0").unwrap();
    eventually("the route is the router's", BOUND, || routers[0].cli("show ip fib 10.7.0.1").unwrap().contains("memif1/0"));
    assert!(linux[0].reaches("10.7.0.1", 3).unwrap(), "Linux to an address behind the link");
    for line in ["-c 10.0.9.2 -n 16M", "-c 10.0.9.2 -n 16M -R", "-c 2001:db8:9::2 -n 16M"] {
        iperf3(&linux[0], &linux[1], line);
    }
    let configuration = routers[0].cli("show configuration").unwrap();
    assert!(configuration.contains("lcp create memif1/0 host-if e0") && configuration.contains(" tun"), "{configuration}");
    routers.iter().for_each(assert_buffers_are_back);
    routers[0].cli("lcp delete memif1/0").unwrap();
    eventually("the device goes with the pair", BOUND, || !linux[0].run("ip link show e0", BOUND).unwrap().success());
}
