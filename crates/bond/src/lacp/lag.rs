//! The machines of LACP (IEEE 802.1AX-2014, 6.4) of all ports of one bond, without clock and packets of their own.
//!
//! ```text
//!             ┌──────────────┐  partner, EXPIRED …   ┌───────────┐ selected ┌─────┐ COLLECTING, DISTRIBUTING
//!  data unit ─► receive      ├──────────────────────►│ selection ├─────────►│ mux ├────────────────────────► masks
//!  time ──────►              │                       └───────────┘          └──┬──┘
//!             └──────┬───────┘                                                 │ need to transmit
//!  time ─► periodic ─┴─────────────────────────────────────────────────────────┴─► data unit
//! ```
//!
//! Collecting and distributing are apart (independent control, 6.4.15): a port sends only once its partner says that it receives.

mod kept;

pub use kept::Kept;

use quiver_wire::MacAddr;
use serde::Serialize;

use super::pdu::{Info, Pdu, state};

/// Units of time, ns.
const SECOND: u64 = 1_000_000_000;
/// Interval of data units for a partner that wants them fast, or slow.
pub const FAST_PERIODIC: u64 = SECOND;
/// See [`FAST_PERIODIC`].
pub const SLOW_PERIODIC: u64 = 30 * SECOND;
/// Time without a data unit after which a partner is lost, that sends fast or slow.
pub const SHORT_TIMEOUT: u64 = 3 * SECOND;
/// See [`SHORT_TIMEOUT`].
pub const LONG_TIMEOUT: u64 = 90 * SECOND;
/// How long a port waits for others before it is taken in.
pub const AGGREGATE_WAIT: u64 = 2 * SECOND;
/// Data units that a port sends at most in [`FAST_PERIODIC`].
const BURST: usize = 3;
/// Priority of the system and of ports, as in VPP.
pub const SYSTEM_PRIORITY: u16 = 0xffff;
/// See [`SYSTEM_PRIORITY`].
pub const PORT_PRIORITY: u16 = 0xff;

/// What a port knows of its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// The link is down.
    Disabled,
    /// Nothing was heard for too long; it is waited a last time.
    Expired,
    /// Nobody is there.
    Defaulted,
    /// The partner is heard.
    Current,
}

/// How far a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mux {
    /// In no aggregate.
    Detached,
    /// Waits for others that may come at the same time.
    Waiting,
    /// In the aggregate; the partner is not yet.
    Attached,
    /// Receives.
    Collecting,
    /// Receives and sends.
    Distributing,
}

/// How a member takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Does not speak unless it is spoken to.
    pub passive: bool,
    /// Wants to hear every 30 s, not every second.
    pub long_timeout: bool,
}

/// Counts of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data units received.
    pub received: u64,
    /// Data units sent.
    pub sent: u64,
    /// Units that were none.
    pub bad: u64,
    /// Markers answered.
    pub markers: u64,
}

/// A port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// What it says of itself.
    pub actor: Info,
    /// What it knows of its partner.
    pub partner: Info,
    /// Receive machine.
    pub receive: Receive,
    /// Mux machine.
    pub mux: Mux,
    /// It belongs to the aggregate.
    pub selected: bool,
    /// The link is up.
    pub enabled: bool,
    /// Counts.
    pub counts: Counts,
    current_while: Option<u64>,
    wait_while: Option<u64>,
    periodic: Option<u64>,
    need_to_transmit: bool,
    /// Times of the last data units sent.
    sent: [Option<u64>; BURST],
}

/// What the partner of a port is by default: nobody, who would want to hear fast.
const NOBODY: Info = Info { system_priority: 0, system: MacAddr::ZERO, key: 0, port_priority: 0, port: 0, state: state::TIMEOUT };

