//! `show ip mfib`, `show ip6 mfib`.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use serde::Serialize;

use super::MroutePath;
use crate::Router;
use crate::fib::FibError;
use crate::fib::ops::Family;
use crate::ip::FamilyId;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowMfib>();
}

request! {
    /// Shows multicast routes, and which groups are for this router without any.
    pub read ShowMfib "ip_mroute_dump" ["show ip mfib" { family: Family::Ip4 }, "show ip6 mfib" { family: Family::Ip6 }] {
        /// Family.
        pub family: Family = "" default(Family::Ip4),
        /// Only this table; else all.
        pub table: Option<u32> = "table <id>",
        /// Only routes to this group.
        pub group: Option<IpAddr> = "<group>",
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MfibRoute {
    /// Its packets.
    pub route: String,
    /// Packets are taken from any interface.
    pub accept_all: bool,
    /// Packets are dropped.
    pub drop: bool,
    /// It is there without being configured.
    pub special: bool,
    /// Paths.
    pub paths: Vec<MroutePath>,
    /// Packets that it was found for.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MfibTable {
    /// Family.
    pub family: Family,
    /// Number.
    pub table: u32,
    /// Name.
    pub name: String,
    /// Routes.
    pub routes: Vec<MfibRoute>,
}

impl Text for MfibTable {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "{}, table {}", self.name, self.table);
        for route in &self.routes {
            let (source, group) = route.route.split_once(',').unwrap_or(("*", &route.route));
            let flags = [(route.accept_all, " Accept-all-itf"), (route.drop, " Drop"), (route.special, " special")];
            let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect();
            let _ = writeln!(out, " ({source}, {group}):{flags} packets {} bytes {}", route.packets, route.bytes);
            for path in &route.paths {
                let _ = writeln!(out, "  {}", path.words().trim_start());
            }
        }
    }
}

/// Groups that are for this router without a route.
fn specials(family: FamilyId) -> Vec<MfibRoute> {
    let groups: &[&str] = match family {
        FamilyId::V4 => &["224.0.0.0/24"],
        FamilyId::V6 => &["ff02::/16", "ff05::2/128"],
    };
    let local = MroutePath { forward: true, ..MroutePath::default() };
    let special = |group: &&str| MfibRoute {
        route: (*group).to_owned(),
        accept_all: true,
        drop: false,
        special: true,
        paths: vec![local.clone()],
        packets: 0,
        bytes: 0,
    };
    groups.iter().map(special).collect()
}

impl Execute<Router> for ShowMfib {
    type Reply = Vec<MfibTable>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<MfibTable>>, OpError> {
        let family: FamilyId = self.family.into();
        if let Some(id) = self.table {
            router.fib_of_table(family, id).ok_or(FibError::NoTable { family, id })?;
        }
        let mut tables = Vec::new();
        for table in router.tables(family).into_iter().filter(|t| self.table.is_none_or(|id| id == t.id)) {
            let mut routes = if self.group.is_none() { specials(family) } else { Vec::new() };
            let all = router.mroutes(family, table.id).filter(|route| self.group.is_none_or(|group| route.prefix.group() == group));
            routes.extend(all.map(|route| {
                let (packets, bytes) = router.mroute_counts(route);
                MfibRoute {
                    route: route.prefix.to_string(),
                    accept_all: route.flags.accept_all,
                    drop: route.flags.drop,
                    special: false,
                    paths: route.paths.iter().map(|(to, flags)| MroutePath::of(router, *to, *flags)).collect(),
                    packets,
                    bytes,
                }
            }));
            tables.push(MfibTable { family: self.family, table: table.id, name: table.name, routes });
        }
        Ok(Outcome::Done(tables))
    }
}
