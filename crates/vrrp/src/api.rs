//! `vrrp`: the messages of VPP.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation as _, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Clients, Flow, Handlers, address, from_address, reference};
use quiver_net::ip::FamilyId;
use quiver_net::ops::done;

use crate::control::{self, Configured};
use crate::machine::State;
use crate::ops::{Action, AddRouter, Change, DeleteRouter, SetPeers, SetProtocol, SetTracked, Tracked, UpdateRouter};
use crate::packet::virtual_mac;
use crate::thread::{Figures, Key};

/// The number that means all interfaces, or a virtual router that is new.
const NONE: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<VrrpVrAddDel, VrrpVrAddDelReply>(|router, m| {
        let (ipv6, flags) = (m.flags.0 & VrrpVrFlags::VRRP_API_VR_IPV6.0 != 0, m.flags.0);
        let interface = reference(router, &m.sw_if_index)?;
        if m.is_add == 0 {
            return done(DeleteRouter::run(router, DeleteRouter { vr_id: m.vr_id, interface, ipv6 })?);
        }
        let request = AddRouter {
            vr_id: m.vr_id,
            interface,
            ipv6,
            priority: m.priority,
            interval: m.interval,
            no_preempt: flags & VrrpVrFlags::VRRP_API_VR_PREEMPT.0 == 0,
            accept_mode: flags & VrrpVrFlags::VRRP_API_VR_ACCEPT.0 != 0,
            unicast: flags & VrrpVrFlags::VRRP_API_VR_UNICAST.0 != 0,
            addresses: m.addrs.iter().map(from_address).collect(),
        };
        done(AddRouter::run(router, request)?)
    });
    handlers.reply::<VrrpVrUpdate, VrrpVrUpdateReply>(|router, m| {
        let vrrp_index = update(router, &m)?;
        Ok(VrrpVrUpdateReply { retval: 0, vrrp_index })
    });
    handlers.act::<VrrpVrDel, VrrpVrDelReply>(|router, m| {
        let key = by_index(router, m.vrrp_index)?;
        let interface = reference(router, &InterfaceIndex(key.interface.0))?;
        let request = DeleteRouter { vr_id: key.vr_id, interface, ipv6: key.family == FamilyId::V6 };
        done(DeleteRouter::run(router, request)?)
    });
    handlers.act::<VrrpVrStartStop, VrrpVrStartStopReply>(|router, m| {
        let action = if m.is_start == 0 { Action::Stop } else { Action::Start };
        let interface = reference(router, &m.sw_if_index)?;
        done(SetProtocol::run(router, SetProtocol { action, vr_id: m.vr_id, interface, ipv6: m.is_ipv6 != 0 })?)
    });
    handlers.act::<VrrpVrSetPeers, VrrpVrSetPeersReply>(|router, m| {
        let peers = m.addrs.iter().map(from_address).collect();
        let interface = reference(router, &m.sw_if_index)?;
        done(SetPeers::run(router, SetPeers { vr_id: m.vr_id, interface, ipv6: m.is_ipv6 != 0, peers })?)
    });
    handlers.act::<VrrpVrTrackIfAddDel, VrrpVrTrackIfAddDelReply>(|router, m| {
        let one = |tracked: &VrrpVrTrackIf| {
            Ok(Tracked { interface: reference(router, &tracked.sw_if_index)?, priority: tracked.priority })
        };
        let tracked = m.ifs.iter().map(one).collect::<Result<Vec<_>, OpError>>()?;
        let change = if m.is_add == 0 { Change::Delete } else { Change::Add };
        let interface = reference(router, &m.sw_if_index)?;
        done(SetTracked::run(router, SetTracked { change, vr_id: m.vr_id, interface, ipv6: m.is_ipv6 != 0, tracked })?)
    });
    dumps(handlers);
    handlers.call::<WantVrrpVrEvents>(|call, m| {
        let client = call.client;
        let clients = call.router.part_mut::<Clients>();
        let retval =
            clients.map_or(retval::INVALID_REGISTRATION, |clients| clients.want::<VrrpVrEvent>(client, m.enable_disable, m.pid));
        call.send(&WantVrrpVrEventsReply { retval });
        Flow::Done
    });
    handlers.reads::<WantVrrpVrEvents>();
}

