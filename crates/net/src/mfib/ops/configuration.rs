//! Multicast routes in the running configuration.

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;
use serde_json::Value;

use super::{ChangeMroute, MroutePath};
use crate::Router;
use crate::fib::ops::table_of;
use crate::ip::FamilyId;

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.configuration(Stage::Routes, |_| whole(routes)).shapes(Stage::Routes, ROUTES).covers(&["ip_mroute_add_del"]);
}

fn routes(router: &Router, out: &mut Configuration<Router>) {
    for table in [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.tables(family)) {
        for route in router.mroutes(table.family, table.id).filter(|route| !route.plugin) {
            let request = ChangeMroute::of(router, table.id, route);
            let undo = ChangeMroute { remove: true, accept_all: false, drop: false, paths: Vec::new(), ..request.clone() };
            let replace = ChangeMroute { replace: true, ..request.clone() };
            let pushed = out.push(&request).undo(&undo).replaced_by(&replace);
            if table.id != 0 {
                pushed.needs(table_of(table.family, table.id));
            }
        }
    }
}

/// Routes of commands, and of clients of the binary API.
const ROUTES: &[Shape] = &[
    Shape::new(
        "multicast_routes/{table#}/{route}",
        r#"{"accept_all":"{accept_all}","drop":"{drop}","paths":"{paths}"}"#,
        "ip_mroute_add_del",
        r#"{"route":"{route}","table":"{table#}","remove":false,"replace":false,"source":"cli","accept_all":"{accept_all}","drop":"{drop}","paths":"{paths}"}"#,
    )
    .canonical(canonical)
    .types(TYPES)
    .doc("A multicast route, under its table and its packets (GROUP/LENGTH, or SOURCE,GROUP/LENGTH)."),
    Shape::new(
        "multicast_routes_of_clients/{table#}/{route}",
        r#"{"accept_all":"{accept_all}","drop":"{drop}","paths":"{paths}"}"#,
        "ip_mroute_add_del",
        r#"{"route":"{route}","table":"{table#}","remove":false,"replace":false,"source":"api","accept_all":"{accept_all}","drop":"{drop}","paths":"{paths}"}"#,
    )
    .canonical(canonical)
    .types(TYPES)
    .doc("The same of clients of the binary API."),
];

/// What a route may say.
const TYPES: &[(&str, &str)] = &[
    ("accept_all", r#"{"type":"boolean"}"#),
    ("drop", r#"{"type":"boolean"}"#),
    (
        "paths",
        r#"{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{
        "interface":{"type":"string"},
        "next_hop":{"type":"string"},
        "accept":{"type":"boolean"},
        "forward":{"type":"boolean"}}}}"#,
    ),
];

/// A route as the running configuration has it, its paths in its order.
fn canonical(request: Value) -> Value {
    let Ok(mut route) = serde_json::from_value::<ChangeMroute>(request.clone()) else { return request };
    route.paths.sort_by_cached_key(MroutePath::words);
    serde_json::to_value(&route).unwrap_or(request)
}
