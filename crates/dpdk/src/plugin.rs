//! The plugin: devices opened at start and at run time, and what is done for them on the main thread.

use std::sync::Arc;
use std::time::Duration;

use quiver_command::config::Config;
use quiver_graph::Port as _;
use quiver_net::Plugin;
use quiver_net::interface::{InterfaceKind, Kind, L2Mode, NewInterface, Tx};
use quiver_net::{IfEvent, IfIndex, Router};
use quiver_wire::MacAddr;

use crate::config::{DpdkConfig, schema};
use crate::device::{self, Device, Limits, device_name};
use crate::eal::{self, Settings};
use crate::ops::CreateDpdk;
use crate::pci::{self, Pci};
use crate::port::DpdkPort;
use crate::wish::DeviceConfig;
use crate::{memory, ops};

/// Interfaces on its devices.
const DPDK: InterfaceKind = InterfaceKind { name: "dpdk", called: "a device of DPDK", device_type: "dpdk" };
/// Name of the process that watches devices.
const PROCESS: &str = "dpdk-process";
/// How often links are looked at of devices that do not tell of changes.
const QUIET_LINK_POLL: Duration = Duration::from_millis(100);
/// How often a device that has gone is looked for.
const RETURN_POLL: Duration = Duration::from_secs(1);

/// What this plugin brings.
pub fn plugin() -> Plugin {
    Plugin {
        log_classes: &["dpdk"],
        schema,
        register: ops::register,
        start,
        ..Plugin::new(&["dpdk_plugin.so"], "Data Plane Development Kit (DPDK)")
    }
}

/// The plugin's part of the router.
pub struct Dpdk {
    settings: Settings,
    limits: Limits,
    default: DeviceConfig,
    decimal_names: bool,
    link_poll: Duration,
    devices: Vec<Entry>,
}

