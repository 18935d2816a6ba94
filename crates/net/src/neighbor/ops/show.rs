//! What is shown of neighbours and ARP.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use quiver_command::grammar::IfRef;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use serde::Serialize;

use crate::Router;
use crate::fib::ops::Family;
use crate::interface::ops::resolve;
use crate::neighbor::{NeighborInfo, State};

/// Seconds of silence after which an unconfirmed neighbour is shown as stale.
const STALE: f64 = 30.0;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowNeighbors>().declare::<ShowConfig>().declare::<ShowCounters>().declare::<ShowProxy>();
}

request! {
    /// Shows neighbors: S static, D dynamic, N no FIB entry, P pending, A stale.
    pub read ShowNeighbors "ip_neighbor_dump" [
        "show ip neighbors",
        // VPP knows these lists by more than one name.
        "show ip neighbor",
        "show ip neighbor-sorted",
        "show ip4 neighbor-sorted" { family: Some(Family::Ip4) },
        "show ip6 neighbor-sorted" { family: Some(Family::Ip6) },
        "show ip4 neighbors" { family: Some(Family::Ip4) },
        "show ip6 neighbors" { family: Some(Family::Ip6) },
    ] {
        /// Of this interface.
        pub interface: Option<IfRef> = "<if>",
        /// Of this family.
        pub family: Option<Family> = "",
    }
}

/// A neighbour as shown.
#[derive(Debug, Clone, Serialize)]
pub struct NeighborReply {
    /// Seconds since it was last heard of, or configured.
    pub age: f64,
    /// Address.
    pub address: IpAddr,
    /// Link address, where known.
    pub mac: Option<String>,
    /// Interface.
    pub interface: String,
    /// `incomplete`, `reachable`, `stale`, `delay`, `probe`, `permanent`.
    pub state: &'static str,
    /// Without a host route.
    pub no_fib_entry: bool,
}

impl NeighborReply {
    fn of(router: &Router, neighbor: &NeighborInfo, now: u64) -> Self {
        Self {
            age: now.saturating_sub(neighbor.heard) as f64 / 1e9,
            address: neighbor.address,
            mac: neighbor.mac.map(|m| m.to_string()),
            interface: router.interfaces.name(neighbor.interface),
            state: match neighbor.state {
                State::Incomplete => "incomplete",
                State::Reachable => "reachable",
                State::Stale => "stale",
                State::Delay => "delay",
                State::Probe => "probe",
                State::Permanent => "permanent",
            },
            no_fib_entry: neighbor.no_fib_entry,
        }
    }

    fn flags(&self) -> String {
        let mut flags = String::from(if self.state == "permanent" { "S" } else { "D" });
        if self.no_fib_entry {
            flags.push('N');
        }
        match self.state {
            "incomplete" | "probe" => flags.push('P'),
            "stale" | "delay" if self.age >= STALE => flags.push('A'),
            _ => {}
        }
        flags
    }

    /// Seconds with four decimals, without a leading zero, as VPP prints them.
    fn age_text(&self) -> String {
        let text = format!("{:.4}", self.age);
        text.strip_prefix('0').map_or(text.clone(), ToOwned::to_owned)
    }
}

impl Text for NeighborReply {
    fn text(&self, out: &mut String, _view: &View) {
        let mac = self.mac.as_deref().unwrap_or("incomplete");
        table(false).row(out, &[&self.age_text(), &self.address, &self.flags(), &mac, &self.interface]);
    }
}

/// The neighbours that are there.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Neighbors(Vec<NeighborReply>);

fn table(heading: bool) -> TextTable {
    let table = TextTable::new().column("Age", 12, Align::Right).column("IP", 40, Align::Centre).column("Flags", 6, Align::Centre);
    // No blanks behind an interface's name.
    table.column("Ethernet", 20, Align::Centre).column("Interface", if heading { 24 } else { 0 }, Align::Left)
}

impl Text for Neighbors {
    fn text(&self, out: &mut String, view: &View) {
        if self.0.is_empty() {
            return;
        }
        table(true).heading(out);
        self.0.text(out, view);
    }
}

