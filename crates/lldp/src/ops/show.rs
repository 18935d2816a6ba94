//! What is shown of LLDP.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use quiver_command::operation::{Align, OpError, Outcome, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::{IfIndex, Router};
use quiver_wire::MacAddr;
use serde::Serialize;

use crate::agent::Neighbour;
use crate::control::{Lldp, Port, Settings};
use crate::pdu::{Capability, Info};

request! {
    /// Shows interfaces with LLDP, and the neighbours on each.
    pub read ShowLldp "lldp_show" ["show lldp"] {
        /// With all that neighbours say, and counts.
        pub detail: bool = "detail",
    }
}

/// A neighbour.
#[derive(Debug, Clone, Serialize)]
pub struct NeighborInfo {
    /// What it says.
    #[serde(flatten)]
    pub info: Info,
    /// Seconds since it last spoke.
    pub heard_ago: f64,
    /// Seconds since it last said something new.
    pub changed_ago: f64,
    /// Seconds since it came.
    pub known_for: f64,
    /// Seconds until it is forgotten, unless it speaks.
    pub expires_in: f64,
}

/// What a port has counted, by the names of IEEE 802.1AB.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the names are those of the standard (9.2.6, 11.5.2); docs/lldp.md explains them")]
pub struct Statistics {
    pub frames_out: u64,
    pub lldpdu_length_errors: u64,
    pub frames_in: u64,
    pub frames_discarded: u64,
    pub frames_in_errors: u64,
    pub tlvs_discarded: u64,
    pub tlvs_unrecognized: u64,
    pub ageouts: u64,
    pub table_inserts: u64,
    pub table_deletes: u64,
    pub table_drops: u64,
}

/// An interface with LLDP.
#[derive(Debug, Clone, Serialize)]
pub struct PortInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// It is up and has a link.
    pub up: bool,
    /// Description that it sends.
    pub port_desc: Option<String>,
    /// Management address that it sends.
    pub mgmt_ip4: Option<std::net::Ipv4Addr>,
    /// The same of IPv6.
    pub mgmt_ip6: Option<std::net::Ipv6Addr>,
    /// Object that they belong to.
    pub mgmt_oid: Option<String>,
    /// Seconds since it last sent.
    pub sent_ago: Option<f64>,
    /// Seconds since it last heard somebody.
    pub heard_ago: Option<f64>,
    /// There are more neighbours than it has room for.
    pub too_many_neighbors: bool,
    /// In order of coming.
    pub neighbors: Vec<NeighborInfo>,
    /// Counts.
    pub statistics: Statistics,
    #[serde(skip)]
    mac: MacAddr,
}

/// The answer of [`ShowLldp`].
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// Name that is sent.
    pub system_name: Option<String>,
    /// Who the router is.
    pub chassis: Option<MacAddr>,
    /// Intervals that what is sent holds for.
    pub tx_hold: u32,
    /// Seconds between data units.
    pub tx_interval: u32,
    /// By number of the interface.
    pub ports: Vec<PortInfo>,
    #[serde(skip)]
    detail: bool,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn neighbor(known: &Neighbour, now: u64) -> NeighborInfo {
    NeighborInfo {
        info: known.info.clone(),
        heard_ago: seconds(now.saturating_sub(known.heard)),
        changed_ago: seconds(now.saturating_sub(known.changed)),
        known_for: seconds(now.saturating_sub(known.since)),
        expires_in: seconds(known.expires.saturating_sub(now)),
    }
}

fn info(router: &Router, index: IfIndex, port: &Port, now: u64) -> PortInfo {
    let ago = |time: Option<u64>| time.map(|time| seconds(now.saturating_sub(time)));
    let (agent, inbox, counts) = (&port.agent, &port.inbox, port.agent.counts);
    let Settings { port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid } = port.settings.clone();
    PortInfo {
        interface: router.interfaces.name(index),
        sw_if_index: index.0,
        up: agent.is_up(),
        port_desc,
        mgmt_ip4,
        mgmt_ip6,
        mgmt_oid,
        sent_ago: ago(agent.last_sent),
        heard_ago: ago(agent.last_heard),
        too_many_neighbors: now < agent.crowded_until,
        neighbors: agent.neighbours().iter().filter(|known| now < known.expires).map(|known| neighbor(known, now)).collect(),
        statistics: Statistics {
            frames_out: counts.sent,
            lldpdu_length_errors: counts.length_errors,
            frames_in: inbox.frames.load(Ordering::Relaxed),
            frames_discarded: inbox.discarded.load(Ordering::Relaxed),
            frames_in_errors: inbox.errors.load(Ordering::Relaxed),
            tlvs_discarded: counts.tlvs_discarded,
            tlvs_unrecognized: counts.tlvs_unrecognized,
            ageouts: counts.ageouts,
            table_inserts: counts.inserts,
            table_deletes: counts.deletes,
            table_drops: counts.drops,
        },
        mac: router.interfaces.get(index).map_or(MacAddr::ZERO, |interface| interface.link_mac()),
    }
}

/// All interfaces with LLDP.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router, detail: bool) -> Result<Shown, OpError> {
    let now = router.graph.clock().timer_now();
    let known = router.state::<Lldp>()?;
    Ok(Shown {
        system_name: known.name(),
        chassis: known.chassis,
        tx_hold: known.hold,
        tx_interval: known.interval,
        ports: known.ports().map(|(index, port)| info(router, index, port, now)).collect(),
        detail,
    })
}

