//! Addresses of interfaces in the running configuration.

use std::net::IpAddr;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;
use quiver_wire::ipv6::address::is_link_local;

use super::ops::{EnableIp6, SetAddress, SetUnnumbered};
use crate::interface::configuration::{named, numbers};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.configuration(Stage::Addresses, |router| each(numbers(router), addresses));
    registry.configuration(Stage::Addresses, |router| each(numbers(router), unnumbered));
    registry.shapes(Stage::Addresses, ADDRESSES).shapes(Stage::Addresses, UNNUMBERED);
    registry.covers(&["sw_interface_add_del_address", "sw_interface_ip6_enable_disable", "sw_interface_set_unnumbered"]);
}

/// What addresses build on: the tables that their interface is bound to.
pub(crate) fn addresses_of(interface: &str) -> String {
    format!("addresses {interface}")
}

fn addresses(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let derived: IpAddr = interface.link_local().into();
    let set = |address, len, remove| {
        let interface = named(interface);
        SetAddress { interface, address: Some(address), len: Some(len), remove, all: false }
    };
    let ip6 = |enable| EnableIp6 { interface: named(interface), enable };
    // The first address of a link is the source of what the router sends there.
    let list = addresses_of(&interface.name);
    let own = || interface.addresses.iter().filter(|(address, _)| !router.is_autoconfigured(*index, *address));
    for (address, len) in own() {
        let pushed = if (*address, *len) == (derived, 128) {
            if interface.ip6_by_address {
                continue;
            }
            out.push(&ip6(true)).undo(&ip6(false))
        } else {
            out.push(&set(*address, *len, false)).undo(&set(*address, *len, true))
        };
        pushed.needs(&list).in_list(&list);
    }
    let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()));
    let mut v6 = own().map(|(address, _)| address).filter(|address| address.is_ipv6()).peekable();
    // The first other IPv6 address brings a link-local one with it.
    if v6.peek().is_some() && !v6.any(link_local) {
        out.push(&set(derived, 128, true)).undo(&ip6(true)).needs(&list).in_list(&list);
    }
}

fn unnumbered(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    // One that is gone lends nothing.
    let Some(lender) = interface.unnumbered.and_then(|lender| router.interfaces.get(lender)) else { return };
    let lender = Some(named(lender));
    let undo = SetUnnumbered { interface: named(interface), lender: None };
    out.push(&SetUnnumbered { interface: named(interface), lender }).undo(&undo).replaced();
}

/// Addresses, in order: the first one of a link is the source of what the router sends there.
const ADDRESSES: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/addresses",
        r#""link-local""#,
        "sw_interface_ip6_enable_disable",
        r#"{"interface":"{interface}","enable":true}"#,
    )
    .list(),
    Shape::new(
        "interfaces/{interface}/addresses",
        r#""no {address}/{len#}""#,
        "sw_interface_add_del_address",
        r#"{"interface":"{interface}","address":"{address}","len":"{len#}","remove":true,"all":false}"#,
    )
    .list(),
    Shape::new(
        "interfaces/{interface}/addresses",
        r#""{address}/{len#}""#,
        "sw_interface_add_del_address",
        r#"{"interface":"{interface}","address":"{address}","len":"{len#}","remove":false,"all":false}"#,
    )
    .list()
    .doc("Addresses with their prefix lengths, the preferred one first; `link-local` stands for the address made of the MAC address. With an IPv6 address it goes without saying."),
];

/// Interfaces that use addresses of another one.
const UNNUMBERED: &[Shape] = &[Shape::new(
    "interfaces/{interface}/unnumbered",
    r#""{lender}""#,
    "sw_interface_set_unnumbered",
    r#"{"interface":"{interface}","lender":"{lender}"}"#,
)
.doc("The interface whose addresses it uses.")];
