//! The mapping log and the records for a collector of IPFIX: where they go, what they tell.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_net::Router;
use quiver_net::ip::{FamilyId, Way};
use serde::{Deserialize, Serialize};

use crate::control::{self, Nat};
use crate::log::{SEVERITY, Target};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetLog>().declare::<SetLogSeverity>().declare::<SetIpfix>().declare::<ShowLog>();
}

/// Switches the mapping log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLog {
    /// Where datagrams go; none: there is no log.
    #[serde(default)]
    pub collector: Option<Ipv4Addr>,
    /// The collector's UDP port; syslog's where absent.
    #[serde(default)]
    pub port: Option<u16>,
    /// Datagrams are packets of the router from this address; none: they go by the host's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Ipv4Addr>,
    /// Table that the collector is looked up in; with a source only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub table: u32,
}

fn is_zero(table: &u32) -> bool {
    *table == 0
}

impl SetLog {
    /// There is no log.
    pub const NONE: Self = Self { collector: None, port: None, source: None, table: 0 };
}

commands! {
    change SetLog "nat44_logging_set" {
        /// Sends a syslog datagram to a collector for each session that begins or ends.
        ["nat44 logging"] "collector <ip4> [port <n>] [source <ip4> [table <id>]] | disable" by parse_log => log_command,
    }
}

fn log_command(SetLog { collector, port, source, table }: &SetLog) -> Option<String> {
    let Some(collector) = collector else { return Some("nat44 logging disable".to_owned()) };
    let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
    let source = source.map(|source| format!(" source {source}")).unwrap_or_default();
    let table = if *table == 0 { String::new() } else { format!(" table {table}") };
    Some(format!("nat44 logging collector {collector}{port}{source}{table}"))
}

fn parse_log(args: &mut Args<'_>) -> Result<SetLog, OpError> {
    if args.take_keyword("disable") {
        return Ok(SetLog::NONE);
    }
    args.expect_keyword("collector")?;
    let mut log = SetLog { collector: Some(args.ip4("collector")?), ..SetLog::NONE };
    while !args.is_empty() {
        if args.take_keyword("port") {
            log.port = Some(args.number("port")?);
        } else if args.take_keyword("source") {
            log.source = Some(args.ip4("source")?);
        } else if log.source.is_some() && args.take_keyword("table") {
            log.table = args.number("table id")?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(log)
}

impl Execute<Router> for SetLog {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let port = self.port.unwrap_or(crate::log::PORT);
        if self.table != 0 && self.source.is_none() {
            return Err(OpError::unspecified("a table is for packets of the router: say `source`").key("source"));
        }
        let from = self.source.map(|source| (source, self.table));
        let target = self.collector.map(|address| Target { collector: SocketAddrV4::new(address, port), from });
        control::set_log(router, target)?;
        Ok(Outcome::Done(()))
    }
}

/// Severities by name, from the worst (RFC 5424, 6.2.1).
const SEVERITIES: [(&str, u8); 8] =
    [("emerg", 0), ("alert", 1), ("crit", 2), ("err", 3), ("warn", 4), ("notice", 5), ("info", 6), ("debug", 7)];

/// Sets which messages of the log are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLogSeverity {
    /// Messages of this severity and worse, from 0 (emergency) to 7; those of sessions have 6.
    pub severity: u8,
}

commands! {
    change SetLogSeverity "syslog_filter_set" {
        /// Sets which messages of the mapping log are sent: those of this severity and worse. Messages of sessions are `info`.
        ["set syslog filter"] "severity <severity>" by parse_severity => severity_command,
    }
}

fn severity_command(SetLogSeverity { severity }: &SetLogSeverity) -> Option<String> {
    let name = SEVERITIES.iter().find(|(_, number)| number == severity)?.0;
    Some(format!("set syslog filter severity {name}"))
}

fn parse_severity(args: &mut Args<'_>) -> Result<SetLogSeverity, OpError> {
    args.expect_keyword("severity")?;
    Ok(SetLogSeverity { severity: args.expect_one_of(&SEVERITIES)? })
}

impl Execute<Router> for SetLogSeverity {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.severity > 7 {
            return Err(OpError::unspecified("severities are 0 to 7").key("severity").value(self.severity));
        }
        control::set_log_severity(router, self.severity)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sends records of sessions, mappings and limits to the collector of `set ipfix exporter` (RFC 8158), or no more.
    pub change SetIpfix "nat_ipfix_logging_set" ["nat ipfix logging"] {
        /// Number of the observation domain.
        pub domain: u32 = "domain <id>" default(256),
        /// Port that datagrams come from.
        pub src_port: u16 = "src-port <port>" default(4739) range(1..=65_535),
        /// No more.
        pub disable: bool = "disable",
    } ignores {
        /// VPP's word for switching it on.
        "enable",
    }
}

