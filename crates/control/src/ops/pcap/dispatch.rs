//! `pcap dispatch trace`: packets as they come to every node, with what the nodes know of them, for Wireshark.
//!
//! ```text
//!   workers, in front of each node ── channel with room for all ──► `off': traces put into words, then written by another thread
//! ```
//!
//! Copies stay in memory until the end, because only then the main thread can put traces into words. So their number is bounded.

mod record;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute, Value};
use quiver_graph::{CapturePoint, CaptureSink, Captured, TRACE_MAX, TraceMark, TraceRecord};
use quiver_net::files::{Elsewhere, Files, NewFile, Place, Use};
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use quiver_wire::pcapfile::{LinkType, Writer};
use serde::{Deserialize, Serialize};

use super::{Written, points, time_of_day, wanted};
use crate::ops::trace;

/// Memory of a copy beside its bytes.
const BESIDE: usize = 320;
/// Memory of all copies at most.
const MEMORY: usize = 256 << 20;
/// Traces that are put into words before the thread is given back.
const AT_ONCE: usize = 16;
/// Number of this capture.
const ID: u64 = u64::MAX;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<StartDispatch>()
        .declare::<StopDispatch>()
        .declare::<DispatchStatus>()
        .actions(&["pcap_dispatch_trace_on", "pcap_dispatch_trace_off"])
        .examples(&["pcap dispatch trace on max 1000 file dispatch.pcap buffer-trace pg-input 100"]);
}

/// A dispatch trace that runs. A part of the router while it does.
struct Recording {
    max: u64,
    left: Arc<AtomicU64>,
    packets: Receiver<Captured>,
    file: NewFile,
    place: Place,
}

/// Packets of an input node that are traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferTrace {
    /// The node.
    pub node: String,
    /// How many on each thread.
    pub count: u32,
}

impl Value for BufferTrace {
    const KIND: &'static str = "input node and number";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        let node = args.word(argument.what())?.into_owned();
        Ok(Self { node, count: args.number_in("count", 1..=TRACE_MAX as u32)? })
    }

    fn text(&self) -> String {
        format!("{} {}", Value::text(&self.node), self.count)
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        let good = (1..=TRACE_MAX).contains(&(self.count as usize));
        if good { Ok(()) } else { Err(argument.out_of_range(self.count)) }
    }
}

request! {
    /// Copies packets as they come to each node, with what nodes know of them, for Wireshark; fused chains do not run meanwhile.
    pub change StartDispatch "pcap_dispatch_trace_on" ["pcap dispatch trace on"] {
        /// How many visits of packets at nodes, at most.
        pub max: u64 = "max <n>" default(1000) range(1..=100_000),
        /// Bytes of each packet.
        pub max_bytes: usize = "max-bytes-per-pkt <n>" default(512) range(1..=9216),
        /// Name of a file, or its path; `dispatch.pcap` unless given.
        pub file: Option<String> = "file <name>",
        /// Only in front of these nodes.
        pub nodes: Vec<String> = "node <node>",
        /// Only packets that came in by this interface.
        pub interface: Option<IfRef> = "intfc <if>",
        /// Traces the next packets of an input node too: what `show trace` says of them stands in the file.
        pub buffer_trace: Option<BufferTrace> = "buffer-trace <input-node> <n>" range(1..=TRACE_MAX as u64),
        /// Only packets that this program chooses, as `tcpdump -ddd` prints it.
        pub bpf: Option<String> = "bpf <program>",
    }
}

impl Execute<Router> for StartDispatch {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let most = MEMORY / (self.max_bytes + BESIDE);
        if self.max as usize > most {
            let error = OpError::invalid("max", self.max, "too many to be kept in memory");
            return Err(error.remedy(format!("at most {most} with {} bytes of each", self.max_bytes)));
        }
        let nodes = if self.nodes.is_empty() { Vec::new() } else { points(router, (false, false, false), &self.nodes)? };
        let interface = self.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let traced = match &self.buffer_trace {
            Some(traced) => Some((trace::input_node(router, &traced.node)?, traced.count)),
            None => None,
        };
        let wanted = wanted(self.bpf.as_deref())?;
        if router.part::<Recording>().is_some() {
            let error = OpError::new(retval::VALUE_EXIST, "a dispatch trace runs already");
            return Err(error.remedy("end it with `pcap dispatch trace off'"));
        }
        let place = Files::place(router, self.file.unwrap_or_else(|| "dispatch.pcap".to_owned()), Use::Write)?;
        let (begin, max, max_bytes) = (place.clone(), self.max, self.max_bytes);
        let create = move || begin.create().map_err(|error| begin.no_capture("write", &error));
        Ok(Outcome::job(
            Elsewhere::new(create, move |router: &mut Router, file| {
                let (to, packets) = bounded(max as usize);
                let left = Arc::new(AtomicU64::new(max));
                let sink = CaptureSink {
                    id: ID,
                    every_node: nodes.is_empty(),
                    points: nodes,
                    interface,
                    error: None,
                    wanted: wanted.clone(),
                    max_bytes,
                    left: Arc::clone(&left),
                    missed: Arc::default(),
                    to,
                };
                if let Some((node, count)) = traced {
                    trace::add(router, node, count, wanted);
                }
                router.graph.fleet().each(move |worker| worker.capture(sink.clone()));
                router.add_part(Recording { max, left, packets, file, place });
                Ok(())
            })
            .alone(),
        ))
    }
}

