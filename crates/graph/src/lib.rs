//! Nodes, frames, dispatcher, counters, clock, trace and the port contract

pub mod stats;
