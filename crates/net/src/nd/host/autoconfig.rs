//! Addresses and default routes by advertisements, and their lifetimes (RFC 4862, 5.5; RFC 4861, 6.3.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::ndp::PrefixInfo;
use quiver_wire::{IpPrefix, Ipv6Prefix};

use super::super::{INFINITE, PROCESS};
use super::heard::Advert;
use super::{HostError, SolicitConfig, solicit};
use crate::Router;
use crate::fib::{Path, Source};
use crate::neighbor::state::SECOND;

/// Addresses that advertisements can give an interface, and routers that it knows by them.
const LIMIT: usize = 16;
/// What is left of a lifetime is not made shorter than this by an advertisement, ns (RFC 4862, 5.5.3 e).
const TWO_HOURS: u64 = 7200 * SECOND;
/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// What an interface takes from advertisements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutoconfigConfig {
    /// Default routes by the routers that advertise, beside addresses.
    pub default_route: bool,
}

/// An address by advertisements. Times are ns of timer time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Length with which the interface has it.
    pub len: u8,
    /// When it is removed.
    pub valid: u64,
    /// When it becomes deprecated.
    pub preferred: u64,
}

/// A router by advertisements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedRouter {
    /// User's number of the table with the default route.
    pub table: u32,
    /// When it is a router no more, ns of timer time.
    pub until: u64,
    /// Preference of its path: 0 for high, 1 for medium, 2 for low (RFC 4191, 2.1).
    pub preference: u8,
}

/// State of all interfaces.
#[derive(Default)]
pub(super) struct Autoconfig {
    interfaces: BTreeMap<IfIndex, AutoconfigConfig>,
    addresses: BTreeMap<(IfIndex, Ipv6Addr), Learned>,
    routers: BTreeMap<(IfIndex, Ipv6Addr), LearnedRouter>,
    /// Addresses that were refused: the log tells of each once.
    refused: BTreeSet<(IfIndex, Ipv6Addr)>,
}

impl Autoconfig {
    pub fn forget_address(&mut self, interface: IfIndex, address: Ipv6Addr) {
        self.addresses.remove(&(interface, address));
    }
}

impl Router {
    /// What an interface takes from advertisements; `None`: nothing.
    pub fn autoconfig(&self, interface: IfIndex) -> Option<AutoconfigConfig> {
        self.nd.host.autoconfig.interfaces.get(&interface).copied()
    }

    /// Whether an interface has an address by advertisements: it is no part of the configuration.
    pub fn is_autoconfigured(&self, interface: IfIndex, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(a) if self.nd.host.autoconfig.addresses.contains_key(&(interface, a)))
    }

    /// Whether an address is to be no source any more where there is another (RFC 4862, 5.5.4).
    pub fn is_deprecated(&self, interface: IfIndex, address: IpAddr) -> bool {
        let IpAddr::V6(address) = address else { return false };
        let learned = self.nd.host.autoconfig.addresses.get(&(interface, address));
        learned.is_some_and(|learned| learned.preferred <= self.graph.clock().timer_now())
    }

    /// Addresses of an interface by advertisements.
    pub fn learned_addresses(&self, interface: IfIndex) -> Vec<(Ipv6Addr, Learned)> {
        of(&self.nd.host.autoconfig.addresses, interface)
    }

    /// Routers of an interface's link by advertisements.
    pub fn learned_routers(&self, interface: IfIndex) -> Vec<(Ipv6Addr, LearnedRouter)> {
        of(&self.nd.host.autoconfig.routers, interface)
    }

    /// Sets what an interface takes from advertisements. Beginning enables IPv6 and solicits routers; ending takes away what there is.
    ///
    /// # Errors
    /// No such interface, or none that can have IPv6 addresses of its own; nothing has changed then.
    pub fn set_autoconfig(&mut self, interface: IfIndex, config: Option<AutoconfigConfig>) -> Result<(), HostError> {
        let known = self.interfaces.get(interface).ok_or(HostError::NoInterface(interface.0))?;
        let before = self.autoconfig(interface);
        let Some(config) = config else {
            self.nd.host.autoconfig.interfaces.remove(&interface);
            if before.is_some() {
                self.nd.host.solicit.forget(interface);
                take_addresses(self, interface);
                take_routers(self, interface);
                self.publish_view(interface, false);
            }
            return Ok(());
        };
        if !known.has_link_layer() {
            return Err(HostError::NoLinkLayer(known.name.clone()));
        }
        self.enable_ip6(interface)?;
        self.nd.host.adverts.want();
        self.nd.host.autoconfig.interfaces.insert(interface, config);
        self.publish_view(interface, false);
        if !config.default_route {
            take_routers(self, interface);
        }
        if before.is_none_or(|before| config.default_route && !before.default_route) {
            solicit::begin(self, interface, SolicitConfig::default());
        }
        Ok(())
    }
}