impl Execute<Router> for SetIpfix {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let to = (!self.disable).then_some((self.domain, self.src_port));
        control::exports::set(router, to)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows where the mapping log and the records for a collector of IPFIX go, and how much of them.
    pub read ShowLog "nat44_logging_show" ["show nat44 logging"] {}
}

/// The answer of [`ShowLog`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LogInfo {
    /// Where datagrams go, where there is a log.
    pub collector: Option<SocketAddrV4>,
    /// Own address and table by which they go; none: by the host's network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<(Ipv4Addr, u32)>,
    /// Messages of this severity and worse are sent (RFC 5424, 6.2.1); those of sessions have 6.
    pub severity: u8,
    /// Why datagrams do not get there, where the router's table tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Datagrams sent.
    pub sent: u64,
    /// Sessions that it does not tell of: threads were too far ahead, or the datagram could not be sent.
    pub lost: u64,
    /// Records for a collector of IPFIX, where they are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipfix: Option<IpfixInfo>,
}

/// Records for a collector of IPFIX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IpfixInfo {
    /// Number of the observation domain.
    pub domain: u32,
    /// Port that datagrams come from.
    pub src_port: u16,
    /// Where they go; none: there is no exporter.
    pub collector: Option<SocketAddr>,
    /// Records written.
    pub records: u64,
    /// Events of which no record was written, as there was no exporter.
    pub without_collector: u64,
    /// Messages that could not be sent.
    pub lost_messages: u64,
}

impl IpfixInfo {
    fn text(&self, out: &mut String) {
        let Self { domain, src_port, records, without_collector, lost_messages, .. } = self;
        let to = self
            .collector
            .map_or_else(|| "no collector, `set ipfix exporter' names one".to_owned(), |to| format!("collector {to}"));
        let _ = writeln!(
            out,
            "nat ipfix logging: domain {domain} from port {src_port}, {to}, records {records}, without collector {without_collector}, \
             lost messages {lost_messages}"
        );
    }
}

fn ipfix_info(nat: &Nat) -> Option<IpfixInfo> {
    let export = nat.ipfix.as_ref()?;
    let stream = export.stream();
    Some(IpfixInfo {
        domain: stream.domain(),
        src_port: export.src_port(),
        collector: stream.destination().map(|to| SocketAddr::new(to.path.dst, to.path.dst_port)),
        records: stream.records,
        without_collector: stream.homeless,
        lost_messages: stream.outbox.totals().lost,
    })
}

impl Text for LogInfo {
    fn text(&self, out: &mut String, _: &View) {
        match self.collector {
            None => out.push_str("nat44 logging: disabled\n"),
            Some(to) => {
                let from = self.from.map(|(source, table)| format!(" from {source} by table {table}")).unwrap_or_default();
                let quiet = if self.severity < SEVERITY { ", nothing by `set syslog filter`" } else { "" };
                let _ = writeln!(out, "nat44 logging: collector {to}{from}, sent {}, lost {}{quiet}", self.sent, self.lost);
            }
        }
        if let Some(reason) = &self.unreachable {
            let _ = writeln!(out, "  the collector is not reached: {reason}");
        }
        if let Some(ipfix) = &self.ipfix {
            ipfix.text(out);
        }
    }
}

/// Why the router's table does not lead to the collector.
fn unreachable(router: &Router, target: &Target) -> Option<String> {
    let (_, table) = target.from?;
    let Some(fib) = router.fib_of_table(FamilyId::V4, table) else { return Some(format!("table {table} is gone")) };
    match router.egress4().find(fib, target.collector.ip().to_bits()) {
        Way::Interface(_) => None,
        Way::Local => Some(format!("{} is an address of this router", target.collector.ip())),
        Way::Nowhere => Some(format!("no route to {} in table {table}", target.collector.ip())),
    }
}

impl Execute<Router> for ShowLog {
    type Reply = LogInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, LogInfo>, OpError> {
        let Some(nat) = router.part::<Nat>() else { return Ok(Outcome::Done(LogInfo::default())) };
        let mut info = LogInfo { ipfix: ipfix_info(nat), ..LogInfo::default() };
        if let Some(logger) = &nat.logger {
            info = LogInfo {
                collector: Some(logger.target.collector),
                from: logger.target.from,
                severity: nat.log_severity,
                unreachable: unreachable(router, &logger.target),
                sent: logger.sent,
                lost: logger.failed,
                ..info
            };
        }
        if info.collector.is_some() || info.ipfix.is_some() {
            for thread in control::threads(router) {
                info.lost += control::on_thread(router, thread, |nat| nat.log.lost()).unwrap_or(0);
            }
        }
        Ok(Outcome::Done(info))
    }
}
