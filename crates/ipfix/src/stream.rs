//! What one observation domain sends to the collector: messages in order. Who writes records announces their templates before them, and again
//! when it is time, as UDP may lose them (RFC 7011, 8.4).

use std::time::{SystemTime, UNIX_EPOCH};

use quiver_net::local::datagram::{Outbox, Ready, UdpPath};

use crate::message::Message;

/// How long a record waits for others in the same message, ns.
const WAIT: u64 = 1_000_000_000;

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Addresses, ports and FIB.
    pub path: UdpPath,
    /// Largest IP packet, bytes.
    pub path_mtu: u16,
    /// Between two announcements of templates, ns.
    pub template_interval: u64,
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time of the router's clock, ns.
    pub now: u64,
    /// Added to it: ns since 1970.
    pub unix: u64,
}

impl Times {
    /// With the time of day of the system's clock.
    pub fn of(now: u64) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { now, unix: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now) }
    }

    /// The time of day, milliseconds since 1970.
    pub const fn unix_millis(self) -> u64 {
        self.now.saturating_add(self.unix) / 1_000_000
    }
}

/// A stream: an observation domain of the exporter.
#[derive(Debug)]
pub struct Stream {
    domain: u32,
    to: Option<Destination>,
    message: Message,
    /// Finished messages.
    pub outbox: Outbox,
    sequence: u32,
    templates_at: u64,
    send_by: u64,
    /// Records put into messages.
    pub records: u64,
    /// Records that had no collector to go to.
    pub homeless: u64,
}

impl Stream {
    /// One that goes nowhere.
    pub fn new(domain: u32) -> Self {
        Self {
            domain,
            to: None,
            message: Message::default(),
            outbox: Outbox::default(),
            sequence: 0,
            templates_at: u64::MAX,
            send_by: u64::MAX,
            records: 0,
            homeless: 0,
        }
    }

    /// Number of the observation domain.
    pub const fn domain(&self) -> u32 {
        self.domain
    }

    /// Where it goes.
    pub const fn destination(&self) -> Option<&Destination> {
        self.to.as_ref()
    }

    /// Begins anew, towards another collector or none. What was not sent is lost. `false`: it goes there already.
    pub fn set_destination(&mut self, to: Option<Destination>) -> bool {
        if self.to == to {
            return false;
        }
        self.outbox.clear();
        if !self.message.is_empty() {
            self.outbox.lost(1, self.message.records());
        }
        self.message = Message::default();
        (self.to, self.sequence) = (to, 0);
        (self.templates_at, self.send_by) = (u64::MAX, u64::MAX);
        true
    }

    /// Has templates be announced as soon as may be.
    pub fn announce_soon(&mut self, now: u64) {
        if self.to.is_some() {
            self.templates_at = now;
        }
    }

    /// A template was announced: all are due again after the interval.
    pub fn announced(&mut self, now: u64) {
        let interval = self.to.map_or(u64::MAX, |to| to.template_interval);
        self.templates_at = self.templates_at.min(now.saturating_add(interval));
    }

    /// Whether templates are to be announced now. Who asks announces all of them, and then [sends](Self::send_now) them.
    pub fn takes_templates(&mut self, now: u64) -> bool {
        if self.to.is_none() || self.templates_at > now {
            return false;
        }
        self.templates_at = u64::MAX;
        self.announced(now);
        true
    }

    /// Has what is there sent at the next tick.
    pub const fn send_now(&mut self, now: u64) {
        self.send_by = now;
    }

    /// Has room for `len` more bytes in a set of this number, finishing the message that is full. `false`: there is no collector.
    fn make_room(&mut self, set: u16, len: usize, times: Times) -> bool {
        let Some(to) = self.to else { return false };
        let most = usize::from(to.path_mtu).saturating_sub(to.path.headers());
        if !self.message.is_empty() && !self.message.fits(set, len, most) {
            self.finish(times);
        }
        if self.message.is_empty() {
            self.send_by = self.send_by.min(times.now.saturating_add(WAIT));
        }
        true
    }

    /// Appends `len` bytes of a record to a set of this number.
    pub fn push(&mut self, set: u16, len: usize, times: Times, record: impl FnOnce(&mut Vec<u8>)) {
        if self.make_room(set, len, times) {
            self.message.push(set, record);
        }
    }

    /// Appends a template record.
    pub fn push_template(&mut self, id: u16, fields: &[(u16, u16)], times: Times) {
        if self.make_room(crate::message::TEMPLATES, crate::message::template_len(fields.len()), times) {
            self.message.push_template(id, fields);
        }
    }

    /// Completes the message, for it to be sent.
    fn finish(&mut self, times: Times) {
        self.send_by = u64::MAX;
        if self.message.is_empty() {
            return;
        }
        let records = self.message.records();
        let seconds = (times.unix_millis() / 1000) as u32;
        let room = self.outbox.room();
        let data = self.message.finish(seconds, self.sequence, self.domain, room);
        // What is lost in the outbox counts too, so that the collector notices.
        self.sequence = self.sequence.wrapping_add(records);
        self.outbox.push(Ready { data, items: records });
    }

    /// Has all that is recorded sent now.
    pub fn flush(&mut self) {
        if !self.message.is_empty() {
            self.send_by = 0;
        }
    }

    /// Completes the message where it has waited long enough.
    pub fn tick(&mut self, times: Times) {
        if self.send_by <= times.now {
            self.finish(times);
        }
    }

    /// When there is something to do.
    pub fn due(&self) -> u64 {
        if self.outbox.is_empty() { self.templates_at.min(self.send_by) } else { 0 }
    }
}
