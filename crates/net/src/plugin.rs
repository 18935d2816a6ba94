//! What a plugin brings to a router.

use quiver_command::config::{Config, Schema};
use quiver_command::operation::{OpError, Registry, retval};

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

/// State of a plugin: a part of the router, there where the plugin is on.
pub trait PluginState: Sized + 'static {
    /// What operations say where the plugin is off.
    const OFF: &'static str;
    /// What of a request that is about, where it is something of it.
    const KEY: Option<&'static str> = None;
}

fn off<S: PluginState>() -> OpError {
    let error = OpError::new(retval::FEATURE_DISABLED, S::OFF);
    match S::KEY {
        Some(key) => error.key(key),
        None => error,
    }
}

impl Router {
    /// The state of a plugin.
    ///
    /// # Errors
    /// The plugin is off.
    pub fn state<S: PluginState>(&self) -> Result<&S, OpError> {
        self.part().ok_or_else(off::<S>)
    }

    /// The state of a plugin, to be changed.
    ///
    /// # Errors
    /// The plugin is off.
    pub fn state_mut<S: PluginState>(&mut self) -> Result<&mut S, OpError> {
        self.part_mut().ok_or_else(off::<S>)
    }

    /// Runs `f` with the state of a plugin beside the router.
    ///
    /// # Errors
    /// Those of `f`; or the plugin is off.
    pub fn with_state<S: PluginState, R>(&mut self, f: impl FnOnce(&mut Self, &mut S) -> Result<R, OpError>) -> Result<R, OpError> {
        let mut state = self.take_part::<S>().ok_or_else(off::<S>)?;
        let result = f(self, &mut state);
        self.add_part(state);
        result
    }
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
