#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
mod mark;
pub mod meter;
pub mod nodes;
pub mod ops;
mod policer;
#[cfg(test)]
mod tests;
mod view;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["policer_plugin.so"], "Policers: rates of packets by token buckets")
    }
}
