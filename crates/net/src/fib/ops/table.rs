//! Tables (VRFs) and what chooses among equal paths.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::ops::{Family, fib_error};
use crate::interface::ops::resolve;
use crate::ip::{FamilyId, FlowHash};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<ChangeTable>().operation::<ShowTables>().operation::<SetInterfaceTable>().operation::<SetFlowHash>();
    let table = "[add|del] [<id>] [name <s>]";
    let bind = "<if> <table-id>";
    let hash4 = "table <id> [src] [dst] [sport] [dport] [proto] [reverse] [gtpv1teid] [symmetric]";
    let hash6 = "table <id> [src] [dst] [sport] [dport] [proto] [reverse] [gtpv1teid] [flowlabel] [symmetric]";
    let commands = [
        Command {
            path: "ip table",
            syntax: table,
            help: "Makes an IPv4 table (the lowest free number, printed, where none is given) or removes one",
            parse: |args, _| parse_table(args, Family::Ip4),
        },
        Command {
            path: "ip6 table",
            syntax: table,
            help: "Makes an IPv6 table (the lowest free number, printed, where none is given) or removes one",
            parse: |args, _| parse_table(args, Family::Ip6),
        },
        Command {
            path: "show ip table",
            syntax: "",
            help: "Shows IPv4 tables",
            parse: |_, _| Ok(Invocation::new::<ShowTables>(ShowTablesRequest { family: Family::Ip4 })),
        },
        Command {
            path: "show ip6 table",
            syntax: "",
            help: "Shows IPv6 tables",
            parse: |_, _| Ok(Invocation::new::<ShowTables>(ShowTablesRequest { family: Family::Ip6 })),
        },
        Command {
            path: "set interface ip table",
            syntax: bind,
            help: "Looks an interface's IPv4 packets up in a table; before it has IPv4 addresses",
            parse: |args, _| parse_bind(args, Family::Ip4),
        },
        Command {
            path: "set interface ip6 table",
            syntax: bind,
            help: "Looks an interface's IPv6 packets up in a table; before it has IPv6 addresses",
            parse: |args, _| parse_bind(args, Family::Ip6),
        },
        Command {
            path: "set ip flow-hash",
            syntax: hash4,
            help: "Sets which parts of an IPv4 packet choose among equal paths of a table's routes",
            parse: |args, _| parse_hash(args, Family::Ip4),
        },
        Command {
            path: "set ip6 flow-hash",
            syntax: hash6,
            help: "Sets which parts of an IPv6 packet choose among equal paths of a table's routes",
            parse: |args, _| parse_hash(args, Family::Ip6),
        },
    ];
    for command in commands {
        registry.command(command);
    }
}

fn parse_table(args: &mut Args<'_>, family: Family) -> Result<Invocation<Router>, OpError> {
    let mut request = ChangeTableRequest { family, ..ChangeTableRequest::default() };
    while !args.is_empty() {
        if args.take_keyword("add") {
            request.remove = false;
        } else if args.take_keyword("del") {
            request.remove = true;
        } else if args.take_keyword("name") {
            request.name = Some(args.word("name")?.into_owned());
        } else if args.take_keyword("no-mfib") {
            // There is no multicast table that it could leave out.
        } else {
            request.id = Some(args.number("table id")?);
        }
    }
    Ok(Invocation::new::<ChangeTable>(request))
}

fn parse_bind(args: &mut Args<'_>, family: Family) -> Result<Invocation<Router>, OpError> {
    let interface = args.interface()?;
    let table = args.number("table id")?;
    Ok(Invocation::new::<SetInterfaceTable>(SetInterfaceTableRequest { family, interface, table }))
}

fn parse_hash(args: &mut Args<'_>, family: Family) -> Result<Invocation<Router>, OpError> {
    let mut request = SetFlowHashRequest { family, table: 0, take: Vec::new() };
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
    Ok(Invocation::new::<SetFlowHash>(request))
}

/// Makes or removes a table.
pub struct ChangeTable;

