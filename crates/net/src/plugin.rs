//! What a plugin brings to a router.

use quiver_command::config::{Config, Schema};
use quiver_command::operation::Registry;

use crate::Router;
use crate::api::Handlers;

/// What a plugin brings. Its crate has one `pub fn plugin() -> Plugin`, and the program lists them by hand: nothing runs
/// before `main`.
#[derive(Clone, Copy)]
pub struct Plugin {
    /// Its name as VPP's users know it, `nat44_ed_plugin.so`; other names that mean it too follow.
    pub names: &'static [&'static str],
    /// What it does, in a line.
    pub description: &'static str,
    /// Whether it is on where the configuration says nothing.
    pub enabled: bool,
    /// Classes of what it writes into the log.
    pub log_classes: &'static [&'static str],
    /// Adds its sections to `startup.conf`.
    pub schema: fn(Schema) -> Schema,
    /// Adds its operations and commands.
    pub register: fn(&mut Registry<Router>),
    /// Adds its messages to the binary API.
    pub api: fn(&mut Handlers),
    /// Adds its nodes, arcs and state to the router, at start.
    pub start: fn(&mut Router, &Config) -> Result<(), String>,
}

impl Plugin {
    /// A plugin that is on and brings nothing yet; set what it brings by struct update.
    pub const fn new(names: &'static [&'static str], description: &'static str) -> Self {
        Self {
            names,
            description,
            enabled: true,
            log_classes: &[],
            schema: |schema| schema,
            register: |_| {},
            api: |_| {},
            start: |_, _| Ok(()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or("unnamed_plugin.so")
    }

    /// Whether `name` is one of its names, with or without `_plugin` and `.so`.
    pub fn is_called(&self, name: &str) -> bool {
        let bare = |name: &str| name.trim_end_matches(".so").trim_end_matches("_plugin").to_owned();
        self.names.iter().any(|own| bare(own) == bare(name))
    }
}
