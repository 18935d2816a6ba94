//! Packet sockets that tell with each frame when it left or came.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Clock, StampError, Tail};
use crate::netdev::NetDevices;
use crate::sys;

/// Size of the receive queue, bytes: room for some thousand frames and their timestamps.
const QUEUE_BYTES: libc::c_int = 4 << 20;
/// Room for what the kernel says beside a frame: times, the reason why it comes, and what it may add one day.
const CONTROL_BYTES: usize = 256;

/// Sends single frames, and tells when they left.
#[derive(Debug)]
pub struct StampedTx {
    socket: OwnedFd,
}

/// Receives copies of frames with the times at which they came.
#[derive(Debug)]
pub struct StampedRx {
    socket: OwnedFd,
}

/// What is asked for of the times of a clock, for frames that are sent or received.
fn flags(clock: Clock, sends: bool) -> libc::c_uint {
    match (clock, sends) {
        (Clock::Card, true) => libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_TX_HARDWARE,
        (Clock::Card, false) => libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE,
        (Clock::Kernel, true) => libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SOFTWARE,
        (Clock::Kernel, false) => libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE,
    }
}

/// A packet socket of a device of the calling thread's network namespace.
fn open(device: &str, clock: Clock, tail: Option<Tail>) -> Result<OwnedFd, StampError> {
    let found = NetDevices::open().and_then(|devices| devices.get(device));
    let found = found.map_err(|error| StampError::Device { device: device.to_owned(), error })?;
    let make = || {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags(clock, tail.is_none()))?;
        sys::set_queue_bytes(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, QUEUE_BYTES)?;
        if let Some(tail) = tail {
            let program = tail.program();
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
            // What this machine sends by the device has left it, and not come.
            sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        }
        let protocol = if tail.is_some() { libc::ETH_P_ALL } else { 0 };
        sys::bind_packet(&socket, protocol, found.index)?;
        Ok(socket)
    };
    make().map_err(|error| StampError::Socket { device: device.to_owned(), error })
}

impl StampedTx {
    /// On a device.
    ///
    /// # Errors
    /// There is none of that name, or no socket (it takes CAP_NET_RAW).
    pub fn open(device: &str, clock: Clock) -> Result<Self, StampError> {
        open(device, clock, None).map(|socket| Self { socket })
    }

    /// Sends a frame, from its Ethernet header on; `false` where the device has no room for it now.
    ///
    /// # Errors
    /// The device refuses it, or is down.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: pointer and length are those of `frame`, which the kernel only reads.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent >= 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => Ok(false),
            _ => Err(error),
        }
    }

    /// Takes a frame that has left: writes it to `buffer`, and gives its bytes and its time, ns of the clock; `None` where none waits.
    ///
    /// # Errors
    /// The system's.
    pub fn departed(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        take(&self.socket, buffer, libc::MSG_ERRQUEUE)
    }
}

impl StampedRx {
    /// On a device, of the frames that end as `tail` says.
    ///
    /// # Errors
    /// There is none of that name, or no socket (it takes CAP_NET_RAW).
    pub fn open(device: &str, clock: Clock, tail: Tail) -> Result<Self, StampError> {
        open(device, clock, Some(tail)).map(|socket| Self { socket })
    }

    /// Takes a frame that has come: writes it to `buffer`, and gives its bytes and its time, ns of the clock; `None` where none waits.
    ///
    /// # Errors
    /// The system's.
    pub fn arrived(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        take(&self.socket, buffer, 0)
    }
}

/// Control messages lie on words.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// Takes a frame and its time from a socket or its error queue. A frame that is longer than `buffer` is cut.
fn take(socket: &OwnedFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<Option<(usize, Option<u64>)>> {
    let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain C data for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: `message` describes `buffer` and `control`, which live through the call and are ours to write.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has filled `message` and what it describes.
    let time = unsafe { time(&message) };
    Ok(Some((length as usize, time)))
}

/// The time among the control messages (`struct scm_timestamping`): the kernel's, or else the card's; ns.
///
/// # Safety
/// `message` is as recvmsg has left it, and its control messages still live.
unsafe fn time(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: by the caller's word; the macros stay within msg_controllen.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the macro gave a header within the control messages.
        let (level, kind, length) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        // SAFETY: computes a length.
        let whole = unsafe { libc::CMSG_LEN(size_of::<[libc::timespec; 3]>() as _) } as usize;
        if level == libc::SOL_SOCKET && kind == libc::SO_TIMESTAMPING && length >= whole {
            // SAFETY: the header says that so many bytes follow it; they need not be aligned for the type.
            let times: [libc::timespec; 3] = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            // In the middle stands what cards of the past said.
            return [times[0], times[2]].iter().find_map(nanoseconds);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// A time that there is.
fn nanoseconds(time: &libc::timespec) -> Option<u64> {
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|n| u64::try_from(n).ok());
    seconds?.checked_mul(1_000_000_000)?.checked_add(rest?).filter(|ns| *ns > 0)
}