impl Port {
    fn new(system: MacAddr, key: u16, number: u16, config: PortConfig) -> Self {
        let mut actor = Info {
            system_priority: SYSTEM_PRIORITY,
            system,
            key,
            port_priority: PORT_PRIORITY,
            port: number,
            state: state::AGGREGATION | state::DEFAULTED,
        };
        actor.set(state::ACTIVITY, !config.passive);
        actor.set(state::TIMEOUT, !config.long_timeout);
        Self {
            actor,
            partner: NOBODY,
            receive: Receive::Disabled,
            mux: Mux::Detached,
            selected: false,
            enabled: false,
            counts: Counts::default(),
            current_while: None,
            wait_while: None,
            periodic: None,
            need_to_transmit: false,
            sent: [None; BURST],
        }
    }

    /// Which aggregate its partner belongs to; none while none is known. A partner that cannot be one of several is alone.
    fn group(&self) -> Option<Group> {
        let Info { system_priority, system, key, port, .. } = self.partner;
        // One that is connected to itself belongs nowhere.
        let known = matches!(self.receive, Receive::Current | Receive::Expired) && !system.is_zero() && system != self.actor.system;
        let alone = (!self.partner.has(state::AGGREGATION)).then_some(port);
        (known && self.enabled).then_some((system_priority, system, key, alone))
    }

    fn enable(&mut self, on: bool, now: u64) {
        if on == self.enabled {
            return;
        }
        self.enabled = on;
        if on {
            self.expire(now);
            self.need_to_transmit = true;
        } else {
            self.receive = Receive::Disabled;
            self.partner.set(state::SYNCHRONIZATION, false);
            (self.current_while, self.need_to_transmit) = (None, false);
            self.actor.set(state::EXPIRED, false);
            self.selected = false;
        }
    }

    fn expire(&mut self, now: u64) {
        self.receive = Receive::Expired;
        self.partner.set(state::SYNCHRONIZATION, false);
        self.partner.set(state::TIMEOUT, true);
        self.current_while = Some(now + SHORT_TIMEOUT);
        self.actor.set(state::EXPIRED, true);
        self.need_to_transmit = true;
    }

    fn default_partner(&mut self) {
        self.receive = Receive::Defaulted;
        self.partner = NOBODY;
        self.current_while = None;
        self.actor.set(state::DEFAULTED, true);
        self.actor.set(state::EXPIRED, false);
        self.selected = false;
    }

    fn hear(&mut self, pdu: &Pdu, now: u64) {
        self.counts.received += 1;
        if !self.enabled {
            return;
        }
        if pdu.actor.identity() != self.partner.identity() {
            self.selected = false;
        }
        const SHARED: u8 = state::ACTIVITY | state::TIMEOUT | state::SYNCHRONIZATION | state::AGGREGATION;
        let knows_us = pdu.partner.identity() == self.actor.identity();
        if !knows_us || (pdu.partner.state ^ self.actor.state) & SHARED != 0 {
            self.need_to_transmit = true;
        }
        let kept_up = pdu.actor.has(state::ACTIVITY) || (self.actor.has(state::ACTIVITY) && pdu.partner.has(state::ACTIVITY));
        let in_sync = pdu.actor.has(state::SYNCHRONIZATION) && kept_up && (knows_us || !pdu.actor.has(state::AGGREGATION));
        self.partner = pdu.actor;
        self.partner.set(state::SYNCHRONIZATION, in_sync);
        self.actor.set(state::DEFAULTED | state::EXPIRED, false);
        self.receive = Receive::Current;
        let timeout = if self.actor.has(state::TIMEOUT) { SHORT_TIMEOUT } else { LONG_TIMEOUT };
        self.current_while = Some(now + timeout);
    }

    fn tick(&mut self, now: u64) {
        if self.current_while.is_some_and(|time| time <= now) {
            match self.receive {
                Receive::Current => self.expire(now),
                _ => self.default_partner(),
            }
        }
    }

    /// How often data units are due, ns; none where both sides wait to be spoken to.
    pub fn interval(&self) -> Option<u64> {
        let speaks = self.enabled && (self.actor.has(state::ACTIVITY) || self.partner.has(state::ACTIVITY));
        speaks.then_some(if self.partner.has(state::TIMEOUT) { FAST_PERIODIC } else { SLOW_PERIODIC })
    }

