//! Plugins that are linked into the program.

use quiver_net::Plugin;
use serde::Serialize;

use crate::startup::Plugins;

/// Plugins whose code is in this crate: what VPP's users switch by a plugin's name, and is part of the router here.
pub const BUILT_IN: [Plugin; 3] = [
    Plugin {
        register: crate::ops::host_interface::register,
        ..Plugin::new(&["af_packet_plugin.so"], "Host Interfaces (AF_PACKET)")
    },
    Plugin {
        register: crate::ops::memif::register,
        start: |router, _| {
            crate::ops::memif::start(router);
            Ok(())
        },
        ..Plugin::new(&["memif_plugin.so"], "Packet Memory Interface (memif)")
    },
    Plugin { register: crate::ops::af_xdp::register, ..Plugin::new(&["af_xdp_plugin.so"], "AF_XDP Device Plugin") },
];

/// A plugin as `show plugins` tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PluginInfo {
    /// Its name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// What it does.
    pub description: String,
}

/// Those plugins that the configuration leaves on, and what it says about ones that are not there.
pub fn select(plugins: &[Plugin], config: &Plugins) -> (Vec<Plugin>, Vec<String>) {
    let enabled = |plugin: &&Plugin| {
        let said = config.named.iter().rfind(|(name, _)| plugin.is_called(name.text())).map(|(_, on)| *on);
        said.or(config.default).unwrap_or(plugin.enabled)
    };
    let chosen = plugins.iter().filter(enabled).copied().collect();
    let missing = config.named.iter().filter(|(name, on)| *on && !plugins.iter().any(|plugin| plugin.is_called(name.text())));
    let notices = missing.map(|(name, _)| name.error(format!("plugin `{}' is not built in", name.text())).to_string());
    (chosen, notices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::{StartupConfig, schema};
    use quiver_command::config::Source;

    const NAT: Plugin = Plugin::new(&["nat44_ed_plugin.so", "nat_plugin.so"], "NAT");
    const LCP: Plugin = Plugin { enabled: false, ..Plugin::new(&["linux_cp_plugin.so"], "LCP") };

    fn chosen(text: &str) -> (Vec<&'static str>, usize) {
        let config = StartupConfig::read(&schema(), Source::file("f", text)).unwrap_or_else(|error| panic!("{error}"));
        let (plugins, notices) = select(&[NAT, LCP], &config.plugins);
        (plugins.iter().map(Plugin::name).collect(), notices.len())
    }

    #[test]
    fn each_plugin_has_its_own_default() {
        assert_eq!(chosen(""), (vec!["nat44_ed_plugin.so"], 0));
    }

    #[test]
    fn the_default_of_all_can_be_set_and_names_win_over_it() {
        assert_eq!(chosen("plugins { plugin default { disable } }"), (vec![], 0));
        assert_eq!(
            chosen("plugins { plugin default { disable } plugin linux_cp_plugin.so { enable } }"),
            (vec!["linux_cp_plugin.so"], 0)
        );
        assert_eq!(
            chosen("plugins { plugin default { enable } plugin nat_plugin.so { disable } }"),
            (vec!["linux_cp_plugin.so"], 0)
        );
    }

    #[test]
    fn older_and_shorter_names_mean_the_same_plugin() {
        assert_eq!(chosen("plugins { plugin nat_plugin.so { disable } }"), (vec![], 0));
        assert_eq!(chosen("plugins { plugin nat44_ed { disable } }"), (vec![], 0));
    }

    #[test]
    fn a_plugin_that_is_not_there_is_only_worth_a_notice_where_it_is_wanted() {
        assert_eq!(chosen("plugins { plugin dpdk_plugin.so { disable } }").1, 0);
        assert_eq!(chosen("plugins { plugin dpdk_plugin.so { enable } }").1, 1);
    }
}
