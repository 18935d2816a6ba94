//! Plugin, interfaces, pools, forwarding, timeouts, limits.

use std::net::Ipv4Addr;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::{Empty, nat_error, resolve};
use crate::config::Side;
use crate::control::{self, Enabled, Nat, PoolSpec, SESSIONS_DEFAULT};
use crate::table::Timeouts;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<Enable>().operation::<Disable>().operation::<SetInterface>().operation::<SetPool>();
    registry.operation::<SetPoolInterface>().operation::<SetForwarding>().operation::<SetTimeouts>().operation::<SetLimit>();
    registry.operation::<SetNonSyn>().operation::<ShowNonSyn>();
    let commands = [
        Command {
            path: "nat44 plugin",
            syntax: "enable [sessions <n>] [inside-vrf <id>] [outside-vrf <id>] | disable",
            help: "Switches NAT44 on, with so many sessions for each thread, or off with all its configuration",
            parse: parse_plugin,
        },
        Command {
            path: "set interface nat44",
            syntax: "[in <if>] [out <if>] [output-feature] [del]",
            help: "Puts interfaces inside or outside, with output-feature outside of all others, or takes them from there",
            parse: parse_interface,
        },
        Command {
            path: "nat44 add address",
            syntax: "<ip4> [- <ip4>] [tenant-vrf <id>] [twice-nat] [endpoint-independent] [del]",
            help: "Adds addresses to the pool, or takes them out with their sessions",
            parse: parse_pool,
        },
        Command {
            path: "nat44 add interface address",
            syntax: "<if> [twice-nat] [del]",
            help: "Puts the address of an interface into the pool, whatever it is at the time",
            parse: |args, _| {
                let interface = args.interface()?;
                let (mut twice_nat, mut remove) = (false, false);
                while !args.is_empty() {
                    match args.expect_one_of(&[("twice-nat", true), ("del", false)])? {
                        true => twice_nat = true,
                        false => remove = true,
                    }
                }
                Ok(Invocation::new::<SetPoolInterface>(SetPoolInterfaceRequest { interface, twice_nat, remove }))
            },
        },
        Command {
            path: "nat44 forwarding",
            syntax: "enable|disable",
            help: "Passes packets from outside that belong to no session, or drops them",
            parse: |args, _| Ok(Invocation::new::<SetForwarding>(SetForwardingRequest { enable: args.switch("state")? })),
        },
        Command {
            path: "nat44 tcp-non-syn",
            syntax: "drop|translate",
            help: "Drops TCP packets without SYN that belong to no session, or lets them begin one",
            parse: |args, _| {
                let translate = args.take_keyword("translate");
                if !translate {
                    args.expect_keyword("drop")?;
                }
                Ok(Invocation::new::<SetNonSyn>(SetNonSynRequest { translate }))
            },
        },
        Command {
            path: "show nat44 tcp-non-syn",
            syntax: "",
            help: "Shows what becomes of TCP packets without SYN that belong to no session",
            parse: |_, _| Ok(Invocation::new::<ShowNonSyn>(Empty {})),
        },
        Command {
            path: "set nat timeout",
            syntax: "[udp <s>] [tcp-established <s>] [tcp-transitory <s>] [icmp <s>] | reset",
            help: "Sets how long sessions live without a packet, in seconds",
            parse: parse_timeouts,
        },
        Command {
            path: "set nat44 session limit",
            syntax: "<n> [vrf <id>]",
            help: "Sets how many sessions one host may have, or the hosts of a table on each thread; 0: no limit",
            parse: |args, _| {
                let limit = args.number("limit")?;
                let vrf = if args.take_keyword("vrf") { Some(args.number("vrf")?) } else { None };
                Ok(Invocation::new::<SetLimit>(SetLimitRequest { limit, vrf }))
            },
        },
    ];
    for command in commands {
        registry.command(command);
    }
}

