//! The `dpdk` section of `startup.conf`: VPP's keys.

use std::time::Duration;

use quiver_command::config::{Block, Config, ConfigError, Schema, Section, Value};
use quiver_command::configuration::Stage;
use quiver_command::document::Shape;
use quiver_command::operation::Registry;
use quiver_net::Router;

use crate::wish::{DeviceConfig, RSS};

/// How often links are looked at of devices that do not say when they change.
const LINK_POLL: Duration = Duration::from_secs(3);
/// Most queues that can be asked for.
const QUEUES_MAX: u16 = 256;
/// Most descriptors that can be asked for.
const DESCRIPTORS_MAX: u16 = 32_768;

/// Says where devices stand in a document of the configuration.
pub fn shapes(registry: &mut Registry<Router>) {
    registry.shapes(Stage::Interfaces, SHAPES);
}

const SHAPES: &[Shape] =
    &[Shape::new("interfaces/{interface}/dpdk", r#"{"*":"*"}"#, "dpdk_interface_create", r#"{"name":"{interface}","*":"*"}"#)
        .doc("A device of DPDK.")];

impl DeviceConfig {
    /// What the group of a device says.
    ///
    /// # Errors
    /// A value out of range.
    pub fn read(block: &Block) -> Result<Self, ConfigError> {
        let queues = |key| block.get(key).map(|value| value.number_in(1..=QUEUES_MAX)).transpose();
        let descriptors = |key| block.get(key).map(|value| value.number_in(1..=DESCRIPTORS_MAX)).transpose();
        let text = |key| block.get(key).map(|value: &Value| value.text().to_owned());
        let hashes = |group: &Block| RSS.iter().filter(|(name, _)| group.flag(name)).fold(0, |all, (_, bit)| all | bit);
        if let Some(value) = block.get("tso")
            && value.switch()?
        {
            let error = value.error("segmentation by the device is not supported");
            return Err(error.help("leave `tso on' out; what hosts send larger than the MTU is cut by the router"));
        }
        Ok(Self {
            rx_queues: queues("num-rx-queues")?,
            tx_queues: queues("num-tx-queues")?,
            rx_descriptors: descriptors("num-rx-desc")?,
            tx_descriptors: descriptors("num-tx-desc")?,
            name: text("name"),
            tag: text("tag"),
            rss: block.group("rss").map(hashes),
            devargs: text("devargs"),
            no_rx_interrupts: block.flag("no-rx-interrupts"),
        })
    }
}

/// A device to be opened.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Its PCI address, or a virtual device with its arguments.
    pub device: Value,
    /// How.
    pub config: DeviceConfig,
}

/// The section.
#[derive(Debug, Clone)]
pub struct DpdkConfig {
    /// PCI devices.
    pub devices: Vec<Wish>,
    /// Virtual devices.
    pub virtual_devices: Vec<Wish>,
    /// What holds for all devices.
    pub default: DeviceConfig,
    /// PCI addresses or `vendor:device` never to be taken.
    pub blacklist: Vec<String>,
    /// Kernel driver to which the PCI devices are bound first.
    pub uio_driver: Option<Value>,
    /// Bind also devices whose network interface is up.
    pub uio_bind_force: bool,
    /// Leave PCI devices alone.
    pub no_pci: bool,
    /// DPDK's own memory on small pages.
    pub no_huge_pages: bool,
    /// DPDK's own memory on each NUMA node, MB.
    pub socket_mem: Option<String>,
    /// No packets over several buffers.
    pub no_multi_segment: bool,
    /// Finish checksums in software.
    pub no_tx_checksum: bool,
    /// Let drivers free buffers without a look at each.
    pub fast_free: bool,
    /// PCI addresses in interface names in decimal.
    pub decimal_names: bool,
    /// Widest vector instructions that drivers may use, bits.
    pub simd_bits: Option<u16>,
    /// How often links are looked at.
    pub link_poll: Duration,
    /// DPDK's telemetry socket.
    pub telemetry: bool,
    /// Addresses that devices use: `pa` or `va`, where DPDK is not to choose.
    pub iova_mode: Option<&'static str>,
}

