#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
pub mod config;
pub mod control;
pub mod figures;
pub mod fpm;
pub mod message;
pub mod ops;
pub mod reader;
mod restart;
pub mod rib;
mod schedule;
mod socket;
#[cfg(test)]
mod tests;

pub use quiver_graph::IfIndex;
use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["linux-nl"],
        schema: config::schema,
        register: ops::register,
        start: control::start,
        ..Plugin::new(&["linux_nl_plugin.so"], "Linux control plane: routes, neighbours, addresses and link state by netlink")
    }
}
