//! What of NAT44 somebody has configured. Sessions are state: they begin anew.

use std::net::Ipv4Addr;

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::Registry;
use quiver_net::{IfIndex, Router};

use super::logging::{SetIpfix, SetLog, SetLogSeverity};
use super::mapping::Mapping;
use super::setup::{Disable, Enable, SetForwarding, SetInterface, SetLimit, SetNonSyn, SetPool, SetPoolInterface, SetTimeouts};
use super::tuning::{SetMss, SetWorkers};
use crate::config::Side;
use crate::control::{Nat, PoolSpec, StaticSpec};
use crate::log::{SEVERITY, Target};
use crate::table::Timeouts;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::Services, |_| whole(plugin))
        .configuration(Stage::Services, |_| whole(pools))
        .configuration(Stage::Services, |router| each(statics(router), mapping))
        .configuration(Stage::Services, |_| whole(interfaces))
        .shapes(Stage::Services, SHAPES)
        .shapes(Stage::Services, POOLS)
        .shapes(Stage::Services, MAPPINGS)
        .shapes(Stage::Services, INTERFACES)
        .covers(&[
            "nat44_plugin_enable",
            "nat44_plugin_disable",
            "nat_workers_set",
            "nat44_forwarding_set",
            "nat44_tcp_non_syn_set",
        ])
        .covers(&[
            "nat_timeouts_set",
            "nat44_session_limit_set",
            "nat_mss_clamping_set",
            "nat44_logging_set",
            "syslog_filter_set",
            "nat_ipfix_logging_set",
            "nat44_address_set",
        ])
        .covers(&["nat44_interface_address_set", "nat44_mapping_set", "nat44_back_end_set", "nat44_interface_set"]);
}

/// What all of it builds on: the plugin is enabled.
const PLUGIN: &str = "nat44 plugin";

/// The plugin's state where it is enabled.
fn enabled(router: &Router) -> Option<&Nat> {
    router.part::<Nat>().filter(|nat| nat.enabled.is_some())
}

fn plugin(router: &Router, out: &mut Configuration<Router>) {
    let Some(nat) = enabled(router) else { return };
    let Some(what) = nat.enabled else { return };
    let enable = Enable { sessions: what.sessions, inside_vrf: what.vrfs.0, outside_vrf: what.vrfs.1 };
    out.push(&enable).undo(&Disable {}).makes(PLUGIN);
    if let Some(workers) = nat.workers() {
        // It goes with the plugin, and not by itself.
        out.push(&SetWorkers { workers: workers.to_vec() }).needs(PLUGIN);
    }
    let config = &nat.config;
    if config.forwarding {
        out.push(&SetForwarding { enable: true }).undo(&SetForwarding { enable: false }).needs(PLUGIN);
    }
    if config.non_syn {
        out.push(&SetNonSyn { translate: true }).undo(&SetNonSyn { translate: false }).needs(PLUGIN);
    }
    let (timeouts, usual) = (config.timeouts, Timeouts::default());
    if timeouts != usual {
        let other = |now: u32, usual: u32| (now != usual).then_some(now);
        let differing = SetTimeouts {
            udp: other(timeouts.udp, usual.udp),
            tcp_established: other(timeouts.tcp_established, usual.tcp_established),
            tcp_transitory: other(timeouts.tcp_transitory, usual.tcp_transitory),
            icmp: other(timeouts.icmp, usual.icmp),
            reset: false,
        };
        let reset = SetTimeouts { udp: None, tcp_established: None, tcp_transitory: None, icmp: None, reset: true };
        let all = SetTimeouts { reset: true, ..differing.clone() };
        out.push(&differing).undo(&reset).replaced_by(&all).needs(PLUGIN);
    }
    let mut limit = |limit, vrf| {
        out.push(&SetLimit { limit, vrf }).undo(&SetLimit { limit: 0, vrf }).replaced().needs(PLUGIN);
    };
    if config.host_limit > 0 {
        limit(config.host_limit, None);
    }
    nat.table_limits.iter().for_each(|(table, most)| limit(*most, Some(*table)));
    if config.mss > 0 {
        out.push(&SetMss { bytes: Some(config.mss) }).undo(&SetMss { bytes: None }).replaced().needs(PLUGIN);
    }
    if let Some(logger) = &nat.logger {
        let Target { collector, from } = logger.target;
        let (source, table) = from.unzip();
        let log =
            SetLog { collector: Some(*collector.ip()), port: Some(collector.port()), source, table: table.unwrap_or_default() };
        out.push(&log).undo(&SetLog::NONE).replaced().needs(PLUGIN);
    }
    if let Some(export) = &nat.ipfix {
        let set = |disable| SetIpfix { domain: export.stream().domain(), src_port: export.src_port(), disable };
        out.push(&set(false)).undo(&set(true)).replaced().needs(PLUGIN);
    }
    if nat.log_severity != SEVERITY {
        let set = |severity| SetLogSeverity { severity };
        out.push(&set(nat.log_severity)).undo(&set(SEVERITY)).replaced().needs(PLUGIN);
    }
}

