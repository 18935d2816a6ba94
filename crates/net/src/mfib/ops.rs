//! `ip mroute`, `show ip mfib`, `show ip6 mfib`.

mod configuration;
mod show;

use std::net::IpAddr;

use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request::Execute;
use serde::{Deserialize, Serialize};

use super::{Change, GroupPrefix, MfibError, Mroute, PathFlags, RouteFlags, To};
use crate::Router;
use crate::fib::ops::RouteSource;
use crate::interface::ops::resolve;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ChangeMroute>();
    show::register(registry);
    configuration::register(registry);
}

/// A path as the user says it: an interface, one of its neighbours, or (neither) this router.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MroutePath {
    /// Interface; without one this router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<IfRef>,
    /// The only neighbour that packets go to; without one the group's hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Packets are taken from the interface.
    pub accept: bool,
    /// Packets go there.
    pub forward: bool,
}

impl MroutePath {
    fn path(&self, router: &Router) -> Result<(To, PathFlags), OpError> {
        let interface = self.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let to = match (interface, self.next_hop) {
            (None, None) => To::Local,
            (Some(interface), None) => To::Interface(interface),
            (Some(interface), Some(address)) => To::Neighbor(interface, address),
            (None, Some(address)) => {
                let error = OpError::new(retval::INVALID_ARGUMENT, "a next hop needs its interface");
                return Err(error.key("next_hop").value(address));
            }
        };
        Ok((to, PathFlags { accept: self.accept, forward: self.forward }))
    }

    /// The path of a route.
    pub(super) fn of(router: &Router, to: To, flags: PathFlags) -> Self {
        let name = |index| Some(IfRef(router.interfaces.name(index)));
        let (interface, next_hop) = match to {
            To::Local => (None, None),
            To::Interface(index) => (name(index), None),
            To::Neighbor(index, address) => (name(index), Some(address)),
        };
        Self { interface, next_hop, accept: flags.accept, forward: flags.forward }
    }

    fn words(&self) -> String {
        let mut words = " via".to_owned();
        if let Some(address) = self.next_hop {
            words += &format!(" {address}");
        }
        words += &self.interface.as_ref().map_or_else(|| " local".to_owned(), |name| format!(" {}", quote(name.as_str())));
        words += if self.accept { " Accept" } else { "" };
        words + if self.forward { " Forward" } else { "" }
    }
}

/// Adds a multicast route or paths to it, or removes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeMroute {
    /// Its packets: `GROUP/LENGTH`, or `SOURCE,GROUP`.
    pub route: GroupPrefix,
    /// Table.
    #[serde(default)]
    pub table: u32,
    /// Remove instead of add.
    #[serde(default)]
    pub remove: bool,
    /// What is said takes the place of what there is, instead of joining it.
    #[serde(default)]
    pub replace: bool,
    /// For whom it stands.
    #[serde(default)]
    pub source: RouteSource,
    /// Packets are taken from any interface.
    #[serde(default)]
    pub accept_all: bool,
    /// Packets are dropped.
    #[serde(default)]
    pub drop: bool,
    /// Paths; none with `remove`: all.
    #[serde(default)]
    pub paths: Vec<MroutePath>,
}

commands! {
    change ChangeMroute "ip_mroute_add_del" {
        /// Adds paths to a multicast route, or removes them; `del' without paths removes the route.
        ["ip mroute"] "[add|del] [source cli|api] [table <id>] [<source>] <group>[/<len>] [via [<nh>] <if>|local [Accept] [Forward] ...] [Accept-all-itf] [Drop]" by parse => command,
    }
}

