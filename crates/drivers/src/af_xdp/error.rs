//! Why a device cannot be used through AF_XDP: what, where, and what to do.

use std::io;

/// An error of [`super::AfXdp`].
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// There is no such device.
    #[error("no network device {0} in the router's network namespace; `ip link` lists what there is")]
    NoDevice(String),
    /// The process may not.
    #[error(
        "{what} on {name} is not permitted: AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (run as root, or `setcap cap_net_raw,cap_net_admin,cap_bpf+ep` on the program)"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// Device.
        name: String,
    },
    /// Somebody else has the device.
    #[error("{what} on {name}: another program has an XDP program or an AF_XDP socket there (`ip link show dev {name}`)")]
    Busy {
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
        allowed: String,
        /// Device.
        name: String,
    },
    /// The device, or the router's memory, cannot do what was asked for.
    #[error("{name} cannot be used with AF_XDP: {reason}")]
    Unfit {
        /// Device.
        name: String,
        /// Why, and what to do.
        reason: String,
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

impl AfXdpError {
    /// What an operating system's error means when `what` was tried on `name`.
    pub(super) fn of(what: &'static str, name: &str, error: io::Error) -> Self {
        let name = name.to_owned();
        let unfit = |reason: &str| Self::Unfit { name: name.clone(), reason: reason.to_owned() };
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice(name),
            Some(libc::EPERM | libc::EACCES) => Self::Permission { what, name },
            Some(libc::EBUSY) => Self::Busy { what, name },
            Some(libc::EOPNOTSUPP) => unfit("its driver does not offer this mode; leave `zero-copy' and `native' out"),
            Some(libc::EAFNOSUPPORT) => unfit("this kernel has no AF_XDP sockets"),
            Some(libc::ERANGE) => unfit("its MTU is too large for XDP; lower it, or add `generic'"),
            Some(libc::ENOBUFS) => unfit("the limit on locked memory is too low (`ulimit -l'; CAP_IPC_LOCK lifts it)"),
            _ => Self::System { what, name, error },
        }
    }

    /// Whether somebody else has the device.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// The kind of error, for callers that know only the operating system's.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoDevice(_) => io::ErrorKind::NotFound,
            Self::Permission { .. } => io::ErrorKind::PermissionDenied,
            Self::Busy { .. } => io::ErrorKind::ResourceBusy,
            Self::Range { .. } | Self::Unfit { .. } => io::ErrorKind::InvalidInput,
            Self::System { error, .. } => error.kind(),
        }
    }
}

impl From<AfXdpError> for io::Error {
    fn from(error: AfXdpError) -> Self {
        Self::new(error.kind(), error)
    }
}
