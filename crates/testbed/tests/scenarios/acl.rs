//! Access lists among kernel hosts: who may begin to speak, what comes back, and what changes while packets flow.

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{BOUND, assert_buffers_are_back, errors, eventually, iperf3, lost_pings, ping_in_turn, traceroute, workers};
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario, TwoHosts, TwoHostsOptions};

/// Why packets are dropped that nothing permits.
const NO_RULE: &str = "ACL deny packets in no rule";
/// Neighbour discovery, which IPv6 needs.
const ND: &str = "permit src ::/0 proto icmp6 sport 133-136";
/// Who may begin to speak.
const INSIDE: &str =
    "permit+reflect src 10.0.1.0/24, permit+reflect src 2001:db8:1::/64, permit src ::/0 proto icmp6 sport 133-136";

/// List 0: what may leave. List 1: what may come besides answers.
fn lists() -> String {
    format!("set acl-plugin acl {INSIDE} tag from-inside\nset acl-plugin acl {ND} tag from-outside\n")
}

/// Host a is inside, host b outside; what crosses the interface to b is checked there.
fn firewall(workers: u32) -> (TwoHosts, Router) {
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    let router = scene.start_router(workers).expect("router");
    reach(&scene);
    let uses = "set acl-plugin interface host-r1 output acl 0\nset acl-plugin interface host-r1 input acl 1";
    router.script(&format!("{}{uses}", lists())).expect("access lists");
    (scene, router)
}

/// Both hosts have spoken with one another: neighbours are known.
fn reach(scene: &TwoHosts) {
    for (host, to) in [(&scene.a, TwoHosts::B4), (&scene.a, TwoHosts::B6), (&scene.b, TwoHosts::A4), (&scene.b, TwoHosts::A6)] {
        eventually(&format!("an answer from {to}"), BOUND, || host.pings(to, 1).expect("ping"));
    }
}

/// What a program of Python prints.
fn python(host: &Host, program: &str) -> String {
    host.run_args(&["python3", "-c", program], BOUND).expect("python3").expect(program)
}

/// Sends a datagram to a port that nobody has, and prints what comes of it.
fn to_a_closed_port(host: &Host, to: &str) -> String {
    let family = if to.contains(':') { "AF_INET6" } else { "AF_INET" };
    let program = format!(
        "import socket\ns=socket.socket(socket.{family},socket.SOCK_DGRAM)\ns.settimeout(60)\ns.connect(('{to}',9))\n\
         s.send(b'x')\ntry:\n  s.recv(9)\nexcept ConnectionRefusedError:\n  print('refused')\n"
    );
    python(host, &program)
}

/// Whether a connection of TCP comes about within so many seconds.
fn connects_within(host: &Host, to: &str, port: u16, seconds: u32) -> bool {
    let connect = format!("socket.create_connection(('{to}',{port}),{seconds}).close()");
    let program = format!("import socket\ntry:\n  {connect}\n  print('yes')\nexcept OSError:\n  print('no')\n");
    python(host, &program) == "yes\n"
}

/// Whether one comes about where it may, however long a busy machine takes.
fn connects(host: &Host, to: &str, port: u16) -> bool {
    connects_within(host, to, port, 60)
}

/// Whether none comes about: segments are sent again after one second.
fn is_shut_out(host: &Host, to: &str, port: u16) -> bool {
    !connects_within(host, to, port, 2)
}

fn serve(host: &Host, port: u16) -> Guard {
    let server = host.background(&format!("iperf3 --server --port {port}")).expect("server");
    assert!(host.wait_for_listener(port, BOUND).expect("listener"));
    server
}

fn nodes(to: &str) -> [&'static str; 2] {
    if to.contains(':') {
        ["acl-plugin-in-ip6-fa", "acl-plugin-out-ip6-fa"]
    } else {
        ["acl-plugin-in-ip4-fa", "acl-plugin-out-ip4-fa"]
    }
}

