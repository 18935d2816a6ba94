//! The forwarding plane manager's stream: FRR's zebra (`-M dplane_fpm_nl`) connects and sends its routes as messages of netlink.
//!
//! ```text
//!   zebra ── TCP ──► Frames ──► Message ──► Rib (the same as the kernel's) ──► changes
//! ```
//!
//! *One connection.* A daemon that starts anew is there before its old connection is known to be dead. So a new connection takes the
//! place of the one before.
//!
//! *Hold time.* When a connection ends its routes stay, and forwarding goes on. The next connection begins with all routes of the
//! daemon. The stream has no mark for the end of these, and a daemon that has just started must learn them first. So routes that
//! are not sent again go when the hold time has passed since the connection began; all go when it has passed without one.
//!
//! The reader's thread does all of it, without waiting: so many bytes, then the kernel's messages, then changes.

pub mod frame;
mod write;

use std::io::{self, Read as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quiver_net::restart::Round;
use rustix::net::{bind, listen, sockopt};

use crate::figures::FpmFigures;
use crate::message::{Envelopes, Message};
use crate::rib::Rib;
use frame::{FRAME_MOST, Frames};

/// The port that FRR connects to (`FPM_DEFAULT_PORT`).
pub const PORT: u16 = 2620;
/// How long routes stay without the daemon that sent them, seconds: BGP's default of the same purpose (RFC 4724, section 4.2).
pub const HOLD_TIME: u32 = 120;
/// Longest time of that kind.
pub const HOLD_TIME_MOST: u32 = 86_400;
/// Reads between two looks at other work.
const READS: usize = 16;
/// Most bytes that are kept for a process that takes over: it loads for seconds, and a daemon may send a million routes meanwhile.
const SINCE_MOST: usize = 16 << 20;
/// Connections that may wait.
const BACKLOG: i32 = 4;

/// Where to listen, and how long to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpmConfig {
    /// Address and port.
    pub address: SocketAddrV4,
    /// How long routes stay without the daemon that sent them.
    pub hold: Duration,
}

/// An address, with a port or without.
pub fn parse_address(text: &str) -> Option<SocketAddrV4> {
    text.parse().ok().or_else(|| Some(SocketAddrV4::new(text.parse().ok()?, PORT)))
}