/// What [`ChangeTable`] changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeTableRequest {
    /// Family.
    pub family: Family,
    /// Number; the lowest free one where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Remove instead of add.
    pub remove: bool,
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

impl Operation<Router> for ChangeTable {
    const NAME: &'static str = "ip_table_add_del";
    const ACCESS: Access = Access::Change;
    type Request = ChangeTableRequest;
    type Reply = ChangeTableReply;

    fn run(router: &mut Router, request: ChangeTableRequest) -> Result<Outcome<Router, ChangeTableReply>, OpError> {
        let family = request.family.into();
        let with_id = |e| fib_error(&e).value(request.id.map_or_else(|| "none".into(), |i| i.to_string()));
        let (id, chosen) = match (request.remove, request.id) {
            (true, None) => return Err(OpError::new(retval::INVALID_ARGUMENT, "a table id is needed").key("table")),
            (true, Some(id)) => {
                router.remove_table(family, id).map_err(with_id)?;
                (id, false)
            }
            (false, id) => (router.add_table(family, id, request.name.as_deref()).map_err(with_id)?, id.is_none()),
        };
        Ok(Outcome::Done(ChangeTableReply { id, chosen }))
    }
}

/// Shows tables.
pub struct ShowTables;

/// Which ones [`ShowTables`] shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowTablesRequest {
    /// Family.
    pub family: Family,
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

impl Operation<Router> for ShowTables {
    const NAME: &'static str = "ip_table_dump";
    const ACCESS: Access = Access::Read;
    type Request = ShowTablesRequest;
    type Reply = Vec<TableLine>;

    fn run(router: &mut Router, request: ShowTablesRequest) -> Result<Outcome<Router, Vec<TableLine>>, OpError> {
        let tables = router.tables(FamilyId::from(request.family)).into_iter();
        let line = |t: crate::fib::TableInfo| TableLine { fib_index: t.fib, table_id: t.id, name: t.name, routes: t.routes };
        Ok(Outcome::Done(tables.map(line).collect()))
    }
}

/// Binds an interface to a table.
pub struct SetInterfaceTable;

/// What [`SetInterfaceTable`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetInterfaceTableRequest {
    /// Family.
    pub family: Family,
    /// Interface.
    pub interface: IfRef,
    /// Table.
    pub table: u32,
}

impl Operation<Router> for SetInterfaceTable {
    const NAME: &'static str = "sw_interface_set_table";
    const ACCESS: Access = Access::Change;
    type Request = SetInterfaceTableRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetInterfaceTableRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        router.set_interface_table(index, request.family.into(), request.table).map_err(|e| fib_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets what chooses among equal paths.
pub struct SetFlowHash;

/// What [`SetFlowHash`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFlowHashRequest {
    /// Family.
    pub family: Family,
    /// Table.
    #[serde(default)]
    pub table: u32,
    /// Parts of the packet: `src`, `dst`, `sport`, `dport`, `proto`, `reverse`, `gtpv1teid`, `flowlabel`,
    /// `symmetric`.
    pub take: Vec<String>,
}

impl Operation<Router> for SetFlowHash {
    const NAME: &'static str = "set_ip_flow_hash";
    const ACCESS: Access = Access::Change;
    type Request = SetFlowHashRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetFlowHashRequest) -> Result<Outcome<Router, ()>, OpError> {
        let mut bits = 0;
        for word in &request.take {
            let known = FlowHash::NAMES.iter().find(|(name, _)| name == word);
            let invalid = || OpError::invalid("take", word, format!("unknown part of a packet `{word}'"));
            bits |= known.map(|(_, bit)| *bit).ok_or_else(invalid)?;
        }
        if bits == 0 {
            return Err(
                OpError::new(retval::INVALID_ARGUMENT, "name at least one part of the packet").remedy("src dst sport dport")
            );
        }
        router.set_flow_hash(request.family.into(), request.table, FlowHash(bits)).map_err(|e| fib_error(&e))?;
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
