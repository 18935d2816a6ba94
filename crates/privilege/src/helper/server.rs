//! The side that does.

use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quiver_drivers::fast_path::FastPathFds;
use quiver_drivers::rights::{Direct, NamespaceFds, RedirectFds, Rights};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::message::{FDS_MAX, REQUEST_MAX, Reply, Request};
use crate::confine::{ConfineError, Plan, confine};

/// Written to standard output when requests are answered from now on; anything else there is why they are not.
pub(super) const READY: &[u8; 1] = b".";

/// Gives up all but what requests need, and answers them until the other end closes.
///
/// # Errors
/// Rights that cannot be given up, which standard output is told as well, or a socket that is none.
pub fn serve(socket: &OwnedFd, plan: &Plan) -> Result<(), ConfineError> {
    if let Err(error) = confine(plan) {
        let _ = writeln!(io::stdout(), "{error}");
        return Err(error);
    }
    let ready = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    ready.map_err(|error| ConfineError::System { doing: "the helper cannot say that it serves", error })?;
    answer_all(socket, &Direct).map_err(|error| ConfineError::System { doing: "the helper's socket", error })
}

fn answer_all(socket: &OwnedFd, rights: &dyn Rights) -> io::Result<()> {
    // One byte more than a request has: what is longer is seen to be.
    let mut bytes = vec![0; REQUEST_MAX + 1];
    loop {
        let got = match recv(socket, bytes.as_mut_slice(), RecvFlags::empty()) {
            // The router has ended. (It sends no empty datagrams.)
            Ok((0, _)) => return Ok(()),
            Ok((got, _)) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (reply, fds) = match Request::parse(&bytes[..got]) {
            Ok(request) => run(&request, rights),
            Err(_) => (Reply::Failed(libc::EINVAL), Vec::new()),
        };
        match send(socket, reply, &fds) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
    }
}

fn run(request: &Request, rights: &dyn Rights) -> (Reply, Vec<OwnedFd>) {
    let done = match request {
        Request::Namespace { namespace, queues } => rights.namespace(namespace, *queues).map(|fds| {
            let NamespaceFds { devices, netlink, stream, queues } = fds;
            (0, [devices, netlink, stream].into_iter().chain(queues).collect())
        }),
        Request::Redirect { queues } => rights.redirect(*queues).map(|fds| {
            let RedirectFds { map, program, frags } = fds;
            (u32::from(frags), vec![map, program])
        }),
        Request::FastPath => rights.fast_path().map(|fds| {
            let FastPathFds { programs, maps } = fds;
            (0, programs.into_iter().chain(maps).collect())
        }),
    };
    match done {
        Ok((flags, fds)) => (Reply::Done { flags }, fds),
        Err(error) => (Reply::Failed(error.raw_os_error().unwrap_or(libc::EIO)), Vec::new()),
    }
}

fn send(socket: &OwnedFd, reply: Reply, fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("more descriptors than a message holds"));
    }
    sendmsg(socket, &[IoSlice::new(&reply.bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Answers on a thread of the test's process, with its rights.
    pub fn answer_on_a_thread(socket: OwnedFd, rights: impl Rights + 'static) -> std::thread::JoinHandle<io::Result<()>> {
        std::thread::spawn(move || answer_all(&socket, &rights))
    }
}
