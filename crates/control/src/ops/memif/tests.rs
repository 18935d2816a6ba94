use quiver_command::config::Source;
use quiver_graph::stats::CombinedCounters;
use quiver_net::testing::Harness;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::vlan::Tci;

use crate::ops::testing::{error, run};
use crate::startup::{StartupConfig, schema};

/// A path in a folder of this test's own.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quiver-memif-ops-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn socket(&self) -> String {
        self.0.join("m.sock").to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the control channels until `done`, or for two minutes.
fn until(ends: &mut [&mut Harness], done: impl Fn(&[&mut Harness]) -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !done(ends) && std::time::Instant::now() < deadline {
        ends.iter_mut().for_each(|h| super::run(&mut h.router));
    }
}

#[test]
fn mistakes_are_one_line_and_leave_nothing() {
    let folder = Folder::new("mistakes");
    let mut h = Harness::new();
    run(&mut h.router, &format!("create memif socket id 1 filename {}", folder.socket()));
    for (line, expected) in [
        ("create memif socket", "id <n>"),
        ("create memif socket id 2", "filename <path>"),
        ("create memif socket id 0 filename /tmp/x", "memif socket 0 is the router's own"),
        ("create memif socket id 1 filename /tmp/x", "memif socket 1 exists already, with file"),
        (&format!("create memif socket id 2 filename {}", folder.socket()), "is the file of memif socket 1 already"),
        (&format!("create memif socket id 2 filename /{}", "x".repeat(200)), "is not a path that a socket can have"),
        ("create memif socket id 2 filename /tmp/x max-memory 1k", "invalid max-memory 1024: expected 64K to 16G"),
        ("create memif socket id 2 filename /tmp/x max-memory much", "not a size such as 2048, 64k, 16M or 1G"),
        ("create memif socket id 2 filename /tmp/x max-regions 257", "invalid max-regions 257: expected 1 to 256"),
        ("create memif socket id 2 colour red", "unknown input `colour'"),
        (
            "create interface memif socket-id 9",
            "memif socket 9 does not exist; `create memif socket id 9 filename <path>' makes it",
        ),
        ("create interface memif ring-size 1000", "invalid ring-size 1000: expected a power of two from 1 to 16384"),
        ("create interface memif ring-size 32768", "invalid ring-size 32768: expected a power of two from 1 to 16384"),
        ("create interface memif ring-size 0", "invalid ring-size 0: expected a power of two from 1 to 16384"),
        ("create interface memif buffer-size 63", "invalid buffer-size 63: expected 64 to 65535"),
        ("create interface memif rx-queues 256", "invalid rx-queues 256: expected 1 to 255"),
        ("create interface memif tx-queues 0", "invalid tx-queues 0: expected 1 to 255"),
        ("create interface memif ring-size 16384 buffer-size 65535 rx-queues 255", "4 GB"),
        (&format!("create interface memif secret {}", "s".repeat(25)), "a secret of 25 bytes is too long: expected at most 24"),
        ("create interface memif hw-addr 01:00:00:00:00:01", "not a unicast MAC address"),
        ("create interface memif mode ethernet", "expected `ip'"),
        ("create interface memif colour red", "unknown input `colour"),
        ("delete interface memif memif0/0", "unknown interface `memif0/0'"),
        ("delete interface memif local0", "local0 is not a memif interface"),
        ("delete memif socket id 0", "memif socket 0 is the router's own"),
        ("delete memif socket id 7", "memif socket 7 does not exist"),
        ("show memif local0", "local0 is not a memif interface"),
    ] {
        let text = error(&mut h.router, line);
        assert!(text.contains(expected) && !text.contains('\n'), "{line}: {text}");
    }
    assert_eq!(h.router.interfaces.iter().count(), 1);
    run(&mut h.router, "delete memif socket id 1");
}

