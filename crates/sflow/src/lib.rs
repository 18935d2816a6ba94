#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
pub mod datagram;
pub mod nodes;
pub mod ops;
mod process;
pub mod sampler;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["sflow_plugin.so"], "Samples of packets and counters (sFlow)")
    }
}
