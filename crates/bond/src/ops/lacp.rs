//! What is shown of LACP.

use std::fmt::Write as _;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use quiver_wire::MacAddr;
use serde::Serialize;

use crate::control::Bonds;
use crate::lacp::lag::{Mux, Port, Receive};
use crate::lacp::pdu::{Info, state};
use crate::machines;

request! {
    /// Shows members of bonds with LACP, and what is known of the other side.
    pub read ShowLacp "lacp_show" ["show lacp"] {
        /// One member; all where absent.
        pub interface: Option<IfRef> = "<if>",
        /// With counts and the states in words.
        pub details: bool = "details",
    }
}

/// One side of a link.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Priority of the system.
    pub system_priority: u16,
    /// The system.
    pub system: MacAddr,
    /// Ports with the same key can be together.
    pub key: u16,
    /// Priority of the port.
    pub port_priority: u16,
    /// The port.
    pub port: u16,
    /// Bits of its state.
    pub state: u8,
    /// The same in words.
    pub states: Vec<&'static str>,
}

impl From<&Info> for Side {
    fn from(info: &Info) -> Self {
        let states = state::NAMES.iter().enumerate().filter(|(bit, _)| info.state >> bit & 1 != 0).map(|(_, name)| *name);
        let Info { system_priority, system, key, port_priority, port, state } = *info;
        Self { system_priority, system, key, port_priority, port, state, states: states.collect() }
    }
}

/// A member.
#[derive(Debug, Clone, Serialize)]
pub struct PortInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Its bond.
    pub bond: String,
    /// What is known of the partner.
    pub receive: Receive,
    /// How far it is.
    pub mux: Mux,
    /// It belongs to the aggregate.
    pub selected: bool,
    /// Its link is up.
    pub enabled: bool,
    /// Seconds between data units that it sends; none where both sides wait to be spoken to.
    pub interval: Option<u64>,
    /// Data units received.
    pub received: u64,
    /// Data units sent.
    pub sent: u64,
    /// Frames that were of no use.
    pub bad: u64,
    /// Markers answered.
    pub markers: u64,
    /// This side.
    pub actor: Side,
    /// The other side.
    pub partner: Side,
}

fn info(router: &Router, bond: IfIndex, interface: IfIndex, port: &Port) -> PortInfo {
    PortInfo {
        interface: router.interfaces.name(interface),
        sw_if_index: interface.0,
        bond: router.interfaces.name(bond),
        receive: port.receive,
        mux: port.mux,
        selected: port.selected,
        enabled: port.enabled,
        interval: port.interval().map(|ns| ns / 1_000_000_000),
        received: port.counts.received,
        sent: port.counts.sent,
        bad: port.counts.bad,
        markers: port.counts.markers,
        actor: (&port.actor).into(),
        partner: (&port.partner).into(),
    }
}

/// One member, or all.
///
/// # Errors
/// The plugin is off.
pub fn ports(router: &mut Router, one: Option<IfIndex>) -> Result<Vec<PortInfo>, OpError> {
    router.state::<Bonds>()?;
    let mut all = Vec::new();
    for index in machines::speaking(router) {
        let Some(lag) = machines::lag(router, index) else { continue };
        let Some(bond) = router.state::<Bonds>()?.get(index) else { continue };
        for member in bond.members.iter().filter(|member| one.is_none_or(|one| one == member.interface)) {
            all.extend(lag.port(member.place).map(|port| info(router, index, member.interface, port)));
        }
    }
    Ok(all)
}

/// The answer of [`ShowLacp`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Shown {
    /// By bond, in order of adding.
    pub ports: Vec<PortInfo>,
    #[serde(skip)]
    details: bool,
}

impl Execute<Router> for ShowLacp {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        let ports = ports(router, one)?;
        if let Some(one) = one.filter(|_| ports.is_empty()) {
            let text = format!("{} is not a member of a bond with LACP", router.interfaces.name(one));
            return Err(OpError::new(retval::INVALID_INTERFACE, text).key("interface"));
        }
        Ok(Outcome::Done(Shown { ports, details: self.details }))
    }
}

fn of_receive(receive: Receive) -> &'static str {
    match receive {
        Receive::Disabled => "port disabled",
        Receive::Expired => "expired",
        Receive::Defaulted => "defaulted",
        Receive::Current => "current",
    }
}

fn of_mux(mux: Mux) -> &'static str {
    match mux {
        Mux::Detached => "detached",
        Mux::Waiting => "waiting",
        Mux::Attached => "attached",
        Mux::Collecting => "collecting",
        Mux::Distributing => "collecting distributing",
    }
}

/// The bits of a state, highest first, as VPP prints them.
fn bits(state: u8) -> String {
    (0..8).rev().map(|bit| format!("{:>3}", state >> bit & 1)).collect::<Vec<_>>().join(" ")
}

fn side(Side { system_priority, system, key, port_priority, port, .. }: &Side) -> String {
    format!("({system_priority:04x},{system},{key:04x},{port_priority:04x},{port:04x})")
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        if self.details {
            return self.ports.iter().for_each(|port| details(port, out));
        }
        let heading = "exp/def/dis/col/syn/agg/tim/act";
        let _ = writeln!(out, "{:<55} {:<32} {:<32}", "", "actor state", "partner state");
        let _ =
            writeln!(out, "{:<25} {:<12} {:<16} {heading:<31}  {heading:<31}", "interface name", "sw_if_index", "bond interface");
        for port in &self.ports {
            let (ours, theirs) = (bits(port.actor.state), bits(port.partner.state));
            let _ = writeln!(out, "{:<25} {:<12} {:<16} {ours}  {theirs}", port.interface, port.sw_if_index, port.bond);
            let _ = writeln!(out, "  LAG ID: [{}, {}]", side(&port.actor), side(&port.partner));
            let _ = writeln!(out, "  RX-state: {}, MUX-state: {}", of_receive(port.receive), of_mux(port.mux));
        }
    }
}

fn details(port: &PortInfo, out: &mut String) {
    let PortInfo { received, sent, bad, markers, enabled, selected, .. } = port;
    let _ = writeln!(out, "  {} of {}", port.interface, port.bond);
    let _ = writeln!(out, "    LACP PDUs received: {received}, sent: {sent}, bad: {bad}, markers answered: {markers}");
    let _ = writeln!(out, "    port enabled: {enabled}, selected: {selected}");
    let every = port.interval.map_or_else(|| "only when spoken to".to_owned(), |interval| format!("every {interval} s"));
    let _ = writeln!(out, "    sends {every}");
    let _ = writeln!(out, "    RX-state: {}, MUX-state: {}", of_receive(port.receive), of_mux(port.mux));
    for (name, side) in [("Actor", &port.actor), ("Partner", &port.partner)] {
        let Side { system_priority, system, key, port_priority, port, state, states } = side;
        let _ = writeln!(out, "    {name}\n      system: {system}, priority {system_priority}, key {key}");
        let _ = writeln!(out, "      port: {port}, priority {port_priority}");
        let _ = writeln!(out, "      state: {state:#04x} {}", states.join(", "));
    }
}