fn parse_plugin(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    if args.take_keyword("disable") {
        return Ok(Invocation::new::<Disable>(Empty {}));
    }
    args.expect_keyword("enable")?;
    let mut request = EnableRequest::default();
    while !args.is_empty() {
        if args.take_keyword("sessions") {
            request.sessions = args.number("sessions")?;
        } else if args.take_keyword("inside-vrf") {
            request.inside_vrf = args.number("inside-vrf")?;
        } else if args.take_keyword("outside-vrf") {
            request.outside_vrf = args.number("outside-vrf")?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<Enable>(request))
}

fn parse_interface(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = SetInterfaceRequest::default();
    while !args.is_empty() {
        if args.take_keyword("in") {
            request.inside.push(args.interface()?);
        } else if args.take_keyword("out") {
            request.outside.push(args.interface()?);
        } else if args.take_keyword("del") {
            request.remove = true;
        } else if args.take_keyword("output-feature") {
            request.output_feature = true;
        } else {
            return Err(args.unexpected());
        }
    }
    if request.inside.is_empty() && request.outside.is_empty() {
        return Err(args.missing("interface"));
    }
    Ok(Invocation::new::<SetInterface>(request))
}

fn parse_pool(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let first = args.ip4("address")?;
    let (last, tenant_vrf) = (None, None);
    let mut request = SetPoolRequest { first, last, tenant_vrf, twice_nat: false, endpoint_independent: false, remove: false };
    while !args.is_empty() {
        if args.take_exact("-") {
            request.last = Some(args.ip4("last address")?);
        } else if args.take_keyword("tenant-vrf") {
            request.tenant_vrf = Some(args.number("tenant-vrf")?);
        } else if args.take_keyword("twice-nat") {
            request.twice_nat = true;
        } else if args.take_keyword("endpoint-independent") {
            request.endpoint_independent = true;
        } else if args.take_keyword("del") {
            request.remove = true;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<SetPool>(request))
}

fn parse_timeouts(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = SetTimeoutsRequest::default();
    if args.is_empty() {
        return Err(args.missing("timeout"));
    }
    while !args.is_empty() {
        if args.take_keyword("reset") {
            request.reset = true;
        } else if args.take_keyword("udp") {
            request.udp = Some(args.number("seconds")?);
        } else if args.take_keyword("tcp-established") {
            request.tcp_established = Some(args.number("seconds")?);
        } else if args.take_keyword("tcp-transitory") {
            request.tcp_transitory = Some(args.number("seconds")?);
        } else if args.take_keyword("icmp") {
            request.icmp = Some(args.number("seconds")?);
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<SetTimeouts>(request))
}

/// Switches NAT44 on.
pub struct Enable;

/// What [`Enable`] is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnableRequest {
    /// Most sessions of a thread.
    pub sessions: u32,
    /// Table of the inside.
    pub inside_vrf: u32,
    /// Table of the outside.
    pub outside_vrf: u32,
}

impl Default for EnableRequest {
    fn default() -> Self {
        Self { sessions: SESSIONS_DEFAULT, inside_vrf: 0, outside_vrf: 0 }
    }
}

impl Operation<Router> for Enable {
    const NAME: &'static str = "nat44_plugin_enable";
    const ACCESS: Access = Access::Change;
    type Request = EnableRequest;
    type Reply = ();

    fn run(router: &mut Router, request: EnableRequest) -> Result<Outcome<Router, ()>, OpError> {
        let what = Enabled { sessions: request.sessions, vrfs: (request.inside_vrf, request.outside_vrf) };
        control::enable(router, what).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Switches NAT44 off.
pub struct Disable;

impl Operation<Router> for Disable {
    const NAME: &'static str = "nat44_plugin_disable";
    const ACCESS: Access = Access::Change;
    type Request = Empty;
    type Reply = ();

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, ()>, OpError> {
        control::disable(router).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Puts interfaces inside or outside.
pub struct SetInterface;

/// What [`SetInterface`] does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetInterfaceRequest {
    /// Interfaces inside.
    pub inside: Vec<IfRef>,
    /// Interfaces outside.
    pub outside: Vec<IfRef>,
    /// Those outside are so for all others, wherever packets come from.
    pub output_feature: bool,
    /// Take them from there.
    pub remove: bool,
}

impl Operation<Router> for SetInterface {
    const NAME: &'static str = "nat44_interface_set";
    const ACCESS: Access = Access::Change;
    type Request = SetInterfaceRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetInterfaceRequest) -> Result<Outcome<Router, ()>, OpError> {
        let sides =
            [(&request.inside, Side { inside: true, outside: false }), (&request.outside, Side { inside: false, outside: true })];
        let mut todo = Vec::new();
        for (names, side) in sides {
            for name in names {
                todo.push((resolve(router, name)?, side));
            }
        }
        for (index, side) in todo {
            if request.output_feature && side.outside {
                control::set_output(router, index, !request.remove).map_err(|e| nat_error(&e))?;
                continue;
            }
            control::set_interface(router, index, side, !request.remove).map_err(|e| nat_error(&e))?;
        }
        Ok(Outcome::Done(()))
    }
}

/// Adds addresses to the pool or takes them out.
pub struct SetPool;

/// What [`SetPool`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPoolRequest {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address; the first where there is none.
    #[serde(default)]
    pub last: Option<Ipv4Addr>,
    /// Table whose hosts they are for; all where there is none.
    #[serde(default)]
    pub tenant_vrf: Option<u32>,
    /// For sources from outside.
    #[serde(default)]
    pub twice_nat: bool,
    /// A port of them belongs to one inside endpoint, whatever it speaks to.
    #[serde(default)]
    pub endpoint_independent: bool,
    /// Take them out.
    #[serde(default)]
    pub remove: bool,
}

impl Operation<Router> for SetPool {
    const NAME: &'static str = "nat44_address_set";
    const ACCESS: Access = Access::Change;
    type Request = SetPoolRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetPoolRequest) -> Result<Outcome<Router, ()>, OpError> {
        let spec = PoolSpec {
            addr: request.first,
            vrf: request.tenant_vrf,
            twice: request.twice_nat,
            independent: request.endpoint_independent,
        };
        let last = request.last.unwrap_or(request.first);
        control::set_pool(router, spec, last, !request.remove).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Puts an interface's address into the pool.
pub struct SetPoolInterface;

/// What [`SetPoolInterface`] does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPoolInterfaceRequest {
    /// Interface.
    pub interface: IfRef,
    /// For sources from outside.
    #[serde(default)]
    pub twice_nat: bool,
    /// Take it out.
    #[serde(default)]
    pub remove: bool,
}

impl Operation<Router> for SetPoolInterface {
    const NAME: &'static str = "nat44_interface_address_set";
    const ACCESS: Access = Access::Change;
    type Request = SetPoolInterfaceRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetPoolInterfaceRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        control::set_pool_interface(router, index, request.twice_nat, !request.remove).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Switches forwarding of packets without a session.
pub struct SetForwarding;

/// What [`SetForwarding`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetForwardingRequest {
    /// On.
    pub enable: bool,
}

impl Operation<Router> for SetForwarding {
    const NAME: &'static str = "nat44_forwarding_set";
    const ACCESS: Access = Access::Change;
    type Request = SetForwardingRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetForwardingRequest) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.forwarding = request.enable).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets what becomes of TCP packets without SYN that belong to no session.
pub struct SetNonSyn;

/// What [`SetNonSyn`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNonSynRequest {
    /// They begin sessions; else they are dropped.
    pub translate: bool,
}

impl Operation<Router> for SetNonSyn {
    const NAME: &'static str = "nat44_tcp_non_syn_set";
    const ACCESS: Access = Access::Change;
    type Request = SetNonSynRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetNonSynRequest) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, |config| config.non_syn = request.translate).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Shows what becomes of TCP packets without SYN that belong to no session.
