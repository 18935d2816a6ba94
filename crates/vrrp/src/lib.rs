#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
pub mod machine;
pub mod nodes;
pub mod ops;
pub mod packet;
mod process;
mod restart;
#[cfg(test)]
mod tests;
pub mod thread;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["vrrp"],
        register: ops::register,
        api: api::add,
        start: control::start,
        ..Plugin::new(&["vrrp_plugin.so"], "Virtual Router Redundancy Protocol (VRRP) version 3")
    }
}
