//! The socket on which readers of the statistics get their memory.
//!
//! A reader connects and is sent one empty message with one descriptor; then the connection is closed. It maps the memory and
//! reads by itself from then on.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, sendmsg, socket_with,
};

use super::admission::Admission;
use super::socket::{self, BindError, BoundPath, Owner};

/// Readers that may wait to be served.
const BACKLOG: i32 = 32;

/// A socket that hands a descriptor to everybody who connects.
pub struct StatsListener {
    socket: OwnedFd,
    _bound: BoundPath,
    admission: Admission,
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

impl StatsListener {
    /// Listens; those whom `admission` lets in are served.
    ///
    /// # Errors
    /// A live socket, another kind of file, and the kernel's.
    pub fn bind(path: &Path, owner: Owner, admission: Admission) -> Result<Self, BindError> {
        let address = || Ok::<_, io::Error>(SocketAddrUnix::new(path)?);
        let make = || {
            let socket = seqpacket()?;
            bind(&socket, &address()?)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let probe = || {
            let socket = seqpacket()?;
            connect(&socket, &address()?)?;
            Ok(socket)
        };
        let (socket, bound) = socket::bind(path, owner, probe, make)?;
        socket::set_mode(path, admission.mode())?;
        Ok(Self { socket, _bound: bound, admission })
    }

    /// Goes on with a socket of the process before this one.
    pub fn inherited(socket: OwnedFd, bound: BoundPath, admission: Admission) -> Self {
        Self { socket, _bound: bound, admission }
    }

    /// Hands `memory` to a reader that waits, if there is one. A reader that is gone already is none of our business.
    ///
    /// # Errors
    /// The kernel's.
    pub fn serve_one(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        let reader = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(reader) => reader,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Statistics are read and never changed: both groups may.
        if self.admission.of(&reader).is_none() {
            return Ok(());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [memory];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let _ = sendmsg(&reader, &[IoSlice::new(&[])], &mut control, SendFlags::NOSIGNAL);
        Ok(())
    }
}

impl AsFd for StatsListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
