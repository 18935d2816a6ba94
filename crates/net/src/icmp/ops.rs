//! Packets for the router itself: who takes them, reassembly, and the limit of ICMP errors.

use std::fmt::Write as _;

mod configuration;
pub mod ping;
pub mod reassembly;

use crate::Router;
use crate::fib::ops::Family;
use crate::icmp::RateLimit;
use quiver_command::grammar::Args;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use serde::{Deserialize, Serialize};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowLocal>().declare::<ShowUdpPorts>().declare::<ShowRateLimit>().declare::<SetRateLimit>();
    registry.declare::<SetUnreachable>().examples(EXAMPLES);
    reassembly::register(registry);
    configuration::register(registry);
    ping::register(registry);
}

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &["set ip icmp-unreachable ip4 off"];

const FAMILIES: [Family; 2] = [Family::Ip4, Family::Ip6];

/// Who takes packets for the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowLocal {
    /// Which family.
    pub family: Family,
}

commands! {
    read ShowLocal "ip_local_show" {
        /// Shows which nodes take packets for the router, by IPv4 protocol.
        ["show ip local"] {} => { family: Family::Ip4 },
        /// Shows which nodes take packets for the router, by IPv6 next header.
        ["show ip6 local"] {} => { family: Family::Ip6 },
    }
}

/// A protocol or port, and the node that takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taker {
    /// Protocol, or port.
    pub number: u16,
    /// Its name, where it has one.
    pub name: String,
    /// The node.
    pub node: String,
}

/// Answer of [`ShowLocal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalTakers {
    /// Which family.
    pub family: Family,
    /// By protocol.
    pub protocols: Vec<Taker>,
}

impl Execute<Router> for ShowLocal {
    type Reply = LocalTakers;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, LocalTakers>, OpError> {
        let family = self.family;
        let taker = |(protocol, node): (quiver_wire::ipv4::IpProtocol, String)| Taker {
            number: protocol.0.into(),
            name: protocol.to_string(),
            node,
        };
        let protocols = router.ip_protocols(family.into()).into_iter().map(taker).collect();
        Ok(Outcome::Done(LocalTakers { family, protocols }))
    }
}

impl Text for LocalTakers {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "Protocols handled by {}_local", self.family.word());
        for Taker { name, node, .. } in &self.protocols {
            let _ = writeln!(out, "{name}: {node}");
        }
    }
}

request! {
    /// Shows the UDP ports that nodes listen on.
    pub read ShowUdpPorts "udp_ports_show" ["show udp ports"] {}
}

/// A UDP port that a node listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UdpListener {
    /// The port.
    pub port: u16,
    /// Which family.
    pub family: Family,
    /// The node.
    pub node: String,
}

/// Answer of [`ShowUdpPorts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct UdpListeners(Vec<UdpListener>);

impl Execute<Router> for ShowUdpPorts {
    type Reply = UdpListeners;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, UdpListeners>, OpError> {
        let mut all = Vec::new();
        for family in FAMILIES {
            all.extend(router.udp_ports(family.into()).into_iter().map(|(port, node)| UdpListener { port, family, node }));
        }
        all.sort_by_key(|l| l.port);
        Ok(Outcome::Done(UdpListeners(all)))
    }
}

impl Text for UdpListeners {
    fn text(&self, out: &mut String, _view: &View) {
        if self.0.is_empty() {
            out.push_str("no UDP ports\n");
            return;
        }
        let table = TextTable::new()
            .column("port", 10, Align::Left)
            .column("proto", 10, Align::Left)
            .column("node", 20, Align::Left)
            .trim();
        table.heading(out);
        for UdpListener { port, family, node } in &self.0 {
            table.row(out, &[port, &family.word(), node]);
        }
    }
}

request! {
    /// Shows how many ICMP errors may be sent, and how many were.
    pub read ShowRateLimit "icmp_rate_limit_show" ["show ip icmp-rate-limit"] {}
}

/// Limit and figures of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FamilyLimit {
    /// Which family.
    pub family: Family,
    /// Errors a second of all workers; none: no limit.
    pub total: Option<u32>,
    /// Errors a second of each worker; none: no limit of its own.
    pub per_worker: Option<u32>,
    /// How many at once.
    pub burst: u32,
    /// Errors sent.
    pub sent: u64,
    /// Errors that the limit kept back.
    pub suppressed: u64,
    /// Whether packets that no route carries on are answered.
    pub no_route: bool,
}

/// Answer of [`ShowRateLimit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RateLimits(Vec<FamilyLimit>);

impl Execute<Router> for ShowRateLimit {
    type Reply = RateLimits;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, RateLimits>, OpError> {
        let one = |family: Family| {
            let RateLimit { per_worker, total, burst } = router.icmp_rate_limit(family.into());
            let figures = router.icmp_rate_limit_figures(family.into());
            let limited = |n: u32| (n != 0).then_some(n);
            let (total, per_worker) = (limited(total), limited(per_worker));
            let no_route = router.answers_no_route(family.into());
            FamilyLimit { family, total, per_worker, burst, sent: figures.sent, suppressed: figures.suppressed, no_route }
        };
        Ok(Outcome::Done(RateLimits(FAMILIES.into_iter().map(one).collect())))
    }
}

impl Text for RateLimits {
    fn text(&self, out: &mut String, _view: &View) {
        let number = |n: &Option<u32>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let table = TextTable::new()
            .column("Family", 6, Align::Left)
            .column("Total/s", 10, Align::Right)
            .column("Worker/s", 10, Align::Right)
            .column("Burst", 10, Align::Right)
            .column("Sent", 12, Align::Right)
            .column("Suppressed", 12, Align::Right)
            .column("No route", 10, Align::Right)
            .trim();
        table.heading(out);
        for FamilyLimit { family, total, per_worker, burst, sent, suppressed, no_route } in &self.0 {
            let no_route = if *no_route { "answered" } else { "silent" };
            table.row(out, &[&family.word(), &number(total), &number(per_worker), burst, sent, suppressed, &no_route]);
        }
    }
}

