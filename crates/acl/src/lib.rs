#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
mod config;
pub mod control;
pub mod nodes;
pub mod ops;
pub mod packet;
pub mod policy;
pub mod rule;
pub mod session;
#[cfg(test)]
mod tests;
pub mod view;

use quiver_net::Plugin;

/// This plugin, for the list of those that are linked into the program.
pub const fn plugin() -> Plugin {
    Plugin {
        register: ops::register,
        api: api::add,
        schema: config::schema,
        start: |router, config| {
            let settings = config::read(config).map_err(|error| error.to_string())?;
            control::start(router).map_err(|error| error.to_string())?;
            control::configure(router, settings).map_err(|error| error.to_string())
        },
        ..Plugin::new(&["acl_plugin.so"], "Access lists: rules by addresses, protocols and ports, with sessions")
    }
}
