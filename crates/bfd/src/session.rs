//! The state of one session (RFC 5880, 6.8): a machine that is told packets and times, and says when it wants to send.
//!
//! ```text
//!            ┌──────────────────── Down, time expired ───────────────────┐
//!            ▼                                                            │
//!          Down ── hears Down ──► Init ── hears Init or Up ──► Up ────────┘
//!            └───────────────────── hears Init ────────────────►┘
//! ```
//!
//! It asks no clock and sends nothing itself: time is an argument, ns of any clock that does not go back.

mod kept;

pub use kept::Kept;

use crate::packet::{Control, State, diagnostic};

/// Least interval of a session that is not up, µs (RFC 5880, 6.8.3).
const SLOW: u32 = 1_000_000;
/// Least interval at which control packets are asked for while echo packets watch the path, µs (RFC 5880, 6.8.9).
const BESIDE_ECHO: u32 = 1_000_000;
/// Interval at which echo packets of the peer are returned, µs: they are forwarded like others.
const ECHO_RETURNED: u32 = 1;
const MICROSECOND: u64 = 1000;

/// Intervals that somebody has configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval at which to send, µs.
    pub desired_min_tx: u32,
    /// Interval at which to receive, µs.
    pub required_min_rx: u32,
    /// Packets in a row whose loss ends the session.
    pub detect_mult: u8,
}

/// What the other side has said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its number of the session; 0 where it is not known.
    pub discriminator: u32,
    /// Its state.
    pub state: State,
    /// Why its session was last down.
    pub diagnostic: u8,
    /// It works in demand mode.
    pub demand: bool,
    /// Its detection multiplier.
    pub detect_mult: u8,
    /// Interval at which it would like to send, µs.
    pub desired_min_tx: u32,
    /// Interval at which it can receive, µs; 0: not at all.
    pub required_min_rx: u32,
    /// Interval at which it returns echo packets, µs; 0: not at all.
    pub required_min_echo_rx: u32,
}

impl Remote {
    /// Nothing has been heard yet (RFC 5880, 6.8.1).
    const UNKNOWN: Self = Self {
        discriminator: 0,
        state: State::Down,
        diagnostic: 0,
        demand: false,
        detect_mult: 0,
        desired_min_tx: 0,
        required_min_rx: 1,
        required_min_echo_rx: 0,
    };
}

/// What a session does with echo packets (RFC 5880, 6.8.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echoes {
    /// Nothing: several hops, which echo packets do not cross (RFC 5883, 4).
    #[default]
    None,
    /// The peer may send some.
    Returned,
    /// This side sends some too, where the peer returns them.
    Sent,
}

/// Echo packets are being sent.
#[derive(Clone, Copy, Debug)]
struct Echoing {
    next: u64,
    deadline: u64,
    /// When the newest that has come back was sent.
    newest: u64,
}

/// Whether the other side is being asked to confirm new intervals (RFC 5880, 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    None,
    Active,
    /// The intervals have changed meanwhile: once more.
    Again,
}

/// What follows from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The session's state is another.
    pub changed: bool,
    /// Something is to be sent at once; `Some(true)`: with the final bit.
    pub answer: Option<bool>,
}

/// What follows from time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// The session's state is another.
    pub changed: bool,
    /// A packet is to be sent now.
    pub send: bool,
    /// An echo packet is to be sent now.
    pub echo: bool,
}

