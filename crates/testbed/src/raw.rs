//! Whole frames in and out of a host's interface, beneath its kernel's stack (AF_PACKET).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::sys::{self, with_context};

/// Longest frame taken: the largest super-frame that offloads make, with room for tags.
const FRAME_LIMIT: usize = 1 << 17;

/// A socket on one interface that sees every frame that arrives there, whomever it is for. Not what is sent from the
/// interface, by this port or by the kernel.
#[derive(Debug)]
pub struct RawPort {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// Which directions a packet socket sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    Arriving,
    Both,
}

impl Host {
    /// Opens an interface for raw frames. Frames that arrive from now on are queued, as root 8 MB of them.
    pub fn raw(&self, interface: &str) -> io::Result<RawPort> {
        RawPort::open(self, interface, Sees::Arriving)
    }
}

impl RawPort {
    pub(crate) fn open(host: &Host, interface: &str, sees: Sees) -> io::Result<Self> {
        let what = || format!("raw port on {interface}");
        let socket = host.enter(|| packet_socket(interface, sees).map_err(|e| with_context(what(), e)))?;
        Ok(Self { socket, buffer: vec![0; FRAME_LIMIT] })
    }

    /// Sends one frame, from the destination MAC address on, without FCS.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe `frame`, which the kernel only reads.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        match sent {
            n if n == frame.len() as isize => Ok(()),
            n if n >= 0 => Err(io::Error::other(format!("{n} of {} bytes sent", frame.len()))),
            _ => Err(with_context(format!("sending {} bytes", frame.len()), io::Error::last_os_error())),
        }
    }

    /// The next frame, at most `timeout` later. A VLAN tag that the kernel took out of the frame is put back.
    pub fn recv(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        if !sys::wait_readable(self.socket.as_fd(), timeout)? {
            return Ok(None);
        }
        self.take().map(Some)
    }

    /// The next frame that `wanted` accepts; what comes before it is thrown away.
    pub fn recv_matching(&mut self, timeout: Duration, mut wanted: impl FnMut(&[u8]) -> bool) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.recv(deadline.saturating_duration_since(Instant::now()))? {
                Some(frame) if !wanted(&frame) => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Everything that has arrived and everything that follows without a gap of `quiet`.
    pub fn drain(&mut self, quiet: Duration) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.recv(quiet)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    pub(crate) fn take(&mut self) -> io::Result<Vec<u8>> {
        let mut control = ControlSpace([0; CONTROL_BYTES]);
        let mut vector = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: msghdr is plain C data for which all zeroes is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: every pointer in `message` is to a live local or to `self.buffer`, with its true length.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut frame = self.buffer[..length as usize].to_vec();
        if let Some(tag) = stripped_tag(&message)
            && frame.len() >= 12
        {
            frame.splice(12..12, tag);
        }
        Ok(frame)
    }
}

const CONTROL_BYTES: usize = 128;

#[repr(align(8))]
struct ControlSpace([u8; CONTROL_BYTES]);

/// The four bytes of the tag that the kernel moved from the frame to the metadata, if it did.
fn stripped_tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: `message` is as recvmsg left it, its control buffer alive and aligned.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole header within the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
            // SAFETY: PACKET_AUXDATA messages carry one tpacket_auxdata; the data may be unaligned for it.
            let aux: libc::tpacket_auxdata = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
                return None;
            }
            let known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let tpid = if known { aux.tp_vlan_tpid } else { 0x8100 };
            let (tpid, tci) = (tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes());
            return Some([tpid[0], tpid[1], tci[0], tci[1]]);
        }
        // SAFETY: `header` lies in the control buffer of `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn packet_socket(interface: &str, sees: Sees) -> io::Result<OwnedFd> {
    let index = sys::interface_index(interface)? as libc::c_int;
    // Protocol 0: nothing is queued before the socket is bound to its interface.
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let option = |name, value: libc::c_int| sys::set_option(socket.as_fd(), libc::SOL_PACKET, name, &value);
    option(libc::PACKET_AUXDATA, 1)?;
    if sees == Sees::Arriving {
        option(libc::PACKET_IGNORE_OUTGOING, 1)?;
    }
    let buffer = |name| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, &(8_i32 << 20));
    // Past the machine's limit needs real root; in a user namespace it stays at that limit.
    buffer(libc::SO_RCVBUFFORCE).or_else(|_| buffer(libc::SO_RCVBUF))?;
    let promiscuous =
        libc::packet_mreq { mr_ifindex: index, mr_type: libc::PACKET_MR_PROMISC as _, mr_alen: 0, mr_address: [0; 8] };
    sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    // SAFETY: sockaddr_ll is plain C data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}
