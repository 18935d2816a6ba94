//! `pcap trace`: copies of packets at rx, tx, drop and in front of nodes, written to a file while it runs. `pcap stream` prints them
//! instead; `pcap dispatch trace` keeps them with what nodes know of them.
//!
//! ```text
//!   workers ── bounded channel ──► writer thread: sorts by time ── new file ── renamed to its name by `pcap trace off'
//! ```
//!
//! However long a capture is, it takes a bounded amount of memory. A worker never waits: where the disk is slower than the
//! packets, copies are lost and counted. A file that cannot be written ends the capture, not the router.

mod dispatch;
mod stream;
mod writer;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::bounded;
use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::Empty;
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_graph::{CapturePoint, CaptureSink, Captured, NodeKind, Wanted};
use quiver_net::Router;
use quiver_net::files::{Elsewhere, Files, NewFile, Place, Use};
use quiver_net::interface::ops::resolve;
use quiver_wire::bpf::Program;
use quiver_wire::pcapfile::missing_header;
use serde::{Deserialize, Serialize};
use writer::Writing;

use super::node::no_such_node;
use crate::system::System;

/// Packets taken where no number is given.
const MAX: usize = 1000;
/// Bytes of each packet taken where no number is given.
const MAX_BYTES: usize = 512;
/// Packets that may be taken at most.
const MAX_EVER: usize = 1_000_000_000;
/// Bytes of copies that may wait to be written, and how many copies at most.
const WAITING_BYTES: usize = 32 << 20;
const WAITING: usize = 65_536;

/// Number of the capture that goes to a file; those of streams follow.
const TO_FILE: u64 = 0;

/// A capture that runs, if one does.
#[derive(Default)]
pub struct Recorder(Option<Recording>);

struct Recording {
    request: StartRequest,
    place: Place,
    left: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
    writing: Writing,
}

impl Recording {
    fn taken(&self) -> usize {
        self.request.max.saturating_sub(usize::try_from(self.left.load(Ordering::Relaxed)).unwrap_or(0))
    }
}

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    stream::register(registry);
    dispatch::register(registry);
    registry.operation::<StartCapture>().operation::<StopCapture>().operation::<CaptureStatus>().command_of::<StartCapture>(Command {
        path: "pcap trace",
        syntax: "[rx] [tx] [drop] [node <node>]... [off] [status] [max <n>] [max-bytes-per-pkt <n>] [intfc <if>|any] [file <name>] [error <node.reason>] [filter] [bpf <program>]",
        help: "Copies packets where they are received, sent or dropped, or in front of nodes, to a file, which has its name when it is switched off",
        parse,
    });
}

fn parse(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = StartRequest::default();
    while !args.is_empty() {
        if args.take_keyword("rx") {
            request.rx = true;
        } else if args.take_keyword("tx") {
            request.tx = true;
        } else if args.take_keyword("drop") {
            request.drop = true;
        } else if args.take_keyword("node") {
            request.nodes.push(args.word("node")?.into_owned());
        } else if args.take_keyword("off") {
            return Ok(Invocation::new::<StopCapture>(Empty {}));
        } else if args.take_keyword("status") {
            return Ok(Invocation::new::<CaptureStatus>(Empty {}));
        } else if args.take_keyword("max-bytes-per-pkt") {
            request.max_bytes = args.number("max-bytes-per-pkt")?;
        } else if args.take_keyword("max") {
            request.max = args.number("max")?;
        } else if args.take_keyword("intfc") || args.take_keyword("interface") {
            request.interface = if args.take_exact("any") { None } else { Some(args.interface()?) };
        } else if args.take_keyword("file") {
            request.file = Some(args.word("file")?.into_owned());
        } else if args.take_keyword("error") {
            request.error = Some(args.word("error")?.into_owned());
        } else if args.take_keyword("bpf") {
            request.bpf = Some(args.word("bpf")?.into_owned());
        } else if args.take_keyword("filter") {
            // quiverctl has made a program of an expression behind it.
            if !args.is_empty() {
                let error = OpError::unspecified("the router takes filters as programs").key("filter");
                return Err(error.remedy("`quiverctl pcap trace … filter <expression>' compiles the expression; or `bpf <program>', as `tcpdump -ddd' prints it"));
            }
            request.filter = true;
        } else if args.take_keyword("preallocate-data") || args.take_keyword("free-data") {
            // Copies take memory until they are written, and no more.
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<StartCapture>(request))
}

/// Starts a capture.
pub struct StartCapture;

/// What [`StartCapture`] copies.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StartRequest {
    /// Packets as received.
    pub rx: bool,
    /// Packets as sent.
    pub tx: bool,
    /// Packets that are dropped.
    pub drop: bool,
    /// Packets as they come to these nodes.
    pub nodes: Vec<String>,
    /// How many at most.
    pub max: usize,
    /// Bytes of each.
    pub max_bytes: usize,
    /// Only on this interface.
    pub interface: Option<IfRef>,
    /// Name of a file, or its path; `rx.pcap` and the like where missing.
    pub file: Option<String>,
    /// Only drops for this reason, `node.reason`.
    pub error: Option<String>,
    /// Only packets that this program chooses, as `tcpdump -ddd` prints it.
    pub bpf: Option<String>,
    /// Only packets that `classify filter` chooses for captures; none while nothing is chosen.
    pub filter: bool,
}

