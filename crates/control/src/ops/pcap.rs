//! `pcap trace`: copies of packets at rx, tx and drop, written to a file when it ends.

use std::fmt::Write as _;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, bounded};
use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_graph::{CapturePoint, CaptureSink, Captured};
use quiver_net::Router;
use quiver_wire::pcapfile::{LinkType, Writer};
use serde::{Deserialize, Serialize};

use super::interface::resolve;
use super::{create_in_tmp, file_in_tmp, threads::Empty};
use crate::system::System;

/// Packets taken where no number is given.
const MAX: usize = 1000;
/// Bytes of each packet taken where no number is given.
const MAX_BYTES: usize = 512;
/// Packets that may be taken at most: they stay in memory until the end.
const MAX_EVER: usize = 1_000_000;

/// A capture that runs, if one does.
#[derive(Default)]
pub struct Recorder(Option<Recording>);

struct Recording {
    request: StartRequest,
    file: PathBuf,
    packets: Receiver<Captured>,
}

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<StartCapture>().operation::<StopCapture>().operation::<CaptureStatus>().command(Command {
        path: "pcap trace",
        syntax: "[rx] [tx] [drop] [off] [status] [max <n>] [max-bytes-per-pkt <n>] [intfc <if>|any] [file <name>] [error <node.reason>]",
        help: "Copies packets where they are received, sent or dropped, and writes them to a file in /tmp when it is switched off",
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
        } else if args.take_keyword("preallocate-data") || args.take_keyword("free-data") || args.take_keyword("filter") {
            // Copies take memory as they are made and give it back at the end.
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
    /// How many at most.
    pub max: usize,
    /// Bytes of each.
    pub max_bytes: usize,
    /// Only on this interface.
    pub interface: Option<IfRef>,
    /// Name of a file in /tmp; `rx.pcap` and the like where missing.
    pub file: Option<String>,
    /// Only drops for this reason, `node.reason`.
    pub error: Option<String>,
}

impl Default for StartRequest {
    fn default() -> Self {
        Self { rx: false, tx: false, drop: false, max: MAX, max_bytes: MAX_BYTES, interface: None, file: None, error: None }
    }
}

impl StartRequest {
    fn points(&self) -> Vec<CapturePoint> {
        let all = [(self.rx, CapturePoint::Rx), (self.tx, CapturePoint::Tx), (self.drop, CapturePoint::Drop)];
        all.into_iter().filter(|(on, _)| *on).map(|(_, point)| point).collect()
    }

    fn words(&self) -> String {
        let all = [(self.rx, "rx"), (self.tx, "tx"), (self.drop, "drop")];
        all.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    }

    fn file(&self) -> Result<PathBuf, OpError> {
        match &self.file {
            Some(name) => file_in_tmp(name),
            None => file_in_tmp(&format!("{}.pcap", self.words().replace(' ', "and"))),
        }
    }
}

impl Operation<Router> for StartCapture {
    const NAME: &'static str = "pcap_trace_on";
    type Request = StartRequest;
    type Reply = ();

    fn run(router: &mut Router, request: StartRequest) -> Result<Outcome<Router, ()>, OpError> {
        let points = request.points();
        if points.is_empty() {
            return Err(OpError::unspecified("nothing to capture").remedy("name `rx', `tx' or `drop'"));
        }
        for (key, value, most) in [("max", request.max, MAX_EVER), ("max-bytes-per-pkt", request.max_bytes, 9216)] {
            if value == 0 || value > most {
                return Err(OpError::invalid(key, value, "out of range").remedy(format!("use 1 to {most}")));
            }
        }
        let file = request.file()?;
        let interface = request.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let error = match &request.error {
            None => None,
            Some(text) => {
                let code = text.split_once('.').and_then(|(node, reason)| router.graph.error_code(node, reason));
                Some(code.ok_or_else(|| {
                    let error = OpError::new(retval::NO_SUCH_ENTRY, "no such drop reason").key("error").value(text);
                    error.remedy("write NODE.REASON as `show errors verbose 2' lists them, in quotes where the reason has blanks")
                })?)
            }
        };
        if System::of(router)?.recorder.0.is_some() {
            return Err(OpError::new(retval::VALUE_EXIST, "a capture runs already").remedy("end it with `pcap trace off'"));
        }
        // The channel is exactly as long as the capture: when it is full, the capture is.
        let (to, packets) = bounded(request.max);
        let sink = CaptureSink { points, interface, error, max_bytes: request.max_bytes, to };
        router.graph.fleet().each(move |worker| worker.capture(Some(sink.clone())));
        System::of_mut(router)?.recorder.0 = Some(Recording { request, file, packets });
        Ok(Outcome::Done(()))
    }
}

/// Ends a capture and writes its file.
pub struct StopCapture;

/// The answer of [`StopCapture`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// How many packets.
    pub packets: usize,
    /// Where they are; nothing where there were none.
    pub file: Option<PathBuf>,
}