fn of<T: Copy>(all: &BTreeMap<(IfIndex, Ipv6Addr), T>, interface: IfIndex) -> Vec<(Ipv6Addr, T)> {
    let (first, last) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX));
    all.range((interface, first)..=(interface, last)).map(|((_, address), value)| (*address, *value)).collect()
}

/// When a lifetime of so many seconds ends.
fn until(now: u64, seconds: u32) -> u64 {
    if seconds == INFINITE { NEVER } else { now + u64::from(seconds) * SECOND }
}

/// An advertisement came.
pub(super) fn heard(router: &mut Router, advert: &Advert, now: u64) {
    let interface = advert.interface;
    let Some(config) = router.autoconfig(interface) else { return };
    if config.default_route {
        hear_router(router, advert, now);
    }
    for info in advert.prefixes() {
        if info.flags & PrefixInfo::AUTONOMOUS != 0 {
            hear_prefix(router, interface, info, now);
        }
    }
}

fn hear_router(router: &mut Router, advert: &Advert, now: u64) {
    let (interface, key) = (advert.interface, (advert.interface, advert.router));
    let seconds = advert.message.router_lifetime();
    let routers = &mut router.nd.host.autoconfig.routers;
    if seconds == 0 {
        if let Some(gone) = routers.remove(&key) {
            update_route(router, gone.table);
        }
        return;
    }
    let preference = match advert.flags() >> 3 & 3 {
        0b01 => 0,
        0b11 => 2,
        // What is reserved counts as medium (RFC 4191, 2.2).
        _ => 1,
    };
    let until = now + u64::from(seconds) * SECOND;
    let full = of(routers, interface).len() >= LIMIT;
    match routers.get_mut(&key) {
        Some(known) => {
            known.until = until;
            if known.preference != preference {
                known.preference = preference;
                let table = known.table;
                update_route(router, table);
            }
        }
        None if !full => {
            let Some(table) = router.interfaces.get(interface).map(|i| i.tables.1) else { return };
            router.nd.host.autoconfig.routers.insert(key, LearnedRouter { table, until, preference });
            update_route(router, table);
        }
        None => {}
    }
}

/// The default route of a table: a path for each of its routers.
fn update_route(router: &mut Router, table: u32) {
    let all = router.nd.host.autoconfig.routers.iter().filter(|(_, learned)| learned.table == table);
    let path = |((interface, address), learned): (&(IfIndex, Ipv6Addr), &LearnedRouter)| Path {
        preference: learned.preference,
        ..Path::neighbor(*interface, IpAddr::V6(*address))
    };
    let paths: Vec<Path> = all.map(path).collect();
    let Ok(default) = IpPrefix::new(Ipv6Addr::UNSPECIFIED.into(), 0) else { return };
    let result = match paths.is_empty() {
        true => router.remove_route(table, default, Source::Autoconfig, None),
        false => router.replace_route(table, default, Source::Autoconfig, paths),
    };
    if let Err(error) = result {
        tracing::warn!(target: "ip6/nd", table, "default route by router advertisements: {error}");
    }
}

/// RFC 4862, 5.5.3.
fn hear_prefix(router: &mut Router, interface: IfIndex, info: &PrefixInfo, now: u64) {
    let (valid, preferred) = (info.valid_lifetime.get(), info.preferred_lifetime.get());
    let Some(prefix) = info.prefix().map(Ipv6Prefix::masked) else { return };
    let network = prefix.network().to_bits();
    if is_link_local(network) || preferred > valid || prefix.len() != 64 {
        return;
    }
    let Some(identifier) = router.interfaces.get(interface).map(|i| i.link_local().to_bits() & u128::from(u64::MAX)) else {
        return;
    };
    let address = Ipv6Addr::from_bits(network | identifier);
    let key = (interface, address);
    let (valid_until, preferred_until) = (until(now, valid), until(now, preferred));
    let auto = &mut router.nd.host.autoconfig;
    if let Some(known) = auto.addresses.get_mut(&key) {
        let left = known.valid.saturating_sub(now);
        if valid_until.saturating_sub(now) > TWO_HOURS || valid_until > known.valid {
            known.valid = valid_until;
        } else if left > TWO_HOURS {
            known.valid = now + TWO_HOURS;
        }
        known.preferred = preferred_until.min(known.valid);
        return;
    }
    if valid == 0 || of(&auto.addresses, interface).len() >= LIMIT {
        return;
    }
    // A prefix that is not said to be on the link is reached by a router (RFC 5942, 4).
    let len = if info.flags & PrefixInfo::ON_LINK != 0 { 64 } else { 128 };
    // Before it is added: listeners that ask learn that it is none of the configuration.
    auto.addresses.insert(key, Learned { len, valid: valid_until, preferred: preferred_until });
    match router.add_address(interface, address.into(), len) {
        Ok(()) => {
            router.nd.host.autoconfig.refused.remove(&key);
        }
        Err(error) => {
            let auto = &mut router.nd.host.autoconfig;
            auto.addresses.remove(&key);
            if auto.refused.len() < LIMIT && auto.refused.insert(key) {
                tracing::warn!(target: "ip6/nd", "address by a router advertisement: {error}");
            }
        }
    }
}

