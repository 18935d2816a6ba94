//! `pcap stream`: copies of packets as lines of text, for `quiverctl capture` and Wireshark.
//!
//! ```text
//!   workers ── bounded channel ──► this job, a few copies a slice ──► the client's session
//! ```
//!
//! A client that does not read is not written to: the channel fills, copies are lost and counted, and no worker waits. The capture
//! ends with the client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::{CapturePoint, CaptureSink, Captured};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use serde::Serialize;

use super::{MAX_EVER, TO_FILE, WAITING_BYTES, frame, points, time_of_day, wanted};

/// Copies printed in one slice: some 50 µs.
const STEP: usize = 16;
/// Bytes printed in one slice, at least one copy.
const STEP_BYTES: usize = 16 << 10;
/// Copies that may wait.
const WAITING: usize = 4096;
/// How long to wait where there is nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// Numbers of streams.
static NEXT: AtomicU64 = AtomicU64::new(TO_FILE + 1);

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<Stream>().actions(&["pcap_stream"]).examples(&["pcap stream rx tx max 10 intfc host-eth1"]);
}

request! {
    /// Prints packets as they are received, sent or dropped, or come to nodes, a line each, until it is cancelled; `quiverctl capture` makes a file of it.
    pub change Stream "pcap_stream" ["pcap stream"] {
        /// Packets as received.
        pub rx: bool = "rx",
        /// Packets as sent.
        pub tx: bool = "tx",
        /// Packets that are dropped.
        pub drop: bool = "drop",
        /// Packets as they come to this node.
        pub nodes: Vec<String> = "node <node>",
        /// How many at most.
        pub max: u64 = "max <n>" default(1_000_000_000) range(1..=1_000_000_000),
        /// Bytes of each.
        pub max_bytes: usize = "max-bytes-per-pkt <n>" default(9216) range(1..=9216),
        /// Only on this interface.
        pub interface: Option<IfRef> = "intfc <if>",
        /// Only packets that this program chooses, as `tcpdump -ddd` prints it.
        pub bpf: Option<String> = "bpf <program>",
    }
}

const _: () = assert!(MAX_EVER == 1_000_000_000);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Streamed {
    /// Packets that were printed.
    pub packets: u64,
    /// Packets that were not, because the reader is too slow.
    pub missed: u64,
}

impl Text for Streamed {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{} packets, {} missed", self.packets, self.missed);
    }
}

impl Execute<Router> for Stream {
    type Reply = Streamed;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Streamed>, OpError> {
        let points = points(router, (self.rx, self.tx, self.drop), &self.nodes)?;
        let interface = self.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let wanted = wanted(self.bpf.as_deref())?;
        let (to, packets) = bounded((WAITING_BYTES / self.max_bytes).clamp(1, WAITING));
        let (id, left, missed) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::new(AtomicU64::new(self.max)), Arc::default());
        let sink = CaptureSink {
            id,
            points,
            every_node: false,
            interface,
            error: None,
            wanted,
            max_bytes: self.max_bytes,
            left,
            missed: Arc::clone(&missed),
            to,
        };
        let offset = time_of_day(router);
        router.graph.fleet().each(move |worker| worker.capture(sink.clone()));
        Ok(Outcome::job(Streaming { id, packets, missed, offset, max: self.max, printed: 0, ended: false }))
    }
}

struct Streaming {
    id: u64,
    packets: Receiver<Captured>,
    missed: Arc<AtomicU64>,
    /// What the time of day is ahead of the router's clock, ns.
    offset: u64,
    max: u64,
    printed: u64,
    /// Nothing is copied any more.
    ended: bool,
}

impl Streaming {
    fn end(&mut self, router: &mut Router) {
        if !self.ended {
            self.ended = true;
            let id = self.id;
            router.graph.fleet().each(move |worker| worker.end_capture(id));
        }
    }
}

/// A line: time of day in ns, where (`@` and its name for a node), number and name of the interface, length, bytes in hexadecimal.
fn line(out: &mut String, packet: Captured, offset: u64, router: &Router) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let _ = write!(out, "{} ", packet.time.saturating_add(offset));
    match packet.point {
        CapturePoint::Rx => out.push_str("rx"),
        CapturePoint::Tx => out.push_str("tx"),
        CapturePoint::Drop => out.push_str("drop"),
        CapturePoint::Node(id) => {
            out.push('@');
            out.push_str(router.graph.node_name(id));
        }
    }
    let (interface, name) = (packet.interface, router.interfaces.name(packet.interface));
    let (bytes, len) = frame(packet);
    let _ = write!(out, " {interface} {name} {len} ");
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().for_each(|byte| out.extend([digit(byte >> 4), digit(*byte)]));
    out.push('\n');
}

impl Job<Router, Streamed> for Streaming {
    fn step(&mut self, router: &mut Router, _: Duration) -> Step<Streamed> {
        let mut out = String::new();
        for _ in 0..STEP {
            match self.packets.try_recv() {
                Ok(packet) => {
                    self.printed += 1;
                    line(&mut out, packet, self.offset, router);
                    if out.len() >= STEP_BYTES {
                        break;
                    }
                }
                // All threads have let go of it.
                Err(TryRecvError::Disconnected) if out.is_empty() => {
                    return Step::Done(Ok(Streamed { packets: self.printed, missed: self.missed.load(Ordering::Relaxed) }));
                }
                Err(_) => break,
            }
        }
        if self.printed >= self.max {
            self.end(router);
        }
        if out.is_empty() { Step::Sleep(PAUSE) } else { Step::Print(out) }
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, router: &mut Router) {
        self.end(router);
    }
}

