//! Sessions: shown and ended.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::thread_name;
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::{PROTOCOLS, endpoint, protocol_name};
use crate::control;
use crate::session::{Direction, Endpoint, Session, flag, tcp};
use crate::table::{SessionId, Timeouts};

/// Session numbers looked at in one go on their thread.
const STEP: u32 = 1024;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowSessions>().declare::<DeleteSession>().declare::<ClearSessions>();
}

commands! {
    read ShowSessions "nat44_sessions_show" {
        /// Shows sessions, all or those whose packets of one direction look like this.
        ["show nat44 sessions"] "[filter i2o|o2i [saddr <ip4>] [sport <port>] [daddr <ip4>] [dport <port>] [proto <proto>]]" by parse_show,
    }
}

commands! {
    change DeleteSession "nat44_session_delete" {
        /// Ends a session, found by its inside or its outside endpoint.
        ["nat44 del session"] "in|out <ip4>:<port> tcp|udp|icmp [vrf <id>] [external-host <ip4>:<port>]" by parse_delete,
    }
}

fn parse_show(args: &mut Args<'_>) -> Result<ShowSessions, OpError> {
    let mut request = ShowSessions::default();
    if args.take_keyword("filter") {
        request.outside = args.expect_one_of(&[("i2o", false), ("o2i", true)])?;
        while !args.is_empty() {
            if args.take_keyword("saddr") {
                request.saddr = Some(args.ip4("source address")?);
            } else if args.take_keyword("daddr") {
                request.daddr = Some(args.ip4("destination address")?);
            } else if args.take_keyword("sport") {
                request.sport = Some(args.number("source port")?);
            } else if args.take_keyword("dport") {
                request.dport = Some(args.number("destination port")?);
            } else if args.take_keyword("proto") {
                let named = args.take_one_of(&PROTOCOLS);
                request.proto = Some(match named {
                    Some(proto) => proto,
                    None => args.number("protocol")?,
                });
            } else {
                return Err(args.unexpected());
            }
        }
    }
    Ok(request)
}

