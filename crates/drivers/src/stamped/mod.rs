//! Frames with the times at which they left a device and came to one: a network card's own times, or the kernel's (`SO_TIMESTAMPING`).
//!
//! ```text
//!   StampedTx ──► device ═══ whatever is measured ═══ device ──► StampedRx      (a copy: the port's own driver gets the frame as well)
//!       ▲            │                                   │            │
//!       └── left at ─┘                                   └── came at ─┘
//! ```
//!
//! A card timestamps frames by its own clock. Timestamps of two cards can be compared only where both cards have one clock.

mod card;
mod error;
mod filter;
mod socket;
#[cfg(test)]
mod tests;

pub use card::CardClock;
pub(crate) use card::{Abilities, Setting};
pub use error::StampError;
pub use filter::Tail;
pub use socket::{StampedRx, StampedTx};

/// Whose times they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The network card's: as the frame passes its port.
    Card,
    /// The kernel's: as a driver hands a frame to its device, and as the kernel takes one from a driver.
    Kernel,
}
