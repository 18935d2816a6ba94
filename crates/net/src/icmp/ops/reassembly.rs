//! Reassembly: what is held, its limits, and for which packets it is on.

use std::fmt::Write as _;
use std::time::Duration;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::{Execute, Request as _};
use quiver_command::{commands, request, words};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::ops::Family;
use crate::interface::ops::{Change, SetInterface};
use crate::local::reassembly::{Limits, Through, feature_arc, feature_node};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "set interface reassembly loop0 on",
    "set ip4-sv-reassembly timeout 500",
    "set ip local-reassembly ip6 off",
    "set ip reassembly extended ip4 on",
];

/// Adds the operations and commands.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowReassembly>().declare::<SetReassembly>();
    registry.declare::<ShowShallow>().declare::<SetLocal>().declare::<SetThrough>().declare::<SetExtended>();
    registry.examples(EXAMPLES);
    registry.messages(&[
        ("set interface reassembly", &["ip_reassembly_enable_disable"]),
        ("set ip local-reassembly", &["ip_local_reass_enable_disable"]),
        ("set ip4-full-reassembly", &["ip_reassembly_set"]),
        ("set ip6-full-reassembly", &["ip_reassembly_set"]),
        ("set ip4-sv-reassembly", &["ip_reassembly_set"]),
        ("set ip6-sv-reassembly", &["ip_reassembly_set"]),
        ("show ip4-full-reassembly", &["ip_reassembly_get"]),
        ("show ip6-full-reassembly", &["ip_reassembly_get"]),
        ("show ip4-sv-reassembly", &["ip_reassembly_get"]),
        ("show ip6-sv-reassembly", &["ip_reassembly_get"]),
    ]);
    registry.messages_without_command(&["ip_local_reass_get"]);
}

/// Incomplete datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowReassembly {
    /// Which family.
    pub family: Family,
    /// Each datagram too.
    #[serde(default)]
    pub details: bool,
}

commands! {
    read ShowReassembly "ip_reassembly_show" {
        /// Shows incomplete IPv4 datagrams and the limits of reassembly.
        ["show ip4-full-reassembly"] { details: bool = "details" } => { family: Family::Ip4, details },
        /// Shows incomplete IPv6 datagrams and the limits of reassembly.
        ["show ip6-full-reassembly"] { details: bool = "details" } => { family: Family::Ip6, details },
    }
}

/// An incomplete datagram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Datagram {
    /// Thread that holds it.
    pub thread: usize,
    /// Source.
    pub src: std::net::IpAddr,
    /// Destination.
    pub dst: std::net::IpAddr,
    /// Identification.
    pub id: u32,
    /// Protocol (IPv4).
    pub protocol: Option<u8>,
    /// Fragments that have come.
    pub fragments: u32,
    /// Bytes that have come.
    pub bytes: u32,
    /// Seconds since its first fragment came.
    pub age: f64,
}

/// Answer of [`ShowReassembly`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reassemblies {
    /// Which family.
    pub family: Family,
    /// Incomplete datagrams of all workers.
    pub count: u32,
    /// Fragments that they consist of.
    pub fragments: u32,
    /// Their buffers, kB.
    pub kilobytes: u32,
    /// Datagrams that a worker holds at most.
    pub max_reassemblies: u32,
    /// Datagrams of one source that a worker holds at most.
    pub max_per_source: u32,
    /// Fragments of a datagram at most.
    pub max_reassembly_length: u32,
    /// Buffers that a worker's datagrams occupy at most, kB.
    pub max_memory_kb: u32,
    /// Time that a datagram has, ms.
    pub timeout_ms: u64,
    /// Each, where it was asked for.
    pub datagrams: Vec<Datagram>,
}

