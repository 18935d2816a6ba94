//! `trace add`, `show trace`, `clear trace`, `trace filter`, time stamps.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request, words};
use quiver_graph::{NodeId, NodeKind, TRACE_MAX, TraceRecord, Wanted, thread_name};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::node::no_such_node;
use super::pcap::{both, wanted};
use crate::system::System;
use quiver_command::calendar::Civil;

/// What is kept between commands.
#[derive(Debug, Clone, Default)]
pub struct TraceSettings {
    /// Which packets `show trace` leaves out.
    pub filter: Filter,
    /// How time is written.
    pub stamp: Stamp,
}

/// Which packets `show trace` leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// None.
    #[default]
    None,
    /// Those that did not come through this node; so many of the others are shown.
    Include(String, usize),
    /// Those that came through this node; so many of the others are shown.
    Exclude(String, usize),
}

words! {
    /// How time is written.
    #[derive(Default)]
    pub enum Stamp {
        /// Hours, minutes, seconds and microseconds since the router was started.
        #[default]
        Relative = "relative",
        /// Seconds since 1970.
        Unix = "unix",
        /// Date and time.
        Datetime = "datetime",
    }
}

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<AddTrace>().declare::<ShowTrace>().declare::<ClearTrace>().declare::<SetTraceFilter>();
    registry.declare::<SetTraceStamp>().values("input-node", |router| nodes_of(router, NodeKind::Input));
}

/// Names of the nodes of a kind.
pub(super) fn nodes_of(router: &Router, kind: NodeKind) -> Vec<String> {
    router.graph.nodes().into_iter().filter(|node| node.kind == kind).map(|node| node.name).collect()
}

fn parse_filter(args: &mut Args<'_>) -> Result<SetTraceFilter, OpError> {
    let filter = if args.take_keyword("none") {
        Filter::None
    } else {
        let include = args.expect_one_of(&[("include", true), ("exclude", false)])?;
        let (node, count) = (args.word("node")?.into_owned(), args.number("count")?);
        if include { Filter::Include(node, count) } else { Filter::Exclude(node, count) }
    };
    Ok(SetTraceFilter { filter })
}

request! {
    /// Traces the next packets that an input node brings in.
    pub change AddTrace "trace_add" ["trace add"] {
        /// The input node.
        pub node: String = "<input-node>" name("input node"),
        /// How many packets on each thread.
        pub count: u32 = "<n>" name("count") range(1..=TRACE_MAX as u64),
        /// Only packets that this program chooses, as `tcpdump -ddd` prints it; `quiverctl` takes `filter <expression>` in its place.
        pub bpf: Option<String> = "bpf <program>",
        /// Only packets that `classify filter trace` chooses; all while nothing is chosen.
        pub filter: bool = "filter",
    } ignores {
        /// All that is recorded is shown: there is nothing more to be verbose about.
        "verbose",
    }
}

/// The input node of a name.
///
/// # Errors
/// There is no such node, or it brings no packets in.
pub(super) fn input_node(router: &Router, name: &str) -> Result<NodeId, OpError> {
    let node = router.graph.nodes().into_iter().find(|node| node.name == name).ok_or_else(|| no_such_node(router, name))?;
    if node.kind == NodeKind::Input {
        return Ok(node.id);
    }
    let text = format!("node `{name}' doesn't support per-node tracing");
    let error = OpError::new(retval::UNSUPPORTED, text).key("node");
    Err(error.remedy("name a node that brings packets in, such as `pg-input'"))
}

/// Traces the next packets that a node brings in, on each thread.
pub(super) fn add(router: &mut Router, node: NodeId, count: u32, wanted: Option<Wanted>) {
    router.graph.fleet().each(move |worker| worker.trace_add(node, count, wanted.clone()));
}

impl Execute<Router> for AddTrace {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let node = input_node(router, &self.node)?;
        let chosen = if self.filter { router.trace_filter() } else { None };
        let wanted = both(wanted(self.bpf.as_deref())?, chosen);
        add(router, node, self.count, wanted);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows the traced packets and what each node made of them.
    pub read ShowTrace "trace_dump" ["show trace"] {
        /// So many of each thread.
        pub max: usize = "max <n>" default(50),
    }
}

