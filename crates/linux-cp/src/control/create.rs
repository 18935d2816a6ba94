//! Making and removing pairs.

use std::collections::HashSet;
use std::net::IpAddr;

use quiver_command::operation::{OpError, retval};
use quiver_drivers::rights::SharedRights;
use quiver_drivers::tap::{Tap, TapConfig, TapError};
use quiver_graph::IfIndex;
use quiver_net::interface::ops::{NewName, create_port_interface};
use quiver_net::interface::{InterfaceKind, Kind, SubMatch, VlanId};
use quiver_net::ip;
use quiver_net::ops::graph_error;
use quiver_net::{Interface, Router};
use quiver_wire::ipv6::address::is_link_local;

use super::{Lcp, Pair, check_namespace, follow, note_host, with_tap};
use crate::nodes;
use crate::table::{Other, Tags};

/// The router's ends of pairs are TAP interfaces like those of `create tap`.
const TAP: InterfaceKind = InterfaceKind { name: "tap", called: "a TAP interface", device_type: "virtio" };

/// Numbers of TAP interfaces of pairs begin here, as in VPP: those before are the user's.
const FIRST_ID: u32 = 4096;

/// A pair to be made.
#[derive(Clone, Debug)]
pub struct NewPair {
    /// The router's interface.
    pub phy: IfIndex,
    /// Name of the host interface.
    pub host_name: String,
    /// Its namespace; the default one where absent.
    pub namespace: Option<String>,
    /// Without Ethernet headers: a TUN device.
    pub tun: bool,
}

/// Why an interface cannot have such a pair; its tags, where it can.
fn tags_of(interface: &Interface, tun: bool) -> Result<Tags, OpError> {
    let name = &interface.name;
    let refuse = |why: &str| Err(OpError::new(retval::INVALID_ARGUMENT, format!("{name} {why}")).key("interface").value(name));
    if !interface.has_link_layer() && !tun {
        let refused = refuse("carries IP packets without Ethernet headers, and a TAP host interface has these");
        return refused.map_err(|error| error.remedy("add `tun'"));
    }
    match &interface.kind {
        Kind::Local => refuse("has no packets"),
        Kind::Sub(SubMatch::Default) => refuse("takes frames with any tags: a host interface needs exactly one VLAN"),
        Kind::Sub(SubMatch::Tagged { outer, inner, exact, .. }) => {
            let any = |id: &VlanId| *id == VlanId::Any;
            if !exact || any(outer) || inner.as_ref().is_some_and(any) {
                return refuse("takes frames with several tags: a host interface needs exactly one VLAN (`exact-match')");
            }
            Ok(Tags::new(&interface.tags()).unwrap_or_default())
        }
        _ => Ok(Tags::default()),
    }
}

/// A pair whose TAP interface is still to be opened.
pub struct Opening {
    new: NewPair,
    tags: Tags,
}

impl Opening {
    /// The router's interface.
    pub fn phy(&self) -> IfIndex {
        self.new.phy
    }
}

/// What a pair needs that an interface can have; and what opens its TAP interface, on whichever thread.
///
/// # Errors
/// No such interface, one that cannot have a pair or has one; a name or namespace that cannot be.
pub fn prepare(
    router: &Router,
    mut new: NewPair,
) -> Result<(Opening, impl FnOnce() -> Result<Tap, OpError> + Send + use<>), OpError> {
    let interface = router.interfaces.expect(new.phy)?;
    let tags = tags_of(interface, new.tun)?;
    let (phy, state) = (interface.name.clone(), follow::Wanted::of(router, interface));
    let known = router.state::<Lcp>()?;
    if known.pair(new.phy).is_some() {
        return Err(has_one(&phy));
    }
    if known.pair_of_host(new.phy).is_some() {
        let error = OpError::new(retval::INVALID_INTERFACE, format!("{phy} is the host side of a pair"));
        return Err(error.key("interface").value(&phy));
    }
    new.namespace = new.namespace.or_else(|| known.namespace.clone());
    if let Some(name) = &new.namespace {
        check_namespace(name)?;
    }
    let config = TapConfig {
        host_namespace: new.namespace.clone(),
        host_mac: state.mac.filter(|_| !new.tun).map(|mac| mac.0),
        tun: new.tun,
        host_mtu: Some(state.mtu),
        host_up: state.up,
        gso: true,
        checksum_offload: true,
        ..TapConfig::new(new.host_name.clone())
    };
    let SharedRights(rights) = router.part::<SharedRights>().cloned().unwrap_or_default();
    let open = move || Tap::open(config, rights).map_err(|error| driver_error(&error));
    Ok((Opening { new, tags }, open))
}

/// Makes a pair with a TAP interface that was opened; gives that.
///
/// # Errors
/// The interface has gone or got a pair meanwhile; there are too many interfaces. Nothing has changed then.
pub fn finish(router: &mut Router, opening: Opening, tap: Tap) -> Result<IfIndex, OpError> {
    let Opening { new, tags } = opening;
    let tun = new.tun;
    let phy = &router.interfaces.expect(new.phy)?.name;
    if router.state::<Lcp>()?.pair(new.phy).is_some() {
        return Err(has_one(phy));
    }
    let taken: HashSet<u32> = router.state::<Lcp>()?.pairs().map(|pair| pair.id).collect();
    let id = (0..).find(|id| !taken.contains(id)).unwrap_or(0);
    let free = |id: &u32| router.interfaces.by_name(&format!("tap{id}")).is_none();
    let number = (FIRST_ID + id..).find(free).unwrap_or(FIRST_ID);
    let name = NewName::given("host-if", &format!("tap{number}"));
    let host = create_port_interface(router, &TAP, name, None, |_| Ok(tap))?.index();
    router.made_by_plugin(host);
    let host_ifindex = with_tap(router, host, |tap| tap.device().map_or(0, |device| device.index)).unwrap_or(0);
    let pair =
        Pair { id, phy: new.phy, host, host_name: new.host_name, namespace: new.namespace, host_ifindex, tun, gave_ip6: false };
    if let Err(error) = connect(router, pair, tags) {
        forget(router, new.phy, None);
        if router.interfaces.get(host).is_some() {
            let _ = router.delete_interface(host);
        }
        return Err(error);
    }
    follow::mirror(router, new.phy);
    Ok(host)
}

