//! `ip6_nd`: router advertisements.

use std::net::IpAddr;

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_wire::Ipv6Prefix;

use crate::api::{ALL, Details, Handlers, from_address, index_of, prefix};
use crate::nd::ops::ra_error;
use crate::nd::{INFINITE, PrefixConfig, RaConfig};
use crate::{IfIndex, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<SwInterfaceIp6ndRaConfig, SwInterfaceIp6ndRaConfigReply>(configure);
    handlers.act::<SwInterfaceIp6ndRaPrefix, SwInterfaceIp6ndRaPrefixReply>(set_prefix);
    handlers.dump::<SwInterfaceIp6ndRaDump>(dump);
}

/// An interface with IPv6.
fn enabled(router: &Router, index: &InterfaceIndex) -> Result<IfIndex, OpError> {
    let index = index_of(router, index)?;
    match has_ip6(router, index) {
        true => Ok(index),
        false => Err(OpError::new(retval::IP6_NOT_ENABLED, "the interface has no IPv6").key("sw_if_index")),
    }
}

fn has_ip6(router: &Router, index: IfIndex) -> bool {
    router.interfaces.get(index).is_some_and(|i| i.addresses.iter().any(|(a, _)| a.is_ipv6()))
}

fn out_of_range(key: &'static str, value: u32) -> OpError {
    OpError::new(retval::INVALID_VALUE, format!("{value} is out of range")).key(key)
}

/// What is 0 or not set stays; with `is_no`, what is set goes back to what it is at first.
fn configure(router: &mut Router, m: SwInterfaceIp6ndRaConfig) -> Result<(), OpError> {
    let index = enabled(router, &m.sw_if_index)?;
    let (mut config, usual) = (router.ra_config(index), RaConfig::default());
    // A wish is a wish to advertise, unless it says the contrary.
    config.send = true;
    let set = |asked: u8, value: &mut bool| {
        if asked == 1 {
            *value = !m.is_no;
        }
    };
    set(m.managed, &mut config.managed);
    set(m.other, &mut config.other);
    set(m.ll_option, &mut config.hide_link_address);
    set(m.send_unicast, &mut config.unicast);
    if m.suppress == 1 || m.cease == 1 {
        config.send = m.is_no;
    }
    if m.max_interval != 0 {
        let max = u16::try_from(m.max_interval).map_err(|_| out_of_range("max_interval", m.max_interval))?;
        config.interval_max = if m.is_no { usual.interval_max } else { max };
        config.interval_min = None;
    }
    if m.min_interval != 0 {
        let min = u16::try_from(m.min_interval).map_err(|_| out_of_range("min_interval", m.min_interval))?;
        config.interval_min = if m.is_no { usual.interval_min } else { Some(min) };
    }
    if m.default_router == 1 {
        // VPP takes what is more for the most.
        let lifetime = u16::try_from(m.lifetime.min(9000)).unwrap_or(9000);
        config.lifetime = if m.is_no { usual.lifetime } else { Some(lifetime) };
    }
    if m.initial_count != 0 {
        let count = u8::try_from(m.initial_count).map_err(|_| out_of_range("initial_count", m.initial_count))?;
        config.initial = if m.is_no { usual.initial } else { count };
    }
    if m.initial_interval != 0 {
        let seconds = u8::try_from(m.initial_interval).map_err(|_| out_of_range("initial_interval", m.initial_interval))?;
        config.initial_interval = if m.is_no { usual.initial_interval } else { seconds };
    }
    router.set_ra_config(index, config).map_err(|e| ra_error(&e))
}

fn set_prefix(router: &mut Router, m: SwInterfaceIp6ndRaPrefix) -> Result<(), OpError> {
    let index = enabled(router, &m.sw_if_index)?;
    let IpAddr::V6(address) = from_address(&m.prefix.address) else {
        return Err(OpError::new(retval::INVALID_ADDRESS_FAMILY, "an IPv6 prefix is needed").key("prefix"));
    };
    let wrong = |_| OpError::new(retval::ADDRESS_LENGTH_MISMATCH, format!("{} is no prefix length", m.prefix.len)).key("prefix");
    let named = Ipv6Prefix::new(address, m.prefix.len).map_err(wrong)?.masked();
    let mut config = router.ra_config(index);
    if m.is_no {
        if config.prefixes.remove(&named).is_none() {
            return Err(OpError::new(retval::INVALID_VALUE, format!("no prefix {named}")).key("prefix"));
        }
        return router.set_ra_config(index, config).map_err(|e| ra_error(&e));
    }
    let usual = PrefixConfig::default();
    let endless = m.val_lifetime == INFINITE || m.pref_lifetime == INFINITE;
    let (valid, preferred) = if endless { (INFINITE, INFINITE) } else { (m.val_lifetime, m.pref_lifetime) };
    let entry = match m.use_default {
        true => usual,
        false => PrefixConfig {
            valid,
            preferred,
            on_link: !(m.off_link || m.no_onlink),
            autonomous: !m.no_autoconfig,
            advertised: !m.no_advertise,
        },
    };
    config.prefixes.insert(named, entry);
    router.set_ra_config(index, config).map_err(|e| ra_error(&e))
}

fn dump(router: &mut Router, m: SwInterfaceIp6ndRaDump, send: &mut dyn FnMut(&dyn Details)) {
    let all = router.interfaces.iter().map(|i| i.index);
    let wanted: Vec<IfIndex> = all.filter(|i| [ALL, i.0].contains(&m.sw_if_index.0) && has_ip6(router, *i)).collect();
    for index in wanted {
        send(&details(router, index));
    }
}

fn details(router: &Router, index: IfIndex) -> SwInterfaceIp6ndRaDetails {
    let (config, figures) = (router.ra_config(index), router.ra_figures(index));
    let seconds = |time: Option<u64>| time.map_or(0.0, |ns| ns as f64 / 1e9);
    let now = router.graph.clock().timer_now() as f64 / 1e9;
    let one = |(named, p): (&Ipv6Prefix, &PrefixConfig)| Ip6ndRaPrefix {
        prefix: prefix(named.addr().into(), named.len()),
        onlink_flag: p.on_link,
        autonomous_flag: p.autonomous,
        val_lifetime: p.valid,
        pref_lifetime: p.preferred,
        valid_lifetime_expires: now + f64::from(p.valid),
        pref_lifetime_expires: now + f64::from(p.preferred),
        decrement_lifetime_flag: false,
        no_advertise: !p.advertised,
    };
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    SwInterfaceIp6ndRaDetails {
        sw_if_index: InterfaceIndex(index.0),
        cur_hop_limit: 64,
        adv_managed_flag: config.managed,
        adv_other_flag: config.other,
        adv_router_lifetime: config.lifetime(),
        adv_link_mtu: router.interfaces.get(index).map_or(0, crate::Interface::mtu6),
        send_radv: config.send,
        cease_radv: false,
        send_unicast: config.unicast,
        adv_link_layer_address: !config.hide_link_address,
        max_radv_interval: config.interval_max.into(),
        min_radv_interval: config.interval_min().into(),
        last_multicast_time: seconds(figures.last),
        next_multicast_time: seconds(figures.next),
        initial_adverts_count: config.initial.into(),
        initial_adverts_interval: config.initial_interval.into(),
        n_advertisements_sent: count(figures.sent),
        n_solicitations_rcvd: count(figures.solicited),
        n_solicitations_dropped: count(figures.joined),
        prefixes: config.prefixes.iter().map(one).collect(),
        ..Default::default()
    }
}
