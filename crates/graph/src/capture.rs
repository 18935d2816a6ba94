//! `pcap trace`: copies of packets at rx, tx or drop, handed to a thread that writes them through a bounded channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;

use crate::IfIndex;
use crate::memory::Shared;
use crate::packet::Pkt;

/// Where packets are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// As received.
    Rx,
    /// As handed to the device.
    Tx,
    /// As dropped.
    Drop,
}

/// A copied packet.
#[derive(Debug)]
pub struct Captured {
    /// ns of the router's clock.
    pub time: u64,
    /// Where it was copied.
    pub point: CapturePoint,
    /// Interface (rx, or tx at [`CapturePoint::Tx`]).
    pub interface: IfIndex,
    /// Length of the whole packet.
    pub len: usize,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// What one worker is asked to copy.
#[derive(Clone)]
pub struct CaptureSink {
    /// Points to copy at.
    pub points: Vec<CapturePoint>,
    /// Only this interface.
    pub interface: Option<IfIndex>,
    /// Only drops with this error code.
    pub error: Option<u32>,
    /// Bytes to keep of each packet.
    pub max_bytes: usize,
    /// Packets that are still to be copied, by all workers together.
    pub left: Arc<AtomicU64>,
    /// Packets that were not copied because `to` was full.
    pub missed: Arc<AtomicU64>,
    /// Takes the copies; when it is full, copies are lost and counted in `missed`, packets never wait.
    pub to: Sender<Captured>,
}

/// A worker's captures.
#[derive(Default)]
pub struct Captures {
    sink: Option<CaptureSink>,
}

impl Captures {
    /// Starts or ends copying.
    pub(crate) fn set(&mut self, sink: Option<CaptureSink>) {
        self.sink = sink;
    }

    /// What is copied, for a thread that joins.
    pub(crate) fn sink(&self) -> Option<CaptureSink> {
        self.sink.clone()
    }

    #[inline(always)]
    pub(crate) fn active(&self) -> bool {
        self.sink.is_some()
    }

    pub(crate) fn copy(&mut self, point: CapturePoint, interface: IfIndex, time: u64, packet: &Pkt<'_, Shared>) {
        let Some(sink) = &self.sink else { return };
        let wanted = sink.points.contains(&point)
            && sink.interface.is_none_or(|i| i == interface)
            && (point != CapturePoint::Drop || sink.error.is_none_or(|e| e == packet.aux()));
        if !wanted {
            return;
        }
        let take = sink.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if take.is_err() {
            return;
        }
        let len = packet.total_len();
        let mut bytes = vec![0; len.min(sink.max_bytes)];
        packet.copy_out(0, &mut bytes);
        if sink.to.try_send(Captured { time, point, interface, len, bytes }).is_err() {
            sink.missed.fetch_add(1, Ordering::Relaxed);
            sink.left.fetch_add(1, Ordering::Relaxed);
        }
    }
}