impl Execute<Router> for ShowLldp {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        shown(router, self.detail).map(Outcome::Done)
    }
}

fn ago(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1}s ago"))
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        if self.detail {
            return self.details(out);
        }
        let table = TextTable::new()
            .column_with("Local interface", Align::Left, 25, Align::Left)
            .column_with("Peer chassis ID", Align::Left, 25, Align::Left)
            .column_with("Remote port ID", Align::Left, 25, Align::Left)
            .column_with("System name", Align::Left, 20, Align::Left)
            .column_with("Last heard", Align::Centre, 15, Align::Centre)
            .column_with("Last sent", Align::Centre, 15, Align::Centre)
            .column_with("Status", Align::Left, 0, Align::Left)
            .gap(1);
        table.heading(out);
        for port in &self.ports {
            let sent = ago(port.sent_ago);
            for known in &port.neighbors {
                let Info { chassis, port: of, system_name, .. } = &known.info;
                let name = system_name.as_deref().unwrap_or_default();
                table.row(out, &[&port.interface, chassis, of, &name, &ago(Some(known.heard_ago)), &sent, &"active"]);
            }
            if port.neighbors.is_empty() {
                let status = if port.up { "inactive" } else { "down" };
                table.row(out, &[&port.interface, &"", &"", &"", &ago(port.heard_ago), &sent, &status]);
            }
        }
    }
}

fn line(out: &mut String, what: &str, value: Option<&impl std::fmt::Display>) {
    if let Some(value) = value {
        let _ = writeln!(out, "{what}: {value}");
    }
}

impl Shown {
    fn details(&self, out: &mut String) {
        out.push_str("LLDP configuration:\n");
        line(out, "System name", self.system_name.as_ref());
        line(out, "Chassis ID", self.chassis.as_ref());
        let _ = writeln!(out, "Configured tx-hold: {}\nConfigured tx-interval: {}", self.tx_hold, self.tx_interval);
        out.push_str("\nLLDP-enabled interface table:\n");
        for port in &self.ports {
            let _ = writeln!(out, "\nLocal Interface name: {}", port.interface);
            line(out, "Local Port Description", port.port_desc.as_ref());
            if port.mgmt_ip4.is_none() && port.mgmt_ip6.is_none() {
                line(out, "Local Management MAC address", Some(&port.mac));
            }
            line(out, "Local Management address", port.mgmt_ip4.as_ref());
            line(out, "Local Management address IPV6", port.mgmt_ip6.as_ref());
            line(out, "Local Management address OID", port.mgmt_oid.as_ref());
            let state = match (port.up, port.neighbors.is_empty()) {
                (false, _) => "interface down",
                (true, false) => "active",
                (true, true) if port.heard_ago.is_some() => "inactive(timeout)",
                (true, true) => "inactive",
            };
            let _ = writeln!(out, "Interface/peer state: {state}\nLast packet sent: {}", ago(port.sent_ago));
            let _ = writeln!(out, "Last packet received: {}", ago(port.heard_ago));
            if port.too_many_neighbors {
                out.push_str("There are more neighbors than there is room for\n");
            }
            port.neighbors.iter().for_each(|known| details(known, out));
            let s = &port.statistics;
            let _ = writeln!(out, "Frames out {}, length errors {}", s.frames_out, s.lldpdu_length_errors);
            let (frames, discarded, errors) = (s.frames_in, s.frames_discarded, s.frames_in_errors);
            let _ = writeln!(out, "Frames in {frames}, discarded {discarded}, errors {errors}");
            let _ = writeln!(out, "TLVs discarded {}, unrecognized {}", s.tlvs_discarded, s.tlvs_unrecognized);
            let Statistics { table_inserts, table_deletes, table_drops, ageouts, .. } = s;
            let _ = writeln!(out, "Neighbors in {table_inserts}, out {table_deletes} (aged {ageouts}), dropped {table_drops}");
        }
    }
}

fn words(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|one| one.words()).collect::<Vec<_>>().join(", ")
}

fn details(known: &NeighborInfo, out: &mut String) {
    let info = &known.info;
    let _ = writeln!(out, "Peer chassis ID: {}({})", info.chassis, info.chassis.kind.words());
    let _ = writeln!(out, "  Remote port ID: {}({})", info.port, info.port.kind.words());
    line(out, "  Port description", info.port_description.as_ref());
    line(out, "  System name", info.system_name.as_ref());
    line(out, "  System description", info.system_description.as_ref());
    if !info.capabilities.is_empty() {
        let (can, is) = (words(&info.capabilities), words(&info.enabled_capabilities));
        let _ = writeln!(out, "  Capabilities: {can}; enabled: {is}");
    }
    for management in &info.management {
        let _ = write!(out, "  Management address: {}, interface {}", management.address, management.interface);
        let _ = writeln!(out, "{}", management.oid.as_ref().map_or_else(String::new, |oid| format!(", OID {oid}")));
    }
    line(out, "  Port VLAN", info.port_vlan.as_ref());
    line(out, "  Largest frame", info.largest_frame.as_ref());
    let NeighborInfo { heard_ago, expires_in, known_for, changed_ago, .. } = known;
    let _ = writeln!(out, "  TTL: {} s; expires in {expires_in:.0} s, heard {heard_ago:.1} s ago", info.ttl);
    let _ = writeln!(out, "  Known for {known_for:.0} s, changed {changed_ago:.0} s ago");
}
