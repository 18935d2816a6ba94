//! Operations and commands.

mod auth;
mod echo;
mod keys;
mod session;
mod shapes;
mod show;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::operation::Registry;
use quiver_net::Router;

use crate::control;
use crate::datagram::{Key, TOS};
pub use auth::{ActivateAuth, DeactivateAuth, Delayed};
pub use echo::{DeleteEchoSource, EchoSourceInfo, SetEchoSource, SetTos, ShowEchoSource};
pub use keys::{DeleteKey, KeyInfo, SetKey, ShowKeys};
pub use session::{AddSession, Admin, DeleteSession, ModifySession, SetFlags};
pub use show::{SessionInfo, ShowSession, ShowSessions, ShowSummary};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "bfd udp session add interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 10000 required-min-rx 10000 detect-mult 3",
    "bfd udp session add multihop local-addr 192.0.2.1 peer-addr 192.0.2.9 desired-min-tx 100000 required-min-rx 100000 detect-mult 3 conf-key-id 1 bfd-key-id 7",
    "bfd udp session mod interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 50000 required-min-rx 50000 detect-mult 3",
    "bfd udp session del interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2",
    "bfd udp session set-flags interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin down",
    "bfd key set conf-key-id 1 type meticulous-keyed-sha1 secret 5ec12e7a90",
    "bfd key del conf-key-id 1",
    "bfd udp session auth activate interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 conf-key-id 1 bfd-key-id 7 delayed yes",
    "bfd udp session auth deactivate interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2",
    "bfd udp echo-source set interface loop0",
    "bfd udp tos 184",
    "show bfd session 0",
];

/// Messages of the binary API, by command.
const MESSAGES: &[(&str, &[&str])] = &[
    ("bfd key del", &["bfd_auth_del_key"]),
    ("bfd key set", &["bfd_auth_set_key"]),
    ("bfd udp echo-source del", &["bfd_udp_del_echo_source"]),
    ("bfd udp echo-source set", &["bfd_udp_set_echo_source"]),
    ("bfd udp session add", &["bfd_udp_add", "bfd_udp_upd"]),
    ("bfd udp session auth activate", &["bfd_udp_auth_activate"]),
    ("bfd udp session auth deactivate", &["bfd_udp_auth_deactivate"]),
    ("bfd udp session del", &["bfd_udp_del"]),
    ("bfd udp session mod", &["bfd_udp_mod", "bfd_udp_upd"]),
    ("bfd udp session set-flags", &["bfd_udp_session_set_flags"]),
    ("bfd udp tos", &["bfd_udp_set_tos"]),
    ("show bfd", &["bfd_udp_get_tos"]),
    ("show bfd echo-source", &["bfd_udp_get_echo_source"]),
    ("show bfd keys", &["bfd_auth_keys_dump"]),
    ("show bfd session", &["bfd_udp_session_dump"]),
    ("show bfd sessions", &["bfd_udp_session_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES).messages_without_command(&["want_bfd_events", "bfd_udp_enable_multihop"]);
    registry.declare::<AddSession>().declare::<ModifySession>().declare::<DeleteSession>().declare::<SetFlags>();
    registry.declare::<SetKey>().declare::<DeleteKey>().declare::<ActivateAuth>().declare::<DeactivateAuth>();
    registry.declare::<SetEchoSource>().declare::<DeleteEchoSource>().declare::<SetTos>();
    registry.declare::<ShowSummary>().declare::<ShowSessions>().declare::<ShowSession>();
    registry.declare::<ShowKeys>().declare::<ShowEchoSource>();
    registry
        .configuration(Stage::Services, |router| {
            let keys = control::keys(router).unwrap_or_default().into_iter().map(|key| key.conf_key_id).collect();
            each(keys, keys::configured)
        })
        .covers(&["bfd_auth_key_set", "bfd_auth_key_delete"]);
    registry.shapes(Stage::Services, shapes::KEYS).shapes(Stage::Services, shapes::SESSIONS);
    registry.shapes(Stage::Services, shapes::GENERAL);
    registry.configuration(Stage::Services, |router| each(sessions(router), session::configured)).covers(&[
        "bfd_udp_session_add",
        "bfd_udp_session_modify",
        "bfd_udp_session_delete",
        "bfd_udp_session_flags_set",
        "bfd_udp_auth_activate",
        "bfd_udp_auth_deactivate",
    ]);
    registry.configuration(Stage::Services, |_| each(vec![()], |router, (), out| general(router, out))).covers(&[
        "bfd_udp_echo_source_set",
        "bfd_udp_echo_source_delete",
        "bfd_udp_tos_set",
    ]);
}

fn sessions(router: &Router) -> Vec<Key> {
    router.state::<control::Bfd>().map(|bfd| bfd.sessions().map(|(key, _)| *key).collect()).unwrap_or_default()
}

/// What holds for all sessions.
fn general(router: &Router, out: &mut Configuration<Router>) {
    if let Some(interface) = control::echo_source(router).ok().and_then(|source| source.interface) {
        out.push(&SetEchoSource { interface: session::name(router, interface) }).undo(&DeleteEchoSource {});
    }
    if let Some(tos) = control::tos(router).ok().filter(|tos| *tos != TOS) {
        out.push(&SetTos { tos }).undo(&SetTos { tos: TOS });
    }
}

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
