//! The data plane daemon: the router with the plugins that are built in.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use quiver_control::{BUILT_IN, Plugin};

/// Plugins that are crates of their own, each with one `pub fn plugin() -> Plugin`.
const PLUGINS: &[fn() -> Plugin] = &[
    quiver_nat44::plugin,
    #[cfg(feature = "dpdk")]
    quiver_dpdk::plugin,
];

fn main() -> ExitCode {
    let plugins: Vec<Plugin> = BUILT_IN.into_iter().chain(PLUGINS.iter().map(|plugin| plugin())).collect();
    quiver_control::run(&plugins)
}
