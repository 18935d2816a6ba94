//! Tunnels on the main thread: making, finding and removing them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use quiver_command::operation::{OpError, retval};
use quiver_graph::{GraphError, IfIndex, NodeSpec, Published};
use quiver_net::interface::{InterfaceKind, Kind, NewInterface, Tunnel as Among, Tx};
use quiver_net::ip::FamilyId;
use quiver_net::{IfEvent, PluginState, Router};
use quiver_wire::MacAddr;

use crate::group;
use crate::nodes::{self, Leg, Outer, Output};
use crate::table::{Key, Tunnels};

/// Their kind.
pub const VXLAN: InterfaceKind = InterfaceKind { name: "vxlan", called: "a VXLAN tunnel", device_type: "VXLAN" };
/// Largest number in a name.
pub const INSTANCE_MAX: u32 = 16_383;
/// Largest frame, bytes without FCS; as VPP's.
const MAX_FRAME: u32 = 9216;
/// First MTU, bytes; as VPP's.
const MTU: u32 = 9000;

/// What a tunnel is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Own address.
    pub src: IpAddr,
    /// The other end's, or a group.
    pub dst: IpAddr,
    /// Network identifier.
    pub vni: u32,
    /// Table of the outer addresses.
    pub table: u32,
    /// Own UDP port.
    pub src_port: u16,
    /// The other end's.
    pub dst_port: u16,
    /// Interface of the group.
    pub group_interface: Option<IfIndex>,
}

impl Config {
    /// Their family.
    pub fn family(&self) -> FamilyId {
        FamilyId::of(&self.src)
    }
}

/// A tunnel.
pub struct Tunnel {
    /// Number in its name.
    pub instance: u32,
    /// What it was made from.
    pub config: Config,
    /// What its packets have.
    pub key: Key,
    /// How packets to its group leave.
    pub(crate) leg: Published<Option<Leg>>,
}

/// The plugin's state.
pub struct Vxlan {
    tunnels: BTreeMap<u32, Tunnel>,
    published: Published<Tunnels>,
    seed: u64,
}

impl PluginState for Vxlan {
    const OFF: &'static str = "the plugin of VXLAN tunnels is off";
}

impl Vxlan {
    /// All tunnels, by number of their interface.
    pub fn iter(&self) -> impl Iterator<Item = (IfIndex, &Tunnel)> {
        self.tunnels.iter().map(|(index, tunnel)| (IfIndex(*index), tunnel))
    }

    /// The interface of a tunnel.
    pub fn find(&self, key: Key) -> Option<IfIndex> {
        self.iter().find(|(_, tunnel)| tunnel.key == key).map(|(index, _)| index)
    }

    fn publish(&self) {
        self.published.publish(Tunnels::new(self.iter().map(|(index, tunnel)| (tunnel.key, index))));
    }

    fn listens(&self, family: FamilyId, port: u16) -> bool {
        self.tunnels.values().any(|tunnel| (tunnel.config.family(), tunnel.config.src_port) == (family, port))
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published = Published::new(Tunnels::default());
    nodes::declare(router, &published)?;
    let seed = router.graph.clock().ticks() ^ u64::from(std::process::id()).rotate_left(40);
    router.add_part(Vxlan { tunnels: BTreeMap::new(), published, seed });
    router.listen(on_interface);
    Ok(())
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Deleted(index) => {
            forget(router, index);
            group::follow(router, index, true);
        }
        IfEvent::Mac(index) | IfEvent::Mtu(index) => group::follow(router, index, false),
        _ => {}
    }
}

/// What cannot be a tunnel.
fn check(config: &Config) -> Result<(), OpError> {
    let wrong = |code, text: &str, key| Err(OpError::new(code, text).key(key));
    let Config { src, dst, group_interface, .. } = *config;
    if src.is_ipv4() != dst.is_ipv4() {
        return wrong(retval::INVALID_ARGUMENT, "both IPv4 and IPv6 addresses specified", "dst");
    }
    if src == dst {
        return wrong(retval::SAME_SRC_DST, "src and dst addresses are identical", "dst");
    }
    if src.is_multicast() || src.is_unspecified() {
        return wrong(retval::INVALID_SRC_ADDRESS, "src must be an address of a host", "src");
    }
    if dst.is_unspecified() {
        return wrong(retval::INVALID_DST_ADDRESS, "dst must be an address of a host or a group", "dst");
    }
    match (dst.is_multicast(), group_interface) {
        (true, None) => wrong(retval::INVALID_DST_ADDRESS, "dst is a group: say `group GROUP INTERFACE'", "dst"),
        (false, Some(_)) => wrong(retval::INVALID_DST_ADDRESS, "tunnel group address not multicast", "group"),
        _ => Ok(()),
    }
}

/// The key of a tunnel in a FIB.
const fn key(config: &Config, fib: u32) -> Key {
    Key { local: config.src, remote: config.dst, vni: config.vni, port: config.src_port, fib }
}

