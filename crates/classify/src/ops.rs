//! Operations and commands.

mod configuration;
mod filter;
mod pattern;
mod show;
mod values;

use quiver_command::configuration::{Stage, each};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use serde::Serialize;

pub use self::filter::{ChangeFilter, ShowFilters};
pub use self::pattern::{Mask, Match, to_hex};
pub use self::show::{Kind, SessionInfo, ShowAcls, ShowTables, TableInfo};
pub use self::values::{Action, Next, Signed};
use crate::control::{self, Classify, Session, Shape};
use crate::view::{NONE, Place};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "classify table mask l3 ip4 src acl-miss-next deny",
    "classify session table-index 0 match l3 ip4 src 192.0.2.1 acl-hit-next permit",
    "set interface input acl intfc host-eth1 ip4-table 0",
    "show classify tables verbose",
    "classify filter trace mask l3 ip4 src match l3 ip4 src 192.0.2.1",
    "show classify filter",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] = &[
    ("classify table", &["classify_add_del_table"]),
    ("classify session", &["classify_add_del_session"]),
    ("set interface input acl", &["input_acl_set_interface", "punt_acl_add_del"]),
    ("set interface output acl", &["output_acl_set_interface"]),
    ("show classify tables", &["classify_table_ids", "classify_table_info", "classify_session_dump"]),
    ("show inacl", &["classify_table_by_interface", "punt_acl_get"]),
    (
        "classify filter",
        &["classify_trace_set_table", "classify_trace_lookup_table", "classify_pcap_set_table", "classify_pcap_lookup_table"],
    ),
    ("show classify filter", &["classify_trace_get_tables", "classify_pcap_get_tables"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<ChangeTable>().declare::<ChangeSession>().declare::<SetAcl>();
    registry.declare::<ShowTables>().declare::<ShowAcls>();
    filter::register(registry);
    registry
        .configuration(Stage::Services, |router| each(configuration::tables(router), configuration::table))
        .configuration(Stage::Services, |router| each(configuration::sessions(router), configuration::session))
        .configuration(Stage::Services, |router| each(configuration::acls(router), configuration::acl))
        .shapes(Stage::Services, configuration::SHAPES)
        .covers(&["classify_table", "classify_session", "interface_acl_set"]);
}

request! {
    /// Makes a classifier table, which tells packets apart by the bytes that its mask names, or deletes one. Of a table that is there only the one behind it changes.
    pub change ChangeTable "classify_table" ["classify table"] {
        /// Its number; the lowest free one where absent.
        pub table: Option<u32> = "table <n>" range(0..=4095),
        /// What is compared: `hex` and bytes, or fields of `l2`, `l3 ip4`, `l3 ip6` and `l4`. Vectors of 16 zeros in front are skipped.
        pub mask: Option<Mask> = "mask <mask>",
        /// Vectors of 16 bytes that are skipped; those that the mask has no bits in, where absent.
        pub skip: Option<u32> = "skip <n>" range(0..=32),
        /// Vectors of 16 bytes that are compared; those of the mask where absent.
        pub vectors: Option<u32> = "match <n>" range(1..=5),
        /// Buckets, as VPP's tables have them; the hash here makes as many as it needs.
        pub buckets: u32 = "buckets <n>" default(2),
        /// Memory for sessions, 112 bytes for each.
        pub memory_size: u64 = "memory-size <size>" default(2 << 20),
        /// Table that packets go to which have no session here.
        pub next_table: Option<u32> = "next-table <n>",
        /// What happens to packets that have no session in this table, the last of its chain: `deny`, or `permit` and any number but 0.
        pub miss_next: Next = "acl-miss-next|miss-next|l2-input-miss-next|l2-output-miss-next <next>" default(Next(NONE)),
        /// Whether the first vector begins where the node's data does (1), or with the frame (0).
        pub current_data_flag: u32 = "current-data-flag <n>" default(0) range(0..=1),
        /// Bytes from there to the first vector, with current-data-flag 1; below 0 they lie before it.
        pub current_data_offset: Signed = "current-data-offset <n>" default(Signed(0)),
        /// Deletes it.
        pub del: bool = "del",
        /// Deletes it and those behind it.
        pub del_chain: bool = "del-chain",
    }
}

/// The answer of [`ChangeTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Made {
    /// The table; none where it was deleted.
    pub table: Option<u32>,
}

impl Text for Made {
    fn text(&self, out: &mut String, _: &View) {
        use std::fmt::Write as _;
        if let Some(table) = self.table {
            let _ = writeln!(out, "table {table}");
        }
    }
}

impl Execute<Router> for ChangeTable {
    type Reply = Made;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Made>, OpError> {
        let missing = |what: &'static str| OpError::new(retval::INVALID_VALUE, format!("missing {what}")).key(what);
        if self.del || self.del_chain {
            control::delete_table(router, self.table.ok_or_else(|| missing("table"))?, self.del_chain)?;
            return Ok(Outcome::Done(Made { table: None }));
        }
        if let Some(table) = self.table
            && router.state::<Classify>()?.table(table).is_ok()
        {
            control::set_next(router, table, self.next_table)?;
            return Ok(Outcome::Done(Made { table: Some(table) }));
        }
        let (skip, mask) = self.mask.ok_or_else(|| missing("mask"))?.split(self.skip, self.vectors)?;
        let offset = i16::try_from(self.current_data_offset.0)
            .map_err(|_| OpError::invalid("current-data-offset", self.current_data_offset.0, "expected -32768 to 32767"))?;
        let shape = Shape {
            mask,
            skip,
            buckets: self.buckets,
            memory: self.memory_size,
            current_data: self.current_data_flag == 1,
            offset,
            miss_next: self.miss_next.0,
        };
        let table = control::add_table(router, self.table, shape, self.next_table)?;
        Ok(Outcome::Done(Made { table: Some(table) }))
    }
}

request! {
    /// Adds a session to a classifier table: packets with these values under the mask go where it says. Or removes it.
    pub change ChangeSession "classify_session" ["classify session"] {
        /// Table.
        pub table: u32 = "table-index <n>",
        /// Values: `hex` and bytes, or fields of `l2`, `l3 ip4`, `l3 ip6` and `l4`, counted from where the table's first vector begins, skipped ones too.
        pub values: Match = "match <match>",
        /// What happens to its packets: `deny`, or `permit` and any number but 0.
        pub hit_next: Next = "acl-hit-next|hit-next|l2-input-hit-next|l2-output-hit-next <next>" default(Next(NONE)),
        /// A number that is kept with it.
        pub opaque_index: u32 = "opaque-index <n>" default(NONE),
        /// Bytes that its packets lose in front; below 0 they get them.
        pub advance: Signed = "advance <n>" default(Signed(0)),
        /// What is done with its packets besides: `set-ip4-fib-id <table>` and `set-ip6-fib-id <table>` have them looked up there; a table that is missing is made.
        pub action: Option<Action> = "action <action>",
        /// Removes it.
        pub del: bool = "del",
    }
}

impl Execute<Router> for ChangeSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = router.state::<Classify>()?.table(self.table)?.key(&self.values.0);
        if self.del {
            return control::remove_session(router, self.table, &key).map(Outcome::Done);
        }
        let session =
            Session { hit_next: self.hit_next.0, opaque: self.opaque_index, advance: self.advance.0, action: self.action.into() };
        control::add_session(router, self.table, key, session).map(Outcome::Done)
    }
}

