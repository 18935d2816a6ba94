//! Tables (VRFs) and what chooses among equal paths.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::ops::Family;
use crate::interface::ops::resolve;
use crate::ip::{FamilyId, FlowHash};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ChangeTable>().declare::<ShowTables>().declare::<SetInterfaceTable>().declare::<SetFlowHash>();
}

request! {
    /// Makes a table (the lowest free number, printed, where none is given) or removes one.
    pub change ChangeTable "ip_table_add_del" ["ip table" { family: Family::Ip4 }, "ip6 table" { family: Family::Ip6 }] {
        /// Family.
        pub family: Family = "" default(Family::Ip4),
        /// Remove instead of add.
        pub remove: bool = "del|add",
        /// Number; the lowest free one where none is given.
        pub id: Option<u32> = "<id>" name("table id"),
        /// Name.
        pub name: Option<String> = "name <s>",
    } ignores {
        /// There is no multicast table that it could leave out.
        "no-mfib",
    }
}

/// The table that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ChangeTableReply {
    /// Its number.
    pub id: u32,
    #[serde(skip)]
    chosen: bool,
}

impl Text for ChangeTableReply {
    fn text(&self, out: &mut String, _view: &View) {
        if self.chosen {
            let _ = writeln!(out, "{}", self.id);
        }
    }
}

impl Execute<Router> for ChangeTable {
    type Reply = ChangeTableReply;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ChangeTableReply>, OpError> {
        let family = self.family.into();
        let with_id = |e| OpError::from(e).value(self.id.map_or_else(|| "none".into(), |i| i.to_string()));
        let (id, chosen) = match (self.remove, self.id) {
            (true, None) => return Err(OpError::new(retval::INVALID_ARGUMENT, "a table id is needed").key("table")),
            (true, Some(id)) => {
                router.remove_table(family, id).map_err(with_id)?;
                (id, false)
            }
            (false, id) => (router.add_table(family, id, self.name.as_deref()).map_err(with_id)?, id.is_none()),
        };
        Ok(Outcome::Done(ChangeTableReply { id, chosen }))
    }
}

request! {
    /// Shows tables.
    pub read ShowTables "ip_table_dump" ["show ip table" { family: Family::Ip4 }, "show ip6 table" { family: Family::Ip6 }] {
        /// Family.
        pub family: Family = "" default(Family::Ip4),
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableLine {
    /// Internal number.
    pub fib_index: u32,
    /// Number.
    pub table_id: u32,
    /// Name.
    pub name: String,
    /// Routes in it.
    pub routes: usize,
}

impl Text for TableLine {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "[{}] table_id:{} {}", self.fib_index, self.table_id, self.name);
    }
}

impl Execute<Router> for ShowTables {
    type Reply = Vec<TableLine>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<TableLine>>, OpError> {
        let tables = router.tables(FamilyId::from(self.family)).into_iter();
        let line = |t: crate::fib::TableInfo| TableLine { fib_index: t.fib, table_id: t.id, name: t.name, routes: t.routes };
        Ok(Outcome::Done(tables.map(line).collect()))
    }
}

request! {
    /// Looks an interface's packets up in a table; before it has addresses of the family.
    pub change SetInterfaceTable "sw_interface_set_table" [
        "set interface ip table" { family: Family::Ip4 },
        "set interface ip6 table" { family: Family::Ip6 },
    ] {
        /// Family.
        pub family: Family = "",
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Table.
        pub table: u32 = "<table-id>" name("table id"),
    }
}

impl Execute<Router> for SetInterfaceTable {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_interface_table(index, self.family.into(), self.table)?;
        Ok(Outcome::Done(()))
    }
}

/// Sets what chooses among equal paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFlowHash {
    /// Family.
    pub family: Family,
    /// Table.
    #[serde(default)]
    pub table: u32,
    /// Parts of the packet: `src`, `dst`, `sport`, `dport`, `proto`, `reverse`, `gtpv1teid`, `flowlabel`,
    /// `symmetric`.
    pub take: Vec<String>,
}

commands! {
    change SetFlowHash "set_ip_flow_hash" {
        /// Sets which parts of an IPv4 packet choose among equal paths of a table's routes.
        ["set ip flow-hash"] "table <id> [src] [dst] [sport] [dport] [proto] [reverse] [gtpv1teid] [symmetric]" by |args| parse_hash(args, Family::Ip4) => hash_command,
        /// Sets which parts of an IPv6 packet choose among equal paths of a table's routes.
        ["set ip6 flow-hash"] "table <id> [src] [dst] [sport] [dport] [proto] [reverse] [gtpv1teid] [flowlabel] [symmetric]" by |args| parse_hash(args, Family::Ip6) => hash_command,
    }
}

