//! `set ip pmtu`, `show ip pmtu`: what neighbours take where that is less than their link does.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use serde::Serialize;

use crate::Router;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetPathMtu>().declare::<ShowPathMtus>();
}

request! {
    /// Sets how long packets to a neighbour may be, where that is less than its link takes.
    pub change SetPathMtu "path_mtu_set" ["set ip pmtu"] {
        /// Neighbour.
        pub next_hop: IpAddr = "<next-hop>" name("next hop"),
        /// Bytes of an IP packet; none takes the limit away.
        pub mtu: Option<u16> = "<mtu>|del" said(),
        /// Table of the neighbour's interface.
        pub table: u32 = "table <n>" default(0),
    }
}

impl Execute<Router> for SetPathMtu {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let SetPathMtu { next_hop, mtu, table } = self;
        router.set_path_mtu(table, next_hop, mtu).map_err(|e| OpError::from(e).value(next_hop))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows path MTUs of neighbours.
    pub read ShowPathMtus "path_mtu_dump" ["show ip pmtu"] {}
}

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

impl Execute<Router> for ShowPathMtus {
    type Reply = PathMtus;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PathMtus>, OpError> {
        let entry = |p: crate::fib::PathMtu| PathMtuEntry { table: p.table, next_hop: p.next_hop, mtu: p.mtu };
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
    use crate::testing::Harness;

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
