//! AF_XDP interfaces: network devices of the kernel, with packets received into the router's own buffers.

use std::fmt::Write as _;

use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::af_xdp::{AfXdp, AfXdpConfig, AfXdpError, Attach, BusyPoll, Status, ZeroCopy};
use quiver_net::interface::InterfaceKind;
use quiver_net::interface::ops::{Created, DeleteInterface, NewName, create_port_elsewhere, of_kind};
use quiver_net::{Interface, Router};
use serde::Serialize;

/// Packets that a busy-polling call may take unless told.
const BUDGET: u32 = 64;

/// Their kind.
pub const AF_XDP: InterfaceKind = InterfaceKind { name: "af-xdp", called: "an AF_XDP interface", device_type: "af_xdp" };

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateAfXdp>().declare::<ShowAfXdp>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete interface af_xdp",
        syntax: "<if>",
        help: "Closes a network device that was opened through AF_XDP",
        parse: |args, _| Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&AF_XDP, args.interface()?))),
    });
}

request! {
    /// Opens a network device of the kernel through AF_XDP and prints the interface's name.
    pub change CreateAfXdp "af_xdp_create" ["create interface af_xdp"] {
        /// Name of the kernel's device.
        pub host_if: String = "host-if <linux-if>",
        /// Name of the interface; `<linux-if>/<n>` where absent.
        pub name: Option<String> = "name <name>",
        /// MAC address of the interface; derived from the machine and the name where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// The interface takes the device's MAC address.
        pub mac_reuse: bool = "mac-reuse",
        /// Entries of the fill and rx rings.
        pub rx_size: Option<usize> = "rx-queue-size <n>",
        /// Entries of the tx and completion rings.
        pub tx_size: Option<usize> = "tx-queue-size <n>",
        /// Receive queues; all of the device where absent.
        pub rx_queues: Option<u32> = "num-rx-queues <n>|all",
        /// The device must, or must not, work on packet buffers itself.
        pub zero_copy: Option<bool> = "zero-copy|no-zero-copy",
        /// The XDP program must be run by the device's driver, or by the kernel.
        pub native: Option<bool> = "native|generic",
        /// Busy polling, µs a call.
        pub busy_poll: Option<u32> = "busy-poll <us>" range(1..=1_000_000),
        /// Packets that a busy-polling call may take; 64 where absent.
        pub busy_poll_budget: Option<u32> = "busy-poll-budget <n>" range(1..=65_535),
    } ignores {
        /// VPP's word for leaving a lock out that there is none of here.
        "no-syscall-lock",
    }
}

impl CreateAfXdp {
    fn config(&self, router: &Router) -> AfXdpConfig {
        let usual = AfXdpConfig::new(&self.host_if, router.graph.pools().to_vec());
        AfXdpConfig {
            mac: self.mac,
            mac_reuse: self.mac_reuse,
            rx_queues: self.rx_queues,
            rx_size: self.rx_size.unwrap_or(usual.rx_size),
            tx_size: self.tx_size.unwrap_or(usual.tx_size),
            attach: match self.native {
                None => Attach::Auto,
                Some(true) => Attach::Native,
                Some(false) => Attach::Generic,
            },
            zero_copy: match self.zero_copy {
                None => ZeroCopy::Auto,
                Some(true) => ZeroCopy::Demanded,
                Some(false) => ZeroCopy::Never,
            },
            busy_poll: self.busy_poll.map(|microseconds| {
                let budget = self.busy_poll_budget.unwrap_or(BUDGET);
                BusyPoll { microseconds, budget }
            }),
            rights: super::privileges::rights(router),
            ..usual
        }
    }

    /// The interface's name.
    fn interface_name(&self, router: &Router) -> NewName {
        let free = |name: &String| router.interfaces.by_name(name).is_none();
        let of_device = || (0..).map(|n| format!("{}/{n}", self.host_if)).find(free).unwrap_or_default();
        NewName::given("name", &self.name.clone().unwrap_or_else(of_device))
    }
}

fn driver_error(error: &AfXdpError) -> OpError {
    let (code, key) = match error {
        AfXdpError::Range { key, .. } => (retval::INVALID_VALUE, *key),
        AfXdpError::Unfit { .. } => (retval::UNSUPPORTED, "host-if"),
        _ => (retval::SYSCALL_ERROR_1, "host-if"),
    };
    OpError::new(code, error.to_string()).key(key)
}

