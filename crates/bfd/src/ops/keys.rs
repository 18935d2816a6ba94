//! Keys of authentication.

use std::fmt::Write as _;

use quiver_command::configuration::Configuration;
use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::auth::{Key, Kind, Secret};
use crate::control;

request! {
    /// Sets a key that authenticates BFD packets. One that sessions use cannot be changed.
    pub change SetKey "bfd_auth_key_set" ["bfd key set"] {
        /// Its number in the configuration.
        pub conf_key_id: u32 = "conf-key-id <id>",
        /// How it is used.
        pub kind: Kind = "type simple-password|keyed-md5|meticulous-keyed-md5|keyed-sha1|meticulous-keyed-sha1",
        /// The shared secret, two hexadecimal digits for each byte: at most 20 bytes, of passwords and MD5 16.
        pub secret: Secret = "secret <hex>",
    }
}

impl Execute<Router> for SetKey {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { conf_key_id, kind, secret } = self;
        control::set_key(router, conf_key_id, Key { kind, secret }).map(Outcome::Done)
    }
}

request! {
    /// Removes a key of BFD that no session uses.
    pub change DeleteKey "bfd_auth_key_delete" ["bfd key del"] {
        /// Its number in the configuration.
        pub conf_key_id: u32 = "conf-key-id <id>",
    }
}

impl Execute<Router> for DeleteKey {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::delete_key(router, self.conf_key_id).map(Outcome::Done)
    }
}

/// What a key's entry of the configuration makes.
pub(super) fn made(conf_key_id: u32) -> String {
    format!("bfd key {conf_key_id}")
}

/// A key's part of the configuration, which has its secret.
pub(super) fn configured(router: &Router, conf_key_id: &u32, out: &mut Configuration<Router>) {
    let Ok(Key { kind, secret }) = router.state::<control::Bfd>().and_then(|bfd| bfd.key(*conf_key_id)).copied() else { return };
    let set = SetKey { conf_key_id: *conf_key_id, kind, secret };
    out.push(&set).undo(&DeleteKey { conf_key_id: *conf_key_id }).makes(made(*conf_key_id));
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// Its number in the configuration.
    pub conf_key_id: u32,
    /// How it is used.
    pub kind: Kind,
    /// Sessions that use it.
    pub sessions: u32,
}

request! {
    /// Shows the keys that authenticate BFD packets, without their secrets.
    pub read ShowKeys "bfd_auth_keys_show" ["show bfd keys"] {}
}

/// The answer of [`ShowKeys`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Keys(pub Vec<KeyInfo>);

impl Text for Keys {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{:<20} {:<24} {:>10}", "Configuration Key ID", "Type", "Sessions");
        for KeyInfo { conf_key_id, kind, sessions } in &self.0 {
            let _ = writeln!(out, "{conf_key_id:<20} {:<24} {sessions:>10}", kind.name());
        }
        let _ = writeln!(out, "Number of configured BFD keys: {}", self.0.len());
    }
}

impl Execute<Router> for ShowKeys {
    type Reply = Keys;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Keys>, OpError> {
        let keys = control::keys(router)?.into_iter();
        let info = |key: control::KeyInfo| KeyInfo { conf_key_id: key.conf_key_id, kind: key.kind, sessions: key.uses };
        Ok(Outcome::Done(Keys(keys.map(info).collect())))
    }
}