    fn run_periodic(&mut self, now: u64) {
        let Some(interval) = self.interval() else {
            self.periodic = None;
            return;
        };
        if self.periodic.is_some_and(|time| time <= now) {
            self.need_to_transmit = true;
            self.periodic = None;
        }
        // A partner that has become fast does not wait for the end of a slow interval.
        let latest = now + interval;
        self.periodic = Some(self.periodic.map_or(latest, |time| time.min(latest)));
    }

    /// A step of the mux machine; whether there was one.
    fn step_mux(&mut self, ready: bool) -> bool {
        let (partner_in_sync, partner_collects) = (self.partner.has(state::SYNCHRONIZATION), self.partner.has(state::COLLECTING));
        let next = match self.mux {
            Mux::Detached if self.selected => Mux::Waiting,
            Mux::Waiting if !self.selected => Mux::Detached,
            Mux::Waiting if ready => Mux::Attached,
            Mux::Attached if !self.selected => Mux::Detached,
            Mux::Attached if partner_in_sync => Mux::Collecting,
            Mux::Collecting if !self.selected || !partner_in_sync => Mux::Attached,
            Mux::Collecting if partner_collects => Mux::Distributing,
            Mux::Distributing if !self.selected || !partner_in_sync || !partner_collects => Mux::Collecting,
            _ => return false,
        };
        self.mux = next;
        let (attached, collecting) = (
            matches!(next, Mux::Attached | Mux::Collecting | Mux::Distributing),
            matches!(next, Mux::Collecting | Mux::Distributing),
        );
        self.actor.set(state::SYNCHRONIZATION, attached);
        self.actor.set(state::COLLECTING, collecting);
        self.actor.set(state::DISTRIBUTING, next == Mux::Distributing);
        if next != Mux::Waiting {
            self.wait_while = None;
            self.need_to_transmit = self.enabled;
        }
        true
    }

    /// When the next data unit may be sent.
    fn may_send(&self, now: u64) -> u64 {
        let oldest = self.sent.iter().map(|time| time.map_or(0, |time| time + FAST_PERIODIC)).min();
        oldest.unwrap_or(0).max(now)
    }

    fn send(&mut self, now: u64) -> Option<Pdu> {
        // Who waits to be spoken to says nothing at all (6.4.16).
        self.need_to_transmit &= self.interval().is_some();
        if !self.need_to_transmit || !self.enabled || self.may_send(now) > now {
            return None;
        }
        if let Some(place) = self.sent.iter_mut().min_by_key(|time| **time) {
            *place = Some(now);
        }
        self.need_to_transmit = false;
        self.counts.sent += 1;
        Some(Pdu { actor: self.actor, partner: self.partner })
    }

    fn due(&self, now: u64) -> u64 {
        let transmit = (self.need_to_transmit && self.enabled).then(|| self.may_send(now));
        // One whose wait is over waits for that of another.
        let wait = self.wait_while.filter(|time| *time > now);
        [self.current_while, wait, self.periodic, transmit].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

/// Whom an aggregate is with: priority and number of the system, key, and the port where that cannot be one of several.
type Group = (u16, MacAddr, u16, Option<u16>);

/// All ports of a bond, by place.
#[derive(Clone, Debug)]
pub struct Lag {
    system: MacAddr,
    key: u16,
    ports: Vec<Option<Port>>,
}

impl Lag {
    /// Of a bond without ports. `key` is another one for each bond of a system.
    pub fn new(system: MacAddr, key: u16) -> Self {
        Self { system, key, ports: Vec::new() }
    }

    /// A port that is down.
    pub fn add(&mut self, place: u8, config: PortConfig) {
        let place = usize::from(place);
        self.ports.resize(self.ports.len().max(place + 1), None);
        // Numbers of ports begin at 1.
        self.ports[place] = Some(Port::new(self.system, self.key, place as u16 + 1, config));
    }

    /// A port goes. Nothing is said of that: its partner notices that nothing is heard.
    pub fn remove(&mut self, place: u8, now: u64) {
        if let Some(port) = self.ports.get_mut(usize::from(place)) {
            *port = None;
        }
        self.settle(now);
    }

    /// The bond has another MAC address: all begin anew.
    pub fn set_system(&mut self, system: MacAddr, now: u64) {
        self.system = system;
        for port in self.ports.iter_mut().flatten() {
            port.actor.system = system;
            port.selected = false;
            port.need_to_transmit = port.enabled;
        }
        self.settle(now);
    }

    /// A port's link is up, or down.
    pub fn enable(&mut self, place: u8, on: bool, now: u64) {
        if let Some(port) = self.port_mut(place) {
            port.enable(on, now);
        }
        self.settle(now);
    }

    /// A data unit was received.
    pub fn receive(&mut self, place: u8, pdu: &Pdu, now: u64) {
        if let Some(port) = self.port_mut(place) {
            port.hear(pdu, now);
        }
        self.settle(now);
    }

    /// A port.
    pub fn port(&self, place: u8) -> Option<&Port> {
        self.ports.get(usize::from(place))?.as_ref()
    }

    /// A port, to be counted at.
    pub fn port_mut(&mut self, place: u8) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(place))?.as_mut()
    }

