//! A memif peer by hand, in either role: it says and writes what an attack wants.

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
    SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

/// What every ring starts with.
pub const COOKIE: u32 = 0x3E3_1F20;
/// Types of messages.
pub const ACK: u16 = 1;
pub const HELLO: u16 = 2;
pub const INIT: u16 = 3;
pub const REGION: u16 = 4;
pub const RING: u16 = 5;
pub const CONNECT: u16 = 6;
pub const CONNECTED: u16 = 7;
pub const DISCONNECT: u16 = 8;

/// How long the router may take for an answer.
const ANSWER: Duration = Duration::from_secs(20);
const MESSAGE: usize = 128;

/// A message as it came.
#[derive(Debug)]
pub struct Message {
    bytes: [u8; MESSAGE],
    pub fds: Vec<OwnedFd>,
}

impl Message {
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
    pub fn dial(path: &Path) -> io::Result<Self> {
        let fd = seqpacket();
        connect(&fd, &SocketAddrUnix::new(path)?)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER))?;
        set_socket_timeout(&fd, Timeout::Send, Some(ANSWER))?;
        Ok(Self(fd))
    }

    pub fn say(&self, kind: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = [kind.to_ne_bytes().as_slice(), &body.concat()].concat();
        bytes.resize(MESSAGE, 0);
        self.say_bytes(&bytes, fds)
    }

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

    pub fn region(&self, index: u16, size: u64, fd: BorrowedFd<'_>) -> Result<(), String> {
        accepted(self.ask(REGION, &[&index.to_ne_bytes(), &size.to_ne_bytes()], &[fd]), ACK)
    }

    pub fn ring(&self, to_server: bool, place: (u16, u32), log2: u8, event: BorrowedFd<'_>) -> Result<(), String> {
        let (flags, index) = (u16::from(to_server).to_ne_bytes(), 0_u16.to_ne_bytes());
        let (region, offset) = (place.0.to_ne_bytes(), place.1.to_ne_bytes());
        accepted(self.ask(RING, &[&flags, &index, &region, &offset, &[log2], &[0, 0]], &[event]), ACK)
    }

    pub fn connect(&self) -> Result<(), String> {
        accepted(self.ask(CONNECT, &[b"hostile"], &[]), CONNECTED)
    }
}

fn accepted(answer: String, kind: u16) -> Result<(), String> {
    if answer == format!("message {kind}") { Ok(()) } else { Err(answer) }
}

pub fn memory(len: u64) -> OwnedFd {
    memory_on(len, MemfdFlags::empty())
}