impl Execute<Router> for ShowReassembly {
    type Reply = Reassemblies;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Reassemblies>, OpError> {
        let Self { family, details } = self;
        let limits = router.reassembly_limits(family.into(), Through::Full);
        let mut reply = Reassemblies {
            family,
            count: 0,
            fragments: 0,
            kilobytes: 0,
            max_reassemblies: limits.datagrams,
            max_per_source: limits.per_source,
            max_reassembly_length: limits.fragments,
            max_memory_kb: limits.kilobytes,
            timeout_ms: limits.timeout.as_millis() as u64,
            datagrams: Vec::new(),
        };
        for (thread, totals, held) in router.reassembly(family.into()) {
            reply.count += totals.datagrams;
            reply.fragments += totals.fragments;
            reply.kilobytes += totals.kilobytes;
            let datagram = |h: crate::local::reassembly::Held| Datagram {
                thread,
                src: h.name.src,
                dst: h.name.dst,
                id: h.name.id,
                protocol: h.name.protocol,
                fragments: h.fragments,
                bytes: h.bytes,
                age: h.age as f64 / 1e9,
            };
            reply.datagrams.extend(held.into_iter().filter(|_| details).map(datagram));
        }
        Ok(Outcome::Done(reply))
    }
}

impl Text for Reassemblies {
    fn text(&self, out: &mut String, _view: &View) {
        let name = self.family.word().to_uppercase();
        let rule = "---------------------";
        let _ = writeln!(out, "{rule}\n{name} reassembly status\n{rule}");
        for d in &self.datagrams {
            let _ = write!(out, "thread {}: {} -> {}, id 0x{:04x}", d.thread, d.src, d.dst, d.id);
            let _ = d.protocol.map(|p| write!(out, ", protocol {}", quiver_wire::ipv4::IpProtocol(p)));
            let _ = writeln!(out, ", {} fragments, {} bytes, age {:.1} s", d.fragments, d.bytes, d.age);
        }
        let _ = writeln!(out, "Current full {name} reassemblies count: {}", self.count);
        let _ = writeln!(out, "Current fragments held: {} in {} kB", self.fragments, self.kilobytes);
        let what = "Maximum configured";
        let _ = writeln!(out, "{what} concurrent full {name} reassemblies per worker-thread: {}", self.max_reassemblies);
        let _ = writeln!(out, "{what} amount of fragments per full {name} reassembly: {}", self.max_reassembly_length);
        let _ = writeln!(out, "{what} memory of full {name} reassemblies per worker-thread: {} kB", self.max_memory_kb);
        let _ = writeln!(out, "{what} full {name} reassemblies of one source per worker-thread: {}", self.max_per_source);
        let _ = writeln!(out, "{what} full {name} reassembly timeout: {}ms", self.timeout_ms);
    }
}

request! {
    /// Limits the reassembly of IPv4 or IPv6 datagrams, per worker: `full`, or `sv`, which only has fragments wait for the first one.
    pub change SetReassembly "ip_reassembly_set" [
        "set ip4-full-reassembly" { family: Family::Ip4, shallow: false },
        "set ip6-full-reassembly" { family: Family::Ip6, shallow: false },
        "set ip4-sv-reassembly" { family: Family::Ip4, shallow: true },
        "set ip6-sv-reassembly" { family: Family::Ip6, shallow: true },
    ] {
        /// Which family.
        pub family: Family = "",
        /// Shallow reassembly, not full.
        pub shallow: bool = "",
        /// Time that a datagram has, ms; with 0 none becomes whole.
        pub timeout_ms: Option<u32> = "timeout <ms>" range(0..=3_600_000),
        /// Datagrams of a worker; with 0 no fragment is taken.
        pub max_reassemblies: Option<u32> = "max-reassemblies <n>" range(0..=1_000_000),
        /// Datagrams of one source of a worker.
        pub max_per_source: Option<u32> = "max-per-source <n>" range(1..=1_000_000),
        /// Fragments of a datagram.
        pub max_reassembly_length: Option<u32> = "max-reassembly-length <n>" range(1..=8192),
        /// Buffers of a worker's datagrams, kB.
        pub max_memory_kb: Option<u32> = "max-memory <kB>" range(2..=16_000_000),
    }
}

impl Execute<Router> for SetReassembly {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let given = [self.timeout_ms, self.max_reassemblies, self.max_per_source, self.max_reassembly_length, self.max_memory_kb];
        if given.iter().all(Option::is_none) {
            return Err(Self::incomplete("timeout, max-reassemblies, max-per-source, max-reassembly-length or max-memory"));
        }
        let (family, through) = (self.family.into(), Through::of(self.shallow));
        let mut limits: Limits = router.reassembly_limits(family, through);
        limits.timeout = self.timeout_ms.map_or(limits.timeout, |ms| Duration::from_millis(ms.into()));
        limits.datagrams = self.max_reassemblies.unwrap_or(limits.datagrams);
        limits.per_source = self.max_per_source.unwrap_or(limits.per_source);
        limits.fragments = self.max_reassembly_length.unwrap_or(limits.fragments);
        limits.kilobytes = self.max_memory_kb.unwrap_or(limits.kilobytes);
        router.set_reassembly_limits(family, through, limits);
        Ok(Outcome::Done(()))
    }
}

