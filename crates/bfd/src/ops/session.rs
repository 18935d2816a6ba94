//! Sessions.

use std::net::IpAddr;

use quiver_command::configuration::Configuration;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, retval};
use quiver_command::request::Execute;
use quiver_command::words;
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::interface::ops::resolve;

use super::auth::{ActivateAuth, DeactivateAuth};
use crate::control::{self, AuthRef};
use crate::datagram::Key;
use crate::session::Timing;

/// Declares a request about one session: its own fields come behind those that name the session.
macro_rules! session_request {
    ($(#[$($doc:tt)*])+ $name:ident $operation:literal [$path:literal] { $($rest:tt)* }) => {
        quiver_command::request! {
            $(#[$($doc)*])+
            pub change $name $operation [$path] {
                /// Routers may be in between (RFC 5883); the session is on no interface.
                pub multihop: bool = "multihop",
                /// Interface of a single-hop session.
                pub interface: Option<IfRef> = "interface <if>",
                /// Table whose routes lead to the other side of a multihop session.
                pub table: u32 = "table <id>" default(0),
                /// Own address: of the interface, or of any in the table.
                pub local_addr: IpAddr = "local-addr <ip>",
                /// The other side's address.
                pub peer_addr: IpAddr = "peer-addr <ip>",
                $($rest)*
            }
        }

        impl $name {
            /// What its session is known by.
            pub(crate) fn key(&self, router: &Router) -> Result<Key, OpError> {
                $crate::ops::session::key(router, self.multihop, self.interface.as_ref(), self.table, [self.local_addr, self.peer_addr])
            }
        }
    };
}
pub(super) use session_request;

fn incompatible(why: &str) -> OpError {
    OpError::new(retval::INVALID_ARGUMENT, format!("incompatible parameter combination, {why}"))
}

/// The key of a session, from what a request says of it.
pub(super) fn key(
    router: &Router,
    multihop: bool,
    interface: Option<&IfRef>,
    table: u32,
    [local, peer]: [IpAddr; 2],
) -> Result<Key, OpError> {
    match (multihop, interface) {
        (true, Some(_)) => Err(incompatible("interface cannot be specified when multihop is enabled").key("interface")),
        (true, None) => Ok(Key::multihop(table, local, peer)),
        (false, None) => Err(incompatible("interface must be set if not multihop").key("interface")),
        (false, Some(_)) if table != 0 => {
            Err(incompatible("table is for multihop sessions, others use that of the interface").key("table").value(table))
        }
        (false, Some(interface)) => Ok(Key::on(resolve(router, interface)?, local, peer)),
    }
}

/// An interface by its name.
pub(super) fn name(router: &Router, interface: IfIndex) -> IfRef {
    IfRef(router.interfaces.name(interface))
}

session_request! {
    /// Adds a BFD session, which begins at once.
    AddSession "bfd_udp_session_add" ["bfd udp session add"] {
        /// Interval at which to send, microseconds.
        pub desired_min_tx: u32 = "desired-min-tx <us>" range(1000..=4_294_967_295),
        /// Interval at which to receive, microseconds.
        pub required_min_rx: u32 = "required-min-rx <us>" range(1000..=4_294_967_295),
        /// Packets in a row whose loss ends the session.
        pub detect_mult: u8 = "detect-mult <n>" range(1..=255),
        /// Key that authenticates packets, by its number in the configuration.
        pub conf_key_id: Option<u32> = "conf-key-id <id>",
        /// The key's number in packets.
        pub bfd_key_id: Option<u8> = "bfd-key-id <id>",
    }
}

impl Execute<Router> for AddSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { desired_min_tx, required_min_rx, detect_mult, .. } = self;
        let key = self.key(router)?;
        let auth = match (self.conf_key_id, self.bfd_key_id) {
            (Some(conf_key_id), Some(bfd_key_id)) => Some(AuthRef { conf_key_id, bfd_key_id }),
            (None, None) => None,
            _ => return Err(incompatible("conf-key-id and bfd-key-id go together").key("conf-key-id")),
        };
        control::add(router, key, Timing { desired_min_tx, required_min_rx, detect_mult }, auth)?;
        Ok(Outcome::Done(()))
    }
}

session_request! {
    /// Changes the intervals of a BFD session; one that is up stays so.
    ModifySession "bfd_udp_session_modify" ["bfd udp session mod"] {
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
        let key = self.key(router)?;
        control::modify(router, &key, Timing { desired_min_tx, required_min_rx, detect_mult }).map(Outcome::Done)
    }
}

session_request! {
    /// Removes a BFD session; the other side is not told.
    DeleteSession "bfd_udp_session_delete" ["bfd udp session del"] {}
}

impl Execute<Router> for DeleteSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = self.key(router)?;
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

session_request! {
    /// Takes a BFD session down administratively, or releases it.
    SetFlags "bfd_udp_session_flags_set" ["bfd udp session set-flags"] {
        /// Up or down.
        pub admin: Admin = "admin up|down",
    }
}

impl Execute<Router> for SetFlags {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = self.key(router)?;
        control::set_admin(router, &key, self.admin == Admin::Up).map(Outcome::Done)
    }
}

/// A session's part of the configuration.
pub(super) fn configured(router: &Router, key: &Key, out: &mut Configuration<Router>) {
    let Ok(session) = router.state::<control::Bfd>().and_then(|bfd| bfd.session(key)) else { return };
    let (multihop, table, local_addr, peer_addr) = (key.is_multihop(), key.table, key.local, key.peer);
    let interface = (!multihop).then(|| name(router, key.interface));
    let Timing { desired_min_tx, required_min_rx, detect_mult } = session.timing;
    let made = match &interface {
        Some(interface) => format!("bfd {} {local_addr} {peer_addr}", interface.as_str()),
        None => format!("bfd table {table} {local_addr} {peer_addr}"),
    };
    let of = || interface.clone();
    let add = AddSession {
        multihop,
        interface: of(),
        table,
        local_addr,
        peer_addr,
        desired_min_tx,
        required_min_rx,
        detect_mult,
        conf_key_id: None,
        bfd_key_id: None,
    };
    let modify =
        ModifySession { multihop, interface: of(), table, local_addr, peer_addr, desired_min_tx, required_min_rx, detect_mult };
    let delete = DeleteSession { multihop, interface: of(), table, local_addr, peer_addr };
    out.push(&add).undo(&delete).replaced_by(&modify).makes(made.clone());
    if let Some(AuthRef { conf_key_id, bfd_key_id }) = session.auth {
        let activate =
            ActivateAuth { multihop, interface: of(), table, local_addr, peer_addr, conf_key_id, bfd_key_id, delayed: None };
        let deactivate = DeactivateAuth { multihop, interface: of(), table, local_addr, peer_addr, delayed: None };
        out.push(&activate).undo(&deactivate).replaced_by(&activate).needs(made.clone()).needs(super::keys::made(conf_key_id));
    }
    if !session.admin_up {
        let flags = |admin| SetFlags { multihop, interface: of(), table, local_addr, peer_addr, admin };
        out.push(&flags(Admin::Down)).undo(&flags(Admin::Up)).needs(made);
    }
}
