//! Mapping log: one syslog datagram (RFC 5424, over UDP as in RFC 5426) for each session that begins or ends.
//!
//! ```text
//!   thread: session begins, ends ─► ring ─► main thread, woken ─► datagram to the collector
//! ```
//!
//! A thread only puts a copy of the session into a ring. What does not fit there, or what cannot be sent, is counted as lost: the log
//! never slows packets down. With a source address datagrams are the router's own packets and go by one of its tables; without one they
//! go by the host's network.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// A session that began or ended.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// It began.
    pub begun: bool,
    /// As it was then.
    pub session: Session,
}

/// A thread's end of the log.
#[derive(Default)]
pub struct Feed {
    ring: Option<(Producer<Event>, ProcessSignal)>,
    lost: u64,
}

impl Feed {
    /// Where events go from now on, and how main is told of them; none: nowhere.
    pub fn set(&mut self, ring: Option<(Producer<Event>, ProcessSignal)>) {
        (self.ring, self.lost) = (ring, 0);
    }

    /// Tells of a session.
    #[inline]
    pub fn tell(&mut self, begun: bool, session: &Session) {
        let Some((ring, signal)) = &mut self.ring else { return };
        if ring.push(Event { begun, session: *session }).is_err() {
            self.lost += 1;
        }
        ring.publish();
        signal.raise();
    }

    /// Events for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
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

/// The main thread's end.
pub(crate) struct Logger {
    carrier: Carrier,
    /// Where datagrams go.
    pub target: Target,
    rings: Vec<Consumer<Event>>,
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
        Ok(Self { carrier, target, rings: Vec::new(), text: String::new(), sent: 0, failed: 0 })
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

    /// Listens to these rings, too; to older ones until they are empty.
    pub fn listen(&mut self, rings: Vec<Consumer<Event>>) {
        self.rings.retain_mut(|ring| !ring.is_empty());
        self.rings.extend(rings);
    }

    /// Sends up to `n` events of each thread; `true` where there may be more.
    pub fn drain(&mut self, n: usize) -> bool {
        let mut more = false;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        for ring in &mut self.rings {
            for _ in 0..n {
                let Some(event) = ring.pop() else { break };
                self.text.clear();
                message(&mut self.text, &event, time);
                match &mut self.carrier {
                    Carrier::Router(ready) => ready.push(self.text.as_bytes().to_vec()),
                    Carrier::Host(socket) => match socket.send_to(self.text.as_bytes(), self.target.collector) {
                        Ok(_) => self.sent += 1,
                        Err(_) => self.failed += 1,
                    },
                }
            }
            ring.release();
            more |= !ring.is_empty();
        }
        more
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
fn message(out: &mut String, event: &Event, time: u64) {
    let (year, month, day) = date(time / 86_400_000);
    let (seconds, millis) = (time / 1000 % 86_400, time % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let name = if event.begun { "SADD" } else { "SDEL" };
    let s = &event.session;
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
        message(&mut text, &Event { begun: false, session }, 1_795_274_100_428);
        assert_eq!(
            text,
            "<134>1 2026-11-21T15:15:00.428Z - NAT - SDEL [nsess SSUBIX=\"3\" SVLAN=\"0\" IATYP=\"IPv4\" \
             ISADDR=\"10.0.0.2\" ISPORT=\"1234\" XATYP=\"IPv4\" XSADDR=\"198.51.100.10\" XSPORT=\"5000\" PROTO=\"17\" \
             XDADDR=\"203.0.113.9\" XDPORT=\"53\"]"
        );
    }
}
