//! `set ip pmtu`, `show ip pmtu`: what neighbours take where that is less than their link does.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::Command;
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::ip_route::fib_error;
use super::threads::Empty;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<SetPathMtu>()
        .operation::<ShowPathMtus>()
        .command(Command {
            path: "set ip pmtu",
            syntax: "<next-hop> <mtu>|del [table <n>]",
            help: "Sets how long packets to a neighbour may be, where that is less than its link takes",
            parse: |args, _| {
                let next_hop = args.ip("next hop")?;
                let mtu = if args.take_keyword("del") { None } else { Some(args.number("mtu")?) };
                let table = if args.take_keyword("table") { args.number("table id")? } else { 0 };
                Ok(Invocation::new::<SetPathMtu>(PathMtuRequest { next_hop, mtu, table }))
            },
        })
        .command(Command {
            path: "show ip pmtu",
            syntax: "",
            help: "Shows path MTUs of neighbours",
            parse: |_, _| Ok(Invocation::new::<ShowPathMtus>(Empty {})),
        });
}

/// Sets how long packets to a neighbour may be.
pub struct SetPathMtu;

/// What [`SetPathMtu`] sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathMtuRequest {
    /// Neighbour.
    pub next_hop: IpAddr,
    /// Bytes of an IP packet; none takes the limit away.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Table of the neighbour's interface.
    #[serde(default)]
    pub table: u32,
}

impl Operation<Router> for SetPathMtu {
    const NAME: &'static str = "path_mtu_set";
    const ACCESS: Access = Access::Change;
    type Request = PathMtuRequest;
    type Reply = ();

    fn run(router: &mut Router, request: PathMtuRequest) -> Result<Outcome<Router, ()>, OpError> {
        let PathMtuRequest { next_hop, mtu, table } = request;
        router.set_path_mtu(table, next_hop, mtu).map_err(|e| fib_error(&e).value(next_hop))?;
        Ok(Outcome::Done(()))
    }
}

/// Shows path MTUs.
pub struct ShowPathMtus;

/// The answer of [`ShowPathMtus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PathMtus(pub Vec<PathMtuEntry>);

/// A path MTU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathMtuEntry {
    /// Table.
    pub table: u32,
    /// Neighbour.
    pub next_hop: IpAddr,
    /// Bytes of an IP packet.
    pub mtu: u16,
}

impl Operation<Router> for ShowPathMtus {
    const NAME: &'static str = "path_mtu_dump";
    const ACCESS: Access = Access::Read;
    type Request = Empty;
    type Reply = PathMtus;

    fn run(router: &mut Router, _: Empty) -> Result<Outcome<Router, PathMtus>, OpError> {
        let entry = |p: quiver_net::fib::PathMtu| PathMtuEntry { table: p.table, next_hop: p.next_hop, mtu: p.mtu };
        Ok(Outcome::Done(PathMtus(router.path_mtus().into_iter().map(entry).collect())))
    }
}

impl Text for PathMtus {
    fn text(&self, out: &mut String, _view: &View) {
        for PathMtuEntry { table, next_hop, mtu } in &self.0 {
            let _ = writeln!(out, "table {table} {next_hop} path-mtu {mtu}");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing;
    use quiver_net::testing::Harness;

    #[test]
    fn path_mtus_are_set_shown_and_taken_away() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        testing::run(&mut h.router, "set ip pmtu 10.0.0.2 900");
        assert_eq!(testing::run(&mut h.router, "show ip pmtu"), "table 0 10.0.0.2 path-mtu 900\n");
        testing::run(&mut h.router, "set ip pmtu 10.0.0.2 del table 0");
        assert_eq!(testing::run(&mut h.router, "show ip pmtu"), "");
        for (line, expected) in [
            ("set ip pmtu 10.0.0.2 67", "at least 68"),
            ("set ip pmtu 192.0.2.1 900", "on no link"),
            ("set ip pmtu 10.0.0.2 900 table 9", "table id 9"),
        ] {
            let error = testing::error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
