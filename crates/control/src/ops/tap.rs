//! TAP interfaces: a network device of the host's kernel whose other end is an interface of the router.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_drivers::tap::{HostAddress, Tap, TapConfig, TapError};
use quiver_graph::Port;
use quiver_net::interface::{Kind, NewInterface, Tx};
use quiver_net::{Interface, Router};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::interface::{Created, DeleteInterface, DeleteInterfaceRequest, DeleteKind, interface_error, of_kind};
use super::privileges;

/// Bytes of an Ethernet header: the difference between frames and layer-3 packets.
const ETHERNET_HEADER: usize = 14;
/// Largest number in a name.
const ID_MAX: u32 = 65_535;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<CreateTap>().operation::<ShowTap>();
    registry.command(Command {
        path: "create tap",
        syntax: "[id <n>] [if-name <name>] [hw-addr <mac>] [num-rx-queues <n>] [num-tx-queues <n>] [rx-ring-size <n>] \
            [tx-ring-size <n>] [host-ns <netns>] [host-bridge <bridge>] [host-ip4-addr <addr>/<len>] \
            [host-ip6-addr <addr>/<len>] [host-ip4-gw <addr>] [host-ip6-gw <addr>] [host-mac-addr <mac>] \
            [host-if-name <name>] [host-mtu-size <n>] [no-gso|gso|csum-offload] [persist] [attach]",
        help: "Makes a network device of the host that leads to the router, and prints the interface's name",
        parse: |args, _| Ok(Invocation::new::<CreateTap>(parse_create(args)?)),
    });
    registry.command(Command {
        path: "delete tap",
        syntax: "<if>",
        help: "Removes a TAP interface, and its network device unless that is persistent",
        parse: |args, _| {
            args.take_keyword("sw_if_index");
            let interface = args.interface()?;
            Ok(Invocation::new::<DeleteInterface>(DeleteInterfaceRequest { interface, kind: DeleteKind::Tap }))
        },
    });
    registry.command(Command {
        path: "show tap",
        syntax: "[<if>]",
        help: "Shows TAP interfaces and the host's end of each",
        parse: |args, _| {
            let interface = if args.is_empty() { None } else { Some(args.interface()?) };
            Ok(Invocation::new::<ShowTap>(ShowTapRequest { interface }))
        },
    });
}

