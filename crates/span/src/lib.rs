#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
pub mod mirrors;
pub mod nodes;
pub mod ops;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["span_plugin.so"], "SPAN: copies of the frames of an interface at another one")
    }
}