fn has_one(phy: &str) -> OpError {
    OpError::new(retval::VALUE_EXIST, format!("{phy} has a host interface already")).key("interface").value(phy)
}

fn driver_error(error: &TapError) -> OpError {
    let (code, key) = match error {
        TapError::Value { key: "host-ns", .. } => (retval::INVALID_VALUE, "netns"),
        TapError::Value { key: "host-mtu-size", .. } => (retval::INVALID_VALUE, "mtu"),
        TapError::Value { .. } => (retval::INVALID_VALUE, "host-if"),
        TapError::Namespace(_) => (retval::SYSCALL_ERROR_1, "netns"),
        TapError::Exists(_) => (retval::IF_ALREADY_EXISTS, "host-if"),
        _ => (retval::SYSCALL_ERROR_1, "host-if"),
    };
    OpError::new(code, error.to_string()).key(key)
}

/// Lets packets pass between the two interfaces of a new pair.
pub(super) fn connect(router: &mut Router, mut pair: Pair, tags: Tags) -> Result<(), OpError> {
    let (phy, host) = (pair.phy, pair.host);
    // To the output of an interface, or to where packets are routed.
    let slot = |router: &mut Router, node: &str, to: Option<IfIndex>| {
        let named = |router: &Router, node: &str| {
            router.graph.node(node).ok_or_else(|| OpError::new(retval::NO_SUCH_NODE, format!("no node {node}")))
        };
        let from = named(router, node)?;
        let to = match to {
            Some(to) => router.interfaces.expect(to)?.output,
            None => named(router, ip::bare::NODE)?,
        };
        router.graph.edge(from, to).map_err(|error| graph_error(&error))
    };
    // A TUN device's packets have no tags: nothing is to be taken out or put in.
    let (tun, tags) = (pair.tun, if pair.tun { Tags::default() } else { tags });
    let is_routed = tun && router.interfaces.get(phy).is_some_and(|phy| phy.has_link_layer());
    let to_host = Other { interface: host, slot: slot(router, nodes::PUNT, Some(host))?, tags, tun };
    let to_phy = Other { interface: phy, slot: slot(router, nodes::HOST, (!is_routed).then_some(phy))?, tags, tun: is_routed };
    let is_own = |address: &IpAddr| matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()));
    let had_ip6 = router.interfaces.get(phy).is_some_and(|i| i.addresses.iter().any(|(a, _)| is_own(a)));
    pair.gave_ip6 = !had_ip6;
    let known = router.state_mut::<Lcp>()?;
    known.change(|table| {
        table.set_host(phy, Some(to_host));
        table.set_phy(host, Some(to_phy));
    });
    known.by_host.insert(host.0, phy);
    known.pairs.insert(phy.0, pair.clone());
    nodes::switch_on(router, phy, host).map_err(|error| graph_error(&error))?;
    nodes::follow_addresses(router, phy);
    note_host(router, &pair)?;
    // Linux gives its end the same link-local address, which is made from the same MAC address.
    let enabled = router.enable_ip6(phy);
    enabled.map_err(|error| OpError::new(retval::UNSPECIFIED, error.to_string()).key("interface"))
}

/// Removes a pair with its host interface.
///
/// # Errors
/// The interface has none.
pub fn delete(router: &mut Router, phy: IfIndex) -> Result<(), OpError> {
    let name = router.interfaces.name(phy);
    if router.state::<Lcp>()?.pair(phy).is_none() {
        return Err(OpError::new(retval::INVALID_SW_IF_INDEX, format!("{name} has no host interface"))
            .key("interface")
            .value(&name));
    }
    forget(router, phy, None);
    Ok(())
}

/// Removes the pair that an interface is one side of, if there is one. `going`: the interface that is being deleted; whoever does that
/// goes on with it.
pub(super) fn forget(router: &mut Router, index: IfIndex, going: Option<IfIndex>) {
    let Ok(known) = router.state_mut::<Lcp>() else { return };
    let Some(pair) = known.pair(index).or_else(|| known.pair_of_host(index)).cloned() else { return };
    known.pairs.remove(&pair.phy.0);
    known.by_host.remove(&pair.host.0);
    known.change(|table| {
        table.set_host(pair.phy, None);
        table.set_phy(pair.host, None);
    });
    nodes::switch_off(router, pair.phy, pair.host);
    router.remove_host_interface(pair.phy);
    if pair.gave_ip6 && going != Some(pair.phy) {
        // Other addresses have come meanwhile, which keep it.
        let _ = router.disable_ip6(pair.phy);
    }
    if going != Some(pair.host)
        && let Err(error) = router.delete_interface(pair.host)
    {
        tracing::warn!(target: "linux-cp", "{}: {error}", pair.host_name);
    }
}
