//! Why a TAP device cannot be made: what, where, and what to do.

use std::io;

/// An error of [`super::Tap`].
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel has no TAP devices, or not for us.
    #[error("no TAP devices here: /dev/net/tun {0}; `modprobe tun', or give the container that device")]
    NoTun(io::Error),
    /// The process may not.
    #[error(
        "{what} {name} is not permitted: TAP devices need CAP_NET_ADMIN (run as root, or `setcap cap_net_admin+ep` on the program)"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// Device.
        name: String,
    },
    /// The process may not enter the namespace.
    #[error(
        "host-ns {0}: entering a network namespace is not permitted: it needs CAP_SYS_ADMIN, and for pid:<n> of another user's process CAP_SYS_PTRACE (`show privileges' tells what the router has)"
    )]
    Namespace(String),
    /// There is a device of this name.
    #[error("network device {0} exists already; choose another host-if-name, or `attach' to a persistent TAP device")]
    Exists(String),
    /// There is no device to attach to.
    #[error("no network device {0} to attach to")]
    NoDevice(String),
    /// A setting that cannot be.
    #[error("{key} {value} is not possible: {expected}")]
    Value {
        /// Setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        expected: String,
    },
    /// Anything else that the operating system says.
    #[error("{what} {name}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Device.
        name: String,
        /// The system's answer.
        error: io::Error,
    },
}

impl TapError {
    /// What an operating system's error means when `what` was tried on `name`.
    pub(super) fn of(what: &'static str, name: &str, error: io::Error) -> Self {
        let name = name.to_owned();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { what, name },
            _ => Self::System { what, name, error },
        }
    }

    /// The kind of error, for callers that know only the operating system's.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoTun(_) | Self::NoDevice(_) => io::ErrorKind::NotFound,
            Self::Permission { .. } | Self::Namespace(_) => io::ErrorKind::PermissionDenied,
            Self::Exists(_) => io::ErrorKind::AlreadyExists,
            Self::Value { .. } => io::ErrorKind::InvalidInput,
            Self::System { error, .. } => error.kind(),
        }
    }
}

impl From<TapError> for io::Error {
    fn from(error: TapError) -> Self {
        Self::new(error.kind(), error)
    }
}
