//! Bridge domains, their ports and addresses in the running configuration.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::Registry;

use super::bridge::{
    BdChange, CreateBridgeDomain, DeleteBridgeDomain, PortUse, PortWhat, SetBridgeDomain, SetBridgePort, SetDefaultLearnLimit,
    SetPortLearnLimit, Switch, SwitchPort,
};
use super::l2fib::{AddMac, DeleteMac, Kind, SetScanDelay};
use super::tag_rewrite::SetTagRewrite;
use crate::interface::configuration::{MAC, named, numbers, port_of};
use crate::interface::ops::{Change, SetInterface};
use crate::l2::{BridgePort, LEARN_LIMIT, MAC_AGE, MacEntry, MacKind, PORT_LEARN_LIMIT, PortKind, SCAN_DELAY, TagRewrite};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::System, |_| whole(scan_delay))
        .configuration(Stage::System, |_| whole(learn_limit))
        .configuration(Stage::Tables, |_| whole(domains))
        .configuration(Stage::Links, |router| each(ports(router), port))
        .configuration(Stage::Links, |router| each(numbers(router), tag_rewrite))
        .configuration(Stage::Neighbors, |_| whole(neighbors))
        .configuration(Stage::Neighbors, |router| each(configured_macs(router), mac))
        .shapes(Stage::System, SCAN)
        .shapes(Stage::Interfaces, BVIS)
        .shapes(Stage::Tables, DOMAINS)
        .shapes(Stage::Links, PORTS)
        .shapes(Stage::Links, SWITCHES)
        .shapes(Stage::Neighbors, MACS)
        .covers(&[
            "bridge_domain_create",
            "bridge_domain_delete",
            "bridge_domain_set",
            "interface_l2_bridge",
            "interface_l2_learn_limit",
            "bridge_domain_default_learn_limit",
        ])
        .covers(&["interface_l2_switch", "bvi_create", "l2fib_scan_delay", "interface_tag_rewrite", "l2fib_add", "l2fib_del"]);
}

/// What ports and addresses build on: their domain.
fn domain_of(id: u32) -> String {
    format!("bridge-domain {id}")
}

fn scan_delay(router: &Router, out: &mut Configuration<Router>) {
    let delay = router.l2_scan_delay();
    if delay != SCAN_DELAY {
        out.push(&SetScanDelay { delay }).undo(&SetScanDelay { delay: SCAN_DELAY }).replaced();
    }
}

fn learn_limit(router: &Router, out: &mut Configuration<Router>) {
    let limit = router.default_learn_limit();
    if limit != LEARN_LIMIT {
        out.push(&SetDefaultLearnLimit { limit }).undo(&SetDefaultLearnLimit { limit: LEARN_LIMIT }).replaced();
    }
}

/// Each setting for itself: a change of one leaves the ports where they are.
fn domains(router: &Router, out: &mut Configuration<Router>) {
    for domain in router.bridge_domains() {
        let id = domain.id;
        let create = CreateBridgeDomain {
            id: Some(id),
            learn: true,
            forward: true,
            uu_flood: true,
            flood: true,
            arp_term: false,
            arp_ufwd: false,
            mac_age: MAC_AGE,
            tag: domain.tag.clone(),
            del: false,
        };
        out.push(&create).undo(&DeleteBridgeDomain { id }).makes(domain_of(id));
        let mut set = |change, before| {
            let undo = SetBridgeDomain { id, change: before };
            out.push(&SetBridgeDomain { id, change }).undo(&undo).replaced().needs(domain_of(id));
        };
        let switches = [
            (Switch::Learn, domain.learn, true),
            (Switch::Forward, domain.forward, true),
            (Switch::UuFlood, domain.unknown_flood, true),
            (Switch::Flood, domain.flood, true),
            (Switch::ArpTerm, domain.arp_term, false),
            (Switch::ArpUfwd, domain.arp_forward, false),
        ];
        for (which, on, usual) in switches.into_iter().filter(|(_, on, usual)| on != usual) {
            set(BdChange::Switch { which, on }, BdChange::Switch { which, on: usual });
        }
        if domain.mac_age != MAC_AGE {
            set(BdChange::MacAge { minutes: domain.mac_age }, BdChange::MacAge { minutes: MAC_AGE });
        }
        if domain.learn_limit != LEARN_LIMIT {
            set(BdChange::LearnLimit { limit: domain.learn_limit }, BdChange::LearnLimit { limit: LEARN_LIMIT });
        }
    }
}

