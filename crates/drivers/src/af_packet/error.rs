//! Why a host interface cannot be opened: what, where, and what to do.

use std::io;

/// An error of [`super::AfPacket`].
#[derive(Debug, thiserror::Error)]
pub enum AfPacketError {
    /// There is no such device.
    #[error("no network device {0} in the router's network namespace; `ip link` lists what there is")]
    NoDevice(String),
    /// The process may not.
    #[error(
        "{what} on {name} is not permitted: packet sockets need CAP_NET_RAW (run as root, or `setcap cap_net_raw,cap_net_admin+ep` on the program)"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// Device.
        name: String,
    },
    /// A setting that cannot be.
    #[error("invalid {key} {value} for {name}: expected {allowed}")]
    Range {
        /// Setting.
        key: &'static str,
        /// Its value.
        value: usize,
        /// What would do.
        allowed: &'static str,
        /// Device.
        name: String,
    },
    /// The device does not fit the mode.
    #[error("{name} cannot be used in mode {mode}: {reason}")]
    Mode {
        /// Device.
        name: String,
        /// `ethernet` or `ip`.
        mode: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Anything else that the operating system says.
    #[error("{what} on {name}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Device.
        name: String,
        /// The system's answer.
        error: io::Error,
    },
}

impl AfPacketError {
    /// What an operating system's error means when `what` was tried on `name`.
    pub(super) fn of(what: &'static str, name: &str, error: io::Error) -> Self {
        let name = name.to_owned();
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice(name),
            Some(libc::EPERM | libc::EACCES) => Self::Permission { what, name },
            _ => Self::System { what, name, error },
        }
    }

    /// The kind of error, for callers that know only the operating system's.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoDevice(_) => io::ErrorKind::NotFound,
            Self::Permission { .. } => io::ErrorKind::PermissionDenied,
            Self::Range { .. } | Self::Mode { .. } => io::ErrorKind::InvalidInput,
            Self::System { error, .. } => error.kind(),
        }
    }
}

impl From<AfPacketError> for io::Error {
    fn from(error: AfPacketError) -> Self {
        Self::new(error.kind(), error)
    }
}
