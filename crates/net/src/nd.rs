//! Neighbour discovery (RFC 4861), address configuration's duplicate detection (RFC 4862), router advertisements.
//!
//! ```text
//!  ip6-icmp-input ─┬─ 135 ─► icmp6-neighbor-solicitation ──► answer in place ──► neighbor-output ──► <if>-output
//!   (by type)      ├─ 136 ─► icmp6-neighbor-advertisement ┐
//!                  ├─ 133 ─► icmp6-router-solicitation    ├─► facts ─► neighbour table, DAD, advertisements (main)
//!                  └─ 134 ─► icmp6-router-advertisement  ─┘
//! ```
//!
//! Every message must have hop limit 255, so nothing from off the link is heard; options are walked within the message's
//! length. *Own addresses* are tentative until nobody has objected for a second ([`dad`]); a tentative address is neither
//! answered for nor a source of requests, and a duplicate is given up. *Advertisements* are sent only where the user has
//! configured them (RFC 4861, 6.2.1), at random times and to those who ask ([`advertise`]).
//!
//! Groups that addresses need are told of by [`group`](crate::group), before the first question of duplicate detection.
//!
//! *Other routers'* advertisements configure an interface where that is asked for ([`host`]). Hosts behind another interface are answered
//! for by [`proxy`].
//!
//! Not done here: redirects (this router neither sends nor obeys them).

mod advertise;
pub(crate) mod api;
mod dad;
mod host;
mod message;
mod neighbor;
pub mod ops;
mod prefixes;
mod proxy;
mod router;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::{IfIndex, NodeSpec, TraceEntry};
use quiver_wire::MacAddr;
use quiver_wire::describe::Ip6;
use quiver_wire::icmp6::Icmp6Type;
use quiver_wire::ipv6::address::is_link_local;

pub use advertise::{INFINITE, PrefixConfig, RaConfig, RaError, RaFigures};
pub use dad::{AddressState, DadConfig};
pub use host::{AutoconfigConfig, HostError, Learned, LearnedRouter, SolicitConfig};
pub(crate) use message::{announcement, solicitation, solicitation_from};
pub(crate) use neighbor::answer_for;
pub use prefixes::Prefixes;
pub(crate) use proxy::Proxied;
pub use proxy::ProxyError;

use crate::ip::FamilyId;
use crate::local::RegisterError;
use crate::neighbor::{Teller, is_running, message_counter};
use crate::random::Random;
use crate::restart::Subject;
use crate::{NetError, ProcessSignal, Router};

/// Name of the process that runs duplicate detection and advertisements.
pub(crate) const PROCESS: &str = "ip6-nd-process";

/// State of this module on the main thread.
pub(crate) struct Nd {
    dad: DadConfig,
    /// Addresses that somebody else has are taken off their interface.
    autoremove: bool,
    /// How many were.
    removed: u64,
    addresses: dad::Addresses,
    advertisers: BTreeMap<IfIndex, advertise::Advertiser>,
    random: Random,
    host: host::Host,
}

impl Nd {
    pub fn new(signal: ProcessSignal, seed: u64) -> Self {
        Self {
            dad: DadConfig::default(),
            autoremove: false,
            removed: 0,
            addresses: dad::Addresses::default(),
            advertisers: BTreeMap::new(),
            random: Random::new(seed),
            host: host::Host::new(signal),
        }
    }
}

/// Which node takes which ICMPv6 type.
pub(crate) const TYPES: [(Icmp6Type, &str); 4] = [
    (Icmp6Type::NEIGHBOR_SOLICITATION, "icmp6-neighbor-solicitation"),
    (Icmp6Type::NEIGHBOR_ADVERTISEMENT, "icmp6-neighbor-advertisement"),
    (Icmp6Type::ROUTER_SOLICITATION, "icmp6-router-solicitation"),
    (Icmp6Type::ROUTER_ADVERTISEMENT, "icmp6-router-advertisement"),
];

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let part = &router.neighbors;
    let (views, teller) = (part.views.snapshot(), Teller::new(part.sender.clone()));
    let counter = |name: &str| message_counter(router, &format!("ip6-nd/{name}"));
    let solicitation = neighbor::Solicitation {
        views: views.clone(),
        interfaces: router.data.interfaces.clone(),
        egress: router.egress6(),
        teller: teller.clone(),
        received: counter("rx/requests"),
        replied: counter("tx/replies"),
    };
    let received = counter("rx/replies");
    let advertisement =
        neighbor::Advertisement { views: views.clone(), teller: teller.clone(), received, ears: router.neighbors.ears() };
    let router_solicitation = router::RouterSolicitation { views: views.clone(), teller: teller.clone() };
    let [ns, na, rs, ra] = TYPES.map(|(_, name)| name);
    let nodes = [
        NodeSpec::node(ns, solicitation),
        NodeSpec::node(na, advertisement),
        NodeSpec::node(rs, router_solicitation),
        NodeSpec::node(ra, router::RouterAdvertisementIn { views, teller, adverts: router.nd.host.adverts.clone() }),
    ];
    nodes.map(|node| node.traced(trace)).into()
}

