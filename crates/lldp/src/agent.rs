//! The agent of a port (IEEE 802.1AB-2016, clause 9): when it sends, and which neighbours it knows. It has no clock and no packets: it is told
//! the time, what was heard, and whether the port is up; it says what is due. Times are nanoseconds of the router's timer time.

use crate::pdu::{Info, Unit};

/// A second.
pub const SECOND: u64 = 1_000_000_000;
/// Between units after news, instead of the interval (`msgFastTx`, 9.2.5.5).
const FAST: u64 = SECOND;
/// Units that are sent fast when a new neighbour is heard (`txFastInit`, 9.2.5.19).
const FAST_COUNT: u8 = 4;
/// Units that may be sent at once (`txCreditMax`, 9.2.5.17); another one each second.
const CREDIT: u32 = 5;
/// Neighbours that a port remembers. More would be a flood: a link has one, a shared one a few.
pub const NEIGHBOURS_MAX: usize = 16;

/// So many at once, and one more each `every` ns.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    left: u32,
    most: u32,
    every: u64,
    counted: u64,
}

impl Allowance {
    /// A full one.
    pub const fn new(most: u32, every: u64) -> Self {
        Self { left: most, most, every, counted: 0 }
    }

    fn fill(&mut self, now: u64) {
        let new = now.saturating_sub(self.counted) / self.every;
        if new >= u64::from(self.most - self.left) {
            (self.left, self.counted) = (self.most, now);
        } else {
            self.left += new as u32;
            self.counted += new * self.every;
        }
    }

    /// Takes one; `false`: there is none.
    pub fn take(&mut self, now: u64) -> bool {
        self.fill(now);
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }

    /// When the next can be taken.
    fn ready(&self) -> u64 {
        if self.left > 0 { 0 } else { self.counted + self.every }
    }
}

/// What a port has counted (9.2.6 and 11.5.2), but for frames that it did not take ([`crate::node`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units sent, last ones too.
    pub sent: u64,
    /// Units sent without an optional TLV that had no room (`lldpduLengthErrors`).
    pub length_errors: u64,
    /// Optional TLVs that were wrong or stood twice.
    pub tlvs_discarded: u64,
    /// Optional TLVs that are not known here.
    pub tlvs_unrecognized: u64,
    /// Neighbours that fell silent.
    pub ageouts: u64,
    /// Neighbours that came.
    pub inserts: u64,
    /// Neighbours that went, silent ones too.
    pub deletes: u64,
    /// Units of neighbours for which there was no room.
    pub drops: u64,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// What it says.
    pub info: Info,
    /// Since when it has been known.
    pub since: u64,
    /// When it last spoke.
    pub heard: u64,
    /// When it last said something else than before.
    pub changed: u64,
    /// When it is forgotten.
    pub expires: u64,
}

/// What a unit has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A new neighbour.
    New,
    /// A neighbour says something else.
    Changed,
    /// It says what it said.
    Same,
    /// It speaks no more: what was known of it.
    Gone(Box<Info>),
    /// One that was not known speaks no more.
    Unknown,
    /// There is no room for one more.
    TooMany,
}

/// The agent.
#[derive(Clone, Debug)]
pub struct Agent {
    neighbours: Vec<Neighbour>,
    up: bool,
    /// When the next unit is due.
    next: u64,
    /// Units that are still to be sent fast.
    fast: u8,
    allowance: Allowance,
    /// When it last sent.
    pub last_sent: Option<u64>,
    /// When somebody was last heard.
    pub last_heard: Option<u64>,
    /// Until when it is known that there are more neighbours than room (`tooManyNeighbors`).
    pub crowded_until: u64,
    /// What it has counted.
    pub counts: Counts,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            neighbours: Vec::new(),
            up: false,
            next: 0,
            fast: 0,
            allowance: Allowance::new(CREDIT, SECOND),
            last_sent: None,
            last_heard: None,
            crowded_until: 0,
            counts: Counts::default(),
        }
    }
}

impl Agent {
    /// Neighbours, in order of coming.
    pub fn neighbours(&self) -> &[Neighbour] {
        &self.neighbours
    }

    /// Whether its port is up.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// The port is up or down. While it is down nothing is sent; neighbours are known as long as they have said.
    pub const fn set_up(&mut self, up: bool, now: u64) {
        if up && !self.up {
            self.next = now;
        }
        self.up = up;
    }

    /// What the port says has changed: it is sent soon (`somethingChangedLocal`).
    pub const fn changed(&mut self, now: u64) {
        if now < self.next {
            self.next = now;
        }
    }

    /// A unit was heard.
    pub fn hear(&mut self, unit: &Unit<'_>, now: u64) -> News {
        self.counts.tlvs_discarded += u64::from(unit.discarded);
        self.counts.tlvs_unrecognized += u64::from(unit.unrecognized);
        self.last_heard = Some(now);
        let (chassis, port) = unit.who();
        let at = self.neighbours.iter().position(|known| known.info.chassis.is(chassis) && known.info.port.is(port));
        let expires = now + u64::from(unit.ttl) * SECOND;
        match at {
            Some(at) if unit.ttl == 0 => {
                self.counts.deletes += 1;
                News::Gone(Box::new(self.neighbours.remove(at).info))
            }
            None if unit.ttl == 0 => News::Unknown,
            Some(at) => {
                let (known, info) = (&mut self.neighbours[at], Info::from(unit));
                (known.heard, known.expires) = (now, expires);
                if known.info == info {
                    return News::Same;
                }
                (known.changed, known.info) = (now, info);
                News::Changed
            }
            None if self.neighbours.len() >= NEIGHBOURS_MAX => {
                self.counts.drops += 1;
                self.crowded_until = self.crowded_until.max(expires);
                News::TooMany
            }
            None => {
                self.counts.inserts += 1;
                self.neighbours.push(Neighbour { info: unit.into(), since: now, heard: now, changed: now, expires });
                // It learns of this one without waiting for an interval.
                self.fast = FAST_COUNT;
                self.changed(now);
                News::New
            }
        }
    }

    /// Forgets who has been silent for too long.
    pub fn expire(&mut self, now: u64) -> Vec<Info> {
        let gone: Vec<Info> = self.neighbours.extract_if(.., |known| known.expires <= now).map(|known| known.info).collect();
        self.counts.ageouts += gone.len() as u64;
        self.counts.deletes += gone.len() as u64;
        gone
    }

    /// Whether a unit has to be sent now, which is then taken as sent. `interval`: seconds between units.
    pub fn sends(&mut self, interval: u32, now: u64) -> bool {
        if !self.up || now < self.next || !self.allowance.take(now) {
            return false;
        }
        self.fast = self.fast.saturating_sub(1);
        self.next = now + if self.fast > 0 { FAST } else { u64::from(interval) * SECOND };
        self.last_sent = Some(now);
        self.counts.sent += 1;
        true
    }

    /// When there is something to do; `u64::MAX`: nothing unless something happens.
    pub fn due(&self) -> u64 {
        let send = if self.up { self.next.max(self.allowance.ready()) } else { u64::MAX };
        self.neighbours.iter().map(|known| known.expires).min().unwrap_or(u64::MAX).min(send)
    }
}

#[cfg(test)]
mod tests;
