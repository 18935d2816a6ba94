//! Authentication of sessions.

use std::net::IpAddr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome};
use quiver_command::request::Execute;
use quiver_command::words;
use quiver_net::Router;

use super::session::session_request;
use crate::control::{self, AuthRef};
use crate::datagram::Key;

words! {
    /// When a change takes effect.
    pub enum Delayed {
        /// As soon as the other side has made it.
        Yes = "yes",
        /// At once.
        No = "no",
    }
}

session_request! {
    /// Authenticates the packets of a BFD session, or does so by another key.
    ActivateAuth "bfd_udp_auth_activate" ["bfd udp session auth activate"] {
        /// The key, by its number in the configuration.
        pub conf_key_id: u32 = "conf-key-id <id>",
        /// The key's number in packets.
        pub bfd_key_id: u8 = "bfd-key-id <id>",
        /// Wait until the other side uses the key.
        pub delayed: Option<Delayed> = "delayed yes|no",
    }
}

impl Execute<Router> for ActivateAuth {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = self.key(router)?;
        let auth = AuthRef { conf_key_id: self.conf_key_id, bfd_key_id: self.bfd_key_id };
        control::set_auth(router, &key, Some(auth), self.delayed == Some(Delayed::Yes)).map(Outcome::Done)
    }
}

session_request! {
    /// Ends authentication of a BFD session.
    DeactivateAuth "bfd_udp_auth_deactivate" ["bfd udp session auth deactivate"] {
        /// Wait until the other side sends packets without authentication.
        pub delayed: Option<Delayed> = "delayed yes|no",
    }
}

impl Execute<Router> for DeactivateAuth {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = self.key(router)?;
        control::set_auth(router, &key, None, self.delayed == Some(Delayed::Yes)).map(Outcome::Done)
    }
}
