//! The data plane daemon: the router with the plugins that are built in.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use quiver_control::Plugin;

/// Plugins that are part of this program. Each is a crate with one `pub fn plugin() -> Plugin`.
const PLUGINS: [Plugin; 0] = [];

fn main() -> ExitCode {
    quiver_control::run(&PLUGINS)
}
