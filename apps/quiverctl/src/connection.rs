//! One connection to a router, and calls over it.

use quiver_command::session::frames::{Call, Filter, Reply, Status, terminal_type_answer};
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
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
    /// The other side is no quiver.
    #[error("{0} does not speak quiverctl's protocol; is it the socket of another program?")]
    Foreign(String),
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
        Ok(Self { socket, reader, writer, filter: Filter::default(), last_id: 0, candidate: false })
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
        let read = self.reader.read_until(b'\n', &mut bytes).map_err(|error| self.lost(error))?;
        if read == 0 || bytes.last() != Some(&b'\n') {
            return Err(self.lost(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        bytes.retain_mut(|byte| self.filter.push(*byte).is_some());
        let text = String::from_utf8_lossy(&bytes);
        if let Some(refused) = text.trim().strip_prefix("quiver: ") {
            return Err(CallError::Refused(refused.to_owned()));
        }
        serde_json::from_slice(&bytes).map_err(|_| CallError::Foreign(self.socket.clone()))
    }

    fn lost(&self, error: io::Error) -> CallError {
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("closed by the router"),
            _ => error,
        };
        CallError::Lost { socket: self.socket.clone(), error }
    }
}
