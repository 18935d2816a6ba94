//! Router advertisements and duplicate address detection in the running configuration.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;

use super::{NdOption, Prefix, SetAutoRemove, SetAutoconfig, SetDad, SetNd, SetNdMirror, SetNdProxy};
use crate::interface::configuration::{named, numbers};
use crate::nd::{AutoconfigConfig, DadConfig, PrefixConfig, RaConfig};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.configuration(Stage::System, |_| whole(dad)).configuration(Stage::Services, |router| each(numbers(router), options));
    registry.shapes(Stage::System, DAD).shapes(Stage::Services, ADVERTISEMENTS);
    registry.configuration(Stage::Services, |router| each(numbers(router), autoconfig)).shapes(Stage::Services, AUTOCONFIG);
    registry
        .configuration(Stage::Neighbors, |_| whole(proxies))
        .configuration(Stage::Neighbors, |router| each(numbers(router), mirror));
    registry.shapes(Stage::Neighbors, PROXIES);
    registry.covers(&["ip6_dad_set", "ip6_dad_autoremove_set", "sw_interface_ip6nd_ra_config", "ip6_nd_address_autoconfig"]);
    registry.covers(&["ip6nd_proxy_add_del", "ip6nd_proxy_enable_disable"]);
}

fn autoconfig(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let Some(AutoconfigConfig { default_route }) = router.autoconfig(*index) else { return };
    let set = |default_route, disable| SetAutoconfig { interface: named(interface), default_route, disable };
    out.push(&set(default_route, false)).undo(&set(false, true)).replaced();
}

fn proxies(router: &Router, out: &mut Configuration<Router>) {
    for (index, address) in router.nd_proxies() {
        let Some(interface) = router.interfaces.get(index) else { continue };
        let set = |remove| SetNdProxy { interface: named(interface), address, remove };
        out.push(&set(false)).undo(&set(true));
    }
}

fn mirror(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    if let Some(interface) = router.interfaces.get(*index).filter(|_| router.nd_mirror(*index)) {
        let set = |enable| SetNdMirror { interface: named(interface), enable };
        out.push(&set(true)).undo(&set(false));
    }
}

fn dad(router: &Router, out: &mut Configuration<Router>) {
    // It has addresses checked; whether they are after all comes behind it.
    if router.dad_autoremove().0 {
        out.push(&SetAutoRemove { enable: true }).undo(&SetAutoRemove { enable: false });
    }
    let config = router.dad_config();
    if config != DadConfig::default() {
        let set = |DadConfig { transmits, delay_ms }| SetDad { transmits, delay_ms };
        out.push(&set(config)).undo(&set(DadConfig::default())).replaced();
    }
}

fn options(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let (config, usual) = (router.ra_config(*index), RaConfig::default());
    if config == usual {
        return;
    }
    let mut set = |option: NdOption, undo| {
        let request = |no, option| SetNd { interface: named(interface), no, option };
        out.push(&request(false, option)).undo(&request(true, undo)).replaced();
    };
    let flags = [
        (config.hide_link_address, NdOption::SuppressLinkLayer),
        (config.managed, NdOption::Managed),
        (config.other, NdOption::Other),
        (config.unicast, NdOption::SendUnicast),
    ];
    flags.into_iter().filter(|(on, _)| *on).for_each(|(_, option)| set(option.clone(), option));
    if (config.interval_max, config.interval_min) != (usual.interval_max, usual.interval_min) {
        let interval = |max, min| NdOption::Interval { max, min };
        set(interval(config.interval_max, config.interval_min), interval(usual.interval_max, usual.interval_min));
    }
    // No shorter than the interval, which is set before it.
    if let Some(seconds) = config.lifetime {
        set(NdOption::Lifetime { seconds }, NdOption::Lifetime { seconds: 0 });
    }
    if (config.initial, config.initial_interval) != (usual.initial, usual.initial_interval) {
        let initial = |count, interval| NdOption::Initial { count, interval };
        set(initial(config.initial, config.initial_interval), initial(usual.initial, usual.initial_interval));
    }
    for (prefix, PrefixConfig { valid, preferred, on_link, autonomous, advertised }) in config.prefixes.iter() {
        let (address, len) = (prefix.addr(), prefix.len());
        let (advertise, on_link, autoconfig) = (*advertised, *on_link, *autonomous);
        let prefix = Prefix { address, len, valid: *valid, preferred: *preferred, advertise, on_link, autoconfig };
        let undo = Prefix { address, len, ..Prefix::default() };
        set(NdOption::Prefix(prefix), NdOption::Prefix(undo));
    }
    // Every option begins them.
    let suppress = |no| SetNd { interface: named(interface), no, option: NdOption::Suppress };
    out.push(&suppress(config.send)).undo(&suppress(usual.send)).replaced();
}

