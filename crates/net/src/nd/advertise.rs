//! Router advertisements: what they say, and when they are sent (RFC 4861, section 6.2).

use std::net::Ipv6Addr;

use quiver_graph::IfIndex;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv6::address::{ALL_NODES, is_link_local};
use quiver_wire::ndp::{NdpOption, PrefixInfo, RouterAdvertisement};
use quiver_wire::{Ipv6Prefix, MacAddr, U32Be};
use zerocopy::IntoBytes;

use super::message::{packet, push_option};
use super::prefixes::Prefixes;
use super::{AddressState, Nd, PROCESS};
use crate::Router;
use crate::neighbor::View;
use crate::neighbor::state::SECOND;

/// Hop limit that hosts are told (the value of RFC 1700, as IANA keeps it).
const HOST_HOP_LIMIT: u8 = 64;
/// A solicitation is answered after a random time up to this, ns (MAX_RA_DELAY_TIME).
const ANSWER_DELAY: u64 = SECOND / 2;
/// Time between two advertisements to all nodes, ns (MIN_DELAY_BETWEEN_RAS).
const APART: u64 = 3 * SECOND;
/// Answers to single hosts, per second and interface; more of them are answered by one to all.
const ANSWERS: u32 = 10;
/// Most prefixes configured on an interface.
const PREFIXES: usize = 64;
/// Lifetimes of prefixes, seconds (AdvValidLifetime and AdvPreferredLifetime: 30 and 7 days).
const VALID: u32 = 2_592_000;
const PREFERRED: u32 = 604_800;
/// A lifetime without end.
pub const INFINITE: u32 = u32::MAX;

/// A prefix of the link in advertisements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Seconds for which it is on the link.
    pub valid: u32,
    /// Seconds for which addresses from it are preferred.
    pub preferred: u32,
    /// Hosts reach it without a router.
    pub on_link: bool,
    /// Hosts make addresses from it (SLAAC).
    pub autonomous: bool,
    /// It is in advertisements at all.
    pub advertised: bool,
}

impl Default for PrefixConfig {
    fn default() -> Self {
        Self { valid: VALID, preferred: PREFERRED, on_link: true, autonomous: true, advertised: true }
    }
}

/// What an interface advertises, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaConfig {
    /// Whether it does.
    pub send: bool,
    /// Addresses are to be had from DHCPv6.
    pub managed: bool,
    /// Other configuration is to be had from DHCPv6.
    pub other: bool,
    /// The option with our MAC address is left out.
    pub hide_link_address: bool,
    /// Hosts that ask are answered alone.
    pub unicast: bool,
    /// Seconds for which hosts use this router; `None`: three times the interval. 0: not at all.
    pub lifetime: Option<u16>,
    /// Most seconds between two advertisements.
    pub interval_max: u16,
    /// Fewest; `None`: three quarters of the most.
    pub interval_min: Option<u16>,
    /// How many come faster at first.
    pub initial: u8,
    /// How fast, seconds.
    pub initial_interval: u8,
    /// Prefixes that are not, or not only, those of the interface's addresses.
    pub prefixes: Prefixes,
}

impl Default for RaConfig {
    fn default() -> Self {
        Self {
            send: false,
            managed: false,
            other: false,
            hide_link_address: false,
            unicast: false,
            lifetime: None,
            interval_max: 200,
            interval_min: None,
            initial: 3,
            initial_interval: 16,
            prefixes: Prefixes::default(),
        }
    }
}

impl RaConfig {
    /// Fewest seconds between two advertisements.
    pub fn interval_min(&self) -> u16 {
        // RFC 4861 asks for a third of the most; VPP's three quarters keep hosts as well informed with less spread.
        self.interval_min.unwrap_or(self.interval_max / 4 * 3).clamp(1, self.interval_max.max(1))
    }

    /// Seconds for which hosts use this router.
    pub fn lifetime(&self) -> u16 {
        self.lifetime.unwrap_or(self.interval_max.saturating_mul(3))
    }

    /// Checks what depends on one another.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), RaError> {
        let range = |what, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(RaError::Range { what, value, least, most }) }
        };
        range("ra-interval", self.interval_max.into(), 4, 1800)?;
        if let Some(min) = self.interval_min {
            range("smallest ra-interval", min.into(), 3, (u64::from(self.interval_max) * 3 / 4).max(3))?;
        }
        if let Some(lifetime) = self.lifetime.filter(|l| *l != 0) {
            range("ra-lifetime", lifetime.into(), self.interval_max.into(), 9000)?;
        }
        range("ra-initial count", self.initial.into(), 0, 3)?;
        range("ra-initial interval", self.initial_interval.into(), 1, 16)?;
        if self.prefixes.len() > PREFIXES {
            return Err(RaError::Full(PREFIXES));
        }
        match self.prefixes.iter().find(|(_, p)| p.preferred > p.valid) {
            Some((prefix, p)) => Err(RaError::Lifetimes { prefix: prefix.to_string(), preferred: p.preferred, valid: p.valid }),
            None => Ok(()),
        }
    }
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaError {
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// A value out of range.
    #[error("{what} {value} is out of range, expected {least} to {most}")]
    Range {
        /// What was set.
        what: &'static str,
        /// The value.
        value: u64,
        /// Least that would do.
        least: u64,
        /// Most.
        most: u64,
    },
    /// Hosts would prefer addresses longer than they are valid.
    #[error("{prefix}: preferred lifetime {preferred} is longer than the valid one, {valid}")]
    Lifetimes {
        /// Prefix.
        prefix: String,
        /// Seconds.
        preferred: u32,
        /// Seconds.
        valid: u32,
    },
    /// Too many prefixes.
    #[error("no more than {0} prefixes can be configured on an interface")]
    Full(usize),
}