fn parse_create(args: &mut Args<'_>) -> Result<CreateTapRequest, OpError> {
    let mut r = CreateTapRequest::default();
    while !args.is_empty() {
        if args.take_keyword("id") {
            r.id = Some(args.number_in("id", 0..=ID_MAX)?);
        } else if args.take_keyword("if-name") {
            r.if_name = Some(args.word("name of the interface")?.into_owned());
        } else if args.take_keyword("hw-addr") {
            r.mac = Some(args.mac("link address")?);
        } else if args.take_keyword("num-rx-queues") {
            r.rx_queues = Some(args.number("num-rx-queues")?);
        } else if args.take_keyword("rx-ring-size") {
            r.rx_ring_size = Some(args.number("rx-ring-size")?);
        } else if args.take_keyword("num-tx-queues") || args.take_keyword("tx-ring-size") {
            // Threads write to the device by themselves: there is no ring on this way, and no fewer queues than threads.
            args.number::<u32>("number")?;
        } else if args.take_keyword("host-ns") {
            r.host_ns = Some(args.word("network namespace")?.into_owned());
        } else if args.take_keyword("host-bridge") {
            r.host_bridge = Some(args.word("name of a bridge")?.into_owned());
        } else if args.take_keyword("host-ip4-addr") {
            r.host_addresses.push(address(args, "host-ip4-addr", true)?);
        } else if args.take_keyword("host-ip6-addr") {
            r.host_addresses.push(address(args, "host-ip6-addr", false)?);
        } else if args.take_keyword("host-ip4-gw") {
            r.host_gateways.push(gateway(args, "host-ip4-gw", true)?);
        } else if args.take_keyword("host-ip6-gw") {
            r.host_gateways.push(gateway(args, "host-ip6-gw", false)?);
        } else if args.take_keyword("host-mac-addr") {
            r.host_mac = Some(args.mac("link address")?);
        } else if args.take_keyword("host-if-name") {
            r.host_if_name = Some(args.word("name of a network device")?.into_owned());
        } else if args.take_keyword("host-mtu-size") {
            r.host_mtu = Some(args.number("host-mtu-size")?);
        } else if args.take_keyword("no-gso") {
            (r.gso, r.csum_offload) = (false, false);
        } else if args.take_keyword("gso") {
            r.gso = true;
        } else if args.take_keyword("csum-offload") {
            r.csum_offload = true;
        } else if args.take_keyword("persist") {
            r.persist = true;
        } else if args.take_keyword("attach") {
            r.attach = true;
        } else if args.take_keyword("tun") {
            let error = OpError::new(retval::UNSUPPORTED, "TUN interfaces are not supported").key("tun");
            return Err(error.remedy("leave the word out for a TAP interface"));
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(r)
}

fn address(args: &mut Args<'_>, key: &'static str, v4: bool) -> Result<HostAddressRequest, OpError> {
    let word = args.word("address with prefix length")?.into_owned();
    let parsed = word.split_once('/').and_then(|(a, l)| Some((a.parse::<IpAddr>().ok()?, l.parse::<u8>().ok()?)));
    match parsed.filter(|(a, l)| a.is_ipv4() == v4 && *l <= if v4 { 32 } else { 128 }) {
        Some((address, prefix_len)) => Ok(HostAddressRequest { address, prefix_len }),
        None => Err(OpError::invalid(
            key,
            word,
            if v4 { "an IPv4 address as 10.0.0.1/24" } else { "an IPv6 address as 2001:db8::1/64" },
        )),
    }
}

fn gateway(args: &mut Args<'_>, key: &'static str, v4: bool) -> Result<IpAddr, OpError> {
    let word = args.word("address of a gateway")?.into_owned();
    match word.parse::<IpAddr>().ok().filter(|a| a.is_ipv4() == v4) {
        Some(address) => Ok(address),
        None => Err(OpError::invalid(key, word, if v4 { "an IPv4 address" } else { "an IPv6 address" })),
    }
}

/// Makes a TAP interface.
pub struct CreateTap;

/// What [`CreateTap`] makes; what is absent has the driver's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateTapRequest {
    /// Number in the name; the lowest free one where absent.
    pub id: Option<u32>,
    /// Name of the interface; `tap<id>` where absent.
    pub if_name: Option<String>,
    /// Link address of the interface; drawn at random where absent.
    pub mac: Option<[u8; 6]>,
    /// Queues.
    pub rx_queues: Option<usize>,
    /// Frames that may wait to be received.
    pub rx_ring_size: Option<usize>,
    /// Network namespace of the host's end: a name, `pid:<n>` or a path.
    pub host_ns: Option<String>,
    /// Bridge that the host's end joins.
    pub host_bridge: Option<String>,
    /// Addresses of the host's end.
    pub host_addresses: Vec<HostAddressRequest>,
    /// Default gateways of the host.
    pub host_gateways: Vec<IpAddr>,
    /// Link address of the host's end.
    pub host_mac: Option<[u8; 6]>,
    /// Name of the host's end; `tap<id>` where absent.
    pub host_if_name: Option<String>,
    /// MTU of the host's end.
    pub host_mtu: Option<u32>,
    /// The host may hand over super-frames.
    pub gso: bool,
    /// The host may hand over unfinished checksums.
    pub csum_offload: bool,
    /// The device stays when the interface goes.
    pub persist: bool,
    /// The device is there already.
    pub attach: bool,
}

/// An address of the host's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostAddressRequest {
    /// Address.
    pub address: IpAddr,
    /// Bits of the network.
    pub prefix_len: u8,
}

impl CreateTapRequest {
    fn config(&self, id: u32) -> TapConfig {
        let usual = TapConfig::new(self.host_if_name.clone().unwrap_or_else(|| format!("tap{id}")));
        let addresses = self.host_addresses.iter().map(|a| HostAddress { address: a.address, prefix_len: a.prefix_len });
        TapConfig {
            mac: self.mac,
            rx_queues: self.rx_queues.unwrap_or(usual.rx_queues),
            rx_size: self.rx_ring_size,
            host_namespace: self.host_ns.clone(),
            host_mac: self.host_mac,
            host_mtu: self.host_mtu,
            host_bridge: self.host_bridge.clone(),
            host_addresses: addresses.collect(),
            host_gateways: self.host_gateways.clone(),
            gso: self.gso,
            checksum_offload: self.csum_offload,
            persist: self.persist,
            attach: self.attach,
            ..usual
        }
    }
}

