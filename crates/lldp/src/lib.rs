#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod agent;
mod api;
pub mod control;
pub mod node;
pub mod ops;
pub mod pdu;
mod process;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["lldp"],
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["lldp_plugin.so"], "Link Layer Discovery Protocol (LLDP)")
    }
}
