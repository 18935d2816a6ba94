#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adopt;
mod affinity;
mod api;
mod bindings;
pub mod config;
pub mod control;
mod counters;
mod early;
pub mod fragments;
mod hash;
mod hosts;
mod ipfix;
mod log;
mod moved;
pub mod nodes;
pub mod ops;
pub mod packet;
mod process;
mod restart;
pub mod session;
pub mod table;
#[cfg(test)]
mod tests;
pub mod thread;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["nat44"],
        register: ops::register,
        api: api::add,
        start: control::start,
        ..Plugin::new(&["nat44_ed_plugin.so", "nat_plugin.so"], "Network Address Translation (NAT44, endpoint-dependent)")
    }
}
