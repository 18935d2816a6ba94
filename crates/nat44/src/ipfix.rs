//! Records of NAT44 for a collector of IPFIX (RFC 8158): sessions and endpoint-independent mappings that begin or end, limits that are met.
//!
//! The main thread writes them, from what threads tell (`log`). A record's time is that at which main takes it, a moment after the packet.

use quiver_ipfix::message::FIRST;
use quiver_ipfix::{Destination, Stream, Times};
use quiver_net::local::datagram::UdpPath;

use crate::log::{Event, Limit};
use crate::session::{Endpoint, Session};

/// Number and bytes of an information element (IANA's registry of IPFIX).
type Field = (u16, u16);

const TIME: Field = (323, 8); // observationTimeMilliseconds
const NAT_EVENT: Field = (230, 1);
const VRF: Field = (234, 4); // ingressVRFID
const SOURCE: Field = (8, 4); // sourceIPv4Address
const QUOTA_EVENT: Field = (466, 4); // natQuotaExceededEvent
/// What sessions and mappings have in common: what is inside, and what of it is seen outside.
const TRANSLATION: [Field; 8] = [
    TIME,
    NAT_EVENT,
    SOURCE,
    (225, 4), // postNATSourceIPv4Address
    (4, 1),   // protocolIdentifier
    (7, 2),   // sourceTransportPort
    (227, 2), // postNAPTSourceTransportPort
    VRF,
];
/// The other end of a session.
const REMOTE: [Field; 4] = [
    (12, 4),  // destinationIPv4Address
    (226, 4), // postNATDestinationIPv4Address
    (11, 2),  // destinationTransportPort
    (228, 2), // postNAPTDestinationTransportPort
];
const SESSION_FIELDS: [Field; 12] = {
    let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (TRANSLATION, REMOTE);
    [a, b, c, d, e, f, g, h, i, j, k, l]
};

/// Observation domain where none is named: those of flows have the numbers of threads, from 1.
pub(crate) const DOMAIN: u32 = 256;
/// Templates: numbers of sets, with their fields (RFC 8158, 5.6). Those of flows have others, for collectors that take all of a router for one
/// domain.
const SESSION: u16 = FIRST + 512;
const MAPPING: u16 = SESSION + 1;
const EXHAUSTED: u16 = SESSION + 2;
const HOST_QUOTA: u16 = SESSION + 3;
const QUOTA: u16 = SESSION + 4;
const TABLE_QUOTA: u16 = SESSION + 5;
static TEMPLATES: [(u16, &[Field]); 6] = [
    (SESSION, &SESSION_FIELDS),
    (MAPPING, &TRANSLATION),
    (EXHAUSTED, &[TIME, NAT_EVENT, (283, 4)]),                       // natPoolId
    (HOST_QUOTA, &[TIME, NAT_EVENT, QUOTA_EVENT, (473, 4), SOURCE]), // maxEntriesPerUser
    (QUOTA, &[TIME, NAT_EVENT, QUOTA_EVENT, (471, 4)]),              // maxSessionEntries
    (TABLE_QUOTA, &[TIME, NAT_EVENT, QUOTA_EVENT, (471, 4), VRF]),
];

/// Values of natEvent (RFC 8158, 4.3).
mod event {
    pub const ADDRESSES_EXHAUSTED: u8 = 3;
    pub const SESSION_CREATE: u8 = 4;
    pub const SESSION_DELETE: u8 = 5;
    pub const MAPPING_CREATE: u8 = 8;
    pub const MAPPING_DELETE: u8 = 9;
    pub const QUOTA_EXCEEDED: u8 = 13;
}

/// Values of natQuotaExceededEvent.
mod quota {
    pub const SESSIONS: u32 = 1;
    pub const PER_HOST: u32 = 3;
}

/// There is one pool.
const POOL: u32 = 0;

/// The records of this router's NAT44: an observation domain.
pub(crate) struct Export {
    src_port: u16,
    stream: Stream,
    /// The collector has been told the templates.
    announced: bool,
}

impl Export {
    /// One that goes nowhere yet.
    pub fn new(domain: u32, src_port: u16) -> Self {
        Self { src_port, stream: Stream::new(domain), announced: false }
    }

    /// Port that datagrams come from.
    pub const fn src_port(&self) -> u16 {
        self.src_port
    }

    /// What is sent.
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Where records go from now on; none: nowhere.
    pub fn set_destination(&mut self, to: Option<Destination>) {
        if self.stream.set_destination(to) {
            self.announced = false;
            self.stream.announce_soon(0);
        }
    }

