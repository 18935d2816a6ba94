//! Host interfaces: network devices of the kernel, through packet sockets.

use quiver_command::grammar::Command;
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, retval};
use quiver_drivers::af_packet::{AfPacket, AfPacketConfig, AfPacketError, Mode};
use quiver_graph::Port;
use quiver_net::Router;
use quiver_net::interface::{Kind, NewInterface, Tx};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::interface::{Created, DeleteInterface, DeleteInterfaceRequest, DeleteKind, interface_error};

/// Bytes of an Ethernet header: the difference between frames and layer-3 packets.
const ETHERNET_HEADER: usize = 14;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<CreateHost>();
    registry.command(Command {
        path: "create host-interface",
        syntax: "[v2] name <linux-if> [hw-addr <mac>] [num-rx-queues <n>] [num-tx-queues <n>] [mode ip] [qdisc-bypass-disable] \
            [cksum-gso-disable] [rx-size <n>] [tx-size <n>] [rx-per-block <n>] [tx-per-block <n>]",
        help: "Opens a network device of the kernel and prints the interface's name",
        parse: |args, _| {
            let mut r = CreateHostRequest::default();
            while !args.is_empty() {
                if args.take_keyword("v2") {
                    // VPP's word for its second packet-socket driver; there is one here.
                } else if args.take_keyword("name") {
                    r.name = args.word("name of a network device")?.into_owned();
                } else if args.take_keyword("hw-addr") {
                    r.mac = Some(args.mac("link address")?);
                } else if args.take_keyword("num-rx-queues") {
                    r.rx_queues = Some(args.number("num-rx-queues")?);
                } else if args.take_keyword("num-tx-queues") {
                    // Each thread has a transmit queue of its own, whatever the number asked for.
                    args.number::<u32>("num-tx-queues")?;
                } else if args.take_keyword("mode") {
                    args.expect_keyword("ip")?;
                    r.mode_ip = true;
                } else if args.take_keyword("qdisc-bypass-disable") {
                    r.qdisc_bypass = Some(false);
                } else if args.take_keyword("cksum-gso-disable") {
                    r.cksum_gso = Some(false);
                } else if args.take_keyword("rx-size") {
                    r.rx_size = Some(args.number("rx-size")?);
                } else if args.take_keyword("tx-size") {
                    r.tx_size = Some(args.number("tx-size")?);
                } else if args.take_keyword("rx-per-block") {
                    r.rx_per_block = Some(args.number("rx-per-block")?);
                } else if args.take_keyword("tx-per-block") {
                    r.tx_per_block = Some(args.number("tx-per-block")?);
                } else {
                    return Err(args.unexpected());
                }
            }
            if r.name.is_empty() {
                return Err(args.missing("name <linux-if>"));
            }
            Ok(Invocation::new::<CreateHost>(r))
        },
    });
    registry.command(Command {
        path: "delete host-interface",
        syntax: "name <linux-if>",
        help: "Closes a network device of the kernel",
        parse: |args, _| {
            args.expect_keyword("name")?;
            let name = args.word("name of a network device")?.into_owned();
            let interface = quiver_command::grammar::IfRef(interface_name(&name));
            Ok(Invocation::new::<DeleteInterface>(DeleteInterfaceRequest { interface, kind: DeleteKind::Host }))
        },
    });
}

/// Name of the interface on a network device.
fn interface_name(device: &str) -> String {
    format!("host-{device}")
}

/// Opens a network device.
pub struct CreateHost;

/// Which device [`CreateHost`] opens, and how; what is absent has the driver's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateHostRequest {
    /// Name of the kernel's device.
    pub name: String,
    /// Link address of the interface; drawn at random where absent.
    pub mac: Option<[u8; 6]>,
    /// Receive queues.
    pub rx_queues: Option<usize>,
    /// Slots of a receive ring.
    pub rx_size: Option<usize>,
    /// Slots of a transmit ring.
    pub tx_size: Option<usize>,
    /// Slots of a receive ring's block.
    pub rx_per_block: Option<usize>,
    /// Slots of a transmit ring's block.
    pub tx_per_block: Option<usize>,
    /// The device carries IP packets without a link header.
    pub mode_ip: bool,
    /// Send past the queueing discipline.
    pub qdisc_bypass: Option<bool>,
    /// Leave unfinished checksums to the kernel.
    pub cksum_gso: Option<bool>,
}