/// Ports with the numbers of their domains, in the order in which they joined.
fn ports(router: &Router) -> Vec<(u32, BridgePort)> {
    router.bridge_domains().flat_map(|domain| domain.ports.iter().map(|port| (domain.id, *port))).collect()
}

fn port(router: &Router, (domain, port): &(u32, BridgePort), out: &mut Configuration<Router>) {
    let interface = IfRef(router.interfaces.name(port.interface));
    let kind = match port.kind {
        PortKind::Normal => PortUse::Normal,
        PortKind::Bvi => PortUse::Bvi,
        PortKind::UnknownForward => PortUse::UuFwd,
    };
    let is_port = port_of(interface.as_str());
    out.push(&SetBridgePort { interface: interface.clone(), domain: *domain, kind, group: port.group })
        .undo(&SetInterface { interface: interface.clone(), change: Change::Route })
        .replaced()
        .makes(&is_port)
        .needs(domain_of(*domain));
    let switches = [
        (PortWhat::Learn, port.learn),
        (PortWhat::Forward, port.forward),
        (PortWhat::Flood, port.flood),
        (PortWhat::UuFlood, port.unknown_flood),
        (PortWhat::ArpTerm, port.arp_term),
    ];
    for (which, on) in switches {
        if !on {
            let switch = |on| SwitchPort { interface: interface.clone(), which, on };
            out.push(&switch(on)).undo(&switch(!on)).replaced().needs(&is_port);
        }
    }
    if port.learn_limit != PORT_LEARN_LIMIT {
        let set = |limit| SetPortLearnLimit { interface: interface.clone(), limit };
        out.push(&set(port.learn_limit)).undo(&set(PORT_LEARN_LIMIT)).replaced().needs(&is_port);
    }
}

fn tag_rewrite(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    if let Some(TagRewrite { pop, push }) = router.tag_rewrite(*index) {
        let set = |pop, push| SetTagRewrite { interface: named(interface), pop, push };
        out.push(&set(*pop, push.clone())).undo(&set(0, Vec::new())).replaced().needs(port_of(&interface.name));
    }
}

fn neighbors(router: &Router, out: &mut Configuration<Router>) {
    for domain in router.bridge_domains() {
        for (ip, mac) in &domain.neighbors {
            let set = |mac| SetBridgeDomain { id: domain.id, change: BdChange::Neighbor { ip: *ip, mac } };
            out.push(&set(Some(mac.0))).undo(&set(None)).replaced().needs(domain_of(domain.id));
        }
    }
}

/// Addresses that somebody has configured. A BVI's own one comes with it.
fn configured_macs(router: &Router) -> Vec<MacEntry> {
    let mut macs = router.macs();
    macs.retain(|entry| match entry.kind {
        MacKind::Learned(_) => false,
        MacKind::Bvi(index) => router.interfaces.get(index).is_some_and(|interface| interface.mac != entry.mac),
        MacKind::Static(_) | MacKind::Filter => true,
    });
    macs
}

fn mac(router: &Router, entry: &MacEntry, out: &mut Configuration<Router>) {
    let (kind, interface) = match entry.kind {
        MacKind::Learned(index) => (Kind::Dynamic, Some(index)),
        MacKind::Static(index) => (Kind::Static, Some(index)),
        MacKind::Bvi(index) => (Kind::Bvi, Some(index)),
        MacKind::Filter => (Kind::Filter, None),
    };
    let interface = interface.map(|index| IfRef(router.interfaces.name(index)));
    let (mac, domain) = (entry.mac.0, entry.domain.0);
    let is_port = interface.as_ref().map(|interface| port_of(interface.as_str()));
    let pushed = out.push(&AddMac { mac, domain, interface, kind });
    let pushed = pushed.undo(&DeleteMac { mac, domain }).replaced().needs(domain_of(domain));
    if let Some(port) = is_port {
        pushed.needs(port);
    }
}