fn parse_delete(args: &mut Args<'_>) -> Result<DeleteSession, OpError> {
    let outside = args.expect_one_of(&[("in", false), ("out", true)])?;
    let end = endpoint(args, "endpoint")?;
    let proto = args.expect_one_of(&PROTOCOLS)?;
    let mut request =
        DeleteSession { outside, address: Ipv4Addr::from_bits(end.addr), port: end.port, proto, vrf: 0, external_host: None };
    while !args.is_empty() {
        if args.take_keyword("vrf") {
            request.vrf = args.number("vrf")?;
        } else if args.take_keyword("external-host") {
            let end = endpoint(args, "external host")?;
            request.external_host = Some((Ipv4Addr::from_bits(end.addr), end.port));
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

/// Lists sessions: those whose packets of one direction look like this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowSessions {
    /// Packets from outside instead of from inside.
    pub outside: bool,
    /// Source address.
    pub saddr: Option<Ipv4Addr>,
    /// Source port.
    pub sport: Option<u16>,
    /// Destination address.
    pub daddr: Option<Ipv4Addr>,
    /// Destination port.
    pub dport: Option<u16>,
    /// Protocol number.
    pub proto: Option<u8>,
}

impl ShowSessions {
    fn wants(&self, session: &Session) -> bool {
        let key = if self.outside { session.o2i } else { session.i2o };
        let (src, dst) = (key.src(), key.dst());
        let addr = |wanted: Option<Ipv4Addr>, is: u32| wanted.is_none_or(|a| a.to_bits() == is);
        addr(self.saddr, src.addr)
            && addr(self.daddr, dst.addr)
            && self.sport.is_none_or(|p| p == src.port)
            && self.dport.is_none_or(|p| p == dst.port)
            && self.proto.is_none_or(|p| p == key.proto())
    }
}

/// A packet's ends, by address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// Source.
    pub saddr: Ipv4Addr,
    /// Source port.
    pub sport: u16,
    /// Destination.
    pub daddr: Ipv4Addr,
    /// Destination port.
    pub dport: u16,
    /// FIB.
    pub fib: u16,
}

impl Ends {
    fn of(key: crate::session::Key) -> Self {
        let addr = |e: Endpoint| Ipv4Addr::from_bits(e.addr);
        Self { saddr: addr(key.src()), sport: key.src().port, daddr: addr(key.dst()), dport: key.dst().port, fib: key.fib() }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Thread that has it.
    pub thread: usize,
    /// Its number there.
    pub index: SessionId,
    /// Protocol number.
    pub proto: u8,
    /// What packets from inside look like.
    pub i2o: Ends,
    /// What packets from outside look like.
    pub o2i: Ends,
    /// Seconds since a packet.
    pub idle: u32,
    /// Seconds until it ends.
    pub timeout_in: u32,
    /// Packets, both directions.
    pub packets: u64,
    /// Bytes, both directions.
    pub bytes: u64,
    /// By a static mapping.
    pub is_static: bool,
    /// The source from outside is changed too.
    pub twice_nat: bool,
    /// TCP: open in both directions.
    pub established: bool,
}

/// The answer of [`ShowSessions`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionList {
    /// Sessions of each thread that has some.
    pub threads: Vec<(usize, u32)>,
    /// Those asked for.
    pub sessions: Vec<SessionInfo>,
}

impl SessionInfo {
    fn of(thread: usize, index: SessionId, session: &Session, timeouts: &Timeouts, now: u32) -> Self {
        let idle = now.saturating_sub(session.last_heard);
        Self {
            thread,
            index,
            proto: session.i2o.proto(),
            i2o: Ends::of(session.i2o),
            o2i: Ends::of(session.o2i),
            idle,
            timeout_in: timeouts.of(session).saturating_sub(idle),
            packets: session.packets,
            bytes: session.bytes,
            is_static: session.is_static(),
            twice_nat: session.flags & flag::TWICE != 0,
            established: session.i2o.proto() == 6 && tcp::is_established(session.tcp),
        }
    }

    fn lines(&self, out: &mut String) {
        let proto = protocol_name(self.proto);
        let (i, o) = (&self.i2o, &self.o2i);
        let matches = |e: &Ends| {
            let Ends { saddr, sport, daddr, dport, fib } = e;
            format!("match: saddr {saddr} sport {sport} daddr {daddr} dport {dport} proto {proto} fib_idx {fib}")
        };
        let _ = writeln!(out, "    i2o {} proto {proto} port {} fib {}", i.saddr, i.sport, i.fib);
        let _ = writeln!(out, "    o2i {} proto {proto} port {} fib {}", o.daddr, o.dport, o.fib);
        if self.twice_nat {
            let _ = writeln!(out, "       external host o2i {}:{} i2o {}:{}", o.saddr, o.sport, i.daddr, i.dport);
        } else {
            let _ = writeln!(out, "       external host {}:{}", o.saddr, o.sport);
        }
        let (twice_out, twice_in) = if self.twice_nat {
            (format!(" dport {}", o.sport), format!(" sport {}", i.dport))
        } else {
            (String::new(), String::new())
        };
        let _ = writeln!(
            out,
            "       i2o flow: {} rewrite: saddr {} sport {} daddr {}{twice_out} txfib {} ",
            matches(i),
            o.daddr,
            o.dport,
            o.saddr,
            o.fib
        );
        let _ = writeln!(
            out,
            "       o2i flow: {} rewrite: saddr {}{twice_in} daddr {} dport {} txfib {} ",
            matches(o),
            i.daddr,
            i.saddr,
            i.sport,
            i.fib
        );
        let _ = writeln!(out, "       index {}", self.index);
        let _ = writeln!(out, "       last heard {}.00", self.idle);
        let _ = writeln!(out, "       timeout in {}.00", self.timeout_in);
        let _ = writeln!(out, "       total pkts {}, total bytes {}", self.packets, self.bytes);
        let _ = writeln!(out, "       {} translation", if self.is_static { "static" } else { "dynamic" });
    }
}

impl Text for SessionList {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str("NAT44 ED sessions:\n");
        for (thread, n) in &self.threads {
            let _ = writeln!(out, "-------- thread {thread} {}: {n} sessions --------", thread_name(*thread));
            self.sessions.iter().filter(|s| s.thread == *thread).for_each(|s| s.lines(out));
        }
    }
}

impl Execute<Router> for ShowSessions {
    type Reply = SessionList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SessionList>, OpError> {
        let (timeouts, now) = (control::timeouts(router), control::now(router));
        let mut list = SessionList { threads: Vec::new(), sessions: Vec::new() };
        for thread in control::threads(router) {
            let len = control::on_thread(router, thread, |nat| nat.sessions.len()).unwrap_or(0);
            list.threads.push((thread, len));
            let mut next = Some(0);
            while let Some(from) = next {
                let (some, more) = control::dump(router, thread, from, STEP);
                let wanted = some.iter().filter(|(_, s)| self.wants(s));
                list.sessions.extend(wanted.map(|(id, s)| SessionInfo::of(thread, *id, s, &timeouts, now)));
                next = more;
            }
        }
        Ok(Outcome::Done(list))
    }
}

/// Ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteSession {
    /// The endpoint is the outside one.
    #[serde(default)]
    pub outside: bool,
    /// Address.
    pub address: Ipv4Addr,
    /// Port.
    pub port: u16,
    /// Protocol number.
    pub proto: u8,
    /// Table of the inside.
    #[serde(default)]
    pub vrf: u32,
    /// The other end, where there are several sessions of the endpoint.
    #[serde(default)]
    pub external_host: Option<(Ipv4Addr, u16)>,
}

impl Execute<Router> for DeleteSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let direction = if self.outside { Direction::Out2In } else { Direction::In2Out };
        let end = Endpoint::new(self.address.to_bits(), self.port);
        let remote = self.external_host.map(|(a, p)| Endpoint::new(a.to_bits(), p));
        control::delete_session(router, direction, end, self.proto, self.vrf, remote)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Ends all sessions.
    pub change ClearSessions "nat44_sessions_clear" ["clear nat44 ed sessions"] {}
}

impl Execute<Router> for ClearSessions {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::clear_sessions(router)?;
        Ok(Outcome::Done(()))
    }
}
