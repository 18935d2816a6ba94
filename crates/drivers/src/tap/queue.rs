//! Receiving from and sending to a TAP device: a system call for each frame, as the kernel offers nothing else. A frame may be a
//! super-frame of many segments of TCP, in both directions.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use quiver_graph::{RxBurst, RxQueue, RxState, TxBatch, TxDrop, TxQueue};
use zerocopy::IntoBytes;

use super::DeviceState;
use crate::closer::Later;
use crate::joined::{Joined, part};
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
    link: LinkLayer,
    /// Header and frame as read.
    bytes: Vec<u8>,
    /// Header, length and next segment of the frame there, while it is being delivered.
    pending: Option<(VnetHeader, usize, usize)>,
    /// What waits in the device came for another process, which still reads it, or is to be read by this one when that has stopped.
    taken_over: bool,
}

impl TapRx {
    pub(super) fn new(queue: Queue, mailbox: Arc<Mailbox<Queue>>, link: LinkLayer, taken_over: bool) -> Self {
        Self { queue: Some(queue), mailbox, link, bytes: vec![0; VnetHeader::LEN + SUPER_MAX], pending: None, taken_over }
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
        let delivery = deliver(frame, header, None, self.link, from, |parts| {
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

    fn asks_by_call(&self) -> bool {
        true
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

/// A thread's transmit queue. Segments of one TCP connection that follow one another go out as a super-frame, by one system call.
pub(super) struct TapTx {
    queue: Option<Queue>,
    mailbox: Arc<Mailbox<Queue>>,
    device: Arc<DeviceState>,
    joined: Joined,
    /// Runs of bytes of the frame being sent.
    parts: Vec<libc::iovec>,
}

// SAFETY: the runs of bytes are written and read within one call of `tx`; between calls nobody looks at them.
unsafe impl Send for TapTx {}

impl TapTx {
    pub(super) fn new(queue: Queue, mailbox: Arc<Mailbox<Queue>>, device: Arc<DeviceState>) -> Self {
        Self { queue: Some(queue), mailbox, device, joined: Joined::new(), parts: Vec::new() }
    }
}

impl TxQueue for TapTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        self.mailbox.exchange(&mut self.queue);
        let limit = self.device.frame_limit();
        let mut i = 0;
        // What joins segments reads Ethernet headers.
        let joins = self.device.gso && self.device.link != LinkLayer::Ip;
        // Packets that go one by one, because the kernel did not take them together.
        let mut singles = 0;
        while i < batch.len() {
            if joins
                && i >= singles
                && let Some(n) = self.joined.join(batch, i, limit)
            {
                match write(&self.queue, self.joined.parts()) {
                    Ok(()) => i += n,
                    Err(Some(libc::EINVAL | libc::EMSGSIZE)) => singles = i + n,
                    Err(error) => return stop(batch, i, error),
                }
                continue;
            }
            let packet = batch.packet(i);
            if limit.refuses(packet.total_len(), packet.bytes()) {
                batch.refuse(i, TxDrop::TooLarge);
                i += 1;
                continue;
            }
            let header = match packet.unfinished_checksum() {
                // The kernel finishes it, where it is needed at all.
                Some((csum_start, csum_offset)) => {
                    VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start, csum_offset, ..VnetHeader::default() }
                }
                None => VnetHeader::default(),
            };
            let head = [part(header.as_bytes()), part(packet.bytes())];
            let sent = if packet.total_len() == packet.len() {
                write(&self.queue, &head)
            } else {
                self.parts.clear();
                self.parts.push(head[0]);
                packet.for_each_segment(|bytes| self.parts.push(part(bytes)));
                write(&self.queue, &self.parts)
            };
            match sent {
                Ok(()) => {}
                Err(Some(libc::EINVAL | libc::EMSGSIZE)) => batch.refuse(i, TxDrop::Refused),
                Err(error) => return stop(batch, i, error),
            }
            i += 1;
        }
        batch.len()
    }
}

/// Where sending ends before packet `i`.
fn stop(batch: &mut TxBatch<'_, '_>, i: usize, error: Option<i32>) -> usize {
    // EIO: the host has taken its end down. EBADFD: it has deleted it.
    if !matches!(error, Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)) {
        batch.set_reason(TxDrop::NoDevice);
    }
    i
}

/// Writes these runs of bytes as one frame.
fn write(queue: &Option<Queue>, parts: &[libc::iovec]) -> Result<(), Option<i32>> {
    let Some(queue) = queue else { return Err(None) };
    // SAFETY: every part points to live bytes of its true length, which the kernel only reads.
    let sent = unsafe { libc::writev(queue.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
    if sent < 0 { Err(io::Error::last_os_error().raw_os_error()) } else { Ok(()) }
}
