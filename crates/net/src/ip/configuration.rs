//! Addresses of interfaces in the running configuration.

use std::net::IpAddr;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::grammar::IfRef;
use quiver_command::operation::Registry;
use quiver_wire::ipv6::address::is_link_local;

use super::ops::{EnableIp6, SetAddress, SetUnnumbered};
use crate::interface::configuration::{named, numbers};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.configuration(Stage::Addresses, |router| each(numbers(router), addresses));
    registry.configuration(Stage::Addresses, |router| each(numbers(router), unnumbered));
    registry.covers(&["sw_interface_add_del_address", "sw_interface_ip6_enable_disable", "sw_interface_set_unnumbered"]);
}

fn addresses(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let derived: IpAddr = interface.mac.link_local().into();
    let set = |address, len, remove, out: &mut Configuration<Router>| {
        out.push(&SetAddress { interface: named(interface), address: Some(address), len: Some(len), remove, all: false });
    };
    for (address, len) in &interface.addresses {
        if (*address, *len) == (derived, 128) {
            out.push(&EnableIp6 { interface: named(interface), enable: true });
        } else {
            set(*address, *len, false, out);
        }
    }
    let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()));
    let mut v6 = interface.addresses.iter().map(|(address, _)| address).filter(|address| address.is_ipv6()).peekable();
    // The first other IPv6 address brings a link-local one with it.
    if v6.peek().is_some() && !v6.any(link_local) {
        set(derived, 128, true, out);
    }
}

fn unnumbered(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let Some(lender) = interface.unnumbered else { return };
    let lender = IfRef(router.interfaces.name(lender));
    out.push(&SetUnnumbered { interface: named(interface), lender: Some(lender) });
}