impl Operation<Router> for StopCapture {
    const NAME: &'static str = "pcap_trace_off";
    type Request = Empty;
    type Reply = Written;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, Written>, OpError> {
        let Some(recording) = System::of_mut(router)?.recorder.0.take() else {
            return Err(OpError::unspecified("no capture runs").remedy("start one with `pcap trace rx tx'"));
        };
        router.graph.fleet().each(|worker| worker.capture(None));
        let mut packets: Vec<Captured> = recording.packets.try_iter().collect();
        if packets.is_empty() {
            return Ok(Outcome::Done(Written { packets: 0, file: None }));
        }
        packets.sort_by_key(|packet| packet.time);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(router.graph.clock().now());
        let doing = format_args!("cannot write {}", recording.file.display()).to_string();
        write(&recording.file, &packets, offset)
            .map_err(|error| OpError { code: retval::CANNOT_CREATE_PCAP_FILE, ..OpError::system(doing, &error).key("file") })?;
        Ok(Outcome::Done(Written { packets: packets.len(), file: Some(recording.file) }))
    }
}

fn write(path: &Path, packets: &[Captured], offset: u64) -> std::io::Result<()> {
    let mut writer = Writer::new(BufWriter::new(create_in_tmp(path)?), LinkType::ETHERNET)?;
    for packet in packets {
        writer.write(packet.time.saturating_add(offset), &packet.bytes, packet.len)?;
    }
    writer.finish()?;
    Ok(())
}

impl Text for Written {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = match &self.file {
            Some(file) => writeln!(out, "Write {} packets to {}, and stop capture...", self.packets, file.display()),
            None => writeln!(out, "No packets captured..."),
        };
    }
}

/// Tells about the capture that runs.
pub struct CaptureStatus;

/// The answer of [`CaptureStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether a capture runs.
    pub running: bool,
    /// Where it copies, `rx tx`.
    pub points: String,
    /// Packets so far.
    pub packets: usize,
    /// Packets at most.
    pub max: usize,
    /// Only on this interface.
    pub interface: Option<IfRef>,
    /// Where they will be written.
    pub file: Option<PathBuf>,
}

impl Operation<Router> for CaptureStatus {
    const NAME: &'static str = "pcap_trace_status";
    type Request = Empty;
    type Reply = Status;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, Status>, OpError> {
        let status = match &System::of(router)?.recorder.0 {
            None => Status { running: false, points: String::new(), packets: 0, max: 0, interface: None, file: None },
            Some(recording) => Status {
                running: true,
                points: recording.request.words(),
                packets: recording.packets.len(),
                max: recording.request.max,
                interface: recording.request.interface.clone(),
                file: Some(recording.file.clone()),
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
        let Self { points, packets, max, .. } = self;
        let _ = writeln!(out, "pcap {points} capture is on: {packets} of {max} pkts on {interface}, to {}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_capture_is_told_in_the_usual_words() {
        let mut out = String::new();
        Written { packets: 3, file: Some("/tmp/rx.pcap".into()) }.text(&mut out, &View::TEXT);
        Written { packets: 0, file: None }.text(&mut out, &View::TEXT);
        assert_eq!(out, "Write 3 packets to /tmp/rx.pcap, and stop capture...\nNo packets captured...\n");
    }

    #[test]
    fn files_are_named_after_what_they_hold() {
        let request = StartRequest { rx: true, tx: true, ..StartRequest::default() };
        assert_eq!(request.file().unwrap(), PathBuf::from("/tmp/rxandtx.pcap"));
        let named = StartRequest { file: Some("a.pcap".into()), ..request.clone() };
        assert_eq!(named.file().unwrap(), PathBuf::from("/tmp/a.pcap"));
        for bad in ["../etc/passwd", "a/b", "", ".", "..", "a\0b"] {
            assert!(StartRequest { file: Some(bad.into()), ..request.clone() }.file().is_err(), "{bad}");
        }
    }
}