/// The answer of [`ShowTrace`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Traces(pub Vec<ThreadTrace>);

/// Traced packets of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadTrace {
    /// Its number.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// Packets, in the order in which they came.
    pub packets: Vec<Vec<Station>>,
    /// Packets beyond the limit.
    pub more: usize,
    #[serde(skip)]
    max: usize,
}

/// What one node made of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Station {
    /// ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// The time as the settings want it written.
    pub stamp: String,
    /// The node.
    pub node: String,
    /// What it made of the packet.
    pub text: String,
    /// The first bytes as it left them, in hexadecimal.
    pub bytes: String,
}

impl Execute<Router> for ShowTrace {
    type Reply = Traces;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Traces>, OpError> {
        let threads = chosen(router)?;
        let words = Words::of(router);
        let traces = threads.into_iter().enumerate().map(|(thread, chosen)| {
            let packets = chosen.iter().take(self.max).map(|record| words.stations(record));
            ThreadTrace {
                thread,
                name: thread_name(thread),
                packets: packets.collect(),
                more: chosen.len().saturating_sub(self.max),
                max: self.max,
            }
        });
        Ok(Outcome::Done(Traces(traces.collect())))
    }
}

/// The traces that the filter lets through, by thread.
///
/// # Errors
/// The router has no settings.
pub fn chosen(router: &mut Router) -> Result<Vec<Vec<TraceRecord>>, OpError> {
    let threads = router.graph.traces();
    let (kept, limit) = match &System::of(router)?.trace.filter {
        Filter::None => (None, usize::MAX),
        Filter::Include(node, n) => (Some((node, true)), *n),
        Filter::Exclude(node, n) => (Some((node, false)), *n),
    };
    let passed =
        |record: &TraceRecord, name: &str| record.entries.iter().any(|entry| router.graph.node_name(NodeId(entry.node)) == name);
    let kept = |record: &TraceRecord| kept.is_none_or(|(node, wanted)| passed(record, node) == wanted);
    let mut all = Vec::new();
    for (thread, records) in threads {
        let chosen = records.into_iter().filter(|record| !record.entries.is_empty() && kept(record)).take(limit).collect();
        all.resize(all.len().max(thread + 1), Vec::new());
        all[thread] = chosen;
    }
    Ok(all)
}

/// What `show trace` says of each station of a packet.
pub(super) fn station_texts(router: &Router, record: &TraceRecord) -> Vec<String> {
    let words = Words::of(router);
    let text = |entry| {
        let mut out = String::new();
        words.station(entry).write(&mut out);
        out
    };
    record.entries.iter().map(text).collect()
}

/// A packet's trace in the words of `show trace`.
pub fn packet_text(router: &Router, record: &TraceRecord) -> String {
    station_texts(router, record).concat()
}

/// What puts traces into words.
struct Words<'a> {
    router: &'a Router,
    stamp: Stamp,
    /// When the router was started, ns of its clock.
    epoch: u64,
    /// What to add to the router's time to get the time of day.
    offset: u64,
}

impl<'a> Words<'a> {
    fn of(router: &'a Router) -> Self {
        // Without a daemon nobody has chosen a form.
        let (stamp, epoch) = System::of(router).map_or_else(|_| Default::default(), |system| (system.trace.stamp, system.started));
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(router.graph.clock().now());
        Self { router, stamp, epoch, offset }
    }

    fn stations(&self, record: &TraceRecord) -> Vec<Station> {
        record.entries.iter().map(|entry| self.station(entry)).collect()
    }

    fn station(&self, entry: &quiver_graph::TraceEntry) -> Station {
        let graph = &self.router.graph;
        let mut text = String::new();
        graph.format_trace(entry, &mut text);
        let bytes = entry.bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let node = graph.node_name(NodeId(entry.node)).to_owned();
        Station { time: entry.time, stamp: self.stamp(entry.time), node, text, bytes }
    }

