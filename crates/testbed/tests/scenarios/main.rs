//! Scenarios: the daemon, the tester and the testbed itself among kernel hosts in network namespaces. One program, so that it is
//! linked once; several scenarios run side by side.
//!
//! To add a file: put it here, name it below, and write `use crate::common;` where it uses what several share. Each scenario
//! begins with `Scenario::begin`, or with `Scenario::alone` where it measures time, needs a core for itself, or looks at what the
//! whole machine has (processes, huge pages, BPF programs).
//!
//! Scenarios in a module named `pages` depend on the size of pages: the gate runs them a second time without huge pages.

#[path = "../common/mod.rs"]
mod common;

mod af_xdp;
mod bridge;
mod dpdk;
mod forwarding;
mod frames;
mod hosts;
mod icmp;
mod layer2;
mod memif;
mod mix;
mod nat44;
mod nat44_many;
mod nat44_stateful;
mod neighbors;
mod scene;
mod tap;
mod tester;
mod workers;
