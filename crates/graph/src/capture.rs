//! `pcap trace` and `pcap stream`: copies of packets at rx, tx or drop, handed over through a bounded channel.

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

/// Whether a packet is wanted, by its first bytes and its length.
pub type Wanted = Arc<dyn Fn(&[u8], usize) -> bool + Send + Sync>;

/// Bytes of a packet that [`CaptureSink::wanted`] is asked about, at most.
const LOOKED_AT: usize = 512;

/// What one worker is asked to copy.
#[derive(Clone)]
pub struct CaptureSink {
    /// Which capture this is: no other one that runs has the number.
    pub id: u64,
    /// Points to copy at.
    pub points: Vec<CapturePoint>,
    /// Only this interface.
    pub interface: Option<IfIndex>,
    /// Only drops with this error code.
    pub error: Option<u32>,
    /// Only packets of which this says yes.
    pub wanted: Option<Wanted>,
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
    sinks: Vec<CaptureSink>,
}

impl Captures {
    /// Starts copying.
    pub(crate) fn add(&mut self, sink: CaptureSink) {
        self.remove(sink.id);
        self.sinks.push(sink);
    }

    /// Ends copying.
    pub(crate) fn remove(&mut self, id: u64) {
        self.sinks.retain(|sink| sink.id != id);
    }

    /// What is copied, for a thread that joins.
    pub(crate) fn sinks(&self) -> Vec<CaptureSink> {
        self.sinks.clone()
    }

    #[inline(always)]
    pub(crate) fn active(&self) -> bool {
        !self.sinks.is_empty()
    }

    pub(crate) fn copy(&mut self, point: CapturePoint, interface: IfIndex, time: u64, packet: &Pkt<'_, Shared>) {
        self.sinks.iter().for_each(|sink| sink.copy(point, interface, time, packet));
    }
}

impl CaptureSink {
    fn copy(&self, point: CapturePoint, interface: IfIndex, time: u64, packet: &Pkt<'_, Shared>) {
        let wanted = self.points.contains(&point)
            && self.interface.is_none_or(|i| i == interface)
            && (point != CapturePoint::Drop || self.error.is_none_or(|e| e == packet.aux()))
            && self.wants(packet);
        if !wanted {
            return;
        }
        let take = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if take.is_err() {
            return;
        }
        let len = packet.total_len();
        let mut bytes = vec![0; len.min(self.max_bytes)];
        packet.copy_out(0, &mut bytes);
        if self.to.try_send(Captured { time, point, interface, len, bytes }).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wants(&self, packet: &Pkt<'_, Shared>) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let mut room = [0; LOOKED_AT];
        let len = packet.copy_out(0, &mut room);
        wanted(room.get(..len).unwrap_or_default(), packet.total_len())
    }
}