/// Takes the message types and starts the process; nodes exist.
pub(crate) fn init(router: &mut Router) -> Result<(), NetError> {
    for (kind, node) in TYPES {
        router.register_icmp_type(FamilyId::V6, kind.0, node).map_err(|error| match error {
            RegisterError::Graph(error) => NetError::Graph(error),
            _ => NetError::Memory("own message types"),
        })?;
    }
    router.add_process(PROCESS, process);
    host::init(router);
    // Own addresses are checked again, which takes a second; until then they are not used.
    router.add_restart_subject(Subject {
        ready: |router| !router.nd.addresses.are_checked(),
        ..Subject::new("checks of addresses", 1)
    });
    Ok(())
}

/// The packet in words.
fn trace(entry: &TraceEntry, out: &mut String) {
    use std::fmt::Write;
    // An answer has its link header in front already.
    let at = if entry.bytes.first().is_some_and(|b| b >> 4 == 6) { 0 } else { 14.min(entry.bytes.len()) };
    let _ = write!(out, "{}", Ip6(&entry.bytes[at..]));
}

fn process(router: &mut Router, now: u64) -> u64 {
    dad::run(router, now).min(advertise::run(router, now)).min(host::run(router, now)).max(now + 1)
}

impl Router {
    /// State of one of an interface's IPv6 addresses.
    pub fn address_state(&self, interface: IfIndex, address: Ipv6Addr) -> AddressState {
        self.nd.addresses.get(&(interface, address)).map_or(AddressState::Preferred, |a| a.state)
    }

    /// An IPv6 address came or went.
    pub(crate) fn address_changed(&mut self, interface: IfIndex, address: Ipv6Addr, added: bool) {
        self.follow_addresses(interface);
        if added {
            dad::begin(self, interface, address);
        } else {
            self.nd.addresses.remove(&(interface, address));
            host::forget_address(self, interface, address);
        }
        proxy::address_changed(self, interface);
        advertise::reconsider(self, interface);
        host::reconsider(self, interface);
    }

    /// An interface came up, went down, or has another MAC address.
    pub(crate) fn link_changed(&mut self, interface: IfIndex) {
        let addresses: Vec<Ipv6Addr> = self.own_ip6(interface);
        for address in addresses {
            dad::begin(self, interface, address);
        }
        self.publish_view(interface, false);
        advertise::reconsider(self, interface);
        host::link_changed(self, interface);
        host::reconsider(self, interface);
    }

    fn own_ip6(&self, interface: IfIndex) -> Vec<Ipv6Addr> {
        let all = self.interfaces.get(interface).map(|i| i.addresses.as_slice()).unwrap_or_default();
        let v6 = |(a, _): &(IpAddr, u8)| match a {
            IpAddr::V6(a) => Some(*a),
            IpAddr::V4(_) => None,
        };
        all.iter().filter_map(v6).collect()
    }

    /// Tells the link of all usable IPv6 addresses of an interface.
    pub(crate) fn announce_v6(&mut self, interface: IfIndex) {
        for address in self.own_ip6(interface) {
            if self.address_state(interface, address) == AddressState::Preferred {
                self.announce(interface, address.into());
            }
        }
    }

    /// An interface goes.
    pub(crate) fn forget_nd(&mut self, interface: IfIndex) {
        self.nd.addresses.forget(interface);
        self.nd.advertisers.remove(&interface);
        host::forget(self, interface);
        proxy::forget(self, interface);
    }

    /// Somebody else has one of our addresses; `true` where that decides a duplicate detection.
    pub(crate) fn duplicate_found(&mut self, interface: IfIndex, address: Ipv6Addr, mac: MacAddr) -> bool {
        dad::duplicate(self, interface, address, mac)
    }

    /// A host asks for an advertisement.
    pub(crate) fn router_solicited(&mut self, interface: IfIndex, from: IpAddr, mac: Option<MacAddr>, now: u64) {
        if let IpAddr::V6(from) = from {
            advertise::solicited(self, interface, from, mac, now);
        }
    }

    fn usable_link_local(&self, interface: IfIndex) -> bool {
        let usable = |a: &Ipv6Addr| is_link_local(a.to_bits()) && self.address_state(interface, *a) == AddressState::Preferred;
        is_running(self, interface) && self.own_ip6(interface).iter().any(usable)
    }
}

#[cfg(test)]
mod tests;
