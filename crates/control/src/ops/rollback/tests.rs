use std::collections::BTreeMap;
use std::rc::Rc;

use quiver_command::configuration::Difference;
use quiver_net::ops::testing::{assert_documented, configuration, execute, restore, sorted, with_undo};
use quiver_net::testing::Harness;

use super::super::testing::registry;

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn interface(&mut self) -> String {
        match self.below(8) {
            n @ 0..3 => format!("loop{n}"),
            n @ 3..6 => format!("pg{}", n - 3),
            6 => format!("pg{}.{}", self.below(2), self.below(2) + 1),
            _ => format!("name{}", self.below(2)),
        }
    }

    /// A change of configuration; many are refused.
    fn line(&mut self) -> String {
        let (n, k) = (self.below(3), self.below(4));
        let remove = self.below(3) == 0;
        let (del, add, on) = if remove { ("del ", "del", "disable") } else { ("", "add", "enable") };
        let interface = self.interface();
        match self.below(34) {
            0 | 1 => format!("create loopback interface instance {n}{}", ["", " mac 2:0:0:0:0:7"][usize::from(k == 0)]),
            2 | 3 => format!("create packet-generator interface pg{n}"),
            4 => format!("create sub-interfaces {interface} {}", self.below(2) + 1),
            5 => format!("delete loopback interface intfc {interface}"),
            6 => format!("delete packet-generator interface {interface}"),
            7 => format!("delete sub-interface {interface}"),
            8 => format!("set interface name {interface} name{}", self.below(2)),
            9 => format!("set interface state {interface} {}", if remove { "down" } else { "up" }),
            10 | 11 => format!("set interface ip address {del}{interface} 10.{n}.{k}.1/24"),
            12 => format!("set interface ip address {del}{interface} 10.{n}.{k}.2/24"),
            13 | 14 => format!("set interface ip address {del}{interface} 2001:db8:{n}::{k}/64"),
            15 => format!("{on} ip6 interface {interface}"),
            16 => format!("ip table {add} {}{}", k + 1, ["", " name blue"][usize::from(n == 0 && !remove)]),
            17 => format!("set interface ip table {interface} {k}"),
            18 => format!("ip route {add} 172.16.{n}{k}.0/24 table {} via {interface}", self.below(2)),
            19 => format!("ip route add 172.16.{n}{k}.0/24 via 10.{n}.{k}.9 {interface} weight {}", k + 1),
            20 => format!("ip route {add} count 20 172.20.{k}.0/32 via drop"),
            21 => format!("set interface mtu {} {interface}", 1000 + k),
            22 => format!("set interface tag {interface} tag {k}"),
            23 => format!("set interface mac address {interface} 2:0:0:0:1:{k}"),
            24 => format!("set interface unnumbered {interface} use loop{n}"),
            25 => format!("create bridge-domain {} {}", n + 1, ["learn 0", "mac-age 9", "bd-tag red", "arp-term 1"][k as usize]),
            26 => format!("set interface l2 bridge {interface} {}{}", n + 1, ["", " bvi"][usize::from(k == 0)]),
            27 => format!("set interface l3 {interface}"),
            28 => format!("set interface l2 learn {interface} {}", if remove { "" } else { "disable" }),
            29 => format!("set interface l2 tag-rewrite {interface} {}", if remove { "disable" } else { "pop 1" }),
            30 => format!("ip neighbor {del}{interface} 10.{n}.{k}.7 2:0:0:0:2:{n} static"),
            31 => format!("set ip icmp-rate-limit total {}", 100 + k),
            32 => format!(
                "ip6 nd {interface} {}",
                ["ra-interval 100", "no ra-suppress", "ra-managed-config-flag", "ra-suppress"][k as usize]
            ),
            _ => format!("set logging size {}", 100 + k),
        }
    }

    /// A router that somebody has configured somehow.
    fn router(&mut self, lines: u64) -> Harness {
        let (registry, mut h) = (registry(), Harness::new());
        for _ in 0..lines {
            let _ = execute(&registry, &mut h.router, &self.line());
        }
        h
    }
}

/// What interfaces are, by name.
fn interfaces(h: &Harness) -> BTreeMap<String, String> {
    let is = |i: &quiver_net::Interface| format!("{} {:?} {} {:?} {:?}", i.mac, i.mtu, i.admin_up, i.addresses, i.tables);
    h.router.interfaces.iter().map(|i| (i.name.clone(), is(i))).collect()
}