impl DpdkConfig {
    /// The section of a configuration.
    ///
    /// # Errors
    /// A value that cannot be used.
    pub fn read(config: &Config) -> Result<Self, ConfigError> {
        let block = config.section("dpdk");
        let mut default = DeviceConfig::default();
        let mut devices: Vec<Wish> = Vec::new();
        for (device, group) in block.named("dev") {
            let config = DeviceConfig::read(group)?;
            if device.text() == "default" {
                if let Some(name) = group.get("name") {
                    let error = name.error("all devices cannot have the same name");
                    return Err(error.help("name each one in its own group"));
                }
                default = config;
                continue;
            }
            if !crate::pci::is_address(device.text()) {
                let error = device.error(format!("`{}' is not a PCI address", device.text()));
                return Err(error.help("write it as 0000:01:00.0; virtual devices are named by `vdev'"));
            }
            if devices.iter().any(|known| known.device.text() == device.text()) {
                return Err(device.error(format!("device {} occurs twice", device.text())));
            }
            devices.push(Wish { device: device.clone(), config });
        }
        let mut virtual_devices = Vec::new();
        for (device, group) in block.named("vdev") {
            virtual_devices.push(Wish { device: device.clone(), config: DeviceConfig::read(group)? });
        }
        let seconds = |key| block.get(key).map(seconds).transpose();
        Ok(Self {
            devices,
            virtual_devices,
            default,
            blacklist: block.values("blacklist").map(|value| value.text().to_owned()).collect(),
            uio_driver: block.get("uio-driver").cloned(),
            uio_bind_force: block.flag("uio-bind-force"),
            no_pci: block.flag("no-pci"),
            no_huge_pages: block.flag("no-hugetlb"),
            socket_mem: block.get("socket-mem").map(socket_mem).transpose()?,
            no_multi_segment: block.flag("no-multi-seg"),
            no_tx_checksum: block.flag("no-tx-checksum-offload"),
            fast_free: block.flag("enable-mbuf-fast-free"),
            decimal_names: block.flag("decimal-interface-names"),
            simd_bits: block.get("max-simd-bitwidth").map(simd_bits).transpose()?,
            link_poll: seconds("link-state-poll-interval")?.unwrap_or(LINK_POLL),
            telemetry: block.flag("telemetry"),
            iova_mode: block.get("iova-mode").map(|value| value.one_of(&[("pa", "pa"), ("va", "va")])).transpose()?,
        })
    }
}

fn seconds(value: &Value) -> Result<Duration, ConfigError> {
    match value.decimal()? {
        seconds if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(value.bad("seconds from 0.001 to 3600")),
    }
}

fn socket_mem(value: &Value) -> Result<String, ConfigError> {
    let good = value.text().split(',').all(|part| part.parse::<u32>().is_ok());
    if good { Ok(value.text().to_owned()) } else { Err(value.bad("MB for each NUMA node, such as 1024,1024")) }
}

fn simd_bits(value: &Value) -> Result<u16, ConfigError> {
    value.one_of(&[("64", 64), ("128", 128), ("256", 256), ("512", 512)])
}

fn device() -> Section {
    let rss = RSS.iter().fold(Section::new("rss"), |section, (name, _)| section.flag(name).about("Hashes by these fields"));
    Section::new("dev")
        .value("num-rx-queues", "number")
        .about("Receive queues, 1 to 256")
        .value("num-tx-queues", "number")
        .about("Transmit queues, 1 to 256")
        .value("num-rx-desc", "number")
        .about("Descriptors of a receive queue, 1 to 32768")
        .value("num-tx-desc", "number")
        .about("Descriptors of a transmit queue, 1 to 32768")
        .value("name", "name")
        .about("Name of the interface")
        .value("tag", "text")
        .about("Text that `show interface tag` shows")
        .list("workers", "list of workers")
        .without_effect("queues go to the workers in turn; `set interface rx-placement' moves them")
        .group("rss", rss)
        .list("rss-queues", "list of queues")
        .without_effect("flows are spread over all receive queues")
        .value("tso", "on or off")
        .about("Segmentation by the device; only `off` is taken")
        .default_is("off")
        .value("devargs", "arguments")
        .about("Arguments for the device's driver")
        .flag("no-rx-interrupts")
        .about("Polls without end; takes no interrupts of the device")
        .value("max-lro-pkt-size", "bytes")
        .without_effect("devices do not put packets together here")
}

