//! A memif peer by hand, in either role: it says and writes what an attack wants. It panics where the router does not answer.

mod apart;
mod connection;

pub use apart::Apart;
pub use connection::{BUFFER, Connection, LOG2, SLOTS};

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

/// What every ring starts with.
pub const COOKIE: u32 = 0x3E3_1F20;
/// Type of a message: yes.
pub const ACK: u16 = 1;
/// The server's versions and limits.
pub const HELLO: u16 = 2;
/// The client's wish for an interface.
pub const INIT: u16 = 3;
/// Memory, with its descriptor.
pub const REGION: u16 = 4;
/// A ring's place, with its event.
pub const RING: u16 = 5;
/// The client has told all.
pub const CONNECT: u16 = 6;
/// The server agrees.
pub const CONNECTED: u16 = 7;
/// Either ends it, and says why.
pub const DISCONNECT: u16 = 8;

/// How long the router may take for an answer.
const ANSWER: Duration = Duration::from_secs(60);
const MESSAGE: usize = 128;

/// A message as it came.
#[derive(Debug)]
pub struct Message {
    bytes: [u8; MESSAGE],
    /// Its descriptors.
    pub fds: Vec<OwnedFd>,
}

impl Message {
    /// Its type.
    pub fn kind(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Why the router ends it; or what it said instead.
    pub fn reason(&self) -> String {
        if self.kind() != DISCONNECT {
            return format!("message {}", self.kind());
        }
        String::from_utf8_lossy(&self.bytes[6..]).trim_end_matches('\0').to_owned()
    }

    fn number<const N: usize>(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.bytes[at..at + N]);
        u64::from_ne_bytes(bytes)
    }
}

/// A control channel.
#[derive(Debug)]
pub struct Channel(pub OwnedFd);

fn seqpacket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("socket")
}

impl Channel {
    /// To the router at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn dial(path: &Path) -> io::Result<Self> {
        let fd = seqpacket();
        connect(&fd, &SocketAddrUnix::new(path)?)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER))?;
        set_socket_timeout(&fd, Timeout::Send, Some(ANSWER))?;
        Ok(Self(fd))
    }

    /// Sends a message of the right length.
    ///
    /// # Errors
    /// The system's.
    pub fn say(&self, kind: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = [kind.to_ne_bytes().as_slice(), &body.concat()].concat();
        bytes.resize(MESSAGE, 0);
        self.say_bytes(&bytes, fds)
    }

    /// Sends any bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn say_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop).map_err(Into::into)
    }

    /// The next message; `None` where the router has closed.
    pub fn hear(&self) -> Option<Message> {
        let mut bytes = [0; MESSAGE];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(self.0.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let fds = control.drain().filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None });
        let fds = fds.flatten().collect();
        match received {
            Ok(message) if message.bytes > 0 => Some(Message { bytes, fds }),
            Err(rustix::io::Errno::AGAIN) => panic!("the router does not answer"),
            _ => None,
        }
    }

    /// Says something and hears what the router thinks of it.
    pub fn ask(&self, kind: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> String {
        match self.say(kind, body, fds) {
            Ok(()) => self.hear().map_or("closed".into(), |m| m.reason()),
            Err(_) => "closed".into(),
        }
    }

    /// As far as the router asks for regions.
    ///
    /// # Errors
    /// What it said instead.
    pub fn begin(path: &Path, id: u32) -> Result<Self, String> {
        let channel = Self::dial(path).map_err(|e| e.to_string())?;
        match channel.hear() {
            Some(m) if m.kind() == HELLO => {}
            other => return Err(format!("instead of HELLO: {other:?}")),
        }
        let name = [0; 32];
        accepted(channel.ask(INIT, &[&0x200_u16.to_ne_bytes(), &id.to_ne_bytes(), &[0], &[0; 24], &name], &[]), ACK)?;
        Ok(channel)
    }

    /// Announces memory.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn region(&self, index: u16, size: u64, fd: BorrowedFd<'_>) -> Result<(), String> {
        accepted(self.ask(REGION, &[&index.to_ne_bytes(), &size.to_ne_bytes()], &[fd]), ACK)
    }

    /// Announces a ring.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn ring(&self, to_server: bool, place: (u16, u32), log2: u8, event: BorrowedFd<'_>) -> Result<(), String> {
        let (flags, index) = (u16::from(to_server).to_ne_bytes(), 0_u16.to_ne_bytes());
        let (region, offset) = (place.0.to_ne_bytes(), place.1.to_ne_bytes());
        accepted(self.ask(RING, &[&flags, &index, &region, &offset, &[log2], &[0, 0]], &[event]), ACK)
    }

    /// Says that all has been told.
    ///
    /// # Errors
    /// What the router said instead.
    pub fn connect(&self) -> Result<(), String> {
        accepted(self.ask(CONNECT, &[b"hostile"], &[]), CONNECTED)
    }
}