#[test]
fn hosts_inside_speak_with_the_outside_and_nobody_gets_in() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "python3", "traceroute"]) else { return };
    for workers in workers() {
        let (scene, router) = firewall(*workers);
        router.cli("set ip icmp-rate-limit total unlimited").expect("no limit");
        for (inside, outside, hop) in [(TwoHosts::A4, TwoHosts::B4, "10.0.1.1"), (TwoHosts::A6, TwoHosts::B6, "2001:db8:1::1")] {
            let [input, output] = nodes(outside);
            assert!(scene.a.reaches(outside, 3).unwrap(), "ping {outside}");
            for options in ["--bytes 8M", "--bytes 8M --reverse", "--bytes 1M --udp --bitrate 50M --reverse"] {
                iperf3(&scene.a, &scene.b, &format!("--client {outside} {options}"));
            }
            // What comes is an ICMP error about a packet of a session.
            assert_eq!(to_a_closed_port(&scene.a, outside), "refused\n", "{outside}");
            assert_eq!(traceroute(&scene.a, "", outside), [hop, outside]);
            assert!(errors(&router, output, "new sessions added") > 0);
            assert!(errors(&router, input, "existing session packets") > 1000);
            let shown = router.cli("show acl-plugin sessions verbose").unwrap();
            // Packets of this interface come in from outside: that side is first.
            let with = |address: &str| if address.contains(':') { format!("[{address}]:") } else { format!("{address}:") };
            let line = shown.lines().find(|line| line.contains(&with(outside)) && line.contains(" proto 6, "));
            assert!(line.is_some_and(|line| line.contains("host-r1: ") && line.contains(&with(inside))), "{shown}");

            let _server = serve(&scene.a, 5300);
            let before = errors(&router, input, NO_RULE);
            assert!(!scene.b.pings(inside, 3).unwrap(), "{inside} answers");
            assert!(is_shut_out(&scene.b, inside, 5300), "{inside} can be connected to");
            eventually("each is counted", BOUND, || errors(&router, input, NO_RULE) - before >= 4);
        }
        assert_buffers_are_back(&router);
    }
}

#[test]
fn a_list_without_sessions_filters_by_port_and_counts_by_rule() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "python3"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    let router = scene.start_router(1).expect("router");
    reach(&scene);
    router
        .script(
            "set acl-plugin acl deny proto tcp dport 5300-5301, permit proto tcp dport 5302, permit proto icmp sport 8 dport 0 tag in\n\
             set acl-plugin interface host-r1 input acl 0",
        )
        .expect("access lists");
    let _servers = [5300, 5302].map(|port| serve(&scene.a, port));
    assert!(is_shut_out(&scene.b, TwoHosts::A4, 5300));
    let denied = || errors(&router, "acl-plugin-in-ip4-fa", "ACL deny packets");
    eventually("it is counted", BOUND, || denied() > 0);
    assert!(connects(&scene.b, TwoHosts::A4, 5302));
    // An echo request passes, and an answer does not: nothing stands here for the other direction.
    assert!(scene.b.reaches(TwoHosts::A4, 1).unwrap());
    assert!(!scene.a.pings(TwoHosts::B4, 1).unwrap());
    // Rules of IPv4 alone are for IPv4; of IPv6 then nothing comes in.
    assert!(!scene.b.pings(TwoHosts::A6, 1).unwrap());
    eventually("that too is counted", BOUND, || errors(&router, "acl-plugin-in-ip6-fa", NO_RULE) > 0);
    let shown = router.cli("show acl-plugin acl index 0").unwrap();
    for (rule, text) in ["deny", "permit", "permit"].iter().enumerate() {
        let line = shown.lines().find(|line| line.trim_start().starts_with(&format!("{rule}: ipv4 {text} "))).expect(&shown);
        assert!(line.contains(" packets, "), "{shown}");
    }
    assert!(router.cli("delete acl-plugin acl index 0").unwrap_err().contains("in use"));
    router.cli("set acl-plugin interface host-r1 input acl 0 del").unwrap();
    assert!(connects(&scene.b, TwoHosts::A4, 5300));
    assert!(scene.a.reaches(TwoHosts::B4, 1).unwrap());
    router.cli("delete acl-plugin acl index 0").unwrap();
    assert_buffers_are_back(&router);
}

