//! What threads tell of sessions, and the mapping log: one syslog datagram (RFC 5424, over UDP as in RFC 5426) for each session that begins or
//! ends.
//!
//! ```text
//!   thread: session begins, ends; limit ─► ring ─► main thread, woken ─┬► datagram to the collector of syslog
//!                                                                      └► record for the collector of IPFIX (`ipfix`)
//! ```
//!
//! A thread only puts a copy of the session into a ring. What does not fit there, or what cannot be sent, is counted as lost: the log
//! never slows packets down. With a source address datagrams are the router's own packets and go by one of its tables; without one they
//! go by the host's network.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use quiver_net::ProcessSignal;
use quiver_tables::ring::{Consumer, Producer};

use crate::session::Session;

/// The collectors' port (RFC 5426, section 3.3).
pub const PORT: u16 = 514;
/// Sessions that a thread may be ahead of the main thread.
pub(crate) const RING: usize = 16_384;
/// Facility local0, severity informational (RFC 5424, section 6.2.1).
const PRIORITY: u8 = 16 * 8 + SEVERITY;
/// Severity of the messages: informational.
pub const SEVERITY: u8 = 6;

/// What a thread tells of.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A session.
    Session {
        /// It began, or has ended.
        begun: bool,
        /// As it was then.
        session: Session,
    },
    /// An endpoint-independent mapping.
    Binding {
        /// It began, or has ended.
        begun: bool,
        /// Its first session, or its last one.
        session: Session,
    },
    /// A session could not begin.
    Limit(Limit),
}

/// Why a session could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No port was free on any address.
    Ports,
    /// The thread has so many sessions, and may have no more.
    Sessions(u32),
    /// The hosts of a table, a FIB by its index, have as many as they may have on a thread.
    Table {
        /// FIB.
        fib: u16,
        /// How many.
        most: u32,
    },
    /// A host inside has as many as it may have.
    Host {
        /// Its address.
        addr: u32,
        /// How many.
        most: u32,
    },
}

impl Limit {
    /// Its kind, below [`Limit::KINDS`], and whose it is.
    fn kind(self) -> (usize, u32) {
        match self {
            Self::Ports => (0, 0),
            Self::Sessions(_) => (1, 0),
            Self::Table { fib, .. } => (2, fib.into()),
            Self::Host { addr, .. } => (3, addr),
        }
    }

    const KINDS: usize = 4;
}

/// A thread's end of the log.
pub struct Feed {
    ring: Option<(Producer<Event>, ProcessSignal)>,
    /// Mappings and limits are wanted, too.
    all: bool,
    /// Second in which a limit was told last, and whose it was.
    told: [(u32, u32); Limit::KINDS],
    lost: u64,
}

impl Default for Feed {
    fn default() -> Self {
        Self { ring: None, all: false, told: [(u32::MAX, 0); Limit::KINDS], lost: 0 }
    }
}

impl Feed {
    /// Where events go from now on, and how main is told of them; none: nowhere. `all`: of mappings and limits, too.
    pub fn set(&mut self, ring: Option<(Producer<Event>, ProcessSignal)>, all: bool) {
        *self = Self { ring, all, ..Self::default() };
    }

    fn push(&mut self, event: Event) {
        let Some((ring, signal)) = &mut self.ring else { return };
        if ring.push(event).is_err() {
            self.lost += 1;
        }
        ring.publish();
        signal.raise();
    }

    /// Tells of a session.
    #[inline]
    pub fn tell(&mut self, begun: bool, session: &Session) {
        if self.ring.is_some() {
            self.push(Event::Session { begun, session: *session });
        }
    }

    /// Tells of an endpoint-independent mapping.
    #[inline]
    pub fn bound(&mut self, begun: bool, session: &Session) {
        if self.all {
            self.push(Event::Binding { begun, session: *session });
        }
    }

    /// Tells of a limit, once a second of each kind while it is the same one's: whoever meets it does so with every packet.
    pub fn limit(&mut self, limit: Limit, second: u32) {
        let (kind, whose) = limit.kind();
        let told = std::mem::replace(&mut self.told[kind], (second, whose));
        if self.all && told != (second, whose) {
            self.push(Event::Limit(limit));
        }
    }

    /// Events for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The main thread's ends of the rings.
#[derive(Default)]
pub(crate) struct Rings(Vec<Consumer<Event>>);

impl Rings {
    /// Listens to these, too; to older ones until they are empty.
    pub fn listen(&mut self, rings: Vec<Consumer<Event>>) {
        self.0.retain_mut(|ring| !ring.is_empty());
        self.0.extend(rings);
    }

    /// Whether there is one to listen to.
    pub fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// Takes up to `n` events of each thread; `true` where there may be more.
    pub fn drain(&mut self, n: usize, mut each: impl FnMut(&Event)) -> bool {
        let mut more = false;
        for ring in &mut self.0 {
            for _ in 0..n {
                let Some(event) = ring.pop() else { break };
                each(&event);
            }
            ring.release();
            more |= !ring.is_empty();
        }
        more
    }
}

/// How datagrams go to the collector.
enum Carrier {
    /// By the host's network.
    Host(UdpSocket),
    /// By the router: datagrams that the process is to send.
    Router(Vec<Vec<u8>>),
}

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The collector.
    pub collector: SocketAddrV4,
    /// From this address, by this table of the router (user's number); none: by the host's network.
    pub from: Option<(Ipv4Addr, u32)>,
}