/// A session as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// State.
    pub state: State,
    /// Why it was last down.
    pub diagnostic: u8,
    /// It was up and was lost: what depends on it should not be used.
    pub failed: bool,
    /// The other side.
    pub remote: Remote,
    /// Interval at which packets are sent, before jitter, µs.
    pub tx_interval: u32,
    /// Time without packets after which the session is down, µs; 0: nothing is heard.
    pub detection_time: u64,
    /// The other side is being asked to confirm new intervals.
    pub polling: bool,
    /// Interval at which echo packets are sent, before jitter, µs; 0: none are.
    pub echo_interval: u32,
    /// The other side does not use the new authentication yet.
    pub auth_pending: bool,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    local: u32,
    timing: Timing,
    state: State,
    diagnostic: u8,
    remote: Remote,
    failed: bool,
    poll: Poll,
    /// Intervals in force: new ones wait for the other side's confirmation where it could not keep up otherwise.
    tx: u32,
    rx: u32,
    last_tx: u64,
    next_tx: u64,
    heard: Option<u64>,
    echoes: Echoes,
    echoing: Option<Echoing>,
    random: u64,
}

impl Session {
    /// A session that is down and sends at once.
    pub fn new(discriminator: u32, timing: Timing, seed: u64, now: u64) -> Self {
        let mut session = Self {
            local: discriminator,
            timing,
            state: State::Down,
            diagnostic: diagnostic::NONE,
            remote: Remote::UNKNOWN,
            failed: false,
            poll: Poll::None,
            tx: 0,
            rx: 0,
            last_tx: now,
            next_tx: now,
            heard: None,
            echoes: Echoes::None,
            echoing: None,
            random: seed,
        };
        session.apply_timing();
        session
    }