#[test]
fn neighbour_discovery_needs_a_rule() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, router) = firewall(1);
    // A neighbour is asked for anew: the question leaves, and its answer is let in by list 1.
    let forget = || {
        router.cli("ip neighbor host-r1 flush").expect("neighbours");
        scene.b.flush_neighbours("eth0").expect("neighbours");
    };
    forget();
    assert!(scene.a.reaches(TwoHosts::B6, 3).unwrap());
    // What the router itself asks and answers is not checked on its way out.
    router.cli("set acl-plugin acl index 0 permit+reflect src 10.0.1.0/24, permit+reflect src 2001:db8:1::/64").unwrap();
    forget();
    assert!(scene.a.reaches(TwoHosts::B6, 3).unwrap());
    router.cli("set acl-plugin acl index 1 deny src ::/0 tag nothing").unwrap();
    forget();
    assert!(!scene.a.pings(TwoHosts::B6, 2).unwrap(), "the answer of the neighbour does not come in");
    // ARP is no IP.
    assert!(scene.a.reaches(TwoHosts::B4, 3).unwrap());
    router.cli(&format!("set acl-plugin acl index 1 {ND}")).unwrap();
    eventually("the neighbour is found", BOUND, || scene.a.pings(TwoHosts::B6, 1).unwrap());
}

/// Two stations of one bridge domain: host n has address 192.0.2.n behind port r(n-1).
fn bridged() -> (Vec<Host>, Router, Host) {
    let (hosts, middle) = ([1, 2].map(|n| Host::new(&format!("h{n}")).unwrap()), Host::new("router").unwrap());
    for (n, host) in (1..).zip(&hosts) {
        let port = format!("r{}", n - 1);
        host.veth("eth0", &middle, &port, &LinkOptions::default()).unwrap();
        middle.disable_ipv6(&port).unwrap();
        host.address("eth0", &format!("192.0.2.{n}/24")).unwrap();
        host.address("eth0", &format!("2001:db8::{n}/64")).unwrap();
    }
    let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
    for n in 0..2 {
        let lines =
            format!("create host-interface name r{n}\nset interface state host-r{n} up\nset interface l2 bridge host-r{n} 10");
        router.script(&lines).expect("port");
    }
    (hosts.into(), router, middle)
}

#[test]
fn frames_of_a_bridge_domain_are_filtered_by_the_same_lists() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "python3"]) else { return };
    let (hosts, router, _middle) = bridged();
    let [one, two] = &hosts[..] else { unreachable!() };
    for to in ["192.0.2.1", "2001:db8::1"] {
        assert!(two.reaches(to, 3).unwrap(), "{to}");
    }
    router
        .script(&format!(
            "set acl-plugin acl permit+reflect src 192.0.2.1/32, permit+reflect src 2001:db8::1/128, {ND} tag from-one\n\
             set acl-plugin acl {ND} tag to-one\n\
             set acl-plugin interface host-r0 input acl 0\nset acl-plugin interface host-r0 output acl 1"
        ))
        .expect("access lists");
    let _server = serve(one, 5300);
    for (to, from) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        assert!(one.reaches(to, 3).unwrap(), "{to}");
        for options in ["--bytes 8M", "--bytes 8M --reverse"] {
            iperf3(one, two, &format!("--client {to} {options}"));
        }
        assert_eq!(to_a_closed_port(one, to), "refused\n", "{to}");
        let before = errors(&router, "acl-plugin-out-l2", NO_RULE);
        assert!(!two.pings(from, 2).unwrap(), "{from} answers");
        assert!(is_shut_out(two, from, 5300), "{from} can be connected to");
        eventually("each is counted", BOUND, || errors(&router, "acl-plugin-out-l2", NO_RULE) - before >= 3);
    }
    assert_buffers_are_back(&router);
}

