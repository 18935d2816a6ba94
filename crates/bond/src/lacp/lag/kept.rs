//! What outlives the process of a port: what its partner relies on. The partner hears the same port in the same state as before.

use quiver_net::restart::{Damaged, Load, Save};

use super::{AGGREGATE_WAIT, Counts, LONG_TIMEOUT, Lag, Mux, Port, Receive, SHORT_TIMEOUT};
use crate::lacp::pdu::{Info, state};

/// A port of another process.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    actor: Info,
    partner: Info,
    receive: Receive,
    mux: Mux,
    selected: bool,
    need_to_transmit: bool,
    counts: Counts,
    current_while: Option<u64>,
    wait_while: Option<u64>,
    periodic: Option<u64>,
}

/// What a port is configured to say of itself.
const CONFIGURED: u8 = state::ACTIVITY | state::TIMEOUT | state::AGGREGATION;
/// What follows from the mux machine.
const OF_MUX: u8 = state::SYNCHRONIZATION | state::COLLECTING | state::DISTRIBUTING;

const RECEIVE: [Receive; 4] = [Receive::Disabled, Receive::Expired, Receive::Defaulted, Receive::Current];
const MUX: [Mux; 5] = [Mux::Detached, Mux::Waiting, Mux::Attached, Mux::Collecting, Mux::Distributing];

fn bits(mux: Mux) -> u8 {
    match mux {
        Mux::Detached | Mux::Waiting => 0,
        Mux::Attached => state::SYNCHRONIZATION,
        Mux::Collecting => state::SYNCHRONIZATION | state::COLLECTING,
        Mux::Distributing => OF_MUX,
    }
}

fn save_time(save: &mut Save, time: Option<u64>) {
    save.u64(time.unwrap_or(u64::MAX));
}

fn load_time(load: &mut Load<'_>) -> Result<Option<u64>, Damaged> {
    Ok(Some(load.u64()?).filter(|time| *time < u64::MAX))
}

fn flag(load: &mut Load<'_>) -> Result<bool, Damaged> {
    match load.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Damaged),
    }
}

impl Kept {
    /// Bytes that it has.
    pub const LEN: usize = 2 * 15 + 4 + 4 * 8 + 3 * 8;

    /// Reads what [`Port::save`] wrote.
    ///
    /// # Errors
    /// No port is like this.
    pub fn load(load: &mut Load<'_>) -> Result<Self, Damaged> {
        let (actor, partner) = (Info::load(load)?, Info::load(load)?);
        let receive = *RECEIVE.get(usize::from(load.u8()?)).ok_or(Damaged)?;
        let mux = *MUX.get(usize::from(load.u8()?)).ok_or(Damaged)?;
        let (selected, need_to_transmit) = (flag(load)?, flag(load)?);
        let counts = Counts { received: load.u64()?, sent: load.u64()?, bad: load.u64()?, markers: load.u64()? };
        let [current_while, wait_while, periodic] = [load_time(load)?, load_time(load)?, load_time(load)?];
        if actor.state & OF_MUX != bits(mux) {
            return Err(Damaged);
        }
        Ok(Self { actor, partner, receive, mux, selected, need_to_transmit, counts, current_while, wait_while, periodic })
    }
}

impl Port {
    /// Writes what outlives the process.
    pub fn save(&self, save: &mut Save) {
        self.actor.save(save);
        self.partner.save(save);
        let at = |place: Option<usize>| place.unwrap_or_default() as u8;
        save.u8(at(RECEIVE.iter().position(|is| *is == self.receive))).u8(at(MUX.iter().position(|is| *is == self.mux)));
        save.u8(u8::from(self.selected)).u8(u8::from(self.need_to_transmit));
        let Counts { received, sent, bad, markers } = self.counts;
        save.u64(received).u64(sent).u64(bad).u64(markers);
        save_time(save, self.current_while);
        save_time(save, self.wait_while);
        save_time(save, self.periodic);
    }

    /// Goes on as a port of another process. While nobody received, silence says nothing of the partner. `false`: the link is down on
    /// one side, or the port is another one for its partner, and begins anew.
    fn adopt(&mut self, kept: &Kept, now: u64) -> bool {
        let is_same = kept.actor.identity() == self.actor.identity();
        if !is_same || !self.enabled || kept.receive == Receive::Disabled {
            return false;
        }
        self.actor.state = kept.actor.state & !CONFIGURED | self.actor.state & CONFIGURED;
        (self.partner, self.receive, self.mux, self.selected) = (kept.partner, kept.receive, kept.mux, kept.selected);
        (self.need_to_transmit, self.counts) = (kept.need_to_transmit, kept.counts);
        let timeout = match (kept.receive, self.actor.has(state::TIMEOUT)) {
            (Receive::Current, false) => Some(now + LONG_TIMEOUT),
            (Receive::Current, true) => Some(now + SHORT_TIMEOUT),
            _ => None,
        };
        self.current_while = timeout.or(kept.current_while.map(|time| time.min(now + SHORT_TIMEOUT)));
        self.wait_while = kept.wait_while.map(|time| time.min(now + AGGREGATE_WAIT));
        // A time beyond the interval is shortened when the machine runs.
        self.periodic = kept.periodic;
        true
    }
}

impl Lag {
    /// Has ports go on as those of another process; gives how many do.
    pub fn adopt(&mut self, all: &[(u8, Kept)], now: u64) -> u64 {
        let mut n = 0;
        for (place, kept) in all {
            n += u64::from(self.port_mut(*place).is_some_and(|port| port.adopt(kept, now)));
        }
        self.settle(now);
        n
    }
}