#[test]
fn what_is_made_is_shown_and_can_be_removed() {
    let folder = Folder::new("shown");
    let mut h = Harness::new();
    run(&mut h.router, &format!("create memif socket id 1 filename {}", folder.socket()));
    assert_eq!(run(&mut h.router, "create interface memif id 3 socket-id 1 master"), "");
    assert_eq!(run(&mut h.router, "show memif memif1/3"), "interface memif1/3\n  socket-id 1 id 3 mode ethernet\n  flags \n");
    let again = error(&mut h.router, "create interface memif id 3 socket-id 1 master");
    assert!(again.contains("interface `memif1/3' exists already"), "{again}");
    let other_role = error(&mut h.router, "create interface memif id 4 socket-id 1");
    assert!(other_role.contains("memif socket 1 is used by server (master) interfaces"), "{other_role}");
    let busy = error(&mut h.router, "delete memif socket id 1");
    assert!(busy.contains("memif socket 1 is in use; delete its interfaces first"), "{busy}");
    assert!(std::path::Path::new(&folder.socket()).exists(), "a master listens");
    let sockets = run(&mut h.router, "show memif");
    assert!(
        sockets.contains(&format!(
            "  id  listener    filename\n  0   no          /run/quiver/memif.sock\n  1   yes         {}\n",
            folder.socket()
        )),
        "{sockets}"
    );
    assert!(run(&mut h.router, "show hardware-interfaces memif1/3").contains("MEMIF interface, master, socket "));
    run(&mut h.router, "delete interface memif memif1/3");
    assert!(!std::path::Path::new(&folder.socket()).exists(), "nobody listens any more");
    run(&mut h.router, "delete memif socket id 1");
    assert!(run(&mut h.router, "show memif").starts_with("sockets\n"));
    assert_eq!(h.router.interfaces.iter().count(), 1);
}

#[test]
fn whether_lines_are_demoted_is_shown() {
    use super::show::MemifList;
    use quiver_command::operation::{Text, View};
    let mut h = Harness::new();
    run(&mut h.router, "create memif socket id 1 filename /nowhere/demoted");
    assert!(run(&mut h.router, "show memif").contains("\n  lines written for peers are demoted: "));
    for (demotes, word) in [(Some(false), "no"), (Some(true), "yes"), (None, "if the processor can, which it does not say")] {
        let socket = super::show::SocketRow {
            id: 0,
            listener: false,
            filename: "/nowhere".to_owned(),
            max_memory: 1 << 28,
            max_regions: 16,
            unsealed: false,
            paused: None,
            unfinished: 0,
        };
        let list = MemifList { sockets: vec![socket], interfaces: Vec::new(), demotes };
        let mut text = String::new();
        list.text(&mut text, &View::TEXT);
        assert!(text.contains(&format!("\n  lines written for peers are demoted: {word}\n")), "{text}");
        assert_eq!(serde_json::to_value(&list).unwrap()["demotes"], serde_json::json!(demotes));
    }
}

#[test]
fn what_a_peer_may_have_mapped_is_a_setting_of_the_socket() {
    let mut h = Harness::new();
    run(&mut h.router, "create memif socket id 1 filename /nowhere/limits max-memory 1G max-regions 40");
    let text = run(&mut h.router, "show memif");
    assert!(text.contains("/nowhere/limits\n      max-memory 1073741824 max-regions 40\n"), "{text}");
    let memif = super::memif(&mut h.router).unwrap();
    let limits: Vec<_> = memif.sockets().iter().map(|s| (s.limits.memory, s.limits.regions)).collect();
    assert_eq!(limits, [(256 << 20, 16), (1 << 30, 40)]);
    // And of the startup configuration, for sockets of which nothing is said.
    let read = |text: &str| StartupConfig::read(&schema(), Source::file("startup.conf", text));
    let startup = read("memif {\n max-memory 64M\n max-regions 4\n}\n").unwrap();
    assert_eq!((startup.memif.memory, startup.memif.regions), (64 << 20, 4));
    for wrong in ["max-memory 1", "max-memory 17G", "max-regions 0", "max-regions 300"] {
        assert!(read(&format!("memif {{\n {wrong}\n}}\n")).is_err(), "{wrong}");
    }
}

#[test]
fn two_interfaces_of_one_router_connect_and_lose_one_another() {
    let folder = Folder::new("connect");
    let mut h = Harness::new();
    let socket = folder.socket();
    run(&mut h.router, &format!("create memif socket id 1 filename {socket}"));
    run(&mut h.router, "create interface memif id 0 socket-id 1 master");
    // The other end belongs to a second router, as one socket has one role.
    let mut other = Harness::new();
    run(&mut other.router, &format!("create memif socket id 1 filename {socket}"));
    run(&mut other.router, "create interface memif id 0 socket-id 1 slave ring-size 64 rx-queues 2 tx-queues 2");
    run(&mut h.router, "set interface state memif1/0 up");
    run(&mut other.router, "set interface state memif1/0 up");
    let link = |h: &Harness| h.router.interfaces.by_name("memif1/0").unwrap().link.up;
    until(&mut [&mut h, &mut other], |ends| ends.iter().all(|h| link(h)));
    assert!(link(&h) && link(&other), "{}", run(&mut other.router, "show memif"));
    let text = run(&mut other.router, "show memif memif1/0");
    for part in ["flags admin-up slave connected\n", "num-s2m-rings 2 num-m2s-rings 2 buffer-size 2048 num-regions 1\n"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains("    master-to-slave ring 1:\n      region 0 offset "), "{text}");
    assert!(text.contains("remote-interface \"memif1/0\"\n") && text.contains("remote-name \"quiver "), "{text}");
    let descriptors = run(&mut h.router, "show memif memif1/0 descriptors");
    assert_eq!(descriptors.lines().filter(|l| l.contains("0x0000  2048 ")).count(), 4 * 64, "{descriptors}");
    run(&mut h.router, "set interface state memif1/0 down");
    until(&mut [&mut h, &mut other], |ends| !ends.iter().any(|h| link(h)));
    assert!(!link(&h) && !link(&other));
    assert!(run(&mut other.router, "show memif").contains("last disconnect: peer says: interface is down\n"));
}