/// Limits ICMP errors; what is missing stays.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetRateLimit {
    /// Which family; otherwise both.
    pub family: Option<Family>,
    /// Errors a second of all workers; 0: no limit.
    pub total: Option<u32>,
    /// Errors a second of each worker; 0: no limit of its own.
    pub per_worker: Option<u32>,
    /// How many at once, at least 1.
    pub burst: Option<u32>,
}

commands! {
    change SetRateLimit "icmp_rate_limit_set" {
        /// Limits the ICMP errors sent a second, of all workers together and of each.
        ["set ip icmp-rate-limit"] "[ip4|ip6] [total <n>|unlimited] [per-worker <n>|unlimited] [burst <n>]" by parse_limit => limit_command,
    }
}

fn limit_command(SetRateLimit { family, total, per_worker, burst }: &SetRateLimit) -> Option<String> {
    let mut command = String::from("set ip icmp-rate-limit");
    family.iter().for_each(|family| command += &format!(" {}", family.word()));
    for (word, limit) in [("total", total), ("per-worker", per_worker)] {
        limit.iter().for_each(|limit| match limit {
            0 => command += &format!(" {word} unlimited"),
            n => command += &format!(" {word} {n}"),
        });
    }
    burst.iter().for_each(|burst| command += &format!(" burst {burst}"));
    Some(command)
}

fn parse_limit(args: &mut Args<'_>) -> Result<SetRateLimit, OpError> {
    let mut request = SetRateLimit::default();
    let limit = |args: &mut Args<'_>, what: &str| {
        if args.take_keyword("unlimited") { Ok(0) } else { args.number_in(what, 1..=1_000_000_000) }
    };
    if args.is_empty() {
        return Err(args.missing("total, per-worker or burst"));
    }
    while !args.is_empty() {
        if let Some(family) = args.take_one_of(&[("ip4", Family::Ip4), ("ip6", Family::Ip6)]) {
            request.family = Some(family);
        } else if args.take_keyword("total") {
            request.total = Some(limit(args, "total")?);
        } else if args.take_keyword("per-worker") {
            request.per_worker = Some(limit(args, "per-worker")?);
        } else if args.take_keyword("burst") {
            request.burst = Some(args.number_in("burst", 1..=1_000_000)?);
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

impl Execute<Router> for SetRateLimit {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if let Some(burst) = self.burst.filter(|b| !(1..=1_000_000).contains(b)) {
            return Err(OpError::invalid("burst", burst, "expected 1 to 1000000"));
        }
        for family in FAMILIES.into_iter().filter(|f| self.family.is_none_or(|only| only == *f)) {
            let mut limit = router.icmp_rate_limit(family.into());
            limit.total = self.total.unwrap_or(limit.total);
            limit.per_worker = self.per_worker.unwrap_or(limit.per_worker);
            limit.burst = self.burst.unwrap_or(limit.burst);
            router.set_icmp_rate_limit(family.into(), limit);
        }
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Answers packets that no route carries on by "destination unreachable", as from the start, or drops them in silence, as VPP does.
    pub change SetUnreachable "icmp_unreachable_set" ["set ip icmp-unreachable"] {
        /// Which family.
        pub family: Family = "ip4|ip6" required(),
        /// Whether they are answered.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetUnreachable {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_answers_no_route(self.family.into(), self.on);
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::ip::FamilyId;
    use crate::ops::testing::{error, run};
    use crate::testing::Harness;

    #[test]
    fn protocols_and_ports_are_shown_with_their_nodes() {
        let mut h = Harness::new();
        assert_eq!(
            run(&mut h.router, "show ip local"),
            "Protocols handled by ip4_local\nICMP: ip4-icmp-input\nIGMP: igmp-input\nUDP: ip4-udp-lookup\n"
        );
        assert_eq!(
            run(&mut h.router, "show ip6 local"),
            "Protocols handled by ip6_local\nUDP: ip6-udp-lookup\nICMP6: ip6-icmp-input\n"
        );
        assert_eq!(run(&mut h.router, "show udp ports"), "no UDP ports\n");
        h.router.register_udp_port(FamilyId::V4, 3784, "null-node").unwrap();
        assert_eq!(run(&mut h.router, "show udp ports"), "   port      proto          node\n3784      ip4       null-node\n");
    }

    #[test]
    fn the_limit_of_errors_is_set_and_shown() {
        let mut h = Harness::new();
        let heading = "Family  Total/s  Worker/s    Burst      Sent     Suppressed  No route\n";
        assert_eq!(
            run(&mut h.router, "show ip icmp-rate-limit"),
            format!(
                "{heading}ip4         1000 unlimited       200           0           0  answered\n\
                 ip6         1000 unlimited       200           0           0  answered\n"
            )
        );
        assert_eq!(run(&mut h.router, "set ip icmp-rate-limit ip6 total unlimited per-worker 50 burst 7"), "");
        assert_eq!(run(&mut h.router, "set ip icmp-rate-limit total 9 ip4"), "");
        assert_eq!(
            run(&mut h.router, "show ip icmp-rate-limit"),
            format!(
                "{heading}ip4            9 unlimited       200           0           0  answered\n\
                 ip6    unlimited        50         7           0           0  answered\n"
            )
        );
        for (line, expected) in [
            ("set ip icmp-rate-limit", "total"),
            ("set ip icmp-rate-limit total 0", "total"),
            ("set ip icmp-rate-limit burst 0", "burst"),
            ("set ip icmp-rate-limit fast", "fast"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
