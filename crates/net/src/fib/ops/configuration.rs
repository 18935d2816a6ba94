//! Tables, routes and path MTUs in the running configuration.

use quiver_command::configuration::{Configuration, Stage, Steps, each, whole};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;
use quiver_wire::IpPrefix;
use serde_json::Value;

use super::Family;
use super::change::{ChangeRoute, RouteRequest, RouteSource};
use super::path::PathRequest;
use super::path_mtu::SetPathMtu;
use super::table::{ChangeTable, SetFlowHash, SetInterfaceTable};
use crate::Router;
use crate::fib::{RouteInfo, Source, TableInfo, default_name};
use crate::interface::configuration::{named, numbers};
use crate::ip::configuration::addresses_of;
use crate::ip::{FamilyId, FlowHash};

/// Routes that are looked at in one step.
const AT_ONCE: usize = 32;

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::Tables, |_| whole(tables))
        .configuration(Stage::Links, |router| each(numbers(router), interface_tables))
        .configuration(Stage::Addresses, |_| whole(deleted_tables))
        .configuration(Stage::Routes, routes)
        .configuration(Stage::Neighbors, |_| whole(path_mtus))
        .shapes(Stage::Tables, TABLES)
        .shapes(Stage::Links, BOUND)
        .shapes(Stage::Addresses, DELETED)
        .shapes(Stage::Routes, ROUTES)
        .shapes(Stage::Neighbors, PATH_MTUS)
        .covers(&["ip_route_add_del", "ip_table_add_del", "path_mtu_set", "set_ip_flow_hash", "sw_interface_set_table"]);
}

fn all_tables(router: &Router) -> impl Iterator<Item = TableInfo> {
    [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.tables(family))
}

/// What routes and interfaces build on: their table.
pub(crate) fn table_of(family: FamilyId, id: u32) -> String {
    format!("{family:?} table {id}")
}

/// The request that makes a table, or gives one its name.
fn make(table: &TableInfo, name: Option<String>) -> ChangeTable {
    ChangeTable { family: table.family.into(), id: Some(table.id), name, remove: false }
}

fn remove(table: &TableInfo) -> ChangeTable {
    ChangeTable { family: table.family.into(), id: Some(table.id), name: None, remove: true }
}

fn tables(router: &Router, out: &mut Configuration<Router>) {
    for table in all_tables(router) {
        let (family, id) = (Family::from(table.family), table.id);
        if id != 0 {
            let name = (table.name != default_name(table.family, id)).then(|| table.name.clone());
            let named = make(&table, Some(table.name.clone()));
            out.push(&make(&table, name)).undo(&remove(&table)).replaced_by(&named).makes(table_of(table.family, id));
        }
        // Nothing of an IPv4 packet is a flow label.
        let known = if table.family == FamilyId::V4 { !FlowHash::FLOWLABEL } else { !0 };
        if table.flow_hash.0 & known != FlowHash::DEFAULT.0 & known {
            let parts = FlowHash::NAMES.iter().filter(|(_, bit)| table.flow_hash.0 & known & bit != 0);
            let take: Vec<String> = parts.map(|(name, _)| (*name).to_owned()).collect();
            let usual = FlowHash::NAMES.iter().filter(|(_, bit)| FlowHash::DEFAULT.0 & known & bit != 0);
            let usual: Vec<String> = usual.map(|(name, _)| (*name).to_owned()).collect();
            let set = |take| SetFlowHash { family, table: id, take };
            out.push(&set(take)).undo(&set(usual)).replaced().needs(table_of(table.family, id));
        }
    }
}

fn interface_tables(router: &Router, index: &crate::IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    for (family, table) in [(FamilyId::V4, interface.tables.0), (FamilyId::V6, interface.tables.1)] {
        if table != 0 {
            let bind = |table| SetInterfaceTable { family: family.into(), interface: named(interface), table };
            let addresses = addresses_of(&interface.name);
            out.push(&bind(table)).undo(&bind(0)).replaced().needs(table_of(family, table)).makes(addresses);
        }
    }
}

/// Tables that go with the last of their interfaces.
fn deleted_tables(router: &Router, out: &mut Configuration<Router>) {
    for table in all_tables(router).filter(|table| !table.wanted && table.id != 0) {
        let name = table.name.clone();
        out.push(&remove(&table)).undo(&make(&table, Some(name))).needs(table_of(table.family, table.id));
    }
}

/// Some routes at each step, table after table.
fn routes(router: &Router) -> Steps<Router> {
    let mut tables: Vec<(FamilyId, u32)> = all_tables(router).map(|table| (table.family, table.id)).collect();
    tables.reverse();
    let mut after: Option<IpPrefix> = None;
    Box::new(move |router, out| {
        let Some((family, id)) = tables.last().copied() else { return true };
        let some = router.routes(family, id, after, AT_ONCE).unwrap_or_default();
        some.iter().for_each(|route| push_route(router, id, route, out));
        after = some.last().map(|route| route.prefix);
        if some.len() < AT_ONCE {
            tables.pop();
            after = None;
        }
        false
    })
}

