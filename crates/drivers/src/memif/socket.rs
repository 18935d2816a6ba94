//! The control channel as the operating system has it: SOCK_SEQPACKET Unix sockets with descriptors beside the bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg, shutdown, socket_with,
};

use super::message::{MESSAGE_BYTES, Message};

/// Most descriptors that Linux lets a message have (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Where a socket listens: a path, or a name in the abstract namespace for one that begins with `@`.
fn address(path: &str) -> io::Result<SocketAddrUnix> {
    Ok(match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    })
}

/// Whether a socket can have this path.
pub(super) fn is_possible(path: &str) -> bool {
    !path.is_empty() && path != "@" && !path.contains('\0') && address(path).is_ok()
}

fn new() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// A connection to whoever listens at `path`.
pub(super) fn dial(path: &str) -> io::Result<OwnedFd> {
    let fd = new()?;
    connect(&fd, &address(path)?)?;
    Ok(fd)
}

/// Turns clients away from a socket that listens, and passes on those that wait: what they have sent must be closed with care.
/// `false`: some still wait, since there are no descriptors left to take them by.
pub(super) fn close_listener(listener: &OwnedFd, mut each: impl FnMut(OwnedFd)) -> bool {
    let _ = shutdown(listener, Shutdown::Read);
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => each(fd),
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            // The second once it has been shut down.
            Err(error) => return matches!(error, Errno::AGAIN | Errno::INVAL),
        }
    }
}

/// A socket that listens, for its owner and group (another one where one is named); a file that a dead program has left is
/// replaced. `close` gets a connection to a program that answers there: what that one has sent must be closed with care.
pub(super) fn listener(path: &str, group: Option<u32>, close: impl FnOnce(OwnedFd)) -> io::Result<OwnedFd> {
    let fd = new()?;
    make_folder(path, group)?;
    // Nobody may connect before the file has its rights.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = bind_file(&fd, path, &address(path)?, close);
    rustix::process::umask(mask);
    bound?;
    if !path.starts_with('@')
        && let Err(error) = admit(path, group)
    {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Makes the folder of a socket where it is missing, for its owner and group.
fn make_folder(path: &str, group: Option<u32>) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = Path::new(path).parent().filter(|folder| !path.starts_with('@') && !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        std::fs::DirBuilder::new().mode(0o750).create(folder)?;
        if group.is_some() {
            std::os::unix::fs::chown(folder, None, group)?;
        }
    }
    Ok(())
}

fn admit(path: &str, group: Option<u32>) -> io::Result<()> {
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group)?;
    }
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o660))
}

fn bind_file(fd: &OwnedFd, path: &str, address: &SocketAddrUnix, close: impl FnOnce(OwnedFd)) -> io::Result<()> {
    match bind(fd, address) {
        Err(Errno::ADDRINUSE) if !path.starts_with('@') => {
            if let Ok(there) = dial(path) {
                close(there);
                return Err(Errno::ADDRINUSE.into());
            }
            if !is_socket(path) {
                return Err(Errno::ADDRINUSE.into());
            }
            std::fs::remove_file(path)?;
            Ok(bind(fd, address)?)
        }
        other => Ok(other?),
    }
}

fn is_socket(path: &str) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

/// The next client that waits.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Sends a message whole, or fails: messages are few and small, so a full socket means a peer that does not read.
pub(super) fn send(socket: &OwnedFd, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_bytes(socket, &message.emit(), fd)
}

/// [`send`] for any bytes.
pub(super) fn send_bytes(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)? {
        n if n == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// What came.
#[derive(Debug)]
pub(super) enum Received {
    /// A message's bytes, and the first descriptor that came with them; further ones are closed.
    Bytes(Vec<u8>, Option<OwnedFd>),
    /// Nothing more for now.
    Nothing,
    /// The peer is gone.
    End,
}

/// Takes the next message, whatever it is. Closing what came with it may wait for the peer, here or in the kernel: only for a
/// thread that may be lost.
pub(super) fn receive(socket: &OwnedFd) -> Received {
    // One more than a message, to see when it is longer.
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    // All of them are taken, so that those not wanted are closed.
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    match received {
        Ok(message) if message.bytes == 0 => Received::End,
        Ok(message) => Received::Bytes(bytes[..message.bytes].to_vec(), fds.into_iter().next()),
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_is_missing_is_made_for_owner_and_group() {
        let folder = std::env::temp_dir().join(format!("quiver-memif-folder-{}", std::process::id()));
        let path = folder.join("a/b/m.sock");
        let path = path.to_str().unwrap();
        let listening = listener(path, None, drop).unwrap();
        assert!(dial(path).is_ok());
        for made in ["", "a", "a/b"] {
            assert_eq!(std::fs::metadata(folder.join(made)).unwrap().permissions().mode() & 0o777, 0o750);
        }
        drop(listening);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
