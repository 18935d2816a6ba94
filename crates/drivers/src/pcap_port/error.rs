//! Why a capture file cannot be a port.

use std::io;
use std::path::PathBuf;

use quiver_wire::pcapfile::PcapError;

/// An error of [`super::PcapPort`].
#[derive(Debug, thiserror::Error)]
pub enum PcapPortError {
    /// Neither a file to replay nor one to record to.
    #[error("a pcap interface needs `rx FILE', `tx FILE' or both")]
    Nothing,
    /// The same file for both.
    #[error("{0} cannot be replayed and recorded to at once")]
    Same(PathBuf),
    /// A setting that cannot be.
    #[error("{key} {value} is not possible: {expected}")]
    Value {
        /// Setting.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// A file that is no capture, or is damaged.
    #[error("{path}: {error}")]
    File {
        /// File.
        path: PathBuf,
        /// What is wrong.
        error: PcapError,
    },
    /// A capture that cannot be replayed here.
    #[error("{path}: {reason}")]
    Unfit {
        /// File.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What the operating system says.
    #[error("{path}: {error}")]
    System {
        /// File.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
}
