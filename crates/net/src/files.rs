//! Files that commands read and write: which folders they lie in, and how they are opened.
//!
//! ```text
//!   `file NAME` ─► Files::reading / writing      words only: which folder, which name in it
//!                     │ Place
//!                     ▼ another thread ([`Elsewhere`])
//!                  Place::open     plain files only, no links, no waiting for a pipe's other end
//!                  Place::create   a new file beside the name, renamed to it when it is whole
//! ```
//!
//! Whoever may use the sockets may name files, so names are confined: a plain name lies in the router's own folder, a path must
//! lie below a folder that the startup configuration allows (`files { read PATH write PATH }`). Each folder is opened once, at
//! start. From there on every part of a path is opened by itself, relative to the one before, and never through a link. That is
//! what openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS does, `..` being refused, and works on every kernel and in
//! every sandbox. Nothing that others do to names in the meantime leads elsewhere.
//!
//! Files named by the operator's own scripts (those of `unix { exec FILE }`) may lie anywhere.
//!
//! No file is opened, read or written on the main thread: a disk or a network file system that does not answer stops the command
//! that waits for it, and nothing else.

mod elsewhere;
mod folder;
mod place;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_command::script::ScriptState;

use crate::Router;

pub use elsewhere::Elsewhere;
use folder::Folder;
pub use folder::make_private;
pub use place::{NewFile, Place};

/// Bytes of a path at most, as in Linux.
const LONGEST: usize = 4096;
/// Characters of a bad name that an error shows.
const SHOWN: usize = 60;

/// The folders of files that commands name. A part of the router; clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Files(Arc<Folders>);

#[derive(Debug)]
struct Folders {
    /// Where plain names lie.
    own: Arc<Folder>,
    /// What the startup configuration allows beside it.
    allowed: Vec<Arc<Folder>>,
    /// Who may read new files, beside the router's own user.
    group: Option<u32>,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is made, or replaced.
    Write,
}

impl Files {
    /// Opens the router's own folder, which is made where it is missing, and those that `read` and `write` name.
    ///
    /// # Errors
    /// A folder that cannot be opened or made, with its path.
    pub fn open(own: &Path, read: &[PathBuf], write: &[PathBuf], group: Option<u32>) -> Result<Self, (PathBuf, io::Error)> {
        let named = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        let mut allowed = Vec::new();
        for (paths, may_write) in [(write, true), (read, false)] {
            for path in paths {
                allowed.push(Arc::new(Folder::open(path, may_write).map_err(named(path))?));
            }
        }
        let own = Folder::make(own, group).map_err(named(own))?;
        Ok(Self(Arc::new(Folders { own: Arc::new(own), allowed, group })))
    }

    /// The folders of a router.
    ///
    /// # Errors
    /// Only where a router runs without its daemon.
    pub fn of(router: &Router) -> Result<&Self, OpError> {
        router.part().ok_or_else(|| OpError::new(retval::UNSUPPORTED, "this router runs without a folder for files"))
    }

    /// Where plain names lie.
    pub fn folder(&self) -> &Path {
        &self.0.own.path
    }

    /// The place of a file that the command being run names.
    ///
    /// # Errors
    /// A name that is none, and a path outside the folders.
    pub fn place(router: &Router, name: impl AsRef<Path>, what: Use) -> Result<Place, OpError> {
        let operator = router.part::<ScriptState>().is_some_and(ScriptState::is_operator);
        Self::of(router)?.find(name.as_ref(), what, operator)
    }

    /// The place of a file. `operator`: the operator's own scripts name it, and it may lie anywhere.
    ///
    /// # Errors
    /// A name that is none, and a path outside the folders.
    pub fn find(&self, name: &Path, what: Use, operator: bool) -> Result<Place, OpError> {
        check(name)?;
        let group = self.0.group;
        let clean: PathBuf = name.components().filter(|part| !matches!(part, Component::CurDir)).collect();
        // What is written by a plain name lies here whoever says it; the operator's scripts name each other as seen from where
        // the router was started.
        if !clean.is_absolute() && (!operator || what == Use::Write) {
            return Ok(Place::below(Arc::clone(&self.0.own), clean, group));
        }
        let fits = |folder: &&Arc<Folder>| what == Use::Read || folder.write;
        let all = std::iter::once(&self.0.own).chain(&self.0.allowed).filter(fits);
        let below = all.filter_map(|folder| Some((folder, folder.below(&clean)?))).min_by_key(|(_, rest)| rest.as_os_str().len());
        match below {
            Some((folder, rest)) if !rest.as_os_str().is_empty() => Ok(Place::below(Arc::clone(folder), rest, group)),
            None if operator => Ok(Place::anywhere(clean, group)),
            _ => Err(self.outside(&clean, what)),
        }
    }

    fn outside(&self, path: &Path, what: Use) -> OpError {
        let key = if what == Use::Read { "read" } else { "write" };
        let parent = path.parent().unwrap_or(path).display();
        let own = self.folder().display();
        let message = format!("{} is outside of the folders for files", excerpt(path));
        let remedy = match what {
            Use::Read => {
                format!("put it into {own} and give its name, or allow its folder in startup.conf: files {{ {key} {parent} }}")
            }
            Use::Write => {
                format!("give a plain name, which goes to {own}, or allow the folder in startup.conf: files {{ {key} {parent} }}")
            }
        };
        OpError::new(retval::ILLEGAL_NAME, message).key("file").remedy(remedy)
    }
}

/// Refuses what is no name of a file, whatever lies where.
fn check(name: &Path) -> Result<(), OpError> {
    let text = name.to_string_lossy();
    let up = name.components().any(|part| matches!(part, Component::ParentDir));
    let no_name = name.file_name().is_none() || text.ends_with('/') || text.ends_with("/.");
    if up || no_name || text.len() >= LONGEST || text.contains(char::is_control) {
        let error = OpError::new(retval::ILLEGAL_NAME, format!("illegal characters in filename '{}'", excerpt(name)));
        return Err(error.key("file").remedy("give a plain name, or a path without `..'"));
    }
    Ok(())
}

/// The start of a path, on one line.
fn excerpt(path: &Path) -> String {
    let text = path.to_string_lossy();
    let short: String = text.chars().take(SHOWN).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() { format!("{short}...") } else { short }
}
