//! `show version`.

use std::fmt::Write as _;
use std::time::Duration;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::system::System;
use quiver_command::calendar::Civil;

/// The version, as it is written everywhere: `v0.1.0-release`.
pub fn version() -> String {
    let kind = if env!("QUIVER_BUILD_PROFILE") == "release" { "release" } else { "debug" };
    format!("v{}-{kind}", env!("CARGO_PKG_VERSION"))
}

/// The line of `quiver --version` and `show version`.
pub fn version_line() -> String {
    let (user, host) = (env!("QUIVER_BUILD_USER"), env!("QUIVER_BUILD_HOST"));
    format!("quiver {} built by {user} on {host} at {}", version(), build_date())
}

/// When it was built.
pub fn build_date() -> String {
    let seconds = env!("QUIVER_BUILD_TIME").parse().unwrap_or(0);
    Civil::of_unix(Duration::from_secs(seconds)).iso()
}

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowVersion>();
}

request! {
    /// Shows which version this is, when and where it was built.
    pub read ShowVersion "version_show" ["show version"] {
        /// Who built it with what, and which process it is.
        pub verbose: bool = "verbose",
        /// The words it was started with.
        pub cmdline: bool = "cmdline",
    }
}

/// The answer of [`ShowVersion`].
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    /// `quiver`.
    pub program: &'static str,
    /// `v0.1.0-release`.
    pub version: String,
    /// When it was built.
    pub build_date: String,
    /// More, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The command line, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<Vec<String>>,
}

/// How the program was built, and the process it became.
#[derive(Debug, Clone, Serialize)]
pub struct Build {
    /// Who built it.
    pub user: &'static str,
    /// Where.
    pub host: &'static str,
    /// With what.
    pub compiler: &'static str,
    /// The process.
    pub pid: u32,
}

impl Execute<Router> for ShowVersion {
    type Reply = Version;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Version>, OpError> {
        let build = || Build {
            user: env!("QUIVER_BUILD_USER"),
            host: env!("QUIVER_BUILD_HOST"),
            compiler: env!("QUIVER_BUILD_RUSTC"),
            pid: std::process::id(),
        };
        Ok(Outcome::Done(Version {
            program: "quiver",
            version: version(),
            build_date: build_date(),
            build: self.verbose.then(build),
            command_line: if self.cmdline { Some(System::of(router)?.command_line.clone()) } else { None },
        }))
    }
}

impl Text for Version {
    fn text(&self, out: &mut String, _view: &View) {
        match &self.build {
            None if self.command_line.is_none() => {
                let _ = writeln!(out, "{}", version_line());
            }
            None => {}
            Some(build) => {
                let rows: [(&str, &dyn std::fmt::Display); 6] = [
                    ("Version:", &self.version),
                    ("Compiled by:", &build.user),
                    ("Compile host:", &build.host),
                    ("Compile date:", &self.build_date),
                    ("Compiler:", &build.compiler),
                    ("Current PID:", &build.pid),
                ];
                for (name, value) in rows {
                    let _ = writeln!(out, "{name:<25} {value}");
                }
            }
        }
        if let Some(words) = &self.command_line {
            out.push_str("Command line arguments:\n");
            for word in words {
                let _ = writeln!(out, "  {word}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_of_the_usual_form() {
        let line = version_line();
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!((words[0], words[2], words[3], words[5], words[7]), ("quiver", "built", "by", "on", "at"), "{line}");
        assert!(words[1].starts_with('v') && words[8].len() == 19, "{line}");
    }
}