fn accepted(answer: String, kind: u16) -> Result<(), String> {
    if answer == format!("message {kind}") { Ok(()) } else { Err(answer) }
}

/// A file in memory.
///
/// # Panics
/// Where the system has none.
pub fn memory(len: u64) -> OwnedFd {
    memory_on(len, MemfdFlags::empty())
}

/// A file in memory of some kind.
///
/// # Panics
/// Where the system has none.
pub fn memory_on(len: u64, flags: MemfdFlags) -> OwnedFd {
    let fd = memfd_create(c"hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).expect("memfd");
    ftruncate(&fd, len).expect("ftruncate");
    fd
}

/// An eventfd.
///
/// # Panics
/// Where the system has none.
pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd")
}

/// Memory that the attack itself writes to.
#[derive(Debug)]
pub struct Memory {
    /// Its file.
    pub fd: OwnedFd,
    base: *mut u8,
    len: usize,
}

// SAFETY: all access is atomic, and checked.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the first `len` bytes of a file.
    ///
    /// # Panics
    /// Where that cannot be.
    pub fn of(fd: OwnedFd, len: usize) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0) };
        Self { fd, base: base.expect("mmap").cast(), len }
    }

    /// Bytes mapped.
    #[allow(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    fn at<T>(&self, at: usize) -> &T {
        assert!(at + size_of::<T>() <= self.len && at.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, aligned; used for atomics only.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    /// A word at an offset that it may have.
    pub fn u16(&self, at: usize) -> &AtomicU16 {
        self.at(at)
    }

    /// A word at an offset that it may have.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        self.at(at)
    }

    /// A word at an offset that it may have.
    pub fn u64(&self, at: usize) -> &AtomicU64 {
        self.at(at)
    }

    /// Writes bytes at a multiple of 8; a last word is filled up with zeros.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (k, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.u64(at + 8 * k).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Writes the descriptor of a ring's slot.
    #[allow(clippy::too_many_arguments, reason = "the fields of a descriptor, and where it is")]
    pub fn descriptor(&self, ring: usize, slot: u16, size: u16, flags: u16, region: u16, length: u32, offset: u32) {
        let at = ring + 128 + 16 * usize::from(slot & (size - 1));
        self.u64(at + 8).store(offset.into(), Ordering::Relaxed);
        let word = u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32;
        self.u64(at).store(word, Ordering::Relaxed);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, which nothing borrows from any more.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// A socket at which the router is expected.
///
/// # Panics
/// Where the system has none.
pub fn listener(path: &Path) -> OwnedFd {
    let fd = seqpacket();
    bind(&fd, &SocketAddrUnix::new(path).expect("path")).expect("bind");
    listen(&fd, 16).expect("listen");
    set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER)).expect("time");
    fd
}

/// A connected TCP socket with bytes that its other end, which is returned too, never reads, and that lingers for an hour.
///
/// # Panics
/// Where the system has none.
pub fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listener");
    // The other end has no room for what is written below, however late the kernel passes it on: or all of it could arrive, and
    // nothing would be left to wait for.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1).expect("the smallest buffer");
    let near = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connection");
    let (far, _) = listener.accept().expect("accept");
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("linger");
    near.set_nonblocking(true).expect("non-blocking");
    let written: usize = std::iter::from_fn(|| io::Write::write(&mut &near, &[0; 65_536]).ok()).sum();
    let room = rustix::net::sockopt::socket_recv_buffer_size(&far).expect("a size");
    assert!(written > room, "{written} bytes were written, and the other end has room for {room}");
    (near, far)
}