pub fn memory_on(len: u64, flags: MemfdFlags) -> OwnedFd {
    let fd = memfd_create(c"hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).expect("memfd");
    ftruncate(&fd, len).expect("ftruncate");
    fd
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd")
}

/// Memory that the attack itself writes to.
pub struct Memory {
    pub fd: OwnedFd,
    base: *mut u8,
    len: usize,
}

// SAFETY: all access is atomic, and checked.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn of(fd: OwnedFd, len: usize) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0) };
        Self { fd, base: base.expect("mmap").cast(), len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn at<T>(&self, at: usize) -> &T {
        assert!(at + size_of::<T>() <= self.len && at.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, aligned; used for atomics only.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    pub fn u16(&self, at: usize) -> &AtomicU16 {
        self.at(at)
    }

    pub fn u32(&self, at: usize) -> &AtomicU32 {
        self.at(at)
    }

    pub fn u64(&self, at: usize) -> &AtomicU64 {
        self.at(at)
    }

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

/// A connection that stands, with one ring each way; rings of 64 slots where the attack has made them.
pub struct Connection {
    pub channel: Channel,
    pub memory: Memory,
    /// Where the rings lie: from the peer to the router, and back.
    pub out: usize,
    pub back: usize,
    /// Events that wake the router, and us.
    pub events: [OwnedFd; 2],
}

pub const LOG2: u8 = 6;
pub const SLOTS: u16 = 1 << LOG2;
const RING_BYTES: usize = 128 + 16 * SLOTS as usize;
const BUFFER: u32 = 2048;
const BUFFERS: u32 = 4096;

impl Connection {
    /// As a client of the router.
    pub fn client(path: &Path, id: u32) -> Result<Self, String> {
        Self::client_with(path, id, [event(), event()])
    }

    pub fn client_with(path: &Path, id: u32, events: [OwnedFd; 2]) -> Result<Self, String> {
        let len = (BUFFERS + 2 * u32::from(SLOTS) * BUFFER) as usize;
        let memory = Memory::of(memory(len as u64), len);
        let channel = Channel::begin(path, id)?;
        channel.region(0, len as u64, memory.fd.as_fd())?;
        let (out, back) = (0, RING_BYTES);
        for ring in [out, back] {
            memory.u32(ring).store(COOKIE, Ordering::Release);
        }
        channel.ring(true, (0, out as u32), LOG2, events[0].as_fd())?;
        channel.ring(false, (0, back as u32), LOG2, events[1].as_fd())?;
        let connection = Self { channel, memory, out, back, events };
        connection.offer(0);
        connection.channel.connect()?;
        Ok(connection)
    }

    /// As a server that the router has connected to: it has the memory.
    pub fn server(listener: &OwnedFd) -> Result<Self, String> {
        let channel = Channel(accept(listener).map_err(|e| e.to_string())?);
        set_socket_timeout(&channel.0, Timeout::Recv, Some(ANSWER)).map_err(|e| e.to_string())?;
        let (name, version) = ([0; 32], 0x200_u16.to_ne_bytes());
        let most = 255_u16.to_ne_bytes();
        let hello: [&[u8]; 7] = [&name, &version, &version, &most, &most, &most, &[14]];
        channel.say(HELLO, &hello, &[]).map_err(|e| e.to_string())?;
        let (mut memory, mut rings, mut events) = (None, [0; 2], [None, None]);
        loop {
            let mut message = channel.hear().ok_or("the router has closed")?;
            match message.kind() {
                REGION => {
                    let fd = message.fds.pop().ok_or("no descriptor")?;
                    memory = Some(Memory::of(fd, message.number::<8>(4) as usize));
                }
                RING => {
                    // To the server is what comes back to us.
                    let k = usize::from(message.bytes[2] & 1 != 0);
                    rings[k] = message.number::<4>(8) as usize;
                    events[k] = message.fds.pop();
                }
                CONNECT => break,
                INIT => {}
                other => return Err(format!("message {other}: {}", message.reason())),
            }
            channel.say(ACK, &[], &[]).map_err(|e| e.to_string())?;
        }
        channel.say(CONNECTED, &[b"hostile"], &[]).map_err(|e| e.to_string())?;
        let [Some(out), Some(back)] = events else { return Err("no events".into()) };
        let memory = memory.ok_or("no memory")?;
        Ok(Self { channel, memory, out: rings[0], back: rings[1], events: [out, back] })
    }

    /// Client: gives the router buffers to write to, all that there are but those not read yet.
    pub fn offer(&self, read: u16) {
        for slot in 0..SLOTS {
            let buffer = BUFFERS + (u32::from(SLOTS) + u32::from(slot)) * BUFFER;
            self.memory.descriptor(self.back, slot, SLOTS, 0, 0, BUFFER, buffer);
        }
        self.memory.u16(self.back + 6).store(read.wrapping_add(SLOTS - 1), Ordering::Release);
    }

    /// Client: shows the router `n` packets of 60 bytes, each where `place` says (region and offset).
    pub fn show(&self, n: u16, place: impl Fn(u16) -> (u16, u32)) {
        let head = self.memory.u16(self.out + 6).load(Ordering::Relaxed);
        for k in 0..n {
            let (region, offset) = place(k);
            self.memory.descriptor(self.out, head.wrapping_add(k), SLOTS, 0, region, 60, offset);
        }
        self.memory.u16(self.out + 6).store(head.wrapping_add(n), Ordering::Release);
    }

    /// Packets that the router has not taken yet.
    pub fn pending(&self) -> u16 {
        let index = |at| self.memory.u16(self.out + at).load(Ordering::Acquire);
        index(6).wrapping_sub(index(64))
    }

    /// Whether the router has ended it.
    pub fn is_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.channel.0, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
    }
}

/// A socket at which the router is expected.
pub fn listener(path: &Path) -> OwnedFd {
    let fd = seqpacket();
    bind(&fd, &SocketAddrUnix::new(path).expect("path")).expect("bind");
    listen(&fd, 16).expect("listen");
    set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER)).expect("time");
    fd
}

/// A connected TCP socket with bytes that its other end, which is returned too, never reads, and that lingers for an hour.
pub fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listener");
    let near = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connection");
    let (far, _) = listener.accept().expect("accept");
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("linger");
    near.set_nonblocking(true).expect("non-blocking");
    while io::Write::write(&mut &near, &[0; 65_536]).is_ok() {}
    (near, far)
}