request! {
    /// Ends a dispatch trace and writes its file.
    pub change StopDispatch "pcap_dispatch_trace_off" ["pcap dispatch trace off"] {}
}

impl Execute<Router> for StopDispatch {
    type Reply = Written;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Written>, OpError> {
        let Some(recording) = router.take_part::<Recording>() else {
            return Err(OpError::unspecified("no dispatch trace runs").remedy("start one with `pcap dispatch trace on'"));
        };
        router.graph.fleet().each(|worker| worker.end_capture(ID));
        let mut packets: Vec<Captured> = recording.packets.try_iter().collect();
        // A thread's are in order, those of one poll iteration with the same time.
        packets.sort_by_key(|packet| packet.time);
        let traced = traces(router, &packets);
        let node = |packet: &Captured| match packet.point {
            CapturePoint::Node(id) => Some((id.0, router.graph.node_name(id).to_owned())),
            _ => None,
        };
        let nodes = packets.iter().filter_map(node).collect();
        let interfaces = packets.iter().map(|packet| packet.interface);
        let interfaces = interfaces.map(|interface| (interface, router.interfaces.name(interface).to_string())).collect();
        let offset = time_of_day(router);
        let material = Material { packets, nodes, interfaces, texts: HashMap::new(), offset };
        let Recording { file, place, .. } = recording;
        Ok(Outcome::job(Ending::Words { traced, material, file, place }))
    }
}

/// Which trace, of which thread.
type TraceKey = (usize, u32);

fn key(packet: &Captured) -> Option<(TraceKey, TraceMark)> {
    let arrival = packet.arrival.as_ref()?;
    arrival.trace.map(|mark| ((arrival.thread, mark.trace), mark))
}

/// The traces of these packets. Those that were cleared meanwhile are gone.
fn traces(router: &mut Router, packets: &[Captured]) -> Vec<(TraceKey, TraceRecord)> {
    let keys: Arc<HashSet<TraceKey>> = Arc::new(packets.iter().filter_map(|packet| Some(key(packet)?.0)).collect());
    if keys.is_empty() {
        return Vec::new();
    }
    let found = router.graph.fleet().each(move |worker| {
        let thread = worker.thread();
        let traces = worker.numbered_traces(|trace| keys.contains(&(thread, trace)));
        traces.into_iter().map(move |(trace, record)| ((thread, trace), record)).collect::<Vec<_>>()
    });
    found.into_iter().flatten().collect()
}

/// All that the file is made of.
#[derive(Default)]
struct Material {
    packets: Vec<Captured>,
    nodes: HashMap<u16, String>,
    interfaces: HashMap<IfIndex, String>,
    /// What was traced, by station.
    texts: HashMap<TraceKey, Vec<String>>,
    /// What the time of day is ahead of the router's clock, ns.
    offset: u64,
}

impl Material {
    fn write(&self, file: NewFile) -> io::Result<usize> {
        let mut writer = Writer::new(BufWriter::new(file), LinkType::DISPATCH_TRACE)?;
        for packet in &self.packets {
            let CapturePoint::Node(id) = packet.point else { continue };
            let node = self.nodes.get(&id.0).map_or("a removed node", String::as_str);
            let interface = self.interfaces.get(&packet.interface).map_or("", String::as_str);
            let trace = key(packet).and_then(|(key, mark)| Some(self.texts.get(&key)?.get(..mark.entries)?.concat()));
            let record = record::record(packet, node, interface, trace.as_deref());
            let len = record.len() + packet.len.saturating_sub(packet.bytes.len());
            writer.write(packet.time.saturating_add(self.offset), &record, len)?;
        }
        let mut buffered = writer.finish()?;
        buffered.flush()?;
        let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        if !self.packets.is_empty() {
            file.finish()?;
        }
        Ok(self.packets.len())
    }
}