/// Datagrams of shallow reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowShallow {
    /// Which family.
    pub family: Family,
    /// Each datagram too.
    #[serde(default)]
    pub details: bool,
}

commands! {
    read ShowShallow "ip_shallow_reassembly_show" {
        /// Shows IPv4 datagrams whose first fragment is waited for or known, and the limits of shallow reassembly.
        ["show ip4-sv-reassembly"] { details: bool = "details" } => { family: Family::Ip4, details },
        /// Shows IPv6 datagrams whose first fragment is waited for or known, and the limits of shallow reassembly.
        ["show ip6-sv-reassembly"] { details: bool = "details" } => { family: Family::Ip6, details },
    }
}

/// A datagram of shallow reassembly.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShallowDatagram {
    /// Thread that holds it.
    pub thread: usize,
    /// Source.
    pub src: std::net::IpAddr,
    /// Destination.
    pub dst: std::net::IpAddr,
    /// Identification.
    pub id: u32,
    /// Fragments that wait.
    pub waiting: u32,
    /// Whether the first one has come.
    pub has_first: bool,
    /// Seconds since a fragment of it came first.
    pub age: f64,
}

/// Answer of [`ShowShallow`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShallowReassemblies {
    /// Which family.
    pub family: Family,
    /// Datagrams of all workers.
    pub count: u32,
    /// Fragments that wait.
    pub waiting: u32,
    /// Datagrams that a worker remembers at most.
    pub max_reassemblies: u32,
    /// Datagrams of one source that a worker remembers at most.
    pub max_per_source: u32,
    /// Fragments of a datagram that wait at most.
    pub max_reassembly_length: u32,
    /// Buffers of a worker's waiting fragments at most, kB.
    pub max_memory_kb: u32,
    /// Time that a datagram is remembered, ms.
    pub timeout_ms: u64,
    /// Whether fragments wait for the last one, too.
    pub extended: bool,
    /// Each, where it was asked for.
    pub datagrams: Vec<ShallowDatagram>,
}

impl Execute<Router> for ShowShallow {
    type Reply = ShallowReassemblies;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ShallowReassemblies>, OpError> {
        let Self { family, details } = self;
        let limits = router.reassembly_limits(family.into(), Through::Shallow);
        let mut reply = ShallowReassemblies {
            family,
            count: 0,
            waiting: 0,
            max_reassemblies: limits.datagrams,
            max_per_source: limits.per_source,
            max_reassembly_length: limits.fragments,
            max_memory_kb: limits.kilobytes,
            timeout_ms: limits.timeout.as_millis() as u64,
            extended: router.extended_reassembly(family.into()),
            datagrams: Vec::new(),
        };
        for (thread, totals, held) in router.shallow_reassembly(family.into()) {
            reply.count += totals.datagrams;
            reply.waiting += totals.fragments;
            let datagram = |h: crate::local::reassembly::Waiting| ShallowDatagram {
                thread,
                src: h.name.src,
                dst: h.name.dst,
                id: h.name.id,
                waiting: h.fragments,
                has_first: h.has_first,
                age: h.age as f64 / 1e9,
            };
            reply.datagrams.extend(held.into_iter().filter(|_| details).map(datagram));
        }
        Ok(Outcome::Done(reply))
    }
}

