//! Drivers and tables whose memory is of huge pages where there are any.

pub mod af_xdp;
mod attacks_memif;
pub mod dpdk;
pub mod memif;
mod nat44_many;
pub mod tap;