/// Adds the section.
pub fn schema(schema: Schema) -> Schema {
    let lro = "devices do not put packets together here";
    let section = Section::new("dpdk")
        .about("Devices that DPDK drives; in a program that was built with the feature `dpdk`")
        .named("dev", "PCI address", device())
        .about("Opens this device; `default` instead of an address: what holds for all")
        .named("vdev", "virtual device", device())
        .about("Opens a virtual device, `net_memif0,role=server,id=0`; the group has the keys of `dev`")
        .value("blacklist", "PCI address or vendor:device")
        .about("Never takes this device; may be repeated")
        .value("uio-driver", "kernel driver")
        .about("Kernel driver to which PCI devices are bound first, `vfio-pci`")
        .flag("uio-bind-force")
        .about("Binds also devices whose network interface is up")
        .flag("no-pci")
        .about("Leaves PCI devices alone")
        .flag("no-vmbus")
        .without_effect("devices of a VMBus are not taken")
        .flag("no-hugetlb")
        .about("Puts DPDK's own memory on small pages")
        .value("socket-mem", "MB for each NUMA node")
        .about("DPDK's own memory on each NUMA node, `1024,1024`")
        .flag("no-multi-seg")
        .about("Takes no packets that lie in several buffers")
        .flag("no-tx-checksum-offload")
        .about("Finishes checksums in software")
        .flag("enable-tcp-udp-checksum")
        .without_effect("checksums of packets that the router itself receives are always checked")
        .flag("enable-outer-checksum-offload")
        .without_effect("outer checksums are made in software")
        .flag("enable-lro")
        .without_effect(lro)
        .flag("enable-mbuf-fast-free")
        .about("Lets drivers free buffers without a look at each")
        .flag("decimal-interface-names")
        .about("Writes PCI addresses in interface names in decimal")
        .value("max-simd-bitwidth", "bits")
        .about("Widest vector instructions that drivers may use: 64, 128, 256 or 512")
        .value("link-state-poll-interval", "seconds")
        .about("How often links are looked at, 0.001 to 3600")
        .default_is("3")
        .value("stats-poll-interval", "seconds")
        .without_effect("devices are asked for their counters when these are shown")
        .flag("telemetry")
        .about("Opens DPDK's telemetry socket")
        .value("iova-mode", "pa or va")
        .about("Addresses that devices use: physical or virtual. Without it DPDK chooses");
    schema.section(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_command::config::Source;

    fn read(text: &str) -> Result<DpdkConfig, String> {
        let config = schema(Schema::new()).read(Source::file("f", text)).map_err(|error| error.to_string())?;
        DpdkConfig::read(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_as_vpps_users_write_it() {
        let config = read(
            "dpdk {
                dev default { num-rx-desc 512 num-rx-queues 2 }
                dev 0000:01:00.0 { num-rx-queues 4 name left rss { ipv4 ipv4-tcp } }
                dev 0000:01:00.1
                vdev net_memif0,role=server,id=0 { name m0 }
                uio-driver vfio-pci no-multi-seg socket-mem 1024,1024
                blacklist 8086:10fb link-state-poll-interval 0.5 max-simd-bitwidth 256
            }",
        )
        .unwrap();
        let left = config.devices[0].config.or(&config.default);
        assert_eq!((left.rx_queues, left.rx_descriptors, left.tx_queues), (Some(4), Some(512), None));
        assert_eq!((left.name.as_deref(), left.rss), (Some("left"), Some(0b1_0100)));
        let right = config.devices[1].config.or(&config.default);
        assert_eq!((right.rx_queues, right.name, right.rss), (Some(2), None, None));
        assert_eq!(config.virtual_devices[0].device.text(), "net_memif0,role=server,id=0");
        assert_eq!(config.link_poll, Duration::from_millis(500));
        assert_eq!((config.simd_bits, config.socket_mem.as_deref()), (Some(256), Some("1024,1024")));
        assert!(config.no_multi_segment && !config.no_pci && config.blacklist == ["8086:10fb"]);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, expected) in [
            ("dpdk { dev eth0 }", "f:1:12: `eth0' is not a PCI address; write it as 0000:01:00.0"),
            ("dpdk { dev 0000:01:00.0 { num-rx-queue 4 } }", "f:1:27: unknown key `num-rx-queue' in section `dev'"),
            ("dpdk { dev 0000:01:00.0 { num-rx-queues 0 } }", "a number from 1 to 256"),
            ("dpdk { dev 0000:01:00.0 dev 0000:01:00.0 }", "f:1:29: device 0000:01:00.0 occurs twice"),
            ("dpdk { dev default { name x } }", "f:1:27: all devices cannot have the same name"),
            ("dpdk { dev default { tso on } }", "segmentation by the device is not supported"),
            ("dpdk { dev 0000:01:00.0 { rss { ipv5 } } }", "unknown key `ipv5'"),
            ("dpdk { socket-mem much }", "MB for each NUMA node"),
            ("dpdk { max-simd-bitwidth 100 }", "`128'"),
            ("dpdk { no-pcie }", "f:1:8: unknown key `no-pcie' in section `dpdk'; did you mean `no-pci'?"),
            ("dpdk { vdev }", "`vdev' needs a virtual device"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
