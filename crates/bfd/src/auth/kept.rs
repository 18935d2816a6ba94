//! What outlives the process of a session's authentication: numbers of packets, and a change of the key that waits for the peer.

use quiver_net::restart::{Damaged, Load, Save};

use super::{Authentication, InUse, Key, Kind, Received, Secret};

/// Authentication of a session in another process.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    sequence: u32,
    received: Option<Received>,
    /// What is in use until the peer uses what is configured.
    before: Option<Option<InUse>>,
}

fn load_key(load: &mut Load<'_>) -> Result<Option<InUse>, Damaged> {
    let number = load.u8()?;
    if number == 0 {
        return Ok(None);
    }
    let kind = Kind::of_number(number).ok_or(Damaged)?;
    let (id, len) = (load.u8()?, usize::from(load.u8()?));
    let secret = Secret::new(load.raw(len)?).filter(|_| len <= kind.secret_max()).ok_or(Damaged)?;
    Ok(Some(InUse { key: Key { kind, secret }, id }))
}

fn save_key(save: &mut Save, by: Option<&InUse>) {
    let Some(InUse { key, id }) = by else {
        save.u8(0);
        return;
    };
    let secret = key.secret.bytes();
    save.u8(key.kind.number()).u8(*id).u8(secret.len() as u8).raw(secret);
}

impl Kept {
    /// Bytes that it has at least.
    pub const LEN: usize = 6;

    /// Reads what [`Authentication::save`] wrote.
    ///
    /// # Errors
    /// None is like this.
    pub fn load(load: &mut Load<'_>) -> Result<Self, Damaged> {
        let sequence = load.u32()?;
        let received = match load.u8()? {
            0 => None,
            1 => Some(Received { sequence: load.u32()?, forgotten: load.u64()? }),
            _ => return Err(Damaged),
        };
        let before = match load.u8()? {
            0 => None,
            1 => Some(load_key(load)?),
            _ => return Err(Damaged),
        };
        Ok(Self { sequence, received, before })
    }
}

impl Authentication {
    /// Writes what outlives the process.
    pub fn save(&self, save: &mut Save) {
        save.u32(self.sequence).u8(u8::from(self.received.is_some()));
        if let Some(received) = self.received {
            save.u32(received.sequence).u64(received.forgotten);
        }
        save.u8(u8::from(self.next.is_some()));
        if self.next.is_some() {
            save_key(save, self.current.as_ref());
        }
    }

    /// Goes on as in another process. The configuration says which key there is to be in the end.
    pub fn adopt(&mut self, kept: &Kept) {
        (self.sequence, self.received) = (kept.sequence, kept.received);
        if let Some(before) = kept.before {
            let wanted = self.next.unwrap_or(self.current);
            self.current = before;
            self.next = (wanted != before).then_some(wanted);
        }
    }
}
