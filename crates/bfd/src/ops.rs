//! Operations and commands.

mod show;

use std::net::IpAddr;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;

use crate::control;
use crate::session::Timing;
use crate::thread::Key;
pub use show::{SessionInfo, ShowSession, ShowSessions};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "bfd udp session add interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 10000 required-min-rx 10000 detect-mult 3",
    "bfd udp session mod interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 50000 required-min-rx 50000 detect-mult 3",
    "bfd udp session del interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2",
    "bfd udp session set-flags interface host-eth1 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin down",
    "show bfd session 0",
];

/// Messages of the binary API, by command.
const MESSAGES: &[(&str, &[&str])] = &[
    ("bfd udp session add", &["bfd_udp_add", "bfd_udp_upd"]),
    ("bfd udp session del", &["bfd_udp_del"]),
    ("bfd udp session mod", &["bfd_udp_mod", "bfd_udp_upd"]),
    ("bfd udp session set-flags", &["bfd_udp_session_set_flags"]),
    ("show bfd session", &["bfd_udp_session_dump"]),
    ("show bfd sessions", &["bfd_udp_session_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES).messages_without_command(&["want_bfd_events"]);
    registry.declare::<AddSession>().declare::<ModifySession>().declare::<DeleteSession>().declare::<SetFlags>();
    registry.declare::<ShowSessions>().declare::<ShowSession>();
    registry.shapes(Stage::Services, SHAPES);
    registry.configuration(Stage::Services, |router| each(keys(router), session)).covers(&[
        "bfd_udp_session_add",
        "bfd_udp_session_modify",
        "bfd_udp_session_delete",
        "bfd_udp_session_flags_set",
    ]);
}

fn keys(router: &Router) -> Vec<Key> {
    control::bfd(router).map(|bfd| bfd.sessions().map(|(key, _)| *key).collect()).unwrap_or_default()
}

fn session(router: &Router, key: &Key, out: &mut Configuration<Router>) {
    let Ok(session) = control::bfd(router).and_then(|bfd| bfd.session(key)) else { return };
    let (interface, local_addr, peer_addr) = (IfRef(router.interfaces.name(key.interface)), key.local, key.peer);
    let Timing { desired_min_tx, required_min_rx, detect_mult } = session.timing;
    let name = format!("bfd {} {local_addr} {peer_addr}", interface.as_str());
    let add = AddSession { interface: interface.clone(), local_addr, peer_addr, desired_min_tx, required_min_rx, detect_mult };
    let modify =
        ModifySession { interface: interface.clone(), local_addr, peer_addr, desired_min_tx, required_min_rx, detect_mult };
    let delete = DeleteSession { interface: interface.clone(), local_addr, peer_addr };
    out.push(&add).undo(&delete).replaced_by(&modify).makes(name.clone());
    if !session.admin_up {
        let flags = |admin| SetFlags { interface: interface.clone(), local_addr, peer_addr, admin };
        out.push(&flags(Admin::Down)).undo(&flags(Admin::Up)).needs(name);
    }
}

fn key(router: &Router, interface: &IfRef, local: IpAddr, peer: IpAddr) -> Result<Key, OpError> {
    Ok(Key { interface: resolve(router, interface)?, local, peer })
}

request! {
    /// Adds a BFD session with a neighbour on an interface, which begins at once.
    pub change AddSession "bfd_udp_session_add" ["bfd udp session add"] {
        /// Interface.
        pub interface: IfRef = "interface <if>",
        /// Own address, one of the interface's.
        pub local_addr: IpAddr = "local-addr <ip>",
        /// The other side's address.
        pub peer_addr: IpAddr = "peer-addr <ip>",
        /// Interval at which to send, microseconds.
        pub desired_min_tx: u32 = "desired-min-tx <us>" range(1000..=4_294_967_295),
        /// Interval at which to receive, microseconds.
        pub required_min_rx: u32 = "required-min-rx <us>" range(1000..=4_294_967_295),
        /// Packets in a row whose loss ends the session.
        pub detect_mult: u8 = "detect-mult <n>" range(1..=255),
    }
}

impl Execute<Router> for AddSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { desired_min_tx, required_min_rx, detect_mult, .. } = self;
        let key = key(router, &self.interface, self.local_addr, self.peer_addr)?;
        control::add(router, key, Timing { desired_min_tx, required_min_rx, detect_mult })?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Changes the intervals of a BFD session; one that is up stays so.
    pub change ModifySession "bfd_udp_session_modify" ["bfd udp session mod"] {
        /// Interface.
        pub interface: IfRef = "interface <if>",
        /// Own address.
        pub local_addr: IpAddr = "local-addr <ip>",
        /// The other side's address.
        pub peer_addr: IpAddr = "peer-addr <ip>",
        /// Interval at which to send, microseconds.
        pub desired_min_tx: u32 = "desired-min-tx <us>" range(1000..=4_294_967_295),
        /// Interval at which to receive, microseconds.
        pub required_min_rx: u32 = "required-min-rx <us>" range(1000..=4_294_967_295),
        /// Packets in a row whose loss ends the session.
        pub detect_mult: u8 = "detect-mult <n>" range(1..=255),
    }
}

impl Execute<Router> for ModifySession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { desired_min_tx, required_min_rx, detect_mult, .. } = self;
        let key = key(router, &self.interface, self.local_addr, self.peer_addr)?;
        control::modify(router, &key, Timing { desired_min_tx, required_min_rx, detect_mult }).map(Outcome::Done)
    }
}

