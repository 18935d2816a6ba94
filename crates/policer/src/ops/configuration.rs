//! The running configuration: policers, where they are bound and used.

use quiver_command::configuration::Configuration;
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use super::{AddPolicer, ApplyPolicer, BindPolicer, DeletePolicer, SetPuntPolicer, UpdatePolicer};
use crate::control::Policers;

pub(super) fn numbers(router: &Router) -> Vec<u32> {
    router.state::<Policers>().map(|state| state.entries().map(|(index, _)| index).collect()).unwrap_or_default()
}

/// What others build on.
fn part(name: &str) -> String {
    format!("policer {name}")
}

pub(super) fn policer(router: &Router, index: &u32, out: &mut Configuration<Router>) {
    let Some(entry) = router.state::<Policers>().ok().and_then(|state| state.entry(*index).ok()) else { return };
    let name = || Some(entry.name.clone());
    out.push(&AddPolicer::of(entry.name.clone(), &entry.config))
        .undo(&DeletePolicer { name: name(), index: None })
        .replaced_by(&UpdatePolicer::of(Some(entry.name.clone()), None, &entry.config))
        .makes(part(&entry.name));
    if entry.worker.is_some() {
        let request = |worker: Option<u32>| BindPolicer { unbind: worker.is_none(), name: name(), index: None, worker };
        out.push(&request(entry.worker)).undo(&request(None)).replaced().needs(part(&entry.name));
    }
}

pub(super) fn uses(router: &Router, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<Policers>() else { return };
    let name = |index| state.entry(index).map(|entry| entry.name.clone()).unwrap_or_default();
    for (output, interface, index) in state.applied() {
        let interface = IfRef(router.interfaces.name(interface));
        let request =
            |unapply| ApplyPolicer { output, unapply, name: Some(name(index)), index: None, interface: interface.clone() };
        out.push(&request(false)).undo(&request(true)).needs(part(&name(index)));
    }
    for family in [FamilyId::V4, FamilyId::V6] {
        let Some(index) = state.punt(family) else { continue };
        let request = |remove: bool| SetPuntPolicer {
            family: family.into(),
            remove,
            name: Some(name(index)).filter(|_| !remove),
            index: None,
        };
        out.push(&request(false)).undo(&request(true)).replaced().needs(part(&name(index)));
    }
}

/// Where it stands in a document.
pub(super) const SHAPES: &[Shape] = &[
    Shape::new("policers/{name}", r#"{"*":"*"}"#, "policer_add", r#"{"name":"{name}","*":"*"}"#)
        .doc("Policers by name: rates, bursts, and what happens to packets that conform, exceed and violate."),
    Shape::new(
        "policer-workers/{name}",
        r#""{worker#}""#,
        "policer_bind",
        r#"{"unbind":false,"name":"{name}","index":null,"worker":"{worker#}"}"#,
    )
    .doc("Workers that policers are bound to."),
    Shape::new(
        "interfaces/{interface}/policer/output",
        r#""{name}""#,
        "policer_apply",
        r#"{"output":true,"unapply":false,"name":"{name}","index":null,"interface":"{interface}"}"#,
    )
    .doc("The policer of packets that leave."),
    Shape::new(
        "interfaces/{interface}/policer/input",
        r#""{name}""#,
        "policer_apply",
        r#"{"output":false,"unapply":false,"name":"{name}","index":null,"interface":"{interface}"}"#,
    )
    .doc("The policer of packets that come in."),
    Shape::new(
        "punt/policer/{family}",
        r#""{name}""#,
        "punt_policer_set",
        r#"{"family":"{family}","remove":false,"name":"{name}","index":null}"#,
    )
    .doc("The policer of punted packets, by family (ip4, ip6)."),
];
