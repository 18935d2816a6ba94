#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
mod follow;
pub mod lacp;
mod machines;
pub mod members;
pub mod nodes;
pub mod ops;
mod restart;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["bond"],
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["bond_plugin.so", "lacp_plugin.so"], "Bonds (link aggregation) and LACP")
    }
}
