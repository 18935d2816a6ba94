//! Operations and commands.

use std::fmt::Write as _;

use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_net::Router;
use quiver_net::interface::ops::{Created, interface_error, resolve};
use serde::{Deserialize, Serialize};

use crate::plugin::{device_of, open, while_shut};
use crate::wish::DeviceConfig;
use crate::{eal, memory};

/// Adds this plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<CreateDpdk>()
        .operation::<DeleteDpdk>()
        .operation::<SetDescriptors>()
        .operation::<ShowVersion>()
        .operation::<ShowBuffer>();
    registry.command(Command {
        path: "create dpdk-interface",
        syntax: "device <device> [name <name>] [num-rx-queues <n>] [num-tx-queues <n>] [num-rx-desc <n>] \
            [num-tx-desc <n>] [no-rx-interrupts]",
        help: "Opens a device by DPDK, a PCI address or `net_memif0,role=server,…', and prints the interface's name",
        parse: |args, _| {
            let mut r = CreateDpdkRequest::default();
            while !args.is_empty() {
                if args.take_keyword("device") {
                    r.device = args.word("PCI address or virtual device")?.into_owned();
                } else if args.take_keyword("name") {
                    r.name = Some(args.word("name")?.into_owned());
                } else if args.take_keyword("num-rx-queues") {
                    r.rx_queues = Some(args.number_in("num-rx-queues", 1..=256)?);
                } else if args.take_keyword("num-tx-queues") {
                    r.tx_queues = Some(args.number_in("num-tx-queues", 1..=256)?);
                } else if args.take_keyword("num-rx-desc") {
                    r.rx_descriptors = Some(args.number_in("num-rx-desc", 1..=32_768)?);
                } else if args.take_keyword("num-tx-desc") {
                    r.tx_descriptors = Some(args.number_in("num-tx-desc", 1..=32_768)?);
                } else if args.take_keyword("no-rx-interrupts") {
                    r.no_rx_interrupts = true;
                } else {
                    return Err(args.unexpected());
                }
            }
            if r.device.is_empty() {
                return Err(args.missing("device <device>"));
            }
            Ok(Invocation::new::<CreateDpdk>(r))
        },
    });
    registry.command(Command {
        path: "delete dpdk-interface",
        syntax: "<if>",
        help: "Closes a device of DPDK",
        parse: |args, _| Ok(Invocation::new::<DeleteDpdk>(DeleteDpdkRequest { interface: args.interface()? })),
    });
    registry.command(Command {
        path: "set dpdk interface descriptors",
        syntax: "<if> [rx <n>] [tx <n>]",
        help: "Sets the sizes of a device's rings; the device is restarted, and what waits in them is lost",
        parse: |args, _| {
            let mut r = SetDescriptorsRequest { interface: args.interface()?, rx: None, tx: None };
            while !args.is_empty() {
                if args.take_keyword("rx") {
                    r.rx = Some(args.number_in("rx", 1..=32_768)?);
                } else if args.take_keyword("tx") {
                    r.tx = Some(args.number_in("tx", 1..=32_768)?);
                } else {
                    return Err(args.unexpected());
                }
            }
            if r.rx.is_none() && r.tx.is_none() {
                return Err(args.missing("rx <n> or tx <n>"));
            }
            Ok(Invocation::new::<SetDescriptors>(r))
        },
    });
    registry.command(Command {
        path: "show dpdk version",
        syntax: "",
        help: "Shows DPDK's version and what it was started with",
        parse: |_, _| Ok(Invocation::new::<ShowVersion>(())),
    });
    registry.command(Command {
        path: "show dpdk buffer",
        syntax: "",
        help: "Shows the pool that DPDK's drivers allocate from",
        parse: |_, _| Ok(Invocation::new::<ShowBuffer>(())),
    });
}

/// Opens a device.
pub struct CreateDpdk;

/// Which device [`CreateDpdk`] opens, and how.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateDpdkRequest {
    /// PCI address, or virtual device with its arguments.
    pub device: String,
    /// Name of the interface; by the device where absent.
    pub name: Option<String>,
    /// Receive queues.
    pub rx_queues: Option<u16>,
    /// Transmit queues.
    pub tx_queues: Option<u16>,
    /// Descriptors of a receive queue.
    pub rx_descriptors: Option<u16>,
    /// Descriptors of a transmit queue.
    pub tx_descriptors: Option<u16>,
    /// Poll, also where the device has interrupts.
    pub no_rx_interrupts: bool,
}