fn driver_error(error: &TapError) -> OpError {
    let (code, key) = match error {
        TapError::Value { key, .. } => (retval::INVALID_VALUE, *key),
        TapError::Exists(_) => (retval::IF_ALREADY_EXISTS, "host-if-name"),
        _ => (retval::SYSCALL_ERROR_1, "host-if-name"),
    };
    OpError::new(code, error.to_string()).key(key)
}

impl Operation<Router> for CreateTap {
    const NAME: &'static str = "tap_create";
    const ACCESS: Access = Access::Change;
    type Request = CreateTapRequest;
    type Reply = Created;

    fn run(router: &mut Router, request: CreateTapRequest) -> Result<Outcome<Router, Created>, OpError> {
        for (key, mac) in [("hw-addr", request.mac), ("host-mac-addr", request.host_mac)] {
            if let Some(mac) = mac.map(MacAddr).filter(|m| !m.is_unicast() || m.is_zero()) {
                return Err(OpError::invalid(key, mac, "not a unicast link address"));
            }
        }
        let taken = |name: &str| router.interfaces.by_name(name).is_some();
        let free = || (0..=ID_MAX).find(|n| !taken(&format!("tap{n}")));
        let id = request.id.or_else(free).unwrap_or(0);
        let name = request.if_name.clone().unwrap_or_else(|| format!("tap{id}"));
        if taken(&name) {
            let error = OpError::new(retval::IF_ALREADY_EXISTS, format!("interface `{name}' exists already"));
            return Err(error.key(if request.if_name.is_some() { "if-name" } else { "id" }).value(&name));
        }
        let port = Tap::open(request.config(id), privileges::rights(router)).map_err(|e| driver_error(&e))?;
        let max_frame = port.max_frame();
        let index = router
            .create_interface(NewInterface {
                name,
                kind: Kind::Device("tap"),
                mac: port.mac().map_or(MacAddr::ZERO, MacAddr),
                // What the host's end itself takes.
                mtu: max_frame.saturating_sub(ETHERNET_HEADER) as u32,
                max_frame: max_frame as u32,
                tx: Tx::Port(Box::new(port)),
            })
            .map_err(|e| interface_error(&e))?;
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

/// Shows TAP interfaces.
pub struct ShowTap;

/// What [`ShowTap`] shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowTapRequest {
    /// One interface; all where absent.
    pub interface: Option<IfRef>,
}

/// A TAP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TapInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// Name of the host's end.
    pub host_if_name: String,
    /// Namespace of the host's end, where it is not the router's.
    pub host_ns: Option<String>,
    /// Link address of the host's end; absent while it is gone.
    pub host_mac: Option<String>,
    /// MTU of the host's end.
    pub host_mtu: Option<u32>,
    /// The host sees a link.
    pub host_carrier_up: bool,
    /// Queues.
    pub rx_queues: usize,
    /// Super-frames are taken.
    pub gso_enabled: bool,
    /// Unfinished checksums are taken.
    pub csum_enabled: bool,
    /// The device stays when the interface goes.
    pub persist: bool,
}

/// The answer of [`ShowTap`].
#[derive(Debug, Clone, Serialize)]
pub struct TapList {
    /// By number.
    pub interfaces: Vec<TapInfo>,
}

impl Text for TapList {
    fn text(&self, out: &mut String, _: &View) {
        for i in &self.interfaces {
            let _ = writeln!(out, "Interface: {} (ifindex {})", i.name, i.sw_if_index);
            let _ = writeln!(out, "  name \"{}\"", i.host_if_name);
            let _ = writeln!(out, "  host-ns \"{}\"", i.host_ns.as_deref().unwrap_or("(nil)"));
            let _ = writeln!(out, "  host-mtu-size \"{}\"", i.host_mtu.unwrap_or(0));
            let _ = writeln!(out, "  host-mac-addr: {}", i.host_mac.as_deref().unwrap_or("device is gone"));
            let _ = writeln!(out, "  host-carrier-up: {}", u8::from(i.host_carrier_up));
            let _ = writeln!(out, "  gso-enabled {}", u8::from(i.gso_enabled));
            let _ = writeln!(out, "  csum-enabled {}", u8::from(i.csum_enabled));
            let _ = writeln!(out, "  persistent {}", u8::from(i.persist));
            let _ = writeln!(out, "  Number of RX queues {}", i.rx_queues);
        }
    }
}