/// Has a fresh TCP socket listen.
///
/// # Errors
/// The operating system's.
pub fn listener(fd: OwnedFd, address: SocketAddrV4) -> io::Result<TcpListener> {
    sockopt::set_socket_reuseaddr(&fd, true)?;
    // A process that takes over listens before the one that runs has ended.
    sockopt::set_socket_reuseport(&fd, true)?;
    // A namespace's loopback has no address until it is up.
    sockopt::set_ip_freebind(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    let listener = TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Connection {
    stream: TcpStream,
    frames: Frames,
}

/// Why a connection ends.
enum End {
    Closed(String),
    Malformed(&'static str),
}

/// The stream of a namespace.
pub struct Fpm {
    listener: Option<TcpListener>,
    connection: Option<Connection>,
    hold: Duration,
    /// When routes that were not sent again go.
    deadline: Option<Instant>,
    buffer: Box<[u8]>,
    figures: FpmFigures,
    /// Frames since the routes were saved for another process that may take over; as long as they are not too many.
    since_saved: Option<Vec<u8>>,
}

impl Default for Fpm {
    fn default() -> Self {
        let buffer = vec![0; FRAME_MOST].into();
        Self {
            listener: None,
            connection: None,
            hold: Duration::ZERO,
            deadline: None,
            buffer,
            figures: FpmFigures::default(),
            since_saved: None,
        }
    }
}

impl Fpm {
    /// Listens by this socket from now on; by none: the connection ends, and its routes go.
    pub fn listen(&mut self, listener: Option<TcpListener>, rib: &mut Rib) {
        self.figures.address = listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(|address| address.to_string());
        if listener.is_none() {
            self.connection = None;
            self.figures.stream.peer = None;
            self.deadline = None;
            rib.clear_pushed();
        }
        self.listener = listener;
    }

    /// Sets how long routes stay; a time that is running ends by the new one.
    pub fn set_hold(&mut self, hold: Duration) {
        let before = std::mem::replace(&mut self.hold, hold);
        self.deadline = self.deadline.and_then(|at| at.checked_sub(before)).map(|began| began + hold);
    }

    /// What is polled.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let connection = self.connection.as_ref().map(|connection| connection.stream.as_fd());
        self.listener.as_ref().map(AsFd::as_fd).into_iter().chain(connection)
    }

    /// When there is something to do though nothing comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What is shown of it.
    pub fn figures(&mut self, rib: &Rib) -> FpmFigures {
        let figures = &mut self.figures;
        figures.by_protocol.clone_from(rib.pushed_by_protocol());
        figures.objects = rib.pushed_objects();
        figures.hold = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        figures.held = match (self.deadline, &self.connection) {
            (None, _) => 0,
            (Some(_), Some(_)) => rib.pushed_before(),
            (Some(_), None) => rib.pushed_routes(),
        };
        figures.clone()
    }

    /// Takes what has come, within limits; `true` while there may be more.
    pub fn round(&mut self, rib: &mut Rib) -> bool {
        self.accept(rib);
        let mut more = false;
        for n in 0..READS {
            let Some(connection) = &mut self.connection else { break };
            match connection.stream.read(&mut self.buffer) {
                Ok(0) => self.end(End::Closed("closed by the daemon".to_owned()), rib),
                Ok(length) => {
                    connection.frames.push(&self.buffer[..length]);
                    more = n + 1 == READS;
                    if let Err(why) = self.take(rib) {
                        self.end(End::Malformed(why), rib);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.end(End::Closed(error.to_string()), rib),
            }
        }
        if self.deadline.is_some_and(|at| at <= Instant::now()) {
            self.deadline = None;
            let gone = if self.connection.is_some() { rib.sweep_pushed() } else { rib.clear_pushed() };
            self.figures.expired += gone as u64;
            if gone > 0 {
                tracing::warn!(target: "linux-nl", "FPM: the hold time has passed, {gone} routes go");
            }
        }
        rib.settle_pushed();
        more
    }

    fn accept(&mut self, rib: &mut Rib) {
        let Some((stream, peer)) = self.listener.as_ref().and_then(|listener| listener.accept().ok()) else { return };
        // What a daemon on another host leaves behind when the host goes is seen after a while.
        if stream.set_nonblocking(true).is_err() || sockopt::set_socket_keepalive(&stream, true).is_err() {
            return;
        }
        tracing::info!(target: "linux-nl", "FPM: {peer} is connected");
        self.figures.stream.connections += 1;
        self.figures.stream.peer = Some(peer.to_string());
        self.connection = Some(Connection { stream, frames: Frames::default() });
        rib.begin_pushed();
        self.start_hold(rib);
    }

    fn start_hold(&mut self, rib: &Rib) {
        let is_something = rib.pushed_routes() > 0 || rib.pushed_objects() > 0;
        self.deadline = is_something.then(|| Instant::now() + self.hold);
    }

    fn end(&mut self, why: End, rib: &Rib) {
        let text = match why {
            End::Closed(text) => text,
            End::Malformed(text) => {
                self.figures.stream.refused_streams += 1;
                text.to_owned()
            }
        };
        tracing::warn!(target: "linux-nl", "FPM: the connection has ended: {text}");
        self.connection = None;
        self.figures.stream.peer = None;
        self.figures.stream.last_end = Some(text);
        self.start_hold(rib);
    }

    /// Takes the whole frames that have come.
    fn take(&mut self, rib: &mut Rib) -> Result<(), &'static str> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        while let Some(frame) = connection.frames.next_frame() {
            let frame = frame?;
            take_frame(&mut self.figures, rib, frame);
            if let Some(since) = &mut self.since_saved {
                write::frame(since, frame);
                if since.len() > SINCE_MOST {
                    self.since_saved = None;
                }
            }
        }
        Ok(())
    }

    /// What another process needs that takes over: all routes and objects; the last time, what has come since. As frames, as a daemon
    /// would send them. Nothing, where too much has come: the daemon says all of it again.
    pub fn save(&mut self, rib: &Rib, round: Round) -> Vec<u8> {
        match round {
            Round::Ahead => {
                self.since_saved = Some(Vec::new());
                write::all(rib)
            }
            Round::Last => self.since_saved.take().unwrap_or_default(),
        }
    }

    /// Takes up what the process before has saved. The routes stay for the hold time, until the daemon has connected and said them
    /// again. What a daemon has said to this process counts for more.
    pub fn restore(&mut self, bytes: &[u8], rib: &mut Rib) {
        if self.figures.stream.connections > 0 {
            return;
        }
        let mut frames = Frames::default();
        for piece in bytes.chunks(FRAME_MOST) {
            frames.push(piece);
            while let Some(Ok(frame)) = frames.next_frame() {
                take_frame(&mut self.figures, rib, frame);
            }
        }
        rib.settle_pushed();
        self.start_hold(rib);
    }
}

/// Takes the messages of a frame.
fn take_frame(figures: &mut FpmFigures, rib: &mut Rib, frame: &[u8]) {
    figures.stream.frames += 1;
    for envelope in Envelopes::new(frame) {
        figures.stream.messages += 1;
        let Ok(message) = envelope.and_then(|envelope| Message::parse(&envelope)) else {
            figures.stream.malformed += 1;
            continue;
        };
        match push(rib, message) {
            Taken::Yes => {}
            Taken::NotMeant => figures.stream.ignored += 1,
            Taken::TooMuch => figures.stream.too_many += 1,
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the table of routes.
    Yes,
    /// It is about something else: links, neighbours, MPLS.
    NotMeant,
    /// It is more than is kept.
    TooMuch,
}

/// Takes a daemon's message. Only routes and next-hop objects count; all else the kernel says.
pub fn push(rib: &mut Rib, message: Message) -> Taken {
    let done = match message {
        Message::Route(route) => rib.push(&route),
        Message::RouteGone(route) => {
            rib.pull(&route);
            Ok(())
        }
        Message::NextHop(id, object) => rib.push_object(id, object),
        Message::NextHopGone(id) => {
            rib.pull_object(id);
            Ok(())
        }
        _ => return Taken::NotMeant,
    };
    if done.is_ok() { Taken::Yes } else { Taken::TooMuch }
}
