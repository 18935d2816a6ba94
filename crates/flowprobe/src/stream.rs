//! What one thread sends to the collector: records of flows, their templates before them, and how packets were chosen.

use quiver_ipfix::message::OPTIONS;
use quiver_ipfix::{self as ipfix, Destination, Times};
use quiver_net::local::datagram::Outbox;

use crate::flows::Flow;
use crate::template::{self, COUNT, Reason, SAMPLING, Template};

/// A stream: an observation domain of the exporter.
#[derive(Debug)]
pub struct Stream {
    messages: ipfix::Stream,
    /// Templates in use, by place.
    used: u64,
    /// Those that the collector has been told.
    announced: u64,
    /// One packet in so many is chosen.
    rate: u32,
    /// The collector was told a rate.
    rate_told: bool,
}

const _: () = assert!(COUNT <= 64);

impl Stream {
    /// One that goes nowhere.
    pub fn new(domain: u32) -> Self {
        Self { messages: ipfix::Stream::new(domain), used: 0, announced: 0, rate: 1, rate_told: false }
    }

    /// Where it goes.
    pub const fn destination(&self) -> Option<&Destination> {
        self.messages.destination()
    }

    /// Finished messages.
    pub const fn outbox(&self) -> &Outbox {
        &self.messages.outbox
    }

    /// Finished messages, to be sent.
    pub const fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.messages.outbox
    }

    /// Records put into messages.
    pub const fn records(&self) -> u64 {
        self.messages.records
    }

    /// Records that had no collector to go to.
    pub const fn homeless(&self) -> u64 {
        self.messages.homeless
    }

    /// Begins anew, towards another collector or none. What was not sent is lost.
    pub fn set_destination(&mut self, to: Option<Destination>, now: u64) {
        if self.messages.set_destination(to) {
            (self.announced, self.rate_told) = (0, false);
            self.announce_soon(now);
        }
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
        if self.used != 0 {
            self.messages.announce_soon(now);
        }
    }

    /// Appends a record of a flow.
    pub fn record(&mut self, flow: &Flow, reason: Reason, times: Times) {
        if self.destination().is_none() {
            self.messages.homeless += 1;
            return;
        }
        let template = Template::of(&flow.key);
        if self.announced >> template.index() & 1 == 0 {
            self.used |= 1 << template.index();
            self.announce(template, times);
            self.messages.announced(times.now);
        }
        let write = |out: &mut Vec<u8>| template.write_record(flow, reason, times.unix, out);
        self.messages.push(template.id(), template.record_len(), times, write);
        self.messages.records += 1;
    }

    fn announce(&mut self, template: Template, times: Times) {
        self.announced |= 1 << template.index();
        self.messages.push(quiver_ipfix::message::TEMPLATES, template.template_len(), times, |out| template.write(out));
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
            self.messages.push(OPTIONS, template::SAMPLING_TEMPLATE_LEN, times, template::write_sampling_template);
            self.messages.push(SAMPLING, template::SAMPLING_LEN, times, |out| template::write_sampling(rate, out));
        }
    }

    /// Has all that is recorded sent now.
    pub fn flush(&mut self) {
        self.messages.flush();
    }

    /// Does what is due.
    pub fn tick(&mut self, times: Times) {
        if self.messages.takes_templates(times.now) {
            self.announce_all(times);
            self.messages.send_now(times.now);
        }
        self.messages.tick(times);
    }

    /// When there is something to do.
    pub fn due(&self) -> u64 {
        self.messages.due()
    }
}
