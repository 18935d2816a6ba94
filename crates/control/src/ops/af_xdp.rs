//! AF_XDP interfaces: network devices of the kernel, with packets received into the router's own buffers.

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_drivers::af_xdp::{AfXdp, AfXdpConfig, AfXdpError, Attach, BusyPoll, Status, ZeroCopy};
use quiver_graph::Port;
use quiver_net::interface::{Kind, NewInterface, Tx};
use quiver_net::{Interface, Router};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

use super::interface::{Created, DeleteInterface, DeleteInterfaceRequest, DeleteKind, interface_error, of_kind};

/// Bytes of an Ethernet header: the difference between frames and layer-3 packets.
const ETHERNET_HEADER: usize = 14;
/// Packets that a busy-polling call may take unless told.
const BUDGET: u32 = 64;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<CreateAfXdp>().operation::<ShowAfXdp>();
    registry.command(Command {
        path: "create interface af_xdp",
        syntax: "host-if <linux-if> [name <name>] [hw-addr <mac>|mac-reuse] [rx-queue-size <n>] [tx-queue-size <n>] \
            [num-rx-queues <n>|all] [zero-copy|no-zero-copy] [native|generic] [busy-poll <us> [busy-poll-budget <n>]] \
            [no-syscall-lock]",
        help: "Opens a network device of the kernel through AF_XDP and prints the interface's name",
        parse: |args, _| Ok(Invocation::new::<CreateAfXdp>(parse_create(args)?)),
    });
    registry.command(Command {
        path: "delete interface af_xdp",
        syntax: "<if>",
        help: "Closes a network device that was opened through AF_XDP",
        parse: |args, _| {
            let interface = args.interface()?;
            Ok(Invocation::new::<DeleteInterface>(DeleteInterfaceRequest { interface, kind: DeleteKind::AfXdp }))
        },
    });
    registry.command(Command {
        path: "show af_xdp",
        syntax: "[<if>]",
        help: "Shows AF_XDP interfaces: mode, queues, buffers lent to the kernel, losses",
        parse: |args, _| {
            let interface = if args.is_empty() { None } else { Some(args.interface()?) };
            Ok(Invocation::new::<ShowAfXdp>(ShowAfXdpRequest { interface }))
        },
    });
}

fn parse_create(args: &mut Args<'_>) -> Result<CreateAfXdpRequest, OpError> {
    let mut r = CreateAfXdpRequest::default();
    while !args.is_empty() {
        if args.take_keyword("host-if") {
            r.host_if = args.word("name of a network device")?.into_owned();
        } else if args.take_keyword("name") {
            r.name = Some(args.word("name of the interface")?.into_owned());
        } else if args.take_keyword("hw-addr") {
            r.mac = Some(args.mac("link address")?);
        } else if args.take_keyword("mac-reuse") {
            r.mac_reuse = true;
        } else if args.take_keyword("rx-queue-size") {
            r.rx_size = Some(args.number("rx-queue-size")?);
        } else if args.take_keyword("tx-queue-size") {
            r.tx_size = Some(args.number("tx-queue-size")?);
        } else if args.take_keyword("num-rx-queues") {
            r.rx_queues = if args.take_keyword("all") { None } else { Some(args.number("num-rx-queues")?) };
        } else if args.take_keyword("zero-copy") {
            r.zero_copy = Some(true);
        } else if args.take_keyword("no-zero-copy") {
            r.zero_copy = Some(false);
        } else if args.take_keyword("native") {
            r.native = Some(true);
        } else if args.take_keyword("generic") {
            r.native = Some(false);
        } else if args.take_keyword("busy-poll") {
            r.busy_poll = Some(args.number_in("busy-poll", 1..=1_000_000)?);
        } else if args.take_keyword("busy-poll-budget") {
            r.busy_poll_budget = Some(args.number_in("busy-poll-budget", 1..=65_535)?);
        } else if args.take_keyword("no-syscall-lock") {
            // VPP's word for leaving a lock out that there is none of here.
        } else {
            return Err(args.unexpected());
        }
    }
    if r.host_if.is_empty() {
        return Err(args.missing("host-if <linux-if>"));
    }
    Ok(r)
}

