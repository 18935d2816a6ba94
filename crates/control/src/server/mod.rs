//! Sockets that clients connect to: `cli.sock` (or a TCP port) and `json.sock`.
//!
//! ```text
//!   listener ── task ── accept ──► one task a client: socket ⇄ session ⇄ engine (operations, one total order)
//! ```

mod connection;
mod socket;
mod stats;
mod terminal;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

pub use connection::{Wire, serve};
pub use socket::{BindError, BoundPath, Owner, listen_tcp, listen_unix};
pub use stats::StatsListener;
pub use terminal::Terminal;

use quiver_command::session::{Session, SessionOptions};
use quiver_graph::reactor::AsyncFd;

use crate::engine::Engine;
use crate::process::Processes;

/// Sessions at a time; a client beyond them is turned away. Each takes a descriptor and some memory.
const SESSIONS_MAX: usize = 256;
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
}

/// Serves the clients of listening sockets.
pub struct Server<C> {
    engine: Engine<C>,
    processes: Processes<C>,
    /// Cloned for each session, so that its count tells how many there are.
    sessions: Rc<()>,
}

impl<C: 'static> Server<C> {
    /// A server that runs requests on `engine` and its clients as `processes`.
    pub fn new(engine: Engine<C>, processes: Processes<C>) -> Self {
        Self { engine, processes, sessions: Rc::new(()) }
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
                    Ok(stream) => server.welcome(stream, &face),
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
                    Ok((stream, _)) => {
                        // Echoed keys go out at once.
                        let _ = stream.get_ref().set_nodelay(true);
                        server.welcome(stream, &face);
                    }
                    Err(error) => server.refused(&error).await,
                }
            }
        });
        Ok(())
    }

    fn clone_handles(&self) -> Self {
        Self { engine: self.engine.clone(), processes: self.processes.clone(), sessions: Rc::clone(&self.sessions) }
    }

    fn welcome(&self, stream: impl Wire + 'static, face: &Face) {
        // One count is the server's, one for each listener's task, of which there are few.
        if Rc::strong_count(&self.sessions) > SESSIONS_MAX {
            tracing::warn!(target: "cli", "more than {SESSIONS_MAX} sessions: a client was turned away");
            return;
        }
        let (engine, session, count) = (self.engine.clone(), face.session(), Rc::clone(&self.sessions));
        self.processes.session("unix-cli-session", async move {
            serve(engine, stream, session).await;
            drop(count);
        });
    }

    async fn refused(&self, error: &io::Error) {
        tracing::warn!(target: "cli", "cannot take a client: {error}");
        self.engine.reactor().sleep(AFTER_FAILURE).await;
    }
}