/// Two routers that were configured by random commands: what differs is applied to one, and it is as the other one. `QUIVER_SEEDS` says how
/// many pairs.
#[test]
fn what_differs_makes_any_configuration_out_of_any_other_one() {
    let registry = Rc::new(registry());
    let seeds: u64 = std::env::var("QUIVER_SEEDS").ok().map_or(60, |text| text.parse().expect("QUIVER_SEEDS is a number"));
    let (mut changes, mut entries) = (0, 0);
    for seed in 1..=seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lines = 20 + random.below(60);
        let (mut a, b) = (random.router(lines), random.router(lines));
        let (from, to) = (with_undo(&registry, &a.router), with_undo(&registry, &b.router));
        let story = || {
            let text = configuration(&registry, &b.router);
            let from: Vec<&str> = from.iter().map(|entry| entry.command.as_str()).collect();
            format!("seed {seed}, from:\n{}\nto:\n{text}", from.join("\n"))
        };
        changes += restore(&registry, &mut a.router, &to).unwrap_or_else(|error| panic!("{error}\n{}", story()));
        entries += from.len() + to.len();
        let is = configuration(&registry, &a.router);
        let should = configuration(&registry, &b.router);
        assert_eq!(sorted(&is), sorted(&should), "{}", story());
        assert_eq!(interfaces(&a), interfaces(&b), "{}", story());
        // And back.
        restore(&registry, &mut a.router, &from).unwrap_or_else(|error| panic!("back: {error}\n{}", story()));
        let difference = Difference::of(&with_undo(&registry, &a.router), &from).text();
        assert_eq!(difference, "", "{}", story());
    }
    println!("{seeds} pairs of configurations, {entries} entries, {changes} changes");
    assert!(entries > 20 * seeds as usize && changes > 5 * seeds as usize, "too small: {entries} entries, {changes} changes");
}

/// Random configurations, each written as a document: it is the same when it is read, changes nothing where it came from, and makes a new router
/// the same.
#[test]
fn any_configuration_is_a_document() {
    let registry = Rc::new(registry());
    let seeds: u64 = std::env::var("QUIVER_SEEDS").ok().map_or(60, |text| text.parse().expect("QUIVER_SEEDS is a number"));
    let mut bytes = 0;
    for seed in 1..=seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lines = 20 + random.below(60);
        let h = random.router(lines);
        bytes += assert_documented(&registry, &h.router, Harness::new).len();
    }
    println!("{seeds} documents, {bytes} bytes");
    assert!(bytes > 200 * seeds as usize, "too small: {bytes} bytes");
}

/// Only what differs is changed.
#[test]
fn one_value_that_differs_is_one_change() {
    let registry = Rc::new(registry());
    let base = "create packet-generator interface pg0
        create packet-generator interface pg1
        set interface ip address pg0 10.0.0.1/24
        ip table add 5
        create bridge-domain 7
        set interface l2 bridge pg1 7
        ip route add 192.0.2.0/24 via 10.0.0.2 pg0
        set interface mtu 1400 pg0
        set interface tag pg0 cellar
        ip neighbor pg0 10.0.0.9 2:0:0:0:0:9 static";
    let made = |more: &str| {
        let mut h = Harness::new();
        for line in base.lines().chain(more.lines()).map(str::trim) {
            execute(&registry, &mut h.router, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        h
    };
    let to = with_undo(&registry, &made("").router);
    for line in [
        "set interface mtu 1300 pg0",
        "set interface tag pg0 attic",
        "ip route add 192.0.2.0/24 via 10.0.0.3 pg0",
        "ip table add 5 name blue",
        "set bridge-domain learn 7 disable",
        "set interface state pg0 up",
        "set interface l2 bridge pg1 9",
        "set interface feature pg0 worker-handoff arc device-input",
    ] {
        let mut h = made(line);
        let changes = restore(&registry, &mut h.router, &to).unwrap_or_else(|error| panic!("{line}: {error}"));
        // The port made a bridge domain, which goes after it has left.
        assert_eq!(changes, if line.ends_with("pg1 9") { 3 } else { 1 }, "{line}");
    }
}
