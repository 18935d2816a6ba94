//! What is configured, and how much of it is used.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::control::{self, Nat};
use crate::session::tcp;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowInterfaces>().declare::<ShowAddresses>().declare::<ShowInterfaceAddresses>();
    registry.declare::<ShowSummary>().declare::<ShowTimeouts>();
}

request! {
    /// Shows which interfaces are inside and which outside.
    pub read ShowInterfaces "nat44_interfaces_show" ["show nat44 interfaces"] {}
}

/// An interface and its sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceInfo {
    /// Interface.
    pub interface: String,
    /// It is inside.
    pub inside: bool,
    /// It is outside.
    pub outside: bool,
    /// It is outside of all others.
    pub output_feature: bool,
}

/// The answer of [`ShowInterfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct InterfaceList(pub Vec<InterfaceInfo>);

impl Text for InterfaceList {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str("NAT44 interfaces:\n");
        for i in &self.0 {
            let side = match (i.inside, i.outside) {
                (true, true) => " in out",
                (true, false) => " in",
                (false, true) => " out",
                (false, false) => "",
            };
            let output = if i.output_feature { " output-feature" } else { "" };
            let _ = writeln!(out, " {}{side}{output}", i.interface);
        }
    }
}

impl Execute<Router> for ShowInterfaces {
    type Reply = InterfaceList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, InterfaceList>, OpError> {
        let Some(nat) = router.part::<Nat>() else { return Ok(Outcome::Done(InterfaceList(Vec::new()))) };
        let mut all: Vec<_> = nat.named.keys().chain(&nat.outputs).copied().collect();
        all.sort_unstable();
        all.dedup();
        let info = |index| {
            let side = nat.named.get(&index).copied().unwrap_or_default();
            InterfaceInfo {
                interface: router.interfaces.name(index),
                inside: side.inside,
                outside: side.outside,
                output_feature: nat.outputs.contains(&index),
            }
        };
        Ok(Outcome::Done(InterfaceList(all.into_iter().map(info).collect())))
    }
}

request! {
    /// Shows the pools.
    pub read ShowAddresses "nat44_addresses_show" ["show nat44 addresses"] {}
}

/// An address of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AddressInfo {
    /// Address.
    pub address: Ipv4Addr,
    /// Table whose hosts it is for; all where there is none.
    pub tenant_vrf: Option<u32>,
    /// A port of it belongs to one inside endpoint, whatever it speaks to.
    pub endpoint_independent: bool,
}

/// The answer of [`ShowAddresses`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressList {
    /// For sources inside.
    pub pool: Vec<AddressInfo>,
    /// For sources outside.
    pub twice_nat: Vec<AddressInfo>,
}

impl Text for AddressList {
    fn text(&self, out: &mut String, _: &View) {
        for (heading, list) in [("NAT44 pool addresses:", &self.pool), ("NAT44 twice-nat pool addresses:", &self.twice_nat)] {
            let _ = writeln!(out, "{heading}");
            for a in list {
                let _ = writeln!(out, "{}", a.address);
                let _ = match a.tenant_vrf {
                    Some(id) => writeln!(out, "  tenant VRF: {id}"),
                    None => writeln!(out, "  tenant VRF independent"),
                };
                if a.endpoint_independent {
                    let _ = writeln!(out, "  endpoint-independent");
                }
            }
        }
    }
}

impl Execute<Router> for ShowAddresses {
    type Reply = AddressList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, AddressList>, OpError> {
        let list = |pool: &[crate::config::PoolAddress]| {
            let info = |p: &crate::config::PoolAddress| AddressInfo {
                address: Ipv4Addr::from_bits(p.addr),
                tenant_vrf: p.tenant.map(|(id, _)| id),
                endpoint_independent: p.independent,
            };
            pool.iter().map(info).collect()
        };
        let nat = router.part::<Nat>();
        Ok(Outcome::Done(AddressList {
            pool: nat.map(|n| list(&n.config.pool)).unwrap_or_default(),
            twice_nat: nat.map(|n| list(&n.config.twice_pool)).unwrap_or_default(),
        }))
    }
}

request! {
    /// Shows interfaces whose addresses are in a pool.
    pub read ShowInterfaceAddresses "nat44_interface_addresses_show" ["show nat44 interface address"] {}
}

/// The answer of [`ShowInterfaceAddresses`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceAddressList {
    /// For sources inside.
    pub pool: Vec<String>,
    /// For sources outside.
    pub twice_nat: Vec<String>,
}

impl Text for InterfaceAddressList {
    fn text(&self, out: &mut String, _: &View) {
        let lists = [("NAT44 pool address interfaces:", &self.pool), ("NAT44 twice-nat pool address interfaces:", &self.twice_nat)];
        for (heading, list) in lists {
            let _ = writeln!(out, "{heading}");
            list.iter().for_each(|name| {
                let _ = writeln!(out, " {name}");
            });
        }
    }
}

