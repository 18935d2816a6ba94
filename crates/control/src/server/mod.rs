//! Sockets that clients connect to: `cli.sock` (or a TCP port) and `json.sock`.
//!
//! ```text
//!   listener ── task ── accept ──► one task a client: socket ⇄ session ⇄ engine (operations, one total order)
//! ```

mod admission;
mod connection;
mod predecessor;
mod sessions;
pub(crate) mod socket;
mod stats;
mod terminal;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

pub use admission::Admission;
pub use connection::{Wire, serve};
pub use sessions::{Asking, End, Peer, Refused, SessionHandle, SessionInfo, SessionKind, Sessions};
pub use socket::{BindError, BoundPath, Owner, listen_tcp, listen_unix, set_mode};
pub use stats::StatsListener;
pub use terminal::Terminal;

use quiver_command::operation::Access;
use quiver_command::session::{Session, SessionOptions};
use quiver_graph::reactor::AsyncFd;

use crate::engine::Engine;
use crate::process::Processes;

/// Pause after an accept that failed, such as for lack of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What a socket speaks.
#[derive(Clone)]
pub enum Face {
    /// The command language: `vppctl`, `quiverctl`, terminals.
    Cli(Rc<SessionOptions>),
    /// JSON lines.
    Json,
}

impl Face {
    fn session(&self) -> Session {
        match self {
            Self::Cli(options) => Session::cli(Rc::clone(options)),
            Self::Json => Session::json(),
        }
    }

    fn kind(&self) -> SessionKind {
        match self {
            Self::Cli(_) => SessionKind::Cli,
            Self::Json => SessionKind::Json,
        }
    }

    /// What a client without a place reads.
    fn refusal(&self, refused: &Refused) -> Vec<u8> {
        match self {
            Self::Cli(_) => format!("{refused}\r\n").into_bytes(),
            Self::Json => {
                let mut session = self.session();
                session.farewell(&refused.to_string());
                session.output().to_vec()
            }
        }
    }
}

/// Serves the clients of listening sockets.
pub struct Server<C> {
    engine: Engine<C>,
    processes: Processes<C>,
    sessions: Sessions,
    /// After which silence a session ends.
    idle_timeout: Option<Duration>,
    admission: Admission,
}

impl<C: 'static> Server<C> {
    /// A server that runs requests on `engine` and its clients as `processes`, each of which has a place among `sessions`.
    pub fn new(engine: Engine<C>, processes: Processes<C>, sessions: Sessions, idle_timeout: Option<Duration>) -> Self {
        Self { engine, processes, sessions, idle_timeout, admission: Admission::default() }
    }

    /// The same, with a rule on who may do what.
    pub fn with_admission(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    /// Takes the clients of a Unix socket from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unix(&self, listener: UnixListener, bound: BoundPath, face: Face) -> io::Result<()> {
        let listener = AsyncFd::new(self.engine.reactor(), listener)?;
        let server = self.clone_handles();
        self.processes.account("unix-cli-listener", async move {
            let _bound = bound;
            loop {
                match listener.accept().await {
                    Ok(stream) => match server.admission.of(stream.get_ref()) {
                        Some(access) => {
                            let peer = Peer::of(stream.get_ref());
                            server.welcome(stream, peer, &face, access);
                        }
                        None => turn_away(stream.get_ref(), &face),
                    },
                    Err(error) => server.refused(&error).await,
                }
            }
        });
        Ok(())
    }

    /// Takes the clients of a TCP port from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tcp(&self, listener: TcpListener, face: Face) -> io::Result<()> {
        let listener = AsyncFd::new(self.engine.reactor(), listener)?;
        let server = self.clone_handles();
        self.processes.account("unix-cli-listener", async move {
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        // Echoed keys go out at once.
                        let _ = stream.get_ref().set_nodelay(true);
                        // A peer that is gone without a word is noticed in the end.
                        let _ = rustix::net::sockopt::set_socket_keepalive(stream.get_ref(), true);
                        server.welcome(stream, Peer::Remote(address.ip()), &face, Access::Change);
                    }
                    Err(error) => server.refused(&error).await,
                }
            }
        });
        Ok(())
    }

    fn clone_handles(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            processes: self.processes.clone(),
            sessions: self.sessions.clone(),
            idle_timeout: self.idle_timeout,
            admission: self.admission,
        }
    }

    fn welcome(&self, mut stream: impl Wire + 'static, peer: Peer, face: &Face, access: Access) {
        let handle = match self.sessions.admit(face.kind(), peer, self.idle_timeout) {
            Ok(handle) => handle,
            Err(refused) => {
                tracing::warn!(target: "cli", "a client was turned away ({peer}): {refused}");
                // It is told if it can be told at once.
                let _ = stream.send(&face.refusal(&refused));
                return;
            }
        };
        let (engine, session) = (self.engine.with_access(access), face.session());
        self.processes.session("unix-cli-session", serve(engine, stream, session, handle));
    }

    async fn refused(&self, error: &io::Error) {
        tracing::warn!(target: "cli", "cannot take a client: {error}");
        self.engine.reactor().sleep(AFTER_FAILURE).await;
    }
}

/// Says why and goes away, without waiting.
fn turn_away(stream: &UnixStream, face: &Face) {
    let text = admission::REFUSAL;
    let line = match face {
        Face::Cli(_) => format!("{text}\r\n"),
        Face::Json => format!("{}\n", serde_json::json!({ "id": null, "status": "error", "text": text })),
    };
    let _ = rustix::io::write(stream, line.as_bytes());
    tracing::info!(target: "cli", "a client was turned away: {text}");
}
