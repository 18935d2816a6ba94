//! `bfd`: the messages of VPP.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation as _, retval};
use quiver_net::Router;
use quiver_net::api::{Clients, Flow, Handlers, address, from_address, reference};
use quiver_net::ops::done;

use crate::control::{self, Configured};
use crate::ops::{AddSession, Admin, DeleteSession, ModifySession, SetFlags};
use crate::packet::State;
use crate::thread::Key;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<BfdUdpAdd, BfdUdpAddReply>(|router, m| {
        plain(m.is_authenticated)?;
        let request = AddSession {
            interface: reference(router, &m.sw_if_index)?,
            local_addr: from_address(&m.local_addr),
            peer_addr: from_address(&m.peer_addr),
            desired_min_tx: m.desired_min_tx,
            required_min_rx: m.required_min_rx,
            detect_mult: m.detect_mult,
        };
        done(AddSession::run(router, request)?)
    });
    handlers.reply::<BfdUdpUpd, BfdUdpUpdReply>(|router, m| {
        plain(m.is_authenticated)?;
        let stats_index = update(router, &m)?;
        Ok(BfdUdpUpdReply { retval: 0, stats_index })
    });
    handlers.act::<BfdUdpMod, BfdUdpModReply>(|router, m| {
        let request = ModifySession {
            interface: reference(router, &m.sw_if_index)?,
            local_addr: from_address(&m.local_addr),
            peer_addr: from_address(&m.peer_addr),
            desired_min_tx: m.desired_min_tx,
            required_min_rx: m.required_min_rx,
            detect_mult: m.detect_mult,
        };
        done(ModifySession::run(router, request)?)
    });
    handlers.act::<BfdUdpDel, BfdUdpDelReply>(|router, m| {
        let request = DeleteSession {
            interface: reference(router, &m.sw_if_index)?,
            local_addr: from_address(&m.local_addr),
            peer_addr: from_address(&m.peer_addr),
        };
        done(DeleteSession::run(router, request)?)
    });
    handlers.act::<BfdUdpSessionSetFlags, BfdUdpSessionSetFlagsReply>(|router, m| {
        let up = m.flags.0 & IfStatusFlags::IF_STATUS_API_FLAG_ADMIN_UP.0 != 0;
        let request = SetFlags {
            interface: reference(router, &m.sw_if_index)?,
            local_addr: from_address(&m.local_addr),
            peer_addr: from_address(&m.peer_addr),
            admin: if up { Admin::Up } else { Admin::Down },
        };
        done(SetFlags::run(router, request)?)
    });
    handlers.dump::<BfdUdpSessionDump>(|router, _, send| {
        let Ok(bfd) = control::bfd(router) else { return };
        for (key, session) in bfd.sessions() {
            let state = session.status.map_or(State::Down, |status| status.state);
            send(&details(key, session, state));
        }
    });
    handlers.call::<WantBfdEvents>(|call, m| {
        let client = call.client;
        let clients = call.router.part_mut::<Clients>();
        let retval = clients
            .map_or(retval::INVALID_REGISTRATION, |clients| clients.want::<BfdUdpSessionEvent>(client, m.enable_disable, m.pid));
        call.send(&WantBfdEventsReply { retval });
        Flow::Done
    });
    handlers.reads::<WantBfdEvents>();
}

/// There is no authentication yet.
fn plain(is_authenticated: bool) -> Result<(), OpError> {
    if is_authenticated {
        return Err(OpError::new(retval::BFD_NOTSUPP, "authentication is not supported").key("is_authenticated"));
    }
    Ok(())
}

/// Adds a session, or changes the one that is there; gives its number in the statistics.
fn update(router: &mut Router, m: &BfdUdpUpd) -> Result<u32, OpError> {
    let interface = reference(router, &m.sw_if_index)?;
    let (local_addr, peer_addr) = (from_address(&m.local_addr), from_address(&m.peer_addr));
    let BfdUdpUpd { desired_min_tx, required_min_rx, detect_mult, .. } = *m;
    let key = Key { interface: quiver_graph::IfIndex(m.sw_if_index.0), local: local_addr, peer: peer_addr };
    if control::bfd(router)?.session(&key).is_ok() {
        let request = ModifySession { interface, local_addr, peer_addr, desired_min_tx, required_min_rx, detect_mult };
        done(ModifySession::run(router, request)?)?;
    } else {
        let request = AddSession { interface, local_addr, peer_addr, desired_min_tx, required_min_rx, detect_mult };
        done(AddSession::run(router, request)?)?;
    }
    control::bfd(router)?.session(&key).map(|session| session.id)
}

fn state_of(state: State) -> BfdState {
    match state {
        State::AdminDown => BfdState::BFD_STATE_API_ADMIN_DOWN,
        State::Down => BfdState::BFD_STATE_API_DOWN,
        State::Init => BfdState::BFD_STATE_API_INIT,
        State::Up => BfdState::BFD_STATE_API_UP,
    }
}

fn details(key: &Key, session: &Configured, state: State) -> BfdUdpSessionDetails {
    BfdUdpSessionDetails {
        sw_if_index: InterfaceIndex(key.interface.0),
        local_addr: address(key.local),
        peer_addr: address(key.peer),
        state: state_of(state),
        required_min_rx: session.timing.required_min_rx,
        desired_min_tx: session.timing.desired_min_tx,
        detect_mult: session.timing.detect_mult,
        ..Default::default()
    }
}

/// Tells clients of a session's new state.
pub(crate) fn tell(router: &mut Router, key: &Key, session: &Configured, state: State) {
    let Some(clients) = router.part_mut::<Clients>() else { return };
    let BfdUdpSessionDetails { sw_if_index, local_addr, peer_addr, state, required_min_rx, desired_min_tx, detect_mult, .. } =
        details(key, session, state);
    clients.tell_wanting(|client_index, pid| BfdUdpSessionEvent {
        client_index,
        pid,
        sw_if_index: sw_if_index.clone(),
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        state: state.clone(),
        required_min_rx,
        desired_min_tx,
        detect_mult,
        ..Default::default()
    });
}
