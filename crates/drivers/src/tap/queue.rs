//! Receiving from and sending to a TAP device: a system call for each frame, as the kernel offers nothing else.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use quiver_graph::{RxBurst, RxQueue, RxState, TxBatch, TxDrop, TxQueue};
use zerocopy::IntoBytes;

use super::DeviceState;
use crate::closer::Later;
use crate::mailbox::Mailbox;
use crate::sys;
use crate::virtio_net::{Delivery, LinkLayer, VnetHeader, deliver};

/// A queue's descriptor, for its receiver and the threads that send on it. Closing the last one of a device deletes the
/// device, which takes long.
pub(super) type Queue = Arc<Later<OwnedFd>>;

/// Longest super-frame: `gso_max_size` can be raised to 8 × 65535 bytes.
const SUPER_MAX: usize = 8 * 65_535 + 512;

/// A receive queue.
pub(super) struct TapRx {
    /// `None` only after the end.
    queue: Option<Queue>,
    mailbox: Arc<Mailbox<Queue>>,
    /// Header and frame as read.
    bytes: Vec<u8>,
    /// Header, length and next segment of the frame there, while it is being delivered.
    pending: Option<(VnetHeader, usize, usize)>,
    /// What waits in the device came for another process, which still reads it, or is to be read by this one when that has stopped.
    taken_over: bool,
}

impl TapRx {
    pub(super) fn new(queue: Queue, mailbox: Arc<Mailbox<Queue>>, taken_over: bool) -> Self {
        Self { queue: Some(queue), mailbox, bytes: vec![0; VnetHeader::LEN + SUPER_MAX], pending: None, taken_over }
    }

    fn take_up(&mut self) {
        if self.mailbox.exchange(&mut self.queue) {
            self.pending = None;
        }
    }

    /// Reads a frame; `false` where none waits.
    fn read(&mut self, burst: Option<&mut RxBurst<'_, '_>>) -> bool {
        let Some(queue) = &self.queue else { return false };
        // SAFETY: pointer and length describe `bytes`, which the kernel fills in part.
        let got = unsafe { libc::read(queue.as_raw_fd(), self.bytes.as_mut_ptr().cast(), self.bytes.len()) };
        if got < 0 {
            // A device that was deleted leaves its descriptors in an error that would keep us awake for ever.
            if io::Error::last_os_error().raw_os_error() == Some(libc::EBADFD) {
                let _ = silence(queue);
            }
            return false;
        }
        let got = got as usize;
        self.pending = match (VnetHeader::parse(&self.bytes), got.checked_sub(VnetHeader::LEN)) {
            (Some(header), Some(len)) if len <= SUPER_MAX => Some((header, len, 0)),
            _ => {
                if let Some(burst) = burst {
                    burst.damaged(1);
                }
                None
            }
        };
        true
    }

    /// Delivers the frame that was read; `false` when the vector is full before its end.
    fn deliver(&mut self, burst: &mut RxBurst<'_, '_>) -> bool {
        let Some((header, len, from)) = self.pending.take() else { return true };
        let frame = &mut self.bytes[VnetHeader::LEN..VnetHeader::LEN + len];
        let delivery = deliver(frame, header, None, LinkLayer::Ethernet, from, |parts| {
            if burst.room() == 0 {
                return false;
            }
            // A missing buffer is counted there; the frame is lost, and we go on.
            burst.push_parts(parts);
            true
        });
        match delivery {
            Delivery::Done => {}
            Delivery::Damaged => burst.damaged(1),
            Delivery::Full(segment) => {
                self.pending = Some((header, len, segment));
                return false;
            }
        }
        true
    }
}

/// Puts a descriptor that is never readable in the place of one whose device is gone.
fn silence(queue: &Queue) -> io::Result<()> {
    let quiet = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
    // SAFETY: both are open descriptors; ours now stands for the quiet socket, and stays ours to close.
    sys::check(unsafe { libc::dup3(quiet.as_raw_fd(), queue.as_raw_fd(), libc::O_CLOEXEC) }).map(drop)
}

impl RxQueue for TapRx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.take_up();
        while self.deliver(burst) && burst.room() > 0 {
            if !self.read(Some(burst)) {
                break;
            }
        }
        RxState::Up
    }

    fn arm(&mut self) -> bool {
        self.take_up();
        // The event is level-triggered: frames that wait make the descriptor readable.
        self.pending.is_none()
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.queue.as_ref().map(|q| q.as_raw_fd())
    }

    fn discard(&mut self) {
        if self.taken_over {
            return;
        }
        self.take_up();
        // No more than the kernel's queue holds, however fast the host goes on sending.
        for _ in 0..super::RING_MAX {
            if !self.read(None) {
                break;
            }
        }
        self.pending = None;
    }

    fn renew(&mut self) {
        self.take_up();
    }

    fn begin(&mut self, _since: u64) {
        // What waits is for this process now.
        self.taken_over = false;
    }
}

/// A thread's transmit queue.
pub(super) struct TapTx {
    queue: Option<Queue>,
    mailbox: Arc<Mailbox<Queue>>,
    device: Arc<DeviceState>,
}

impl TapTx {
    pub(super) fn new(queue: Queue, mailbox: Arc<Mailbox<Queue>>, device: Arc<DeviceState>) -> Self {
        Self { queue: Some(queue), mailbox, device }
    }
}

impl TxQueue for TapTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        self.mailbox.exchange(&mut self.queue);
        let Some(queue) = &self.queue else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        let limit = self.device.frame_limit();
        for i in 0..batch.len() {
            let packet = batch.packet(i);
            if limit.refuses(packet.total_len(), packet.bytes()) {
                batch.refuse(i, TxDrop::TooLarge);
                continue;
            }
            let header = match packet.unfinished_checksum() {
                // The kernel finishes it, where it is needed at all.
                Some((csum_start, csum_offset)) => {
                    VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start, csum_offset, ..VnetHeader::default() }
                }
                None => VnetHeader::default(),
            };
            let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let head = [part(header.as_bytes()), part(packet.bytes())];
            let sent = if packet.total_len() == packet.len() {
                write(queue, &head)
            } else {
                let mut parts = vec![head[0]];
                packet.for_each_segment(|bytes| parts.push(part(bytes)));
                write(queue, &parts)
            };
            match sent.map_err(|e| e.raw_os_error()) {
                Ok(()) => {}
                Err(Some(libc::EINVAL | libc::EMSGSIZE)) => batch.refuse(i, TxDrop::Refused),
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)) => return i,
                // EIO: the host has taken its end down. EBADFD: it has deleted it.
                Err(_) => {
                    batch.set_reason(TxDrop::NoDevice);
                    return i;
                }
            }
        }
        batch.len()
    }
}

fn write(queue: &Queue, parts: &[libc::iovec]) -> io::Result<()> {
    // SAFETY: every part points to live bytes of its true length, which the kernel only reads.
    let sent = unsafe { libc::writev(queue.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
