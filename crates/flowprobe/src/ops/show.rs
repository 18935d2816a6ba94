//! What is recorded, and what became of it.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_ipfix::exporter;
use quiver_net::Router;
use quiver_net::interface::ops::{Direction, resolve};
use serde::Serialize;

use super::{SetExporter, SetParams, Which};
use crate::control::{self, Flowprobe};
use crate::flows::{FLOWS_MAX, Flow};
use crate::key::Way;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowExporter>().declare::<ShowParams>().declare::<ShowFeatures>();
    registry.declare::<ShowTable>().declare::<ShowStatistics>();
}

request! {
    /// Shows who collects flow records.
    pub read ShowExporter "ipfix_exporter_show" ["show ipfix exporter"] {}
}

/// The answer of [`ShowExporter`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ExporterInfo(pub Option<SetExporter>);

impl Text for ExporterInfo {
    fn text(&self, out: &mut String, _: &View) {
        let Some(SetExporter { collector, port, src, fib_id, path_mtu, template_interval, udp_checksum }) = &self.0 else {
            out.push_str("no collector\n");
            return;
        };
        let checksum = if *udp_checksum { ", UDP checksums" } else { "" };
        let src = src.map(|src| src.to_string()).unwrap_or_default();
        let _ = writeln!(
            out,
            "collector {collector} port {port} from {src}, table {fib_id}, path MTU {path_mtu}, templates every {template_interval} s{checksum}"
        );
    }
}

impl Execute<Router> for ShowExporter {
    type Reply = ExporterInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ExporterInfo>, OpError> {
        Ok(Outcome::Done(ExporterInfo(exporter::current(router).as_ref().map(SetExporter::of))))
    }
}

request! {
    /// Shows what flow records contain, and when flows are exported.
    pub read ShowParams "flowprobe_params_show" ["show flowprobe params"] {}
}

/// The answer of [`ShowParams`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ParamsInfo(pub SetParams);

impl Text for ParamsInfo {
    fn text(&self, out: &mut String, _: &View) {
        let SetParams { l2, l3, l4, active, passive, sample } = self.0;
        for (on, word) in [(l2, " l2"), (l3, " l3"), (l4, " l4")] {
            out.push_str(if on { word } else { "" });
        }
        let sample = if sample > 1 { format!(" sample: 1 in {sample}") } else { String::new() };
        let _ = writeln!(out, " active: {active} passive: {passive}{sample}");
    }
}

impl Execute<Router> for ShowParams {
    type Reply = ParamsInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ParamsInfo>, OpError> {
        Ok(Outcome::Done(ParamsInfo(SetParams::of(router.state::<Flowprobe>()?.params()))))
    }
}

request! {
    /// Shows which interfaces record flows.
    pub read ShowFeatures "flowprobe_feature_show" ["show flowprobe feature"] {}
}

/// An interface that records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Which packets.
    pub which: Which,
    /// Whether those that come in or leave.
    pub direction: Direction,
}

/// The answer of [`ShowFeatures`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FeatureList(pub Vec<FeatureInfo>);

impl Text for FeatureList {
    fn text(&self, out: &mut String, _: &View) {
        for FeatureInfo { interface, which, direction, .. } in &self.0 {
            let direction = if *direction == Direction::Both { "rx tx" } else { direction.word() };
            let _ = writeln!(out, " {interface} {} {direction}", which.word());
        }
    }
}

impl Execute<Router> for ShowFeatures {
    type Reply = FeatureList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, FeatureList>, OpError> {
        let info = |(index, which, direction): (quiver_net::IfIndex, _, _)| FeatureInfo {
            interface: router.interfaces.name(index),
            sw_if_index: index.0,
            which,
            direction,
        };
        Ok(Outcome::Done(FeatureList(router.state::<Flowprobe>()?.features().map(info).collect())))
    }
}