/// Addresses that follow one another are one range, as long as a range may be.
fn pools(router: &Router, out: &mut Configuration<Router>) {
    let Some(nat) = enabled(router) else { return };
    let follows = |a: &PoolSpec, b: &PoolSpec| {
        let next = a.addr.to_bits().checked_add(1).map(Ipv4Addr::from_bits);
        next == Some(b.addr) && (PoolSpec { addr: b.addr, ..*a }) == *b
    };
    for run in nat.pools.chunk_by(follows).flat_map(|run| run.chunks(1 << 16)) {
        let (first, last) = (run[0], run[run.len() - 1].addr);
        let set = |remove| SetPool {
            first: first.addr,
            last: (last != first.addr).then_some(last),
            tenant_vrf: first.vrf,
            twice_nat: first.twice,
            endpoint_independent: first.independent,
            remove,
        };
        out.push(&set(false)).undo(&set(true)).needs(PLUGIN).in_list("nat44 pool");
    }
    for (index, twice_nat) in &nat.pool_interfaces {
        let set = |remove| SetPoolInterface { interface: named(router, *index), twice_nat: *twice_nat, remove };
        out.push(&set(false)).undo(&set(true)).needs(PLUGIN).in_list("nat44 pool interfaces");
    }
}

fn statics(router: &Router) -> Vec<StaticSpec> {
    enabled(router).map(|nat| nat.statics.clone()).unwrap_or_default()
}

fn mapping(router: &Router, spec: &StaticSpec, out: &mut Configuration<Router>) {
    let mapping = Mapping::configured(router, spec);
    let undo = Mapping { remove: true, ..mapping.clone() };
    out.push(&mapping).undo(&undo).needs(PLUGIN);
}

fn interfaces(router: &Router, out: &mut Configuration<Router>) {
    let Some(nat) = enabled(router) else { return };
    let mut set = |index: IfIndex, side: Side, output_feature| {
        let name = || vec![named(router, index)];
        let set = |remove| {
            let (inside, outside) = (if side.inside { name() } else { Vec::new() }, if side.outside { name() } else { Vec::new() });
            SetInterface { inside, outside, output_feature, remove }
        };
        out.push(&set(false)).undo(&set(true)).needs(PLUGIN);
    };
    nat.named.iter().for_each(|(index, side)| set(*index, *side, false));
    nat.outputs.iter().for_each(|index| set(*index, Side { inside: false, outside: true }, true));
}

fn named(router: &Router, index: IfIndex) -> IfRef {
    IfRef(router.interfaces.name(index))
}

