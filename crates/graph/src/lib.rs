//! Nodes, frames, dispatcher, counters, clock, trace and the port contract

pub mod clock;
pub mod elog;
pub mod stats;
pub mod topology;
