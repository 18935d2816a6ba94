//! The data plane daemon: the router with the plugins that are built in.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use quiver_control::{BUILT_IN, Plugin};

/// Plugins that are crates of their own, each with one `pub fn plugin() -> Plugin`.
const PLUGINS: [Plugin; 0] = [];

fn main() -> ExitCode {
    let plugins: Vec<Plugin> = BUILT_IN.into_iter().chain(PLUGINS).collect();
    quiver_control::run(&plugins)
}