impl Text for ShallowReassemblies {
    fn text(&self, out: &mut String, _view: &View) {
        let name = self.family.word().to_uppercase();
        let rule = "---------------------";
        let _ = writeln!(out, "{rule}\n{name} reassembly status\n{rule}");
        for d in &self.datagrams {
            let state = if d.has_first { "first fragment seen" } else { "waits for its first fragment" };
            let ShallowDatagram { thread, src, dst, id, waiting, age, .. } = d;
            let _ = writeln!(out, "thread {thread}: {src} -> {dst}, id 0x{id:04x}, {state}, {waiting} waiting, age {age:.1} s");
        }
        let _ = writeln!(out, "Current {name} reassemblies count: {}", self.count);
        let _ = writeln!(out, "Current fragments waiting: {}", self.waiting);
        let (what, kind) = ("Maximum configured", "shallow virtual");
        let _ = writeln!(out, "{what} concurrent {kind} {name} reassemblies per worker-thread: {}", self.max_reassemblies);
        let _ = writeln!(out, "{what} amount of fragments per {kind} {name} reassembly: {}", self.max_reassembly_length);
        let _ = writeln!(out, "{what} memory of {kind} {name} reassemblies per worker-thread: {} kB", self.max_memory_kb);
        let _ = writeln!(out, "{what} {kind} {name} reassemblies of one source per worker-thread: {}", self.max_per_source);
        let _ = writeln!(out, "{what} {kind} {name} reassembly timeout: {}ms", self.timeout_ms);
        if self.extended {
            let _ = writeln!(out, "Extended {kind} {name} reassembly: fragments wait for the first and the last");
        }
    }
}