impl Execute<Router> for ShowNeighbors {
    type Reply = Neighbors;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Neighbors>, OpError> {
        let interface = self.interface.as_ref().map(|i| resolve(router, i)).transpose()?;
        let now = router.graph.clock().timer_now();
        let families = [Family::Ip4, Family::Ip6].into_iter().filter(|f| self.family.is_none_or(|r| r == *f));
        let all = families.flat_map(|family| router.neighbors(family.into()));
        let wanted = all.filter(|n| interface.is_none_or(|i| n.interface == i));
        Ok(Outcome::Done(Neighbors(wanted.map(|n| NeighborReply::of(router, &n, now)).collect())))
    }
}

request! {
    /// Shows the limits of neighbors, and how far they are used.
    pub read ShowConfig "ip_neighbor_config_get" ["show ip neighbor-config"] {}
}

/// Limits and figures of a family.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigReply {
    /// Family.
    pub family: Family,
    /// Most dynamic neighbours; 0: no limit.
    pub limit: u32,
    /// Most dynamic neighbours of one interface; 0: no limit of its own.
    pub interface_limit: u32,
    /// Seconds after which a silent one is asked; 0: only those in use.
    pub age: u32,
    /// Seconds after which a learned one that nobody uses is forgotten; 0: never.
    pub unused: u32,
    /// Whether a new one takes the place of the oldest.
    pub recycle: bool,
    /// Whether those in use are asked whether they are still there.
    pub probe: bool,
    /// Whether addresses of ours are announced without being asked for.
    pub announce: bool,
    /// Packets held for a neighbour that was asked for.
    pub hold: u32,
    /// Milliseconds after which packets ask again; 0: they do not.
    pub request_interval: u32,
    /// Neighbours now.
    pub entries: usize,
    /// Of them, not answered yet.
    pub pending: usize,
    /// Refused because of the limit.
    pub refused: u64,
    /// Pushed out by others.
    pub recycled: u64,
    /// Did not answer.
    pub lost: u64,
    /// Forgotten because nobody used them.
    pub forgotten: u64,
    /// The interface that has most dynamic neighbours, and how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullest: Option<(String, usize)>,
    /// Duplicates of own addresses.
    pub conflicts: u64,
}

impl Text for ConfigReply {
    fn text(&self, out: &mut String, _view: &View) {
        let Self { limit, interface_limit, age, unused, recycle, hold, request_interval, .. } = self;
        let (probe, announce) = (u8::from(self.probe), u8::from(self.announce));
        let Self { entries, pending, refused, recycled, lost, forgotten, conflicts, .. } = self;
        let family = self.family.word();
        let _ = writeln!(out, "{family}:\n  limit:{limit}, age:{age}, recycle:{}", u8::from(*recycle));
        let _ = writeln!(out, "  interface-limit:{interface_limit}, unused:{unused}, probe:{probe}, announce:{announce}");
        let _ = writeln!(out, "  hold:{hold}, request-interval:{request_interval}");
        let _ = writeln!(out, "  entries:{entries}, pending:{pending}, refused:{refused}, recycled:{recycled}");
        let _ = writeln!(out, "  lost:{lost}, forgotten:{forgotten}, conflicts:{conflicts}");
        if let Some((interface, n)) = &self.fullest {
            let _ = writeln!(out, "  fullest interface: {interface} with {n}");
        }
    }
}

impl Execute<Router> for ShowConfig {
    type Reply = Vec<ConfigReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<ConfigReply>>, OpError> {
        let reply = |family: Family| {
            let (config, figures) = (router.neighbor_config(family.into()), router.neighbor_figures(family.into()));
            ConfigReply {
                family,
                limit: config.limit,
                interface_limit: config.interface_limit,
                age: config.age,
                unused: config.unused,
                recycle: config.recycle,
                probe: config.probe,
                announce: config.announce,
                hold: config.hold,
                request_interval: config.request_interval,
                entries: figures.entries,
                pending: figures.pending,
                refused: figures.refused,
                recycled: figures.recycled,
                lost: figures.lost,
                forgotten: figures.unused,
                fullest: figures.fullest.map(|(interface, n)| (router.interfaces.name(interface), n)),
                conflicts: figures.conflicts,
            }
        };
        Ok(Outcome::Done(vec![reply(Family::Ip4), reply(Family::Ip6)]))
    }
}

