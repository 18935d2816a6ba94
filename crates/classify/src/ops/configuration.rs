//! The running configuration: tables, those at the end of chains first, their sessions, and where they are used.

use quiver_command::configuration::Configuration;
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_net::{IfIndex, Router};

use super::{Action, ChangeSession, ChangeTable, Mask, Match, Next, SetAcl, Signed};
use crate::control::{Classify, Session};
use crate::view::{Key, NONE, Place};

/// Tables, each behind the one that follows it.
pub(super) fn tables(router: &Router) -> Vec<u32> {
    let Ok(state) = router.state::<Classify>() else { return Vec::new() };
    let mut numbers: Vec<u32> = state.tables().map(|(number, _)| number).filter(|number| !state.is_made(*number)).collect();
    numbers.sort_by_key(|number| (state.chain(*number).len(), *number));
    numbers
}

/// A request that names a table and nothing else.
fn bare(table: u32) -> ChangeTable {
    ChangeTable {
        table: Some(table),
        mask: None,
        skip: None,
        vectors: None,
        buckets: 2,
        memory_size: 2 << 20,
        next_table: None,
        miss_next: Next(NONE),
        current_data_flag: 0,
        current_data_offset: Signed(0),
        del: false,
        del_chain: false,
    }
}

pub(super) fn table(router: &Router, number: &u32, out: &mut Configuration<Router>) {
    let Some(table) = router.state::<Classify>().ok().and_then(|state| state.table(*number).ok()) else { return };
    let shape = &table.shape;
    let request = ChangeTable {
        mask: Some(Mask::joined(shape.skip, &shape.mask)),
        skip: Some(shape.skip),
        vectors: Some(table.vectors()),
        buckets: shape.buckets,
        memory_size: shape.memory,
        next_table: table.next,
        miss_next: Next(shape.miss_next),
        current_data_flag: shape.current_data.into(),
        current_data_offset: Signed(shape.offset.into()),
        ..bare(*number)
    };
    let name = |number: u32| format!("classifier table {number}");
    let pushed = out.push(&request).undo(&ChangeTable { del: true, ..bare(*number) }).makes(name(*number));
    if let Some(next) = table.next {
        pushed.needs(name(next));
    }
}

pub(super) fn sessions(router: &Router) -> Vec<(u32, Key)> {
    let Ok(state) = router.state::<Classify>() else { return Vec::new() };
    let kept = state.tables().filter(|(number, _)| !state.is_made(*number));
    kept.flat_map(|(number, table)| table.sessions().map(move |(key, _)| (number, *key))).collect()
}

pub(super) fn session(router: &Router, (number, key): &(u32, Key), out: &mut Configuration<Router>) {
    let Some(table) = router.state::<Classify>().ok().and_then(|state| state.table(*number).ok()) else { return };
    let Some(Session { hit_next, opaque, advance, action }) = table.session(key).copied() else { return };
    let bytes = key.get(..table.shape.mask.len()).unwrap_or_default();
    let request = |del| ChangeSession {
        table: *number,
        values: Match(Mask::joined(table.shape.skip, bytes).0),
        hit_next: Next(hit_next),
        opaque_index: opaque,
        advance: Signed(advance),
        action: Action::of(action),
        del,
    };
    out.push(&request(false)).undo(&request(true)).replaced().needs(format!("classifier table {number}"));
}

pub(super) fn acls(router: &Router) -> Vec<(Place, u32, u32)> {
    router.state::<Classify>().map(|state| state.acls().collect()).unwrap_or_default()
}

pub(super) fn acl(router: &Router, (place, interface, table): &(Place, u32, u32), out: &mut Configuration<Router>) {
    let of = |places: &[Place]| Some(*table).filter(|_| places.contains(place));
    let request = |del| SetAcl {
        output: matches!(place, Place::Ip4Out | Place::Ip6Out | Place::L2Out),
        interface: IfRef(router.interfaces.name(IfIndex(*interface))),
        ip4_table: of(&[Place::Ip4In, Place::Ip4Out]),
        ip6_table: of(&[Place::Ip6In, Place::Ip6Out]),
        l2_table: of(&[Place::L2In, Place::L2Out]),
        ip4_punt_table: of(&[Place::Ip4Punt]),
        ip6_punt_table: of(&[Place::Ip6Punt]),
        del,
    };
    out.push(&request(false)).undo(&request(true)).needs(format!("classifier table {table}"));
}

/// Where it stands in a document.
pub(super) const SHAPES: &[Shape] = &[
    Shape::new(
        "classify/tables/{table#}",
        r#"{"*":"*"}"#,
        "classify_table",
        r#"{"table":"{table#}","del":false,"del_chain":false,"*":"*"}"#,
    )
    .doc("Classifier tables by number."),
    Shape::new(
        "classify/sessions/{table#}/{values}",
        r#"{"*":"*"}"#,
        "classify_session",
        r#"{"table":"{table#}","values":"{values}","del":false,"*":"*"}"#,
    )
    .doc("Sessions of classifier tables, by table and by the bytes that they match."),
    Shape::new("classify/acls", r#"{"*":"*"}"#, "interface_acl_set", r#"{"del":false,"*":"*"}"#)
        .list()
        .doc("Interfaces whose packets are classified, and by which tables."),
];