request! {
    /// Shows flows as they are now.
    pub read ShowTable "flowprobe_table_show" ["show flowprobe table"] {
        /// How many of each thread.
        pub max: usize = "max <n>" default(100) range(1..=65_536),
        /// Only flows of this interface.
        pub interface: Option<quiver_command::grammar::IfRef> = "<if>",
    }
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowInfo {
    /// Thread.
    pub thread: usize,
    /// Whether its packets come in.
    pub rx: bool,
    /// Interface that packets come in by, 0 where it is not known.
    pub ingress: u32,
    /// Interface that packets leave by, 0 where it is not known.
    pub egress: u32,
    /// MAC address of the source.
    pub src_mac: String,
    /// MAC address of the destination.
    pub dst_mac: String,
    /// Type of frames.
    pub ether_type: u16,
    /// Source.
    pub src: Option<IpAddr>,
    /// Destination.
    pub dst: Option<IpAddr>,
    /// Protocol.
    pub protocol: u8,
    /// Port of the source.
    pub src_port: u16,
    /// Port of the destination.
    pub dst_port: u16,
    /// Packets since the last export.
    pub packets: u64,
    /// Bytes of IP packets since then.
    pub octets: u64,
    /// Seconds since the last packet.
    pub idle: f64,
}

impl FlowInfo {
    fn of(thread: usize, flow: &Flow, now: u64) -> Self {
        let key = &flow.key;
        let ((src_mac, dst_mac), (src_port, dst_port)) = (key.macs(), key.ports());
        Self {
            thread,
            rx: key.way() == Way::Rx,
            ingress: key.ingress(),
            egress: key.egress(),
            src_mac: src_mac.to_string(),
            dst_mac: dst_mac.to_string(),
            ether_type: key.ether_type(),
            src: key.addresses().map(|(src, _)| src),
            dst: key.addresses().map(|(_, dst)| dst),
            protocol: key.protocol(),
            src_port,
            dst_port,
            packets: flow.packets,
            octets: flow.octets,
            idle: now.saturating_sub(flow.last) as f64 / 1e9,
        }
    }
}

/// The answer of [`ShowTable`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Flows that there are.
    pub total: usize,
    /// Some of them.
    pub flows: Vec<FlowInfo>,
}

impl Text for Table {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{} of {} flows", self.flows.len(), self.total);
        for flow in &self.flows {
            let address = |address: Option<IpAddr>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
            let (way, src, dst) = (if flow.rx { "rx" } else { "tx" }, address(flow.src), address(flow.dst));
            let FlowInfo { ingress, egress, src_mac, dst_mac, protocol, src_port, dst_port, packets, octets, .. } = flow;
            let _ = writeln!(
                out,
                " {way} {ingress}/{egress} {src_mac} {dst_mac} {src} -> {dst} {protocol} {src_port} {dst_port}: {packets} packets, {octets} octets"
            );
        }
    }
}

impl Execute<Router> for ShowTable {
    type Reply = Table;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Table>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        let (now, max) = (router.graph.clock().now(), self.max);
        // All are looked at where only some are wanted.
        let look = if one.is_some() { FLOWS_MAX as usize } else { max };
        let all = control::on_each(router, move |thread, flows| (thread, flows.len(), flows.some(look)))?;
        let mut table = Table { total: all.iter().map(|(_, len, _)| len).sum(), flows: Vec::new() };
        for (thread, _, flows) in all {
            let is_wanted = |flow: &&Flow| one.is_none_or(|one| [flow.key.ingress(), flow.key.egress()].contains(&one.0));
            table.flows.extend(flows.iter().filter(is_wanted).take(max).map(|flow| FlowInfo::of(thread, flow, now)));
        }
        Ok(Outcome::Done(table))
    }
}

request! {
    /// Shows how full the tables of flows are, and what became of records.
    pub read ShowStatistics "flowprobe_statistics_show" ["show flowprobe statistics"] {}
}

/// What a thread has, and has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ThreadStatistics {
    /// Thread.
    pub thread: usize,
    /// Flows.
    pub flows: usize,
    /// Most flows.
    pub limit: u32,
    /// Records put into messages.
    pub records: u64,
    /// Records without a collector.
    pub without_collector: u64,
    /// Messages sent.
    pub messages: u64,
    /// Messages lost.
    pub lost_messages: u64,
    /// Records in these.
    pub lost_records: u64,
}

/// The answer of [`ShowStatistics`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Statistics(pub Vec<ThreadStatistics>);

impl Text for Statistics {
    fn text(&self, out: &mut String, _: &View) {
        for thread in &self.0 {
            let ThreadStatistics { thread, flows, limit, records, without_collector, messages, lost_messages, lost_records } =
                thread;
            let _ = writeln!(out, "thread {thread}: {flows} of {limit} flows");
            let _ = writeln!(out, "  {records} records in {messages} messages, {without_collector} without a collector");
            let _ = writeln!(out, "  lost: {lost_records} records in {lost_messages} messages");
        }
    }
}

impl Execute<Router> for ShowStatistics {
    type Reply = Statistics;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Statistics>, OpError> {
        let all = control::on_each(router, |thread, flows| {
            let (stream, totals) = (&flows.stream, *flows.stream.outbox().totals());
            ThreadStatistics {
                thread,
                flows: flows.len(),
                limit: FLOWS_MAX,
                records: stream.records(),
                without_collector: stream.homeless(),
                messages: totals.sent,
                lost_messages: totals.lost,
                lost_records: totals.lost_items,
            }
        })?;
        Ok(Outcome::Done(Statistics(all)))
    }
}
