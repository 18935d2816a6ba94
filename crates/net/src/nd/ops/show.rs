//! `show ip6 interface`, `show ip6 dad`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_wire::Ipv6Prefix;
use quiver_wire::ipv6::address::{ALL_NODES, is_link_local};
use serde::Serialize;

use crate::interface::ops::resolve;
use crate::ip::FamilyId;
use crate::nd::{AddressState, DadConfig};
use crate::{IfIndex, Router};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowInterface>().declare::<ShowDad>();
}

request! {
    /// Shows addresses, groups and router advertisements of interfaces with IPv6.
    pub read ShowInterface "ip6_interface_show" ["show ip6 interface"] {
        /// This one; else all with IPv6.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An address as shown.
#[derive(Debug, Clone, Serialize)]
pub struct AddressReply {
    /// Address.
    pub address: Ipv6Addr,
    /// Length of the link's prefix.
    pub len: u8,
    /// `preferred`, `tentative` or `duplicate`.
    pub state: &'static str,
}

impl AddressReply {
    /// What follows an address that is not in use.
    fn note(&self) -> String {
        if self.state == "preferred" { String::new() } else { format!(" ({})", self.state) }
    }
}

/// What is said of advertisements.
#[derive(Debug, Clone, Serialize)]
pub struct Advertising {
    /// Whether there are any.
    pub send: bool,
    /// Most seconds between two of them.
    pub interval_max: u16,
    /// Fewest.
    pub interval_min: u16,
    /// Seconds for which hosts use this router.
    pub lifetime: u16,
    /// Addresses are to be had from DHCPv6.
    pub managed: bool,
    /// Other configuration is to be had from DHCPv6.
    pub other: bool,
    /// Prefixes in them.
    pub prefixes: Vec<String>,
    /// Sent so far.
    pub sent: u64,
    /// Solicitations received.
    pub solicited: u64,
    /// Solicitations answered together with another one.
    pub joined: u64,
}

/// An interface as shown.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceReply {
    /// Name.
    pub interface: String,
    /// Administratively up.
    pub admin_up: bool,
    /// Addresses.
    pub addresses: Vec<AddressReply>,
    /// Groups that it listens to.
    pub groups: Vec<Ipv6Addr>,
    /// Largest packet.
    pub mtu: u32,
    /// How often it is asked whether an address is taken; 0: never.
    pub dad_transmits: u8,
    /// Router advertisements.
    pub advertising: Advertising,
}

impl Text for InterfaceReply {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "{} is admin {}", self.interface, if self.admin_up { "up" } else { "down" });
        let (local, global): (Vec<_>, Vec<_>) = self.addresses.iter().partition(|a| is_link_local(a.address.to_bits()));
        out.push_str("  Link-local address(es):\n");
        for a in local {
            let _ = writeln!(out, "    {}{}", a.address, a.note());
        }
        if !global.is_empty() {
            out.push_str("  Global unicast address(es):\n");
        }
        for a in global {
            let subnet = Ipv6Prefix::new(a.address, a.len).map(|p| p.masked().to_string()).unwrap_or_default();
            let _ = writeln!(out, "    {}/{} subnet is {subnet}{}", a.address, a.len, a.note());
        }
        out.push_str("  Joined group address(es):\n");
        for group in &self.groups {
            let _ = writeln!(out, "    {group}");
        }
        let ra = &self.advertising;
        if !ra.prefixes.is_empty() {
            out.push_str("  Advertised Prefixes:\n");
        }
        for prefix in &ra.prefixes {
            let _ = writeln!(out, "    {prefix}");
        }
        let _ = writeln!(out, "  MTU is {}", self.mtu);
        match self.dad_transmits {
            0 => out.push_str("  ND DAD is disabled\n"),
            n => drop(writeln!(out, "  ND DAD is enabled, transmits {n}")),
        }
        if ra.send {
            let Advertising { interval_max: max, interval_min: min, lifetime, .. } = ra;
            let _ = writeln!(out, "  ND router advertisements are sent every {max} seconds (min interval is {min})");
            let _ = writeln!(out, "  ND router advertisements live for {lifetime} seconds");
        } else {
            out.push_str("  ND router advertisements are not sent\n");
        }
        let managed = if ra.managed { "DHCPv6" } else { "stateless autoconfig" };
        let _ = writeln!(out, "  Hosts use {managed} for addresses");
        if ra.other {
            out.push_str("  Hosts use DHCPv6 for other configuration\n");
        }
        let _ = writeln!(out, "  ND router advertisements sent {}", ra.sent);
        let _ = writeln!(out, "  ND router solicitations received {}", ra.solicited);
        let _ = writeln!(out, "  ND router solicitations answered together {}", ra.joined);
    }
}

