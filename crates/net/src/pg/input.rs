//! `pg-input`: sends the packets of the streams that run on this worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quiver_graph::{ArcPoint, Idle, IfIndex, InputNode, NoDrops, NoNext, NodeCx, Verdict};

use super::stream::Maker;

/// What the control side sees of a stream at work; on lines of its own, because the worker counts here.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shared {
    /// Packets sent since it was enabled.
    pub sent: AtomicU64,
    /// Whether it is enabled: `false` only when everything sent has left the graph.
    pub enabled: AtomicBool,
}

/// A stream on a worker.
pub(crate) struct Active {
    pub name: String,
    pub maker: Maker,
    pub interface: IfIndex,
    pub next: Verdict,
    /// They go on as from a device: past the features of the interface's `device-input` arc.
    pub device: bool,
    pub left: Option<u64>,
    pub max_frame: usize,
    /// ns between packets, and when the next one is due; `None`: no pause.
    pub pace: Option<(f64, f64)>,
    pub shared: Arc<Shared>,
}

/// The node.
pub(crate) struct PgInput {
    streams: Vec<Active>,
    arc: ArcPoint,
}

impl PgInput {
    /// One without streams, on the arc of devices.
    pub(crate) fn new(arc: ArcPoint) -> Self {
        Self { streams: Vec::new(), arc }
    }

    pub(crate) fn start(&mut self, stream: Active) {
        self.stop(&stream.name);
        stream.shared.enabled.store(true, Ordering::Release);
        self.streams.push(stream);
    }

    /// Gives all streams away, to go on elsewhere.
    pub(crate) fn take(&mut self) -> Vec<Active> {
        std::mem::take(&mut self.streams)
    }

    /// Goes on with a stream from another thread.
    pub(crate) fn resume(&mut self, stream: Active) {
        self.streams.push(stream);
    }

    /// Sends what is due.
    #[inline(never)]
    fn send(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let (now, thread) = (cx.now(), cx.thread());
        let mut packets = 0;
        self.streams.retain_mut(|stream| {
            if stream.left == Some(0) {
                // Everything sent in the last turn has been run to its end by now.
                stream.shared.enabled.store(false, Ordering::Release);
                return false;
            }
            let n = stream.due(now, stream.max_frame.min(cx.vector_size()));
            let mut frame = cx.new_frame();
            let mut bytes = 0;
            for _ in 0..n {
                let packet = stream.maker.next();
                if !cx.push_bytes(&mut frame, packet, stream.interface) {
                    break;
                }
                bytes += packet.len() as u64;
            }
            let sent = frame.len() as u64;
            cx.interfaces().rx.add(thread, stream.interface.0, sent, bytes);
            cx.capture_received(&mut frame, stream.interface);
            let next = if stream.device { self.arc.next(stream.interface, stream.next) } else { stream.next };
            cx.send(next, frame);
            stream.left = stream.left.map(|left| left - sent);
            stream.shared.sent.fetch_add(sent, Ordering::Relaxed);
            packets += sent as usize;
            true
        });
        packets
    }

    pub(crate) fn stop(&mut self, name: &str) {
        for stream in self.streams.extract_if(.., |s| s.name == name) {
            stream.shared.enabled.store(false, Ordering::Release);
        }
    }
}

impl Active {
    /// How many packets are due now.
    fn due(&mut self, now: u64, most: usize) -> usize {
        let most = self.left.map_or(most, |left| most.min(usize::try_from(left).unwrap_or(most)));
        let Some((gap, next)) = &mut self.pace else { return most };
        let late = now as f64 - *next;
        if late < 0.0 {
            return 0;
        }
        // What could not be sent in time is sent later, up to a vector at once; a backlog beyond a second is given up, so
        // that a stream that was held up does not flood what comes after.
        if late > 1e9 {
            *next = now as f64 - 1e9;
        }
        let due = (((now as f64 - *next) / *gap) as usize + 1).min(most);
        *next += *gap * due as f64;
        due
    }
}

impl InputNode for PgInput {
    type Next = NoNext;
    type Drop = NoDrops;

    fn idle(&self) -> bool {
        self.streams.is_empty()
    }

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        self.send(cx)
    }

    fn arm(&mut self, _now: u64) -> Idle {
        let mut until: Option<u64> = None;
        for stream in &self.streams {
            match stream.pace {
                Some((_, next)) if stream.left != Some(0) => until = Some(until.map_or(next as u64, |u| u.min(next as u64))),
                _ => return Idle::Busy,
            }
        }
        Idle::Sleep { until }
    }
}