    /// Its discriminator.
    pub fn discriminator(&self) -> u32 {
        self.local
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// What others see of it.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            diagnostic: self.diagnostic,
            failed: self.failed,
            remote: self.remote,
            tx_interval: self.tx_interval(),
            detection_time: self.heard.map_or(0, |_| self.detection_time()),
            polling: self.poll != Poll::None,
            echo_interval: self.echoing.map_or(0, |_| self.echo_interval()),
            auth_pending: false,
        }
    }

    /// The interval that packets say: slow while the session is not up.
    fn desired_min_tx(&self) -> u32 {
        if self.state == State::Up { self.timing.desired_min_tx } else { self.timing.desired_min_tx.max(SLOW) }
    }

    /// The interval of receiving that packets say: longer while echo packets watch the path.
    fn required_min_rx(&self) -> u32 {
        let configured = self.timing.required_min_rx;
        if self.echoing.is_some() { configured.max(BESIDE_ECHO) } else { configured }
    }

    /// Puts intervals into force, as far as that need not wait (RFC 5880, 6.8.3).
    fn apply_timing(&mut self) {
        let (tx, rx) = (self.desired_min_tx(), self.required_min_rx());
        let waits = self.state == State::Up && self.poll != Poll::None;
        self.tx = if waits { self.tx.min(tx) } else { tx };
        self.rx = if waits { self.rx.max(rx) } else { rx };
    }

    fn tx_interval(&self) -> u32 {
        self.tx.max(self.remote.required_min_rx)
    }

    /// Detection time, µs (RFC 5880, 6.8.4).
    fn detection_time(&self) -> u64 {
        u64::from(self.remote.detect_mult) * u64::from(self.rx.max(self.remote.desired_min_tx))
    }

    /// splitmix64: no secret depends on it.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn echo_interval(&self) -> u32 {
        self.timing.desired_min_tx.max(self.remote.required_min_echo_rx)
    }

    /// Time until echo packets are missed, ns.
    fn echo_detection(&self) -> u64 {
        u64::from(self.timing.detect_mult) * u64::from(self.echo_interval()) * MICROSECOND
    }

    /// An interval, ns, shortened by up to a quarter; to at most 90 % where one loss ends the session (RFC 5880, 6.8.7).
    fn jittered(&mut self, interval: u32) -> u64 {
        let interval = u64::from(interval) * MICROSECOND;
        let most = if self.timing.detect_mult == 1 { interval / 10 * 9 } else { interval };
        let least = interval / 4 * 3;
        least + self.random() % (most - least + 1)
    }

    /// Whether packets are sent without being asked for (RFC 5880, 6.8.7).
    fn may_send(&self) -> bool {
        let demanded = self.remote.demand && self.state == State::Up && self.remote.state == State::Up;
        self.remote.required_min_rx != 0 && (!demanded || self.poll != Poll::None)
    }

    /// When [`tick`](Self::tick) has something to do; `u64::MAX`: never.
    pub fn due(&self) -> u64 {
        let send = if self.may_send() { self.next_tx } else { u64::MAX };
        let echo = self.echoing.map_or(u64::MAX, |echoing| echoing.next.min(echoing.deadline));
        send.min(self.deadline()).min(echo)
    }

    /// Begins or ends sending echo packets, as state and peer allow it. The interval of receiving is another then, which the peer
    /// confirms.
    fn follow_echo(&mut self, now: u64) {
        let sends = self.echoes == Echoes::Sent && self.state == State::Up && self.remote.required_min_echo_rx != 0;
        if sends == self.echoing.is_some() {
            return;
        }
        let before = self.required_min_rx();
        // The first one has an interval to come back before one is missing.
        let deadline = now + self.echo_detection() + u64::from(self.echo_interval()) * MICROSECOND;
        self.echoing = sends.then_some(Echoing { next: now, deadline, newest: 0 });
        match self.state {
            State::Up if self.required_min_rx() != before => self.begin_poll(now),
            _ => self.apply_timing(),
        }
    }

    /// Asks the other side to confirm other intervals; it is told soon.
    fn begin_poll(&mut self, now: u64) {
        self.poll = if self.poll == Poll::None { Poll::Active } else { Poll::Again };
        self.apply_timing();
        self.next_tx = self.next_tx.min(now);
    }

    /// Says what to do with echo packets.
    pub fn set_echoes(&mut self, echoes: Echoes, now: u64) {
        self.echoes = echoes;
        self.follow_echo(now);
    }

    /// Takes an own echo packet that has come back; one that is not newer than the last counts nothing.
    pub fn echo_returned(&mut self, sent: u64, now: u64) {
        let detection = self.echo_detection();
        if let Some(echoing) = self.echoing.as_mut().filter(|echoing| sent > echoing.newest && sent <= now) {
            (echoing.newest, echoing.deadline) = (sent, now + detection);
        }
    }

    /// Whether a packet that is sent now leaves more than a tenth of the interval after its time.
    pub fn is_late(&self, now: u64) -> bool {
        self.may_send() && now.saturating_sub(self.next_tx) > u64::from(self.tx_interval()) * MICROSECOND / 10
    }

    fn deadline(&self) -> u64 {
        self.heard.map_or(u64::MAX, |heard| heard.saturating_add(self.detection_time() * MICROSECOND))
    }

    fn set_state(&mut self, state: State, diagnostic: u8) {
        if self.state == State::Up || state == State::Up {
            self.failed = state != State::Up && diagnostic != diagnostic::ADMIN_DOWN;
        }
        (self.state, self.diagnostic) = (state, diagnostic);
        // The interval that a session says is shorter while it is up: the other side confirms that.
        self.poll = if state == State::Up { Poll::Active } else { Poll::None };
        self.apply_timing();
    }

    /// Takes a packet for this session that was found valid.
    pub fn receive(&mut self, control: &Control, now: u64) -> Heard {
        let interval = self.tx_interval();
        self.remote = Remote {
            discriminator: control.my_discriminator,
            state: control.state,
            diagnostic: control.diagnostic,
            demand: control.demand,
            detect_mult: control.detect_mult,
            desired_min_tx: control.desired_min_tx,
            required_min_rx: control.required_min_rx,
            required_min_echo_rx: control.required_min_echo_rx,
        };
        self.heard = Some(now);
        if control.is_final && self.poll != Poll::None {
            self.poll = if self.poll == Poll::Again { Poll::Active } else { Poll::None };
            self.apply_timing();
        }
        let before = self.state;
        let down = diagnostic::NEIGHBOR_DOWN;
        match (self.state, control.state) {
            (State::AdminDown, _) => return Heard { changed: false, answer: None },
            (State::Init | State::Up, State::AdminDown) => self.set_state(State::Down, down),
            (State::Down, State::Down) => self.set_state(State::Init, self.diagnostic),
            (State::Down | State::Init, State::Init) | (State::Init, State::Up) => self.set_state(State::Up, diagnostic::NONE),
            (State::Up, State::Down) => self.set_state(State::Down, down),
            _ => {}
        }
        if control.state == State::AdminDown {
            // Somebody has switched BFD off over there: that says nothing about the path (RFC 5882, 3.2).
            self.failed = false;
        }
        self.follow_echo(now);
        if self.tx_interval() < interval {
            let next = self.last_tx + self.jittered(self.tx_interval());
            self.next_tx = self.next_tx.min(next.max(now));
        }
        let changed = self.state != before;
        // An answer that asks would be answered without end.
        let asked = control.poll && !control.is_final;
        Heard { changed, answer: (changed || asked).then_some(asked) }
    }

    /// Does what time calls for.
    pub fn tick(&mut self, now: u64) -> Tick {
        let before = self.state;
        if now >= self.deadline() {
            self.heard = None;
            self.remote = Remote::UNKNOWN;
            if matches!(self.state, State::Init | State::Up) {
                self.set_state(State::Down, diagnostic::TIME_EXPIRED);
            }
        }
        if self.echoing.is_some_and(|echoing| now >= echoing.deadline) {
            self.set_state(State::Down, diagnostic::ECHO_FAILED);
            // The peer still sends at the long interval that echo packets allowed. It hears of the short one now: the detection time
            // begins anew, or it would be over already.
            self.heard = self.heard.map(|_| now);
        }
        self.follow_echo(now);
        let changed = self.state != before;
        let send = changed || self.may_send() && now >= self.next_tx;
        Tick { changed, send, echo: self.echo_due(now) }
    }

    /// Whether an echo packet is to be sent now; the next one is later.
    fn echo_due(&mut self, now: u64) -> bool {
        if self.echoing.is_none_or(|echoing| now < echoing.next) {
            return false;
        }
        let next = now + self.jittered(self.echo_interval());
        if let Some(echoing) = &mut self.echoing {
            echoing.next = next;
        }
        true
    }

    /// The packet to send now. One with the final bit leaves the others' schedule as it is.
    pub fn send(&mut self, is_final: bool, now: u64) -> Control {
        if !is_final {
            self.last_tx = now;
            self.next_tx = now + self.jittered(self.tx_interval());
        }
        Control {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.poll != Poll::None && !is_final,
            is_final,
            independent: true,
            authenticated: false,
            demand: false,
            detect_mult: self.timing.detect_mult,
            my_discriminator: self.local,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: self.desired_min_tx(),
            required_min_rx: self.required_min_rx(),
            required_min_echo_rx: if self.echoes == Echoes::None { 0 } else { ECHO_RETURNED },
        }
    }

    /// Changes the intervals; a session that is up agrees on them with the other side first.
    pub fn set_timing(&mut self, timing: Timing, now: u64) {
        let intervals = |t: &Timing| (t.desired_min_tx, t.required_min_rx);
        let differ = intervals(&timing) != intervals(&self.timing);
        self.timing = timing;
        if differ && self.state == State::Up {
            return self.begin_poll(now);
        }
        self.apply_timing();
        // The other side is told soon.
        self.next_tx = self.next_tx.min(now);
    }

    /// Holds the session down, or no longer; `true` where that changes it.
    pub fn set_admin(&mut self, up: bool, now: u64) -> bool {
        let is_up = self.state != State::AdminDown;
        if up == is_up {
            return false;
        }
        if up {
            self.set_state(State::Down, diagnostic::NONE);
        } else {
            self.set_state(State::AdminDown, diagnostic::ADMIN_DOWN);
            self.failed = false;
        }
        self.follow_echo(now);
        self.next_tx = now;
        true
    }
}
