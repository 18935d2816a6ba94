#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod control;
pub mod ops;
mod ports;
mod table;
#[cfg(test)]
mod tests;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        log_classes: &["fast-path"],
        register: ops::register,
        start: |router, _| {
            control::start(router);
            Ok(())
        },
        ..Plugin::new(
            &["xdp_fast_path_plugin.so"],
            "Fast path of AF_XDP and host interfaces: what the graph has decided stays in the kernel",
        )
    }
}