impl Operation<Router> for CreateDpdk {
    const NAME: &'static str = "dpdk_interface_create";
    const ACCESS: Access = Access::Change;
    type Request = CreateDpdkRequest;
    type Reply = Created;

    fn run(router: &mut Router, request: CreateDpdkRequest) -> Result<Outcome<Router, Created>, OpError> {
        let config = DeviceConfig {
            rx_queues: request.rx_queues,
            tx_queues: request.tx_queues,
            rx_descriptors: request.rx_descriptors,
            tx_descriptors: request.tx_descriptors,
            name: request.name,
            no_rx_interrupts: request.no_rx_interrupts,
            ..DeviceConfig::default()
        };
        let made = open(router, &request.device, &config);
        let index = made.map_err(|text| OpError::new(retval::INVALID_VALUE, text).key("device").value(&request.device))?;
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

/// Closes a device.
pub struct DeleteDpdk;

/// Which interface [`DeleteDpdk`] deletes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteDpdkRequest {
    /// Interface.
    pub interface: IfRef,
}

fn no_dpdk(name: &IfRef) -> OpError {
    let error = OpError::new(retval::INVALID_INTERFACE, format!("interface `{name}' is no device of DPDK"));
    error.key("interface").value(name)
}

impl Operation<Router> for DeleteDpdk {
    const NAME: &'static str = "dpdk_interface_delete";
    const ACCESS: Access = Access::Change;
    type Request = DeleteDpdkRequest;
    type Reply = ();

    fn run(router: &mut Router, request: DeleteDpdkRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        if device_of(router, index).is_none() {
            return Err(no_dpdk(&request.interface));
        }
        router.delete_interface(index).map_err(|error| interface_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets the sizes of a device's rings.
pub struct SetDescriptors;

/// What [`SetDescriptors`] sets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDescriptorsRequest {
    /// Interface.
    pub interface: IfRef,
    /// Descriptors of each receive queue.
    pub rx: Option<u16>,
    /// Descriptors of each transmit queue.
    pub tx: Option<u16>,
}

impl Operation<Router> for SetDescriptors {
    const NAME: &'static str = "dpdk_descriptors_set";
    const ACCESS: Access = Access::Change;
    type Request = SetDescriptorsRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetDescriptorsRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let Some(device) = device_of(router, index) else { return Err(no_dpdk(&request.interface)) };
        let result = while_shut(router, &device, |port| {
            device.restart(port, |config| {
                config.rx_descriptors = request.rx.unwrap_or(config.rx_descriptors);
                config.tx_descriptors = request.tx.unwrap_or(config.tx_descriptors);
            })
        });
        result.map_err(|text| OpError::new(retval::INVALID_VALUE, text).key("descriptors"))?;
        Ok(Outcome::Done(()))
    }
}

/// Shows DPDK's version.
pub struct ShowVersion;

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

impl Operation<Router> for ShowVersion {
    const NAME: &'static str = "dpdk_version_show";
    const ACCESS: Access = Access::Read;
    type Request = ();
    type Reply = VersionInfo;

    fn run(_: &mut Router, (): ()) -> Result<Outcome<Router, VersionInfo>, OpError> {
        Ok(Outcome::Done(VersionInfo { version: eal::version(), arguments: eal::arguments() }))
    }
}

/// Shows the pool of DPDK's drivers.
pub struct ShowBuffer;

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

impl Operation<Router> for ShowBuffer {
    const NAME: &'static str = "dpdk_buffer_show";
    const ACCESS: Access = Access::Read;
    type Request = ();
    type Reply = BufferInfo;

    fn run(router: &mut Router, (): ()) -> Result<Outcome<Router, BufferInfo>, OpError> {
        let uses: Vec<_> = router.graph.pools().iter().map(|pool| pool.usage()).collect();
        let available = uses.iter().map(|pool| pool.available).sum();
        Ok(Outcome::Done(BufferInfo { mbufs: memory::mbufs(), available, total: uses.iter().map(|pool| pool.total).sum() }))
    }
}