#[cfg(test)]
mod tests {
    use quiver_command::operation::run_to_end;
    use quiver_net::testing::{Harness, host_mac};
    use quiver_wire::build::Packet;

    use super::*;

    /// What comes of frames to a station that is not there, while a stream runs.
    fn stream(request: Stream, frames: usize) -> (Streamed, String) {
        let mut h = Harness::with_workers(2);
        let a = h.interface(0);
        let Outcome::Job(mut job) = request.execute(&mut h.router).unwrap() else { panic!("a job") };
        let frame = Packet::ethernet(host_mac(0), host_mac(9)).ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
        for n in 0..frames {
            h.inject_many(a, std::slice::from_ref(&frame), n);
        }
        h.run();
        job.cancel(&mut h.router);
        let mut printed = String::new();
        let streamed = run_to_end(&mut *job, &mut h.router, &mut printed, |_| ()).unwrap();
        (streamed, printed)
    }

    fn request() -> Stream {
        Stream { rx: false, tx: false, drop: true, nodes: Vec::new(), max: 100, max_bytes: 64, interface: None, bpf: None }
    }

    #[test]
    fn a_stream_prints_what_it_copies_and_ends_when_cancelled() {
        let (streamed, printed) = stream(request(), 40);
        assert_eq!((streamed, printed.lines().count()), (Streamed { packets: 40, missed: 0 }, 40));
        assert!(printed.lines().all(|line| line.contains(" drop 1 x0 ")), "{printed}");
        let (streamed, _) = stream(Stream { max: 3, ..request() }, 40);
        assert_eq!(streamed.packets, 3);
        let (streamed, _) = stream(Stream { bpf: Some("1,6 0 0 0".into()), ..request() }, 40);
        assert_eq!(streamed.packets, 0, "a program that wants nothing");
        let (streamed, _) = stream(Stream { bpf: Some("2,128 0 0 0,22 0 0 0".into()), ..request() }, 40);
        assert_eq!(streamed.packets, 40, "one that wants all");
    }

    #[test]
    fn a_line_has_time_place_interface_length_and_bytes() {
        let mut h = Harness::new();
        let name = h.interface(0);
        let node = h.router.graph.node("ip4-input").unwrap();
        let mut packet = Captured {
            time: 5,
            point: CapturePoint::Drop,
            interface: name,
            pulled: Vec::new(),
            len: 60,
            bytes: vec![0xab, 0x01],
            arrival: None,
        };
        let mut out = String::new();
        line(&mut out, Captured { bytes: packet.bytes.clone(), pulled: Vec::new(), arrival: None, ..packet }, 1_000, &h.router);
        // The header that was pulled is there again.
        (packet.point, packet.pulled) = (CapturePoint::Node(node), [&[0x22; 12][..], &[8, 0]].concat());
        line(&mut out, packet, 1_000, &h.router);
        assert_eq!(out, format!("1005 drop 1 x0 60 ab01\n1005 @ip4-input 1 x0 74 {}0800ab01\n", "22".repeat(12)));
    }

    #[test]
    fn packets_are_copied_in_front_of_nodes_as_frames() {
        let node = |name: &str| Stream { drop: false, nodes: vec![name.into()], ..request() };
        let (streamed, printed) = stream(node("error-drop"), 40);
        assert_eq!((streamed.packets, printed.lines().count()), (40, 40));
        assert!(printed.lines().all(|line| line.contains(" @error-drop 1 x0 ")), "{printed}");
        // A filter sees them as frames, headers that nodes have taken off included: `ether[12:2] = 0x0800'.
        let ip4 = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0";
        let (streamed, _) = stream(Stream { bpf: Some(ip4.into()), ..node("error-drop") }, 40);
        assert_eq!(streamed.packets, 40);
        let (streamed, _) = stream(Stream { drop: true, ..node("error-drop") }, 40);
        assert_eq!(streamed.packets, 80, "as dropped, too");
    }

    #[test]
    fn what_cannot_be_streamed_is_refused() {
        let mut h = Harness::new();
        let error = |h: &mut Harness, request: Stream| request.execute(&mut h.router).err().unwrap().to_string();
        assert!(error(&mut h, Stream { drop: false, ..request() }).contains("nothing to capture"));
        let unknown = error(&mut h, Stream { nodes: vec!["ip4-inptu".into()], ..request() });
        assert!(unknown.contains("no such node") && unknown.contains("did you mean `ip4-input'"), "{unknown}");
        let input = error(&mut h, Stream { nodes: vec!["pg-input".into()], ..request() });
        assert!(input.contains("gets no packets from other nodes") && input.contains("`rx'"), "{input}");
        let wrong = error(&mut h, Stream { bpf: Some("1,0 0 0 0".into()), ..request() });
        assert!(wrong.contains("the last instruction does not return") && wrong.contains("tcpdump -ddd"), "{wrong}");
    }
}