#[test]
fn ip_mode_carries_packets_without_link_headers_and_asks_for_no_neighbours() {
    use quiver_net::testing::{host_mac, router_mac};
    let folder = Folder::new("ip");
    let socket = folder.socket();
    let mut routers = [Harness::new(), Harness::new()];
    for (n, h) in routers.iter_mut().enumerate() {
        let x = h.interface(n as u8);
        assert_eq!(h.router.interfaces.name(x), format!("x{n}"));
        let role = if n == 0 { "master" } else { "slave" };
        for line in [
            format!("create memif socket id 1 filename {socket}"),
            format!("create interface memif id 0 socket-id 1 {role} mode ip"),
            format!("set interface ip address x{n} 10.{n}.0.1/24"),
            format!("set interface ip address x{n} 2001:db8:{n}::1/64"),
            format!("set interface ip address memif1/0 192.0.2.{}/30", n + 1),
            "enable ip6 interface memif1/0".to_owned(),
            "set interface state memif1/0 up".to_owned(),
            format!("set ip neighbor x{n} 10.{n}.0.2 {}", host_mac(n as u8)),
            format!("set ip neighbor x{n} 2001:db8:{n}::2 {}", host_mac(n as u8)),
            // By next hop in one direction, by the interface alone in the other.
            if n == 0 { "ip route add 10.1.0.0/24 via 192.0.2.2 memif1/0" } else { "ip route add 10.0.0.0/24 via memif1/0" }
                .to_owned(),
            format!("ip route add 2001:db8:{}::/64 via memif1/0", 1 - n),
        ] {
            run(&mut h.router, &line);
        }
    }
    until(&mut routers.iter_mut().collect::<Vec<_>>(), |ends| {
        ends.iter().all(|h| h.router.interfaces.by_name("memif1/0").is_some_and(|i| i.link.up))
    });
    assert!(routers.iter().all(|h| h.router.interfaces.by_name("memif1/0").unwrap().link.up));
    routers.iter_mut().for_each(|h| drop(h.run()));
    for (from, to) in [(0_u8, 1_u8), (1, 0)] {
        let frame = |src, dst, six, ttl| {
            let packet = Packet::ethernet(src, dst);
            let packet = match six {
                false => packet.ipv4([10, from, 0, 2], [10, to, 0, 2]),
                true => packet.ipv6([0x2001, 0xdb8, from.into(), 0, 0, 0, 0, 2], [0x2001, 0xdb8, to.into(), 0, 0, 0, 0, 2]),
            };
            packet.ttl(ttl).udp(1000, 2000).payload(b"through").build()
        };
        for six in [false, true] {
            let [x_from, x_to] =
                [from, to].map(|n| routers[usize::from(n)].router.interfaces.by_name(&format!("x{n}")).unwrap().index);
            let sent = frame(host_mac(from), router_mac(from), six, 64);
            assert_eq!(routers[usize::from(from)].exchange(x_from, &sent), [], "{:?}", routers[usize::from(from)].counts());
            let expected = frame(router_mac(to), host_mac(to), six, 62);
            let got = routers[usize::from(to)].run();
            assert_eq!(got, [(x_to, expected)], "{:?}", routers[usize::from(to)].counts());
        }
    }
    // The link itself is a connected network: the other end answers, and nobody was asked for a MAC address.
    let h = &mut routers[0];
    let x = h.router.interfaces.by_name("x0").unwrap().index;
    let to_peer = Packet::ethernet(host_mac(0), router_mac(0))
        .ipv4([10, 0, 0, 2], [192, 0, 2, 2])
        .ttl(64)
        .echo_request(1, 1)
        .payload(b"?")
        .build();
    assert_eq!(h.exchange(x, &to_peer), []);
    routers[1].run();
    let answer = routers[0].run();
    assert_eq!(answer.len(), 1, "{:?} {:?}", routers[0].counts(), routers[1].counts());
    assert_eq!((answer[0].1[23], answer[0].1[34]), (1, 0), "ICMP, echo reply");
    for (n, h) in routers.iter_mut().enumerate() {
        let expected = [
            (format!("set interface mac address memif1/0 02:00:00:00:00:0{n}"), "carries IP packets, without MAC addresses"),
            (format!("set interface l2 xconnect memif1/0 x{n}"), "carries IP packets, not frames"),
        ];
        for (line, text) in expected {
            let error = error(&mut h.router, &line);
            assert!(error.contains(text), "{line}: {error}");
        }
        run(&mut h.router, "delete interface memif memif1/0");
    }
}