/// The forwarding table.
const SCAN: &[Shape] = &[
    Shape::new("l2fib/scan_delay", r#""{delay#}""#, "l2fib_scan_delay", r#"{"delay":"{delay#}"}"#)
        .doc("How long changes of MAC addresses are collected before an API client is told, in units of 10 ms."),
    Shape::new("l2fib/learn_limit", r#""{limit#}""#, "bridge_domain_default_learn_limit", r#"{"limit":"{limit#}"}"#)
        .doc("Most learned addresses of a bridge domain that is made without a limit of its own."),
];

/// BVIs.
const BVIS: &[Shape] =
    &[Shape::new("interfaces/bvi{instance#}/bvi", r#"{"*":"*"}"#, "bvi_create", r#"{"instance":"{instance#}","*":"*"}"#)
        .doc("An interface by which the router is in a bridge domain; its name is bvi and a number.")];

/// Bridge domains.
const DOMAINS: &[Shape] = &[
    Shape::new(
        "bridge_domains/{id#}",
        r#"{"tag":"{tag}"}"#,
        "bridge_domain_create",
        r#"{"id":"{id#}","learn":true,"forward":true,"uu_flood":true,"flood":true,"arp_term":false,"arp_ufwd":false,"mac_age":5,"tag":"{tag}","del":false}"#,
    )
    .doc("A bridge domain, under its number."),
    Shape::new(
        "bridge_domains/{id#}/learn",
        "false",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"learn","on":false}}}"#,
    )
    .doc("Learns addresses."),
    Shape::new(
        "bridge_domains/{id#}/forward",
        "false",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"forward","on":false}}}"#,
    )
    .doc("Forwards to known destinations."),
    Shape::new(
        "bridge_domains/{id#}/uu_flood",
        "false",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"uu-flood","on":false}}}"#,
    )
    .doc("Floods frames to unknown destinations."),
    Shape::new(
        "bridge_domains/{id#}/flood",
        "false",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"flood","on":false}}}"#,
    )
    .doc("Floods frames to groups."),
    Shape::new(
        "bridge_domains/{id#}/arp_term",
        "true",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"arp-term","on":true}}}"#,
    )
    .doc("Answers ARP and ND from its table."),
    Shape::new(
        "bridge_domains/{id#}/arp_ufwd",
        "true",
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"switch":{"which":"arp-ufwd","on":true}}}"#,
    )
    .doc("Sends requests to the one asked for."),
    Shape::new(
        "bridge_domains/{id#}/mac_age",
        r#""{minutes#}""#,
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"mac-age":{"minutes":"{minutes#}"}}}"#,
    )
    .doc("Minutes until a silent address is forgotten; 0: never."),
    Shape::new(
        "bridge_domains/{id#}/learn_limit",
        r#""{limit#}""#,
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"learn-limit":{"limit":"{limit#}"}}}"#,
    )
    .doc("Most learned addresses."),
];

