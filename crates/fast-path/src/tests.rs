//! The program of the kernel beside the graph, over the same packets, in a router with made-up interfaces `x0` and `x1`. Without the
//! right to load programs, and in kernels that do not take it, these tests say so and end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use quiver_command::operation::Registry;
use quiver_drivers::fast_path::{FastPath, Input, Received, Traffic};
use quiver_drivers::rights::Direct;
use quiver_net::data::if_flags;
use quiver_net::ops::testing::{execute, registry};
use quiver_net::testing::{Harness, router_mac};
use quiver_net::{IfIndex, Router};

use super::control::{self, Port, Program, State};
use super::ports::{Hook, Part};
use super::table::Shared;

/// `lo`, as which the kernel runs a program that is tried.
const LO: u32 = 1;

/// The program; `None`, visibly, where this user or this build has none: under the gate that is a failure.
fn kernel() -> Option<FastPath> {
    match FastPath::open(&Direct) {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            // Past the test runner's capture; a closed standard error is no reason to fail.
            let _ = writeln!(std::io::stderr(), "fast path: SKIP: {error}");
            assert!(std::env::var_os("QUIVER_CI").is_none_or(|value| value != "1"), "SKIP: {error}");
            None
        }
    }
}

struct Scene {
    h: Harness,
    registry: Registry<Router>,
    shared: Arc<Shared>,
    x: [IfIndex; 2],
    hook: Hook,
    random: u64,
}

impl Scene {
    fn new(hook: Hook) -> Option<Self> {
        let kernel = kernel()?;
        let mut h = Harness::new();
        let x = [h.interface(0), h.interface(1)];
        control::start(&mut h.router);
        let shared = Arc::new(Shared::new(kernel, h.router.process_signal(control::PROCESS)));
        h.router.watch_forwarding(Arc::clone(&shared) as Arc<_>);
        let state: &mut State = h.router.part_mut().unwrap();
        state.program = Program::Here(Arc::clone(&shared));
        let registry = registry(&[super::ops::register]);
        let mut s = Self { h, registry, shared, x, hook, random: 0x9e37_79b9_7f4a_7c15 };
        for line in [
            "set ip6 dad disable",
            "set interface ip address x0 10.0.1.1/24",
            "set interface ip address x1 10.0.2.1/24",
            "set interface ip address x0 2001:db8:1::1/64",
            "set interface ip address x1 2001:db8:2::1/64",
            "set ip neighbor x1 10.0.2.2 02:00:00:00:02:02",
            "set ip neighbor x1 2001:db8:2::2 02:00:00:00:02:02",
            "set ip neighbor x0 10.0.1.2 02:00:00:00:01:02",
            "ip route add 198.51.0.0/16 via 10.0.2.2 x1",
            "ip route add 2001:db8:99::/48 via 2001:db8:2::2 x1",
        ] {
            s.run(line);
        }
        s.review();
        Some(s)
    }

