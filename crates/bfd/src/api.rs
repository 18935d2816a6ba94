//! `bfd`: the messages of VPP.

use quiver_api::defs::*;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Operation as _, retval};
use quiver_net::Router;
use quiver_net::api::{Clients, Flow, Handlers, address, from_address, reference};
use quiver_net::ops::done;

use crate::auth::{Kind, Secret};
use crate::control::{self, Configured};
use crate::datagram::Key;
use crate::ops::{
    ActivateAuth, AddSession, Admin, DeactivateAuth, Delayed, DeleteEchoSource, DeleteKey, DeleteSession, ModifySession,
    SetEchoSource, SetFlags, SetKey, SetTos,
};
use crate::packet::State;

/// The interface that a session's messages name; none of a multihop session. VPP has those in table 0 only.
fn place(router: &Router, index: &InterfaceIndex) -> Result<Option<IfRef>, OpError> {
    if index.0 == Key::ANY.0 { Ok(None) } else { reference(router, index).map(Some) }
}

/// The request of a message about a session; the message's other fields as they are.
macro_rules! about {
    ($router:ident, $m:ident, $request:ident { $($rest:tt)* }) => {{
        let interface = place($router, &$m.sw_if_index)?;
        $request {
            multihop: interface.is_none(),
            interface,
            table: 0,
            local_addr: from_address(&$m.local_addr),
            peer_addr: from_address(&$m.peer_addr),
            $($rest)*
        }
    }};
}

/// A request with intervals, of a message that has them.
macro_rules! timed {
    ($router:ident, $m:ident, $request:ident { $($rest:tt)* }) => {
        about!($router, $m, $request {
            desired_min_tx: $m.desired_min_tx,
            required_min_rx: $m.required_min_rx,
            detect_mult: $m.detect_mult,
            $($rest)*
        })
    };
}

/// A request that adds a session.
macro_rules! adding {
    ($router:ident, $m:ident) => {
        timed!(
            $router,
            $m,
            AddSession {
                conf_key_id: $m.is_authenticated.then_some($m.conf_key_id),
                bfd_key_id: $m.is_authenticated.then_some($m.bfd_key_id),
            }
        )
    };
}

pub(crate) fn add(handlers: &mut Handlers) {
    add_sessions(handlers);
    add_authentication(handlers);
    add_general(handlers);
}

