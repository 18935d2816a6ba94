//! What is shown of tables and of where they are used.

use std::fmt::Write as _;

use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use super::{Action, Family, to_hex};
use crate::control::{Classify, Table};
use crate::nodes::signed;
use crate::view::{NONE, Place};

/// Which tables are shown.
pub type Kind = Family;

request! {
    /// Shows classifier tables, and with `verbose` their sessions.
    pub read ShowTables "classify_tables_show" ["show classify tables"] {
        /// One table; all where absent.
        pub index: Option<u32> = "index <n>",
        /// Their sessions too.
        pub verbose: bool = "verbose",
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Bytes under the mask.
    pub r#match: String,
    /// 0 drops its packets.
    pub hit_next: u32,
    /// A number kept with it.
    pub opaque_index: u32,
    /// Bytes by which the data moves.
    pub advance: i32,
    /// What is done besides.
    pub action: Option<Action>,
    /// Packets that it had.
    pub hits: u64,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableInfo {
    /// Its number.
    pub table: u32,
    /// Sessions that it has.
    pub sessions: usize,
    /// Sessions that it can have.
    pub sessions_max: usize,
    /// The table behind it.
    pub next_table: Option<u32>,
    /// 0 drops packets without a session.
    pub miss_next: u32,
    /// Buckets, as they were asked for.
    pub buckets: u32,
    /// Vectors skipped.
    pub skip: u32,
    /// Vectors compared.
    pub vectors: u32,
    /// Whether the first vector begins with the node's data.
    pub current_data_flag: bool,
    /// Bytes from there.
    pub current_data_offset: i16,
    /// The mask.
    pub mask: String,
    /// Bytes of memory in use.
    pub memory: usize,
    /// Its sessions, where they are asked for.
    pub details: Option<Vec<SessionInfo>>,
}

fn info(number: u32, table: &Table, verbose: bool) -> TableInfo {
    let shape = &table.shape;
    let len = shape.mask.len();
    let details = table.sessions().map(|(key, session)| SessionInfo {
        r#match: to_hex(key.get(..len).unwrap_or_default()),
        hit_next: session.hit_next,
        opaque_index: session.opaque,
        advance: session.advance,
        action: Action::of(session.action),
        hits: table.hits(key),
    });
    TableInfo {
        table: number,
        sessions: table.sessions().len(),
        sessions_max: table.capacity(),
        next_table: table.next,
        miss_next: shape.miss_next,
        buckets: shape.buckets,
        skip: shape.skip,
        vectors: table.vectors(),
        current_data_flag: shape.current_data,
        current_data_offset: shape.offset,
        mask: to_hex(&shape.mask),
        memory: table.memory(),
        details: verbose.then(|| details.collect()),
    }
}

impl Execute<Router> for ShowTables {
    type Reply = Tables;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Tables>, OpError> {
        let state = router.state::<Classify>()?;
        if let Some(index) = self.index {
            return Ok(Outcome::Done(Tables { tables: vec![info(index, state.table(index)?, self.verbose)] }));
        }
        let tables = state.tables().map(|(number, table)| info(number, table, self.verbose)).collect();
        Ok(Outcome::Done(Tables { tables }))
    }
}

/// The answer of [`ShowTables`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// By number.
    pub tables: Vec<TableInfo>,
}

impl Text for Tables {
    fn text(&self, out: &mut String, _: &View) {
        if self.tables.is_empty() {
            out.push_str("No classifier tables configured\n");
            return;
        }
        let _ = writeln!(out, "{:>10}{:>10}{:>10}{:>10}", "TableIdx", "Sessions", "NextTbl", "NextNode");
        for table in &self.tables {
            let next = table.next_table.unwrap_or(NONE);
            let _ = writeln!(
                out,
                "{:>10}{:>10}{:>10}{:>10}\n  nbuckets {}, skip {} match {} flag {} offset {}\n  mask {}\n  memory {} bytes, room for {} sessions",
                table.table,
                table.sessions,
                signed(next),
                signed(table.miss_next),
                table.buckets,
                table.skip,
                table.vectors,
                u8::from(table.current_data_flag),
                table.current_data_offset,
                table.mask,
                table.memory,
                table.sessions_max,
            );
            for session in table.details.iter().flatten() {
                let _ = write!(
                    out,
                    "    {}\n      next_index {} advance {} opaque {}",
                    session.r#match,
                    signed(session.hit_next),
                    session.advance,
                    signed(session.opaque_index)
                );
                let _ = match session.action {
                    None => write!(out, " action none"),
                    Some(Action::SetIp4FibId(id)) => write!(out, " action set-ip4-fib-id {id}"),
                    Some(Action::SetIp6FibId(id)) => write!(out, " action set-ip6-fib-id {id}"),
                    Some(Action::SetMetadata(number)) => write!(out, " action set-metadata {number}"),
                };
                let _ = writeln!(out, "\n      hits {}", session.hits);
            }
        }
    }
}

request! {
    /// Shows which interfaces classify packets, and by which table.
    pub read ShowAcls "acls_show" ["show inacl" { output: false }, "show outacl" { output: true }] {
        /// Packets that leave, not those that come in.
        pub output: bool = "",
        /// Whose tables.
        pub family: Family = "type ip4|ip6|l2",
    }
}

/// An interface that classifies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AclInfo {
    /// Its number.
    pub sw_if_index: u32,
    /// Its name.
    pub interface: String,
    /// Its first table.
    pub table: u32,
}

/// The answer of [`ShowAcls`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acls {
    /// Packets that leave.
    pub output: bool,
    /// By number of the interface.
    pub interfaces: Vec<AclInfo>,
}

impl Execute<Router> for ShowAcls {
    type Reply = Acls;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Acls>, OpError> {
        let wanted = match (self.family, self.output) {
            (Family::Ip4, false) => Place::Ip4In,
            (Family::Ip6, false) => Place::Ip6In,
            (Family::L2, false) => Place::L2In,
            (Family::Ip4, true) => Place::Ip4Out,
            (Family::Ip6, true) => Place::Ip6Out,
            (Family::L2, true) => Place::L2Out,
        };
        let state = router.state::<Classify>()?;
        let of = |(_, sw_if_index, table)| AclInfo { sw_if_index, interface: router.interfaces.name(IfIndex(sw_if_index)), table };
        let interfaces = state.acls().filter(|(place, ..)| *place == wanted).map(of).collect();
        Ok(Outcome::Done(Acls { output: self.output, interfaces }))
    }
}

impl Text for Acls {
    fn text(&self, out: &mut String, _: &View) {
        if self.interfaces.is_empty() {
            let _ = writeln!(out, "No {} ACL tables configured", if self.output { "output" } else { "input" });
            return;
        }
        let _ = writeln!(out, "{:>10}{:>20}\t\tInterface name", "Intfc idx", "Classify table");
        for AclInfo { sw_if_index, interface, table } in &self.interfaces {
            let _ = writeln!(out, "{sw_if_index:>10}{table:>20}\t\t{interface}");
        }
    }
}