    fn run(&mut self, line: &str) -> String {
        execute(&self.registry, &mut self.h.router, line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Has `lo` stand for `x0`, and a port 2 for `x1`, as they are now; what `ports::part` says of devices.
    fn review(&mut self) {
        self.shared.take_review();
        let mut ports = BTreeMap::new();
        for (n, index) in self.x.into_iter().enumerate() {
            let number = n as u32 + 1;
            let record = self.h.router.data.interfaces.get(index);
            let is_up =
                record.flags & (if_flags::UP | if_flags::L2) == if_flags::UP && self.h.router.graph.features_of(index).is_empty();
            let input =
                Input { device: LO, mac: record.mac.0, fib4: Some(record.fib4), fib6: Some(record.fib6), unfinished: false };
            let mut table = self.shared.table();
            let device = if n == 0 { LO } else { LO + 1 };
            table.ports.insert(index, (number, device));
            table.kernel.set_device(number, LO).unwrap();
            let output = if is_up { Ok([record.mtu4, record.mtu6]) } else { Err("down".to_owned()) };
            let part = Part { hook: self.hook, input: Ok(input), output, device, mac: record.mac.0, takes: true, direct: false };
            table.kernel.set_port(number, &part.as_output());
            if n == 0 && is_up {
                assert!(table.kernel.set_input(number, &input));
            }
            table.kernel.set_on(true);
            table.doubt_all();
            let none = (Received::default(), Traffic::default());
            ports.insert(index, Port { number, part, refused: None, trouble: None, counted: none, received: none.0, sent: none.1 });
        }
        let state: &mut State = self.h.router.part_mut().unwrap();
        state.ports = ports;
        self.settle();
    }

    /// What the process does.
    fn settle(&mut self) {
        while control::settle(&self.h.router, &self.shared) | control::decide(&self.h.router, &self.shared) {}
    }

    /// What the program makes of a frame.
    fn fast(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let kernel = &self.shared.table().kernel;
        match self.hook {
            Hook::Driver => kernel.try_frame(frame).unwrap(),
            Hook::Ingress => kernel.try_at_ingress(frame).unwrap(),
        }
    }

    /// Whether the program forwarded it. If it did, it was as the graph does.
    fn assert_same(&mut self, frame: &[u8]) -> bool {
        let Some(left) = self.fast(frame) else { return false };
        let by_graph = self.h.exchange(self.x[0], frame);
        assert_eq!(by_graph, [(self.x[1], left)], "of {frame:02x?}");
        true
    }

    fn below(&mut self, n: u64) -> u64 {
        // Numbers of a linear congruential generator; the upper bits are the good ones.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A packet, most often a plain one.
    fn frame(&mut self) -> Vec<u8> {
        let payload = self.one_of(&[0, 8, 18, 26, 64, 1000, 1460, 1472, 1480, 1481]) as usize;
        let mut frame = if self.below(2) == 0 { self.frame4(payload) } else { self.frame6(payload) };
        if self.below(4) == 0 {
            let padding = self.below(20) as usize;
            frame.extend(std::iter::repeat_n(0xee, padding));
        }
        match self.below(20) {
            0 => frame.truncate((14 + self.below(60) as usize).min(frame.len())),
            1 => {
                let (at, bit) = (self.below(frame.len().min(74) as u64) as usize, self.below(8));
                frame[at] ^= 1 << bit;
            }
            2 => {
                frame.splice(12..12, [0x81, 0, 0, 7]);
            }
            _ => {}
        }
        frame
    }

    fn ethernet(&mut self, kind: [u8; 2]) -> Vec<u8> {
        let to = if self.below(12) == 0 { [0xff; 6] } else { router_mac(0).0 };
        [&to[..], &[2, 0, 0, 0, 1, 2], &kind].concat()
    }

    fn frame4(&mut self, payload: usize) -> Vec<u8> {
        let options = if self.below(10) == 0 { 4 } else { 0 };
        let mut ip = vec![0; 20 + options];
        ip[0] = 0x45 + (options / 4) as u8;
        ip[1] = self.below(256) as u8;
        let len = (20 + options + payload) as u16;
        let len = if self.below(15) == 0 { self.below(1600) as u16 } else { len };
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let identification = self.below(65_536) as u16;
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        let fragment = self.one_of(&[0_u16, 0, 0, 0, 0x4000, 0x4000, 0x2000, 3, 0x8000]);
        ip[6..8].copy_from_slice(&fragment.to_be_bytes());
        ip[8] = self.one_of(&[64, 64, 64, 255, 2, 1, 0]);
        ip[9] = self.one_of(&[17, 6, 1, 47, 253]);
        let (plain, odd) =
            ([[10, 0, 1, 2], [10, 7, 7, 7], [192, 0, 2, 1]], [[127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [255; 4]]);
        let source = if self.below(8) == 0 { self.one_of(&odd) } else { self.one_of(&plain) };
        ip[12..16].copy_from_slice(&source);
        let destination = self.one_of(&[
            [10, 0, 2, 2],
            [198, 51, 1, 1],
            [198, 51, 200, 9],
            [10, 0, 2, 9],
            [10, 0, 1, 1],
            [8, 8, 8, 8],
            [224, 0, 0, 5],
        ]);
        ip[16..20].copy_from_slice(&destination);
        if options > 0 {
            ip[20..24].copy_from_slice(&[1, 1, 1, 0]);
        }
        if self.below(20) != 0 {
            let sum = ip.chunks(2).fold(0_u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(word[1]));
            let sum = (sum & 0xffff) + (sum >> 16);
            let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
        }
        [self.ethernet([8, 0]), ip, vec![0xab; payload]].concat()
    }

    fn frame6(&mut self, payload: usize) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = 0x60;
        ip[1] = self.below(256) as u8;
        let len = if self.below(15) == 0 { self.below(1600) as u16 } else { payload as u16 };
        ip[4..6].copy_from_slice(&len.to_be_bytes());
        ip[6] = self.one_of(&[17, 6, 58, 44, 43, 59]);
        ip[7] = self.one_of(&[64, 64, 64, 255, 2, 1, 0]);
        let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        let source = self.one_of(&["2001:db8:1::2", "2001:db8:1::2", "2001:db8:5::5", "fe80::2", "::", "::1", "ff02::1"]);
        let destination = self.one_of(&[
            "2001:db8:2::2",
            "2001:db8:99::1",
            "2001:db8:99:1::2",
            "2001:db8:2::9",
            "2001:db8:1::1",
            "2600::1",
            "fe80::9",
            "ff02::1",
        ]);
        ip[8..24].copy_from_slice(&address(source));
        ip[24..40].copy_from_slice(&address(destination));
        [self.ethernet([0x86, 0xdd]), ip, vec![0xcd; payload]].concat()
    }
}

fn forwards_as_the_graph(hook: Hook) {
    let Some(mut s) = Scene::new(hook) else { return };
    let mut forwarded = [0; 2];
    for _ in 0..20_000 {
        let frame = s.frame();
        let is6 = frame.get(12) == Some(&0x86);
        forwarded[usize::from(is6)] += usize::from(s.assert_same(&frame));
        s.settle();
        // What is asked for is decided by now.
        forwarded[usize::from(is6)] += usize::from(s.assert_same(&frame));
    }
    assert!(forwarded.iter().all(|n| *n > 1000), "{forwarded:?} frames left by the program");
    // Interfaces and routes count the same, whoever forwards.
    let state = s.h.router.part::<State>().unwrap();
    assert_eq!(state.ports.len(), 2);
}

#[test]
fn what_the_driver_hook_forwards_leaves_as_by_the_graph() {
    forwards_as_the_graph(Hook::Driver);
}

#[test]
fn what_the_ingress_hook_forwards_leaves_as_by_the_graph() {
    forwards_as_the_graph(Hook::Ingress);
}

/// A packet that the program forwards as long as nothing changes.
fn plain() -> Vec<u8> {
    let mut frame = [&router_mac(0).0[..], &[2, 0, 0, 0, 1, 2, 8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 120, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 1, 2, 198, 51, 1, 1];
    let sum = ip.chunks(2).fold(0_u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(word[1]));
    let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend(ip);
    frame.extend([7; 100]);
    frame
}

#[test]
fn a_change_takes_effect_before_its_command_is_answered() {
    changes_take_effect(Hook::Driver);
    changes_take_effect(Hook::Ingress);
}

fn changes_take_effect(hook: Hook) {
    let Some(mut s) = Scene::new(hook) else { return };
    let frame = plain();
    // What changes, what puts it back, and whether the program may still forward then, to whom.
    let changes: &[(&[&str], &[&str])] = &[
        (&["ip route del 198.51.0.0/16 via 10.0.2.2 x1"], &["ip route add 198.51.0.0/16 via 10.0.2.2 x1"]),
        (&["ip route add 198.51.1.0/24 via drop"], &["ip route del 198.51.1.0/24 via drop"]),
        (&["ip route add 198.51.1.1/32 via 10.0.1.2 x0"], &["ip route del 198.51.1.1/32 via 10.0.1.2 x0"]),
        (&["ip route add 198.51.0.0/16 via 10.0.2.9 x1"], &["ip route del 198.51.0.0/16 via 10.0.2.9 x1"]),
        (&["set ip neighbor x1 10.0.2.2 02:00:00:00:02:77"], &["set ip neighbor x1 10.0.2.2 02:00:00:00:02:02"]),
        (&["set ip neighbor del x1 10.0.2.2"], &["set ip neighbor x1 10.0.2.2 02:00:00:00:02:02"]),
        (&["set interface state x1 down"], &["set interface state x1 up", "set ip neighbor x1 10.0.2.2 02:00:00:00:02:02"]),
        (&["set interface state x0 down"], &["set interface state x0 up"]),
        (&["set interface mac address x0 02:00:00:00:00:55"], &["set interface mac address x0 02:fe:00:00:00:00"]),
        (&["set interface mac address x1 02:00:00:00:00:66"], &["set interface mac address x1 02:fe:00:00:00:01"]),
        (&["set interface mtu ip4 100 x1"], &["set interface mtu ip4 1500 x1"]),
        (&["set interface l2 xconnect x0 x1"], &["set interface l3 x0"]),
    ];
    for (change, back) in changes {
        s.settle();
        let _ = s.fast(&frame);
        s.settle();
        assert!(s.assert_same(&frame), "before {change:?}");
        for line in *change {
            if execute(&s.registry, &mut s.h.router, line).is_err() {
                // A command of another crate than this test has.
                panic!("{line}");
            }
        }
        // The graph decides anew; the program forwards as it does, or not at all.
        s.assert_same(&frame);
        s.review();
        let _ = s.fast(&frame);
        s.settle();
        s.assert_same(&frame);
        back.iter().for_each(|line| drop(s.run(line)));
        s.review();
    }
}

#[test]
fn what_is_not_used_any_more_is_forgotten() {
    let Some(mut s) = Scene::new(Hook::Driver) else { return };
    let frame = plain();
    let _ = s.fast(&frame);
    s.settle();
    let shared = Arc::clone(&s.shared);
    assert!(s.assert_same(&frame));
    let round = shared.table().kernel.begin_round();
    shared.table().sweep(100, round, 500);
    assert_eq!(shared.table().destinations(), (1, 0));
    assert_eq!(shared.table().take_uses().iter().map(|one| one.traffic.packets).sum::<u64>(), 1);
    for _ in 0..502 {
        shared.table().kernel.begin_round();
    }
    let round = shared.table().kernel.begin_round();
    shared.table().sweep(100, round, 500);
    let known = || {
        let table = shared.table();
        (table.destinations(), table.paths())
    };
    assert_eq!(known(), ((0, 0), (0, 0)));
    assert_eq!(s.fast(&frame), None);
    s.settle();
    assert!(s.assert_same(&frame));
    shared.table().clear();
    assert_eq!(known(), ((0, 0), (0, 0)));
    assert_eq!(s.fast(&frame), None);
}

#[test]
fn commands_show_and_keep_the_setting() {
    let mut h = Harness::new();
    control::start(&mut h.router);
    let registry = registry(&[super::ops::register]);
    let mut run = |line: &str| execute(&registry, &mut h.router, line);
    assert_eq!(
        run("show xdp fast-path").unwrap(),
        "fast path: on, packets take the graph: no interface needs it yet\n\
         AF_XDP interfaces: on; host interfaces: off\n\
         destinations: IPv4 0 IPv6 0 of 65536 each; load-balances: 0, 0 of them lead out\n"
    );
    run("set xdp fast-path off").unwrap();
    assert!(run("show xdp fast-path").unwrap().starts_with("fast path: off, packets take the graph: it is off\n"));
    assert!(run("set xdp fast-path").is_err());
    run("set host-interface fast-path on").unwrap();
    assert!(run("show xdp fast-path").unwrap().contains("\nAF_XDP interfaces: off; host interfaces: on\n"));
    assert!(run("set host-interface fast-path maybe").is_err());
    run("set host-interface fast-path off").unwrap();
    run("set xdp fast-path on").unwrap();
}
