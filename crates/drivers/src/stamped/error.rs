//! Why frames cannot be given times.

use std::io;

/// One line with what to do.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// There is no such device, or it cannot be asked.
    #[error("device {device}: {error}")]
    Device {
        /// The device.
        device: String,
        /// What the system said.
        error: io::Error,
    },
    /// The card has no clock, or does not give all frames a time.
    #[error("device {device}: its card gives {what} no times (ethtool -T {device} shows what it can): use the kernel's times")]
    Card {
        /// The device.
        device: String,
        /// Which frames.
        what: &'static str,
    },
    /// The card can, and was not allowed to.
    #[error("device {device}: its card's times cannot be switched on: {error}")]
    Switch {
        /// The device.
        device: String,
        /// What the system said.
        error: io::Error,
    },
    /// No socket.
    #[error("device {device}: a packet socket with times: {error}")]
    Socket {
        /// The device.
        device: String,
        /// What the system said.
        error: io::Error,
    },
}