struct Entry {
    interface: IfIndex,
    device: Arc<Device>,
    /// When to look at the link, or for the device, next; timer time, ns.
    due: u64,
    /// The request that opened it; none for those of `startup.conf`.
    request: Option<CreateDpdk>,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn start(router: &mut Router, config: &Config) -> Result<(), String> {
    let wanted = DpdkConfig::read(config).map_err(|error| error.to_string())?;
    let limits =
        Limits { no_multi_segment: wanted.no_multi_segment, no_tx_checksum: wanted.no_tx_checksum, fast_free: wanted.fast_free };
    let pci = if wanted.no_pci { Vec::new() } else { choose(&wanted, config.has("dpdk"), &Pci::default()) };
    let allowed: Vec<String> = pci.iter().map(|(address, _)| address.clone()).collect();
    router.add_part(Dpdk {
        settings: settings(&wanted, allowed),
        limits,
        default: wanted.default.clone(),
        decimal_names: wanted.decimal_names,
        link_poll: wanted.link_poll,
        devices: Vec::new(),
    });
    router.add_process(PROCESS, process);
    router.listen(follow);
    let signal = router.process_signal(PROCESS);
    device::wake_by(move || signal.raise());
    let virtual_devices =
        wanted.virtual_devices.iter().map(|wish| (wish.device.text().to_owned(), wish.config.clone(), Some(wish)));
    let said = |address: &String| wanted.devices.iter().find(|wish| wish.device.text() == address);
    let physical = pci.iter().map(|(address, config)| (address.clone(), config.clone(), said(address)));
    for (device, config, wish) in physical.chain(virtual_devices).collect::<Vec<_>>() {
        // A port that does not work must not keep the others from working.
        if let Err(text) = open(router, &device, &config) {
            let text = wish.map_or(text.clone(), |wish| wish.device.error(text).to_string());
            tracing::error!(target: "dpdk", "{text}");
        }
    }
    Ok(())
}

/// What DPDK is told, by the configuration, for these PCI devices.
fn settings(config: &DpdkConfig, allowed: Vec<String>) -> Settings {
    Settings {
        allowed,
        no_huge_pages: config.no_huge_pages,
        socket_mem: config.socket_mem.clone(),
        simd_bits: config.simd_bits,
        telemetry: config.telemetry,
        iova_mode: config.iova_mode,
    }
}

/// The PCI devices to take: those named, each bound first where that was asked for; where none is named, those that somebody
/// has bound to a door to user space.
fn choose(wanted: &DpdkConfig, has_section: bool, pci: &Pci) -> Vec<(String, DeviceConfig)> {
    if !has_section {
        return Vec::new();
    }
    if wanted.devices.is_empty() {
        let given = pci.network_devices().into_iter().filter(|device| device.is_given_over() && !device.is_in(&wanted.blacklist));
        return given.map(|device| (device.address, wanted.default.clone())).collect();
    }
    let mut chosen = Vec::new();
    for wish in &wanted.devices {
        let address = wish.device.text();
        if pci.device(address).is_some_and(|device| device.is_in(&wanted.blacklist)) {
            tracing::warn!(target: "dpdk", "{}", wish.device.error(format!("{address} is named and blacklisted: it is left alone")));
            continue;
        }
        if let Some(driver) = &wanted.uio_driver
            && driver.text() != "auto"
            && let Err(text) = pci.bind(address, driver.text(), wanted.uio_bind_force)
        {
            tracing::error!(target: "dpdk", "{}", wish.device.error(text));
            continue;
        }
        chosen.push((address.to_owned(), wish.config.or(&wanted.default)));
    }
    chosen
}

/// Opens a device, by PCI address or as a virtual device with its arguments, and makes an interface for it.
///
/// # Errors
/// Why it cannot be used, in a line.
pub fn open(router: &mut Router, devargs: &str, config: &DeviceConfig) -> Result<IfIndex, String> {
    let Some(dpdk) = router.part::<Dpdk>() else { return Err("the plugin has not been started".into()) };
    let name = device_name(devargs);
    let is_pci = pci::is_address(name);
    let mut settings = dpdk.settings.clone();
    if is_pci && !settings.allowed.iter().any(|address| address == name) {
        settings.allowed.push(name.to_owned());
    }
    let (limits, decimal, config) = (dpdk.limits, dpdk.decimal_names, config.or(&dpdk.default));
    if dpdk.devices.iter().any(|entry| entry.device.name == name && !entry.device.is_retired()) {
        return Err(format!("device {name} is in use already"));
    }
    if dpdk.devices.iter().any(|entry| entry.device.name == name) {
        return Err(format!("device {name} is still being closed: try again in a moment"));
    }
    if let Some(name) = config.name.as_ref().filter(|name| router.interfaces.by_name(name).is_some()) {
        return Err(format!("interface `{name}' exists already"));
    }
    eal::start(&settings)?;
    memory::share(router.graph.pools())?;
    let devargs = match (&config.devargs, devargs.contains(',')) {
        (Some(more), false) => format!("{devargs},{more}"),
        _ => devargs.to_owned(),
    };
    let threads = router.graph.fleet().threads().len().max(1);
    // Workers that are added later have queues of their own where the device has many; virtual ones are made to measure.
    let threads = if is_pci { threads.max(std::thread::available_parallelism().map_or(1, usize::from)) } else { threads };
    let device =
        Device::open(&devargs, &config, limits, u16::try_from(threads).unwrap_or(u16::MAX)).map_err(|error| error.to_string())?;
    if device.gate().is_none() {
        tracing::info!(target: "dpdk", "{name}: its peer is not there yet");
    }
    let megabits = fastest(device.setup().info.speeds);
    let name = config.name.clone().unwrap_or_else(|| match is_pci {
        true => pci::interface_name(name, megabits, decimal),
        false => name.to_owned(),
    });
    let port = DpdkPort::new(device.clone()).map_err(|error| error.to_string())?;
    let (mac, mtu, max_frame) = (port.mac().unwrap_or_default(), device.mtu(), device.frame_max());
    let new = NewInterface { name, kind: Kind::Device(&DPDK), mac: MacAddr(mac), mtu, max_frame, tx: Tx::Port(Box::new(port)) };
    // Where this fails the port is dropped, and with the last hold on it the device is closed.
    let interface = router.create_interface(new).map_err(|error| error.to_string())?;
    if let (Some(tag), Some(made)) = (config.tag, router.interfaces.get_mut(interface)) {
        made.tag = Some(tag);
    }
    if let Some(dpdk) = router.part_mut::<Dpdk>() {
        dpdk.devices.push(Entry { interface, device, due: 0, request: None });
    }
    router.wake_process(PROCESS, 0);
    apply(router, interface);
    Ok(interface)
}

/// The fastest of the speeds that a device has, megabits a second, from bits of `RTE_ETH_LINK_SPEED_…`.
fn fastest(bits: u32) -> u64 {
    const SPEEDS: [(u32, u64); 11] = [
        (5, 1_000),
        (6, 2_500),
        (7, 5_000),
        (8, 10_000),
        (9, 20_000),
        (10, 25_000),
        (11, 40_000),
        (12, 50_000),
        (13, 56_000),
        (14, 100_000),
        (15, 200_000),
    ];
    SPEEDS.iter().rev().find(|(bit, _)| bits >> bit & 1 == 1).map_or(0, |(_, speed)| *speed)
}

/// The device behind an interface, where it is one of DPDK's.
pub fn device_of(router: &Router, interface: IfIndex) -> Option<Arc<Device>> {
    let entries = &router.part::<Dpdk>()?.devices;
    entries.iter().find(|entry| entry.interface == interface && !entry.device.is_retired()).map(|entry| entry.device.clone())
}

/// Notes the request that makes a device as it is, for `show configuration`: `change` gets the one that opened it, where one did.
pub fn note_request(router: &mut Router, interface: IfIndex, change: impl FnOnce(Option<CreateDpdk>) -> Option<CreateDpdk>) {
    let Some(dpdk) = router.part_mut::<Dpdk>() else { return };
    let Some(entry) = dpdk.devices.iter_mut().find(|entry| entry.interface == interface && !entry.device.is_retired()) else {
        return;
    };
    entry.request = change(entry.request.take());
    if let Some(request) = entry.request.clone() {
        router.made_by(interface, &request);
    }
}

/// Closes the device's gate, lets every thread come round, and has `change` done to the port.
///
/// # Errors
/// Those of `change`; or the device is gone.
pub fn while_shut<T>(
    router: &mut Router,
    device: &Device,
    change: impl FnOnce(u16) -> Result<T, device::DeviceError>,
) -> Result<T, String> {
    let Some(port) = device.shut() else { return Err(format!("device {} is gone", device.name)) };
    // When this returns, every thread has ended the burst that it may have been in (D1).
    router.graph.fleet().each(|_| ());
    change(port).map_err(|error| error.to_string())
}

/// Follows what happens to interfaces.
fn follow(router: &mut Router, event: &IfEvent) {
    if let IfEvent::Mac(index) | IfEvent::Mtu(index) | IfEvent::L2(index) | IfEvent::Promiscuous(index) = event {
        let parent = router.interfaces.get(*index).map_or(*index, |interface| interface.parent);
        apply(router, parent);
    }
}

/// Has a device filter, and take frames, as its interface wants it.
fn apply(router: &mut Router, index: IfIndex) {
    let Some(device) = device_of(router, index) else { return };
    let Some(interface) = router.interfaces.get(index) else { return };
    let (name, mac, mtu) = (interface.name.clone(), interface.mac.0, interface.mtu.l3);
    // Sub-interfaces are served by the same filter.
    let mut promiscuous = {
        let mut family = router.interfaces.iter().filter(|other| other.parent == index || other.index == index);
        family.any(|other| other.promiscuous || other.l2 != L2Mode::L3 || other.mac.0 != mac)
    };
    if device.mac() != Some(mac)
        && let Err(error) = device.set_mac(mac)
    {
        tracing::info!(target: "dpdk", "{name}: the device keeps its address and takes all frames: {}", eal::reason(error));
        promiscuous = true;
    }
    if device.set_promiscuous(promiscuous) != promiscuous && promiscuous {
        tracing::debug!(target: "dpdk", "{name}: the device has no promiscuous mode");
    }
    if mtu > device.mtu() {
        let result = match u16::try_from(mtu) {
            Ok(mtu) if device.set_mtu(mtu).is_ok() => Ok(()),
            _ => {
                tracing::info!(target: "dpdk", "{name}: the device is restarted for MTU {mtu}; what waits in its queues is lost");
                while_shut(router, &device, |port| device.restart(port, |config| config.mtu = mtu))
            }
        };
        if let Err(error) = result {
            tracing::error!(target: "dpdk", "{name}: MTU {mtu}: {error}");
        }
    }
}

/// Looks after the devices: links, devices that go and return, devices to be closed. Says when to be called again.
fn process(router: &mut Router, now: u64) -> u64 {
    let Some(dpdk) = router.part_mut::<Dpdk>() else { return u64::MAX };
    // A device whose interface has gone is closed when the last queue has let go of it.
    dpdk.devices.retain(|entry| !entry.device.is_retired() || Arc::strong_count(&entry.device) > 1);
    let link_poll = dpdk.link_poll;
    let mut next = u64::MAX;
    for at in 0..dpdk_devices(router) {
        let Some(entry) = router.part::<Dpdk>().and_then(|dpdk| dpdk.devices.get(at)) else { break };
        let (index, device, due) = (entry.interface, entry.device.clone(), entry.due);
        if device.is_retired() {
            next = next.min(now.saturating_add(ns(QUIET_LINK_POLL)));
            continue;
        }
        let due = look_after(router, index, &device, due, now, link_poll);
        if let Some(entry) = router.part_mut::<Dpdk>().and_then(|dpdk| dpdk.devices.get_mut(at)) {
            entry.due = due;
        }
        next = next.min(due);
    }
    next
}

fn dpdk_devices(router: &Router) -> usize {
    router.part::<Dpdk>().map_or(0, |dpdk| dpdk.devices.len())
}

/// Looks after one device; says when to do so again.
fn look_after(router: &mut Router, index: IfIndex, device: &Device, due: u64, now: u64, link_poll: Duration) -> u64 {
    let (changed, gone) = device.events();
    if gone {
        tracing::warn!(target: "dpdk", "device {} has gone", device.name);
        let closed = while_shut(router, device, |port| {
            device.close(port);
            Ok(())
        });
        drop(closed);
        refresh(router, index);
        return now.saturating_add(ns(RETURN_POLL));
    }
    if !changed && now < due {
        return due;
    }
    // A start that has found its peer goes on for a moment in a thread of DPDK's, which stopping the device would pull the memory
    // from under: it has until the next look.
    let fresh = due == 0 || device.gate().is_none();
    if device.gate().is_none() {
        let opened = device.parked().map_or_else(|| device.reopen(), |port| device.start(port));
        if opened.is_err() {
            refresh(router, index);
            return now.saturating_add(ns(RETURN_POLL));
        }
        tracing::info!(target: "dpdk", "device {} is there", device.name);
        apply(router, index);
    }
    refresh(router, index);
    if device.waits_for_peer() && !device.link().0.up {
        if fresh || now < due {
            return if fresh { now.saturating_add(ns(RETURN_POLL)) } else { due };
        }
        // It does not look for a peer that has gone by itself.
        let _ = while_shut(router, device, |port| device.start_again(port));
        refresh(router, index);
        return now.saturating_add(ns(RETURN_POLL));
    }
    let poll = if device.tells_link() { link_poll } else { link_poll.min(QUIET_LINK_POLL) };
    now.saturating_add(ns(poll))
}

fn refresh(router: &mut Router, index: IfIndex) {
    let before = router.interfaces.get(index).map(|interface| interface.link.up);
    if let Err(error) = router.refresh_device(index) {
        tracing::warn!(target: "dpdk", "{error}");
    }
    let Some(interface) = router.interfaces.get(index) else { return };
    if before != Some(interface.link.up) {
        let state = if interface.link.up { "up" } else { "down" };
        tracing::info!(target: "interface", interface = %interface.name, state, "link of {} is {state}", interface.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_speed_names_the_interface() {
        assert_eq!(fastest(0), 0);
        assert_eq!(fastest(1 << 5 | 1 << 8), 10_000);
        assert_eq!(fastest(1 << 14), 100_000);
    }
}
