//! What one thread sends to the collector: messages in order, templates before the records that need them, and again from time to time, as
//! UDP may lose them (RFC 7011, 8.4).

use std::time::{SystemTime, UNIX_EPOCH};

use quiver_net::local::datagram::{Outbox, Ready, UdpPath};

use crate::flows::Flow;
use crate::message::{Message, OPTIONS, TEMPLATES};
use crate::template::{self, COUNT, Reason, SAMPLING, Template};

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
    /// Templates in use, by place.
    used: u64,
    /// Those that the collector has been told.
    announced: u64,
    /// One packet in so many is chosen.
    rate: u32,
    /// The collector was told a rate.
    rate_told: bool,
    templates_at: u64,
    send_by: u64,
    /// Records put into messages.
    pub records: u64,
    /// Records that had no collector to go to.
    pub homeless: u64,
}

const _: () = assert!(COUNT <= 64);

impl Stream {
    /// One that goes nowhere.
    pub fn new(domain: u32) -> Self {
        Self {
            domain,
            to: None,
            message: Message::default(),
            outbox: Outbox::default(),
            sequence: 0,
            used: 0,
            announced: 0,
            rate: 1,
            rate_told: false,
            templates_at: u64::MAX,
            send_by: u64::MAX,
            records: 0,
            homeless: 0,
        }
    }

    /// Where it goes.
    pub const fn destination(&self) -> Option<&Destination> {
        self.to.as_ref()
    }

    /// Begins anew, towards another collector or none. What was not sent is lost.
    pub fn set_destination(&mut self, to: Option<Destination>, now: u64) {
        if self.to == to {
            return;
        }
        self.outbox.clear();
        if !self.message.is_empty() {
            self.outbox.lost(1, self.message.records());
        }
        self.message = Message::default();
        (self.to, self.sequence, self.announced, self.rate_told) = (to, 0, 0, false);
        (self.templates_at, self.send_by) = (u64::MAX, u64::MAX);
        self.announce_soon(now);
    }

    /// Records with these templates are to be expected: the collector hears of them at once.
    pub fn expect(&mut self, templates: impl Iterator<Item = Template>, now: u64) {
        let all = templates.fold(0, |all, template| all | 1 << template.index());
        if all & !self.used != 0 {
            self.used |= all;
            self.announce_soon(now);
        }
    }

    /// Sets that one packet in `rate` is chosen.
    pub fn set_rate(&mut self, rate: u32, now: u64) {
        if self.rate != rate {
            self.rate = rate;
            self.announce_soon(now);
        }
    }

    fn announce_soon(&mut self, now: u64) {
        if self.to.is_some() && self.used != 0 {
            self.templates_at = now;
        }
    }

    /// Appends a record of a flow.
    pub fn record(&mut self, flow: &Flow, reason: Reason, times: Times) {
        if self.to.is_none() {
            self.homeless += 1;
            return;
        }
        let template = Template::of(&flow.key);
        if self.announced >> template.index() & 1 == 0 {
            self.used |= 1 << template.index();
            self.announce(template, times);
            self.templates_at = self.templates_at.min(times.now.saturating_add(self.interval()));
        }
        self.push(template.id(), template.record_len(), times, |out| template.write_record(flow, reason, times.unix, out));
        self.records += 1;
    }

    fn interval(&self) -> u64 {
        self.to.map_or(u64::MAX, |to| to.template_interval)
    }

    fn announce(&mut self, template: Template, times: Times) {
        self.announced |= 1 << template.index();
        self.push(TEMPLATES, template.template_len(), times, |out| template.write(out));
    }

    /// Announces all templates, and how packets are chosen.
    fn announce_all(&mut self, times: Times) {
        let used = self.used;
        for template in (0..COUNT).filter(|place| used >> place & 1 != 0).filter_map(Template::at) {
            self.announce(template, times);
        }
        if self.rate > 1 || self.rate_told {
            self.rate_told = true;
            let rate = self.rate;
            self.push(OPTIONS, template::SAMPLING_TEMPLATE_LEN, times, template::write_sampling_template);
            self.push(SAMPLING, template::SAMPLING_LEN, times, |out| template::write_sampling(rate, out));
        }
        self.templates_at = times.now.saturating_add(self.interval());
        self.send_by = times.now;
    }

    fn push(&mut self, set: u16, len: usize, times: Times, record: impl FnOnce(&mut Vec<u8>)) {
        let Some(to) = self.to else { return };
        let most = usize::from(to.path_mtu).saturating_sub(to.path.headers());
        if !self.message.is_empty() && !self.message.fits(set, len, most) {
            self.finish(times);
        }
        if self.message.is_empty() {
            self.send_by = self.send_by.min(times.now.saturating_add(WAIT));
        }
        self.message.push(set, record);
    }

    /// Completes the message, for it to be sent.
    fn finish(&mut self, times: Times) {
        self.send_by = u64::MAX;
        if self.message.is_empty() {
            return;
        }
        let records = self.message.records();
        let seconds = (times.now.saturating_add(times.unix) / 1_000_000_000) as u32;
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

    /// Does what is due.
    pub fn tick(&mut self, times: Times) {
        if self.templates_at <= times.now {
            self.announce_all(times);
        }
        if self.send_by <= times.now {
            self.finish(times);
        }
    }

    /// When there is something to do.
    pub fn due(&self) -> u64 {
        if self.outbox.is_empty() { self.templates_at.min(self.send_by) } else { 0 }
    }
}
