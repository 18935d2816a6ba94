//! The section `linux-nl` of `startup.conf`, with VPP's words.

use std::time::Duration;

use quiver_command::config::{Config, ConfigError, Schema, Section};

use crate::fpm::{FpmConfig, HOLD_TIME, HOLD_TIME_MOST, parse_address};

/// What the socket may hold, bytes: VPP's default.
const RECEIVE_BUFFER: usize = 128 << 20;
/// Changes in a batch to the main thread.
const BATCH: usize = 256;
/// Bounds of both.
const RECEIVE_BUFFER_LEAST: usize = 1 << 16;
const BATCH_MOST: usize = 1 << 16;

/// What can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetlinkConfig {
    /// What each socket may hold, bytes.
    pub receive_buffer: usize,
    /// Changes in a batch to the main thread.
    pub batch: usize,
    /// Where routing daemons connect to, if anywhere.
    pub fpm: Option<FpmConfig>,
}

impl Default for NetlinkConfig {
    fn default() -> Self {
        Self { receive_buffer: RECEIVE_BUFFER, batch: BATCH, fpm: None }
    }
}

/// Adds the section.
pub fn schema(schema: Schema) -> Schema {
    schema.section(
        Section::new("linux-nl")
            .about("Routes, neighbors, addresses and link states that Linux announces")
            .value("rx-buffer-size", "size")
            .about("What each netlink socket may hold, 64k to 1G")
            .default_is("128M")
            .value("batch-size", "number of changes")
            .about("Changes that go to the main thread at once, 1 to 65536")
            .default_is("256")
            .value("fpm-listen", "address:port")
            .about(
                "IPv4 address at which routing daemons connect by the forwarding plane manager's protocol; the port is \
                 2620 unless said. Without it: nowhere",
            )
            .value("fpm-hold-time", "seconds")
            .about("How long routes stay that such a daemon leaves behind, 0 to 86400")
            .default_is("120")
            .value("batch-delay-ms", "milliseconds")
            .without_effect("the next batch follows as soon as the main thread has time"),
    )
}

impl NetlinkConfig {
    /// The section of a configuration.
    ///
    /// # Errors
    /// A value that cannot be used.
    pub fn read(config: &Config) -> Result<Self, ConfigError> {
        let block = config.section("linux-nl");
        let mut read = Self::default();
        if let Some(value) = block.get("rx-buffer-size") {
            read.receive_buffer = usize::try_from(value.size()?)
                .ok()
                .filter(|size| (RECEIVE_BUFFER_LEAST..=1 << 30).contains(size))
                .ok_or_else(|| value.error("expected 64k to 1g"))?;
        }
        if let Some(value) = block.get("batch-size") {
            read.batch = value.number_in(1..=BATCH_MOST)?;
        }
        let hold = match block.get("fpm-hold-time") {
            Some(value) => value.number_in(0..=HOLD_TIME_MOST)?,
            None => HOLD_TIME,
        };
        if let Some(value) = block.get("fpm-listen") {
            let address = parse_address(value.text()).ok_or_else(|| value.error("expected an IPv4 address and a port"))?;
            read.fpm = Some(FpmConfig { address, hold: Duration::from_secs(hold.into()) });
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_command::config::Source;

    fn read(text: &str) -> Result<NetlinkConfig, String> {
        let config = schema(Schema::new()).read(Source::file("f", text)).map_err(|error| error.to_string())?;
        NetlinkConfig::read(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_as_vpps_users_write_it() {
        assert_eq!(read(""), Ok(NetlinkConfig::default()));
        let config = read("linux-nl { rx-buffer-size 64m batch-size 2000 batch-delay-ms 50 }");
        assert_eq!(config, Ok(NetlinkConfig { receive_buffer: 64 << 20, batch: 2000, fpm: None }));
        let config = read("linux-nl { fpm-listen 127.0.0.1 fpm-hold-time 5 }");
        let fpm = FpmConfig { address: "127.0.0.1:2620".parse().unwrap(), hold: Duration::from_secs(5) };
        assert_eq!(config, Ok(NetlinkConfig { fpm: Some(fpm), ..NetlinkConfig::default() }));
    }

    #[test]
    fn values_out_of_range_are_errors() {
        for text in [
            "linux-nl { rx-buffer-size 10 }",
            "linux-nl { batch-size 0 }",
            "linux-nl { rx-buffer 1m }",
            "linux-nl { fpm-listen ::1 }",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
