//! The state of one virtual router (RFC 9568, 6.4): a machine that is told packets and times, and says what it wants to send.
//!
//! ```text
//!                      ┌─────────── shutdown ◄───────────┐
//!                      ▼                                 │
//!  Interface Down ◄─► Initialize ── priority 255 ──► Master ◄──┐
//!   no link or          │                              │       │ no advertisement for three intervals and the skew
//!   no address          └──── lower priority ──► Backup ◄─ hears a better one
//!                                                  └───────────┘
//! ```
//!
//! It asks no clock and sends nothing itself: time is an argument, ns of any clock that does not go back.

mod kept;

use std::net::IpAddr;

use crate::packet::Advertisement;
pub use kept::Kept;

/// Priority of the router that has the addresses itself.
pub const OWNER: u8 = 255;
/// A hundredth of a second, ns.
const CENTISECOND: u64 = 10_000_000;
/// A master answers an advertisement of lower priority at once (RFC 9568, 6.4.3), but not more often than this, ns.
const ASSERT_APART: u64 = CENTISECOND;

/// State of a virtual router, by its number in VPP's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// It was not started.
    #[default]
    Initialize = 0,
    /// Another router has the addresses.
    Backup = 1,
    /// This router has them.
    Master = 2,
    /// It was started, and its interface cannot send: it is down, or has no address.
    InterfaceDown = 3,
}

impl State {
    /// Its name, as VPP writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "Initialize",
            Self::Backup => "Backup",
            Self::Master => "Master",
            Self::InterfaceDown => "Interface Down",
        }
    }
}

/// What is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// 255: the addresses are the interface's own.
    pub priority: u8,
    /// Interval of advertisements, hundredths of a second.
    pub interval: u16,
    /// It takes the place of a master of lower priority.
    pub preempt: bool,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// An advertisement with this priority.
    pub advertise: Option<u8>,
    /// Gratuitous ARP or unsolicited neighbor advertisements of all addresses.
    pub announce: bool,
}

impl Send {
    const fn is_nothing(self) -> bool {
        self.advertise.is_none() && !self.announce
    }
}

/// What can be seen of a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// Priority, less what tracked interfaces take from it.
    pub priority: u8,
    /// The master's interval, hundredths of a second.
    pub master_interval: u16,
    /// What is added to the master's silence, hundredths of a second.
    pub skew: u16,
    /// The silence after which it becomes the master, hundredths of a second.
    pub master_down: u16,
    /// The master that was heard last.
    pub master: Option<IpAddr>,
}

/// A virtual router.
#[derive(Clone, Debug)]
pub struct Machine {
    config: Config,
    started: bool,
    /// The address that its packets have as source; none where it cannot send.
    source: Option<IpAddr>,
    decrement: u32,
    state: State,
    master_interval: u16,
    master: Option<IpAddr>,
    /// Backup: when the master is down. Master: when the next advertisement is due.
    timer: u64,
    sent: u64,
    pending: Send,
}