/// Opens a network device through AF_XDP.
pub struct CreateAfXdp;

/// Which device [`CreateAfXdp`] opens, and how; what is absent has the driver's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateAfXdpRequest {
    /// Name of the kernel's device.
    pub host_if: String,
    /// Name of the interface; `<linux-if>/<n>` where absent.
    pub name: Option<String>,
    /// Link address of the interface; drawn at random where absent.
    pub mac: Option<[u8; 6]>,
    /// The interface takes the device's link address.
    pub mac_reuse: bool,
    /// Entries of the fill and rx rings.
    pub rx_size: Option<usize>,
    /// Entries of the tx and completion rings.
    pub tx_size: Option<usize>,
    /// Receive queues; all of the device where absent.
    pub rx_queues: Option<u32>,
    /// The device must, or must not, work on packet buffers itself.
    pub zero_copy: Option<bool>,
    /// The XDP program must be run by the device's driver, or by the kernel.
    pub native: Option<bool>,
    /// Busy polling, µs a call.
    pub busy_poll: Option<u32>,
    /// Packets that a busy-polling call may take.
    pub busy_poll_budget: Option<u32>,
}

impl CreateAfXdpRequest {
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
    fn interface_name(&self, router: &Router) -> Result<String, OpError> {
        let taken = |name: &str| router.interfaces.by_name(name).is_some();
        match &self.name {
            Some(name) if taken(name) => {
                let error = OpError::new(retval::IF_ALREADY_EXISTS, format!("interface `{name}' exists already"));
                Err(error.key("name").value(name))
            }
            Some(name) => Ok(name.clone()),
            None => Ok((0..).map(|n| format!("{}/{n}", self.host_if)).find(|n| !taken(n)).unwrap_or_default()),
        }
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

impl Operation<Router> for CreateAfXdp {
    const NAME: &'static str = "af_xdp_create";
    const ACCESS: Access = Access::Change;
    type Request = CreateAfXdpRequest;
    type Reply = Created;

    fn run(router: &mut Router, request: CreateAfXdpRequest) -> Result<Outcome<Router, Created>, OpError> {
        if let Some(mac) = request.mac.map(MacAddr).filter(|m| !m.is_unicast() || m.is_zero()) {
            return Err(OpError::invalid("hw-addr", mac, "not a unicast link address"));
        }
        if request.mac.is_some() && request.mac_reuse {
            let error = OpError::new(retval::INVALID_VALUE, "hw-addr and mac-reuse exclude each other").key("mac-reuse");
            return Err(error.remedy("leave one of them out"));
        }
        if request.busy_poll.is_none() && request.busy_poll_budget.is_some() {
            let error = OpError::new(retval::INVALID_VALUE, "busy-poll-budget without busy-poll").key("busy-poll-budget");
            return Err(error.remedy("add busy-poll <us>"));
        }
        let name = request.interface_name(router)?;
        let port = AfXdp::open(request.config(router)).map_err(|e| driver_error(&e))?;
        let max_frame = port.max_frame();
        let index = router
            .create_interface(NewInterface {
                name,
                kind: Kind::Device("af_xdp"),
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

/// Shows AF_XDP interfaces.
pub struct ShowAfXdp;

/// What [`ShowAfXdp`] shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowAfXdpRequest {
    /// One interface; all where absent.
    pub interface: Option<IfRef>,
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
        let port = interface.device.as_ref()?.port.as_any()?.downcast_ref::<AfXdp>()?;
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

impl Operation<Router> for ShowAfXdp {
    const NAME: &'static str = "af_xdp_show";
    const ACCESS: Access = Access::Read;
    type Request = ShowAfXdpRequest;
    type Reply = AfXdpList;

    fn run(router: &mut Router, request: ShowAfXdpRequest) -> Result<Outcome<Router, AfXdpList>, OpError> {
        let interfaces = of_kind(router, request.interface.as_ref(), "an AF_XDP", AfXdpInfo::of)?;
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