impl CreateHostRequest {
    fn config(&self) -> AfPacketConfig {
        let usual = AfPacketConfig::new(&self.name);
        AfPacketConfig {
            mac: self.mac,
            rx_queues: self.rx_queues.unwrap_or(usual.rx_queues),
            rx_size: self.rx_size.unwrap_or(usual.rx_size),
            tx_size: self.tx_size.unwrap_or(usual.tx_size),
            rx_per_block: self.rx_per_block.unwrap_or(usual.rx_per_block),
            tx_per_block: self.tx_per_block.unwrap_or(usual.tx_per_block),
            qdisc_bypass: self.qdisc_bypass.unwrap_or(usual.qdisc_bypass),
            cksum_gso: self.cksum_gso.unwrap_or(usual.cksum_gso),
            mode: if self.mode_ip { Mode::Ip } else { Mode::Ethernet },
            ..usual
        }
    }
}

fn driver_error(error: &AfPacketError) -> OpError {
    let (code, key) = match error {
        AfPacketError::Range { key, .. } => (retval::INVALID_VALUE, *key),
        _ => (retval::SYSCALL_ERROR_1, "name"),
    };
    OpError::new(code, error.to_string()).key(key)
}

impl Operation<Router> for CreateHost {
    const NAME: &'static str = "host_interface_create";
    const ACCESS: Access = Access::Change;
    type Request = CreateHostRequest;
    type Reply = Created;

    fn run(router: &mut Router, request: CreateHostRequest) -> Result<Outcome<Router, Created>, OpError> {
        let name = interface_name(&request.name);
        if request.mode_ip {
            let error = OpError::new(retval::UNSUPPORTED, "mode ip is not supported on host interfaces").key("mode");
            return Err(error.remedy("leave it out for devices with an Ethernet header"));
        }
        if let Some(mac) = request.mac.map(MacAddr).filter(|m| !m.is_unicast() || m.is_zero()) {
            return Err(OpError::invalid("hw-addr", mac, "not a unicast link address"));
        }
        if router.interfaces.by_name(&name).is_some() {
            let error = OpError::new(retval::IF_ALREADY_EXISTS, format!("interface `{name}' exists already"));
            return Err(error.key("name").value(&request.name));
        }
        let port = AfPacket::open(request.config()).map_err(|e| driver_error(&e))?;
        let max_frame = port.max_frame();
        let index = router
            .create_interface(NewInterface {
                name,
                kind: Kind::Device("host"),
                mac: port.mac().map_or(MacAddr::ZERO, MacAddr),
                // What the device itself takes: a larger packet would be lost there without a word.
                mtu: max_frame.saturating_sub(ETHERNET_HEADER) as u32,
                max_frame: max_frame as u32,
                tx: Tx::Port(Box::new(port)),
            })
            .map_err(|e| interface_error(&e))?;
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    #[test]
    fn mistakes_are_one_line_and_leave_nothing() {
        let mut h = Harness::new();
        for (line, expected) in [
            ("create host-interface", "name"),
            ("create host-interface name no-such-device0", "no-such-device0"),
            ("create host-interface name lo num-rx-queues 0", ""),
            ("create host-interface name lo hw-addr 01:00:00:00:00:01", "unicast"),
            ("create host-interface name lo mode ip", "not supported"),
            ("create host-interface name lo colour red", "colour"),
            ("delete host-interface name lo", "unknown interface `host-lo'"),
        ] {
            let error = crate::ops::testing::error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(h.router.interfaces.iter().count(), 1);
    }
}