request! {
    /// Shows how many ARP messages interfaces have received and sent.
    pub read ShowCounters "ip_neighbor_stats_show" ["show ip neighbor-stats"] {
        /// Of this interface; of all that have an address where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// ARP messages of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountersReply {
    /// Interface.
    pub interface: String,
    /// Requests received.
    pub rx_requests: u64,
    /// Replies received.
    pub rx_replies: u64,
    /// Announcements received.
    pub rx_gratuitous: u64,
    /// Requests sent.
    pub tx_requests: u64,
    /// Replies sent.
    pub tx_replies: u64,
    /// Announcements sent.
    pub tx_gratuitous: u64,
}

impl Text for CountersReply {
    fn text(&self, out: &mut String, _view: &View) {
        let Self { interface, rx_requests, rx_replies, rx_gratuitous, tx_requests, tx_replies, tx_gratuitous } = self;
        let _ = writeln!(out, "{interface}:");
        let _ = writeln!(out, "  rx requests:{rx_requests} replies:{rx_replies} gratuitous:{rx_gratuitous}");
        let _ = writeln!(out, "  tx requests:{tx_requests} replies:{tx_replies} gratuitous:{tx_gratuitous}");
    }
}

impl Execute<Router> for ShowCounters {
    type Reply = Vec<CountersReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<CountersReply>>, OpError> {
        let interface = self.interface.as_ref().map(|i| resolve(router, i)).transpose()?;
        let stats = std::sync::Arc::clone(router.graph.stats());
        let sum = |name: &str, index: u32| stats.simple(&format!("/net/arp/{name}"), quiver_graph::MAX_INTERFACES).sum(index);
        let wanted = router.interfaces.iter().filter(|i| match interface {
            Some(index) => i.index == index,
            None => i.addresses.iter().any(|(address, _)| address.is_ipv4()),
        });
        let reply = |i: &crate::Interface| CountersReply {
            interface: i.name.clone(),
            rx_requests: sum("rx/requests", i.index.0),
            rx_replies: sum("rx/replies", i.index.0),
            rx_gratuitous: sum("rx/gratuitous", i.index.0),
            tx_requests: sum("tx/requests", i.index.0),
            tx_replies: sum("tx/replies", i.index.0),
            tx_gratuitous: sum("tx/gratuitous", i.index.0),
        };
        Ok(Outcome::Done(wanted.map(reply).collect()))
    }
}

request! {
    /// Shows for which addresses proxy ARP answers, and where: as configured, and for NAT.
    pub read ShowProxy "proxy_arp_dump" ["show arp proxy"] {}
}

/// A range for which proxy ARP answers.
#[derive(Debug, Clone, Serialize)]
pub struct RangeReply {
    /// Table.
    pub table: u32,
    /// First address.
    pub start: Ipv4Addr,
    /// Last address.
    pub end: Ipv4Addr,
}

/// Proxy ARP's configuration.
#[derive(Debug, Clone, Serialize)]
pub struct ProxyReply {
    /// Ranges.
    pub ranges: Vec<RangeReply>,
    /// Interfaces on which it is on.
    pub interfaces: Vec<String>,
}

impl Text for ProxyReply {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str("Proxy arps enabled for:\n");
        for RangeReply { table, start, end } in &self.ranges {
            let _ = writeln!(out, "table {table}   {start} - {end} ");
        }
        for interface in &self.interfaces {
            let _ = writeln!(out, "  {interface}");
        }
    }
}

impl Execute<Router> for ShowProxy {
    type Reply = ProxyReply;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ProxyReply>, OpError> {
        let (held, holds) = router.held_proxies();
        let ranges = router.proxy_ranges().into_iter().chain(held);
        let ranges = ranges.map(|r| RangeReply { table: r.table, start: r.first, end: r.last }).collect();
        let on = router.interfaces.iter().filter(|i| router.proxy_arp(i.index) || holds(i.index));
        Ok(Outcome::Done(ProxyReply { ranges, interfaces: on.map(|i| i.name.clone()).collect() }))
    }
}