fn parse(args: &mut Args<'_>) -> Result<ChangeMroute, OpError> {
    let (mut remove, mut table, mut source, mut paths) = (false, 0, RouteSource::Cli, Vec::new());
    let (mut accept_all, mut drop, mut addresses) = (false, false, Vec::new());
    while !args.is_empty() {
        if args.take_keyword("add") {
            remove = false;
        } else if args.take_keyword("del") {
            remove = true;
        } else if args.take_keyword("table") {
            table = args.number("table id")?;
        } else if args.take_exact("source") {
            source = args.expect_one_of(&[("cli", RouteSource::Cli), ("api", RouteSource::Api)])?;
        } else if args.take_keyword("via") {
            paths.push(parse_path(args)?);
        } else if args.take_exact("Accept-all-itf") {
            accept_all = true;
        } else if args.take_exact("Drop") {
            drop = true;
        } else if addresses.len() < 2 && args.peek().is_some_and(|word| word.contains(['.', ':', '/'])) {
            addresses.push(args.prefix_or_host("group")?);
        } else {
            return Err(args.unexpected());
        }
    }
    let route = match addresses[..] {
        [] => return Err(args.missing("group")),
        [(group, len)] => GroupPrefix::new(None, group, len),
        [(source, _), (group, len), ..] => GroupPrefix::new(Some(source), group, len),
    };
    let route = route?;
    Ok(ChangeMroute { route, table, remove, replace: false, source, accept_all, drop, paths })
}

fn parse_path(args: &mut Args<'_>) -> Result<MroutePath, OpError> {
    let mut path = MroutePath::default();
    if !args.take_exact("local") {
        path.next_hop = args.try_ip();
        path.interface = Some(args.interface()?);
    }
    loop {
        if args.take_exact("Accept") {
            path.accept = true;
        } else if args.take_exact("Forward") {
            path.forward = true;
        } else {
            return Ok(path);
        }
    }
}

fn command(request: &ChangeMroute) -> Option<String> {
    let ChangeMroute { route, table, remove, replace, source, accept_all, drop, paths } = request;
    if *replace {
        // There is no word for it.
        return None;
    }
    let mut words = format!("ip mroute {}", if *remove { "del" } else { "add" });
    words += if *source == RouteSource::Api { " source api" } else { "" };
    if *table != 0 {
        words += &format!(" table {table}");
    }
    words += &match route.source() {
        Some(source) => format!(" {source} {}", route.group()),
        None => format!(" {}/{}", route.group(), route.len()),
    };
    paths.iter().for_each(|path| words += &path.words());
    words += if *accept_all { " Accept-all-itf" } else { "" };
    words += if *drop { " Drop" } else { "" };
    Some(words)
}

/// An error of multicast routes as an operation's.
impl From<MfibError> for OpError {
    fn from(error: MfibError) -> Self {
        let (code, key) = match &error {
            MfibError::Fib(error) => return error.clone().into(),
            MfibError::Prefix | MfibError::NoGroup(_) | MfibError::Link(_) => (retval::INVALID_VALUE, "route"),
            MfibError::Full(..) => (retval::LIMIT_EXCEEDED, "route"),
            MfibError::NoRoute(_) => (retval::NO_SUCH_ENTRY, "route"),
            MfibError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

impl ChangeMroute {
    /// The request that makes a route as it is.
    pub(super) fn of(router: &Router, table: u32, route: &Mroute) -> Self {
        let mut paths: Vec<MroutePath> = route.paths.iter().map(|(to, flags)| MroutePath::of(router, *to, *flags)).collect();
        // By name: numbers are others where interfaces were made in another order.
        paths.sort_by_cached_key(MroutePath::words);
        let RouteFlags { accept_all, drop } = route.flags;
        let source = if route.client { RouteSource::Api } else { RouteSource::Cli };
        Self { route: route.prefix, table, remove: false, replace: false, source, accept_all, drop, paths }
    }
}

impl Execute<Router> for ChangeMroute {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let paths: Result<Vec<(To, PathFlags)>, OpError> = self.paths.iter().map(|path| path.path(router)).collect();
        let paths = paths?;
        let done = if self.remove {
            let paths: Vec<To> = paths.iter().map(|(to, _)| *to).collect();
            router.remove_mroute(self.table, self.route, &paths)
        } else {
            let flags = RouteFlags { accept_all: self.accept_all, drop: self.drop };
            let said = flags != RouteFlags::default() || self.replace;
            if paths.is_empty() && !said {
                return Err(OpError::new(retval::NO_PATHS_IN_ROUTE, "a multicast route without paths or flags").key("paths"));
            }
            let client = self.source == RouteSource::Api;
            let change = Change { flags: said.then_some(flags), paths, replace: self.replace, client, plugin: false };
            router.change_mroute(self.table, self.route, &change).map(drop)
        };
        done.map_err(|error| OpError::from(error).value(self.route))?;
        Ok(Outcome::Done(()))
    }
}
