//! What drivers need more rights for than a router keeps: a network namespace that is not its own, and a program in the kernel.
//!
//! Whoever opens a device hands in where such things come from: [`Direct`] does them in this process; a router that has given
//! its rights up has a helper process do them, which passes the descriptors. All the rest (naming, configuring, attaching,
//! binding) is done with these descriptors by the drivers themselves and needs CAP_NET_ADMIN and CAP_NET_RAW only.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::af_xdp::{self, program};
use crate::fast_path::{self, FastPathFds};
use crate::memif;
use crate::sys;

/// Where named namespaces are.
const NAMED: &str = "/run/netns";
/// Type of the file system of namespaces (`NSFS_MAGIC`).
const NSFS: u64 = 0x6e73_6673;
/// Most queues of a TAP device and of an XDP program: descriptors and map entries that a request may cost.
pub const QUEUES_MAX: u32 = 64;
/// Longest word for a namespace: a path.
pub const NAMESPACE_MAX: usize = 4095;

/// What a process takes up from the one before it: first words of the keys of [`Rights::inherited`]. A kind whose descriptors
/// come to mean something else gets another word, so a process that does not know it opens the device itself.
pub const INHERITABLE: [&str; 3] = ["tap", af_xdp::inherit::KIND, memif::inherit::KIND];

/// Does, or has done, what needs rights.
pub trait Rights: Send + Sync {
    /// Opens what a TAP device with so many queues is made of, in a network namespace: a name (`ip netns`), `pid:<n>`, or a path.
    ///
    /// # Errors
    /// No such namespace, no rights; an error without a number is a sentence about who was asked.
    fn namespace(&self, namespace: &str, queues: u32) -> io::Result<NamespaceFds>;

    /// Loads the program that sends the frames of a device's queues to AF_XDP sockets.
    ///
    /// # Errors
    /// The kernel's; an error without a number is a sentence about who was asked.
    fn redirect(&self, queues: u32) -> io::Result<RedirectFds>;

    /// Loads the program of the fast path.
    ///
    /// # Errors
    /// As [`Rights::redirect`]; a program built without clang has none.
    fn fast_path(&self) -> io::Result<FastPathFds>;

    /// What a device of the process before this one is made of, by its key ([`quiver_graph::Port::descriptors`]). It is given once.
    fn inherited(&self, _device: &str) -> Option<Vec<OwnedFd>> {
        None
    }

    /// Notes what came of a device or a connection of the process before: it was passed on as it was, or why it begins anew.
    fn note(&self, _what: String, _result: Result<(), String>) {}
}

/// Descriptors that belong to a network namespace, whoever uses them.
#[derive(Debug)]
pub struct NamespaceFds {
    /// A socket for requests about devices.
    pub devices: OwnedFd,
    /// A netlink socket (`NETLINK_ROUTE`).
    pub netlink: OwnedFd,
    /// A TCP socket (IPv4), not bound.
    pub stream: OwnedFd,
    /// `/dev/net/tun`, once for each queue, not yet bound to a device.
    pub queues: Vec<OwnedFd>,
}

/// A loaded program with its map.
#[derive(Debug)]
pub struct RedirectFds {
    /// Sockets by queue.
    pub map: OwnedFd,
    /// The program.
    pub program: OwnedFd,
    /// It takes frames in several pieces: kernels before 5.18 know nothing of that.
    pub frags: bool,
}

/// Whoever does it for a whole program: kept where plugins find it.
#[derive(Clone)]
pub struct SharedRights(pub Arc<dyn Rights>);

impl Default for SharedRights {
    fn default() -> Self {
        Self(Arc::new(Direct))
    }
}

/// With the rights of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Rights for Direct {
    fn namespace(&self, namespace: &str, queues: u32) -> io::Result<NamespaceFds> {
        if queues > QUEUES_MAX || namespace.len() > NAMESPACE_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let file = open_namespace(namespace)?;
        let enter = move || {
            // SAFETY: setns takes two integers; it moves this thread alone, which ends with this closure.
            sys::check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })?;
            NamespaceFds::here(queues)
        };
        std::thread::scope(|scope| {
            match std::thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, enter)?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn redirect(&self, queues: u32) -> io::Result<RedirectFds> {
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        program::load(queues)
    }

    fn fast_path(&self) -> io::Result<FastPathFds> {
        fast_path::load()
    }
}

impl NamespaceFds {
    /// Of the calling thread's namespace.
    ///
    /// # Errors
    /// The operating system's.
    pub fn here(queues: u32) -> io::Result<Self> {
        let devices = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let netlink = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let stream = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        Ok(Self { devices, netlink, stream, queues: (0..queues).map(|_| open_tun()).collect::<io::Result<_>>()? })
    }
}

fn open_tun() -> io::Result<OwnedFd> {
    open(c"/dev/net/tun", libc::O_RDWR | libc::O_NONBLOCK)
}

fn open(path: &std::ffi::CStr, mode: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a NUL-terminated path and integers.
    let fd = sys::check(unsafe { libc::open(path.as_ptr(), mode | libc::O_CLOEXEC) })?;
    // SAFETY: a successful open returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The file of a namespace. What is not one is never really opened: opening a device or a FIFO has effects of its own.
fn open_namespace(namespace: &str) -> io::Result<File> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let path = match namespace.strip_prefix("pid:") {
        Some(pid) => PathBuf::from(format!("/proc/{}/ns/net", pid.parse::<u32>().map_err(|_| invalid())?)),
        None if namespace.starts_with('/') => PathBuf::from(namespace),
        None if namespace.is_empty() || namespace == "." || namespace == ".." || namespace.contains('/') => return Err(invalid()),
        None => PathBuf::from(NAMED).join(namespace),
    };
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).map_err(|_| invalid())?;
    let place = open(&path, libc::O_PATH)?;
    if rustix::fs::fstatfs(&place)?.f_type as u64 != NSFS {
        return Err(invalid());
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_namespaces_are_opened() {
        for odd in
            ["", ".", "..", "../netns/x", "pid:", "pid:x", "pid:-1", "pid:1/../2", "/dev/null", "/proc/self/status", "/etc", "a\0b"]
        {
            let error = open_namespace(odd).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{odd:?}");
        }
        assert_eq!(open_namespace("no-such-namespace").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(open_namespace("pid:4294967295").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        open_namespace("/proc/self/ns/net").unwrap();
        open_namespace(&format!("pid:{}", std::process::id())).unwrap();
    }

    #[test]
    fn too_many_queues_are_refused() {
        let invalid = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        invalid(Direct.namespace("/proc/self/ns/net", QUEUES_MAX + 1).unwrap_err());
        invalid(Direct.redirect(0).unwrap_err());
        invalid(Direct.redirect(QUEUES_MAX + 1).unwrap_err());
    }
}
