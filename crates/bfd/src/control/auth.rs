//! Keys, and which sessions use them.

use quiver_command::operation::{OpError, retval};
use quiver_net::Router;

use super::{Bfd, change};
use crate::auth::{InUse, Key, Kind};
use crate::datagram;

/// Most keys.
const KEYS_MAX: usize = 4096;

/// A key as a session names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRef {
    /// Its number in the configuration.
    pub conf_key_id: u32,
    /// Its number in packets.
    pub bfd_key_id: u8,
}

/// A key, without its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its number in the configuration.
    pub conf_key_id: u32,
    /// What it is for.
    pub kind: Kind,
    /// Sessions that use it.
    pub uses: u32,
}

/// A key, and how many sessions use it.
pub(super) struct UsedKey {
    key: Key,
    uses: u32,
}

impl Bfd {
    /// Refuses what only a key may have that no session uses.
    fn idle_key(&self, conf_key_id: u32) -> Result<(), OpError> {
        match self.keys.get(&conf_key_id).map_or(0, |used| used.uses) {
            0 => Ok(()),
            uses => {
                let text = format!("{uses} sessions use this key");
                let error = OpError::new(retval::BFD_EINUSE, text).key("conf-key-id").value(conf_key_id);
                Err(error.remedy("`bfd udp session auth activate' gives a session another key"))
            }
        }
    }

    /// A session uses another key or none.
    pub(super) fn use_key(&mut self, before: Option<AuthRef>, auth: Option<AuthRef>) {
        if let Some(used) = auth.and_then(|auth| self.keys.get_mut(&auth.conf_key_id)) {
            used.uses += 1;
        }
        if let Some(used) = before.and_then(|auth| self.keys.get_mut(&auth.conf_key_id)) {
            used.uses = used.uses.saturating_sub(1);
        }
    }

    /// A key by its number.
    ///
    /// # Errors
    /// There is none.
    pub fn key(&self, conf_key_id: u32) -> Result<&Key, OpError> {
        self.keys.get(&conf_key_id).map(|used| &used.key).ok_or_else(|| {
            let error = OpError::new(retval::BFD_ENOENT, "no such key").key("conf-key-id").value(conf_key_id);
            error.remedy("`bfd key set' makes it")
        })
    }

    pub(super) fn in_use(&self, auth: AuthRef) -> Result<InUse, OpError> {
        Ok(InUse { key: *self.key(auth.conf_key_id)?, id: auth.bfd_key_id })
    }
}

/// All keys.
///
/// # Errors
/// The plugin is off.
pub fn keys(router: &Router) -> Result<Vec<KeyInfo>, OpError> {
    let bfd = router.state::<Bfd>()?;
    let info = |(id, used): (&u32, &UsedKey)| KeyInfo { conf_key_id: *id, kind: used.key.kind, uses: used.uses };
    Ok(bfd.keys.iter().map(info).collect())
}

/// Makes a key, or changes one that no session uses.
///
/// # Errors
/// It is in use, its secret is too long, or there are too many.
pub fn set_key(router: &mut Router, conf_key_id: u32, key: Key) -> Result<(), OpError> {
    let most = key.kind.secret_max();
    if key.secret.bytes().len() > most {
        let text = format!("a secret for {} has at most {most} bytes", key.kind.name());
        return Err(OpError::new(retval::INVALID_VALUE, text).key("secret"));
    }
    router.with_state::<Bfd, _>(|_, bfd| {
        bfd.idle_key(conf_key_id)?;
        if bfd.keys.len() >= KEYS_MAX && !bfd.keys.contains_key(&conf_key_id) {
            let error = OpError::new(retval::LIMIT_EXCEEDED, format!("there are {KEYS_MAX} keys already"));
            return Err(error.key("conf-key-id").value(conf_key_id));
        }
        bfd.keys.insert(conf_key_id, UsedKey { key, uses: 0 });
        Ok(())
    })
}

/// Removes a key.
///
/// # Errors
/// There is none, or it is in use.
pub fn delete_key(router: &mut Router, conf_key_id: u32) -> Result<(), OpError> {
    router.with_state::<Bfd, _>(|_, bfd| {
        bfd.key(conf_key_id)?;
        bfd.idle_key(conf_key_id)?;
        bfd.keys.remove(&conf_key_id);
        Ok(())
    })
}

/// Authenticates a session by a key, or no longer; `delayed`: as soon as the other side does.
///
/// # Errors
/// There is no such session or key.
pub fn set_auth(router: &mut Router, key: &datagram::Key, auth: Option<AuthRef>, delayed: bool) -> Result<(), OpError> {
    let by = auth.map(|auth| router.state::<Bfd>()?.in_use(auth)).transpose()?;
    let before = router.state::<Bfd>()?.session(key)?.auth;
    router.with_state::<Bfd, _>(|_, bfd| {
        bfd.use_key(before, auth);
        Ok(())
    })?;
    change(router, key, |session| session.auth = auth, move |entry, _| entry.authentication.set(by, delayed))
}
