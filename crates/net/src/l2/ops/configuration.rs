//! Bridge domains, their ports and addresses in the running configuration.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::grammar::IfRef;
use quiver_command::operation::Registry;

use super::bridge::{
    BdChange, CreateBridgeDomain, DeleteBridgeDomain, PortUse, PortWhat, SetBridgeDomain, SetBridgePort, SetPortLearnLimit, Switch,
    SwitchPort,
};
use super::l2fib::{AddMac, DeleteMac, Kind};
use super::tag_rewrite::SetTagRewrite;
use crate::interface::configuration::{named, numbers, port_of};
use crate::interface::ops::{Change, SetInterface};
use crate::l2::{BridgePort, LEARN_LIMIT, MAC_AGE, MacEntry, MacKind, PORT_LEARN_LIMIT, PortKind, TagRewrite};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::Tables, |_| whole(domains))
        .configuration(Stage::Links, |router| each(ports(router), port))
        .configuration(Stage::Links, |router| each(numbers(router), tag_rewrite))
        .configuration(Stage::Neighbors, |_| whole(neighbors))
        .configuration(Stage::Neighbors, |router| each(configured_macs(router), mac))
        .covers(&[
            "bridge_domain_create",
            "bridge_domain_delete",
            "bridge_domain_set",
            "interface_l2_bridge",
            "interface_l2_learn_limit",
        ])
        .covers(&["interface_l2_switch", "interface_tag_rewrite", "l2fib_add", "l2fib_del"]);
}

/// What ports and addresses build on: their domain.
fn domain_of(id: u32) -> String {
    format!("bridge-domain {id}")
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
    for (which, on) in [(PortWhat::Learn, port.learn), (PortWhat::Forward, port.forward), (PortWhat::Flood, port.flood)] {
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
             create packet-generator interface pg0
             create packet-generator interface pg1
             create sub-interfaces pg1 7 dot1ad 7 inner-dot1q 8 exact-match
             create bridge-domain 5 learn 0 arp-term 1 mac-age 0 bd-tag red
             create bridge-domain 9
             set bridge-domain learn-limit 9 99
             set bridge-domain arp entry 5 10.0.0.9 02:00:00:00:00:09
             set bridge-domain arp entry 5 2001:db8::9 02:00:00:00:00:19
             set interface l2 bridge pg1.7 9 3
             set interface l2 bridge loop0 9 bvi
             set interface l2 bridge pg0 9 uu-fwd
             set interface l2 learn pg0 disable
             set interface l2 flood pg1.7 disable
             set interface l2 learn-limit pg1.7 12
             set interface l2 tag-rewrite pg1.7 translate 2-2 dot1ad 5 6
             l2fib add 02:00:00:00:00:01 9 pg0 static
             l2fib add 02:00:00:00:00:02 9 filter",
            &["show bridge-domain 5 detail", "show bridge-domain 9 detail", "show mode"],
        );
    }
}
