//! Plugins that are linked into the program.

use quiver_command::config::Value;
use quiver_net::Plugin;
use quiver_plugin_host::Found;
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
    /// Its version: that of the program where it is linked.
    pub version: String,
    /// What it does.
    pub description: String,
    /// Where its code is.
    pub code: Code,
}

/// Where the code of a plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// In the program.
    Linked,
    /// In a shared object.
    Loaded,
    /// In a shared object that is switched off; something of it runs, and it is gone at the next start.
    Leaving,
}

/// Those plugins that the configuration leaves on, and what it says about ones that are neither linked nor `found`.
pub fn select(plugins: &[Plugin], config: &Plugins, found: &[Found]) -> (Vec<Plugin>, Vec<String>) {
    let enabled = |plugin: &&Plugin| {
        let said = config.named.iter().rfind(|(name, _)| plugin.is_called(name.text())).map(|(_, on)| *on);
        said.or(config.default).unwrap_or(plugin.enabled)
    };
    let chosen = plugins.iter().filter(enabled).copied().collect();
    let is_there = |name: &str| {
        plugins.iter().any(|plugin| plugin.is_called(name))
            || found.iter().any(|found| quiver_plugin_host::names(&found.file, name))
    };
    let missing = config.named.iter().filter(|(name, on)| *on && !is_there(name.text()));
    let notice = |(name, _): &(Value, bool)| {
        name.error(format!("plugin `{}' is not built in, and in no folder of plugins", name.text())).to_string()
    };
    (chosen, missing.map(notice).collect())
}

/// Those shared objects that the configuration leaves on.
pub fn select_found(found: Vec<Found>, config: &Plugins) -> Vec<Found> {
    let enabled = |found: &Found| {
        let is = |(name, _): &&(Value, bool)| quiver_plugin_host::names(&found.file, name.text());
        config.named.iter().rfind(is).map(|(_, on)| *on).or(config.default).unwrap_or(true)
    };
    found.into_iter().filter(enabled).collect()
}

/// The options of a plugin in a shared object.
pub fn options(config: &Plugins, file: &str) -> serde_json::Map<String, serde_json::Value> {
    let own = config.options.iter().filter(|(name, ..)| quiver_plugin_host::names(file, name.text()));
    own.map(|(_, key, value)| (key.clone(), value.as_str().into())).collect()
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
        let (plugins, notices) = select(&[NAT, LCP], &config.plugins, &[]);
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
    fn shared_objects_are_chosen_as_linked_plugins_are_and_have_options() {
        let found = || ["liba.so", "b_plugin.so"].map(|file| Found { file: file.into(), path: file.into() }).to_vec();
        let chosen = |text: &str| select_found(found(), &config_of(text)).into_iter().map(|found| found.file).collect::<Vec<_>>();
        assert_eq!(chosen(""), ["liba.so", "b_plugin.so"]);
        assert_eq!(chosen("plugins { plugin a { disable } }"), ["b_plugin.so"]);
        assert_eq!(chosen("plugins { plugin default { disable } plugin b.so { enable } }"), ["b_plugin.so"]);
        let config = config_of("plugins { add-path /opt/a plugin a.so { option rate=7 option name=x=y } plugin b { option c=d } }");
        assert_eq!(config.folders, [crate::startup::PLUGIN_DIR, "/opt/a"].map(std::path::PathBuf::from));
        assert_eq!(serde_json::Value::Object(options(&config, "liba.so")), serde_json::json!({"rate": "7", "name": "x=y"}));
        let text = "plugins { plugin a { option rate } }";
        let error = StartupConfig::read(&schema(), Source::file("f", text)).unwrap_err().to_string();
        assert!(error.contains("KEY=VALUE"), "{error}");
        assert_eq!(select(&[], &config_of("plugins { plugin a { enable } plugin c { enable } }"), &found()).1.len(), 1);
    }

    fn config_of(text: &str) -> Plugins {
        StartupConfig::read(&schema(), Source::file("f", text)).unwrap_or_else(|error| panic!("{error}")).plugins
    }

    #[test]
    fn a_plugin_that_is_not_there_is_only_worth_a_notice_where_it_is_wanted() {
        assert_eq!(chosen("plugins { plugin dpdk_plugin.so { disable } }").1, 0);
        assert_eq!(chosen("plugins { plugin dpdk_plugin.so { enable } }").1, 1);
    }
}