/// VPP takes 0 for all interfaces, too: the number of `local0`, which has no virtual routers.
fn on(sw_if_index: &InterfaceIndex) -> impl Fn(&Key) -> bool + use<> {
    let only = sw_if_index.0;
    move |key| matches!(only, 0 | NONE) || only == key.interface.0
}

fn is_one(sw_if_index: &InterfaceIndex, is_ipv6: u8, vr_id: u8) -> impl Fn(&Key) -> bool + use<> {
    let wanted = Key { interface: IfIndex(sw_if_index.0), family: family(is_ipv6), vr_id };
    move |key| *key == wanted
}

const fn family(is_ipv6: u8) -> FamilyId {
    if is_ipv6 == 0 { FamilyId::V4 } else { FamilyId::V6 }
}

fn dumps(handlers: &mut Handlers) {
    handlers.dump::<VrrpVrDump>(|router, m, send| {
        let Ok(figures) = control::figures(router) else { return };
        let (Ok(vrrp), on) = (router.state::<control::Vrrp>(), on(&m.sw_if_index)) else { return };
        for (key, configured) in vrrp.routers().filter(|(key, _)| on(key)) {
            if let Some(figures) = figures.get(&configured.serial) {
                send(&details(router, key, configured, figures));
            }
        }
    });
    handlers.dump::<VrrpVrPeerDump>(|router, m, send| {
        let Ok(vrrp) = router.state::<control::Vrrp>() else { return };
        let (all, one) = (matches!(m.sw_if_index.0, 0 | NONE), is_one(&m.sw_if_index, m.is_ipv6, m.vr_id));
        for (key, configured) in vrrp.routers().filter(|(key, configured)| (all || one(key)) && !configured.peers.is_empty()) {
            send(&VrrpVrPeerDetails {
                sw_if_index: InterfaceIndex(key.interface.0),
                vr_id: key.vr_id,
                is_ipv6: (key.family == FamilyId::V6).into(),
                peer_addrs: configured.peers.iter().map(|(peer, _)| address(*peer)).collect(),
                ..Default::default()
            });
        }
    });
    handlers.dump::<VrrpVrTrackIfDump>(|router, m, send| {
        let Ok(vrrp) = router.state::<control::Vrrp>() else { return };
        let (all, one) = (m.dump_all != 0, is_one(&m.sw_if_index, m.is_ipv6, m.vr_id));
        for (key, configured) in vrrp.routers().filter(|(key, configured)| (all || one(key)) && !configured.tracked.is_empty()) {
            let tracked = |(interface, priority): (&IfIndex, &u8)| VrrpVrTrackIf {
                sw_if_index: InterfaceIndex(interface.0),
                priority: *priority,
            };
            send(&VrrpVrTrackIfDetails {
                sw_if_index: InterfaceIndex(key.interface.0),
                vr_id: key.vr_id,
                is_ipv6: (key.family == FamilyId::V6).into(),
                ifs: configured.tracked.iter().map(tracked).collect(),
                ..Default::default()
            });
        }
    });
}

/// The virtual router that clients call by its number.
fn by_index(router: &Router, index: u32) -> Result<Key, OpError> {
    let found = router.state::<control::Vrrp>()?.routers().find(|(_, configured)| configured.id == index).map(|(key, _)| *key);
    let none = || OpError::new(retval::NO_SUCH_ENTRY, format!("no virtual router {index}")).key("vrrp_index").value(index);
    found.ok_or_else(none)
}

