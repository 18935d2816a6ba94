//! The transmit queue: from packet buffers into ring slots, one call to the kernel for a vector.
//!
//! The kernel takes slots strictly in order and stops at the first that it cannot take, leaving it as it is. What it did not
//! take is taken back at once, so that nothing waits in the ring for a later call, and what the caller is told is exact.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use quiver_graph::{Pkt, TxBatch, TxDrop, TxQueue};
use quiver_wire::checksum;
use zerocopy::IntoBytes;

use super::DeviceState;
use super::ring::TX_DATA;
use super::socket::TxSocket;
use crate::ethernet::FrameLimit;
use crate::joined::{Joined, may_join, part};
use crate::mailbox::Mailbox;
use crate::virtio_net::VnetHeader;

/// Where the frame itself begins.
const FRAME: usize = TX_DATA + VnetHeader::LEN;
/// So often the kernel is asked again when it took nothing for want of memory or room.
const TRIES: u32 = 3;
/// Frames up to this size are copied whole into the kernel's linear buffer. The kernel would else refer to the slot's pages,
/// which costs more for a device that hands packets on to this machine (it must copy them after all).
const LINEAR_MAX: usize = 3584;
/// So many packets in a row may be refused for want of room before the rest of a vector is given up.
const UNLUCKY_MAX: u32 = 2;

/// One transmit queue.
pub(super) struct AfPacketTx {
    socket: Option<TxSocket>,
    mailbox: Arc<Mailbox<TxSocket>>,
    device: Arc<DeviceState>,
    joined: Joined,
}

/// What the kernel did with the slots that it was given.
enum Settled {
    /// Took all.
    All,
    /// Took so many; the next one is not well-formed in its eyes.
    Refused(usize),
    /// Took so many and could not go on now.
    Stopped(usize, io::Error),
}

impl AfPacketTx {
    pub(super) fn new(socket: TxSocket, mailbox: Arc<Mailbox<TxSocket>>, device: Arc<DeviceState>) -> Self {
        Self { socket: Some(socket), mailbox, device, joined: Joined::new() }
    }
}

impl TxSocket {
    /// Longest frame that fits into a slot.
    fn frame_max(&self) -> usize {
        self.ring.shape().slot - FRAME
    }

    /// Fills slots with packets from `first` on, up to one that needs to be looked at, or (from `joins` on) may begin a super-frame; gives how
    /// many.
    fn fill(&mut self, batch: &mut TxBatch<'_, '_>, first: usize, joins: usize, limit: FrameLimit) -> usize {
        let max = self.frame_max();
        let mut filled = 0;
        for i in first..batch.len() {
            let busy = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
            if self.ring.status() & busy != 0 || (i >= joins && i > first && may_join(batch, i)) {
                break;
            }
            let packet = batch.packet(i);
            let len = packet.total_len();
            if len > max || limit.refuses(len, packet.bytes()) {
                break;
            }
            let linear = if len <= LINEAR_MAX { len } else { 0 };
            let header = header(&packet, linear, self.leaves_checksums);
            // SAFETY: neither waiting nor on its way, so the slot is ours.
            let slot = unsafe { self.ring.slot() };
            // tp_len counts the vnet header.
            slot[4..8].copy_from_slice(&((len + VnetHeader::LEN) as u32).to_ne_bytes());
            slot[TX_DATA..FRAME].copy_from_slice(header.as_bytes());
            packet.copy_out(0, &mut slot[FRAME..FRAME + len]);
            if !header.needs_checksum()
                && let Some((start, offset)) = packet.unfinished_checksum()
            {
                // What does not lie within the frame cannot be finished by anybody; the receiver will drop it.
                let _ = checksum::complete(&mut slot[FRAME..FRAME + len], start, offset);
            }
            self.ring.set_status(libc::TP_STATUS_SEND_REQUEST);
            self.ring.advance();
            filled += 1;
        }
        filled
    }