fn take_address(router: &mut Router, interface: IfIndex, address: Ipv6Addr) {
    let Some(learned) = router.nd.host.autoconfig.addresses.remove(&(interface, address)) else { return };
    if let Err(error) = router.remove_address(interface, address.into(), learned.len) {
        tracing::warn!(target: "ip6/nd", "address by a router advertisement: {error}");
    }
}

fn take_addresses(router: &mut Router, interface: IfIndex) {
    for (address, _) in router.learned_addresses(interface) {
        take_address(router, interface, address);
    }
}

fn take_routers(router: &mut Router, interface: IfIndex) {
    let mut tables = BTreeSet::new();
    for (address, learned) in router.learned_routers(interface) {
        router.nd.host.autoconfig.routers.remove(&(interface, address));
        tables.insert(learned.table);
    }
    tables.into_iter().for_each(|table| update_route(router, table));
}

/// Ends what has ended; says when to be called next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let auto = &router.nd.host.autoconfig;
    let old: Vec<(IfIndex, Ipv6Addr)> = auto.addresses.iter().filter(|(_, a)| a.valid <= now).map(|(key, _)| *key).collect();
    old.into_iter().for_each(|(interface, address)| take_address(router, interface, address));
    let auto = &mut router.nd.host.autoconfig;
    let gone: BTreeSet<u32> = auto.routers.values().filter(|r| r.until <= now).map(|r| r.table).collect();
    auto.routers.retain(|_, r| r.until > now);
    gone.into_iter().for_each(|table| update_route(router, table));
    let auto = &router.nd.host.autoconfig;
    let ends = auto.addresses.values().map(|a| a.valid).chain(auto.routers.values().map(|r| r.until));
    ends.min().unwrap_or(NEVER).min(now + 3600 * SECOND)
}

/// An interface goes, with its addresses and the paths over it.
pub(super) fn forget(router: &mut Router, interface: IfIndex) {
    let auto = &mut router.nd.host.autoconfig;
    auto.interfaces.remove(&interface);
    auto.addresses.retain(|(of, _), _| *of != interface);
    auto.refused.retain(|(of, _)| *of != interface);
    take_routers(router, interface);
}

/// Takes up an address or a router of the process before.
pub(super) fn restore(router: &mut Router, interface: IfIndex, address: Ipv6Addr, learned: Learned) -> bool {
    if router.autoconfig(interface).is_none() || of(&router.nd.host.autoconfig.addresses, interface).len() > LIMIT {
        return false;
    }
    let new = router.nd.host.autoconfig.addresses.insert((interface, address), learned).is_none();
    if new && router.add_address(interface, address.into(), learned.len).is_err() {
        router.nd.host.autoconfig.addresses.remove(&(interface, address));
        return false;
    }
    router.wake_process(PROCESS, learned.valid);
    true
}

/// See [`restore`].
pub(super) fn restore_router(router: &mut Router, interface: IfIndex, address: Ipv6Addr, learned: LearnedRouter) -> bool {
    if router.autoconfig(interface).is_none_or(|config| !config.default_route) {
        return false;
    }
    router.nd.host.autoconfig.routers.insert((interface, address), learned);
    update_route(router, learned.table);
    router.wake_process(PROCESS, learned.until);
    true
}

/// Takes away what the process before does not say any more.
pub(super) fn keep_only(router: &mut Router, addresses: &BTreeSet<(IfIndex, Ipv6Addr)>, routers: &BTreeSet<(IfIndex, Ipv6Addr)>) {
    let auto = &router.nd.host.autoconfig;
    let gone: Vec<_> = auto.addresses.keys().filter(|key| !addresses.contains(key)).copied().collect();
    gone.into_iter().for_each(|(interface, address)| take_address(router, interface, address));
    let auto = &mut router.nd.host.autoconfig;
    let gone: Vec<_> = auto.routers.iter().filter(|(key, _)| !routers.contains(key)).map(|(key, r)| (*key, r.table)).collect();
    for (key, table) in gone {
        router.nd.host.autoconfig.routers.remove(&key);
        update_route(router, table);
    }
}

/// All there is, for the next process.
pub(super) type All = (Vec<((IfIndex, Ipv6Addr), Learned)>, Vec<((IfIndex, Ipv6Addr), LearnedRouter)>);

/// See [`All`].
pub(super) fn all(router: &Router) -> All {
    let auto = &router.nd.host.autoconfig;
    (auto.addresses.iter().map(|(k, v)| (*k, *v)).collect(), auto.routers.iter().map(|(k, v)| (*k, *v)).collect())
}