fn add_sessions(handlers: &mut Handlers) {
    handlers.act::<BfdUdpAdd, BfdUdpAddReply>(|router, m| {
        let request = adding!(router, m);
        done(AddSession::run(router, request)?)
    });
    handlers.reply::<BfdUdpUpd, BfdUdpUpdReply>(|router, m| {
        let stats_index = update(router, &m)?;
        Ok(BfdUdpUpdReply { retval: 0, stats_index })
    });
    handlers.act::<BfdUdpMod, BfdUdpModReply>(|router, m| {
        let request = timed!(router, m, ModifySession {});
        done(ModifySession::run(router, request)?)
    });
    handlers.act::<BfdUdpDel, BfdUdpDelReply>(|router, m| {
        let request = about!(router, m, DeleteSession {});
        done(DeleteSession::run(router, request)?)
    });
    handlers.act::<BfdUdpSessionSetFlags, BfdUdpSessionSetFlagsReply>(|router, m| {
        let up = m.flags.0 & IfStatusFlags::IF_STATUS_API_FLAG_ADMIN_UP.0 != 0;
        let request = about!(router, m, SetFlags { admin: if up { Admin::Up } else { Admin::Down } });
        done(SetFlags::run(router, request)?)
    });
    handlers.dump::<BfdUdpSessionDump>(|router, _, send| {
        let Ok(bfd) = router.state::<control::Bfd>() else { return };
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

fn add_authentication(handlers: &mut Handlers) {
    handlers.act::<BfdAuthSetKey, BfdAuthSetKeyReply>(|router, m| {
        let unknown = || OpError::new(retval::BFD_NOTSUPP, "no such authentication type").key("auth_type").value(m.auth_type);
        let kind = Kind::of_number(m.auth_type).ok_or_else(unknown)?;
        let secret = m.key.get(..usize::from(m.key_len)).and_then(Secret::new);
        let len = || OpError::new(retval::INVALID_VALUE, "a key has 1 to 20 bytes").key("key_len").value(m.key_len);
        let request = SetKey { conf_key_id: m.conf_key_id, kind, secret: secret.ok_or_else(len)? };
        done(SetKey::run(router, request)?)
    });
    handlers.act::<BfdAuthDelKey, BfdAuthDelKeyReply>(|router, m| {
        done(DeleteKey::run(router, DeleteKey { conf_key_id: m.conf_key_id })?)
    });
    handlers.dump::<BfdAuthKeysDump>(|router, _, send| {
        for key in control::keys(router).unwrap_or_default() {
            send(&BfdAuthKeysDetails { conf_key_id: key.conf_key_id, use_count: key.uses, auth_type: key.kind.number() });
        }
    });
    handlers.act::<BfdUdpAuthActivate, BfdUdpAuthActivateReply>(|router, m| {
        let request = about!(
            router,
            m,
            ActivateAuth { conf_key_id: m.conf_key_id, bfd_key_id: m.bfd_key_id, delayed: delayed(m.is_delayed) }
        );
        done(ActivateAuth::run(router, request)?)
    });
    handlers.act::<BfdUdpAuthDeactivate, BfdUdpAuthDeactivateReply>(|router, m| {
        let request = about!(router, m, DeactivateAuth { delayed: delayed(m.is_delayed) });
        done(DeactivateAuth::run(router, request)?)
    });
}

fn delayed(is_delayed: bool) -> Option<Delayed> {
    is_delayed.then_some(Delayed::Yes)
}

fn add_general(handlers: &mut Handlers) {
    handlers.act::<BfdUdpSetEchoSource, BfdUdpSetEchoSourceReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        done(SetEchoSource::run(router, SetEchoSource { interface })?)
    });
    handlers.act::<BfdUdpDelEchoSource, BfdUdpDelEchoSourceReply>(|router, _| {
        done(DeleteEchoSource::run(router, DeleteEchoSource {})?)
    });
    handlers.get::<BfdUdpGetEchoSource, BfdUdpGetEchoSourceReply>(|router, _| {
        let source = control::echo_source(router)?;
        let [ip4, ip6] = source.addresses;
        let mut reply = BfdUdpGetEchoSourceReply {
            sw_if_index: InterfaceIndex(source.interface.map_or(u32::MAX, |index| index.0)),
            is_set: source.interface.is_some(),
            ..Default::default()
        };
        if let Some(std::net::IpAddr::V4(address)) = ip4 {
            (reply.have_usable_ip4, reply.ip4_addr) = (true, Ip4Address(address.octets()));
        }
        if let Some(std::net::IpAddr::V6(address)) = ip6 {
            (reply.have_usable_ip6, reply.ip6_addr) = (true, Ip6Address(address.octets()));
        }
        Ok(reply)
    });
    // Multihop sessions need not be switched on here.
    handlers.act::<BfdUdpEnableMultihop, BfdUdpEnableMultihopReply>(|router, _| router.state::<control::Bfd>().map(drop));
    handlers.reads::<BfdUdpEnableMultihop>();
    handlers.act::<BfdUdpSetTos, BfdUdpSetTosReply>(|router, m| done(SetTos::run(router, SetTos { tos: m.tos })?));
    handlers.get::<BfdUdpGetTos, BfdUdpGetTosReply>(|router, _| Ok(BfdUdpGetTosReply { retval: 0, tos: control::tos(router)? }));
}

/// Adds a session, or changes the one that is there; gives its number in the statistics.
fn update(router: &mut Router, m: &BfdUdpUpd) -> Result<u32, OpError> {
    let add = adding!(router, m);
    let key = add.key(router)?;
    if router.state::<control::Bfd>()?.session(&key).is_ok() {
        let request = timed!(router, m, ModifySession {});
        done(ModifySession::run(router, request)?)?;
    } else {
        done(AddSession::run(router, add)?)?;
    }
    router.state::<control::Bfd>()?.session(&key).map(|session| session.id)
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
        is_authenticated: session.auth.is_some(),
        bfd_key_id: session.auth.map_or(0, |auth| auth.bfd_key_id),
        conf_key_id: session.auth.map_or(0, |auth| auth.conf_key_id),
    }
}

/// Tells clients of a session's new state.
pub(crate) fn tell(router: &mut Router, key: &Key, session: &Configured, state: State) {
    let Some(clients) = router.part_mut::<Clients>() else { return };
    let details = details(key, session, state);
    clients.tell_wanting(|client_index, pid| {
        let d = details.clone();
        BfdUdpSessionEvent {
            client_index,
            pid,
            sw_if_index: d.sw_if_index,
            local_addr: d.local_addr,
            peer_addr: d.peer_addr,
            state: d.state,
            is_authenticated: d.is_authenticated,
            bfd_key_id: d.bfd_key_id,
            conf_key_id: d.conf_key_id,
            required_min_rx: d.required_min_rx,
            desired_min_tx: d.desired_min_tx,
            detect_mult: d.detect_mult,
        }
    });
}