impl TapInfo {
    /// Of an interface that is one.
    pub fn of(interface: &Interface) -> Option<Self> {
        let tap = interface.device.as_ref()?.port.as_any()?.downcast_ref::<Tap>()?;
        let (config, device) = (tap.config(), tap.device());
        Some(Self {
            name: interface.name.clone(),
            sw_if_index: interface.index.0,
            host_if_name: config.host_name.clone(),
            host_ns: config.host_namespace.clone(),
            host_mac: device.and_then(|d| d.mac).map(|m| MacAddr(m).to_string()),
            host_mtu: device.map(|d| d.mtu),
            host_carrier_up: interface.admin_up && interface.link.up,
            rx_queues: config.rx_queues,
            gso_enabled: config.gso,
            csum_enabled: config.gso || config.checksum_offload,
            persist: config.persist,
        })
    }
}

impl Operation<Router> for ShowTap {
    const NAME: &'static str = "tap_show";
    const ACCESS: Access = Access::Read;
    type Request = ShowTapRequest;
    type Reply = TapList;

    fn run(router: &mut Router, request: ShowTapRequest) -> Result<Outcome<Router, TapList>, OpError> {
        let interfaces = of_kind(router, request.interface.as_ref(), "a TAP", TapInfo::of)?;
        Ok(Outcome::Done(TapList { interfaces }))
    }
}

#[cfg(test)]
mod tests {
    use quiver_command::operation::{Text, View};
    use quiver_net::testing::Harness;

    use super::{TapInfo, TapList};
    use crate::ops::testing::{error, run};

    #[test]
    fn mistakes_are_one_line_and_leave_nothing() {
        let mut h = Harness::new();
        for (line, expected) in [
            ("create tap id 70000", "id"),
            ("create tap num-rx-queues 0", "num-rx-queues"),
            ("create tap rx-ring-size 7", "rx-ring-size"),
            ("create tap host-mtu-size 1", "host-mtu-size"),
            ("create tap hw-addr 01:00:00:00:00:01", "unicast"),
            ("create tap host-mac-addr 00:00:00:00:00:00", "unicast"),
            ("create tap host-ip4-addr 10.0.0.1", "10.0.0.1/24"),
            ("create tap host-ip4-addr 10.0.0.1/33", "host-ip4-addr"),
            ("create tap host-ip6-addr 10.0.0.1/24", "host-ip6-addr"),
            ("create tap host-ip6-gw 10.0.0.1", "host-ip6-gw"),
            ("create tap host-if-name a-name-that-is-too-long", "host-if-name"),
            ("create tap host-ns no-such-namespace", "no-such-namespace"),
            ("create tap if-name local0", "exists already"),
            ("create tap tun", "not supported"),
            ("create tap colour red", "colour"),
            ("delete tap tap0", "unknown interface `tap0'"),
            ("delete tap local0", "local0 is not a TAP interface"),
            ("show tap local0", "local0 is not a TAP interface"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(h.router.interfaces.iter().count(), 1);
        assert_eq!(run(&mut h.router, "show tap"), "");
    }

    #[test]
    fn a_tap_is_shown_with_the_hosts_end() {
        let list = TapList {
            interfaces: vec![TapInfo {
                name: "tap0".into(),
                sw_if_index: 1,
                host_if_name: "tap0".into(),
                host_ns: None,
                host_mac: Some("02:00:00:00:00:01".into()),
                host_mtu: Some(1500),
                host_carrier_up: true,
                rx_queues: 2,
                gso_enabled: false,
                csum_enabled: true,
                persist: false,
            }],
        };
        let mut text = String::new();
        list.text(&mut text, &View::TEXT);
        let expected = "Interface: tap0 (ifindex 1)
  name \"tap0\"
  host-ns \"(nil)\"
  host-mtu-size \"1500\"
  host-mac-addr: 02:00:00:00:00:01
  host-carrier-up: 1
  gso-enabled 0
  csum-enabled 1
  persistent 0
  Number of RX queues 2
";
        assert_eq!(text, expected);
    }
}
