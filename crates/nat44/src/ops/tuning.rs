//! Which workers have sessions; the greatest segment size that connections agree on; the mapping log.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::{Argument, Execute};
use quiver_command::{commands, request};
use quiver_graph::thread_name;
use quiver_graph::topology::parse_cpu_list;
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::nat_error;
use crate::control::{self, Nat};

/// The least that a clamp leaves: what every host takes (RFC 9293, section 3.7.1).
const MSS_LEAST: u16 = 536;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetLog>().declare::<ShowLog>();
    registry.declare::<SetWorkers>().declare::<ShowWorkers>().declare::<SetMss>().declare::<ShowMss>();
}

/// A list of workers, `0-2,5`.
fn worker_list(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Vec<usize>, OpError> {
    let list = args.word("workers")?;
    let workers = parse_cpu_list(&list).map_err(|_| {
        let error = OpError::new(retval::INVALID_VALUE, format!("`{list}' is no list of workers"));
        error.key("workers").value(&list).remedy("such as 0-2,5")
    })?;
    Ok(workers.into_iter().map(|n| n as usize).collect())
}

fn worker_text(workers: &[usize]) -> String {
    workers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

request! {
    /// Chooses the workers, from 0, that have sessions; all sessions end.
    pub change SetWorkers "nat_workers_set" ["set nat workers"] {
        /// Workers, from 0.
        pub workers: Vec<usize> = "<list>" with(worker_list, worker_text),
    }
}

impl Execute<Router> for SetWorkers {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_workers(router, self.workers).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows the threads that have sessions.
    pub read ShowWorkers "nat_workers_show" ["show nat workers"] {}
}

/// The answer of [`ShowWorkers`]: names of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WorkerList(pub Vec<String>);

impl Text for WorkerList {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{} workers", self.0.len());
        for name in &self.0 {
            let _ = writeln!(out, "  {name}");
        }
    }
}

impl Execute<Router> for ShowWorkers {
    type Reply = WorkerList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, WorkerList>, OpError> {
        Ok(Outcome::Done(WorkerList(control::threads(router).into_iter().map(thread_name).collect())))
    }
}

request! {
    /// Clamps the maximum segment size (MSS) of TCP connections through the NAT.
    pub change SetMss "nat_mss_clamping_set" ["nat mss-clamping"] {
        /// Bytes; none: connections agree on what they like.
        pub bytes: Option<u16> = "<bytes>|disable" said() range(MSS_LEAST as u64..=u16::MAX as u64),
    }
}

impl Execute<Router> for SetMss {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.mss = self.bytes.unwrap_or(0)).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows the greatest segment size.
    pub read ShowMss "nat_mss_clamping_show" ["show nat mss-clamping"] {}
}

/// The answer of [`ShowMss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MssInfo {
    /// Bytes, where it is set.
    pub bytes: Option<u16>,
}

impl Text for MssInfo {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.bytes {
            Some(bytes) => writeln!(out, "mss-clamping {bytes}"),
            None => writeln!(out, "mss-clamping disabled"),
        };
    }
}

impl Execute<Router> for ShowMss {
    type Reply = MssInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, MssInfo>, OpError> {
        let mss = router.part::<Nat>().map_or(0, |nat| nat.config.mss);
        Ok(Outcome::Done(MssInfo { bytes: (mss > 0).then_some(mss) }))
    }
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
}

commands! {
    change SetLog "nat44_logging_set" {
        /// Sends a syslog datagram to a collector for each session that begins or ends.
        ["nat44 logging"] "collector <ip4> [port <n>] | disable" by parse_log => log_command,
    }
}

fn log_command(SetLog { collector, port }: &SetLog) -> Option<String> {
    let Some(collector) = collector else { return Some("nat44 logging disable".to_owned()) };
    let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
    Some(format!("nat44 logging collector {collector}{port}"))
}

fn parse_log(args: &mut Args<'_>) -> Result<SetLog, OpError> {
    if args.take_keyword("disable") {
        return Ok(SetLog { collector: None, port: None });
    }
    args.expect_keyword("collector")?;
    let collector = Some(args.ip4("collector")?);
    let port = if args.take_keyword("port") { Some(args.number("port")?) } else { None };
    Ok(SetLog { collector, port })
}

impl Execute<Router> for SetLog {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let port = self.port.unwrap_or(crate::log::PORT);
        let collector = self.collector.map(|address| SocketAddrV4::new(address, port));
        control::set_log(router, collector).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows where the mapping log goes, and how much of it.
    pub read ShowLog "nat44_logging_show" ["show nat44 logging"] {}
}

/// The answer of [`ShowLog`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LogInfo {
    /// Where datagrams go, where there is a log.
    pub collector: Option<SocketAddrV4>,
    /// Datagrams sent.
    pub sent: u64,
    /// Sessions that it does not tell of: threads were too far ahead, or the socket did not take the datagram.
    pub lost: u64,
}

impl Text for LogInfo {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match self.collector {
            Some(to) => writeln!(out, "nat44 logging: collector {to}, sent {}, lost {}", self.sent, self.lost),
            None => writeln!(out, "nat44 logging: disabled"),
        };
    }
}

impl Execute<Router> for ShowLog {
    type Reply = LogInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, LogInfo>, OpError> {
        let logger = router.part::<Nat>().and_then(|nat| nat.logger.as_ref());
        let Some(mut info) = logger.map(|l| LogInfo { collector: Some(l.collector), sent: l.sent, lost: l.failed }) else {
            return Ok(Outcome::Done(LogInfo::default()));
        };
        for thread in control::threads(router) {
            info.lost += control::on_thread(router, thread, |nat| nat.log.lost()).unwrap_or(0);
        }
        Ok(Outcome::Done(info))
    }
}