/// Adds a virtual router, or changes the one that is there; gives its number.
fn update(router: &mut Router, m: &VrrpVrUpdate) -> Result<u32, OpError> {
    let flag = |flag: VrrpVrFlags| m.flags.0 & flag.0 != 0;
    let ipv6 = flag(VrrpVrFlags::VRRP_API_VR_IPV6);
    let interface = reference(router, &m.sw_if_index)?;
    let key = Key { interface: IfIndex(m.sw_if_index.0), family: family(ipv6.into()), vr_id: m.vr_id };
    if m.vrrp_index != NONE && by_index(router, m.vrrp_index)? != key {
        let text = format!("virtual router {} has another interface, family or number", m.vrrp_index);
        return Err(OpError::new(retval::INVALID_ARGUMENT, text).key("vrrp_index").value(m.vrrp_index));
    }
    let (vr_id, priority, interval) = (m.vr_id, m.priority, m.interval);
    let (no_preempt, accept_mode) = (!flag(VrrpVrFlags::VRRP_API_VR_PREEMPT), flag(VrrpVrFlags::VRRP_API_VR_ACCEPT));
    let (unicast, addresses) = (flag(VrrpVrFlags::VRRP_API_VR_UNICAST), m.addrs.iter().map(from_address).collect());
    if m.vrrp_index == NONE {
        let request = AddRouter { vr_id, interface, ipv6, priority, interval, no_preempt, accept_mode, unicast, addresses };
        done(AddRouter::run(router, request)?)?;
    } else {
        let request = UpdateRouter { vr_id, interface, ipv6, priority, interval, no_preempt, accept_mode, unicast, addresses };
        done(UpdateRouter::run(router, request)?)?;
    }
    let gone = || OpError::new(retval::NO_SUCH_ENTRY, "the virtual router is gone");
    router.state::<control::Vrrp>()?.routers.get(&key).map(|configured| configured.id).ok_or_else(gone)
}

const fn state_of(state: State) -> VrrpVrState {
    match state {
        State::Initialize => VrrpVrState::VRRP_API_VR_STATE_INIT,
        State::Backup => VrrpVrState::VRRP_API_VR_STATE_BACKUP,
        State::Master => VrrpVrState::VRRP_API_VR_STATE_MASTER,
        State::InterfaceDown => VrrpVrState::VRRP_API_VR_STATE_INTF_DOWN,
    }
}

fn details(router: &Router, key: &Key, configured: &Configured, figures: &Figures) -> VrrpVrDetails {
    let (settings, status) = (&configured.settings, &figures.status);
    let flag = |on: bool, flag: VrrpVrFlags| if on { flag.0 } else { 0 };
    let flags = flag(settings.config.preempt, VrrpVrFlags::VRRP_API_VR_PREEMPT)
        | flag(settings.accept, VrrpVrFlags::VRRP_API_VR_ACCEPT)
        | flag(settings.unicast, VrrpVrFlags::VRRP_API_VR_UNICAST)
        | flag(key.family == FamilyId::V6, VrrpVrFlags::VRRP_API_VR_IPV6);
    let down = |(interface, _): &(&IfIndex, &u8)| !router.is_running(**interface);
    VrrpVrDetails {
        config: VrrpVrConf {
            sw_if_index: InterfaceIndex(key.interface.0),
            vr_id: key.vr_id,
            priority: settings.config.priority,
            interval: settings.config.interval,
            flags: VrrpVrFlags(flags),
        },
        runtime: VrrpVrRuntime {
            state: state_of(status.state),
            master_adv_int: status.master_interval,
            skew: status.skew,
            master_down_int: status.master_down,
            mac: MacAddress(virtual_mac(key.family, key.vr_id).0),
            tracking: VrrpVrTracking {
                interfaces_dec: configured.tracked.iter().filter(down).map(|(_, decrement)| u32::from(*decrement)).sum(),
                priority: status.priority,
            },
        },
        addrs: settings.addresses.iter().map(|virtual_address| address(*virtual_address)).collect(),
        ..Default::default()
    }
}

/// Tells clients of a virtual router's new state.
pub(crate) fn tell(router: &mut Router, key: &Key, was: State, is: State) {
    let Some(clients) = router.part_mut::<Clients>() else { return };
    clients.tell_wanting(|client_index, pid| VrrpVrEvent {
        client_index,
        pid,
        vr: VrrpVrKey {
            sw_if_index: InterfaceIndex(key.interface.0),
            vr_id: key.vr_id,
            is_ipv6: (key.family == FamilyId::V6).into(),
        },
        old_state: state_of(was),
        new_state: state_of(is),
    });
}
