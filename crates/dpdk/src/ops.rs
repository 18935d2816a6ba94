//! Operations and commands.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Execute, Request as _};
use quiver_net::Router;
use quiver_net::interface::ops::{Created, resolve};
use serde::Serialize;

use crate::plugin::{device_of, note_request, open, while_shut};
use crate::wish::DeviceConfig;
use crate::{eal, memory};

/// Queues of one kind that a device may have.
const QUEUES: RangeInclusive<u64> = 1..=256;
/// Descriptors that a queue may have.
const DESCRIPTORS: RangeInclusive<u64> = 1..=32_768;

/// Adds this plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateDpdk>().declare::<DeleteDpdk>().declare::<SetDescriptors>();
    registry.declare::<ShowVersion>().declare::<ShowBuffer>();
    crate::config::shapes(registry);
}

request! {
    /// Opens a device by DPDK, a PCI address or `net_memif0,role=server,…', and prints the interface's name.
    pub change CreateDpdk "dpdk_interface_create" ["create dpdk-interface"] {
        /// PCI address, or virtual device with its arguments.
        pub device: String = "device <device>",
        /// Name of the interface; by the device where absent.
        pub name: Option<String> = "name <name>",
        /// Receive queues.
        pub rx_queues: Option<u16> = "num-rx-queues <n>" range(QUEUES),
        /// Transmit queues.
        pub tx_queues: Option<u16> = "num-tx-queues <n>" range(QUEUES),
        /// Descriptors of a receive queue.
        pub rx_descriptors: Option<u16> = "num-rx-desc <n>" range(DESCRIPTORS),
        /// Descriptors of a transmit queue.
        pub tx_descriptors: Option<u16> = "num-tx-desc <n>" range(DESCRIPTORS),
        /// Poll, also where the device has interrupts.
        pub no_rx_interrupts: bool = "no-rx-interrupts",
    }
}

impl Execute<Router> for CreateDpdk {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let config = DeviceConfig {
            rx_queues: self.rx_queues,
            tx_queues: self.tx_queues,
            rx_descriptors: self.rx_descriptors,
            tx_descriptors: self.tx_descriptors,
            name: self.name.clone(),
            no_rx_interrupts: self.no_rx_interrupts,
            ..DeviceConfig::default()
        };
        let made = open(router, &self.device, &config);
        let index = made.map_err(|text| OpError::new(retval::INVALID_VALUE, text).key("device").value(&self.device))?;
        let request = Self { name: Some(router.interfaces.name(index)), ..self };
        note_request(router, index, |_| Some(request));
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

request! {
    /// Closes a device of DPDK.
    pub change DeleteDpdk "dpdk_interface_delete" ["delete dpdk-interface"] {
        /// Interface.
        pub interface: IfRef = "<if>",
    }
}

fn no_dpdk(name: &IfRef) -> OpError {
    let error = OpError::new(retval::INVALID_INTERFACE, format!("interface `{name}' is no device of DPDK"));
    error.key("interface").value(name)
}

impl Execute<Router> for DeleteDpdk {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        if device_of(router, index).is_none() {
            return Err(no_dpdk(&self.interface));
        }
        router.delete_interface(index)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets the sizes of a device's rings; the device is restarted, and what waits in them is lost.
    pub change SetDescriptors "dpdk_descriptors_set" ["set dpdk interface descriptors"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Descriptors of each receive queue.
        pub rx: Option<u16> = "rx <n>" range(DESCRIPTORS),
        /// Descriptors of each transmit queue.
        pub tx: Option<u16> = "tx <n>" range(DESCRIPTORS),
    }
}

impl Execute<Router> for SetDescriptors {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.rx.is_none() && self.tx.is_none() {
            return Err(Self::incomplete("rx <n> or tx <n>"));
        }
        let index = resolve(router, &self.interface)?;
        let Some(device) = device_of(router, index) else { return Err(no_dpdk(&self.interface)) };
        let result = while_shut(router, &device, |port| {
            device.restart(port, |config| {
                config.rx_descriptors = self.rx.unwrap_or(config.rx_descriptors);
                config.tx_descriptors = self.tx.unwrap_or(config.tx_descriptors);
            })
        });
        result.map_err(|text| OpError::new(retval::INVALID_VALUE, text).key("descriptors"))?;
        note_request(router, index, |opened| {
            opened.map(|opened| CreateDpdk {
                rx_descriptors: self.rx.or(opened.rx_descriptors),
                tx_descriptors: self.tx.or(opened.tx_descriptors),
                ..opened
            })
        });
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows DPDK's version and what it was started with.
    pub read ShowVersion "dpdk_version_show" ["show dpdk version"] {}
}

/// The answer of [`ShowVersion`].
#[derive(Debug, Clone, Serialize)]
pub struct VersionInfo {
    /// Its version.
    pub version: String,
    /// What it was started with; none where no device has been opened.
    pub arguments: Option<String>,
}

impl Text for VersionInfo {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "DPDK Version:             {}", self.version);
        let arguments = self.arguments.as_deref().map_or("(not started: no device)", |words| words.trim_start_matches("quiver "));
        let _ = writeln!(out, "DPDK EAL init args:       {arguments}");
    }
}

impl Execute<Router> for ShowVersion {
    type Reply = VersionInfo;

    fn execute(self, _: &mut Router) -> Result<Outcome<Router, VersionInfo>, OpError> {
        Ok(Outcome::Done(VersionInfo { version: eal::version(), arguments: eal::arguments() }))
    }
}

request! {
    /// Shows the pool that DPDK's drivers allocate from.
    pub read ShowBuffer "dpdk_buffer_show" ["show dpdk buffer"] {}
}

/// The answer of [`ShowBuffer`].
#[derive(Debug, Clone, Serialize)]
pub struct BufferInfo {
    /// Mbufs; none before the first device is opened.
    pub mbufs: Option<u32>,
    /// Free buffers in the router's pools, which are what drivers allocate from.
    pub available: u32,
    /// Usable buffers.
    pub total: u32,
}

impl Text for BufferInfo {
    fn text(&self, out: &mut String, _: &View) {
        let Some(mbufs) = self.mbufs else {
            out.push_str("no device of DPDK has been opened\n");
            return;
        };
        let allocated = self.total.saturating_sub(self.available);
        let _ = writeln!(
            out,
            "name=\"quiver\"  available = {:7} allocated = {allocated:7} total = {:7} mbufs = {mbufs:7}",
            self.available, self.total
        );
    }
}

impl Execute<Router> for ShowBuffer {
    type Reply = BufferInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, BufferInfo>, OpError> {
        let uses: Vec<_> = router.graph.pools().iter().map(|pool| pool.usage()).collect();
        let available = uses.iter().map(|pool| pool.available).sum();
        Ok(Outcome::Done(BufferInfo { mbufs: memory::mbufs(), available, total: uses.iter().map(|pool| pool.total).sum() }))
    }
}
