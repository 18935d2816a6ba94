//! Neighbours in the running configuration: limits, static ones, proxy ARP. What was learned comes again by itself.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::{IfRef, quote};
use quiver_command::operation::Registry;
use serde_json::Value;

use super::{SetConfig, SetNeighbor, SetNeighborRequest, SetProxyArp, SetProxyRange};
use crate::Router;
use crate::fib::ops::Family;
use crate::interface::configuration::{MAC, named, numbers};
use crate::ip::FamilyId;
use crate::neighbor::{NeighborConfig, NeighborInfo, State};

const FAMILIES: [FamilyId; 2] = [FamilyId::V4, FamilyId::V6];

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::System, |_| whole(limits))
        .configuration(Stage::Neighbors, |router| each(permanent(router), neighbor))
        .configuration(Stage::Neighbors, |_| whole(proxies))
        .configuration(Stage::Neighbors, |router| {
            each(numbers(router), |router, index, out| {
                if let Some(interface) = router.interfaces.get(*index).filter(|_| router.proxy_arp(*index)) {
                    let set = |enable| SetProxyArp { interface: named(interface), enable };
                    out.push(&set(true)).undo(&set(false));
                }
            })
        })
        .shapes(Stage::System, LIMITS)
        .shapes(Stage::Neighbors, NEIGHBORS)
        .covers(&["ip_neighbor_add_del", "ip_neighbor_config", "proxy_arp_add_del", "proxy_arp_intfc_enable_disable"]);
}

fn limits(router: &Router, out: &mut Configuration<Router>) {
    for family in FAMILIES {
        let (config, usual) = (router.neighbor_config(family), NeighborConfig::default());
        if config == usual {
            continue;
        }
        let all = |config: &NeighborConfig| SetConfig {
            family: Family::from(family),
            limit: Some(config.limit),
            interface_limit: Some(config.interface_limit),
            age: Some(config.age),
            unused: Some(config.unused),
            recycle: Some(config.recycle),
            probe: Some(config.probe),
            announce: Some(config.announce),
            hold: Some(config.hold),
            request_interval: Some(config.request_interval),
        };
        let differing = SetConfig {
            family: Family::from(family),
            limit: (config.limit != usual.limit).then_some(config.limit),
            interface_limit: (config.interface_limit != usual.interface_limit).then_some(config.interface_limit),
            age: (config.age != usual.age).then_some(config.age),
            unused: (config.unused != usual.unused).then_some(config.unused),
            recycle: (config.recycle != usual.recycle).then_some(config.recycle),
            probe: (config.probe != usual.probe).then_some(config.probe),
            announce: (config.announce != usual.announce).then_some(config.announce),
            hold: (config.hold != usual.hold).then_some(config.hold),
            request_interval: (config.request_interval != usual.request_interval).then_some(config.request_interval),
        };
        out.push(&differing).undo(&all(&usual)).replaced_by(&all(&config));
    }
}

fn permanent(router: &Router) -> Vec<NeighborInfo> {
    let all = FAMILIES.into_iter().flat_map(|family| router.neighbors(family));
    all.filter(|neighbor| neighbor.state == State::Permanent).collect()
}

fn neighbor(router: &Router, neighbor: &NeighborInfo, out: &mut Configuration<Router>) {
    let Some(mac) = neighbor.mac else { return };
    let request = SetNeighborRequest {
        interface: IfRef(router.interfaces.name(neighbor.interface)),
        address: neighbor.address,
        mac: Some(mac.to_string()),
        permanent: true,
        no_fib_entry: neighbor.no_fib_entry,
        count: 1,
        remove: false,
    };
    let no_fib_entry = if neighbor.no_fib_entry { " no-fib-entry" } else { "" };
    let interface = quote(request.interface.as_str());
    let command = format!("ip neighbor {interface} {} {mac} static{no_fib_entry}", neighbor.address);
    let undo = SetNeighborRequest { mac: None, no_fib_entry: false, remove: true, ..request.clone() };
    out.push_as::<SetNeighbor>(&request, command).undo_as::<Router, SetNeighbor>(&undo);
}

fn proxies(router: &Router, out: &mut Configuration<Router>) {
    let mut ranges = router.proxy_ranges();
    ranges.sort_by_key(|range| (range.table, range.first, range.last));
    for range in ranges {
        let set = |remove| SetProxyRange { remove, table: range.table, start: range.first, end: range.last };
        out.push(&set(false)).undo(&set(true));
    }
}

/// Limits of the tables.
const LIMITS: &[Shape] =
    &[Shape::new("neighbor_limits/{family}", r#"{"*":"*"}"#, "ip_neighbor_config", r#"{"family":"{family}","*":"*"}"#)
        .doc("Limits and ages of neighbours, by family.")];

/// Static neighbours and proxy ARP.
const NEIGHBORS: &[Shape] = &[
    Shape::new(
        "neighbors/{interface}/{address}",
        r#"{"mac":"{mac}","no_fib_entry":true}"#,
        "ip_neighbor_add_del",
        r#"{"interface":"{interface}","address":"{address}","mac":"{mac}","permanent":true,"no_fib_entry":true,"count":1,"remove":false}"#,
    )
    .canonical(canonical)
    .types(MACS),
    Shape::new(
        "neighbors/{interface}/{address}",
        r#""{mac}""#,
        "ip_neighbor_add_del",
        r#"{"interface":"{interface}","address":"{address}","mac":"{mac}","permanent":true,"no_fib_entry":false,"count":1,"remove":false}"#,
    )
    .canonical(canonical)
    .types(MACS)
    .doc("A static neighbour, under its interface and address: its MAC address."),
    Shape::new(
        "proxy_arp/{table#}",
        r#""{start}-{end}""#,
        "proxy_arp_add_del",
        r#"{"remove":false,"table":"{table#}","start":"{start}","end":"{end}"}"#,
    )
    .list()
    .doc("Ranges of addresses for which ARP is answered, by table."),
    Shape::new(
        "interfaces/{interface}/proxy_arp",
        "true",
        "proxy_arp_intfc_enable_disable",
        r#"{"interface":"{interface}","enable":true}"#,
    )
    .doc("Answers ARP for the ranges of proxy_arp."),
];

const MACS: &[(&str, &str)] = &[("mac", MAC), ("no_fib_entry", r#"{"const":true}"#)];

/// MAC addresses as they are printed.
fn canonical(mut request: Value) -> Value {
    let mac = request["mac"].as_str().and_then(|text| text.parse::<quiver_wire::MacAddr>().ok());
    if let Some(mac) = mac {
        request["mac"] = Value::String(mac.to_string());
    }
    request
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    #[test]
    fn static_neighbours_and_limits_are_configured_again() {
        assert_rebuilt(
            &[],
            Harness::new,
            "set ip neighbor-config ip4 limit 9 age 100 norecycle
             set ip neighbor-config ip6 interface-limit 7 unused 0 noprobe noannounce hold 0 request-interval 20
             create packet-generator interface pg0
             set interface state pg0 up
             set interface ip address pg0 10.0.0.1/24
             ip neighbor pg0 10.0.0.2 02:00:00:00:00:02 static
             ip neighbor pg0 10.0.0.3 02:00:00:00:00:03 static no-fib-entry
             ip neighbor pg0 2001:db8::2 02:00:00:00:00:04 static
             set arp proxy start 10.5.0.1 end 10.5.0.9
             set interface proxy-arp pg0 enable",
            &["show arp proxy", "show ip neighbor-config"],
        );
    }
}
