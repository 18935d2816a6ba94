#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
mod config;
pub mod control;
pub mod nodes;
pub mod ops;
pub mod table;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["linux-cp"],
        schema: config::schema,
        register: ops::register,
        api: api::add,
        start: control::start,
        ..Plugin::new(&["linux_cp_plugin.so"], "Linux Control Plane - interface mirroring")
    }
}
