//! What the two processes say to each other: one JSON text a message, with descriptors beside it.
//!
//! Both run as the same user, or the new one as root, which the kernel vouches for. Each believes the other nothing all the same: what
//! cannot be read ends the conversation, and the old process goes on.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use serde::{Deserialize, Serialize};

/// Version of the conversation. Another one is refused, and the old process goes on.
pub const PROTOCOL: u32 = 1;
/// Bytes of a message at most.
const MOST: usize = 64 << 10;
/// Most descriptors that Linux lets a message have (`SCM_MAX_FD`).
const FDS: usize = 253;
/// Bytes of a memory file that is believed: a full table and millions of sessions are some hundred megabytes.
const FILE_MOST: u64 = 16 << 30;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The new process wants to take over.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Its version, for people.
        version: String,
        /// Kinds of devices that it takes up: first words of their keys. Before there was this field: TAP devices.
        #[serde(default = "tap_alone")]
        takes: Vec<String>,
    },
    /// The old process agrees. Beside it: an [`Opening`] in a memory file.
    Welcome {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Its version, for people.
        version: String,
        /// Kind of pages of its packet memory.
        pages: String,
        /// Within this time its supervisor wants to hear from it, µs; 0: never.
        watchdog: u64,
    },
    /// A socket that listens, by its path or address.
    Listener(String),
    /// The lock of the state folder.
    State,
    /// What a device is made of, by the key of its driver.
    Device(String),
    /// All descriptors have been sent.
    Opened,
    /// The new process has made its configuration, or has taken up what it was sent.
    Ready,
    /// A snapshot in a memory file.
    Snapshot {
        /// When the old process stopped receiving, ns of the kernel's wall clock; 0: it still does.
        since: u64,
        /// The same by the monotonic clock, to measure how long nobody received.
        stopped: u64,
    },
    /// The new process has everything and begins; the old one ends.
    Taken,
    /// No, and why.
    Refused(String),
}

fn tap_alone() -> Vec<String> {
    vec!["tap".to_owned()]
}

/// What the old process says of itself at the beginning.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Opening {
    /// Numbers of its interfaces by the names that they began with.
    pub numbers: std::collections::HashMap<String, u32>,
}

/// A connection.
#[derive(Debug)]
pub struct Wire(OwnedFd);

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A socket on which a router waits for its successor.
///
/// # Errors
/// The kernel's.
pub fn listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = seqpacket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 1)?;
    Ok(socket)
}

impl Wire {
    /// The other end of a connection.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Connects to a router that waits for its successor.
    ///
    /// # Errors
    /// Nobody is there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = seqpacket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// The kernel's: the other end is gone.
    pub fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message with bytes in a memory file that nobody can change.
    ///
    /// # Errors
    /// No memory, or the other end is gone.
    pub fn send_file(&self, message: &Message, bytes: &[u8]) -> io::Result<()> {
        let file = memory_file(bytes)?;
        self.send(message, &[file.as_fd()])
    }

    /// The next message; `None` at the end. Waits, unless the socket is one that does not.
    ///
    /// # Errors
    /// The kernel's, or something that is no message.
    pub fn receive(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MOST];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                fds.extend(all);
            }
        }
        if got.bytes == 0 {
            return Ok(None);
        }
        Ok(Some((read(&bytes[..got.bytes])?, fds)))
    }
}

/// Reads a message.
///
/// # Errors
/// It is none.
pub fn read(bytes: &[u8]) -> io::Result<Message> {
    serde_json::from_slice(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("not understood: {error}")))
}

/// Bytes in memory that nobody can change or shrink any more.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("quiver-restart", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file.into())
}

/// What a memory file holds.
///
/// # Errors
/// It is none, can still be changed, or is larger than anything that is sent.
pub fn read_file(mut fds: Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let (Some(fd), true) = (fds.pop(), fds.is_empty()) else { return Err(io::Error::other("a message without its file")) };
    let sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::WRITE));
    let mut file = std::fs::File::from(fd);
    let length = file.metadata()?.len();
    if !sealed || length > FILE_MOST {
        return Err(io::Error::other("a file that is not as it is sent"));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    file.rewind()?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Wire, Wire) {
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Wire(a), Wire(b))
    }

    #[test]
    fn messages_come_with_their_descriptors_and_files() {
        let (old, new) = pair();
        let (reader, _writer) = io::pipe().unwrap();
        old.send(&Message::Device("tap0".into()), &[reader.as_fd(), reader.as_fd()]).unwrap();
        let (message, fds) = new.receive().unwrap().unwrap();
        assert_eq!((message, fds.len()), (Message::Device("tap0".into()), 2));
        let snapshot = Message::Snapshot { since: 1, stopped: 2 };
        old.send_file(&snapshot, b"bytes").unwrap();
        let (message, fds) = new.receive().unwrap().unwrap();
        assert_eq!((message, read_file(fds).unwrap()), (snapshot, b"bytes".to_vec()));
        drop(old);
        assert!(new.receive().unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error_of_one_line() {
        for odd in [&b"x"[..], b"{}", b"{\"hello\":{}}", b"\"goodbye\"", b"[1,2"] {
            let error = read(odd).unwrap_err().to_string();
            assert!(error.starts_with("not understood: ") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_program_that_does_not_say_what_it_takes_takes_tap_devices() {
        let said = read(br#"{"hello":{"protocol":1,"version":"v0.1.0"}}"#).unwrap();
        assert_eq!(said, Message::Hello { protocol: 1, version: "v0.1.0".into(), takes: vec!["tap".into()] });
    }

    #[test]
    fn a_file_that_can_be_changed_is_not_read() {
        let fd = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(read_file(vec![fd]).is_err() && read_file(Vec::new()).is_err());
        let (reader, _writer) = io::pipe().unwrap();
        assert!(read_file(vec![reader.into()]).is_err());
    }
}