/// Duplicate address detection.
const DAD: &[Shape] = &[
    Shape::new("ip6_dad_autoremove", r#""{enable}""#, "ip6_dad_autoremove_set", r#"{"enable":"{enable}"}"#)
        .doc("Whether IPv6 addresses that somebody else has are taken off their interfaces.")
        .types(&[("enable", r#"{"type":"boolean"}"#)]),
    Shape::new("ip6_dad", r#"{"transmits":"{transmits#}","*":"*"}"#, "ip6_dad_set", r#"{"transmits":"{transmits#}","*":"*"}"#)
        .doc("Probes for an own IPv6 address before it is used (0: none), and milliseconds between them.")
        .types(&[("delay_ms", r#"{"type":"integer","minimum":100,"maximum":10000}"#)]),
];

/// What interfaces take from advertisements of others.
const AUTOCONFIG: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/ip6_autoconfig",
        r#""addresses""#,
        "ip6_nd_address_autoconfig",
        r#"{"interface":"{interface}","default_route":false,"disable":false}"#,
    )
    .doc("What it takes from routers' advertisements: `addresses`, or `default-route` for the default route, too."),
    Shape::new(
        "interfaces/{interface}/ip6_autoconfig",
        r#""default-route""#,
        "ip6_nd_address_autoconfig",
        r#"{"interface":"{interface}","default_route":true,"disable":false}"#,
    )
    .doc(""),
];

/// Hosts that neighbour discovery is answered for.
const PROXIES: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/nd_proxy/hosts/{address}",
        "true",
        "ip6nd_proxy_add_del",
        r#"{"interface":"{interface}","remove":false,"address":"{address}"}"#,
    )
    .doc("A host behind it that solicitations on other links are answered for."),
    Shape::new(
        "interfaces/{interface}/nd_proxy/mirror",
        "true",
        "ip6nd_proxy_enable_disable",
        r#"{"interface":"{interface}","enable":true}"#,
    )
    .doc("Every solicitation is answered, for a host with the router's own address."),
];

/// Router advertisements; each says whether they are sent.
const ADVERTISEMENTS: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/router_advertisements/suppress_link_layer",
        "true",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":"suppress_link_layer"}"#,
    )
    .doc("Without the MAC address."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/managed",
        "true",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":"managed"}"#,
    )
    .doc("Addresses are to be had from DHCPv6."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/other",
        "true",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":"other"}"#,
    )
    .doc("Other configuration is to be had from DHCPv6."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/send_unicast",
        "true",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":"send_unicast"}"#,
    )
    .doc("Hosts that ask are answered alone."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/interval",
        r#"{"max":"{max#}","min":"{min}"}"#,
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":{"interval":{"max":"{max#}","min":"{min}"}}}"#,
    )
    .doc("Most and fewest seconds between two of them.")
    .types(&[("min", r#"{"type":["integer","null"],"minimum":0}"#)]),
    Shape::new(
        "interfaces/{interface}/router_advertisements/lifetime",
        r#""{seconds#}""#,
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":{"lifetime":{"seconds":"{seconds#}"}}}"#,
    )
    .doc("Seconds for which hosts use this router; 0: not at all."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/initial",
        r#"{"count":"{count#}","interval":"{interval#}"}"#,
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":{"initial":{"count":"{count#}","interval":"{interval#}"}}}"#,
    )
    .doc("The first ones, which come faster: how many, and seconds between them."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/prefixes/{address}%{len#}",
        r#"{"*":"*"}"#,
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":{"prefix":{"address":"{address}","len":"{len#}","*":"*"}}}"#,
    )
    .doc("A prefix of the link.")
    .types(PREFIX),
    Shape::new(
        "interfaces/{interface}/router_advertisements/send",
        "true",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":true,"option":"suppress"}"#,
    )
    .doc("They are sent."),
    Shape::new(
        "interfaces/{interface}/router_advertisements/send",
        "false",
        "sw_interface_ip6nd_ra_config",
        r#"{"interface":"{interface}","no":false,"option":"suppress"}"#,
    )
    .doc(""),
];

const PREFIX: &[(&str, &str)] = &[
    ("valid", r#"{"type":"integer","minimum":0}"#),
    ("preferred", r#"{"type":"integer","minimum":0}"#),
    ("advertise", r#"{"type":"boolean"}"#),
    ("on_link", r#"{"type":"boolean"}"#),
    ("autoconfig", r#"{"type":"boolean"}"#),
];

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    const ADVERTISED: &str = "set ip6 dad enable transmits 3 delay 0.25
        set ip6 dad autoremove enable
        create packet-generator interface pg0
        create packet-generator interface pg1
        set interface state pg0 up
        set interface ip address pg0 2001:db8::1/64
        set interface ip address pg1 2001:db8:9::1/64
        ip6 nd pg0 ra-managed-config-flag
        ip6 nd pg0 ra-other-config-flag
        ip6 nd pg0 ra-suppress-link-layer
        ip6 nd pg0 ra-send-unicast
        ip6 nd pg0 ra-interval 40 20
        ip6 nd pg0 ra-lifetime 50
        ip6 nd pg0 ra-initial 2 10
        ip6 nd pg0 prefix 2001:db8:1::/64 infinite no-autoconfig
        ip6 nd pg0 prefix 2001:db8:2::/64 100 50 off-link no-advertise
        ip6 nd pg1 ra-interval 100
        ip6 nd pg1 ra-suppress
        ip6 nd address autoconfig pg0 default-route
        ip6 nd address autoconfig pg1
        set ip6 nd proxy pg1 2001:db8::77
        set interface ip6-nd proxy pg0 enable";

    #[test]
    fn advertisements_are_configured_again_as_they_were() {
        assert_rebuilt(
            &[],
            Harness::new,
            ADVERTISED,
            &["show ip6 dad", "show ip6 interface", "show ip6 nd autoconfig", "show ip6 nd proxy"],
        );
    }
}
