#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
pub mod control;
pub mod flows;
pub mod key;
pub mod nodes;
pub mod observe;
pub mod ops;
pub mod stream;
pub mod template;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["flowprobe"],
        register: ops::register,
        api: api::add,
        start: |router, _| control::start(router).map_err(|error| error.to_string()),
        ..Plugin::new(&["flowprobe_plugin.so"], "Flow records, exported by IPFIX")
    }
}
