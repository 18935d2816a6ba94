//! Host interfaces: network devices of the kernel, through packet sockets.

use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Outcome, Registry, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::af_packet::{AfPacket, AfPacketConfig, AfPacketError, Mode};
use quiver_net::interface::InterfaceKind;
use quiver_net::interface::ops::{Created, DeleteInterface, NewName, create_port_elsewhere};
use quiver_net::{Interface, Router};

/// Their kind.
pub const HOST: InterfaceKind = InterfaceKind { name: "host", called: "a host interface", device_type: "af-packet" };

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateHost>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete host-interface",
        syntax: "name <linux-if>",
        help: "Closes a network device of the kernel",
        parse: |args, router| {
            args.expect_keyword("name")?;
            let name = args.word("name of a network device")?.into_owned();
            Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&HOST, interface_on(router, &name))))
        },
    });
}

/// The interface on a network device, whatever it is called by now.
pub(crate) fn interface_on(router: &Router, device: &str) -> IfRef {
    let found = router.interfaces.iter().find(|interface| device_of(interface) == Some(device));
    IfRef(found.map_or_else(|| interface_name(device), |interface| interface.name.clone()))
}

/// The network device of a host interface.
pub(crate) fn device_of(interface: &Interface) -> Option<&str> {
    interface.port::<AfPacket>().map(|port| port.config().name.as_str())
}

/// Name that an interface on a network device gets.
fn interface_name(device: &str) -> String {
    format!("host-{device}")
}

request! {
    /// Opens a network device of the kernel and prints the interface's name.
    pub change CreateHost "host_interface_create" ["create host-interface"] {
        /// Name of the kernel's device.
        pub name: String = "name <linux-if>",
        /// MAC address of the interface; derived from the machine and the name where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// Receive queues.
        pub rx_queues: Option<usize> = "num-rx-queues <n>",
        /// The device carries IP packets without a link header, which is not supported.
        pub mode_ip: bool = "mode ip",
        /// Send past the queueing discipline.
        pub qdisc_bypass: Option<bool> = "qdisc-bypass-disable" negates(),
        /// Leave unfinished checksums to the kernel.
        pub cksum_gso: Option<bool> = "cksum-gso-disable" negates(),
        /// Slots of a receive ring.
        pub rx_size: Option<usize> = "rx-size <n>",
        /// Slots of a transmit ring.
        pub tx_size: Option<usize> = "tx-size <n>",
        /// Slots of a receive ring's block.
        pub rx_per_block: Option<usize> = "rx-per-block <n>",
        /// Slots of a transmit ring's block.
        pub tx_per_block: Option<usize> = "tx-per-block <n>",
    } ignores {
        /// VPP's word for its second packet-socket driver; there is one here.
        "v2",
        /// Each thread has a transmit queue of its own, whatever the number asked for.
        "num-tx-queues <n>",
    }
}

impl CreateHost {
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

impl Execute<Router> for CreateHost {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        if self.mode_ip {
            let error = OpError::new(retval::UNSUPPORTED, "mode ip is not supported on host interfaces").key("mode");
            return Err(error.remedy("leave it out for devices with an Ethernet header"));
        }
        let name = NewName { name: interface_name(&self.name), key: "name", value: self.name.clone() };
        let config = self.config();
        let open = move || AfPacket::open(config).map_err(|e| driver_error(&e));
        create_port_elsewhere(router, &HOST, name, open, move |router, index| router.made_by(index, &self))
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
