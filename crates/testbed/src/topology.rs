//! The usual scene: two kernel hosts with a router between them, both address families.

use std::io;

use crate::host::Host;
use crate::link::{LinkOptions, Offloads};
use crate::router::Router;

/// How the scene is laid out.
#[derive(Debug, Clone)]
pub struct TwoHostsOptions {
    /// Offloads of all four ends.
    pub offloads: Offloads,
    /// Queues of each link.
    pub queues: u32,
    /// MTU of both links.
    pub mtu: u32,
}

impl Default for TwoHostsOptions {
    fn default() -> Self {
        Self { offloads: Offloads::On, queues: 1, mtu: 1500 }
    }
}

/// ```text
///   a eth0 10.0.1.2/24      ── r0 10.0.1.1   10.0.2.1 r1 ──      eth0 10.0.2.2/24 b
///          2001:db8:1::2/64       2001:db8:1::1   2001:db8:2::1       2001:db8:2::2/64
/// ```
/// The hosts have default routes to the router's addresses. The router's kernel end has no address and no IPv6: what
/// answers there is what the test starts.
#[derive(Debug)]
pub struct TwoHosts {
    /// The host on the left.
    pub a: Host,
    /// Where the router runs, interfaces `r0` (to a) and `r1` (to b).
    pub middle: Host,
    /// The host on the right.
    pub b: Host,
    /// What the links were made with, to make them again.
    pub options: TwoHostsOptions,
}

impl TwoHosts {
    /// IPv4 address of host a; the router's is 10.0.1.1.
    pub const A4: &str = "10.0.1.2";
    /// IPv4 address of host b; the router's is 10.0.2.1.
    pub const B4: &str = "10.0.2.2";
    /// IPv6 address of host a; the router's is 2001:db8:1::1.
    pub const A6: &str = "2001:db8:1::2";
    /// IPv6 address of host b; the router's is 2001:db8:2::1.
    pub const B6: &str = "2001:db8:2::2";

    /// Commands that bring up both interfaces and their addresses.
    pub const COMMANDS: &str = "
        create host-interface name r0
        create host-interface name r1
        set interface state host-r0 up
        set interface state host-r1 up
        set interface ip address host-r0 10.0.1.1/24
        set interface ip address host-r1 10.0.2.1/24
        set interface ip address host-r0 2001:db8:1::1/64
        set interface ip address host-r1 2001:db8:2::1/64
    ";

    /// Makes hosts, links, addresses and routes.
    pub fn new(options: TwoHostsOptions) -> io::Result<Self> {
        let scene = Self { a: Host::new("a")?, middle: Host::new("router")?, b: Host::new("b")?, options };
        scene.connect(Side::A)?;
        scene.connect(Side::B)?;
        Ok(scene)
    }

    /// Makes the link of one side with its addresses and routes; after the deletion of either end, makes it again.
    pub fn connect(&self, side: Side) -> io::Result<()> {
        let (host, port, net) = match side {
            Side::A => (&self.a, "r0", 1),
            Side::B => (&self.b, "r1", 2),
        };
        let link = LinkOptions {
            queues: self.options.queues,
            mtu: self.options.mtu,
            // Told apart at a glance in a capture: the host's end, then the router's.
            macs: [Some([2, 0, 0, 0, net, 2]), Some([2, 0, 0, 0, net, 1])],
            offloads: self.options.offloads,
        };
        host.veth("eth0", &self.middle, port, &link)?;
        self.middle.disable_ipv6(port)?;
        host.address("eth0", &format!("10.0.{net}.2/24"))?;
        host.address("eth0", &format!("2001:db8:{net}::2/64"))?;
        host.route("default", &format!("10.0.{net}.1"))?;
        host.route("default", &format!("2001:db8:{net}::1"))
    }

    /// Starts the router with this many workers (0: the main thread forwards) and [`COMMANDS`](Self::COMMANDS).
    pub fn start_router(&self, workers: u32) -> io::Result<Router> {
        self.start_router_with(workers, "", Self::COMMANDS)
    }

    /// Starts the router with further `startup.conf` sections and these commands.
    pub fn start_router_with(&self, workers: u32, conf: &str, commands: &str) -> io::Result<Router> {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}\n") };
        let router = Router::start(&self.middle, &format!("{cpu}{conf}"))?;
        router.script(commands).map_err(io::Error::other)?;
        Ok(router)
    }
}

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left one.
    A,
    /// The right one.
    B,
}