impl Default for StartRequest {
    fn default() -> Self {
        Self {
            rx: false,
            tx: false,
            drop: false,
            nodes: Vec::new(),
            max: MAX,
            max_bytes: MAX_BYTES,
            interface: None,
            file: None,
            error: None,
            bpf: None,
            filter: false,
        }
    }
}

/// What a program wants, in the words of its errors. It sees every packet as an Ethernet frame.
pub(super) fn wanted(bpf: Option<&str>) -> Result<Option<Wanted>, OpError> {
    let Some(text) = bpf else { return Ok(None) };
    let wrong = |error: quiver_wire::bpf::BpfError| {
        OpError::new(retval::INVALID_VALUE, error.to_string())
            .key("bpf")
            .remedy("give what `tcpdump -ddd -y EN10MB <expression>' prints")
    };
    let program = Program::parse(text).map_err(wrong)?;
    Ok(Some(Arc::new(move |pulled: &[u8], bytes: &[u8], len| {
        let header = missing_header(pulled, bytes, len);
        match header.len() {
            0 => program.wants(bytes, len),
            more => program.wants(&[&header, bytes].concat(), more + len),
        }
    })))
}

/// What two filters want, of those that there are.
pub(super) fn both(one: Option<Wanted>, other: Option<Wanted>) -> Option<Wanted> {
    match (one, other) {
        (Some(one), Some(other)) => {
            Some(Arc::new(move |pulled: &[u8], bytes: &[u8], len| one(pulled, bytes, len) && other(pulled, bytes, len)))
        }
        (one, other) => one.or(other),
    }
}

/// A word without the braces that VPP's users write around it.
fn bare(word: &str) -> &str {
    word.strip_prefix('{').and_then(|word| word.strip_suffix('}')).unwrap_or(word)
}

/// A copied packet as an Ethernet frame, and its length.
fn frame(packet: Captured) -> (Vec<u8>, usize) {
    let mut frame = missing_header(&packet.pulled, &packet.bytes, packet.len);
    let len = frame.len() + packet.len;
    if frame.is_empty() {
        return (packet.bytes, len);
    }
    frame.extend(packet.bytes);
    (frame, len)
}

/// Where packets are copied.
///
/// # Errors
/// Nowhere, or in front of a node that is not there or gets no packets from others.
fn points(router: &Router, (rx, tx, drop): (bool, bool, bool), nodes: &[String]) -> Result<Vec<CapturePoint>, OpError> {
    let all = [(rx, CapturePoint::Rx), (tx, CapturePoint::Tx), (drop, CapturePoint::Drop)];
    let mut points: Vec<CapturePoint> = all.into_iter().filter(|(on, _)| *on).map(|(_, point)| point).collect();
    for name in nodes {
        let node = router.graph.nodes().into_iter().find(|node| node.name == *name).ok_or_else(|| no_such_node(router, name))?;
        if node.kind == NodeKind::Input {
            let error = OpError::new(retval::UNSUPPORTED, "an input node gets no packets from other nodes").key("node").value(name);
            return Err(error.remedy("capture what it brings in with `rx'"));
        }
        points.push(CapturePoint::Node(node.id));
    }
    if points.is_empty() {
        return Err(OpError::unspecified("nothing to capture").remedy("name `rx', `tx', `drop' or `node <node>'"));
    }
    Ok(points)
}