#[test]
fn a_frame_whose_ethertype_is_not_on_the_list_is_dropped() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (hosts, router, _middle) = bridged();
    let [one, two] = &hosts[..] else { unreachable!() };
    assert!(one.reaches("192.0.2.2", 1).unwrap());
    let asks_anew = || {
        one.flush_neighbours("eth0").unwrap();
        two.flush_neighbours("eth0").unwrap();
        one.pings("192.0.2.2", 1).unwrap()
    };
    router.cli("set acl-plugin ethertype host-r0 input type 0x88cc").unwrap();
    assert!(!asks_anew(), "ARP passes");
    eventually("frames of ARP are counted", BOUND, || errors(&router, "acl-plugin-in-l2", "ACL deny frames by EtherType") > 0);
    // IP is on no such list.
    assert!(one.reaches("2001:db8::2", 1).unwrap());
    router.cli("set acl-plugin ethertype host-r0 input type 0x88cc type 0x0806").unwrap();
    eventually("ARP is on the list", BOUND, asks_anew);
    router.cli("set acl-plugin ethertype host-r0 input").unwrap();
    eventually("there is no list", BOUND, asks_anew);
    assert_buffers_are_back(&router);
}

#[test]
fn lists_change_and_lose_no_packet_that_both_versions_permit() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    for (action, reclassify) in [("permit", 0), ("permit+reflect", 0), ("permit+reflect", 1)] {
        let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
        let router = scene.start_router(1).expect("router");
        reach(&scene);
        // Some rules in front that these packets are not in: others in each version.
        let rules = |version: u32| {
            let others = (0..version % 3 * 40).map(|n| format!("deny src 198.51.{}.{n}/32 proto tcp dport 80, ", version % 250));
            format!("{}{action} src 10.0.0.0/16 proto icmp", others.collect::<String>())
        };
        let set = |version| {
            router.cli(&format!("set acl-plugin acl index 0 {} tag v{version}", rules(version))).expect("another version");
        };
        set(0);
        let uses = format!(
            "set acl-plugin reclassify-sessions {reclassify}\n\
             set acl-plugin interface host-r0 input acl 0\nset acl-plugin interface host-r1 output acl 0\n\
             set acl-plugin interface host-r1 input acl 0\nset acl-plugin interface host-r0 output acl 0"
        );
        router.script(&uses).expect("access lists");
        let done = AtomicBool::new(false);
        let rounds = std::thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                let mut rounds = 0;
                while !done.load(Relaxed) || rounds == 0 {
                    let lost = lost_pings(&scene.a, 300, &format!("-i 0.002 {}", TwoHosts::B4));
                    assert_eq!(lost, Vec::<u64>::new(), "{action}, reclassify {reclassify}");
                    rounds += 1;
                }
                rounds
            });
            for version in 1..=100 {
                set(version);
                if pinging.is_finished() {
                    break;
                }
            }
            done.store(true, Relaxed);
            pinging.join().unwrap()
        });
        assert!(rounds > 0);
        for node in nodes(TwoHosts::B4) {
            assert_eq!(errors(&router, node, "ACL deny packets"), 0, "{action}, reclassify {reclassify}");
        }
        assert_buffers_are_back(&router);
    }
}

#[test]
fn a_list_that_no_longer_lets_a_session_begin_ends_it_where_sessions_are_looked_at_again() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, router) = firewall(1);
    // One identifier, so one session.
    let pings = || scene.a.run(&format!("ping -n -q -e 77 -c 1 -W 1 {}", TwoHosts::B4), BOUND).unwrap().success();
    eventually("a session begins", BOUND, pings);
    router.cli("set acl-plugin acl index 0 deny src 10.0.1.2/32, permit+reflect src 10.0.1.0/24").unwrap();
    eventually("it goes on", BOUND, pings);
    router.cli("set acl-plugin reclassify-sessions 1").unwrap();
    assert!(!pings(), "it is looked at again");
    eventually("by its rule", BOUND, || errors(&router, "acl-plugin-out-ip4-fa", "ACL deny packets") > 0);
    router.cli(&format!("set acl-plugin acl index 0 {INSIDE}")).unwrap();
    eventually("another one begins", BOUND, pings);
}