request! {
    /// Classifies the packets of an interface by a table and those behind it, or no longer: what their sessions deny is dropped. A table that is set stays until it is removed.
    pub change SetAcl "interface_acl_set" ["set interface input acl" { output: false }, "set interface output acl" { output: true }] {
        /// Packets that leave, not those that come in.
        pub output: bool = "",
        /// Interface; local0 for packets that are punted.
        pub interface: IfRef = "intfc <if>",
        /// Table for IPv4 packets.
        pub ip4_table: Option<u32> = "ip4-table <n>",
        /// Table for IPv6 packets.
        pub ip6_table: Option<u32> = "ip6-table <n>",
        /// Table for frames of a bridged or cross-connected interface.
        pub l2_table: Option<u32> = "l2-table <n>",
        /// Table for IPv4 packets that are punted.
        pub ip4_punt_table: Option<u32> = "ip4-punt-table <n>",
        /// Table for IPv6 packets that are punted.
        pub ip6_punt_table: Option<u32> = "ip6-punt-table <n>",
        /// No longer.
        pub del: bool = "del",
    }
}

impl SetAcl {
    /// Its tables with their places.
    fn places(&self) -> Result<Vec<(Place, u32)>, OpError> {
        let [four, six, two] = match self.output {
            false => [Place::Ip4In, Place::Ip6In, Place::L2In],
            true => [Place::Ip4Out, Place::Ip6Out, Place::L2Out],
        };
        let punts = [self.ip4_punt_table, self.ip6_punt_table];
        if self.output && punts.iter().any(Option::is_some) {
            return Err(OpError::new(retval::INVALID_VALUE, "punted packets come in").key("ip4-punt-table"));
        }
        let all = [
            (four, self.ip4_table),
            (six, self.ip6_table),
            (two, self.l2_table),
            (Place::Ip4Punt, punts[0]),
            (Place::Ip6Punt, punts[1]),
        ];
        Ok(all.into_iter().filter_map(|(place, table)| Some((place, table?))).collect())
    }
}

impl Execute<Router> for SetAcl {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let places = self.places()?;
        if places.is_empty() {
            return Err(OpError::new(retval::NO_SUCH_TABLE, "missing a table").key("ip4-table"));
        }
        set(router, interface, &places, !self.del).map(Outcome::Done)
    }
}

/// Sets tables of an interface or removes them, all or none.
///
/// # Errors
/// The first one's.
pub(crate) fn set(router: &mut Router, interface: IfIndex, places: &[(Place, u32)], on: bool) -> Result<(), OpError> {
    for (place, _) in places {
        if matches!(place, Place::Ip4Punt | Place::Ip6Punt) != (interface == IfIndex::LOCAL0) {
            let text = "punted packets are classified for local0, all others for their interface";
            return Err(OpError::new(retval::INVALID_INTERFACE, text).key("intfc"));
        }
    }
    let mut done = Vec::new();
    for (place, table) in places {
        let before = router.state::<Classify>()?.acl(*place, interface.0);
        let result = match on {
            true => control::set_acl(router, *place, interface, *table),
            false => control::unset_acl(router, *place, interface, *table),
        };
        if let Err(error) = result {
            for (place, table) in done {
                let _ = match on {
                    true => control::unset_acl(router, place, interface, table),
                    false => control::set_acl(router, place, interface, table),
                };
            }
            return Err(error);
        }
        if before.is_none() || !on {
            done.push((*place, *table));
        }
    }
    Ok(())
}

words! {
    /// Whose tables are meant.
    pub enum Family {
        /// IPv4.
        Ip4 = "ip4",
        /// IPv6.
        Ip6 = "ip6",
        /// Layer 2.
        L2 = "l2",
    }
}

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