impl StartRequest {
    fn words(&self) -> String {
        let all = [(self.rx, "rx"), (self.tx, "tx"), (self.drop, "drop"), (!self.nodes.is_empty(), "node")];
        all.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    }

    fn file(&self) -> String {
        self.file.clone().unwrap_or_else(|| format!("{}.pcap", self.words().replace(' ', "and")))
    }
}

impl Operation<Router> for StartCapture {
    const NAME: &'static str = "pcap_trace_on";
    const ACCESS: Access = Access::Change;
    type Request = StartRequest;
    type Reply = ();

    fn run(router: &mut Router, request: StartRequest) -> Result<Outcome<Router, ()>, OpError> {
        let points = points(router, (request.rx, request.tx, request.drop), &request.nodes)?;
        for (key, value, most) in [("max", request.max, MAX_EVER), ("max-bytes-per-pkt", request.max_bytes, 9216)] {
            if value == 0 || value > most {
                return Err(OpError::invalid(key, value, "out of range").remedy(format!("use 1 to {most}")));
            }
        }
        let place = Files::place(router, request.file(), Use::Write)?;
        let interface = request.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let error = match &request.error {
            None => None,
            Some(text) => {
                let code = text.split_once('.').and_then(|(node, reason)| router.graph.error_code(bare(node), bare(reason)));
                Some(code.ok_or_else(|| {
                    let error = OpError::new(retval::NO_SUCH_ENTRY, "no such drop reason").key("error").value(text);
                    error.remedy("write NODE.REASON as `show errors verbose 2' lists them, in quotes where the reason has blanks")
                })?)
            }
        };
        let chosen = if request.filter { router.capture_filter(interface) } else { None };
        let wanted = both(wanted(request.bpf.as_deref())?, chosen);
        if System::of(router)?.recorder.0.is_some() {
            return Err(OpError::new(retval::VALUE_EXIST, "a capture runs already").remedy("end it with `pcap trace off'"));
        }
        let begin = place.clone();
        let create = move || begin.create().map_err(|error| begin.no_capture("write", &error));
        Ok(Outcome::job(
            Elsewhere::new(create, move |router, file| start(router, request, (points, interface, error, wanted), place, file))
                .alone(),
        ))
    }
}

fn start(
    router: &mut Router,
    request: StartRequest,
    (points, interface, error, wanted): (Vec<CapturePoint>, Option<quiver_net::IfIndex>, Option<u32>, Option<Wanted>),
    place: Place,
    file: NewFile,
) -> Result<(), OpError> {
    let offset = time_of_day(router);
    let room = (WAITING_BYTES / request.max_bytes).clamp(1, WAITING).min(request.max);
    let (to, packets) = bounded(room);
    let (left, missed) = (Arc::new(AtomicU64::new(request.max as u64)), Arc::default());
    let (max_bytes, sink_left, sink_missed) = (request.max_bytes, Arc::clone(&left), Arc::clone(&missed));
    let sink = CaptureSink {
        id: TO_FILE,
        points,
        every_node: false,
        interface,
        error,
        wanted,
        max_bytes,
        left: sink_left,
        missed: sink_missed,
        to,
    };
    let writing = Writing::start(file, packets, offset, place.clone());
    router.graph.fleet().each(move |worker| worker.capture(sink.clone()));
    System::of_mut(router)?.recorder.0 = Some(Recording { request, place, left, missed, writing });
    Ok(())
}

/// What the time of day is ahead of the router's clock, ns.
fn time_of_day(router: &Router) -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(router.graph.clock().now())
}

/// Ends a capture and completes its file.
pub struct StopCapture;

/// The answer of [`StopCapture`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// How many packets.
    pub packets: usize,
    /// Packets that were not copied because the file was written too slowly.
    pub missed: u64,
    /// Where they are; nothing where there were none.
    pub file: Option<PathBuf>,
}