pub struct ShowNonSyn;

/// The answer of [`ShowNonSyn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NonSynInfo {
    /// They begin sessions; else they are dropped.
    pub translate: bool,
}

impl Text for NonSynInfo {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(if self.translate { "tcp-non-syn translate\n" } else { "tcp-non-syn drop\n" });
    }
}

impl Operation<Router> for ShowNonSyn {
    const NAME: &'static str = "nat44_tcp_non_syn_show";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = NonSynInfo;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, NonSynInfo>, OpError> {
        let translate = router.part::<Nat>().is_some_and(|nat| nat.config.non_syn);
        Ok(Outcome::Done(NonSynInfo { translate }))
    }
}

/// Sets timeouts.
pub struct SetTimeouts;

/// What [`SetTimeouts`] sets, in seconds; what is not named stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetTimeoutsRequest {
    /// All to what they are at first.
    pub reset: bool,
    /// UDP.
    pub udp: Option<u32>,
    /// Open TCP connections.
    pub tcp_established: Option<u32>,
    /// TCP connections being opened or closed.
    pub tcp_transitory: Option<u32>,
    /// ICMP queries.
    pub icmp: Option<u32>,
}

impl Operation<Router> for SetTimeouts {
    const NAME: &'static str = "nat_timeouts_set";
    const ACCESS: Access = Access::Change;
    type Request = SetTimeoutsRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetTimeoutsRequest) -> Result<Outcome<Router, ()>, OpError> {
        let old = if request.reset { Timeouts::default() } else { control::timeouts(router) };
        let timeouts = Timeouts {
            udp: request.udp.unwrap_or(old.udp),
            tcp_established: request.tcp_established.unwrap_or(old.tcp_established),
            tcp_transitory: request.tcp_transitory.unwrap_or(old.tcp_transitory),
            icmp: request.icmp.unwrap_or(old.icmp),
        };
        let all = [timeouts.udp, timeouts.tcp_established, timeouts.tcp_transitory, timeouts.icmp];
        if let Some(wrong) = all.iter().find(|t| !(1..=1_000_000).contains(*t)) {
            return Err(OpError::invalid("timeout", wrong, format!("{wrong} is out of range, expected 1 to 1000000 seconds")));
        }
        control::set(router, |config| config.timeouts = timeouts).map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets how many sessions a host may have, or the hosts of a table.
pub struct SetLimit;

/// What [`SetLimit`] sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimitRequest {
    /// Sessions; 0: no limit.
    pub limit: u32,
    /// The table whose hosts have the limit, all together on each thread; without one it is each host's.
    #[serde(default)]
    pub vrf: Option<u32>,
}

impl Operation<Router> for SetLimit {
    const NAME: &'static str = "nat44_session_limit_set";
    const ACCESS: Access = Access::Change;
    type Request = SetLimitRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetLimitRequest) -> Result<Outcome<Router, ()>, OpError> {
        let SetLimitRequest { limit, vrf } = request;
        let set = match vrf {
            Some(table) => control::set_table_limit(router, table, limit),
            None => control::set(router, |config| config.host_limit = limit),
        };
        set.map_err(|e| nat_error(&e))?;
        Ok(Outcome::Done(()))
    }
}
