//! `pcap trace`, `pcap stream` and `pcap dispatch trace`: copies of packets at rx, tx, drop or in front of nodes, handed over through a
//! bounded channel.

mod arrival;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;

use crate::IfIndex;
use crate::context::NodeId;
use crate::memory::Shared;
use crate::packet::Pkt;

pub use arrival::Arrival;

/// Where packets are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// As received.
    Rx,
    /// As handed to the device.
    Tx,
    /// As dropped.
    Drop,
    /// As it comes to an internal node.
    Node(NodeId),
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
    /// Bytes that nodes have pulled off the front since the packet was received, as far as a link header goes; empty but at
    /// [`CapturePoint::Node`].
    pub pulled: Vec<u8>,
    /// Length of the whole packet, without `pulled`.
    pub len: usize,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// The rest of its state, where [`CaptureSink::every_node`] asks for it.
    pub arrival: Option<Box<Arrival>>,
}

/// Whether a packet is wanted, by what was pulled off its front ([`Captured::pulled`]), its first bytes and its length.
pub type Wanted = Arc<dyn Fn(&[u8], &[u8], usize) -> bool + Send + Sync>;

/// Bytes of a packet that a [`Wanted`] is asked about, at most.
const LOOKED_AT: usize = 512;

/// What a filter says of a packet.
pub(crate) fn wants(wanted: Option<&Wanted>, pulled: &[u8], packet: &Pkt<'_, Shared>) -> bool {
    let Some(wanted) = wanted else { return true };
    let mut room = [0; LOOKED_AT];
    let len = packet.copy_out(0, &mut room);
    wanted(pulled, room.get(..len).unwrap_or_default(), packet.total_len())
}

/// What one worker is asked to copy.
#[derive(Clone)]
pub struct CaptureSink {
    /// Which capture this is: no other one that runs has the number.
    pub id: u64,
    /// Points to copy at.
    pub points: Vec<CapturePoint>,
    /// Every internal node is such a point, and copies have their [`Arrival`].
    pub every_node: bool,
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

    /// A node is removed. Its number may be given to another node, whose packets nobody asked for.
    pub(crate) fn forget_node(&mut self, id: u16) {
        self.sinks.iter_mut().for_each(|sink| sink.points.retain(|point| *point != CapturePoint::Node(NodeId(id))));
    }

    /// What is copied, for a thread that joins.
    pub(crate) fn sinks(&self) -> Vec<CaptureSink> {
        self.sinks.clone()
    }

    #[inline(always)]
    pub(crate) fn active(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// Whether packets are copied in front of nodes.
    pub(crate) fn at_nodes(&self) -> bool {
        self.sinks.iter().any(|sink| sink.every_node || sink.points.iter().any(|point| matches!(point, CapturePoint::Node(_))))
    }

    pub(crate) fn copy(&mut self, point: CapturePoint, interface: IfIndex, time: u64, packet: &Pkt<'_, Shared>) {
        self.sinks.iter().filter(|sink| sink.asks_for(point)).for_each(|sink| {
            sink.copy(point, interface, time, packet, Vec::new(), || None);
        });
    }
}

impl CaptureSink {
    /// Whether it copies at a point, and has not copied all packets yet.
    fn asks_for(&self, point: CapturePoint) -> bool {
        let is_point = self.points.contains(&point) || self.every_node && matches!(point, CapturePoint::Node(_));
        is_point && self.left.load(Ordering::Relaxed) > 0
    }

    fn copy(
        &self,
        point: CapturePoint,
        interface: IfIndex,
        time: u64,
        packet: &Pkt<'_, Shared>,
        pulled: Vec<u8>,
        arrival: impl FnOnce() -> Option<Box<Arrival>>,
    ) {
        let wanted = self.interface.is_none_or(|i| i == interface)
            && (point != CapturePoint::Drop || self.error.is_none_or(|e| e == packet.aux()))
            && wants(self.wanted.as_ref(), &pulled, packet);
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
        let arrival = arrival();
        if self.to.try_send(Captured { time, point, interface, pulled, len, bytes, arrival }).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }
}
