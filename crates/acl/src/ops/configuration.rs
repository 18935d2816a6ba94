//! The running configuration: settings, lists, and which interfaces use them.

use quiver_command::configuration::Configuration;
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_net::{IfIndex, Router};

use super::{DeleteAcl, Direction, Rules, SetAcl, SetEtherType, SetLists, SetMaxSessions, SetSwitch, SetTimeout, Switch, Which};
use crate::control::{Acls, Settings};

/// What is not as at the start.
pub(super) fn settings(router: &Router, out: &mut Configuration<Router>) {
    let Ok(settings) = router.state::<Acls>().map(Acls::settings) else { return };
    let usual = Settings::default();
    for (at, timeout) in Which::ALL.into_iter().enumerate() {
        let request = |seconds| SetTimeout { timeout, seconds };
        if settings.timeouts[at] != usual.timeouts[at] {
            out.push(&request(settings.timeouts[at])).undo(&request(usual.timeouts[at])).replaced();
        }
    }
    if settings.sessions != usual.sessions {
        let request = |sessions| SetMaxSessions { sessions };
        out.push(&request(settings.sessions)).undo(&request(usual.sessions)).replaced();
    }
    let switches = |of: Settings| {
        [(Switch::Reclassify, of.reclassify), (Switch::Fragments, !of.ported_fragments), (Switch::Counters, of.counters)]
    };
    for ((switch, on), (_, usually)) in switches(settings).into_iter().zip(switches(usual)) {
        let request = |on| SetSwitch { switch, on: u32::from(on) };
        if on != usually {
            out.push(&request(on)).undo(&request(usually)).replaced();
        }
    }
}

pub(super) fn lists(router: &Router) -> Vec<u32> {
    router.state::<Acls>().map(|state| state.lists().map(|(number, _)| number).collect()).unwrap_or_default()
}

fn name(number: u32) -> String {
    format!("access list {number}")
}

pub(super) fn list(router: &Router, number: &u32, out: &mut Configuration<Router>) {
    let Some(list) = router.state::<Acls>().ok().and_then(|state| state.list(*number).ok()) else { return };
    let request = SetAcl { index: Some(*number), rules: Rules(list.rules.clone()), tag: list.tag.clone() };
    out.push(&request).undo(&DeleteAcl { index: *number }).replaced().makes(name(*number));
}

/// A direction of an interface, and what it uses there: lists, in their order, or (`true`) EtherTypes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use(u32, Direction, bool);

pub(super) fn uses(router: &Router) -> Vec<Use> {
    let Ok(state) = router.state::<Acls>() else { return Vec::new() };
    let mut all = Vec::new();
    for (interface, used) in state.used() {
        for direction in [Direction::Input, Direction::Output] {
            let side = direction.side();
            let some = [(false, !used.lists[side].is_empty()), (true, !used.ether_types[side].is_empty())];
            all.extend(some.into_iter().filter(|(_, some)| *some).map(|(types, _)| Use(interface.0, direction, types)));
        }
    }
    all
}

pub(super) fn used(router: &Router, one: &Use, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<Acls>() else { return };
    let Use(interface, direction, types) = *one;
    let (index, side) = (IfIndex(interface), direction.side());
    let (used, reference) = (state.used_by(index), || IfRef(router.interfaces.name(index)));
    if types {
        let request = |types| SetEtherType { interface: reference(), direction, types };
        out.push(&request(used.ether_types[side].clone())).undo(&request(Vec::new())).replaced();
        return;
    }
    let request = |lists| SetLists { interface: reference(), direction, lists };
    let lists = used.lists[side].clone();
    let names: Vec<String> = lists.iter().copied().map(name).collect();
    let mut pushed = out.push(&request(lists)).undo(&request(Vec::new())).replaced();
    for name in names {
        pushed = pushed.needs(name);
    }
}

/// Rules in a document, where they have the fields of [`crate::rule::Rule`].
const RULES: &str = r#"{"type":"array","items":{"type":"object","additionalProperties":false,"required":["action","src","dst"],
    "properties":{"action":{"enum":["deny","permit","permit+reflect"]},"src":{"type":"string"},"dst":{"type":"string"},
    "proto":{"type":"integer","minimum":0,"maximum":255},
    "sport":{"type":"object","required":["first","last"],"properties":{"first":{"type":"integer"},"last":{"type":"integer"}}},
    "dport":{"type":"object","required":["first","last"],"properties":{"first":{"type":"integer"},"last":{"type":"integer"}}},
    "tcp_flags":{"type":"object","required":["value","mask"],"properties":{"value":{"type":"integer"},"mask":{"type":"integer"}}}}}}"#;

/// Where it stands in a document.
pub(super) const SHAPES: &[Shape] = &[
    Shape::new(
        "acl/lists/{index#}",
        r#"{"rules":"{rules}","*":"*"}"#,
        "acl_set",
        r#"{"index":"{index#}","rules":"{rules}","*":"*"}"#,
    )
    .types(&[("rules", RULES)])
    .doc("Access lists by number."),
    Shape::new(
        "acl/interfaces/{interface}/{direction}",
        r#"{"*":"*"}"#,
        "acl_lists_set",
        r#"{"interface":"{interface}","direction":"{direction}","*":"*"}"#,
    )
    .doc("Access lists of interfaces, in the order in which they are looked at."),
    Shape::new(
        "acl/ethertypes/{interface}/{direction}",
        r#"{"*":"*"}"#,
        "acl_ethertype_set",
        r#"{"interface":"{interface}","direction":"{direction}","*":"*"}"#,
    )
    .doc("EtherTypes that frames of an interface may have which are not IP."),
    Shape::new("acl/timeouts/{timeout}", r#"{"*":"*"}"#, "acl_timeout_set", r#"{"timeout":"{timeout}","*":"*"}"#)
        .doc("Timeouts of sessions."),
    Shape::new("acl/sessions", r#"{"*":"*"}"#, "acl_sessions_max_set", r#"{"*":"*"}"#).doc("How many sessions there may be."),
    Shape::new("acl/switches/{switch}", r#"{"*":"*"}"#, "acl_switch_set", r#"{"switch":"{switch}","*":"*"}"#)
        .doc("What holds for all access lists."),
];