fn push_route(router: &Router, table: u32, route: &RouteInfo, out: &mut Configuration<Router>) {
    for said in &route.sources {
        let source = match said.source {
            Source::Cli => RouteSource::Cli,
            Source::Api => RouteSource::Api,
            _ => continue,
        };
        let mut paths: Vec<PathRequest> = said.paths.iter().filter_map(|path| PathRequest::of(router, path)).collect();
        // Their order means nothing, and is by number of interface: that is another one where interfaces were made in another order.
        let six = route.prefix.addr().is_ipv6();
        paths.sort_by_cached_key(|path| path.words(six));
        // Those over interfaces that are gone may be alike.
        paths.dedup();
        if paths.is_empty() {
            continue;
        }
        let mut command = format!("ip route add {}", route.prefix);
        command += if source == RouteSource::Api { " source api" } else { "" };
        if table != 0 {
            command += &format!(" table {table}");
        }
        paths.iter().for_each(|path| command += &format!(" via {}", path.words(six)));
        let request = RouteRequest { prefix: route.prefix, table, remove: false, replace: false, count: 1, source, paths };
        let pushed = out.push_as::<ChangeRoute>(&request, command);
        if !pushed.is_wanted() {
            continue;
        }
        let undo = RouteRequest { remove: true, paths: Vec::new(), ..request.clone() };
        let pushed = pushed.undo_as::<Router, ChangeRoute>(&undo);
        let pushed = pushed.replaced_as::<Router, ChangeRoute>(&RouteRequest { replace: true, ..request });
        if table != 0 {
            pushed.needs(table_of(FamilyId::of(&route.prefix.addr()), table));
        }
    }
}

fn path_mtus(router: &Router, out: &mut Configuration<Router>) {
    for known in router.path_mtus() {
        let set = |mtu| SetPathMtu { next_hop: known.next_hop, mtu, table: known.table };
        let table = table_of(FamilyId::of(&known.next_hop), known.table);
        out.push(&set(Some(known.mtu))).undo(&set(None)).replaced().needs(table);
    }
}

/// Tables.
const TABLES: &[Shape] = &[
    Shape::new(
        "tables/{family}/{id#}",
        r#"{"name":"{name}"}"#,
        "ip_table_add_del",
        r#"{"family":"{family}","id":"{id#}","remove":false,"name":"{name}"}"#,
    )
    .doc("A table of routes, under its family (ip4, ip6) and number. Table 0 is there anyway."),
    Shape::new(
        "flow_hash/{family}/{table#}",
        r#""{take}""#,
        "set_ip_flow_hash",
        r#"{"family":"{family}","table":"{table#}","take":"{take}"}"#,
    )
    .doc("Parts of a packet that choose among equal paths of a table's routes.")
    .types(&[("take", r#"{"type":"array","items":{"type":"string"}}"#)]),
];

/// Tables of interfaces.
const BOUND: &[Shape] = &[Shape::new(
    "interfaces/{interface}/table/{family}",
    r#""{table#}""#,
    "sw_interface_set_table",
    r#"{"interface":"{interface}","family":"{family}","table":"{table#}"}"#,
)
.doc("The table, by family, in which its packets are looked up.")
.makes(&["addresses {interface}"])];

/// Tables that go with the last of their interfaces.
const DELETED: &[Shape] = &[Shape::new(
    "deleted_tables/{family}",
    r#""{id#}""#,
    "ip_table_add_del",
    r#"{"family":"{family}","id":"{id#}","remove":true,"name":null}"#,
)
.list()
.doc("Tables that were deleted and go with the last of their interfaces.")];

/// Routes of commands, and of clients of the binary API.
const ROUTES: &[Shape] = &[
    Shape::new(
        "routes/{table#}/{prefix}",
        r#""{paths}""#,
        "ip_route_add_del",
        r#"{"prefix":"{prefix}","table":"{table#}","remove":false,"replace":false,"count":1,"source":"cli","paths":"{paths}"}"#,
    )
    .canonical(canonical)
    .types(PATHS)
    .doc("A route, under its table and prefix: a list of paths."),
    Shape::new(
        "routes_of_clients/{table#}/{prefix}",
        r#""{paths}""#,
        "ip_route_add_del",
        r#"{"prefix":"{prefix}","table":"{table#}","remove":false,"replace":false,"count":1,"source":"api","paths":"{paths}"}"#,
    )
    .canonical(canonical)
    .types(PATHS)
    .doc("The same of clients of the binary API."),
];

/// Path MTUs.
const PATH_MTUS: &[Shape] = &[Shape::new(
    "path_mtus/{table#}/{next_hop}",
    r#""{mtu#}""#,
    "path_mtu_set",
    r#"{"next_hop":"{next_hop}","mtu":"{mtu#}","table":"{table#}"}"#,
)
.doc("Largest packet on the way to a host, bytes.")];

/// What a path of a route may say.
const PATHS: &[(&str, &str)] = &[(
    "paths",
    r#"{"type":"array","minItems":1,"items":{"type":"object","additionalProperties":false,"properties":{
        "next_hop":{"type":"string"},
        "interface":{"type":"string"},
        "kind":{"enum":["drop","local","punt","unreach","prohibit","lookup","gone"]},
        "table":{"type":"integer","minimum":0},
        "weight":{"type":"integer","minimum":1,"maximum":255},
        "preference":{"type":"integer","minimum":0,"maximum":255},
        "resolve_via_host":{"type":"boolean"},
        "resolve_via_attached":{"type":"boolean"}}}}"#,
)];

/// Paths as the running configuration has them, in its order.
fn canonical(request: Value) -> Value {
    let Ok(mut route) = serde_json::from_value::<RouteRequest>(request.clone()) else { return request };
    // A weight of 1 goes without saying.
    route.paths.iter_mut().filter(|path| path.weight == 1).for_each(|path| path.weight = 0);
    let six = route.prefix.addr().is_ipv6();
    route.paths.sort_by_cached_key(|path| path.words(six));
    serde_json::to_value(&route).unwrap_or(request)
}