#[test]
fn zero_copy_is_shown_and_its_pool_comes_and_goes() {
    let folder = Folder::new("lender");
    let mut h = Harness::new();
    run(&mut h.router, &format!("create memif socket id 1 filename {} zero-copy-buffers 4096", folder.socket()));
    for (line, expected) in [
        ("create interface memif id 0 socket-id 1 master zero-copy", "zero-copy is for slaves"),
        ("create interface memif id 0 socket-id 1 zero-copy buffer-size 4096", "packets lie in the router's buffers"),
        ("create interface memif id 0 socket-id 1 zero-copy ring-size 2048", "has 4096 buffers, 6144 are needed"),
    ] {
        let text = error(&mut h.router, line);
        assert!(text.contains(expected) && !text.contains('\n'), "{line}: {text}");
    }
    assert!(!run(&mut h.router, "show buffers").contains("shared"));
    run(&mut h.router, "create interface memif id 0 socket-id 1 zero-copy");
    assert!(run(&mut h.router, "show memif memif1/0").contains("flags slave zero-copy\n"));
    let pools = run(&mut h.router, "show buffers");
    assert!(pools.lines().any(|l| l.starts_with("shared-0 ")), "{pools}");
    let full = error(&mut h.router, "create interface memif id 1 socket-id 1 zero-copy");
    assert!(full.contains("has 4096 buffers, 6144 are needed"), "{full}");
    run(&mut h.router, "delete interface memif memif1/0");
    assert!(!run(&mut h.router, "show buffers").contains("shared"));
}

