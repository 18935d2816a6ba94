//! Why a memif socket or interface cannot be made: what, and what to do.

use std::io;

/// An error of [`super::Memif`].
#[derive(Debug, thiserror::Error)]
pub enum MemifError {
    /// A setting that cannot be.
    #[error("invalid {key} {value}: expected {allowed}")]
    Range {
        /// Setting.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        allowed: &'static str,
    },
    /// A secret of so many bytes.
    #[error("a secret of {0} bytes is too long: expected at most {max}", max = super::message::SECRET_BYTES)]
    Secret(usize),
    /// No such socket.
    #[error("memif socket {0} does not exist; `create memif socket id {0} filename <path>' makes it")]
    NoSocket(u32),
    /// The number is taken by another file.
    #[error("memif socket {id} exists already, with file {path}")]
    SocketExists {
        /// Number.
        id: u32,
        /// Its file.
        path: String,
    },
    /// The file is that of another socket.
    #[error("{path} is the file of memif socket {id} already")]
    PathTaken {
        /// The other's number.
        id: u32,
        /// File.
        path: String,
    },
    /// Interfaces use it.
    #[error("memif socket {0} is in use; delete its interfaces first")]
    SocketBusy(u32),
    /// The first socket stays.
    #[error("memif socket 0 is the router's own: it can be neither changed nor deleted")]
    SocketFixed,
    /// A path that no socket can have.
    #[error("{0} is not a path that a socket can have (at most 107 bytes)")]
    Path(String),
    /// The number is taken.
    #[error("memif interface with id {id} exists already on socket {socket}")]
    Exists {
        /// Socket.
        socket: u32,
        /// Number.
        id: u32,
    },
    /// One socket has one role.
    #[error("memif socket {socket} is used by {role} interfaces; give this interface another socket")]
    Role {
        /// Socket.
        socket: u32,
        /// Role of those that are there.
        role: &'static str,
    },
    /// Only the side that owns the memory can leave packets where they lie.
    #[error("zero-copy is for slaves: a master's memory is the peer's")]
    ZeroCopyServer,
    /// The pool of a socket is too small.
    #[error(
        "the zero-copy pool of memif socket {socket} has {buffers} buffers, {wanted} are needed for the rings of its interfaces (smaller ring-size, or create memif socket id … filename … zero-copy-buffers <n>)"
    )]
    Pool {
        /// Socket.
        socket: u32,
        /// What there is.
        buffers: u32,
        /// What it takes.
        wanted: usize,
    },
    /// Nobody has said where packets lie.
    #[error("there is no packet memory to share")]
    NoPacketMemory,
    /// Peers that sleep could not be woken.
    #[error("memif needs asynchronous I/O of the system: {0} (is fs.aio-max-nr used up?)")]
    NoSignals(io::Error),
    /// The pool cannot be made.
    #[error(transparent)]
    PoolMemory(quiver_buffer::RegionError),
    /// Somebody listens there.
    #[error("{0} is in use by another program")]
    Listening(String),
    /// Anything else that the operating system says.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
}

impl MemifError {
    /// The setting that is to blame.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Range { key, .. } => key,
            Self::Secret(_) => "secret",
            Self::NoSocket(_) | Self::SocketBusy(_) | Self::SocketFixed | Self::Role { .. } | Self::Pool { .. } => "socket-id",
            Self::ZeroCopyServer | Self::NoPacketMemory | Self::PoolMemory(_) => "zero-copy",
            Self::NoSignals(_) => "memif",
            Self::SocketExists { .. } | Self::Exists { .. } => "id",
            Self::PathTaken { .. } | Self::Path(_) | Self::Listening(_) | Self::System { .. } => "filename",
        }
    }
}