impl Operation<Router> for StopCapture {
    const NAME: &'static str = "pcap_trace_off";
    const ACCESS: Access = Access::Change;
    type Request = Empty;
    type Reply = Written;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, Written>, OpError> {
        let Some(recording) = System::of_mut(router)?.recorder.0.take() else {
            return Err(OpError::unspecified("no capture runs").remedy("start one with `pcap trace rx tx'"));
        };
        router.graph.fleet().each(|worker| worker.end_capture(TO_FILE));
        // The last copy has been handed over: the writer comes to its end.
        let missed = recording.missed.load(Ordering::Relaxed);
        Ok(Outcome::job(Elsewhere::of(recording.writing.task, move |_, packets| {
            let file = (packets > 0).then(|| recording.place.path().to_owned());
            Ok(Written { packets, missed, file })
        })))
    }
}

impl Text for Written {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = match &self.file {
            Some(file) => writeln!(out, "Write {} packets to {}, and stop capture...", self.packets, file.display()),
            None => writeln!(out, "No packets captured..."),
        };
        if self.missed > 0 {
            let _ = writeln!(out, "{} more packets were missed: the file was written too slowly", self.missed);
        }
    }
}

/// Tells about the capture that runs.
pub struct CaptureStatus;

/// The answer of [`CaptureStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether a capture runs.
    pub running: bool,
    /// Where it copies, `rx tx`.
    pub points: String,
    /// Nodes in front of which it copies.
    pub nodes: Vec<String>,
    /// Packets so far.
    pub packets: usize,
    /// Packets at most.
    pub max: usize,
    /// Only on this interface.
    pub interface: Option<IfRef>,
    /// Packets that were not copied because the file is written too slowly.
    pub missed: u64,
    /// Why the file is no longer written.
    pub trouble: Option<String>,
    /// Where they will be.
    pub file: Option<PathBuf>,
}

impl Operation<Router> for CaptureStatus {
    const NAME: &'static str = "pcap_trace_status";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = Status;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, Status>, OpError> {
        let status = match &System::of(router)?.recorder.0 {
            None => Status::default(),
            Some(recording) => Status {
                running: true,
                points: recording.request.words(),
                nodes: recording.request.nodes.clone(),
                packets: recording.taken(),
                max: recording.request.max,
                interface: recording.request.interface.clone(),
                missed: recording.missed.load(Ordering::Relaxed),
                trouble: recording.writing.trouble(),
                file: Some(recording.place.path().to_owned()),
            },
        };
        Ok(Outcome::Done(status))
    }
}

impl Text for Status {
    fn text(&self, out: &mut String, _view: &View) {
        let Some(file) = self.file.as_ref().filter(|_| self.running) else {
            out.push_str("pcap capture is off\n");
            return;
        };
        let interface = self.interface.as_ref().map_or("any interface", |interface| interface.as_str());
        let Self { packets, max, .. } = self;
        let points = [&[self.points.clone()][..], &self.nodes].concat().join(" ");
        let _ = writeln!(out, "pcap {points} capture is on: {packets} of {max} pkts on {interface}, to {}", file.display());
        if self.missed > 0 {
            let _ = writeln!(out, "{} packets were missed: the file is written too slowly", self.missed);
        }
        if let Some(trouble) = &self.trouble {
            let _ = writeln!(out, "the capture has ended: {trouble}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_capture_is_told_in_the_usual_words() {
        let mut out = String::new();
        Written { packets: 3, missed: 0, file: Some("/run/quiver/files/rx.pcap".into()) }.text(&mut out, &View::TEXT);
        Written { packets: 0, missed: 0, file: None }.text(&mut out, &View::TEXT);
        assert_eq!(out, "Write 3 packets to /run/quiver/files/rx.pcap, and stop capture...\nNo packets captured...\n");
    }

    #[test]
    fn files_are_named_after_what_they_hold() {
        let request = StartRequest { rx: true, tx: true, ..StartRequest::default() };
        assert_eq!(request.file(), "rxandtx.pcap");
        assert_eq!(StartRequest { nodes: vec!["ip4-input".into()], ..StartRequest::default() }.file(), "node.pcap");
        assert_eq!(StartRequest { file: Some("a.pcap".into()), ..request }.file(), "a.pcap");
    }
}