/// What an interface has sent and heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaFigures {
    /// When the last one to all nodes went, ns of timer time.
    pub last: Option<u64>,
    /// When the next one goes; `None` while there are none to send.
    pub next: Option<u64>,
    /// Advertisements sent.
    pub sent: u64,
    /// Solicitations received.
    pub solicited: u64,
    /// Of them, answered together with another one.
    pub joined: u64,
}

/// An interface's advertisements.
#[derive(Default)]
pub(super) struct Advertiser {
    config: RaConfig,
    figures: RaFigures,
    /// When the next one to all nodes goes, ns; `None` while there are none to send.
    next: Option<u64>,
    /// When the last one to all nodes went.
    last: Option<u64>,
    initial_left: u8,
    /// Second of the last answers to single hosts, and how many there were.
    answers: (u64, u32),
}

/// The message in bytes: from our link-local address, to `dst`.
fn message(config: &RaConfig, view: &View, mtu: u32, src: u128, dst: u128, lifetime: u16) -> Vec<u8> {
    let mut ra = RouterAdvertisement::new(lifetime);
    ra.set(HOST_HOP_LIMIT, config.managed, config.other);
    ra.reachable_time = U32Be::ZERO;
    let mut bytes = ra.as_bytes().to_vec();
    if !config.hide_link_address {
        push_option(&mut bytes, &NdpOption::SourceLinkAddress(view.mac));
    }
    push_option(&mut bytes, &NdpOption::Mtu(mtu));
    for (prefix, p) in prefixes(config, view).iter().filter(|(_, p)| p.advertised) {
        let mut info = PrefixInfo::new(*prefix, p.valid, p.preferred);
        info.flags = if p.on_link { PrefixInfo::ON_LINK } else { 0 } | if p.autonomous { PrefixInfo::AUTONOMOUS } else { 0 };
        push_option(&mut bytes, &NdpOption::Prefix(info));
    }
    packet(src, dst, &mut bytes)
}

/// What is said of prefixes: those of the interface's addresses, and those configured, which have the last word.
fn prefixes(config: &RaConfig, view: &View) -> Prefixes {
    let mut all = Prefixes::default();
    for own in view.v6.iter().filter(|own| !is_link_local(own.address) && own.state != AddressState::Duplicate && own.len < 128) {
        if let Ok(prefix) = Ipv6Prefix::new(Ipv6Addr::from_bits(own.address), own.len) {
            all.insert(prefix.masked(), PrefixConfig::default());
        }
    }
    for (prefix, p) in config.prefixes.iter() {
        all.insert(prefix.masked(), *p);
    }
    all
}

impl Router {
    /// What an interface advertises.
    pub fn ra_config(&self, interface: IfIndex) -> RaConfig {
        self.nd.advertisers.get(&interface).map(|a| a.config.clone()).unwrap_or_default()
    }

    /// What it has sent and heard.
    pub fn ra_figures(&self, interface: IfIndex) -> RaFigures {
        self.nd.advertisers.get(&interface).map(|a| RaFigures { last: a.last, next: a.next, ..a.figures }).unwrap_or_default()
    }

    /// Prefixes in its advertisements, as they are sent now.
    pub fn ra_prefixes(&self, interface: IfIndex) -> Vec<(Ipv6Prefix, PrefixConfig)> {
        let Some(view) = self.neighbor_view(interface) else { return Vec::new() };
        prefixes(&self.ra_config(interface), &view).iter().filter(|(_, p)| p.advertised).copied().collect()
    }

    /// Whether it sends advertisements, if its link allows.
    pub(crate) fn advertises(&self, interface: IfIndex) -> bool {
        self.nd.advertisers.get(&interface).is_some_and(|a| a.config.send)
    }

    /// Sets what an interface advertises. One that stops says so to its hosts first.
    ///
    /// # Errors
    /// No such interface, or values out of range; nothing has changed then.
    pub fn set_ra_config(&mut self, interface: IfIndex, config: RaConfig) -> Result<(), RaError> {
        self.interfaces.get(interface).ok_or(RaError::NoInterface(interface.0))?;
        config.check()?;
        let stops = self.advertises(interface) && !config.send;
        if stops {
            self.cease_advertising(interface);
        }
        let advertiser = self.nd.advertisers.entry(interface).or_default();
        advertiser.config = config;
        advertiser.next = None;
        self.publish_view(interface, false);
        reconsider(self, interface);
        Ok(())
    }