    /// Has all records sent now.
    pub fn flush(&mut self) {
        self.stream.flush();
    }

    /// Does what is due.
    pub fn tick(&mut self, times: Times) {
        if self.stream.takes_templates(times.now) {
            self.announce(times);
            self.stream.send_now(times.now);
        }
        self.stream.tick(times);
    }

    fn announce(&mut self, times: Times) {
        TEMPLATES.iter().for_each(|(id, fields)| self.stream.push_template(*id, fields, times));
        self.stream.announced(times.now);
        self.announced = true;
    }

    /// Datagrams that are to be sent, and how.
    pub fn take(&mut self) -> Option<(UdpPath, Vec<Vec<u8>>)> {
        let path = self.stream.destination()?.path;
        let ready: Vec<Vec<u8>> = std::iter::from_fn(|| self.stream.outbox.pop()).map(|ready| ready.data).collect();
        (!ready.is_empty()).then_some((path, ready))
    }

    /// Counts datagrams that could not be sent.
    pub fn lost(&mut self, datagrams: u64) {
        self.stream.outbox.lost(datagrams, 0);
    }

    /// Writes a record of an event; `table` gives the user's number of a FIB.
    pub fn tell(&mut self, event: &Event, times: Times, table: impl Fn(u16) -> u32) {
        if self.stream.destination().is_none() {
            self.stream.homeless += 1;
            return;
        }
        if !self.announced {
            self.announce(times);
        }
        let (set, what) = match event {
            Event::Session { begun: true, .. } => (SESSION, event::SESSION_CREATE),
            Event::Session { .. } => (SESSION, event::SESSION_DELETE),
            Event::Binding { begun: true, .. } => (MAPPING, event::MAPPING_CREATE),
            Event::Binding { .. } => (MAPPING, event::MAPPING_DELETE),
            Event::Limit(Limit::Ports) => (EXHAUSTED, event::ADDRESSES_EXHAUSTED),
            Event::Limit(Limit::Host { .. }) => (HOST_QUOTA, event::QUOTA_EXCEEDED),
            Event::Limit(Limit::Sessions(_)) => (QUOTA, event::QUOTA_EXCEEDED),
            Event::Limit(Limit::Table { .. }) => (TABLE_QUOTA, event::QUOTA_EXCEEDED),
        };
        self.stream.push(set, record_len(set), times, |out| {
            out.extend(times.unix_millis().to_be_bytes());
            out.push(what);
            match event {
                Event::Session { session, .. } => {
                    translation(session, table(session.i2o.fib()), out);
                    remote(session.i2o.dst(), session.o2i.src(), out);
                }
                Event::Binding { session, .. } => translation(session, table(session.i2o.fib()), out),
                Event::Limit(limit) => quota(*limit, table, out),
            }
        });
        self.stream.records += 1;
    }
}

/// Bytes of a record.
fn record_len(set: u16) -> usize {
    let fields = TEMPLATES.iter().find(|(id, _)| *id == set).map_or(&[][..], |(_, fields)| fields);
    fields.iter().map(|(_, len)| usize::from(*len)).sum()
}

fn translation(session: &Session, table: u32, out: &mut Vec<u8>) {
    let (inside, outside) = (session.inside(), session.outside());
    out.extend(inside.addr.to_be_bytes());
    out.extend(outside.addr.to_be_bytes());
    out.push(session.i2o.proto());
    out.extend(inside.port.to_be_bytes());
    out.extend(outside.port.to_be_bytes());
    out.extend(table.to_be_bytes());
}

/// The other end as the inside host names it, and as it is.
fn remote(seen: Endpoint, real: Endpoint, out: &mut Vec<u8>) {
    out.extend(seen.addr.to_be_bytes());
    out.extend(real.addr.to_be_bytes());
    out.extend(seen.port.to_be_bytes());
    out.extend(real.port.to_be_bytes());
}

fn quota(limit: Limit, table: impl Fn(u16) -> u32, out: &mut Vec<u8>) {
    let mut words = |words: &[u32]| words.iter().for_each(|word| out.extend(word.to_be_bytes()));
    match limit {
        Limit::Ports => words(&[POOL]),
        Limit::Host { addr, most } => words(&[quota::PER_HOST, most, addr]),
        Limit::Sessions(most) => words(&[quota::SESSIONS, most]),
        Limit::Table { fib, most } => words(&[quota::SESSIONS, most, table(fib)]),
    }
}