/// Where NAT44 stands in a document.
const SHAPES: &[Shape] = &[
    Shape::new("nat44/plugin", r#"{"*":"*"}"#, "nat44_plugin_enable", r#"{"*":"*"}"#).doc("NAT44 is on."),
    Shape::new("nat44/workers", r#""{workers}""#, "nat_workers_set", r#"{"workers":"{workers}"}"#)
        .doc("Workers that have sessions, from 0.")
        .types(&[("workers", r#"{"type":"array","items":{"type":"integer","minimum":0}}"#)]),
    Shape::new("nat44/forwarding", "true", "nat44_forwarding_set", r#"{"enable":true}"#)
        .doc("Packets from outside that belong to no session pass."),
    Shape::new("nat44/tcp_non_syn", "true", "nat44_tcp_non_syn_set", r#"{"translate":true}"#)
        .doc("TCP packets without SYN begin sessions."),
    Shape::new("nat44/timeouts", r#"{"*":"*"}"#, "nat_timeouts_set", r#"{"reset":false,"*":"*"}"#)
        .doc("Seconds for which sessions live without a packet."),
    Shape::new("nat44/session_limit", r#""{limit#}""#, "nat44_session_limit_set", r#"{"limit":"{limit#}","vrf":null}"#)
        .doc("Sessions of one host at most."),
    Shape::new("nat44/session_limits/{vrf#}", r#""{limit#}""#, "nat44_session_limit_set", r#"{"limit":"{limit#}","vrf":"{vrf#}"}"#)
        .doc("Sessions of the hosts of a table at most, on each thread."),
    Shape::new("nat44/mss_clamping", r#""{bytes#}""#, "nat_mss_clamping_set", r#"{"bytes":"{bytes#}"}"#)
        .doc("Largest TCP segment, bytes."),
    Shape::new("nat44/logging", r#"{"*":"*"}"#, "nat44_logging_set", r#"{"*":"*"}"#)
        .doc("A collector of syslog lines of sessions.")
        .types(&[
            ("collector", r#"{"type":"string"}"#),
            ("port", r#"{"type":"integer","minimum":1,"maximum":65535}"#),
            ("source", r#"{"type":"string"}"#),
            ("table", r#"{"type":"integer","minimum":0}"#),
        ]),
    Shape::new("nat44/ipfix", r#"{"*":"*"}"#, "nat_ipfix_logging_set", r#"{"disable":false,"*":"*"}"#)
        .doc("Records of sessions, mappings and limits go to the collector of IPFIX."),
    Shape::new("nat44/log_severity", r#""{severity#}""#, "syslog_filter_set", r#"{"severity":"{severity#}"}"#)
        .doc("Messages of this severity and worse are logged; those of sessions have 6."),
];

/// Pools.
const POOLS: &[Shape] = &[
    Shape::new(
        "nat44/addresses",
        r#"{"first":"{first}","*":"*"}"#,
        "nat44_address_set",
        r#"{"first":"{first}","remove":false,"*":"*"}"#,
    )
    .list()
    .doc("Addresses of the pool."),
    Shape::new(
        "nat44/interface_addresses",
        r#"{"interface":"{interface}","*":"*"}"#,
        "nat44_interface_address_set",
        r#"{"interface":"{interface}","remove":false,"*":"*"}"#,
    )
    .list()
    .doc("Interfaces whose addresses are in the pool."),
];

/// Mappings.
const MAPPINGS: &[Shape] = &[Shape::new("nat44/mappings", r#"{"*":"*"}"#, "nat44_mapping_set", r#"{"remove":false,"*":"*"}"#)
    .list()
    .doc("Static, identity and load-balanced mappings.")];

/// Sides of interfaces.
const INTERFACES: &[Shape] =
    &[Shape::new("nat44/interfaces", r#"{"*":"*"}"#, "nat44_interface_set", r#"{"remove":false,"*":"*"}"#)
        .list()
        .doc("Interfaces inside and outside.")];

#[cfg(test)]
mod tests {
    use quiver_net::ops::testing::assert_rebuilt;
    use quiver_net::testing::Harness;

    fn bed() -> Harness {
        Harness::with_plugin(&crate::plugin(), 2, 0)
    }

    #[test]
    fn nat44_is_configured_again_as_it_was() {
        assert_rebuilt(
            &[crate::ops::register],
            bed,
            "ip table add 7
             create packet-generator interface pg0
             create packet-generator interface pg1
             create packet-generator interface pg2
             create packet-generator interface pg3
             set interface ip address pg0 10.0.0.1/24
             set interface ip address pg1 198.51.100.1/24
             nat44 plugin enable sessions 5000 outside-vrf 7
             set nat workers 1
             nat44 forwarding enable
             nat44 tcp-non-syn translate
             set nat timeout udp 77 icmp 8
             set nat44 session limit 99
             set nat44 session limit 1000 vrf 7
             nat mss-clamping 1400
             nat44 logging collector 10.0.0.9 port 5140 source 10.0.0.1 table 7
             set syslog filter severity err
             nat44 add address 198.51.100.10 - 198.51.100.20
             nat44 add address 198.51.100.21 tenant-vrf 7
             nat44 add address 198.51.100.22 - 198.51.100.23 endpoint-independent
             nat44 add address 198.51.100.30 twice-nat
             nat44 add interface address pg1
             nat44 add interface address pg2 twice-nat
             nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.5 8080 twice-nat out2in-only
             nat44 add static mapping udp local 10.0.0.5 53 external pg1 53 self-twice-nat
             nat44 add static mapping local 10.0.0.6 external 198.51.100.6 vrf 7
             nat44 add identity mapping 10.0.0.7
             nat44 add identity mapping 10.0.0.8 tcp 22 vrf 7
             nat44 add identity mapping external pg1 udp 500
             nat44 add load-balancing static mapping protocol tcp external 198.51.100.9:80 local 10.0.0.5:80 probability 3 local 10.0.0.6:80 probability 1 affinity 60
             nat44 add load-balancing back-end protocol tcp external 198.51.100.9:80 local 10.0.0.7:80 probability 2
             set interface nat44 in pg0 out pg0
             set interface nat44 in pg2
             set interface nat44 out pg1
             set interface nat44 out pg3 output-feature",
            &[
                "show nat44 addresses",
                "show nat44 interfaces",
                "show nat44 static mappings",
                "show nat timeouts",
                "show nat44 tcp-non-syn",
                "show nat mss-clamping",
                "show nat44 logging",
                "show nat workers",
            ],
        );
    }

    #[test]
    fn what_is_off_says_nothing() {
        assert_rebuilt(&[crate::ops::register], bed, "nat44 plugin enable\nnat44 plugin disable", &[]);
    }
}
