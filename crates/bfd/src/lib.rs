#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod auth;
pub mod control;
pub mod datagram;
pub mod index;
pub mod nodes;
pub mod ops;
pub mod packet;
mod process;
mod restart;
pub mod session;
#[cfg(test)]
mod tests;
pub mod thread;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["bfd"],
        register: ops::register,
        api: api::add,
        start: control::start,
        ..Plugin::new(&["bfd_plugin.so"], "Bidirectional Forwarding Detection (BFD)")
    }
}