#[test]
fn sessions_that_begin_on_one_worker_are_known_on_the_others() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    let (scene, router) = firewall(2);
    for (inside, outside) in [(0, 1), (1, 0), (1, 1)] {
        router
            .script(&format!(
                "set interface rx-placement host-r0 worker {inside}\nset interface rx-placement host-r1 worker {outside}"
            ))
            .expect("placement");
        for to in [TwoHosts::B4, TwoHosts::B6] {
            ping_in_turn(&scene.a, 5, to);
            for options in ["--bytes 8M", "--bytes 8M --reverse"] {
                iperf3(&scene.a, &scene.b, &format!("--client {to} {options}"));
            }
            assert_eq!(errors(&router, nodes(to)[0], NO_RULE), 0, "{to}");
        }
    }
    assert_buffers_are_back(&router);
}

/// Host b: who writes to its port 7000 gets datagrams from it, one after the other.
fn talker(host: &Host) -> Guard {
    let program = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('0.0.0.0',7000))\n\
        _,who=s.recvfrom(9)\ns.setblocking(False)\nwhile True:\n  time.sleep(0.02)\n  try:\n    s.sendto(b'x',who)\n  except OSError:\n    pass\n";
    let mut command = host.command("python3");
    command.args(["-c", program]);
    host.spawn(command).expect("python3")
}

/// Host a: writes to that port, or does not, and prints whether something comes.
fn hears(host: &Host, asks: bool) -> bool {
    let to = TwoHosts::B4;
    let (ask, wait) = if asks { (format!("s.sendto(b'x',('{to}',7000))"), 60) } else { ("pass".to_owned(), 1) };
    let program = format!(
        "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('0.0.0.0',6000))\ns.settimeout({wait})\n{ask}\n\
         try:\n  for _ in range(5): s.recvfrom(9)\n  print('yes')\nexcept TimeoutError:\n  print('no')\n"
    );
    python(host, &program) == "yes\n"
}

#[test]
fn clearing_sessions_cuts_what_comes_back_until_somebody_inside_speaks_again() {
    let Some(_scenario) = Scenario::begin(&["ping", "python3"]) else { return };
    let (scene, router) = firewall(1);
    let _talker = talker(&scene.b);
    // It may not listen yet when the first datagram comes.
    eventually("host b talks", BOUND, || {
        let program = format!(
            "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('0.0.0.0',6000))\ns.settimeout(1)\n\
             s.sendto(b'x',('{}',7000))\ntry:\n  s.recvfrom(9)\n  print('yes')\nexcept OSError:\n  print('no')\n",
            TwoHosts::B4
        );
        python(&scene.a, &program) == "yes\n"
    });
    let denied = || errors(&router, "acl-plugin-in-ip4-fa", NO_RULE);
    for clear in ["clear acl-plugin sessions", "clear acl-plugin sessions host-r1"] {
        eventually("it comes without another word", BOUND, || hears(&scene.a, false));
        let before = denied();
        router.cli(clear).unwrap();
        eventually("it is dropped", BOUND, || denied() - before > 10);
        assert!(!hears(&scene.a, false), "{clear}");
        assert!(router.cli("show acl-plugin sessions").unwrap().contains("Sessions active: 0 of 500000"));
        assert!(hears(&scene.a, true), "a datagram begins a session");
    }
}

