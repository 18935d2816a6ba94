//! The receive queue: from ring slots into packet buffers.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use quiver_graph::{RxBurst, RxQueue, RxState};

use super::ring::RxSlot;
use super::socket::RxSocket;
use crate::mailbox::Mailbox;
use crate::sys;
use crate::virtio_net::{Delivery, LinkLayer, VnetHeader, deliver};

/// Longest super-frame: `gso_max_size` can be raised to 8 × 65535 bytes (BIG TCP).
const SUPER_MAX: usize = 8 * 65_535 + 512;

/// One receive queue.
pub(super) struct AfPacketRx {
    /// `None` only after the end.
    socket: Option<RxSocket>,
    mailbox: Arc<Mailbox<RxSocket>>,
    link: LinkLayer,
    /// Segment of the current slot to go on with.
    segment: usize,
    /// A frame that was too large for its slot.
    large: Vec<u8>,
    /// Header and length of the frame in `large` while its segments are being delivered.
    in_large: Option<(VnetHeader, usize)>,
}

impl AfPacketRx {
    pub(super) fn new(socket: RxSocket, mailbox: Arc<Mailbox<RxSocket>>, link: LinkLayer) -> Self {
        Self { socket: Some(socket), mailbox, link, segment: 0, large: Vec::new(), in_large: None }
    }

    #[inline(always)]
    fn adopt(&mut self) {
        if self.mailbox.exchange(&mut self.socket) {
            (self.segment, self.in_large) = (0, None);
        }
    }

    /// Delivers the current slot, which is ours; `false` when the vector is full before its end.
    #[inline]
    fn slot(&mut self, status: u32, burst: &mut RxBurst<'_, '_>) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        // SAFETY: the status said that the slot is ours.
        let bytes = unsafe { socket.ring.slot() };
        let Some(slot) = RxSlot::parse(status, bytes) else {
            burst.damaged(1);
            return true;
        };
        if slot.outgoing && !socket.skips_outgoing {
            if slot.copied {
                socket.drop_copy();
            }
            return true;
        }
        let (link, from) = (self.link, self.segment);
        let push = |parts: &[&[u8]]| {
            if burst.room() == 0 {
                return false;
            }
            // A missing buffer is counted there; the frame is lost, and we go on.
            burst.push_parts(parts);
            true
        };
        let delivery = if slot.copied {
            if self.in_large.is_none() {
                let wanted = slot.whole.min(SUPER_MAX);
                if self.large.len() < wanted {
                    self.large.resize(wanted, 0);
                }
                self.in_large = socket.take_copy(&mut self.large);
            }
            let Some((header, len)) = self.in_large else {
                burst.missed(1);
                return true;
            };
            deliver(&mut self.large[..len], header, slot.tag, link, from, push)
        } else if slot.frame.1 < slot.whole {
            // Cut, and no room in the socket's queue for the whole.
            burst.missed(1);
            return true;
        } else {
            let (start, len) = slot.frame;
            deliver(&mut bytes[start..start + len], slot.vnet, slot.tag, link, from, push)
        };
        match delivery {
            Delivery::Full(segment) => {
                self.segment = segment;
                return false;
            }
            Delivery::Damaged => burst.damaged(1),
            Delivery::Done => {}
        }
        (self.segment, self.in_large) = (0, None);
        true
    }
}

impl RxQueue for AfPacketRx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.adopt();
        let mut losing = false;
        while burst.room() > 0 {
            let Some(socket) = &self.socket else { return RxState::Down };
            let status = socket.ring.status();
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            socket.ring.prefetch(1);
            losing |= status & libc::TP_STATUS_LOSING != 0;
            if !self.slot(status, burst) {
                break;
            }
            if let Some(socket) = &mut self.socket {
                socket.release();
            }
        }
        if losing && let Some(socket) = &self.socket {
            burst.missed(socket.lost());
        }
        RxState::Up
    }

    fn arm(&mut self) -> bool {
        self.adopt();
        let Some(socket) = &self.socket else { return true };
        // A device that went down or away leaves an error on the socket that would keep it readable for ever.
        let _ = sys::take_error(&socket.fd);
        // The event is level-triggered: a frame after this look makes the descriptor readable.
        socket.ring.status() & libc::TP_STATUS_USER == 0
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.socket.as_ref().map(|s| s.fd.as_raw_fd())
    }

    fn discard(&mut self) {
        self.adopt();
        (self.segment, self.in_large) = (0, None);
        if let Some(socket) = &mut self.socket {
            socket.discard();
        }
    }

    fn renew(&mut self) {
        self.adopt();
    }

    fn begin(&mut self, since: u64) {
        self.adopt();
        (self.segment, self.in_large) = (0, None);
        if let Some(socket) = &mut self.socket {
            socket.discard_before(since);
        }
    }
}

impl Drop for AfPacketRx {
    fn drop(&mut self) {
        self.mailbox.retire(self.socket.take());
    }
}
