//! Router advertisements and duplicate address detection in the running configuration.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::operation::Registry;

use super::{NdOption, Prefix, SetDad, SetNd};
use crate::interface::configuration::{named, numbers};
use crate::nd::{DadConfig, PrefixConfig, RaConfig};
use crate::{IfIndex, Router};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.configuration(Stage::System, |_| whole(dad)).configuration(Stage::Services, |router| each(numbers(router), options));
    registry.covers(&["ip6_dad_set", "sw_interface_ip6nd_ra_config"]);
}

fn dad(router: &Router, out: &mut Configuration<Router>) {
    let config = router.dad_config();
    if config != DadConfig::default() {
        out.push(&SetDad { transmits: config.transmits }).undo(&SetDad { transmits: DadConfig::default().transmits }).replaced();
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
    for (prefix, PrefixConfig { valid, preferred, on_link, autonomous, advertised }) in &config.prefixes {
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

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    const ADVERTISED: &str = "set ip6 dad enable transmits 3
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
        ip6 nd pg1 ra-suppress";

    #[test]
    fn advertisements_are_configured_again_as_they_were() {
        assert_rebuilt(&[], Harness::new, ADVERTISED, &["show ip6 dad", "show ip6 interface"]);
    }
}