request! {
    /// Puts fragmented packets for the router itself together, as from the start, or drops their fragments.
    pub change SetLocal "ip_local_reassembly_set" ["set ip local-reassembly"] {
        /// Which family.
        pub family: Family = "ip4|ip6" required(),
        /// Whether they are put together.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetLocal {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_joins_local(self.family.into(), self.on);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Has fragments of shallow reassembly wait for the last one of their packet, too, and not for the first alone.
    pub change SetExtended "ip_extended_reassembly_set" ["set ip reassembly extended"] {
        /// Which family; both where none is named.
        pub family: Option<Family> = "ip4|ip6",
        /// Whether they wait.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetExtended {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let is_meant = |family: &Family| self.family.is_none_or(|only| only == *family);
        for family in [Family::Ip4, Family::Ip6].into_iter().filter(is_meant) {
            router.set_extended_reassembly(family.into(), self.on);
        }
        Ok(Outcome::Done(()))
    }
}

words! {
    /// Which packets of an interface are put together.
    pub enum Which {
        /// Those of both families.
        On = "on",
        /// None.
        Off = "off",
        /// IPv4 only.
        Ip4 = "ip4",
        /// IPv6 only.
        Ip6 = "ip6",
    }
}

request! {
    /// Puts fragmented packets that come in by an interface together before they are routed, or none of them any more; with `shallow`
    /// fragments only wait until the first one of their packet has come.
    pub change SetThrough "interface_reassembly_set" ["set interface reassembly"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Packets of both families, of none, or of one only.
        pub which: Which = "on|off|ip4|ip6" default(Which::On),
        /// Later fragments wait for the first one, and all go on as they are.
        pub shallow: bool = "shallow",
    }
}

impl Execute<Router> for SetThrough {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let through = Through::of(self.shallow);
        let on = |only| self.which == Which::On || self.which == only;
        for (family, on) in [(Family::Ip4, on(Which::Ip4)), (Family::Ip6, on(Which::Ip6))] {
            let (feature, arc) = (feature_node(family.into(), through).to_owned(), feature_arc(family.into()).to_owned());
            // A feature like others: the running configuration has it as one.
            SetInterface { interface: self.interface.clone(), change: Change::Feature { feature, arc, on } }.execute(router)?;
        }
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use quiver_wire::build::Packet;

    use crate::ops::testing::{error, run};
    use crate::testing::{Harness, host_mac, router_mac};

    #[test]
    fn limits_without_a_kind_are_those_of_full_reassembly() {
        let request: super::SetReassembly = serde_json::from_str(r#"{"family":"ip4","timeout_ms":5}"#).unwrap();
        assert!(!request.shallow && request.timeout_ms == Some(5));
    }

    #[test]
    fn incomplete_datagrams_and_their_limits_are_shown() {
        let mut h = Harness::new();
        let x0 = h.interface(0);
        h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
        let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).fragment(0x4d2, 0, true);
        h.inject(x0, &packet.next(17).payload(&[0; 64]).build());
        h.run();
        assert_eq!(run(&mut h.router, "set ip4-full-reassembly timeout 1000 max-reassemblies 5"), "");
        assert_eq!(run(&mut h.router, "set ip4-full-reassembly max-reassembly-length 9 max-memory 100"), "");
        assert_eq!(
            run(&mut h.router, "show ip4-full-reassembly details"),
            "---------------------\n\
             IP4 reassembly status\n\
             ---------------------\n\
             thread 0: 10.0.0.2 -> 10.0.0.1, id 0x04d2, protocol UDP, 1 fragments, 64 bytes, age 0.0 s\n\
             Current full IP4 reassemblies count: 1\n\
             Current fragments held: 1 in 2 kB\n\
             Maximum configured concurrent full IP4 reassemblies per worker-thread: 5\n\
             Maximum configured amount of fragments per full IP4 reassembly: 9\n\
             Maximum configured memory of full IP4 reassemblies per worker-thread: 100 kB\n\
             Maximum configured full IP4 reassemblies of one source per worker-thread: 256\n\
             Maximum configured full IP4 reassembly timeout: 1000ms\n"
        );
        assert!(run(&mut h.router, "show ip6-full-reassembly").ends_with("timeout: 60000ms\n"));
        for (line, expected) in [
            ("set ip6-full-reassembly", "timeout"),
            ("set ip6-full-reassembly max-memory 0", "max-memory"),
            ("set ip6-full-reassembly max-reassemblies x", "max-reassemblies"),
            ("show ip6-full-reassembly now", "now"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn interfaces_and_the_router_itself_are_switched() {
        let mut h = Harness::new();
        h.interface(0);
        assert_eq!(run(&mut h.router, "set interface reassembly x0 ip4"), "");
        assert_eq!(run(&mut h.router, "set interface reassembly x0 on shallow"), "");
        let shown = run(&mut h.router, "show interface features x0");
        let has = |shown: &str, name: &str| shown.contains(name);
        assert!(has(&shown, "ip4-full-reassembly-feature") && !has(&shown, "ip6-full-reassembly-feature"), "{shown}");
        assert!(has(&shown, "ip4-sv-reassembly-feature") && has(&shown, "ip6-sv-reassembly-feature"), "{shown}");
        assert_eq!(run(&mut h.router, "set interface reassembly x0 off"), "");
        assert!(!has(&run(&mut h.router, "show interface features x0"), "full-reassembly"));
        assert_eq!(run(&mut h.router, "set ip local-reassembly ip6 off"), "");
        let joins = [crate::ip::FamilyId::V4, crate::ip::FamilyId::V6].map(|family| h.router.joins_local(family));
        assert_eq!(joins, [true, false]);
        assert!(error(&mut h.router, "set interface reassembly nosuch on").contains("nosuch"));
    }

    #[test]
    fn datagrams_that_wait_for_their_first_fragment_are_shown() {
        let mut h = Harness::new();
        let x0 = h.interface(0);
        h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
        run(&mut h.router, "set interface reassembly x0 ip4 shallow");
        run(&mut h.router, "set ip4-sv-reassembly timeout 700 max-reassembly-length 9");
        let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 9, 0, 1]).fragment(0x4d2, 64, true);
        h.inject(x0, &packet.next(17).payload(&[0; 64]).build());
        h.run();
        assert_eq!(
            run(&mut h.router, "show ip4-sv-reassembly details"),
            "---------------------\n\
             IP4 reassembly status\n\
             ---------------------\n\
             thread 0: 10.0.0.2 -> 10.9.0.1, id 0x04d2, waits for its first fragment, 1 waiting, age 0.0 s\n\
             Current IP4 reassemblies count: 1\n\
             Current fragments waiting: 1\n\
             Maximum configured concurrent shallow virtual IP4 reassemblies per worker-thread: 1024\n\
             Maximum configured amount of fragments per shallow virtual IP4 reassembly: 9\n\
             Maximum configured memory of shallow virtual IP4 reassemblies per worker-thread: 8192 kB\n\
             Maximum configured shallow virtual IP4 reassemblies of one source per worker-thread: 256\n\
             Maximum configured shallow virtual IP4 reassembly timeout: 700ms\n"
        );
        assert!(error(&mut h.router, "set ip6-sv-reassembly").contains("timeout"));
    }
}