impl Execute<Router> for CreateAfXdp {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        if self.mac.is_some() && self.mac_reuse {
            let error = OpError::new(retval::INVALID_VALUE, "hw-addr and mac-reuse exclude each other").key("mac-reuse");
            return Err(error.remedy("leave one of them out"));
        }
        if self.busy_poll.is_none() && self.busy_poll_budget.is_some() {
            let error = OpError::new(retval::INVALID_VALUE, "busy-poll-budget without busy-poll").key("busy-poll-budget");
            return Err(error.remedy("add busy-poll <us>"));
        }
        let name = self.interface_name(router);
        let (config, chosen) = (self.config(router), Some(name.name.clone()));
        let open = move || AfXdp::open(config).map_err(|e| driver_error(&e));
        create_port_elsewhere(router, &AF_XDP, name, open, move |router, index| {
            router.made_by(index, &Self { name: chosen, ..self });
        })
    }
}

request! {
    /// Shows AF_XDP interfaces: mode, queues, buffers lent to the kernel, losses.
    pub read ShowAfXdp "af_xdp_show" ["show af_xdp"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An AF_XDP interface.
#[derive(Debug, Clone, Serialize)]
pub struct AfXdpInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// The kernel's device.
    pub host_if: String,
    /// The kernel's driver of it.
    pub driver: String,
    /// The device is there.
    pub present: bool,
    /// The XDP program is run by the driver.
    pub native: bool,
    /// The device works on packet buffers itself.
    pub zero_copy: bool,
    /// Frames larger than a buffer can be received and sent.
    pub multi_buffer: bool,
    /// Queues that the device has.
    pub available_queues: u32,
    /// Queues in use.
    pub queues: Vec<AfXdpQueue>,
    #[serde(skip)]
    lines: Vec<String>,
}

/// A queue of an AF_XDP interface.
#[derive(Debug, Clone, Serialize)]
pub struct AfXdpQueue {
    /// Buffers that the kernel has for receiving.
    pub rx_lent: u32,
    /// Buffers on their way out.
    pub tx_lent: u32,
    /// Frames lost: no buffer, or too large.
    pub rx_dropped: u64,
    /// Frames lost because the rx ring was full.
    pub rx_ring_full: u64,
}

/// The answer of [`ShowAfXdp`].
#[derive(Debug, Clone, Serialize)]
pub struct AfXdpList {
    /// By number.
    pub interfaces: Vec<AfXdpInfo>,
}

impl Text for AfXdpList {
    fn text(&self, out: &mut String, _: &View) {
        for interface in &self.interfaces {
            let _ = writeln!(out, "{} (sw_if_index {})", interface.name, interface.sw_if_index);
            for line in &interface.lines {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
}

impl AfXdpInfo {
    fn of(interface: &Interface) -> Option<Self> {
        let port = interface.port::<AfXdp>()?;
        let status: Status = port.status();
        Some(Self {
            name: interface.name.clone(),
            sw_if_index: interface.index.0,
            lines: status.lines(),
            host_if: status.device,
            driver: status.driver,
            present: status.present.is_some(),
            native: status.native,
            zero_copy: status.zero_copy,
            multi_buffer: status.pieces,
            available_queues: status.available_queues,
            queues: status
                .queues
                .iter()
                .map(|q| AfXdpQueue {
                    rx_lent: q.rx_lent,
                    tx_lent: q.tx_lent,
                    rx_dropped: q.rx_dropped,
                    rx_ring_full: q.rx_ring_full,
                })
                .collect(),
        })
    }
}

impl Execute<Router> for ShowAfXdp {
    type Reply = AfXdpList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, AfXdpList>, OpError> {
        let interfaces = of_kind(router, self.interface.as_ref(), "an AF_XDP", AfXdpInfo::of)?;
        Ok(Outcome::Done(AfXdpList { interfaces }))
    }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn mistakes_are_one_line_and_leave_nothing() {
        let mut h = Harness::new();
        for (line, expected) in [
            ("create interface af_xdp", "host-if"),
            ("create interface af_xdp host-if no-such-device0", "no-such-device0"),
            ("create interface af_xdp host-if lo", "no Ethernet header"),
            ("create interface af_xdp host-if lo hw-addr 01:00:00:00:00:01", "unicast"),
            ("create interface af_xdp host-if lo hw-addr 02:00:00:00:00:01 mac-reuse", "exclude each other"),
            ("create interface af_xdp host-if lo busy-poll-budget 8", "without busy-poll"),
            ("create interface af_xdp host-if lo busy-poll 0", "busy-poll"),
            ("create interface af_xdp host-if lo name local0", "exists already"),
            ("create interface af_xdp host-if lo colour red", "colour"),
            ("create interface af_xdp host-if lo prog x.o", "prog"),
            ("delete interface af_xdp lo/0", "unknown interface `lo/0'"),
            ("delete interface af_xdp local0", "local0 is not an AF_XDP interface"),
            ("show af_xdp local0", "local0 is not an AF_XDP interface"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(h.router.interfaces.iter().count(), 1);
        assert_eq!(run(&mut h.router, "show af_xdp"), "");
    }
}