    /// Does what time calls for.
    pub fn tick(&mut self, now: u64) {
        self.ports.iter_mut().flatten().for_each(|port| port.tick(now));
        self.settle(now);
    }

    /// The data units to send now, by place.
    pub fn to_send(&mut self, now: u64) -> Vec<(u8, Pdu)> {
        let all = (0_u8..).zip(&mut self.ports);
        all.filter_map(|(place, port)| Some((place, port.as_mut()?.send(now)?))).collect()
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn due(&self, now: u64) -> u64 {
        self.ports.iter().flatten().map(|port| port.due(now)).min().unwrap_or(u64::MAX)
    }

    /// Ports that send and ports that receive, a bit for each place.
    pub fn masks(&self) -> (u32, u32) {
        let bits = |bit| {
            let all = self.ports.iter().enumerate();
            all.filter(|(_, port)| port.as_ref().is_some_and(|port| port.actor.has(bit))).fold(0, |bits, (n, _)| bits | 1 << n)
        };
        (bits(state::DISTRIBUTING), bits(state::COLLECTING))
    }

    /// Selection: ports that lead to the same partner are together; where there are several partners, the one that is in use already, else
    /// the one with most ports, else the one of the first port.
    fn select(&mut self) {
        let with = |group: Group, only: fn(&Port) -> bool| {
            self.ports.iter().flatten().filter(|port| only(port) && port.group() == Some(group)).count()
        };
        let groups = self.ports.iter().flatten().rev().filter_map(Port::group);
        let chosen = groups.max_by_key(|group| (with(*group, |port| port.selected) > 0, with(*group, |_| true)));
        let mut alone_taken = false;
        for port in self.ports.iter_mut().flatten() {
            let group = port.group();
            // One that cannot be one of several is the only one.
            let alone = group.is_some_and(|(.., alone)| alone.is_some());
            port.selected = group.is_some() && group == chosen && !(alone && alone_taken);
            alone_taken |= port.selected && alone;
        }
    }

    /// Runs the machines until nothing moves.
    fn settle(&mut self, now: u64) {
        // A port that is to begin anew leaves before it is selected again.
        self.step_all(now);
        self.select();
        self.step_all(now);
        self.ports.iter_mut().flatten().for_each(|port| port.run_periodic(now));
    }

    fn step_all(&mut self, now: u64) {
        // Each port takes a few steps at most: the states that it can pass without something from outside form no circle.
        loop {
            let waits = |port: &Port| port.mux == Mux::Waiting && port.wait_while.is_none_or(|time| time > now);
            let ready = !self.ports.iter().flatten().any(waits);
            let mut moved = false;
            for port in self.ports.iter_mut().flatten() {
                moved |= port.step_mux(ready);
                if port.mux == Mux::Waiting && port.wait_while.is_none() {
                    port.wait_while = Some(now + AGGREGATE_WAIT);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }
}
