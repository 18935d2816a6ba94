//! `ip6_nd`: router advertisements.

mod host;

use std::net::{IpAddr, Ipv6Addr};

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_wire::Ipv6Prefix;

use crate::api::{ALL, Clients, Details, Flow, Handlers, from_address, index_of, perform, prefix};
pub(super) use host::tell_advert;

use crate::nd::ops::{SetDad, TRANSMITS_MAX, delay_of};
use crate::nd::{AddressState, DadConfig, INFINITE, PrefixConfig, RaConfig};
use crate::{IfIndex, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<SwInterfaceIp6ndRaConfig, SwInterfaceIp6ndRaConfigReply>(configure);
    handlers.act::<SwInterfaceIp6ndRaPrefix, SwInterfaceIp6ndRaPrefixReply>(set_prefix);
    handlers.dump::<SwInterfaceIp6ndRaDump>(dump);
    handlers.act::<Ip6DadEnableDisable, Ip6DadEnableDisableReply>(set_dad);
    handlers.dump::<Ip6DadDump>(|router, _, send| {
        let DadConfig { transmits, delay_ms } = router.dad_config();
        // What is off has the usual number, as in VPP.
        let dad_transmits = if transmits == 0 { DadConfig::default().transmits } else { transmits };
        let dad_retransmit_delay = f64::from(delay_ms) / 1e3;
        send(&Ip6DadDetails { enabled: transmits > 0, dad_transmits, dad_retransmit_delay });
    });
    handlers.call::<WantIp6DadEvents>(|call, m| {
        let client = call.client;
        let want = |clients: &mut Clients| clients.want::<Ip6DadEvent>(client, m.enable_disable, m.pid);
        let retval = call.router.part_mut::<Clients>().map_or(retval::INVALID_REGISTRATION, want);
        call.send(&WantIp6DadEventsReply { retval });
        Flow::Done
    });
    handlers.reads::<WantIp6DadEvents>();
    host::add(handlers);
}

/// 0 leaves a number as it is.
fn set_dad(router: &mut Router, m: Ip6DadEnableDisable) -> Result<(), OpError> {
    let DadConfig { transmits, delay_ms } = router.dad_config();
    let transmits = match m.dad_transmits {
        _ if !m.enable => 0,
        0 => transmits.max(1),
        n => n,
    };
    if transmits > TRANSMITS_MAX {
        return Err(out_of_range("dad_transmits", transmits.into()));
    }
    let delay_ms = match m.dad_retransmit_delay {
        seconds if seconds == 0.0 || !m.enable => delay_ms,
        seconds => delay_of(seconds).ok_or_else(|| {
            OpError::new(retval::INVALID_VALUE_2, format!("{seconds} is out of range")).key("dad_retransmit_delay")
        })?,
    };
    perform::<SetDad>(router, SetDad { transmits, delay_ms }).map(drop)
}

/// Tells clients how far the check of an address has come: `sent` questions have been asked.
pub(super) fn tell_dad(router: &mut Router, interface: IfIndex, own: Ipv6Addr, state: AddressState, sent: u8) {
    let state = match state {
        AddressState::Tentative => Ip6DadState::IP6_DAD_STATE_TENTATIVE,
        AddressState::Preferred => Ip6DadState::IP6_DAD_STATE_PREFERRED,
        AddressState::Duplicate => Ip6DadState::IP6_DAD_STATE_DUPLICATE,
    };
    let dad_transmits = router.dad_config().transmits;
    let Some(clients) = router.part_mut::<Clients>() else { return };
    clients.tell_wanting(|client_index, pid| Ip6DadEvent {
        client_index,
        pid,
        state: state.clone(),
        sw_if_index: InterfaceIndex(interface.0),
        address: Ip6Address(own.octets()),
        dad_count: sent,
        dad_transmits,
    });
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
    router.set_ra_config(index, config).map_err(OpError::from)
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
        return router.set_ra_config(index, config).map_err(OpError::from);
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
    router.set_ra_config(index, config).map_err(OpError::from)
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
    let one = |(named, p): &(Ipv6Prefix, PrefixConfig)| Ip6ndRaPrefix {
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
