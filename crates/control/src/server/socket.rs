//! Listening sockets: where, with which rights, and what to do about one that is there already.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::predecessor;

/// Whose a socket is to be; nothing said leaves it with who makes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: Option<u32>,
    /// Group, which may use it too.
    pub gid: Option<u32>,
}

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process answers there.
    #[error("{0} is in use: a router that runs answers there; stop it, or set another unix {{ runtime-dir }} or {{ cli-listen }}")]
    InUse(PathBuf),
    /// There is something that we did not make.
    #[error("{0} exists and is not a socket; remove it, or set another path")]
    NotASocket(PathBuf),
    /// The kernel refuses.
    #[error("cannot listen on {address}: {error}")]
    System {
        /// Where.
        address: String,
        /// Why.
        error: io::Error,
    },
}

/// A Unix socket that is removed from the file system when it is dropped.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    inode: u64,
    /// Of a socket that another process still has: whether that has given it up.
    taken: Option<Rc<Cell<bool>>>,
}

impl BoundPath {
    /// Of a socket of the process before this one, which keeps it until `taken` is set.
    pub fn inherited(path: &Path, taken: &Rc<Cell<bool>>) -> Self {
        Self { path: path.to_owned(), inode: inode(path).unwrap_or_default(), taken: Some(Rc::clone(taken)) }
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        // Only if it is still ours: another router may have replaced it.
        let is_ours = self.taken.as_ref().is_none_or(|taken| taken.get());
        if is_ours && inode(&self.path) == Some(self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|data| std::os::unix::fs::MetadataExt::ino(&data))
}

/// Listens on a Unix socket; owner and group may use it. What a dead process left is replaced.
///
/// # Errors
/// A live socket, another kind of file, and the kernel's.
pub fn listen_unix(path: &Path, owner: Owner) -> Result<(UnixListener, BoundPath), BindError> {
    bind(path, owner, || UnixStream::connect(path).map(OwnedFd::from), || UnixListener::bind(path))
}

/// Makes a socket by `bind`, which owner and group may use, and its folder where that is missing. What is there already is
/// tried by `connect`; a process that is ending is waited for.
///
/// # Errors
/// As [`listen_unix`].
pub(crate) fn bind<L>(
    path: &Path,
    owner: Owner,
    connect: impl Fn() -> io::Result<OwnedFd>,
    bind: impl FnOnce() -> io::Result<L>,
) -> Result<(L, BoundPath), BindError> {
    let system = |error| BindError::System { address: path.display().to_string(), error };
    if let Ok(data) = fs::symlink_metadata(path) {
        if !data.file_type().is_socket() {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        let answer = match connect() {
            Ok(socket) if predecessor::has_ended(socket.as_fd()) => connect(),
            answer => answer,
        };
        match answer {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(system)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(system(error)),
            // Connected, or its queue is full: somebody is there.
            _ => return Err(BindError::InUse(path.to_owned())),
        }
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(system)?;
    }
    // Nobody may connect between bind and chmod.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = bind();
    rustix::process::umask(mask);
    let listener = bound.map_err(system)?;
    let bound = BoundPath { path: path.to_owned(), inode: inode(path).unwrap_or_default(), taken: None };
    if owner != Owner::default() {
        std::os::unix::fs::chown(path, owner.uid, owner.gid).map_err(system)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(system)?;
    Ok((listener, bound))
}

/// Lets everybody open a socket that was bound: who may do what is decided for each peer.
///
/// # Errors
/// The kernel's.
pub fn set_mode(path: &Path, mode: u32) -> Result<(), BindError> {
    let system = |error| BindError::System { address: path.display().to_string(), error };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(system)
}

/// Listens on a TCP port of the first address of `host` that can be had; all addresses where it is empty.
///
/// # Errors
/// The kernel's, or that nobody knows the host.
pub fn listen_tcp(host: &str, port: u16) -> Result<TcpListener, BindError> {
    let host = if host.is_empty() { "::" } else { host };
    TcpListener::bind((host, port)).map_err(|error| BindError::System { address: format!("{host} port {port}"), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("quiver-socket-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = folder("stale");
        let path = folder.join("s");
        // A listener that is closed leaves its file.
        drop(UnixListener::bind(&path).unwrap());
        let (listener, bound) = listen_unix(&path, Owner::default()).unwrap();
        let error = listen_unix(&path, Owner::default()).unwrap_err();
        assert!(matches!(error, BindError::InUse(_)), "{error}");
        drop((listener, bound));
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(listen_unix(&path, Owner::default()), Err(BindError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_missing_folder_is_made() {
        let folder = folder("folder");
        let path = folder.join("run/vpp/s");
        let (listener, bound) = listen_unix(&path, Owner::default()).unwrap();
        UnixStream::connect(&path).unwrap();
        drop((listener, bound));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn owner_and_group_may_use_the_socket_and_nobody_else() {
        let folder = folder("mode");
        let path = folder.join("s");
        let _bound = listen_unix(&path, Owner::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_socket_that_another_has_replaced_is_not_removed() {
        let folder = folder("replaced");
        let path = folder.join("s");
        let first = listen_unix(&path, Owner::default()).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