/// Frames of every kind that a router looks at closely, some of them damaged.
fn varied_frames(seed: &mut u64, dst: MacAddr) -> Vec<Vec<u8>> {
    let mut random = || {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    };
    let src = MacAddr([2, 0, 0, 0, 0, 9]);
    let (near, far, own, behind_tag) = ([192, 0, 2, 1], [198, 51, 100, 9], [192, 0, 2, 2], [203, 0, 113, 9]);
    let near6 = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
    let (far6, own6) = ([0x2001, 0xdb8, 9, 0, 0, 0, 0, 9], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
    let mut frames = Vec::new();
    for k in 0..32_u8 {
        let ethernet = || Packet::ethernet(src, dst);
        let payload = vec![k; 10 + usize::from(k) * 40];
        let ttl = [64, 64, 1, 2][usize::from(k) % 4];
        let frame = match k % 8 {
            0 => ethernet().ipv4(near, far).ttl(ttl).udp(1000, 2000).payload(&payload).build(),
            1 => ethernet().ipv6(near6, far6).ttl(ttl).udp(1000, 2000).payload(&payload).build(),
            2 => ethernet().ipv4(near, own).ttl(64).echo_request(1, k.into()).payload(&payload).build(),
            3 => ethernet().ipv6(near6, own6).ttl(64).echo_request(1, k.into()).payload(&payload).build(),
            4 => ethernet().ipv4(near, own).ttl(64).udp(7, 9).payload(&payload).build(),
            5 => ethernet().tag(EtherType::VLAN, Tci(10)).ipv4(near, far).ttl(ttl).udp(1000, 2000).payload(&payload).build(),
            6 => {
                let tagged = ethernet().tag(EtherType::QINQ, Tci(10)).tag(EtherType::VLAN, Tci(20));
                tagged.ipv4(near, behind_tag).ttl(64).udp(1000, 2000).payload(&payload).build()
            }
            _ => ethernet().ipv4(near, far).ttl(ttl).udp(k.into(), 53).payload(&payload).build(),
        };
        frames.push(frame);
    }
    for frame in frames.iter_mut().step_by(3) {
        let at = 12 + (random() as usize) % (frame.len() - 12).min(60);
        frame[at] = random() as u8;
    }
    frames
}

#[test]
fn packets_that_their_sender_changes_on_the_way_harm_nothing() {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = Folder::new("scribble");
    let (mut sender, mut h) = (Harness::new(), Harness::new());
    let x = sender.interface(0);
    let socket = format!("create memif socket id 1 filename {}", folder.socket());
    for line in [
        &format!("{socket} unsealed"),
        "create interface memif id 0 socket-id 1 master",
        "set interface l2 xconnect x0 memif1/0",
        "set interface l2 xconnect memif1/0 x0",
        "set interface state memif1/0 up",
    ] {
        run(&mut sender.router, line);
    }
    for line in [
        &socket,
        "create interface memif id 0 socket-id 1 slave zero-copy hw-addr 02:fe:00:00:00:01",
        "set interface ip address memif1/0 192.0.2.2/24",
        "set interface ip address memif1/0 2001:db8::2/64",
        "set interface state memif1/0 up",
        "set ip neighbor memif1/0 192.0.2.1 02:00:00:00:00:09",
        "set ip neighbor memif1/0 2001:db8::1 02:00:00:00:00:09",
        "ip route add 198.51.100.0/24 via 192.0.2.1 memif1/0",
        "ip route add 2001:db8:9::/48 via 2001:db8::1 memif1/0",
        "create sub-interfaces memif1/0 10 dot1q 10 exact-match",
        "create sub-interfaces memif1/0 20 dot1ad 10 inner-dot1q 20 exact-match",
        "set interface state memif1/0.10 up",
        "set interface state memif1/0.20 up",
        "set interface ip address memif1/0.10 10.0.10.1/24",
        "set interface ip address memif1/0.20 10.0.20.1/24",
        "set ip neighbor memif1/0.10 10.0.10.2 02:00:00:00:00:09",
        "ip route add 203.0.113.0/24 via 10.0.10.2 memif1/0.10",
    ] {
        run(&mut h.router, line);
    }
    until(&mut [&mut sender, &mut h], |ends| ends[1].router.interfaces.by_name("memif1/0").is_some_and(|i| i.link.up));
    assert!(h.router.interfaces.by_name("memif1/0").unwrap().link.up, "{}", run(&mut h.router, "show memif"));
    let region = h.router.graph.pools()[0].region().clone();
    let pool = region.shared_pools().remove(0);
    let memory = std::fs::File::from(pool.fd().try_clone_to_owned().unwrap());
    let (stride, bytes) = (u64::from(region.geometry().stride()), pool.bytes() as u64);
    let stop = AtomicBool::new(false);
    let (mut seed, mut returned) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The peer: it writes into headers for as long as packets are under way.
            let mut x = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let buffer = (x >> 40) % 512;
                let at = buffer * stride + 256 + (x >> 20) % 64;
                if at + 4 <= bytes {
                    memory.write_at(&(x as u32).to_ne_bytes(), at).expect("the pool's memory");
                }
            }
        });
        for _ in 0..400 {
            for frame in varied_frames(&mut seed, MacAddr([2, 0xfe, 0, 0, 0, 1])) {
                sender.inject(x, &frame);
            }
            sender.run();
            h.run();
            returned += sender.run().len();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(returned > 400, "{returned} packets came back: {:?}", h.counts());
    let counters = h.router.graph.interfaces();
    let sum = |name: &str, of: &CombinedCounters| of.sum(h.router.interfaces.by_name(name).unwrap().index.0).0;
    let tagged = [sum("memif1/0.10", &counters.rx), sum("memif1/0.20", &counters.rx), sum("memif1/0.10", &counters.tx)];
    assert!(tagged.iter().all(|n| *n > 400), "{tagged:?} with tags: {:?}", h.counts());
    // The router is as before: a ping is answered, and nothing is missing from its pools.
    for _ in 0..5 {
        sender.run();
        h.run();
    }
    let ping = Packet::ethernet(MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([2, 0xfe, 0, 0, 0, 1]))
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2])
        .ttl(64)
        .echo_request(7, 7)
        .payload(b"?")
        .build();
    sender.inject(x, &ping);
    sender.run();
    h.run();
    assert_eq!(sender.run().len(), 1, "{:?}", h.counts());
    run(&mut h.router, "delete interface memif memif1/0");
    h.run();
    super::run(&mut h.router);
    assert_eq!(region.sweep_shared(), 0, "buffers are missing");
}