impl Execute<Router> for ShowInterfaceAddresses {
    type Reply = InterfaceAddressList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, InterfaceAddressList>, OpError> {
        let all = router.part::<Nat>().map(|nat| nat.pool_interfaces.clone()).unwrap_or_default();
        let names = |twice| all.iter().filter(|(_, t)| *t == twice).map(|(i, _)| router.interfaces.name(*i)).collect();
        Ok(Outcome::Done(InterfaceAddressList { pool: names(false), twice_nat: names(true) }))
    }
}

request! {
    /// Shows how many sessions there are.
    pub read ShowSummary "nat44_summary_show" ["show nat44 summary"] {}
}

/// The answer of [`ShowSummary`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Most sessions of a thread.
    pub limit: u32,
    /// Sessions.
    pub total: u32,
    /// TCP sessions.
    pub tcp: u32,
    /// TCP sessions that are open in both directions.
    pub tcp_established: u32,
    /// UDP sessions.
    pub udp: u32,
    /// Sessions of ICMP queries.
    pub icmp: u32,
    /// Sessions of other protocols.
    pub other: u32,
    /// Sessions begun since NAT44 was switched on.
    pub begun: u64,
    /// Sessions ended.
    pub ended: u64,
    /// Hosts with sessions.
    pub hosts: usize,
    /// Inside endpoints that are mapped independently of remote ones.
    pub bindings: usize,
    /// Bytes of memory that sessions take.
    pub memory: usize,
}

impl Text for Summary {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "max translations per thread: {} fib 0", self.limit);
        let _ = writeln!(out, "total timed out or deleted sessions: {}", self.ended);
        let _ = writeln!(out, "total sessions: {} (timed out: 0)", self.total);
        let _ = writeln!(out, "total tcp sessions: {}", self.tcp);
        let _ = writeln!(out, "total tcp established sessions: {}", self.tcp_established);
        let _ = writeln!(out, "total tcp transitory sessions: {}", self.tcp - self.tcp_established);
        let _ = writeln!(out, "total udp sessions: {}", self.udp);
        let _ = writeln!(out, "total icmp sessions: {}", self.icmp);
        let _ = writeln!(out, "total other sessions: {}", self.other);
        let _ = writeln!(out, "endpoint-independent mappings: {}", self.bindings);
        let _ = writeln!(out, "hosts: {}, memory: {} bytes", self.hosts, self.memory);
    }
}

impl Execute<Router> for ShowSummary {
    type Reply = Summary;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Summary>, OpError> {
        let limit = router.part::<Nat>().and_then(|nat| nat.enabled).map_or(0, |e| e.sessions);
        let mut sum = Summary { limit, ..Summary::default() };
        for thread in control::threads(router) {
            let look = |nat: &mut crate::thread::ThreadNat| {
                (nat.sessions.len(), nat.begun, nat.ended, nat.hosts(), nat.bindings(), nat.memory_bytes())
            };
            if let Some((len, begun, ended, hosts, bindings, memory)) = control::on_thread(router, thread, look) {
                sum.total += len;
                sum.begun += begun;
                sum.ended += ended;
                sum.hosts += hosts;
                sum.bindings += bindings;
                sum.memory += memory;
            }
            let mut next = Some(0);
            while let Some(from) = next {
                let (some, more) = control::dump(router, thread, from, 4096);
                for (_, session) in &some {
                    match session.i2o.proto() {
                        6 => {
                            sum.tcp += 1;
                            sum.tcp_established += u32::from(tcp::is_established(session.tcp));
                        }
                        17 => sum.udp += 1,
                        1 => sum.icmp += 1,
                        _ => sum.other += 1,
                    }
                }
                next = more;
            }
        }
        Ok(Outcome::Done(sum))
    }
}

request! {
    /// Shows how long sessions live without a packet.
    pub read ShowTimeouts "nat_timeouts_show" ["show nat timeouts"] {}
}

/// The answer of [`ShowTimeouts`], seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeoutList {
    /// UDP.
    pub udp: u32,
    /// Open TCP connections.
    pub tcp_established: u32,
    /// TCP connections being opened or closed.
    pub tcp_transitory: u32,
    /// ICMP queries.
    pub icmp: u32,
}

impl Text for TimeoutList {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "udp timeout: {}sec", self.udp);
        let _ = writeln!(out, "tcp-established timeout: {}sec", self.tcp_established);
        let _ = writeln!(out, "tcp-transitory timeout: {}sec", self.tcp_transitory);
        let _ = writeln!(out, "icmp timeout: {}sec", self.icmp);
    }
}

impl Execute<Router> for ShowTimeouts {
    type Reply = TimeoutList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, TimeoutList>, OpError> {
        let t = control::timeouts(router);
        let list = TimeoutList { udp: t.udp, tcp_established: t.tcp_established, tcp_transitory: t.tcp_transitory, icmp: t.icmp };
        Ok(Outcome::Done(list))
    }
}