/// The end of a dispatch trace.
enum Ending {
    /// Traces are put into words.
    Words { traced: Vec<(TraceKey, TraceRecord)>, material: Material, file: NewFile, place: Place },
    /// Another thread writes.
    Writing(Elsewhere<usize, Written>),
    /// Between the two.
    Turning,
}

impl Ending {
    fn write(material: Material, file: NewFile, place: Place) -> Self {
        let failing = place.clone();
        let write = move || material.write(file).map_err(|error| failing.no_capture("write", &error));
        Self::Writing(Elsewhere::new(write, move |_, packets| {
            Ok(Written { packets, missed: 0, file: (packets > 0).then(|| place.path().to_owned()) })
        }))
    }
}

impl Job<Router, Written> for Ending {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<Written> {
        match std::mem::replace(self, Self::Turning) {
            Self::Words { mut traced, mut material, file, place } => {
                let rest = traced.len().saturating_sub(AT_ONCE);
                for (key, record) in traced.drain(rest..) {
                    material.texts.insert(key, trace::station_texts(router, &record));
                }
                *self = if rest > 0 { Self::Words { traced, material, file, place } } else { Self::write(material, file, place) };
                Step::Again
            }
            Self::Writing(mut writing) => {
                let step = writing.step(router, budget);
                *self = Self::Writing(writing);
                step
            }
            Self::Turning => Step::Done(Err(OpError::unspecified("cancelled"))),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Writing(writing) => writing.poll_ready(context),
            _ => Poll::Ready(()),
        }
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, router: &mut Router) {
        // The other thread writes what there is, without the traces that are not in words yet. Nobody waits for it.
        *self = match std::mem::replace(self, Self::Turning) {
            Self::Words { material, file, place, .. } => Self::write(material, file, place),
            other => other,
        };
        if let Self::Writing(writing) = self {
            writing.cancel(router);
        }
    }
}

request! {
    /// Shows how far a dispatch trace is.
    pub read DispatchStatus "pcap_dispatch_trace_status" ["pcap dispatch trace status"] {}
}

/// The answer of [`DispatchStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DispatchState {
    /// Whether one runs.
    pub running: bool,
    /// Visits of packets at nodes so far.
    pub packets: u64,
    /// So many at most.
    pub max: u64,
    /// Where they will be.
    pub file: Option<PathBuf>,
}

impl Execute<Router> for DispatchStatus {
    type Reply = DispatchState;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, DispatchState>, OpError> {
        let state = router.part::<Recording>().map(|recording| DispatchState {
            running: true,
            packets: recording.max - recording.left.load(Ordering::Relaxed).min(recording.max),
            max: recording.max,
            file: Some(recording.place.path().to_owned()),
        });
        Ok(Outcome::Done(state.unwrap_or_default()))
    }
}

impl Text for DispatchState {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.file.as_ref().filter(|_| self.running) {
            Some(file) => {
                writeln!(out, "pcap dispatch capture is on: {} of {} pkts, to {}", self.packets, self.max, file.display())
            }
            None => writeln!(out, "pcap dispatch capture is off"),
        };
    }
}

#[cfg(test)]
mod tests {
    use quiver_command::operation::run_to_end;
    use quiver_net::testing::Harness;
    use quiver_wire::pcapfile::{CapturedPacket, Reader};

    use super::*;
    use crate::ops::testing::{OwnFolder, error, run};

    fn strings(packet: &CapturedPacket) -> Vec<String> {
        let count = usize::from(packet.bytes[2]);
        packet.bytes[8..].split(|byte| *byte == 0).take(count).map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    }

    fn read(place: &std::path::Path) -> Vec<CapturedPacket> {
        Reader::new(std::fs::File::open(place).unwrap()).unwrap().map(Result::unwrap).collect()
    }

    /// A router whose packet generator sends `packets` to a station that is not there when it is enabled.
    fn scene(packets: usize) -> Harness {
        let mut h = Harness::new();
        run(&mut h.router, "create packet-generator interface pg0");
        run(&mut h.router, "set interface state pg0 up");
        let data = "{ IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 1.1.1.1 -> 2.2.2.2 UDP: 1 -> 2 incrementing 30 }";
        run(&mut h.router, &format!("packet-generator new {{ name x limit {packets} interface pg0 data {data} }}"));
        h
    }

    fn send(h: &mut Harness) {
        run(&mut h.router, "packet-generator enable");
        h.run();
    }

