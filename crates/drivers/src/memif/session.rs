//! One control connection, from either end: what may come next, and what it means.
//!
//! The state machine is told each message and answers with what to do; sockets and interfaces are the caller's ([`super::hub`]).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::background::{Background, Given, Kind, Preparation};
use super::connection::{Announced, Rings};
use super::event::Event;
use super::memory::{Limits, NOT_MEMORY, Region};
use super::message::{AddRing, Hello, Init, MODE_ETHERNET, MODE_IP, Message, SECRET_BYTES, VERSION};
use super::zero_copy::Lending;
use super::{Key, LOG2_RING_MAX, MemifConfig, Mode, REGIONS_MAX, RINGS_MAX, Role};

/// What a session may use of its socket.
pub(super) struct Means<'a> {
    /// The interface's settings, where it is known.
    pub config: Option<&'a MemifConfig>,
    /// Packet buffers that its peer may see.
    pub lending: Option<&'a Lending>,
    /// What the peer may have mapped.
    pub limits: Limits,
    /// Closes what came from the peer.
    pub background: &'a Background,
}

/// Name by which peers know this program.
pub(super) fn program() -> String {
    format!("quiver {}", env!("CARGO_PKG_VERSION"))
}

/// What a server says first.
pub(super) fn hello() -> Message {
    Message::Hello(Hello {
        name: program(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: REGIONS_MAX as u16 - 1,
        max_to_client_ring: RINGS_MAX as u16 - 1,
        max_to_server_ring: RINGS_MAX as u16 - 1,
        max_log2_ring_size: LOG2_RING_MAX,
    })
}

/// What the caller has to do.
pub(super) enum Step {
    /// Nothing.
    Wait,
    /// Send these; more when they are acknowledged.
    Send(Message, Option<OwnedFd>),
    /// Server: the client wants this interface. Call [`Session::accept`] or end.
    Wants(Init),
    /// Have this done by a thread that may wait for the peer, and tell the result to [`Session::prepared`].
    Prepare(Preparation),
    /// Server: the connection stands; send `Connected`. The peer's interface is named so.
    Stands(Rings, String),
    /// Client: the same; nothing to send.
    Runs(Rings, String),
    /// The peer ended it for this reason.
    Ended(String),
}

enum State {
    /// Server, before INIT.
    New,
    /// Server, while the client announces.
    Announcing { regions: Vec<Region>, to_server: Vec<Announced>, to_client: Vec<Announced> },
    /// Client, before HELLO.
    Dialled,
    /// Client, while the server acknowledges.
    Offering { rings: Box<Rings>, rest: VecDeque<(Message, Option<OwnedFd>)> },
    /// Client, after CONNECT.
    Offered { rings: Box<Rings> },
    /// Either, while its memory is made ready; the peer's interface is named so.
    Preparing { name: String, serves: bool },
    /// Either.
    Running,
}

/// A control connection's state.
pub(super) struct Session {
    state: State,
    /// Interface, where it is known.
    pub key: Option<Key>,
    /// Peer's program.
    pub remote: String,
}

/// Longest answer that the caller may give to a peer.
type Reason = String;

impl Session {
    /// A server's.
    pub fn server() -> Self {
        Self { state: State::New, key: None, remote: String::new() }
    }

    /// A client's.
    pub fn client(key: Key) -> Self {
        Self { state: State::Dialled, key: Some(key), remote: String::new() }
    }

    /// Of a connection that stood in another process; its memory is made ready.
    pub fn inherited(key: Key, remote: String, name: String) -> Self {
        Self { state: State::Preparing { name, serves: false }, key: Some(key), remote }
    }

    /// Whether packets flow.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// A message came, and this descriptor with it.
    ///
    /// # Errors
    /// What the peer did wrong: to be told, then the end.
    pub fn on(&mut self, message: Message, given: Option<Given>, means: &Means<'_>) -> Result<Step, Reason> {
        let Means { config, lending, limits, background } = *means;
        if let Message::Disconnect { reason, .. } = message {
            return Ok(Step::Ended(if reason.is_empty() { "no reason given".to_owned() } else { reason }));
        }
        match (&mut self.state, message) {
            (State::New, Message::Init(init)) => {
                if init.version != VERSION {
                    return Err("unsupported protocol version".into());
                }
                self.remote.clone_from(&init.name);
                Ok(Step::Wants(init))
            }
            (State::Announcing { regions, .. }, Message::AddRegion { index, size }) => {
                if usize::from(index) != regions.len() || regions.len() >= REGIONS_MAX {
                    return Err("unexpected region index".into());
                }
                let fd = given.ok_or("missing region descriptor")?.take(Kind::Memory).ok_or(NOT_MEMORY)?;
                let region = Region::of_peer(fd, size, background)?;
                limits.admit(regions, &region)?;
                regions.push(region);
                Ok(Step::Send(Message::Ack, None))
            }
            (State::Announcing { to_server, to_client, .. }, Message::AddRing(ring)) => {
                let given = given.ok_or("missing event descriptor")?;
                let list = if ring.to_server { to_server } else { to_client };
                check_ring(&ring, list.len())?;
                let fd = given.take(Kind::Event).ok_or("event descriptor is not an eventfd")?;
                list.push(Announced { ring, event: Arc::new(Event::of_peer(fd, background.clone())) });
                Ok(Step::Send(Message::Ack, None))
            }
            (State::Announcing { regions, to_server, to_client }, Message::Connect(name)) => {
                let regions = std::mem::take(regions);
                let (to_server, to_client) = (std::mem::take(to_server), std::mem::take(to_client));
                self.state = State::Preparing { name, serves: true };
                Ok(Step::Prepare(Box::new(move || {
                    if !limits.unsealed {
                        regions.iter().try_for_each(Region::seal)?;
                    }
                    Rings::of_peer(regions, &to_server, &to_client).map(Box::new)
                })))
            }
            (State::Dialled, Message::Hello(hello)) => {
                let config = config.ok_or("no such interface")?;
                if hello.min_version > VERSION || hello.max_version < VERSION {
                    return Err("unsupported protocol version".into());
                }
                let rings = Rings::create(config, &hello, lending).map_err(|e| format!("no shared memory: {e}"))?;
                let mut rest: VecDeque<_> = rings.announce().map_err(|e| format!("no descriptors: {e}"))?.into();
                rest.push_back((Message::Connect(config.key.to_string()), None));
                self.remote = hello.name;
                self.state = State::Offering { rings: Box::new(rings), rest };
                Ok(Step::Send(Message::Init(init(config)), None))
            }
            (State::Offering { rest, .. }, Message::Ack) => {
                let Some((message, fd)) = rest.pop_front() else { return Err("unexpected message".into()) };
                if rest.is_empty()
                    && let State::Offering { rings, .. } = std::mem::replace(&mut self.state, State::New)
                {
                    self.state = State::Offered { rings };
                }
                Ok(Step::Send(message, fd))
            }
            (State::Offered { .. }, Message::Connected(name)) => {
                let preparing = State::Preparing { name, serves: false };
                let State::Offered { rings } = std::mem::replace(&mut self.state, preparing) else { return Ok(Step::Wait) };
                Ok(Step::Prepare(Box::new(move || {
                    if !limits.unsealed {
                        rings.regions.iter().try_for_each(Region::seal)?;
                    }
                    Ok(rings)
                })))
            }
            _ => Err("unexpected message".into()),
        }
    }

    /// What [`Step::Prepare`] asked for is done.
    pub fn prepared(&mut self, rings: Rings) -> Step {
        match std::mem::replace(&mut self.state, State::Running) {
            State::Preparing { name, serves: true } => Step::Stands(rings, name),
            State::Preparing { name, serves: false } => Step::Runs(rings, name),
            other => {
                self.state = other;
                Step::Wait
            }
        }
    }

    /// Server: gives the client the interface that it wants.
    ///
    /// # Errors
    /// Mode or secret do not agree.
    pub fn accept(&mut self, init: &Init, config: &MemifConfig) -> Result<Message, Reason> {
        let mode = if config.mode == Mode::Ip { MODE_IP } else { MODE_ETHERNET };
        if init.mode != mode {
            return Err("mode mismatch".into());
        }
        if let Some(secret) = &config.secret {
            if init.secret == [0; SECRET_BYTES] {
                return Err("secret required".into());
            }
            if init.secret != padded(secret) {
                return Err("incorrect secret".into());
            }
        }
        debug_assert!(config.role == Role::Server);
        self.key = Some(config.key);
        self.state = State::Announcing { regions: Vec::new(), to_server: Vec::new(), to_client: Vec::new() };
        Ok(Message::Ack)
    }
}

fn check_ring(ring: &AddRing, known: usize) -> Result<(), Reason> {
    if usize::from(ring.index) != known || known >= RINGS_MAX {
        return Err("unexpected ring index".into());
    }
    if ring.log2_size > LOG2_RING_MAX {
        return Err("ring is too large".into());
    }
    if ring.private_header != 0 {
        return Err("private headers are not supported".into());
    }
    Ok(())
}

fn init(config: &MemifConfig) -> Init {
    Init {
        version: VERSION,
        id: config.key.id,
        mode: if config.mode == Mode::Ip { MODE_IP } else { MODE_ETHERNET },
        secret: config.secret.as_deref().map_or([0; SECRET_BYTES], padded),
        name: program(),
    }
}

fn padded(secret: &str) -> [u8; SECRET_BYTES] {
    let mut bytes = [0; SECRET_BYTES];
    let n = secret.len().min(SECRET_BYTES);
    bytes[..n].copy_from_slice(&secret.as_bytes()[..n]);
    bytes
}
