//! `ip route`: adding and removing, one prefix or many in a row.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quiver_command::grammar::{Args, Command};
use quiver_command::operation::{Access, Invocation, Job, OpError, Operation, Outcome, Registry, Step, Text, View, retval};
use quiver_wire::{IpPrefix, PrefixError};
use serde::{Deserialize, Serialize};

use super::path::{PathRequest, parse as parse_path};
use crate::Router;
use crate::fib::{Bulk, FibError, Path, Source};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<ChangeRoute>();
    registry.command_of::<ChangeRoute>(Command {
        path: "ip route",
        syntax: "[add|del] [count <n>] [source cli|api] <prefix>/<len> [table <id>] via [<nh>] [<if>] [next-hop-table <id>] \
                 [drop|local|punt|null|null-send-unreach|null-send-prohibit|gone] [ip4-lookup-in-table <id>] \
                 [ip6-lookup-in-table <id>] [lookup in table <id>] [src-lookup] [rx-ip4 <if>] [rx-ip6 <if>] \
                 [weight <n>] [preference <n>] [resolve-via-host] [resolve-via-attached] [via ...]",
        help: "Adds paths to a route, or removes them; del without paths removes the route",
        parse,
    });
}

fn parse(args: &mut Args<'_>, router: &Router) -> Result<Invocation<Router>, OpError> {
    let (mut remove, mut count, mut table, mut prefix, mut paths) = (false, 1, 0, None, Vec::new());
    let mut source = RouteSource::Cli;
    while !args.is_empty() {
        if args.take_keyword("add") {
            remove = false;
        } else if args.take_keyword("del") {
            remove = true;
        } else if args.take_keyword("count") {
            count = args.number("count")?;
        } else if args.take_keyword("source") {
            source = args.expect_one_of(&[("cli", RouteSource::Cli), ("api", RouteSource::Api)])?;
        } else if args.take_keyword("table") {
            table = args.number("table id")?;
        } else if args.take_keyword("via") {
            paths.push(parse_path(args, router)?);
        } else if prefix.is_none() && args.peek().is_some_and(|word| word.contains(['.', ':', '/'])) {
            prefix = Some(args.prefix_or_host("prefix")?);
        } else {
            return Err(args.unexpected());
        }
    }
    let (address, len) = prefix.ok_or_else(|| args.missing("prefix"))?;
    let invalid = |e: PrefixError| OpError::new(retval::INVALID_VALUE, e.to_string()).key("prefix");
    let prefix = IpPrefix::new(address, len).map_err(invalid)?;
    Ok(Invocation::new::<ChangeRoute>(RouteRequest { prefix, table, remove, replace: false, count, source, paths }))
}

/// Adds or removes routes.
pub struct ChangeRoute;

/// For whom a route stands: those of the binary API and of commands can stand beside each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteSource {
    /// The command language and JSON clients.
    #[default]
    Cli,
    /// Clients of the binary API.
    Api,
}

/// What [`ChangeRoute`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRequest {
    /// Prefix.
    pub prefix: IpPrefix,
    /// Table.
    #[serde(default)]
    pub table: u32,
    /// Remove instead of add.
    #[serde(default)]
    pub remove: bool,
    /// New paths take the place of those there are, instead of joining them.
    #[serde(default)]
    pub replace: bool,
    /// Prefixes in a row; 0 stands for 1.
    #[serde(default)]
    pub count: u64,
    /// For whom it stands.
    #[serde(default)]
    pub source: RouteSource,
    /// Paths; none with `remove`: all.
    #[serde(default)]
    pub paths: Vec<PathRequest>,
}

/// How many routes were changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RouteReply {
    /// Prefixes.
    pub routes: u64,
    /// How fast, where there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes_per_second: Option<f64>,
}

impl Text for RouteReply {
    fn text(&self, out: &mut String, _view: &View) {
        if let Some(rate) = self.routes_per_second {
            let _ = writeln!(out, "{rate:.6e} routes/sec");
        }
    }
}

impl Operation<Router> for ChangeRoute {
    const NAME: &'static str = "ip_route_add_del";
    const ACCESS: Access = Access::Change;
    type Request = RouteRequest;
    type Reply = RouteReply;

    fn run(router: &mut Router, request: RouteRequest) -> Result<Outcome<Router, RouteReply>, OpError> {
        let prefix = request.prefix;
        let paths: Result<Vec<Path>, OpError> = request.paths.iter().map(|p| p.path(router)).collect();
        let paths = paths?;
        let source = match request.source {
            RouteSource::Cli => Source::Cli,
            RouteSource::Api => Source::Api,
        };
        if request.count > 1 {
            if !request.remove && paths.is_empty() {
                return Err(FibError::Empty.into());
            }
            let bulk = router.bulk_routes(request.table, prefix.masked(), source, paths, request.count, request.remove)?;
            return Ok(Outcome::job(Many { bulk, spent: Duration::ZERO, cancelled: false }));
        }
        let result = match (request.remove, request.replace) {
            (true, _) => {
                let paths = (!paths.is_empty()).then_some(&paths[..]);
                router.remove_route(request.table, prefix, source, paths)
            }
            (_, true) => router.replace_route(request.table, prefix, source, paths),
            _ => router.add_route(request.table, prefix, source, paths),
        };
        result.map_err(|e| OpError::from(e).value(prefix))?;
        Ok(Outcome::Done(RouteReply { routes: 1, routes_per_second: None }))
    }
}

/// Many prefixes in slices.
struct Many {
    bulk: Bulk,
    spent: Duration,
    cancelled: bool,
}

/// Prefixes between two looks at the clock.
const SLICE: u64 = 64;

impl Job<Router, RouteReply> for Many {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<RouteReply> {
        let start = Instant::now();
        loop {
            if self.cancelled {
                let done = self.bulk.done();
                return Step::Done(Err(OpError::unspecified(format!("stopped after {done} routes"))));
            }
            if let Err(error) = router.step_bulk(&mut self.bulk, SLICE) {
                let done = self.bulk.done();
                let error = OpError::from(error);
                let error = if done == 0 { error } else { error.remedy(format!("{done} routes before it were changed")) };
                return Step::Done(Err(error));
            }
            let spent = start.elapsed();
            if self.bulk.is_finished() {
                self.spent += spent;
                let rate = self.bulk.done() as f64 / self.spent.as_secs_f64().max(1e-9);
                return Step::Done(Ok(RouteReply { routes: self.bulk.done(), routes_per_second: Some(rate) }));
            }
            if spent >= budget {
                self.spent += spent;
                return Step::Again;
            }
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.cancelled = true;
    }
}
