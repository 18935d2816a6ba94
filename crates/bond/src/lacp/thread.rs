//! The machines of a thread.

use std::collections::HashMap;
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_net::{Due, ProcessSignal, Timed, TimedGuard};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;

use super::lag::{Lag, PortConfig};
use super::pdu::{self, Pdu, SLOW_PROTOCOLS};
use crate::members::Masks;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A member that speaks LACP.
#[derive(Clone, Copy, Debug)]
struct Speaker {
    interface: IfIndex,
    /// The source of what it sends.
    mac: MacAddr,
}

/// The machines of a bond, on their thread.
#[derive(Clone)]
pub struct Entry {
    /// The machines.
    pub lag: Lag,
    masks: Arc<Masks>,
    speakers: Vec<Option<Speaker>>,
}

impl Entry {
    /// Of a bond without members.
    pub fn new(lag: Lag, masks: Arc<Masks>) -> Self {
        Self { lag, masks, speakers: Vec::new() }
    }

    /// A member begins, with its link down.
    pub fn add(&mut self, place: u8, interface: IfIndex, mac: MacAddr, config: PortConfig) {
        let at = usize::from(place);
        self.speakers.resize(self.speakers.len().max(at + 1), None);
        self.speakers[at] = Some(Speaker { interface, mac });
        self.lag.add(place, config);
    }

    /// A member goes.
    pub fn remove(&mut self, place: u8, now: u64) {
        if let Some(speaker) = self.speakers.get_mut(usize::from(place)) {
            *speaker = None;
        }
        self.lag.remove(place, now);
    }

    fn place_of(&self, interface: IfIndex) -> Option<u8> {
        let at = self.speakers.iter().position(|speaker| speaker.is_some_and(|speaker| speaker.interface == interface))?;
        Some(at as u8)
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was a data unit.
    Unit,
    /// It was a marker, whose answer has been made of its bytes.
    Marker,
    /// It was of no use.
    Bad,
    /// Its receiver is no member any more.
    Gone,
}

/// The machines of a thread, by bond.
pub struct Lags {
    by_bond: HashMap<IfIndex, Entry>,
    signal: ProcessSignal,
    /// When they were last looked at.
    now: u64,
}

impl Lags {
    /// Takes a bond in.
    pub fn insert(&mut self, bond: IfIndex, entry: Entry) {
        self.by_bond.insert(bond, entry);
    }

    /// Takes a bond out.
    pub fn remove(&mut self, bond: IfIndex) -> Option<Entry> {
        self.by_bond.remove(&bond)
    }

    /// Takes all out.
    pub fn take_all(&mut self) -> Vec<(IfIndex, Entry)> {
        self.by_bond.drain().collect()
    }

    /// A bond.
    pub fn get(&self, bond: IfIndex) -> Option<&Entry> {
        self.by_bond.get(&bond)
    }

    /// Changes a bond's machines, and notes who may send and receive now.
    pub fn change<R>(&mut self, bond: IfIndex, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let entry = self.by_bond.get_mut(&bond)?;
        let result = f(entry);
        publish(entry, &self.signal);
        Some(result)
    }

    /// A member has received a frame of a slow protocol. An answer, if there is one, is made of its bytes.
    pub fn hear(&mut self, bond: IfIndex, member: IfIndex, frame: &mut [u8], now: u64) -> Heard {
        let Some(entry) = self.by_bond.get_mut(&bond) else { return Heard::Gone };
        let Some(place) = entry.place_of(member) else { return Heard::Gone };
        let mac = entry.speakers[usize::from(place)].map_or(MacAddr::ZERO, |speaker| speaker.mac);
        let Some((header, rest)) = frame.split_at_mut_checked(ETHERNET) else { return Heard::Bad };
        let heard = if let Some(pdu) = Pdu::parse(rest) {
            entry.lag.receive(place, &pdu, now);
            Heard::Unit
        } else if pdu::answer_marker(rest) {
            header[..6].copy_from_slice(&SLOW_PROTOCOLS.0);
            header[6..12].copy_from_slice(&mac.0);
            Heard::Marker
        } else {
            Heard::Bad
        };
        if let Some(port) = entry.lag.port_mut(place) {
            port.counts.bad += u64::from(heard == Heard::Bad);
            port.counts.markers += u64::from(heard == Heard::Marker);
        }
        publish(entry, &self.signal);
        heard
    }

    /// Does what time calls for, and gives the frames that are to be sent, with the members that send them.
    pub fn run(&mut self, now: u64, mut send: impl FnMut(IfIndex, &[u8])) {
        for entry in self.by_bond.values_mut() {
            entry.lag.tick(now);
            for (place, pdu) in entry.lag.to_send(now) {
                let Some(speaker) = entry.speakers.get(usize::from(place)).copied().flatten() else { continue };
                let mut frame = [0; ETHERNET + pdu::LEN];
                frame[..6].copy_from_slice(&SLOW_PROTOCOLS.0);
                frame[6..12].copy_from_slice(&speaker.mac.0);
                frame[12..14].copy_from_slice(&EtherType::SLOW_PROTOCOLS.0.to_be_bytes());
                frame[ETHERNET..].copy_from_slice(&pdu.to_bytes());
                send(speaker.interface, &frame);
            }
            publish(entry, &self.signal);
        }
    }
}

impl Due for Lags {
    fn due(&self) -> u64 {
        self.by_bond.values().map(|entry| entry.lag.due(self.now)).min().unwrap_or(u64::MAX)
    }
}

/// Tells nodes at once, and main soon.
fn publish(entry: &Entry, signal: &ProcessSignal) {
    let (send, receive) = entry.lag.masks();
    if entry.masks.set(send, receive) {
        signal.raise();
    }
}

/// A thread's machines, for its nodes and for what main sends it to do. Only that thread locks them, so that nobody ever waits.
#[derive(Clone)]
pub struct Shared(Timed<Lags>);

impl Shared {
    /// None. `signal` tells main that members have changed.
    pub fn new(signal: ProcessSignal) -> Self {
        Self(Timed::new(Lags { by_bond: HashMap::new(), signal, now: 0 }))
    }

    /// The machines, until the guard is dropped; `now` is the router's time.
    pub fn lock(&self, now: u64) -> TimedGuard<'_, Lags> {
        let mut lags = self.0.lock();
        lags.now = now;
        lags
    }

    /// When one of them is due, without a lock; `u64::MAX`: never.
    pub fn due(&self) -> u64 {
        self.0.due()
    }
}