    #[test]
    fn every_node_of_a_packet_is_in_the_file_in_order() {
        let mut h = scene(2);
        let folder = OwnFolder::of(&mut h.router, "dispatch");
        run(&mut h.router, "pcap dispatch trace on max 100 file d.pcap buffer-trace pg-input 1");
        send(&mut h);
        assert!(run(&mut h.router, "pcap dispatch trace status").contains("capture is on: "));
        let said = run(&mut h.router, "pcap dispatch trace off");
        let packets = read(&folder.0.join("d.pcap"));
        assert!(said.starts_with(&format!("Write {} packets to ", packets.len())), "{said}");
        assert!(packets.iter().all(|packet| packet.link_type == LinkType::DISPATCH_TRACE));
        let nodes: Vec<String> = packets.iter().map(|packet| strings(packet)[0].clone()).collect();
        assert_eq!(nodes.first().map(String::as_str), Some("ethernet-input"), "{nodes:?}");
        assert_eq!(nodes.last().map(String::as_str), Some("error-drop"), "{nodes:?}");
        // Two packets at each node; one of them is traced, and says where it was before.
        let last: Vec<Vec<String>> = packets.iter().rev().take(2).map(strings).collect();
        let mut traced = last.iter().filter_map(|strings| strings.get(4));
        let text = traced.next().expect("a trace");
        assert!(text.contains(": pg-input") && text.contains(": ethernet-input") && !text.contains(": error-drop"), "{text}");
        assert_eq!(traced.next(), None);
        assert!(packets[0].bytes.windows(6).any(|bytes| bytes == [2, 0, 0, 0, 0, 2]));
        assert_eq!(run(&mut h.router, "pcap dispatch trace status"), "pcap dispatch capture is off\n");
    }

    #[test]
    fn it_can_be_limited_to_nodes_and_a_number() {
        let mut h = scene(10);
        let folder = OwnFolder::of(&mut h.router, "dispatch-few");
        run(&mut h.router, "pcap dispatch trace on max 3 node error-drop");
        send(&mut h);
        assert!(run(&mut h.router, "pcap dispatch trace off").starts_with("Write 3 packets to "));
        let packets = read(&folder.0.join("dispatch.pcap"));
        assert!(packets.len() == 3 && packets.iter().all(|packet| strings(packet)[0] == "error-drop"));
        // Nothing came: no file.
        run(&mut h.router, "pcap dispatch trace on file none.pcap");
        assert_eq!(run(&mut h.router, "pcap dispatch trace off"), "No packets captured...\n");
        assert!(!folder.0.join("none.pcap").exists());
    }

    #[test]
    fn mistakes_change_nothing() {
        let mut h = Harness::new();
        let _folder = OwnFolder::of(&mut h.router, "dispatch-mistakes");
        for (line, said) in [
            ("pcap dispatch trace off", "no dispatch trace runs"),
            ("pcap dispatch trace on max 100000 max-bytes-per-pkt 9216", "too many to be kept in memory (max 100000); at most "),
            ("pcap dispatch trace on node pg-input", "gets no packets from other nodes"),
            ("pcap dispatch trace on buffer-trace ip4-input 5", "doesn't support per-node tracing"),
            ("pcap dispatch trace on buffer-trace pg-input 0", "expected 1 to 65536"),
            ("pcap dispatch trace on bpf 1,0", "tcpdump -ddd"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(said), "{line}: {error}");
        }
        assert_eq!(run(&mut h.router, "pcap dispatch trace status"), "pcap dispatch capture is off\n");
        run(&mut h.router, "pcap dispatch trace on");
        assert!(error(&mut h.router, "pcap dispatch trace on").contains("a dispatch trace runs already"));
    }

    #[test]
    fn many_traces_are_put_into_words_in_slices() {
        let mut h = scene(100);
        let folder = OwnFolder::of(&mut h.router, "dispatch-many");
        run(&mut h.router, "pcap dispatch trace on buffer-trace pg-input 100");
        send(&mut h);
        let Outcome::Job(mut job) = StopDispatch {}.execute(&mut h.router).unwrap() else { panic!("a job") };
        let slices = 100_usize.div_ceil(AT_ONCE);
        for _ in 0..slices {
            assert!(matches!(job.step(&mut h.router, Duration::ZERO), Step::Again));
        }
        let written = run_to_end(&mut *job, &mut h.router, &mut String::new(), |_| ()).unwrap();
        let packets = read(&folder.0.join("dispatch.pcap"));
        assert_eq!(written.packets, packets.len());
        assert!(packets.len() >= 200 && packets.iter().all(|packet| strings(packet).len() == 5));
    }
}
