//! The session with the master agent.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use quiver_agentx::{Bind, Front, Oid, Pdu, Request, Session, front, status};

/// How long the master may take for an answer, and to take one of ours.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the master is asked to wait for an answer, seconds: the router has as long, and some more.
const TIMEOUT_S: u8 = 10;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens, or the connection ended.
    #[error("{0}")]
    Gone(#[from] io::Error),
    /// Not what a master says.
    #[error("{0}")]
    Malformed(#[from] quiver_agentx::Error),
    /// The master refuses to open or register.
    #[error("the master agent refuses {what}: error {error} (RFC 2741, 6.2.16)")]
    Refused {
        /// What.
        what: String,
        /// `res.error`.
        error: u16,
    },
    /// The master ends the session.
    #[error("the master agent has closed the session")]
    Closed,
}

/// The master's clock: hundredths of a second since it was started.
#[derive(Clone, Copy)]
struct Clock {
    uptime: u32,
    at: Instant,
}

/// A session.
pub struct Master {
    stream: UnixStream,
    input: Vec<u8>,
    session: Session,
    context: String,
    clock: Clock,
}

impl Master {
    /// Connects, opens a session and registers these regions.
    ///
    /// # Errors
    /// Nobody listens there, or it refuses.
    pub fn connect(path: &Path, context: &str, priority: u8, regions: &[Oid]) -> Result<Self, Error> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let clock = Clock { uptime: 0, at: Instant::now() };
        let mut master = Self { stream, input: Vec::new(), session: Session::default(), context: context.to_owned(), clock };
        let number = master.exchange("the session", |session, _| quiver_agentx::open(session, TIMEOUT_S, "Quiver: interfaces"))?;
        master.session.session = number;
        for region in regions {
            let what = region.to_string();
            master.exchange(&what, |session, context| quiver_agentx::register(session, context, priority, region))?;
        }
        Ok(master)
    }

    /// What becomes readable when there is a request.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The master's `sysUpTime` now.
    pub fn now(&self) -> u32 {
        let since = u32::try_from(self.clock.at.elapsed().as_millis() / 10).unwrap_or(u32::MAX);
        self.clock.uptime.wrapping_add(since)
    }

    /// Requests that have come, after [`as_fd`](Self::as_fd) has become readable. Answers to notifications are read and set the clock.
    ///
    /// # Errors
    /// The master is gone, or says what cannot be read.
    pub fn requests(&mut self) -> Result<Vec<Pdu>, Error> {
        self.fill()?;
        let mut requests = Vec::new();
        while let Some(pdu) = self.whole()? {
            match pdu.request {
                Request::Response { uptime, error } if error == status::NOT_OPEN => {
                    self.clock = Clock { uptime, at: Instant::now() };
                    return Err(Error::Closed);
                }
                Request::Response { uptime, .. } => self.clock = Clock { uptime, at: Instant::now() },
                Request::Close(_) => return Err(Error::Closed),
                _ => requests.push(pdu),
            }
        }
        Ok(requests)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The master is gone, or does not read.
    pub fn answer(&mut self, pdu: &Pdu, error: u16, index: u16, binds: &[Bind]) -> Result<(), Error> {
        Ok(self.stream.write_all(&quiver_agentx::response(Session::of(pdu), error, index, binds))?)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The master is gone, or does not read.
    pub fn notify(&mut self, binds: &[Bind]) -> Result<(), Error> {
        self.session.packet = self.session.packet.wrapping_add(1);
        Ok(self.stream.write_all(&quiver_agentx::notify(self.session, &self.context, binds))?)
    }

    /// Sends what `pdu` makes and waits for its answer; says whose session the answer is of.
    fn exchange(&mut self, what: &str, pdu: impl FnOnce(Session, &str) -> Vec<u8>) -> Result<u32, Error> {
        self.session.packet = self.session.packet.wrapping_add(1);
        self.stream.write_all(&pdu(self.session, &self.context))?;
        loop {
            let Some(answer) = self.whole()? else {
                self.fill()?;
                continue;
            };
            // Requests for the regions that are registered already wait: the manager asks again.
            if answer.packet != self.session.packet {
                continue;
            }
            if let Request::Response { uptime, error } = answer.request {
                self.clock = Clock { uptime, at: Instant::now() };
                return match error {
                    status::NO_ERROR => Ok(answer.session),
                    error => Err(Error::Refused { what: what.to_owned(), error }),
                };
            }
        }
    }

    fn whole(&mut self) -> Result<Option<Pdu>, Error> {
        let Front::Whole(length) = front(&self.input)? else { return Ok(None) };
        let pdu = Pdu::read(&self.input[..length]);
        self.input.drain(..length);
        Ok(Some(pdu?))
    }

    fn fill(&mut self) -> Result<(), Error> {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk)? {
            0 => Err(Error::Closed),
            count => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(())
            }
        }
    }
}