#[test]
fn sessions_end_after_their_time() {
    let Some(_scenario) = Scenario::begin(&["ping", "python3"]) else { return };
    let (scene, router) = firewall(1);
    router.cli("set acl-plugin session timeout udp idle 1").unwrap();
    assert!(scene.a.reaches(TwoHosts::B4, 1).unwrap());
    let shown = || router.cli("show acl-plugin sessions").unwrap();
    eventually("none is active", BOUND, || shown().contains("Sessions active: 0 of 500000"));
    eventually("they are removed", BOUND, || shown().lines().next().is_some_and(|line| line.ends_with("= 0")));
    assert!(scene.a.reaches(TwoHosts::B4, 1).unwrap());
}

#[test]
fn access_lists_last_and_a_successor_has_them_before_it_forwards() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "python3"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).expect("two hosts");
    let state = std::env::temp_dir().join(format!("quiver-acl-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&state);
    let conf = format!("unix {{ state-dir {} }}", state.display());
    let router = scene.start_router_with(1, &conf, TwoHosts::COMMANDS).expect("router");
    let more = "set acl-plugin acl index 7 deny src 192.0.2.0/24 dst 198.51.100.0/25 proto tcp sport 1-9 dport 80 tcpflags 2 mask 18, \
        deny src 2001:db8:9::/48 proto 89 tag \"two words\"\n\
        set acl-plugin interface host-r1 output acl 7\nset acl-plugin interface host-r1 output acl 0\n\
        set acl-plugin interface host-r1 input acl 1\n\
        set acl-plugin ethertype host-r0 output type 0x0806 type 0x88cc\nset acl-plugin session timeout tcp idle 3600\n\
        set acl-plugin session table max-entries 10000\nset acl-plugin reclassify-sessions 1\n\
        set acl-plugin l4-match-nonfirst-fragment 0\nset acl-plugin counters 0";
    router.script(&format!("{}{more}", lists())).expect("access lists");
    let shown = |router: &Router| {
        let show = |line: &str| router.cli(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let settings = show("show acl-plugin settings");
        let settings: Vec<&str> = settings.lines().filter(|line| !line.starts_with("Memory")).collect();
        [show("show acl-plugin acl"), show("show acl-plugin interface"), settings.join("\n"), show("show configuration")].concat()
    };
    let before = shown(&router);
    assert!(before.contains("output acl(s): 7, 0\n"), "{before}");
    router.stop().expect("stopped");
    let mut router = Router::start(&scene.middle, &format!("cpu {{ workers 1 }}\n{conf}")).expect("router");
    eventually("all is there again", BOUND, || shown(&router) == before);
    let filters = |scene: &TwoHosts| {
        eventually("from inside", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap() && scene.a.pings(TwoHosts::B6, 1).unwrap());
        for to in [TwoHosts::A4, TwoHosts::A6] {
            assert!(!scene.b.pings(to, 1).unwrap(), "{to} answers");
        }
    };
    filters(&scene);
    // A connection goes on: its packets from inside begin a session of the new process.
    let _server = serve(&scene.b, 5201);
    let mut command = scene.a.command("iperf3");
    command.args(["--client", TwoHosts::B4, "--time", "600", "--bitrate", "1M"]).stdout(std::process::Stdio::null());
    let mut client = scene.a.spawn(command).expect("iperf3");
    eventually("a connection", BOUND, || router.cli("show acl-plugin sessions verbose").unwrap().contains(":5201 <-> "));
    router.take_over(&scene.middle, None).expect("a successor");
    assert_eq!(shown(&router), before);
    eventually("the connection goes on", BOUND, || router.cli("show acl-plugin sessions verbose").unwrap().contains(":5201 <-> "));
    let existing = || errors(&router, "acl-plugin-in-ip4-fa", "existing session packets");
    let seen = existing();
    eventually("in both directions", BOUND, || existing() > seen + 10);
    assert!(client.is_running());
    filters(&scene);
    drop(client);
    router.stop().expect("stopped");
    std::fs::remove_dir_all(&state).expect("removed");
}
