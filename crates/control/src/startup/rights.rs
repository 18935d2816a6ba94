//! What `unix { … }` says about the rights of the process.

use std::path::PathBuf;

use quiver_command::config::{Block, ConfigError, Value};
use quiver_privilege::capability::MORE;
use quiver_privilege::seccomp::Mode;

/// `unix { user … }` and what belongs to it. Without a user nothing is limited that is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// User to become, a name or number.
    pub user: Option<Value>,
    /// Capabilities that are kept besides the usual ones: numbers of [`MORE`].
    pub capabilities: Vec<usize>,
    /// System calls are limited, and how.
    pub seccomp: Option<Mode>,
    /// Files are limited.
    pub landlock: bool,
    /// Further files and folders that may be read and written.
    pub paths: Vec<PathBuf>,
    /// A crash leaves a core dump.
    pub core_dump: bool,
}

impl Rights {
    pub(super) fn read(block: &Block) -> Result<Self, ConfigError> {
        let names: Vec<(&str, usize)> = MORE.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
        let user = block.get("user").cloned();
        let usual = user.is_some();
        let modes = [("on", Some(Mode::On)), ("log", Some(Mode::Log)), ("off", None)];
        let seccomp = block.get("seccomp").map(|value| value.one_of(&modes)).transpose()?;
        let landlock = block.get("landlock").map(|value| value.one_of(&[("on", true), ("off", false)])).transpose()?;
        Ok(Self {
            user,
            capabilities: block.values("capability").map(|value| value.one_of(&names)).collect::<Result<_, _>>()?,
            seccomp: seccomp.unwrap_or(usual.then_some(Mode::On)),
            landlock: landlock.unwrap_or(usual),
            paths: block.values("allow-path").map(|value| value.path().to_owned()).collect(),
            core_dump: block.flag("full-coredump"),
        })
    }
}
