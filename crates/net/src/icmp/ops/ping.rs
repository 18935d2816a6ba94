//! `ping`: echo requests from the router, answers as they come, a summary at the end. Forwarding goes on meanwhile.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request::Execute;
use quiver_wire::icmp4::{Icmp4Type, unreachable};
use quiver_wire::icmp6::{self, Icmp6Type};
use serde::{Deserialize, Serialize};

use crate::icmp::ping::{Ping, PingError, PingEvent};
use crate::interface::ops::resolve;
use crate::ip::FamilyId;
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SendPing>();
}

/// Data of a request after the time that it carries, at most: what an IPv4 packet holds.
const SIZE_MAX: u32 = 65_499;
/// Bytes of data before the pattern: the time at which a request was made.
const STAMP: usize = 8;

fn parse(args: &mut Args<'_>) -> Result<SendPing, OpError> {
    let address = if args.take_keyword("ipv4") {
        args.ip4("address")?.into()
    } else if args.take_keyword("ipv6") {
        args.ip6("address")?.into()
    } else {
        args.ip("address")?
    };
    let mut request = SendPing::to(address);
    while !args.is_empty() {
        if args.take_keyword("source") {
            request.source = Some(args.interface()?);
        } else if args.take_keyword("size") {
            request.size = args.number_in("size", 0..=SIZE_MAX)?;
        } else if args.take_keyword("interval") {
            request.interval = args.take("interval in seconds")?;
        } else if args.take_keyword("repeat") {
            request.repeat = args.number_in("repeat", 1..=u32::MAX)?;
        } else if args.take_keyword("table-id") {
            request.table_id = args.number("table-id")?;
        } else if args.take_keyword("burst") {
            request.burst = args.number_in("burst", 1..=256)?;
        } else if args.take_keyword("verbose") {
            request.verbose = true;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

/// Sends echo requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendPing {
    /// Destination.
    pub address: IpAddr,
    /// Interface to send from; otherwise the one that the route leads to.
    #[serde(default)]
    pub source: Option<IfRef>,
    /// Bytes of data, on top of the 8 that hold the time.
    #[serde(default = "default_size")]
    pub size: u32,
    /// Seconds between two requests.
    #[serde(default = "default_interval")]
    pub interval: f64,
    /// Number of requests.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// Table that the destination is looked up in.
    #[serde(default)]
    pub table_id: u32,
    /// Copies of each request.
    #[serde(default = "default_burst")]
    pub burst: u32,
    /// Tell the source address too.
    #[serde(default)]
    pub verbose: bool,
}

commands! {
    change SendPing "ping" {
        /// Sends echo requests and shows what comes back; a key ends it early.
        ["ping"] "[ipv4|ipv6] <addr> [source <if>] [size <60>] [interval <1.0>] [repeat <5>] [table-id <0>] [burst <1>] [verbose]" by parse,
    }
}

const fn default_size() -> u32 {
    60
}

const fn default_interval() -> f64 {
    1.0
}

const fn default_repeat() -> u32 {
    5
}

const fn default_burst() -> u32 {
    1
}

impl SendPing {
    fn to(address: IpAddr) -> Self {
        let (size, interval, repeat, burst) = (default_size(), default_interval(), default_repeat(), default_burst());
        Self { address, source: None, size, interval, repeat, table_id: 0, burst, verbose: false }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PingSummary {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Errors about requests received.
    pub errors: u32,
    /// Requests without a reply, in percent.
    pub loss_percent: f64,
    /// Ended early by whoever asked.
    pub aborted: bool,
    /// Replies as they came.
    pub replies: Vec<PingReply>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PingReply {
    /// Who sent it.
    pub from: IpAddr,
    /// Sequence number.
    pub sequence: u16,
    /// TTL or hop limit that was left.
    pub ttl: u8,
    /// Time from request to reply.
    pub time_ms: f64,
}

/// Replies kept for the summary; a ping of days must not take the memory.
const REPLIES_KEPT: usize = 1000;

impl Text for PingSummary {
    fn text(&self, out: &mut String, _view: &View) {
        let Self { sent, received, loss_percent, aborted, .. } = self;
        if *aborted {
            out.push_str("Aborted due to a keypress.\n");
        }
        let _ = writeln!(out, "\nStatistics: {sent} sent, {received} received, {loss_percent:.0}% packet loss");
    }

    fn is_negative(&self) -> bool {
        self.received == 0
    }
}

impl Execute<Router> for SendPing {
    type Reply = PingSummary;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PingSummary>, OpError> {
        let source = self.source.as_ref().map(|name| resolve(router, name)).transpose()?;
        if !(0.0001..=86_400.0).contains(&self.interval) {
            return Err(OpError::invalid("interval", self.interval, "expected 0.0001 to 86400 seconds"));
        }
        if self.size > SIZE_MAX || self.burst == 0 || self.burst > 256 || self.repeat == 0 {
            return Err(OpError::invalid("size, burst or repeat", self.size, "out of range"));
        }
        let family = FamilyId::of(&self.address);
        if matches!(router.ping_plan(self.address, source, self.table_id), Err(PingError::NoTable)) {
            let error = OpError::new(retval::NO_SUCH_FIB, format!("{family} table {} does not exist", self.table_id));
            return Err(error.key("table-id").value(self.table_id));
        }
        let busy = || OpError::new(retval::LIMIT_EXCEEDED, "no identifier is free: too many pings at a time");
        let ping = router.ping_open(family).ok_or_else(busy)?;
        Ok(Outcome::job(Pinging::new(self, source, ping)))
    }
}

/// How often a ping looks for replies: they carry their own time, so only the display waits.
const LOOK: Duration = Duration::from_millis(2);

/// A worker that has not sent a request so long after its answer was due is not waited for, ns.
const WORKER_LATE: u64 = 5_000_000_000;

/// A ping under way.
struct Pinging {
    request: SendPing,
    source: Option<IfIndex>,
    ping: Ping,
    /// Rounds begun.
    round: u32,
    /// When the next round begins, ns of the router's clock.
    next: u64,
    /// Requests that left and when, the last ones.
    sent_at: VecDeque<(u16, u64)>,
    /// Requests that a worker was asked to send and has not reported yet.
    under_way: u32,
    summary: PingSummary,
    cancelled: bool,
    /// The time is over, and every thread has done since what it had to do.
    settled: bool,
}

/// Requests whose time is remembered.
const TIMES: usize = 4096;

impl Pinging {
    fn new(request: SendPing, source: Option<IfIndex>, ping: Ping) -> Self {
        let summary = PingSummary { sent: 0, received: 0, errors: 0, loss_percent: 0.0, aborted: false, replies: Vec::new() };
        Self {
            request,
            source,
            ping,
            round: 0,
            next: 0,
            sent_at: VecDeque::new(),
            under_way: 0,
            summary,
            cancelled: false,
            settled: false,
        }
    }

    /// Sends a round of requests; text for whoever asked where that fails.
    fn send(&mut self, router: &mut Router, out: &mut String) {
        self.round += 1;
        let SendPing { address, size, burst, table_id, verbose, .. } = self.request;
        let mut echo = match router.ping_plan(address, self.source, table_id) {
            Ok(echo) => echo,
            Err(error) => {
                let _ = writeln!(out, "Failed: {error}");
                return;
            }
        };
        if verbose && self.round == 1 {
            let _ = writeln!(out, "Source address: {}, identifier {}", echo.src, self.ping.identifier());
        }
        echo.sequence = self.round as u16;
        echo.data = router.graph.clock().now().to_be_bytes().to_vec();
        echo.data.extend((0..size).map(|i| i as u8));
        debug_assert_eq!(echo.data.len(), STAMP + size as usize);
        for _ in 0..burst {
            self.under_way += u32::from(router.ping_send(&self.ping, &echo));
        }
    }

    /// Takes in what has happened.
    fn hear(&mut self, out: &mut String) {
        while let Ok(event) = self.ping.events.try_recv() {
            match event {
                PingEvent::Sent { sequence, time } => {
                    self.summary.sent += 1;
                    self.under_way = self.under_way.saturating_sub(1);
                    self.sent_at.push_back((sequence, time));
                    if self.sent_at.len() > TIMES {
                        self.sent_at.pop_front();
                    }
                }
                PingEvent::NoBuffer { .. } => {
                    self.under_way = self.under_way.saturating_sub(1);
                    out.push_str("Failed: packet allocation failed\n");
                }
                PingEvent::Reply { sequence, time, from, packet_len, header_len, ttl } => {
                    let time_ms = self.since(sequence, time);
                    self.summary.received += 1;
                    let reply = PingReply { from, sequence, ttl, time_ms };
                    let _ = writeln!(out, "{}", line(&reply, packet_len, header_len));
                    if self.summary.replies.len() < REPLIES_KEPT {
                        self.summary.replies.push(reply);
                    }
                }
                PingEvent::Error { sequence, from, kind, code, data, .. } => {
                    self.summary.errors += 1;
                    let what = describe(FamilyId::of(&from), kind, code, data);
                    let _ = writeln!(out, "From {from}: icmp_seq={sequence} {what}");
                }
            }
        }
    }

    fn since(&self, sequence: u16, time: u64) -> f64 {
        let sent = self.sent_at.iter().rev().find(|(s, _)| *s == sequence).map_or(time, |(_, t)| *t);
        time.saturating_sub(sent) as f64 / 1e6
    }

    fn finish(&mut self, router: &mut Router) -> Step<PingSummary> {
        router.ping_close(&self.ping);
        let PingSummary { sent, received, .. } = self.summary;
        self.summary.loss_percent =
            if sent == 0 { 0.0 } else { 100.0 * f64::from(sent.saturating_sub(received)) / f64::from(sent) };
        self.summary.aborted = self.cancelled;
        Step::Done(Ok(self.summary.clone()))
    }
}

impl Job<Router, PingSummary> for Pinging {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<PingSummary> {
        let mut out = String::new();
        self.hear(&mut out);
        let now = router.graph.clock().now();
        let all = self.round == self.request.repeat;
        let answered =
            all && self.under_way == 0 && self.summary.sent > 0 && self.summary.received + self.summary.errors >= self.summary.sent;
        if !out.is_empty() {
            return Step::Print(out);
        }
        // A busy worker may not have sent yet what it was asked to.
        let over = all && now >= self.next && (self.under_way == 0 || now >= self.next + WORKER_LATE);
        if self.cancelled || answered || over && self.settled {
            return self.finish(router);
        }
        if over {
            // A thread that was kept from running may have a reply in its hands, this one as well.
            self.settled = true;
            if self.under_way == 0 {
                router.graph.fleet().each(|_| ());
            }
            return Step::Sleep(LOOK);
        }
        if all && now >= self.next {
            return Step::Sleep(LOOK);
        }
        if now >= self.next {
            self.next = now + (self.request.interval * 1e9) as u64;
            self.send(router, &mut out);
            return if out.is_empty() { Step::Again } else { Step::Print(out) };
        }
        Step::Sleep(Duration::from_nanos(self.next - now).min(LOOK))
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.cancelled = true;
    }
}

/// A reply's line. The number of bytes is VPP's: the packet and its header once more in IPv4, what follows the fixed header in
/// IPv6.
fn line(reply: &PingReply, packet_len: u32, header_len: u32) -> String {
    let PingReply { from, sequence, ttl, time_ms } = reply;
    let bytes = match from {
        IpAddr::V4(_) => packet_len + header_len,
        IpAddr::V6(_) => packet_len.saturating_sub(40),
    };
    format!("{bytes} bytes from {from}: icmp_seq={sequence} ttl={ttl} time={time_ms:.4} ms")
}

/// An ICMP error in words.
fn describe(family: FamilyId, kind: u8, code: u8, data: u32) -> String {
    let (name, detail) = match family {
        FamilyId::V4 => match (Icmp4Type(kind), code) {
            (Icmp4Type::TIME_EXCEEDED, 0) => ("time to live exceeded", None),
            (Icmp4Type::TIME_EXCEEDED, _) => ("fragment reassembly time exceeded", None),
            (Icmp4Type::PARAMETER_PROBLEM, _) => ("parameter problem", Some(format!("pointer {}", data >> 24))),
            (_, unreachable::NETWORK) => ("destination network unreachable", None),
            (_, unreachable::HOST) => ("destination host unreachable", None),
            (_, unreachable::PROTOCOL) => ("destination protocol unreachable", None),
            (_, unreachable::PORT) => ("destination port unreachable", None),
            (_, unreachable::FRAGMENTATION_NEEDED) => ("fragmentation needed", Some(format!("mtu {}", data & 0xffff))),
            (_, unreachable::ADMINISTRATIVELY_PROHIBITED) => ("administratively prohibited", None),
            _ => ("destination unreachable", Some(format!("code {code}"))),
        },
        FamilyId::V6 => match (Icmp6Type(kind), code) {
            (Icmp6Type::TIME_EXCEEDED, 0) => ("hop limit exceeded", None),
            (Icmp6Type::TIME_EXCEEDED, _) => ("fragment reassembly time exceeded", None),
            (Icmp6Type::PACKET_TOO_BIG, _) => ("packet too big", Some(format!("mtu {data}"))),
            (Icmp6Type::PARAMETER_PROBLEM, _) => ("parameter problem", Some(format!("code {code}, pointer {data}"))),
            (_, icmp6::unreachable::NO_ROUTE) => ("destination unreachable: no route", None),
            (_, icmp6::unreachable::PROHIBITED) => ("administratively prohibited", None),
            (_, icmp6::unreachable::BEYOND_SCOPE) => ("destination unreachable: beyond scope", None),
            (_, icmp6::unreachable::ADDRESS) => ("destination unreachable: address", None),
            (_, icmp6::unreachable::PORT) => ("destination port unreachable", None),
            _ => ("destination unreachable", Some(format!("code {code}"))),
        },
    };
    detail.map_or_else(|| name.into(), |detail| format!("{name} ({detail})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::{Hop, Path, Source};
    use crate::ops::testing;
    use crate::testing::Harness;

    fn bed() -> Harness {
        let mut h = Harness::with_workers(1);
        let x0 = h.interface(0);
        h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
        h.router.add_address(x0, "2001:db8::1".parse().unwrap(), 64).unwrap();
        h
    }

    /// The text with times replaced by `T`.
    fn run(h: &mut Harness, line: &str) -> String {
        let text = testing::run(&mut h.router, line);
        let untimed = |line: &str| match line.split_once(" time=") {
            Some((before, time)) => {
                let (number, unit) = time.split_once(' ').unwrap_or_default();
                assert_eq!((number.split_once('.').map(|(_, f)| f.len()), unit), (Some(4), "ms"), "{line}");
                format!("{before} time=T ms\n")
            }
            None => format!("{line}\n"),
        };
        text.lines().map(untimed).collect()
    }

    #[test]
    fn replies_and_statistics_are_shown_as_in_vpp() {
        let mut h = bed();
        assert_eq!(
            run(&mut h, "ping 10.0.0.1 repeat 2 interval 0.01"),
            "116 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=T ms\n\
             116 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=T ms\n\
             \n\
             Statistics: 2 sent, 2 received, 0% packet loss\n"
        );
        assert_eq!(
            run(&mut h, "ping ipv6 2001:db8::1 repeat 1 source x0"),
            "76 bytes from 2001:db8::1: icmp_seq=1 ttl=64 time=T ms\n\nStatistics: 1 sent, 1 received, 0% packet loss\n"
        );
        assert_eq!(
            run(&mut h, "ping 10.0.0.1 repeat 1 burst 3 size 60000 verbose").lines().next_back(),
            Some("Statistics: 3 sent, 3 received, 0% packet loss")
        );
        assert_eq!(
            run(&mut h, "ping 10.0.0.9 repeat 3 interval 0.001"),
            "\nStatistics: 3 sent, 0 received, 100% packet loss\n",
            "nobody is there"
        );
        // The requests wait for a neighbour that does not answer.
        h.assert_buffers_held(3);
    }

    #[test]
    fn what_cannot_be_sent_and_what_is_refused_is_told() {
        let mut h = bed();
        assert_eq!(
            run(&mut h, "ping 192.0.2.7 repeat 1 interval 0.001"),
            "Failed: no egress interface\n\nStatistics: 0 sent, 0 received, 0% packet loss\n"
        );
        h.router.add_route(0, "198.51.100.0/24".parse().unwrap(), Source::Cli, vec![Path::new(Hop::Prohibited)]).unwrap();
        assert_eq!(
            run(&mut h, "ping 198.51.100.7 repeat 1 source x0"),
            "From 10.0.0.1: icmp_seq=1 administratively prohibited\n\nStatistics: 1 sent, 0 received, 100% packet loss\n"
        );
        for (line, expected) in [
            ("ping", "address"),
            ("ping 10.0.0.1 source nowhere", "unknown interface `nowhere'"),
            ("ping 10.0.0.1 table-id 9", "table 9 does not exist"),
            ("ping 10.0.0.1 interval 0", "interval"),
            ("ping 10.0.0.1 repeat 0", "repeat"),
            ("ping 10.0.0.1 size 65500", "size"),
            ("ping ipv6 10.0.0.1", "10.0.0.1"),
            ("ping 10.0.0.1 fast", "fast"),
        ] {
            let error = testing::error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn a_ping_that_is_cancelled_still_gives_its_statistics_and_its_identifier_back() {
        let mut h = bed();
        let request = SendPing { repeat: 1000, ..SendPing::to("10.0.0.9".parse().unwrap()) };
        let mut jobs = Vec::new();
        for _ in 0..3 {
            let Ok(Outcome::Job(job)) = request.clone().execute(&mut h.router) else { panic!("a job") };
            jobs.push(job);
        }
        for job in &mut jobs {
            assert!(!job.exclusive());
            assert!(matches!(job.step(&mut h.router, LOOK), Step::Again));
            job.cancel(&mut h.router);
            let summary = loop {
                match job.step(&mut h.router, LOOK) {
                    Step::Done(summary) => break summary.unwrap(),
                    Step::Sleep(_) => panic!("a cancelled ping does not wait"),
                    _ => {}
                }
            };
            assert!(summary.aborted && summary.received == 0);
            let mut text = String::new();
            summary.text(&mut text, &View::TEXT);
            assert!(text.starts_with("Aborted due to a keypress.\n\nStatistics: "), "{text}");
        }
    }
}