    fn stamp(&self, time: u64) -> String {
        let day = Duration::from_nanos(time.saturating_add(self.offset));
        match self.stamp {
            Stamp::Relative => relative(time.saturating_sub(self.epoch)),
            Stamp::Unix => format!("{:.6}", day.as_secs_f64()),
            Stamp::Datetime => Civil::of_unix(day).iso_micros(),
        }
    }
}

impl Station {
    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "{}: {}", self.stamp, self.node);
        self.text.lines().for_each(|line| {
            let _ = writeln!(out, "  {line}");
        });
    }
}

/// `00:00:08:104962`.
fn relative(ns: u64) -> String {
    let (seconds, micros) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    format!("{:02}:{:02}:{:02}:{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Text for Traces {
    fn text(&self, out: &mut String, _view: &View) {
        for thread in &self.0 {
            let _ = writeln!(out, "------------------- Start of thread {} {} -------------------", thread.thread, thread.name);
            if thread.packets.is_empty() && thread.more == 0 {
                out.push_str("No packets in trace buffer\n");
            }
            for (number, packet) in thread.packets.iter().enumerate() {
                let _ = writeln!(out, "Packet {}\n", number + 1);
                packet.iter().for_each(|station| station.write(out));
                out.push('\n');
            }
            if thread.more > 0 {
                let _ = writeln!(out, "Limiting display to {} packets. To display more specify max.", thread.max);
            }
        }
    }
}

request! {
    /// Forgets traced packets, and stops tracing.
    pub change ClearTrace "trace_clear" ["clear trace"] {}
}

impl Execute<Router> for ClearTrace {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.graph.fleet().each(|worker| worker.trace_clear());
        Ok(Outcome::Done(()))
    }
}

/// Limits what is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTraceFilter {
    /// The filter.
    pub filter: Filter,
}

commands! {
    change SetTraceFilter "trace_filter_set" {
        /// Limits what `show trace' shows to packets that came through a node, or that did not.
        ["trace filter"] "none | include|exclude <node> <n>" by parse_filter,
    }
}

impl Execute<Router> for SetTraceFilter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if let Filter::Include(node, _) | Filter::Exclude(node, _) = &self.filter
            && router.graph.node(node).is_none()
        {
            return Err(no_such_node(router, node));
        }
        System::of_mut(router)?.trace.filter = self.filter;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets the time format of `show trace'.
    pub change SetTraceStamp "trace_timestamp_set" ["set trace timestamp-format"] {
        /// The form.
        pub format: Stamp = "relative|unix|datetime",
    }
}

impl Execute<Router> for SetTraceStamp {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        System::of_mut(router)?.trace.stamp = self.format;
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(node: &str, text: &str) -> Station {
        Station { time: 0, stamp: relative(8_104_962_999), node: node.into(), text: text.into(), bytes: String::new() }
    }

    #[test]
    fn show_trace_has_the_usual_form() {
        let packet = vec![station("pg-input", "stream 0"), station("ip4-input", "ICMP: 10.99.0.2 -> 10.99.0.1\ntos 0x00")];
        let traced = ThreadTrace { thread: 0, name: "vpp_main".into(), packets: vec![packet], more: 2, max: 1 };
        let empty = ThreadTrace { thread: 1, name: "vpp_wk_0".into(), packets: Vec::new(), more: 0, max: 1 };
        let mut out = String::new();
        Traces(vec![traced, empty]).text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "\
------------------- Start of thread 0 vpp_main -------------------
Packet 1

00:00:08:104962: pg-input
  stream 0
00:00:08:104962: ip4-input
  ICMP: 10.99.0.2 -> 10.99.0.1
  tos 0x00

Limiting display to 1 packets. To display more specify max.
------------------- Start of thread 1 vpp_wk_0 -------------------
No packets in trace buffer
"
        );
    }

    #[test]
    fn time_is_written_in_hours_minutes_seconds_microseconds() {
        assert_eq!(relative(0), "00:00:00:000000");
        assert_eq!(relative(3_723_000_004_999), "01:02:03:000004");
    }
}
