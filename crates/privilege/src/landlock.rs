//! Which files are left, where the kernel has landlock.
//!
//! Best effort: an older kernel enforces less, which is told, and one without landlock nothing. Paths that do not exist are left
//! out: what is made there later is not to be had. Descriptors that are open already are not concerned.
//!
//! Kernel TCP is forbidden as well (version 4 on): listening sockets are open by then, and a router's own packets take
//! another way. One port is left, on which routing daemons of Linux can be listened for at any time. Abstract Unix sockets and signals stay, as memif may connect to either side of a container.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use serde::Serialize;

/// Newest version whose rights are asked for.
const NEWEST: ABI = ABI::V5;
/// Port of the forwarding plane manager's stream, by which FRR sends its routes (`lcp fpm listen`).
const FPM_PORT: u16 = 2620;

/// What may be done below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Read files and list folders.
    Read,
    /// Also run or map programs: shared libraries.
    Load,
    /// All but running programs and making devices.
    Write,
}

/// A path that is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// File, device or folder.
    pub path: PathBuf,
    /// What for.
    pub r#use: Use,
}

impl Allowed {
    /// To be read.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), r#use: Use::Read }
    }

    /// To be read and loaded.
    pub fn load(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), r#use: Use::Load }
    }

    /// To be written.
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), r#use: Use::Write }
    }

    fn access(&self, is_folder: bool) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let all = match self.r#use {
            Use::Read => read,
            Use::Load => read | AccessFs::Execute,
            Use::Write => {
                AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSym)
            }
        };
        if is_folder { all } else { all & AccessFs::from_file(NEWEST) }
    }
}

/// Leaves these files. Gives the version of landlock in force, and adds to `notices` what this kernel lacks.
pub(crate) fn restrict(files: &[Allowed], notices: &mut Vec<String>) -> Result<Option<u32>, String> {
    let failed = |error: landlock::RulesetError| error.to_string();
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST)).map_err(failed)?;
    let ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(failed)?;
    let mut created = ruleset.create().map_err(failed)?;
    for file in files {
        let Ok(data) = std::fs::metadata(&file.path) else { continue };
        let Ok(fd) = PathFd::new(&file.path) else { continue };
        created = created.add_rule(PathBeneath::new(fd, file.access(data.is_dir()))).map_err(failed)?;
    }
    created = created.add_rule(NetPort::new(FPM_PORT, AccessNet::BindTcp)).map_err(failed)?;
    let status = created.restrict_self().map_err(failed)?;
    let version = match status.landlock {
        landlock::LandlockStatus::Available { effective_abi, kernel_abi, .. } => {
            kernel_abi.map_or(effective_abi as u32, |kernel| u32::try_from(kernel).unwrap_or(0))
        }
        _ => 0,
    };
    match status.ruleset {
        RulesetStatus::FullyEnforced => {}
        RulesetStatus::PartiallyEnforced => {
            notices.push(format!("this kernel's landlock (version {version}) enforces a part of the limits on files"));
        }
        RulesetStatus::NotEnforced => {
            notices.push("this kernel has no landlock: the files are limited by their owners alone".to_owned());
            return Ok(None);
        }
    }
    Ok(Some(version))
}
