//! How a device does, for display.

use std::sync::atomic::Ordering;

use super::socket::Socket;
use crate::netdev::NetDevice;

/// A device and its queues at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Name of the kernel's device.
    pub device: String,
    /// The kernel's driver of it; empty where unknown.
    pub driver: String,
    /// The device; `None` while it is gone.
    pub present: Option<NetDevice>,
    /// The XDP program is run by the device's driver.
    pub native: bool,
    /// The device reads and writes packet buffers itself.
    pub zero_copy: bool,
    /// Frames larger than a buffer can be received and sent.
    pub pieces: bool,
    /// Checksums of kernel peers are finished on reception.
    pub finishes_checksums: bool,
    /// Queues that the device has.
    pub available_queues: u32,
    /// Entries of the fill and rx rings.
    pub rx_size: usize,
    /// Entries of the tx and completion rings.
    pub tx_size: usize,
    /// Queues in use.
    pub queues: Vec<QueueStatus>,
}

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Buffers that the kernel has for receiving.
    pub rx_lent: u32,
    /// Buffers on their way out.
    pub tx_lent: u32,
    /// Frames lost: no buffer, or too large.
    pub rx_dropped: u64,
    /// Frames lost because the rx ring was full.
    pub rx_ring_full: u64,
    /// How often the kernel found no buffer in the fill ring.
    pub fill_ring_empty: u64,
    /// Descriptors that the kernel refused, on the fill and tx rings.
    pub invalid: (u64, u64),
}

impl QueueStatus {
    pub(super) fn of(socket: &Socket) -> Self {
        let s = socket.statistics();
        let of = |field: fn(&libc::xdp_statistics) -> u64| s.as_ref().map_or(0, field);
        Self {
            rx_lent: socket.lent[0].load(Ordering::Relaxed),
            tx_lent: socket.lent[1].load(Ordering::Relaxed),
            rx_dropped: of(|s| s.rx_dropped),
            rx_ring_full: of(|s| s.rx_ring_full),
            fill_ring_empty: of(|s| s.rx_fill_ring_empty_descs),
            invalid: (of(|s| s.rx_invalid_descs), of(|s| s.tx_invalid_descs)),
        }
    }
}

impl Status {
    /// In words.
    pub fn lines(&self) -> Vec<String> {
        let yes = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
        let driver = if self.driver.is_empty() { "unknown" } else { &self.driver };
        let mut lines = vec![format!(
            "Linux device {} driver {driver} XDP {} {} frames in {}",
            self.device,
            yes(self.native, "native", "generic"),
            yes(self.zero_copy, "zero-copy", "copy"),
            yes(self.pieces, "pieces", "one piece"),
        )];
        lines.push(match &self.present {
            None => "device is gone".to_owned(),
            Some(d) => format!("index {} mtu {} {}", d.index, d.mtu, yes(d.carrier, "up", yes(d.up, "no carrier", "down"))),
        });
        if (self.queues.len() as u32) < self.available_queues {
            let (used, all) = (self.queues.len(), self.available_queues);
            lines.push(format!("{used} of {all} queues in use: frames of the others go to the kernel"));
        }
        if self.finishes_checksums {
            lines.push("checksums of kernel peers are finished on reception".to_owned());
        }
        lines.push(format!("rx ring {} tx ring {} entries", self.rx_size, self.tx_size));
        for (number, q) in self.queues.iter().enumerate() {
            lines.push(format!(
                "queue {number}: buffers lent rx {} tx {}; rx dropped {} ring full {}; fill ring empty {}; invalid fill {} tx {}",
                q.rx_lent, q.tx_lent, q.rx_dropped, q.rx_ring_full, q.fill_ring_empty, q.invalid.0, q.invalid.1,
            ));
        }
        lines
    }
}