fn lifetime(seconds: u32) -> String {
    if seconds == crate::nd::INFINITE { "infinite".into() } else { seconds.to_string() }
}

fn reply(router: &Router, index: IfIndex) -> Option<InterfaceReply> {
    let interface = router.interfaces.get(index)?;
    let address = |(a, len): &(IpAddr, u8)| match a {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => {
            let state = match router.address_state(index, *address) {
                AddressState::Preferred => "preferred",
                AddressState::Tentative => "tentative",
                AddressState::Duplicate => "duplicate",
            };
            Some(AddressReply { address: *address, len: *len, state })
        }
    };
    let addresses: Vec<AddressReply> = interface.addresses.iter().filter_map(address).collect();
    let joined = router.groups(index, FamilyId::V6).into_iter().filter_map(|joined| match joined.group {
        IpAddr::V6(group) => Some(group),
        IpAddr::V4(_) => None,
    });
    let groups = std::iter::once(ALL_NODES).chain(joined).collect();
    let (config, figures) = (router.ra_config(index), router.ra_figures(index));
    let prefix = |(prefix, p): (Ipv6Prefix, crate::nd::PrefixConfig)| {
        let mut text = format!("prefix {}, length {}", prefix.network(), prefix.len());
        let _ = write!(text, ", valid {}, preferred {}", lifetime(p.valid), lifetime(p.preferred));
        text.push_str(if p.on_link { "" } else { ", off-link" });
        text.push_str(if p.autonomous { "" } else { ", no-autoconfig" });
        text
    };
    let advertising = Advertising {
        send: config.send,
        interval_max: config.interval_max,
        interval_min: config.interval_min(),
        lifetime: config.lifetime(),
        managed: config.managed,
        other: config.other,
        prefixes: if config.send { router.ra_prefixes(index).into_iter().map(prefix).collect() } else { Vec::new() },
        sent: figures.sent,
        solicited: figures.solicited,
        joined: figures.joined,
    };
    Some(InterfaceReply {
        interface: interface.name.clone(),
        admin_up: interface.admin_up,
        mtu: interface.mtu6(),
        addresses,
        groups,
        dad_transmits: router.dad_config().transmits,
        advertising,
    })
}

impl Execute<Router> for ShowInterface {
    type Reply = Vec<InterfaceReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<InterfaceReply>>, OpError> {
        let all: Vec<IfIndex> = match &self.interface {
            Some(name) => vec![resolve(router, name)?],
            None => router.interfaces.iter().map(|i| i.index).collect(),
        };
        let replies = all.into_iter().filter_map(|index| reply(router, index));
        Ok(Outcome::Done(replies.filter(|r| !r.addresses.is_empty()).collect()))
    }
}

request! {
    /// Shows whether IPv6 addresses are checked for duplicates before they are used.
    pub read ShowDad "ip6_dad_show" ["show ip6 dad"] {}
}

/// How addresses are checked.
#[derive(Debug, Clone, Serialize)]
pub struct DadReply {
    /// How often it is asked; 0: addresses are used at once.
    pub transmits: u8,
    /// Milliseconds between two questions.
    pub delay_ms: u16,
}

impl Text for DadReply {
    fn text(&self, out: &mut String, _view: &View) {
        match self.transmits {
            0 => out.push_str("IPv6 DAD configuration:\n  Enabled: no\n"),
            n => {
                let delay = f64::from(self.delay_ms) / 1e3;
                let _ = writeln!(out, "IPv6 DAD configuration:\n  Enabled: yes\n  Transmits: {n}\n  Delay: {delay} s");
            }
        }
    }
}

impl Execute<Router> for ShowDad {
    type Reply = DadReply;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, DadReply>, OpError> {
        let DadConfig { transmits, delay_ms } = router.dad_config();
        Ok(Outcome::Done(DadReply { transmits, delay_ms }))
    }
}

request! {
    /// Shows whether IPv6 addresses that somebody else has are taken off their interfaces, and how many were.
    pub read ShowAutoRemove "ip6_dad_autoremove_show" ["show ip6 dad autoremove"] {}
}

/// What becomes of addresses that somebody else has.
#[derive(Debug, Clone, Serialize)]
pub struct AutoRemoveReply {
    /// They are taken off.
    pub enabled: bool,
    /// How many were.
    pub removed: u64,
}

impl Text for AutoRemoveReply {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "Enabled: {}\nAddresses removed: {}", if self.enabled { "yes" } else { "no" }, self.removed);
    }
}

impl Execute<Router> for ShowAutoRemove {
    type Reply = AutoRemoveReply;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, AutoRemoveReply>, OpError> {
        let (enabled, removed) = router.dad_autoremove();
        Ok(Outcome::Done(AutoRemoveReply { enabled, removed }))
    }
}