    /// Has the kernel send the `filled` slots from slot `start` on, and takes back what it does not want.
    fn send(&mut self, start: usize, filled: usize) -> Settled {
        let mut done = 0;
        let mut idle = 0;
        loop {
            // SAFETY: no buffer is passed; the kernel works on the ring.
            let result = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
            let error = if result < 0 { io::Error::last_os_error() } else { io::Error::from_raw_os_error(libc::EAGAIN) };
            let before = done;
            let stopped = loop {
                if done == filled {
                    return Settled::All;
                }
                let status = self.ring.status_of(self.ring.after(start, done));
                let left = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
                if status & left != 0 {
                    break status;
                }
                done += 1;
            };
            if stopped & libc::TP_STATUS_WRONG_FORMAT != 0 {
                self.take_back(start, done, filled);
                return Settled::Refused(done);
            }
            idle = if done > before { 0 } else { idle + 1 };
            let again = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR));
            if !again || idle == TRIES {
                self.take_back(start, done, filled);
                return Settled::Stopped(done, error);
            }
        }
    }

    /// Makes the slots after the first `done` of a burst ours again; the kernel stands at the first of them too.
    fn take_back(&mut self, start: usize, done: usize, filled: usize) {
        for i in done..filled {
            self.ring.set_status_of(self.ring.after(start, i), libc::TP_STATUS_AVAILABLE);
        }
        self.ring.rewind(self.ring.after(start, done));
    }

    /// Sends a packet that is larger than a slot, from where its segments lie.
    fn send_alone(&mut self, batch: &mut TxBatch<'_, '_>, i: usize) -> io::Result<()> {
        // Always left to the kernel: the bytes lie in several places.
        let header = header(&batch.packet(i), 0, true);
        let mut parts = vec![part(header.as_bytes())];
        let packet = batch.packet(i);
        packet.for_each_segment(|bytes| parts.push(part(bytes)));
        self.send_parts(&mut parts)
    }

    /// Sends a frame, its virtio header first, past the ring.
    fn send_parts(&mut self, parts: &mut [libc::iovec]) -> io::Result<()> {
        // SAFETY: msghdr is plain C data for which all zeroes is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: every part points to live bytes of its true length, which the kernel only reads.
        let sent = unsafe { libc::sendmsg(self.alone.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl TxQueue for AfPacketTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        self.mailbox.exchange(&mut self.socket);
        let Some(socket) = &mut self.socket else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        let limit = self.device.frame_limit();
        let mut next = 0;
        // Packets from here on may be joined.
        let mut joins = if self.device.joins() { 0 } else { usize::MAX };
        // Refusals in a row for want of room: one frame may be at fault, several mean that the device takes none.
        let mut unlucky = 0;
        while next < batch.len() {
            if next >= joins
                && let Some(n) = self.joined.join(batch, next, limit)
            {
                match socket.send_parts(self.joined.parts()) {
                    Ok(()) => (next, unlucky) = (next + n, 0),
                    // Whatever the device has against super-frames, it may take segments.
                    Err(_) => joins = next + n,
                }
                continue;
            }
            let start = socket.ring.at();
            let filled = socket.fill(batch, next, joins, limit);
            if filled == 0 {
                // No slot is free, or this packet is special.
                let len = batch.packet(next).total_len();
                if limit.refuses(len, batch.packet(next).bytes()) {
                    batch.refuse(next, TxDrop::TooLarge);
                } else if len <= socket.frame_max() {
                    break;
                } else if let Err(error) = socket.send_alone(batch, next) {
                    match error.raw_os_error() {
                        Some(libc::EMSGSIZE) => batch.refuse(next, TxDrop::TooLarge),
                        Some(libc::EINVAL) => batch.refuse(next, TxDrop::Refused),
                        code => {
                            batch.set_reason(reason_of(code));
                            break;
                        }
                    }
                }
                next += 1;
                continue;
            }
            match socket.send(start, filled) {
                Settled::All => {
                    next += filled;
                    unlucky = 0;
                }
                Settled::Refused(done) => {
                    next += done;
                    batch.refuse(next, TxDrop::Refused);
                    next += 1;
                }
                Settled::Stopped(done, error) => {
                    next += done;
                    unlucky = if done == 0 { unlucky + 1 } else { 1 };
                    let code = error.raw_os_error();
                    if code != Some(libc::ENOBUFS) || unlucky > UNLUCKY_MAX {
                        batch.set_reason(reason_of(code));
                        break;
                    }
                    batch.refuse(next, TxDrop::Refused);
                    next += 1;
                }
            }
        }
        next
    }
}

/// The header that goes before a frame: `linear` bytes are to be copied, and where the checksum is unfinished and may be left
/// to the kernel, where it is.
#[inline(always)]
fn header(packet: &Pkt<'_>, linear: usize, leaves_checksums: bool) -> VnetHeader {
    let plain = VnetHeader { hdr_len: linear as u16, ..VnetHeader::default() };
    if leaves_checksums && let Some((csum_start, csum_offset)) = packet.unfinished_checksum() {
        return VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start, csum_offset, ..plain };
    }
    plain
}

/// Why packets are dropped after this error.
fn reason_of(code: Option<i32>) -> TxDrop {
    match code {
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => TxDrop::NoDevice,
        _ => TxDrop::NoRoom,
    }
}

impl Drop for AfPacketTx {
    fn drop(&mut self) {
        self.mailbox.retire(self.socket.take());
    }
}