impl Machine {
    /// A virtual router that was not started.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            started: false,
            source: None,
            decrement: 0,
            state: State::Initialize,
            master_interval: config.interval,
            master: None,
            timer: u64::MAX,
            sent: 0,
            pending: Send::default(),
        }
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The source of its packets.
    pub const fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// The interval that its advertisements tell.
    pub const fn interval(&self) -> u16 {
        self.config.interval
    }

    /// Whether the addresses are the interface's own: then no other router's advertisement counts (RFC 9568, 7.1).
    pub const fn is_owner(&self) -> bool {
        self.config.priority == OWNER
    }

    /// Priority, less what tracked interfaces take from it.
    pub fn priority(&self) -> u8 {
        if self.is_owner() {
            return OWNER;
        }
        u32::from(self.config.priority).saturating_sub(self.decrement).max(1) as u8
    }

    /// Skew time, ns (RFC 9568, 6.1).
    fn skew(&self) -> u64 {
        (256 - u64::from(self.priority())) * u64::from(self.master_interval) * CENTISECOND / 256
    }

    fn master_down(&self) -> u64 {
        3 * u64::from(self.master_interval) * CENTISECOND + self.skew()
    }

    /// What can be seen of it.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            priority: self.priority(),
            master_interval: self.master_interval,
            // Rounded up: after so many hundredths it has happened.
            skew: self.skew().div_ceil(CENTISECOND) as u16,
            master_down: self.master_down().div_ceil(CENTISECOND) as u16,
            master: self.master.filter(|_| self.state == State::Backup),
        }
    }

    /// Starts the protocol.
    pub fn start(&mut self, now: u64) {
        if !self.started {
            self.started = true;
            self.begin(now);
        }
    }

    /// Ends the protocol; a master says so.
    pub fn stop(&mut self) {
        let was_master = self.state == State::Master;
        self.started = false;
        self.rest(State::Initialize);
        if was_master {
            self.pending.advertise = Some(0);
        }
    }

    /// Says from which address it can send; none: not at all.
    pub fn set_source(&mut self, source: Option<IpAddr>, now: u64) {
        let could = self.source.is_some();
        self.source = source;
        if self.started && could != source.is_some() {
            self.begin(now);
        }
    }

    /// Says by how much tracked interfaces lower the priority.
    pub fn set_decrement(&mut self, decrement: u32, now: u64) {
        let before = self.priority();
        self.decrement = decrement;
        self.reprioritized(before, now);
    }

    /// Another configuration, without another election unless it becomes the owner or is it no longer.
    pub fn set_config(&mut self, config: Config, now: u64) {
        let (before, was_owner) = (self.priority(), self.is_owner());
        self.config = config;
        if self.started && was_owner != self.is_owner() {
            return self.begin(now);
        }
        if self.state == State::Master {
            self.master_interval = config.interval;
        }
        self.reprioritized(before, now);
    }

    fn reprioritized(&mut self, before: u8, now: u64) {
        if self.state == State::Master && self.priority() != before {
            self.advertise(now);
        }
    }

    fn rest(&mut self, state: State) {
        self.state = state;
        self.timer = u64::MAX;
        self.pending = Send::default();
        self.master = None;
        self.master_interval = self.config.interval;
    }

    fn begin(&mut self, now: u64) {
        self.rest(if self.source.is_some() { State::Backup } else { State::InterfaceDown });
        if self.state == State::InterfaceDown {
            return;
        }
        if self.is_owner() {
            self.take_over(now);
        } else {
            self.timer = now + self.master_down();
        }
    }

    fn take_over(&mut self, now: u64) {
        self.state = State::Master;
        self.master_interval = self.config.interval;
        self.advertise(now);
        self.pending.announce = true;
    }

    fn advertise(&mut self, now: u64) {
        self.pending.advertise = Some(self.priority());
        self.timer = now + u64::from(self.config.interval) * CENTISECOND;
    }

    fn follow(&mut self, heard: &Advertisement, from: IpAddr, now: u64) {
        self.state = State::Backup;
        self.pending = Send::default();
        self.master = Some(from);
        self.master_interval = heard.interval;
        self.timer = now + self.master_down();
    }

    /// Hears an advertisement of another router for the same virtual router.
    pub fn receive(&mut self, heard: &Advertisement, from: IpAddr, now: u64) {
        if self.is_owner() {
            return;
        }
        let priority = self.priority();
        match self.state {
            State::Backup if heard.priority == 0 => self.timer = now + self.skew(),
            State::Backup if !self.config.preempt || heard.priority >= priority => self.follow(heard, from, now),
            State::Master if heard.priority == 0 => self.advertise(now),
            State::Master => {
                let better = heard.priority > priority || heard.priority == priority && Some(from) > self.source;
                if better {
                    self.follow(heard, from, now);
                } else if now >= self.sent + ASSERT_APART {
                    self.advertise(now);
                }
            }
            _ => {}
        }
    }

    /// Does what time calls for.
    pub fn tick(&mut self, now: u64) {
        if now < self.timer {
            return;
        }
        match self.state {
            State::Backup => self.take_over(now),
            State::Master => self.advertise(now),
            _ => self.timer = u64::MAX,
        }
    }

    /// What it wants to send now; it counts as sent.
    pub fn take(&mut self, now: u64) -> Send {
        if self.pending.advertise.is_some() {
            self.sent = now;
        }
        std::mem::take(&mut self.pending)
    }

    /// When it is next to be asked; 0: now.
    pub fn due(&self) -> u64 {
        if self.pending.is_nothing() { self.timer } else { 0 }
    }
}