/// The mapping log on the main thread.
pub(crate) struct Logger {
    carrier: Carrier,
    /// Where datagrams go.
    pub target: Target,
    text: String,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that could not be sent.
    pub failed: u64,
}

impl Logger {
    /// A log to a collector.
    pub fn new(target: Target) -> io::Result<Self> {
        let carrier = match target.from {
            Some(_) => Carrier::Router(Vec::new()),
            None => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                socket.set_nonblocking(true)?;
                Carrier::Host(socket)
            }
        };
        Ok(Self { carrier, target, text: String::new(), sent: 0, failed: 0 })
    }

    /// Datagrams for the router to send; the caller says by [`Logger::went`] what became of them.
    pub fn ready(&mut self) -> Vec<Vec<u8>> {
        match &mut self.carrier {
            Carrier::Router(ready) => std::mem::take(ready),
            Carrier::Host(_) => Vec::new(),
        }
    }

    /// Counts datagrams, of which so many were sent.
    pub fn went(&mut self, sent: u64, of: u64) {
        self.sent += sent;
        self.failed += of - sent;
    }

    /// Sends a line about an event, at a time in milliseconds since 1970.
    pub fn tell(&mut self, event: &Event, time: u64) {
        let Event::Session { begun, session } = event else { return };
        self.text.clear();
        message(&mut self.text, *begun, session, time);
        match &mut self.carrier {
            Carrier::Router(ready) => ready.push(self.text.as_bytes().to_vec()),
            Carrier::Host(socket) => match socket.send_to(self.text.as_bytes(), self.target.collector) {
                Ok(_) => self.sent += 1,
                Err(_) => self.failed += 1,
            },
        }
    }
}

/// Year, month, day of a day since 1970-01-01, by the civil calendar.
fn date(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

/// One message; `time` in milliseconds since 1970.
fn message(out: &mut String, begun: bool, s: &Session, time: u64) {
    let (year, month, day) = date(time / 86_400_000);
    let (seconds, millis) = (time / 1000 % 86_400, time % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let name = if begun { "SADD" } else { "SDEL" };
    let (inside, outside, remote) = (s.inside(), s.outside(), s.remote());
    let addr = Ipv4Addr::from_bits;
    let _ = write!(
        out,
        "<{PRIORITY}>1 {year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z - NAT - {name} \
         [nsess SSUBIX=\"{}\" SVLAN=\"0\" IATYP=\"IPv4\" ISADDR=\"{}\" ISPORT=\"{}\" XATYP=\"IPv4\" XSADDR=\"{}\" XSPORT=\"{}\" \
         PROTO=\"{}\" XDADDR=\"{}\" XDPORT=\"{}\"]",
        s.i2o.fib(),
        addr(inside.addr),
        inside.port,
        addr(outside.addr),
        outside.port,
        s.i2o.proto(),
        addr(remote.addr),
        remote.port,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Direction, Endpoint, Key};

    #[test]
    fn days_are_dated() {
        for (day, expected) in [(0, (1970, 1, 1)), (364, (1970, 12, 31)), (11_016, (2000, 2, 29)), (20_778, (2026, 11, 21))] {
            assert_eq!(date(day), expected);
        }
    }

    #[test]
    fn a_message_names_both_ends_of_a_session() {
        let (inside, outside, remote) =
            (Endpoint::new(0x0a00_0002, 1234), Endpoint::new(0xc633_640a, 5000), Endpoint::new(0xcb00_7109, 53));
        let i2o = Key::new(inside, remote, 17, Direction::In2Out, 3);
        let session = Session::new(i2o, Key::new(remote, outside, 17, Direction::Out2In, 0), 0, 0);
        let mut text = String::new();
        message(&mut text, false, &session, 1_795_274_100_428);
        assert_eq!(
            text,
            "<134>1 2026-11-21T15:15:00.428Z - NAT - SDEL [nsess SSUBIX=\"3\" SVLAN=\"0\" IATYP=\"IPv4\" \
             ISADDR=\"10.0.0.2\" ISPORT=\"1234\" XATYP=\"IPv4\" XSADDR=\"198.51.100.10\" XSPORT=\"5000\" PROTO=\"17\" \
             XDADDR=\"203.0.113.9\" XDPORT=\"53\"]"
        );
    }

    #[test]
    fn a_limit_is_told_once_a_second_and_whose_it_is() {
        let (producer, mut consumer) = quiver_tables::ring::ring(16);
        let mut h = quiver_net::testing::Harness::new();
        h.router.add_process("test", |_, _| u64::MAX);
        let signal = h.router.process_signal("test");
        let mut feed = Feed::default();
        feed.set(Some((producer, signal)), true);
        let (one, other) = (Limit::Host { addr: 1, most: 5 }, Limit::Host { addr: 2, most: 5 });
        for (limit, second) in [(one, 7), (one, 7), (Limit::Ports, 7), (other, 7), (one, 8), (one, 8)] {
            feed.limit(limit, second);
        }
        let told: Vec<Limit> = std::iter::from_fn(|| consumer.pop())
            .filter_map(|event| match event {
                Event::Limit(limit) => Some(limit),
                _ => None,
            })
            .collect();
        assert_eq!(told, [one, Limit::Ports, other, one]);
    }
}
