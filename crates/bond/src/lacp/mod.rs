//! LACP (IEEE 802.1AX): which links of a bond lead to the same partner, and whether that agrees.
//!
//! The machines of a bond belong to one thread that forwards, as sessions of BFD do: its timers do not wait for main. Data units that
//! another thread receives are handed to it.

pub mod lag;
pub mod pdu;
pub(crate) mod thread;
