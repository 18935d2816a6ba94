//! One connection to a router, and calls over it.

use quiver_command::session::frames::{Call, Filter, Reply, Status, terminal_type_answer};
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

/// Why a call got no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing listens there.
    #[error("{0}")]
    NoRouter(String),
    /// The connection broke.
    #[error("connection to {socket} lost: {error}")]
    Lost {
        /// The socket.
        socket: String,
        /// What the system said.
        error: io::Error,
    },
    /// The router has no place for another session, or has ended this one: its own words.
    #[error("{0}")]
    Refused(String),
    /// No answer within the time that [`Limits`] give.
    #[error("{socket} does not answer within {seconds} s")]
    Silent {
        /// The socket.
        socket: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The answer is longer than [`Limits`] allow.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The other side is no quiver.
    #[error("{0} does not speak quiverctl's protocol; is it the socket of another program?")]
    Foreign(String),
}

/// Most of an answer: after an error about them the connection is of no more use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a part of an answer is waited for.
    pub patience: Duration,
    /// Bytes of a line.
    pub bytes: usize,
}

/// A Unix or TCP stream.
#[derive(Debug)]
pub enum Stream {
    /// `cli.sock`.
    Unix(UnixStream),
    /// `cli-listen host:port`.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to a path, or to `host:port`.
    pub fn connect(socket: &str) -> io::Result<Self> {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if !socket.contains('/') && socket.rsplit_once(':').is_some_and(|(_, port)| is_port(port)) {
            return TcpStream::connect(socket).map(Self::Tcp);
        }
        UnixStream::connect(socket).map(Self::Unix)
    }

    fn set_read_timeout(&self, patience: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(patience)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(patience)),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that speaks frames.
#[derive(Debug)]
pub struct Connection {
    socket: String,
    reader: BufReader<Stream>,
    writer: Stream,
    filter: Filter,
    last_id: u64,
    candidate: bool,
    limits: Option<Limits>,
}

impl Connection {
    /// Connects and says what we are.
    pub fn open(socket: &str) -> io::Result<Self> {
        let stream = Stream::connect(socket)?;
        let mut writer = stream.try_clone()?;
        // json.sock speaks frames without being asked.
        if Path::new(socket).file_name().is_none_or(|name| name != "json.sock") {
            let said = writer.write_all(&terminal_type_answer("quiverctl"));
            // One that has turned us away has said why; that is read in place of the first answer.
            said.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })?;
        }
        let (reader, socket) = (BufReader::new(stream), socket.to_owned());
        Ok(Self { socket, reader, writer, filter: Filter::default(), last_id: 0, candidate: false, limits: None })
    }

    /// Limits answers from now on.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// The router's process; nothing over TCP, or where it cannot be seen from here.
    pub fn router(&self) -> Option<u32> {
        let Stream::Unix(stream) = &self.writer else { return None };
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// Whether the session collects its changes, as far as is known here.
    pub fn has_candidate(&self) -> bool {
        self.candidate
    }

    /// A second handle to write with: for cancelling from elsewhere.
    pub fn canceller(&self) -> io::Result<Stream> {
        self.writer.try_clone()
    }

    /// Sends a call and waits for its answer. `progress` gets the text that comes before; when it says
    /// false the call is cancelled.
    pub fn call(&mut self, call: Call, mut progress: impl FnMut(&str) -> bool) -> Result<Reply, CallError> {
        self.last_id += 1;
        let id = Value::from(self.last_id);
        let line = Call { id: id.clone(), ..call }.to_line();
        let _running = crate::interrupt::running();
        if let Err(error) = self.writer.write_all(line.as_bytes()) {
            return Err(match self.read_frame() {
                Err(refused @ CallError::Refused(_)) => refused,
                Ok(Reply { status: Status::Error, text, .. }) => CallError::Refused(text),
                _ => self.lost(error),
            });
        }
        let mut cancelled = false;
        loop {
            let reply = self.read_frame()?;
            match reply.status {
                // An error that answers nothing is the end of the session.
                Status::Error if reply.id.is_null() => return Err(CallError::Refused(reply.text)),
                _ if reply.id != id => {}
                Status::More if progress(&reply.text) || cancelled => {}
                Status::More => {
                    cancelled = true;
                    let cancel = Call { cancel: Some(id.clone()), ..Call::default() }.to_line();
                    self.writer.write_all(cancel.as_bytes()).map_err(|error| self.lost(error))?;
                }
                Status::Ok | Status::Error => {
                    self.candidate = reply.candidate;
                    return Ok(reply);
                }
            }
        }
    }

    fn read_frame(&mut self) -> Result<Reply, CallError> {
        let mut bytes = Vec::new();
        match self.limits {
            None => drop(self.reader.read_until(b'\n', &mut bytes).map_err(|error| self.lost(error))?),
            Some(limits) => self.read_within(limits, &mut bytes)?,
        }
        if bytes.last() != Some(&b'\n') {
            return Err(self.lost(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        bytes.retain_mut(|byte| self.filter.push(*byte).is_some());
        let text = String::from_utf8_lossy(&bytes);
        if let Some(refused) = text.trim().strip_prefix("quiver: ") {
            return Err(CallError::Refused(refused.to_owned()));
        }
        serde_json::from_slice(&bytes).map_err(|_| CallError::Foreign(self.socket.clone()))
    }

    /// Reads a line, or as much of one as there is.
    fn read_within(&mut self, limits: Limits, bytes: &mut Vec<u8>) -> Result<(), CallError> {
        let end = Instant::now() + limits.patience;
        let silent = |socket: &str| CallError::Silent { socket: socket.to_owned(), seconds: limits.patience.as_secs() };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(&self.socket));
            }
            self.writer.set_read_timeout(left).map_err(|error| self.lost(error))?;
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(silent(&self.socket));
                }
                Err(error) => return Err(self.lost(error)),
            };
            let whole = chunk.iter().position(|byte| *byte == b'\n');
            let take = whole.map_or(chunk.len(), |at| at + 1);
            bytes.extend_from_slice(&chunk[..take]);
            self.reader.consume(take);
            if whole.is_some() || take == 0 {
                return Ok(());
            }
            if bytes.len() > limits.bytes {
                return Err(CallError::TooLong(limits.bytes));
            }
        }
    }

    fn lost(&self, error: io::Error) -> CallError {
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("closed by the router"),
            _ => error,
        };
        CallError::Lost { socket: self.socket.clone(), error }
    }
}
