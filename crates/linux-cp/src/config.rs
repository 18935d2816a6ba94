//! The `linux-cp` section of `startup.conf`: VPP's keys.

use quiver_command::config::{Config, ConfigError, Schema, Section};

/// What the section says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of pairs that name none.
    pub namespace: Option<String>,
    /// `lcp lcp-sync on`.
    pub sync: bool,
    /// `lcp lcp-auto-subint on`.
    pub auto_sub: bool,
}

impl Settings {
    /// Reads the section.
    ///
    /// # Errors
    /// A name that no namespace can have.
    pub fn read(config: &Config) -> Result<Self, ConfigError> {
        let block = config.section("linux-cp");
        let namespace = match block.get("default netns") {
            Some(value) if super::control::check_namespace(value.text()).is_err() => {
                return Err(value.error("the name of a network namespace has 1 to 31 bytes"));
            }
            value => value.map(|value| value.text().to_owned()),
        };
        Ok(Self { namespace, sync: block.flag("lcp-sync"), auto_sub: block.flag("lcp-auto-subint") })
    }
}

/// Adds the section.
pub fn schema(schema: Schema) -> Schema {
    let queues = "a host interface has one queue, and threads write to it by themselves";
    let section = Section::new("linux-cp")
        .about("Interfaces that are mirrored into Linux")
        .value("default netns", "network namespace")
        .about("Namespace of host interfaces of which nothing else is said. Without it: the router's own")
        .flag("lcp-sync")
        .about("Linux' interfaces follow the router's: state, MTU, addresses")
        .flag("lcp-auto-subint")
        .about("A sub-interface of a mirrored interface is mirrored too")
        .value("num-rx-queues", "queues")
        .without_effect(queues)
        .value("num-tx-queues", "queues")
        .without_effect(queues);
    schema.section(section)
}
