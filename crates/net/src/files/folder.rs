//! A folder, open, and what lies below it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat};

/// Opened to find what is below, never through a link.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Whatever is there must not make us wait, and must not become our terminal.
const CAREFUL: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
/// Files that were being written when the router ended begin and end so.
const PART: (&str, &str) = (".quiver-", ".part");

/// A folder that was opened once: its name may lead elsewhere since, this does not.
#[derive(Debug)]
pub(super) struct Folder {
    /// As it was named.
    pub path: PathBuf,
    /// Without links.
    real: PathBuf,
    fd: OwnedFd,
    /// Whether files may be made here.
    pub write: bool,
}

impl Folder {
    /// Opens a folder that the operator named: links on the way to it are the operator's.
    pub fn open(path: &Path, write: bool) -> io::Result<Self> {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path: path.to_owned(), real, fd, write })
    }

    /// Opens the router's own folder; a missing one is made, for the router's user and `group` alone.
    pub fn make(path: &Path, group: Option<u32>) -> io::Result<Self> {
        make_private(path, group, 0o750)?;
        let folder = Self::open(path, true)?;
        // What a router that was killed has left: it is no use to anybody.
        for entry in fs::read_dir(path)?.flatten() {
            let name = entry.file_name();
            let old = name.to_str().is_some_and(|name| name.starts_with(PART.0) && name.ends_with(PART.1));
            if old && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(folder)
    }

    /// What follows the folder in a path that lies below it.
    pub fn below(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(&self.real));
        rest.ok().map(Path::to_owned)
    }

    /// The folder that holds what `rest` names, and the name in it.
    pub fn walk(&self, rest: &Path) -> io::Result<(OwnedFd, OsString)> {
        let mut parts: Vec<&OsStr> = Vec::new();
        for part in rest.components() {
            match part {
                Component::Normal(name) => parts.push(name),
                _ => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
            }
        }
        let Some(name) = parts.pop() else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
        let mut at = self.fd.try_clone()?;
        for part in parts {
            at = openat(&at, part, FOLDER, Mode::empty())?;
        }
        Ok((at, name.to_owned()))
    }
}

/// Makes a folder for its owner and `group`. One that is there stays as it is.
pub fn make_private(path: &Path, group: Option<u32>, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        made => made?,
    }
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Refuses what is no plain file: a pipe, a device, a link, a folder.
pub(super) fn plain(fd: &impl AsFd, name: &OsStr) -> io::Result<bool> {
    use rustix::fs::{FileType, statat};
    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Ok(true),
        Ok(_) => Err(io::Error::other("is no plain file")),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a plain file to be read.
pub(super) fn open_plain(fd: &impl AsFd, name: &OsStr) -> io::Result<File> {
    // Before it is opened: opening a device may already do something.
    plain(fd, name)?;
    let file = File::from(openat(fd, name, OFlags::RDONLY | CAREFUL, Mode::empty())?);
    // It may be another since.
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is no plain file")) }
}

/// Makes a new file of a name that nobody can foresee.
pub(super) fn create_part(fd: &impl AsFd, group: Option<u32>) -> io::Result<(File, OsString)> {
    loop {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = OsString::from(format!("{}{:016x}{}", PART.0, u64::from_ne_bytes(random), PART.1));
        match openat(fd, &name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | CAREFUL, Mode::from_raw_mode(0o600)) {
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(file) => {
                let file = File::from(file);
                // Who may use the sockets may make captures, so they may read them too.
                if let Some(group) = group
                    && std::os::unix::fs::fchown(&file, None, Some(group)).is_ok()
                {
                    file.set_permissions(fs::Permissions::from_mode(0o640))?;
                }
                return Ok((file, name));
            }
        }
    }
}