/// Ports of bridge domains.
const PORTS: &[Shape] = &[Shape::new(
    "interfaces/{interface}/bridge",
    r#"{"domain":"{domain#}","*":"*"}"#,
    "interface_l2_bridge",
    r#"{"interface":"{interface}","domain":"{domain#}","*":"*"}"#,
)
.doc("The bridge domain that it is a port of.")
.types(&[("kind", r#"{"enum":["normal","bvi","uu-fwd"]}"#)])
.makes(&["port {interface}"])];

/// Switches of ports.
const SWITCHES: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/bridge_learn",
        "false",
        "interface_l2_switch",
        r#"{"interface":"{interface}","which":"learn","on":false}"#,
    )
    .doc("The bridge domain does so for this port."),
    Shape::new(
        "interfaces/{interface}/bridge_forward",
        "false",
        "interface_l2_switch",
        r#"{"interface":"{interface}","which":"forward","on":false}"#,
    )
    .doc("The bridge domain does so for this port."),
    Shape::new(
        "interfaces/{interface}/bridge_flood",
        "false",
        "interface_l2_switch",
        r#"{"interface":"{interface}","which":"flood","on":false}"#,
    )
    .doc("The bridge domain does so for this port."),
    Shape::new(
        "interfaces/{interface}/bridge_uu_flood",
        "false",
        "interface_l2_switch",
        r#"{"interface":"{interface}","which":"uu-flood","on":false}"#,
    )
    .doc("The bridge domain does so for this port."),
    Shape::new(
        "interfaces/{interface}/bridge_arp_term",
        "false",
        "interface_l2_switch",
        r#"{"interface":"{interface}","which":"arp-term","on":false}"#,
    )
    .doc("The bridge domain does so for this port."),
    Shape::new(
        "interfaces/{interface}/bridge_learn_limit",
        r#""{limit#}""#,
        "interface_l2_learn_limit",
        r#"{"interface":"{interface}","limit":"{limit#}"}"#,
    )
    .doc("Most addresses learned behind the port."),
    Shape::new(
        "interfaces/{interface}/tag_rewrite",
        r#"{"*":"*"}"#,
        "interface_tag_rewrite",
        r#"{"interface":"{interface}","*":"*"}"#,
    )
    .doc("VLAN tags that are taken off and put on.")
    .types(&[("pop", r#"{"type":"integer","minimum":0,"maximum":2}"#), ("push", r#"{"type":"array"}"#)]),
];

/// Addresses of bridge domains.
const MACS: &[Shape] = &[
    Shape::new(
        "bridge_domains/{id#}/neighbors/{ip}",
        r#""{mac@}""#,
        "bridge_domain_set",
        r#"{"id":"{id#}","change":{"neighbor":{"ip":"{ip}","mac":"{mac@}"}}}"#,
    )
    .doc("An entry of the table for arp_term: IP address and MAC address.")
    .types(&[("mac", MAC)]),
    Shape::new(
        "bridge_domains/{domain#}/macs/{mac@}",
        r#"{"*":"*"}"#,
        "l2fib_add",
        r#"{"mac":"{mac@}","domain":"{domain#}","*":"*"}"#,
    )
    .doc("A MAC address and where it is.")
    .types(&[("interface", "{}"), ("kind", r#"{"enum":["static","filter","bvi","dynamic"]}"#)]),
];

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    #[test]
    fn bridge_domains_are_made_again_as_they_were() {
        assert_rebuilt(
            &[],
            Harness::new,
            "create loopback interface
             bvi create instance 4
             bvi create mac 02:00:00:00:00:77
             create packet-generator interface pg0
             create packet-generator interface pg1
             create sub-interfaces pg1 7 dot1ad 7 inner-dot1q 8 exact-match
             set l2fib scan-delay 7
             create bridge-domain 5 learn 0 arp-term 1 mac-age 0 bd-tag red
             create bridge-domain 9
             set bridge-domain learn-limit 9 99
             set bridge-domain arp entry 5 10.0.0.9 02:00:00:00:00:09
             set bridge-domain arp entry 5 2001:db8::9 02:00:00:00:00:19
             set interface l2 bridge pg1.7 9 3
             set interface l2 bridge loop0 9 bvi
             set interface l2 bridge bvi4 5 bvi
             set interface l2 bridge pg0 9 uu-fwd
             set interface l2 uu-flood pg0 disable
             set interface l2 arp-term pg0 disable
             set interface l2 learn pg0 disable
             set interface l2 flood pg1.7 disable
             set interface l2 learn-limit pg1.7 12
             set interface l2 tag-rewrite pg1.7 translate 2-2 dot1ad 5 6
             l2fib add 02:00:00:00:00:01 9 pg0 static
             l2fib add 02:00:00:00:00:02 9 filter",
            &["show bridge-domain 5 detail", "show bridge-domain 9 detail", "show mode", "show hardware-interfaces"],
        );
    }
}
