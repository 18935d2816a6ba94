//! Tunnels to groups: the interface by which packets leave, and the multicast route by which they come in.

use std::net::IpAddr;

use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::mfib::{Change, GroupPrefix, PathFlags, To};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;

use crate::control::{Config, Vxlan};
use crate::nodes::Leg;

fn prefix(config: &Config) -> Option<GroupPrefix> {
    GroupPrefix::new(None, config.dst, config.family().bits()).ok().filter(|_| config.dst.is_multicast())
}

/// Has this router take packets to a tunnel's group that come in on its interface.
pub(crate) fn join(router: &mut Router, config: &Config) -> Result<(), OpError> {
    let (Some(interface), Some(prefix)) = (config.group_interface, prefix(config)) else { return Ok(()) };
    let accept = PathFlags { accept: true, forward: false };
    let paths = vec![(To::Local, PathFlags { accept: false, forward: true }), (To::Interface(interface), accept)];
    let change = Change { paths, plugin: true, ..Change::default() };
    let wrong = |error: quiver_net::mfib::MfibError| OpError::new(retval::INVALID_DST_ADDRESS, error.to_string()).key("group");
    router.change_mroute(config.table, prefix, &change).map(drop).map_err(wrong)
}

/// Takes the route back as far as no other tunnel needs it.
pub(crate) fn leave(router: &mut Router, config: &Config) {
    let (Some(interface), Some(prefix)) = (config.group_interface, prefix(config)) else { return };
    let same = |other: &Config| (other.dst, other.table) == (config.dst, config.table);
    let others: Vec<Config> = router.state::<Vxlan>().iter().flat_map(|s| s.iter()).map(|(_, t)| t.config).filter(same).collect();
    let mut paths = Vec::new();
    if others.is_empty() {
        paths.push(To::Local);
    }
    if !others.iter().any(|other| other.group_interface == Some(interface)) {
        paths.push(To::Interface(interface));
    }
    if !paths.is_empty() {
        // It may have gone with its interface or its table.
        let _ = router.remove_mroute(config.table, prefix, &paths);
    }
}

/// How packets to a tunnel's group leave.
pub(crate) fn leg(router: &Router, config: &Config) -> Option<Leg> {
    let interface = router.interfaces.get(config.group_interface?)?;
    let (group, ether_type, own) = match config.dst {
        IpAddr::V4(group) => (MacAddr::from_ipv4_multicast(group), EtherType::IPV4, interface.mtu.ip4),
        IpAddr::V6(group) => (MacAddr::from_ipv6_multicast(group), EtherType::IPV6, interface.mtu.ip6),
    };
    let mtu = if own > 0 { own } else { interface.mtu.l3 };
    let mut header = Vec::new();
    if interface.has_link_layer() {
        header.extend_from_slice(&group.0);
        header.extend_from_slice(&interface.mac.0);
        for (tpid, id) in interface.tags() {
            header.extend_from_slice(&tpid.to_be_bytes());
            header.extend_from_slice(&id.to_be_bytes());
        }
        header.extend_from_slice(&ether_type.0.to_be_bytes());
    }
    Leg::new(interface.index, mtu as usize, &header)
}

/// The interface of groups has changed, or goes.
pub(crate) fn follow(router: &Router, index: IfIndex, gone: bool) {
    let Ok(state) = router.state::<Vxlan>() else { return };
    for (_, tunnel) in state.iter().filter(|(_, tunnel)| tunnel.config.group_interface == Some(index)) {
        tunnel.leg.publish(leg(router, &tunnel.config).filter(|_| !gone));
    }
}
