//! What outlives the process of a virtual router: other routers hear the same master as before, or none.

use std::net::IpAddr;

use quiver_net::ip::FamilyId;
use quiver_net::restart::{Damaged, Load, Save};

use super::{CENTISECOND, Machine, Send, State};

/// Longest interval that an advertisement can tell, hundredths of a second.
const INTERVAL_MAX: u16 = 0xfff;

/// A virtual router in another process, master or backup.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    is_master: bool,
    master_interval: u16,
    master: Option<IpAddr>,
    timer: u64,
}

impl Kept {
    /// Bytes that it has at least.
    pub const LEN: usize = 12;

    /// Writes it.
    pub fn save(&self, save: &mut Save) {
        save.u8(u8::from(self.is_master)).u16(self.master_interval).u64(self.timer);
        match self.master {
            Some(master) => save.u8(1).ip(master),
            None => save.u8(0),
        };
    }

    /// Reads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// No virtual router of this family is like this.
    pub fn load(load: &mut Load<'_>, family: FamilyId) -> Result<Self, Damaged> {
        let is_master = match load.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Damaged),
        };
        let (master_interval, timer) = (load.u16()?, load.u64()?);
        let master = match load.u8()? {
            0 => None,
            1 => Some(load.ip()?),
            _ => return Err(Damaged),
        };
        let is_sound = (1..=INTERVAL_MAX).contains(&master_interval) && master.is_none_or(|master| FamilyId::of(&master) == family);
        if is_sound { Ok(Self { is_master, master_interval, master, timer }) } else { Err(Damaged) }
    }
}

impl Machine {
    /// What outlives the process, of one that is master or backup.
    pub fn kept(&self) -> Option<Kept> {
        let is_master = match self.state {
            State::Master => true,
            State::Backup => false,
            _ => return None,
        };
        Some(Kept { is_master, master_interval: self.master_interval, master: self.master, timer: self.timer })
    }

    /// Goes on as in another process, without an election and without a word. `false`: it cannot send, or was not started.
    pub fn adopt(&mut self, kept: &Kept, now: u64) -> bool {
        if !self.started || self.source.is_none() || self.is_owner() && !kept.is_master {
            return false;
        }
        self.pending = Send::default();
        self.state = if kept.is_master { State::Master } else { State::Backup };
        if kept.is_master {
            self.master = None;
            self.master_interval = self.config.interval;
            self.timer = kept.timer.min(now + u64::from(self.config.interval) * CENTISECOND);
        } else {
            self.master = kept.master;
            self.master_interval = kept.master_interval;
            // While nobody received, silence said nothing of the master.
            self.timer = now + self.master_down();
        }
        true
    }
}
