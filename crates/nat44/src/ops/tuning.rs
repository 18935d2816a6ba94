//! Which workers have sessions; the greatest segment size that connections agree on; the mapping log.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use quiver_command::grammar::{Args, Command};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_graph::thread_name;
use quiver_graph::topology::parse_cpu_list;
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::{Empty, nat_error};
use crate::control::{self, Nat};

/// The least that a clamp leaves: what every host takes (RFC 9293, section 3.7.1).
const MSS_LEAST: u16 = 536;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<SetLog>().operation::<ShowLog>();
    registry.operation::<SetWorkers>().operation::<ShowWorkers>().operation::<SetMss>().operation::<ShowMss>();
    let commands = [
        Command {
            path: "set nat workers",
            syntax: "<list>",
            help: "Chooses the workers, from 0, that have sessions; all sessions end",
            parse: parse_workers,
        },
        Command {
            path: "show nat workers",
            syntax: "",
            help: "Shows the threads that have sessions",
            parse: |_, _| Ok(Invocation::new::<ShowWorkers>(Empty {})),
        },
        Command {
            path: "nat mss-clamping",
            syntax: "<bytes>|disable",
            help: "Lowers the greatest segment size that TCP connections through the NAT agree on",
            parse: |args, _| {
                let bytes = if args.take_keyword("disable") { None } else { Some(args.number("bytes")?) };
                Ok(Invocation::new::<SetMss>(SetMssRequest { bytes }))
            },
        },
        Command {
            path: "show nat mss-clamping",
            syntax: "",
            help: "Shows the greatest segment size",
            parse: |_, _| Ok(Invocation::new::<ShowMss>(Empty {})),
        },
        Command {
            path: "nat44 logging",
            syntax: "collector <ip4> [port <n>] | disable",
            help: "Sends a syslog datagram to a collector for each session that begins or ends",
            parse: |args, _| {
                if args.take_keyword("disable") {
                    return Ok(Invocation::new::<SetLog>(SetLogRequest { collector: None, port: None }));
                }
                args.expect_keyword("collector")?;
                let collector = Some(args.ip4("collector")?);
                let port = if args.take_keyword("port") { Some(args.number("port")?) } else { None };
                Ok(Invocation::new::<SetLog>(SetLogRequest { collector, port }))
            },
        },
        Command {
            path: "show nat44 logging",
            syntax: "",
            help: "Shows where the mapping log goes, and how much of it",
            parse: |_, _| Ok(Invocation::new::<ShowLog>(Empty {})),
        },
    ];
    for command in commands {
        registry.command(command);
    }
}

fn parse_workers(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let list = args.word("workers")?;
    let workers = parse_cpu_list(&list).map_err(|_| {
        let error = OpError::new(retval::INVALID_VALUE, format!("`{list}' is no list of workers"));
        error.key("workers").value(&list).remedy("such as 0-2,5")
    })?;
    let workers = workers.into_iter().map(|n| n as usize).collect();
    Ok(Invocation::new::<SetWorkers>(SetWorkersRequest { workers }))
}

/// Chooses workers.
pub struct SetWorkers;

/// What [`SetWorkers`] chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWorkersRequest {
    /// Workers, from 0.
    pub workers: Vec<usize>,
}

impl Operation<Router> for SetWorkers {
    const NAME: &'static str = "nat_workers_set";
    const ACCESS: Access = Access::Change;
    type Request = SetWorkersRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetWorkersRequest) -> Result<Outcome<Router, ()>, OpError> {
        control::set_workers(router, request.workers).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Lists threads that have sessions.
pub struct ShowWorkers;

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

impl Operation<Router> for ShowWorkers {
    const NAME: &'static str = "nat_workers_show";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = WorkerList;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, WorkerList>, OpError> {
        Ok(Outcome::Done(WorkerList(control::threads(router).into_iter().map(thread_name).collect())))
    }
}

/// Sets the greatest segment size.
pub struct SetMss;

/// What [`SetMss`] sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMssRequest {
    /// Bytes; none: connections agree on what they like.
    #[serde(default)]
    pub bytes: Option<u16>,
}

impl Operation<Router> for SetMss {
    const NAME: &'static str = "nat_mss_clamping_set";
    const ACCESS: Access = Access::Change;
    type Request = SetMssRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetMssRequest) -> Result<Outcome<Router, ()>, OpError> {
        if let Some(wrong) = request.bytes.filter(|bytes| *bytes < MSS_LEAST) {
            let text = format!("{wrong} is out of range, expected {MSS_LEAST} to {}", u16::MAX);
            return Err(OpError::invalid("mss-clamping", wrong, text));
        }
        control::set(router, |config| config.mss = request.bytes.unwrap_or(0)).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Tells the greatest segment size.
pub struct ShowMss;

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

impl Operation<Router> for ShowMss {
    const NAME: &'static str = "nat_mss_clamping_show";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = MssInfo;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, MssInfo>, OpError> {
        let mss = router.part::<Nat>().map_or(0, |nat| nat.config.mss);
        Ok(Outcome::Done(MssInfo { bytes: (mss > 0).then_some(mss) }))
    }
}

/// Switches the mapping log.
pub struct SetLog;

/// What [`SetLog`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLogRequest {
    /// Where datagrams go; none: there is no log.
    #[serde(default)]
    pub collector: Option<Ipv4Addr>,
    /// The collector's UDP port; syslog's where absent.
    #[serde(default)]
    pub port: Option<u16>,
}

impl Operation<Router> for SetLog {
    const NAME: &'static str = "nat44_logging_set";
    const ACCESS: Access = Access::Change;
    type Request = SetLogRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetLogRequest) -> Result<Outcome<Router, ()>, OpError> {
        let port = request.port.unwrap_or(crate::log::PORT);
        let collector = request.collector.map(|address| SocketAddrV4::new(address, port));
        control::set_log(router, collector).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Tells of the mapping log.
pub struct ShowLog;

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

impl Operation<Router> for ShowLog {
    const NAME: &'static str = "nat44_logging_show";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = LogInfo;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, LogInfo>, OpError> {
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
