//! A plugin in a router with made-up interfaces, and command lines: what tests of plugins begin with.

use std::cell::OnceCell;

use quiver_command::config::Schema;
use quiver_graph::IfIndex;

use super::{Harness, host_mac};
use crate::Plugin;
use crate::ops::testing::{execute, registry};

impl Harness {
    /// A router with a plugin, so many workers, and interfaces from `x0` on.
    ///
    /// # Panics
    /// Where the plugin does not start.
    pub fn with_plugin(plugin: &Plugin, workers: usize, interfaces: u8) -> Self {
        let mut h = Self::with_workers(workers);
        h.add_plugin(plugin);
        for n in 0..interfaces {
            h.interface(n);
        }
        h
    }

    /// Adds a plugin and its commands, as it starts where `startup.conf` says nothing.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn add_plugin(&mut self, plugin: &Plugin) {
        self.plugins.push(plugin.register);
        self.registry = OnceCell::new();
        (plugin.start)(&mut self.router, &(plugin.schema)(Schema::new()).defaults()).expect("a plugin that starts");
    }

    /// Gives every interface `x<n>` 10.0.n.1/24, 2001:db8:n::1/64, and hosts `.2` and `::2` whose [`host_mac`] it knows.
    ///
    /// # Panics
    /// Where it has such addresses already.
    #[must_use]
    pub fn with_hosts(mut self) -> Self {
        for n in (0..u8::MAX).take_while(|n| self.router.interfaces.by_name(&format!("x{n}")).is_some()).collect::<Vec<_>>() {
            let lines = "set interface ip address xN 10.0.N.1/24
                set interface ip address xN 2001:db8:N::1/64
                set ip neighbor xN 10.0.N.2 MAC
                set ip neighbor xN 2001:db8:N::2 MAC";
            run(&mut self, &lines.replace('N', &n.to_string()).replace("MAC", &host_mac(n).to_string()));
        }
        self.run();
        self
    }

    /// Runs a command line to its end: one of this crate's or of the plugin's.
    ///
    /// # Errors
    /// What the command says.
    pub fn execute(&mut self, line: &str) -> Result<String, String> {
        execute(self.registry.get_or_init(|| registry(&self.plugins)), &mut self.router, line)
    }
}

/// Runs command lines; gives the last one's answer.
///
/// # Panics
/// Where one fails.
pub fn run(h: &mut Harness, lines: &str) -> String {
    let mut last = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        last = h.execute(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    last
}

/// What a command line says that must fail.
///
/// # Panics
/// Where it does not fail.
pub fn error(h: &mut Harness, line: &str) -> String {
    h.execute(line).err().unwrap_or_else(|| panic!("{line}: no error"))
}

/// The interface of this name.
///
/// # Panics
/// Where there is none.
pub fn index(h: &Harness, name: &str) -> IfIndex {
    h.router.interfaces.by_name(name).unwrap_or_else(|| panic!("no {name}")).index
}

/// A harness whose short words are those for commands.
pub struct Scene {
    /// The harness.
    pub h: Harness,
}

impl Scene {
    /// As [`run`].
    pub fn run(&mut self, lines: &str) -> String {
        run(&mut self.h, lines)
    }

    /// As [`error`].
    pub fn error(&mut self, line: &str) -> String {
        error(&mut self.h, line)
    }

    /// As [`index`].
    pub fn interface(&self, name: &str) -> IfIndex {
        index(&self.h, name)
    }
}
