//! Drivers and tables whose memory is of huge pages where there are any.

mod af_xdp;
mod attacks_memif;
pub mod dpdk;
mod memif;
mod nat44_many;
mod tap;
