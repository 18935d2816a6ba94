//! What outlives the process of a session: what the peer relies on. The peer hears the same discriminator, state and intervals as before.

use quiver_net::restart::{Damaged, Load, Save};

use super::{Echoes, MICROSECOND, Poll, Remote, Session};
use crate::packet::State;

/// Bits of the flags.
const FAILED: u8 = 1;
const HEARD: u8 = 1 << 1;
const ECHOING: u8 = 1 << 2;
const DEMAND: u8 = 1 << 3;
/// Least interval that can be configured, µs.
const LEAST: u32 = 1000;

/// A session's state in another process.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    local: u32,
    state: State,
    diagnostic: u8,
    remote: Remote,
    failed: bool,
    heard: bool,
    echoing: bool,
    poll: Poll,
    tx: u32,
    rx: u32,
    last_tx: u64,
    next_tx: u64,
}

fn state(number: u8) -> Result<State, Damaged> {
    [State::AdminDown, State::Down, State::Init, State::Up].into_iter().find(|state| *state as u8 == number).ok_or(Damaged)
}

fn diagnostic(number: u8) -> Result<u8, Damaged> {
    if number < 1 << 5 { Ok(number) } else { Err(Damaged) }
}

impl Kept {
    /// Bytes that it has.
    pub const LEN: usize = 51;

    /// Its own discriminator.
    pub fn discriminator(&self) -> u32 {
        self.local
    }

    /// Reads what [`Session::save`] wrote.
    ///
    /// # Errors
    /// No session is like this.
    pub fn load(load: &mut Load<'_>) -> Result<Self, Damaged> {
        let local = load.u32()?;
        let (own_state, own_diagnostic, flags) = (state(load.u8()?)?, diagnostic(load.u8()?)?, load.u8()?);
        let poll = match load.u8()? {
            0 => Poll::None,
            1 => Poll::Active,
            2 => Poll::Again,
            _ => return Err(Damaged),
        };
        let (tx, rx, last_tx, next_tx) = (load.u32()?, load.u32()?, load.u64()?, load.u64()?);
        let remote = Remote {
            discriminator: load.u32()?,
            state: state(load.u8()?)?,
            diagnostic: diagnostic(load.u8()?)?,
            demand: flags & DEMAND != 0,
            detect_mult: load.u8()?,
            desired_min_tx: load.u32()?,
            required_min_rx: load.u32()?,
            required_min_echo_rx: load.u32()?,
        };
        let heard = flags & HEARD != 0;
        let knows = heard && remote.discriminator != 0 && remote.detect_mult != 0;
        if local == 0 || heard && !knows || matches!(own_state, State::Init | State::Up) && !knows {
            return Err(Damaged);
        }
        Ok(Self {
            local,
            state: own_state,
            diagnostic: own_diagnostic,
            remote,
            failed: flags & FAILED != 0,
            heard,
            echoing: flags & ECHOING != 0,
            poll,
            tx,
            rx,
            last_tx,
            next_tx,
        })
    }
}

impl Session {
    /// Writes what outlives the process.
    pub fn save(&self, save: &mut Save) {
        let remote = self.remote;
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.failed, FAILED)
            | flag(self.heard.is_some(), HEARD)
            | flag(self.echoing.is_some(), ECHOING)
            | flag(remote.demand, DEMAND);
        let poll = match self.poll {
            Poll::None => 0,
            Poll::Active => 1,
            Poll::Again => 2,
        };
        save.u32(self.local).u8(self.state as u8).u8(self.diagnostic).u8(flags).u8(poll);
        save.u32(self.tx).u32(self.rx).u64(self.last_tx).u64(self.next_tx);
        save.u32(remote.discriminator).u8(remote.state as u8).u8(remote.diagnostic).u8(remote.detect_mult);
        save.u32(remote.desired_min_tx).u32(remote.required_min_rx).u32(remote.required_min_echo_rx);
    }

    /// Goes on as the session of another process. While nobody received, silence says nothing: the detection time begins anew. `false`:
    /// it is held down, or no longer, and stays as it is.
    pub fn adopt(&mut self, kept: &Kept, now: u64) -> bool {
        if (self.state == State::AdminDown) != (kept.state == State::AdminDown) {
            return false;
        }
        (self.local, self.state, self.diagnostic) = (kept.local, kept.state, kept.diagnostic);
        (self.remote, self.failed, self.poll) = (kept.remote, kept.failed, kept.poll);
        (self.tx, self.rx) = (kept.tx.max(LEAST), kept.rx.max(LEAST));
        self.heard = kept.heard.then_some(now);
        self.last_tx = kept.last_tx.min(now);
        self.next_tx = kept.next_tx.min(now + u64::from(self.tx_interval()) * MICROSECOND);
        self.echoing = None;
        if kept.echoing && self.echoes != Echoes::Sent {
            // The peer sends at the long interval, and is to use the short one again.
            self.begin_poll(now);
        }
        self.follow_echo(now);
        true
    }
}