    /// Tells hosts that this is no router of theirs any more (RFC 4861, 6.2.5).
    pub fn cease_advertising(&mut self, interface: IfIndex) {
        send(self, interface, None, true);
    }

    /// Sends the last advertisement of every interface that advertises, before the router ends.
    pub fn cease_all_advertising(&mut self) {
        let interfaces: Vec<_> =
            self.nd.advertisers.iter().filter(|(_, a)| a.config.send).map(|(interface, _)| *interface).collect();
        for interface in interfaces {
            self.cease_advertising(interface);
        }
        // Workers run the graph after each message; where main forwards, it does so here.
        self.graph.fleet().step_here();
    }
}

/// Starts or stops an interface's advertisements as its configuration, link and addresses call for.
pub(super) fn reconsider(router: &mut Router, interface: IfIndex) {
    let able = router.usable_link_local(interface);
    let now = router.graph.clock().timer_now();
    let Some(advertiser) = router.nd.advertisers.get_mut(&interface) else { return };
    if !able || !advertiser.config.send {
        advertiser.next = None;
        return;
    }
    // What has changed is told soon, but never more often than allowed.
    let earliest = advertiser.last.map_or(0, |last| last + APART);
    let next = now.max(earliest);
    if advertiser.next.is_none() {
        advertiser.initial_left = advertiser.config.initial;
    }
    advertiser.next = Some(next);
    router.wake_process(PROCESS, next);
}

/// Sends an advertisement, to all nodes or to one; with lifetime 0 where it is the last. `false` where none can be sent.
fn send(router: &mut Router, interface: IfIndex, to: Option<(Ipv6Addr, MacAddr)>, last: bool) -> bool {
    let Some(view) = router.neighbor_view(interface) else { return false };
    let Some(src) = view.link_local() else { return false };
    let Some(mtu) = router.interfaces.get(interface).map(crate::Interface::mtu6) else { return false };
    let Some(advertiser) = router.nd.advertisers.get_mut(&interface) else { return false };
    let (dst, mac) = to.unwrap_or((ALL_NODES, MacAddr::from_ipv6_multicast(ALL_NODES)));
    let lifetime = if last { 0 } else { advertiser.config.lifetime() };
    let bytes = message(&advertiser.config, &view, mtu, src, dst.to_bits(), lifetime);
    advertiser.figures.sent += 1;
    router.send_frames(vec![(interface, view.frame(mac, EtherType::IPV6, &bytes))]);
    true
}

/// Sends what is due; says when to be called next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let due = |a: &Advertiser| a.next.is_some_and(|t| t <= now);
    let list: Vec<IfIndex> = router.nd.advertisers.iter().filter(|(_, a)| due(a)).map(|(i, _)| *i).collect();
    for interface in list {
        let sent = send(router, interface, None, false);
        let Nd { advertisers, .. } = &router.nd;
        let Some(RaConfig { interval_max, initial_interval, .. }) = advertisers.get(&interface).map(|a| a.config.clone()) else {
            continue;
        };
        let least = advertisers.get(&interface).map_or(1, |a| a.config.interval_min());
        let spread = router.nd.random.below(u64::from(interval_max.saturating_sub(least)) * SECOND);
        let Some(advertiser) = router.nd.advertisers.get_mut(&interface) else { continue };
        if !sent {
            advertiser.next = None;
            continue;
        }
        let mut wait = u64::from(least) * SECOND + spread;
        if advertiser.initial_left > 0 {
            advertiser.initial_left -= 1;
            wait = wait.min(u64::from(initial_interval) * SECOND);
        }
        advertiser.last = Some(now);
        advertiser.next = Some(now + wait.max(APART));
    }
    router.nd.advertisers.values().filter_map(|a| a.next).min().unwrap_or(now + 3600 * SECOND)
}

/// A host asks (RFC 4861, 6.2.6): answered alone where that is configured, else by the next one to all, which comes soon.
pub(super) fn solicited(router: &mut Router, interface: IfIndex, from: Ipv6Addr, mac: Option<MacAddr>, now: u64) {
    let delay = router.nd.random.below(ANSWER_DELAY);
    let able = router.usable_link_local(interface);
    let Some(advertiser) = router.nd.advertisers.get_mut(&interface).filter(|a| a.config.send && able) else { return };
    advertiser.figures.solicited += 1;
    if advertiser.answers.0 != now / SECOND {
        advertiser.answers = (now / SECOND, 0);
    }
    if let Some(mac) = mac.filter(|_| advertiser.config.unicast && !from.is_unspecified() && advertiser.answers.1 < ANSWERS) {
        advertiser.answers.1 += 1;
        send(router, interface, Some((from, mac)), false);
        return;
    }
    let time = (now + delay).max(advertiser.last.map_or(0, |last| last + APART));
    match advertiser.next {
        Some(next) if next <= time => advertiser.figures.joined += 1,
        _ => {
            advertiser.next = Some(time);
            router.wake_process(PROCESS, time);
        }
    }
}
