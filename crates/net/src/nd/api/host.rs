//! `ip6_nd`, `rd_cp`: soliciting routers, what they advertise, address autoconfiguration, proxy neighbour discovery.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use crate::Router;
use crate::api::{Clients, Flow, Handlers, index_of, perform, prefix, reference};
use crate::nd::SolicitConfig;
use crate::nd::host::Advert;
use crate::nd::ops::{SetAutoconfig, SetNdMirror, SetNdProxy};

pub(super) fn add(handlers: &mut Handlers) {
    handlers.act::<Ip6ndSendRouterSolicitation, Ip6ndSendRouterSolicitationReply>(solicit);
    handlers.act::<Ip6NdAddressAutoconfig, Ip6NdAddressAutoconfigReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        let default_route = m.enable && m.install_default_routes;
        perform::<SetAutoconfig>(router, SetAutoconfig { interface, default_route, disable: !m.enable }).map(drop)
    });
    handlers.act::<Ip6ndProxyAddDel, Ip6ndProxyAddDelReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        perform::<SetNdProxy>(router, SetNdProxy { interface, address: m.ip.0.into(), remove: !m.is_add }).map(drop)
    });
    handlers.act::<Ip6ndProxyEnableDisable, Ip6ndProxyEnableDisableReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        perform::<SetNdMirror>(router, SetNdMirror { interface, enable: m.is_enable }).map(drop)
    });
    handlers.dump::<Ip6ndProxyDump>(|router, _, send| {
        for (interface, address) in router.nd_proxies() {
            send(&Ip6ndProxyDetails { sw_if_index: InterfaceIndex(interface.0), ip: Ip6Address(address.octets()) });
        }
    });
    handlers.call::<WantIp6RaEvents>(|call, m| {
        let client = call.client;
        call.router.nd.host.adverts.want();
        let want = |clients: &mut Clients| clients.want::<Ip6RaEvent>(client, m.enable, m.pid);
        let retval = call.router.part_mut::<Clients>().map_or(retval::INVALID_REGISTRATION, want);
        call.send(&WantIp6RaEventsReply { retval });
        Flow::Done
    });
    handlers.reads::<WantIp6RaEvents>();
}

fn solicit(router: &mut Router, m: Ip6ndSendRouterSolicitation) -> Result<(), OpError> {
    let index = index_of(router, &m.sw_if_index)?;
    let config = SolicitConfig { initial: m.irt, most: m.mrt, count: m.mrc, duration: m.mrd };
    router.solicit_routers(index, (!m.stop).then_some(config)).map_err(OpError::from)
}

/// Tells clients what a router advertises.
pub(in crate::nd) fn tell_advert(router: &mut Router, advert: &Advert) {
    let Some(clients) = router.part_mut::<Clients>() else { return };
    let named = |info: &quiver_wire::ndp::PrefixInfo| {
        let network = info.prefix()?.masked();
        Some(Ip6RaPrefixInfo {
            prefix: prefix(network.network().into(), network.len()),
            flags: info.flags,
            valid_time: info.valid_lifetime.get(),
            preferred_time: info.preferred_lifetime.get(),
        })
    };
    let prefixes: Vec<Ip6RaPrefixInfo> = advert.prefixes().iter().filter_map(named).collect();
    clients.tell_wanting(|client_index, pid| Ip6RaEvent {
        client_index,
        pid,
        sw_if_index: InterfaceIndex(advert.interface.0),
        router_addr: Ip6Address(advert.router.octets()),
        current_hop_limit: advert.message.hop_limit(),
        flags: advert.flags(),
        router_lifetime_in_sec: advert.message.router_lifetime(),
        neighbor_reachable_time_in_msec: advert.message.reachable_time.get(),
        time_in_msec_between_retransmitted_neighbor_solicitations: advert.message.retrans_timer.get(),
        n_prefixes: 0,
        prefixes: prefixes.clone(),
    });
}