request! {
    /// Removes a BFD session; the other side is not told.
    pub change DeleteSession "bfd_udp_session_delete" ["bfd udp session del"] {
        /// Interface.
        pub interface: IfRef = "interface <if>",
        /// Own address.
        pub local_addr: IpAddr = "local-addr <ip>",
        /// The other side's address.
        pub peer_addr: IpAddr = "peer-addr <ip>",
    }
}

impl Execute<Router> for DeleteSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = key(router, &self.interface, self.local_addr, self.peer_addr)?;
        control::remove(router, &key).map(Outcome::Done)
    }
}

words! {
    /// What an administrator wants of a session.
    pub enum Admin {
        /// It works.
        Up = "up",
        /// It is held down, and the other side is told.
        Down = "down",
    }
}

request! {
    /// Takes a BFD session down administratively, or releases it.
    pub change SetFlags "bfd_udp_session_flags_set" ["bfd udp session set-flags"] {
        /// Interface.
        pub interface: IfRef = "interface <if>",
        /// Own address.
        pub local_addr: IpAddr = "local-addr <ip>",
        /// The other side's address.
        pub peer_addr: IpAddr = "peer-addr <ip>",
        /// Up or down.
        pub admin: Admin = "admin up|down",
    }
}

impl Execute<Router> for SetFlags {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = key(router, &self.interface, self.local_addr, self.peer_addr)?;
        control::set_admin(router, &key, self.admin == Admin::Up).map(Outcome::Done)
    }
}

#[cfg(test)]
mod example_tests {
    #[test]
    fn every_example_can_be_read() {
        let harness = quiver_net::testing::Harness::new();
        let registry = quiver_net::ops::testing::registry(&[super::register]);
        let wrong = registry.wrong_examples(&harness.router);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Where sessions stand in a document.
const SHAPES: &[Shape] = &[
    Shape::new(
        "bfd/{interface}/{local_addr}/{peer_addr}",
        r#"{"*":"*"}"#,
        "bfd_udp_session_add",
        r#"{"interface":"{interface}","local_addr":"{local_addr}","peer_addr":"{peer_addr}","*":"*"}"#,
    )
    .doc("A BFD session, under its interface, own address and peer."),
    Shape::new(
        "bfd/{interface}/{local_addr}/{peer_addr}/admin_down",
        "true",
        "bfd_udp_session_flags_set",
        r#"{"interface":"{interface}","local_addr":"{local_addr}","peer_addr":"{peer_addr}","admin":"down"}"#,
    )
    .doc("The session is held down."),
];