fn parse_hash(args: &mut Args<'_>, family: Family) -> Result<SetFlowHash, OpError> {
    let mut request = SetFlowHash { family, table: 0, take: Vec::new() };
    while !args.is_empty() {
        if args.take_keyword("table") {
            request.table = args.number("table id")?;
            continue;
        }
        let known = FlowHash::NAMES.iter().filter(|(name, _)| family == Family::Ip6 || *name != "flowlabel");
        match known.map(|(name, _)| *name).find(|name| args.take_keyword(name)) {
            Some(name) => request.take.push(name.into()),
            None => return Err(args.unexpected()),
        }
    }
    Ok(request)
}

fn hash_command(SetFlowHash { family, table, take }: &SetFlowHash) -> Option<String> {
    let ip = if *family == Family::Ip4 { "ip" } else { "ip6" };
    Some(format!("set {ip} flow-hash table {table} {}", take.join(" ")))
}

impl Execute<Router> for SetFlowHash {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let mut bits = 0;
        for word in &self.take {
            let known = FlowHash::NAMES.iter().find(|(name, _)| name == word);
            let invalid = || OpError::invalid("take", word, format!("unknown part of a packet `{word}'"));
            bits |= known.map(|(_, bit)| *bit).ok_or_else(invalid)?;
        }
        if bits == 0 {
            return Err(
                OpError::new(retval::INVALID_ARGUMENT, "name at least one part of the packet").remedy("src dst sport dport")
            );
        }
        router.set_flow_hash(self.family.into(), self.table, FlowHash(bits))?;
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn tables_are_made_named_bound_and_removed() {
        let mut h = Harness::new();
        h.interface(0);
        assert_eq!(run(&mut h.router, "ip table add 7"), "");
        assert_eq!(run(&mut h.router, "show ip table"), "[0] table_id:0 ipv4-VRF:0\n[1] table_id:7 ipv4-VRF:7\n");
        assert_eq!(run(&mut h.router, "ip table"), "1\n", "the lowest free number");
        run(&mut h.router, "ip table add 7 name red");
        run(&mut h.router, "ip6 table add 7");
        assert!(run(&mut h.router, "show ip table").contains("[1] table_id:7 red\n"));
        run(&mut h.router, "set interface ip table x0 7");
        run(&mut h.router, "set interface ip6 table x0 7");
        run(&mut h.router, "ip table del 7");
        assert!(run(&mut h.router, "show ip table").contains("[1] table_id:7 red\n"), "x0 uses it");
        run(&mut h.router, "set interface ip table x0 0");
        assert_eq!(run(&mut h.router, "show ip table"), "[0] table_id:0 ipv4-VRF:0\n[2] table_id:1 ipv4-VRF:1\n");
        assert_eq!(run(&mut h.router, "show ip6 table"), "[0] table_id:0 ipv6-VRF:0\n[1] table_id:7 ipv6-VRF:7\n");
        for (line, expected) in [
            ("ip table del 7", "Nonexistent table id 7"),
            ("ip table del 0", "table 0"),
            ("ip table add 0", "table 0"),
            ("ip table add x", "table id"),
            ("set interface ip table x0 9", "Nonexistent table id 9"),
            ("set ip flow-hash table 9 src", "Nonexistent table id 9"),
            ("set ip flow-hash table 0", "at least one"),
            ("set ip flow-hash table 0 colour", "colour"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn the_flow_hash_shows_in_the_heading() {
        let mut h = Harness::new();
        run(&mut h.router, "set ip flow-hash table 0 src dst");
        run(&mut h.router, "set ip flow-hash table 0 src dst symmetric gtpv1teid");
        assert!(run(&mut h.router, "show ip fib 9.9.9.9").contains("flow hash:[src dst gtpv1teid symmetric ]"));
        run(&mut h.router, "set ip flow-hash table 0 src dst");
        let heading = "ipv4-VRF:0, fib_index:0, flow hash:[src dst ] epoch:0 flags:none locks:[default-route:1, ]\n";
        assert!(run(&mut h.router, "show ip fib 9.9.9.9").starts_with(heading));
    }
}
