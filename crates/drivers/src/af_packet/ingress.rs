//! The fast path of a device: a filter for its receive sockets, and the ingress hook that does as the filter says
//! ([`crate::fast_path`]).

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Weak;

use crate::bpf;
use crate::closer::{self, Later};
use crate::fast_path::FastPath;
use crate::sys;

/// `enum bpf_attach_type`: the ingress hook (Linux 6.6).
const BPF_TCX_INGRESS: u32 = 46;
/// Before all other programs of the hook: one that ended the hook's run would leave frames with nobody.
const BPF_F_BEFORE: u32 = 1 << 3;

/// What hangs on one life of a device. Nothing but the descriptor keeps the hook's program there, so it vanishes with the process.
#[derive(Debug)]
pub(super) struct Ingress {
    sockets: Vec<Weak<OwnedFd>>,
    hook: Option<Later<OwnedFd>>,
}

impl Ingress {
    /// Of these receive sockets; no program runs.
    pub(super) fn new(sockets: Vec<Weak<OwnedFd>>) -> Self {
        Self { sockets, hook: None }
    }

    /// Whether the programs run.
    pub(super) fn is_fast(&self) -> bool {
        self.hook.is_some()
    }

    /// Has them run.
    pub(super) fn join(&mut self, fast: &FastPath, device: u32) -> io::Result<()> {
        closer::start();
        let (filter, hook) = fast.ingress();
        let hook = bpf::link(hook, device, BPF_TCX_INGRESS, BPF_F_BEFORE).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => io::Error::other("the kernel has no ingress hook for programs (Linux 6.6)"),
            _ => error,
        })?;
        // From here on the filters may take frames away from the router.
        self.hook = Some(Later::new(hook));
        let filter: c_int = filter.as_raw_fd();
        let attached = self.sockets.iter().try_for_each(|socket| match socket.upgrade() {
            Some(socket) => sys::set_option(&*socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &filter),
            None => Err(io::ErrorKind::NotConnected.into()),
        });
        if attached.is_err() {
            self.leave();
        }
        attached
    }

    /// All frames go to the router again. The hook goes after the filters, so none is left with nobody.
    pub(super) fn leave(&mut self) {
        if self.hook.is_some() {
            for socket in self.sockets.iter().filter_map(Weak::upgrade) {
                // Fails where it has none.
                let _ = sys::set_option(&*socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0);
            }
        }
        self.hook = None;
    }
}
