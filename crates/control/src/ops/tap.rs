//! TAP interfaces: a network device of the host's kernel whose other end is an interface of the router.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute, Value};
use quiver_drivers::tap::{HostAddress, Tap, TapConfig, TapError};
use quiver_net::interface::InterfaceKind;
use quiver_net::interface::ops::{Created, DeleteInterface, NewName, create_port_elsewhere, of_kind};
use quiver_net::{Interface, Router};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::privileges;

/// Largest number in a name.
const ID_MAX: u32 = 65_535;

/// Their kind.
pub const TAP: InterfaceKind = InterfaceKind { name: "tap", called: "a TAP interface", device_type: "virtio" };

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateTap>().declare::<ShowTap>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete tap",
        syntax: "<if>",
        help: "Removes a TAP interface, and its network device unless that is persistent",
        parse: |args, _| {
            args.take_keyword("sw_if_index");
            Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&TAP, args.interface()?)))
        },
    });
}

request! {
    /// Makes a network device of the host that leads to the router, and prints the interface's name.
    pub change CreateTap "tap_create" ["create tap"] {
        /// Number in the name; the lowest free one where absent.
        pub id: Option<u32> = "id <n>" range(0..=ID_MAX as u64),
        /// Name of the interface; `tap<id>` where absent.
        pub if_name: Option<String> = "if-name <name>",
        /// MAC address of the interface; derived from the machine and the name where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// Queues.
        pub rx_queues: Option<usize> = "num-rx-queues <n>",
        /// Frames that may wait to be received.
        pub rx_ring_size: Option<usize> = "rx-ring-size <n>",
        /// Network namespace of the host's end: a name, `pid:<n>` or a path.
        pub host_ns: Option<String> = "host-ns <netns>",
        /// Bridge that the host's end joins.
        pub host_bridge: Option<String> = "host-bridge <bridge>",
        /// Addresses of the host's end.
        pub host_addresses: Vec<HostAddressRequest> = "host-ip4-addr|host-ip6-addr <addr>/<len>",
        /// Default gateways of the host.
        pub host_gateways: Vec<Gateway> = "host-ip4-gw|host-ip6-gw <addr>",
        /// Link address of the host's end.
        pub host_mac: Option<[u8; 6]> = "host-mac-addr <mac>" unicast(),
        /// Name of the host's end; `tap<id>` where absent.
        pub host_if_name: Option<String> = "host-if-name <name>",
        /// MTU of the host's end.
        pub host_mtu: Option<u32> = "host-mtu-size <n>",
        /// The host may hand over super-frames.
        pub gso: bool = "gso|no-gso" default(false),
        /// The host may hand over unfinished checksums.
        pub csum_offload: bool = "csum-offload",
        /// The device stays when the interface goes.
        pub persist: bool = "persist",
        /// The device is there already.
        pub attach: bool = "attach",
        /// IP packets without Ethernet headers: a TUN device.
        pub tun: bool = "tun",
    } ignores {
        /// Threads write to the device by themselves: there are as many queues as threads.
        "num-tx-queues <n>",
        /// There is no ring where threads write to the device by themselves.
        "tx-ring-size <n>",
    }
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

impl Value for HostAddressRequest {
    const KIND: &'static str = "IP address with prefix length";

    fn take(args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<Self, OpError> {
        let (key, v4) = (argument.what_behind(lead), lead == 0);
        let word = args.word(key)?.into_owned();
        let parsed = word.split_once('/').and_then(|(a, l)| Some((a.parse::<IpAddr>().ok()?, l.parse::<u8>().ok()?)));
        match parsed.filter(|(a, l)| a.is_ipv4() == v4 && *l <= if v4 { 32 } else { 128 }) {
            Some((address, prefix_len)) => Ok(Self { address, prefix_len }),
            None => Err(OpError::invalid(
                key,
                word,
                if v4 { "an IPv4 address as 10.0.0.1/24" } else { "an IPv6 address as 2001:db8::1/64" },
            )),
        }
    }

    fn text(&self) -> String {
        format!("{}/{}", self.address, self.prefix_len)
    }

    fn lead(&self) -> usize {
        usize::from(self.address.is_ipv6())
    }
}

/// A default gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gateway(pub IpAddr);

impl Value for Gateway {
    const KIND: &'static str = "IP address";

    fn take(args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<Self, OpError> {
        let key = argument.what_behind(lead);
        if lead == 0 { args.ip4(key).map(|a| Self(a.into())) } else { args.ip6(key).map(|a| Self(a.into())) }
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn lead(&self) -> usize {
        usize::from(self.0.is_ipv6())
    }
}

impl CreateTap {
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
            host_gateways: self.host_gateways.iter().map(|gateway| gateway.0).collect(),
            gso: self.gso,
            checksum_offload: self.csum_offload,
            persist: self.persist,
            attach: self.attach,
            tun: self.tun,
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

impl Execute<Router> for CreateTap {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let free = |id: &u32| router.interfaces.by_name(&format!("tap{id}")).is_none();
        let id = self.id.or_else(|| (0..=ID_MAX).find(free)).unwrap_or(0);
        let name = match &self.if_name {
            Some(name) => NewName::given("if-name", name),
            None => NewName::given("id", &format!("tap{id}")),
        };
        let (config, rights) = (self.config(id), privileges::rights(router));
        let open = move || Tap::open(config, rights).map_err(|e| driver_error(&e));
        create_port_elsewhere(router, &TAP, name, open, move |router, index| {
            // The host's end is named by the number, too.
            router.made_by(index, &Self { id: Some(id), ..self });
        })
    }
}

request! {
    /// Shows TAP interfaces and the host's end of each.
    pub read ShowTap "tap_show" ["show tap"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
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
    /// IP packets without Ethernet headers.
    pub tun: bool,
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
            // A TUN device has no address. What is gone has no MTU either.
            let no_address = if i.host_mtu.is_none() { "device is gone" } else { "none" };
            let _ = writeln!(out, "  host-mac-addr: {}", i.host_mac.as_deref().unwrap_or(no_address));
            let _ = writeln!(out, "  host-carrier-up: {}", u8::from(i.host_carrier_up));
            let _ = writeln!(out, "  gso-enabled {}", u8::from(i.gso_enabled));
            let _ = writeln!(out, "  csum-enabled {}", u8::from(i.csum_enabled));
            let _ = writeln!(out, "  persistent {}", u8::from(i.persist));
            let _ = writeln!(out, "  tun {}", u8::from(i.tun));
            let _ = writeln!(out, "  Number of RX queues {}", i.rx_queues);
        }
    }
}

impl TapInfo {
    /// Of an interface that is one.
    pub fn of(interface: &Interface) -> Option<Self> {
        let tap = interface.port::<Tap>()?;
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
            tun: config.tun,
        })
    }
}

impl Execute<Router> for ShowTap {
    type Reply = TapList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, TapList>, OpError> {
        let interfaces = of_kind(router, self.interface.as_ref(), "a TAP", TapInfo::of)?;
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
            ("create tap tun hw-addr 02:00:00:00:00:01", "hw-addr"),
            ("create tap tun host-bridge br0", "host-bridge"),
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
                tun: false,
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
  tun 0
  Number of RX queues 2
";
        assert_eq!(text, expected);
    }
}