/// Finds the tunnel that was made from this.
///
/// # Errors
/// There is none.
pub fn find(router: &Router, config: &Config) -> Result<IfIndex, OpError> {
    let fib = router.fib_of_table(config.family(), config.table);
    let found = fib.and_then(|fib| router.state::<Vxlan>().ok()?.find(key(config, fib)));
    found.ok_or_else(|| OpError::new(retval::NO_SUCH_ENTRY, "tunnel does not exist").remedy("`show vxlan tunnel' lists all"))
}

/// Makes a tunnel. It is up; its table is made where there is none.
///
/// # Errors
/// There is one of these ends, or the number is taken; the port is another node's. Nothing has changed then.
pub fn create(router: &mut Router, config: Config, instance: Option<u32>) -> Result<IfIndex, OpError> {
    check(&config)?;
    if find(router, &config).is_ok() {
        return Err(OpError::new(retval::TUNNEL_EXIST, "tunnel already exists"));
    }
    let state = router.state::<Vxlan>()?;
    let taken = |n: &u32| state.tunnels.values().any(|tunnel| tunnel.instance == *n);
    let instance = match instance {
        Some(n) if taken(&n) => {
            return Err(OpError::new(retval::INSTANCE_IN_USE, "instance is in use").key("instance").value(n));
        }
        Some(n) => n,
        None => (0..=INSTANCE_MAX)
            .find(|n| !taken(n))
            .ok_or_else(|| OpError::new(retval::LIMIT_EXCEEDED, "no free instance").key("instance"))?,
    };
    let (family, port) = (config.family(), config.src_port);
    let fib = router.keep_table(family, config.table)?;
    let made = listen(router, family, port).and_then(|()| build(router, config, fib, instance));
    if made.is_err() {
        release(router, &config);
    }
    made
}

/// Has the node of a family take the datagrams of a port.
fn listen(router: &mut Router, family: FamilyId, port: u16) -> Result<(), OpError> {
    let wrong = |error: quiver_net::local::RegisterError| {
        OpError::new(retval::INVALID_REGISTRATION, error.to_string()).key("src_port").value(port)
    };
    router.register_udp_port(family, port, nodes::input_of(family)).map_err(wrong)?;
    if family == FamilyId::V6 {
        // "MUST be accepted for decapsulation" (RFC 7348, section 5).
        router.allow_udp_without_checksum(port);
    }
    Ok(())
}

/// Makes the interface of a tunnel whose table and port are there.
fn build(router: &mut Router, config: Config, fib: u32, instance: u32) -> Result<IfIndex, OpError> {
    group::join(router, &config)?;
    let leg = Published::new(group::leg(router, &config));
    let Config { src, dst, vni, dst_port, .. } = config;
    let outer = Outer { src, dst, port: dst_port, vni, fib };
    let (seed, counters, snapshot) = (router.state::<Vxlan>()?.seed, router.graph.interfaces().clone(), leg.snapshot());
    let make =
        move |tunnel, name: String| NodeSpec::node(name, Output::new(tunnel, outer, snapshot, seed, counters)).traced(nodes::trace);
    let new = NewInterface {
        name: format!("vxlan_tunnel{instance}"),
        kind: Kind::Virtual(&VXLAN),
        mac: mac(seed, instance),
        mtu: MTU,
        max_frame: MAX_FRAME,
        tx: Tx::Node(Box::new(make)),
    };
    let index = router.create_interface(new)?;
    router.starts_up(index);
    router.is_tunnel(index, if dst.is_multicast() { Among::ToGroup } else { Among::ToPeer });
    router.set_interface_up(index, true)?;
    let state = router.state_mut::<Vxlan>()?;
    state.tunnels.insert(index.0, Tunnel { instance, config, key: key(&config, fib), leg });
    state.publish();
    Ok(index)
}

/// As VPP's: locally administered, and another one for each.
fn mac(seed: u64, instance: u32) -> MacAddr {
    let random = (seed.rotate_left(23) ^ u64::from(instance)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    MacAddr([2, 0xfe, random[0], random[1], random[2], random[3]])
}

/// A tunnel's interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    let Ok(state) = router.state_mut::<Vxlan>() else { return };
    let Some(tunnel) = state.tunnels.remove(&index.0) else { return };
    state.publish();
    release(router, &tunnel.config);
}

/// Gives back what a tunnel held that is not among the others.
fn release(router: &mut Router, config: &Config) {
    let (family, port) = (config.family(), config.src_port);
    let mine = |(_, node): &(u16, String)| node == nodes::input_of(family);
    let ours = router.udp_ports(family).into_iter().filter(mine).any(|(number, _)| number == port);
    if ours && !router.state::<Vxlan>().is_ok_and(|state| state.listens(family, port)) {
        router.unregister_udp_port(family, port);
    }
    group::leave(router, config);
    router.leave_kept_table(family, config.table);
}
