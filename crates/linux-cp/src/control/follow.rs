//! What happens to an interface, written to its mirror in Linux.
//!
//! The MAC address and the carrier follow always: without them no packet would get through. Administrative state, MTU and
//! addresses follow with `lcp lcp-sync on`. What Linux has changed itself is not written back to it.

use std::net::IpAddr;

use quiver_command::operation::OpError;
use quiver_drivers::tap::{HostAddress, HostChange};
use quiver_graph::IfIndex;
use quiver_net::interface::Kind;
use quiver_net::{IfEvent, Interface, Router};
use quiver_wire::MacAddr;
use quiver_wire::ipv6::address::is_link_local;

use super::{Lcp, Pair, auto, note_host, with_tap};
use crate::nodes;

/// Sizes that a host interface can have.
const MTU: std::ops::RangeInclusive<u32> = 68..=65_521;

/// The state that an interface's mirror is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// `None`: it has none.
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    pub up: bool,
}

impl Wanted {
    pub fn of(router: &Router, interface: &Interface) -> Self {
        let carried = router.interfaces.get(interface.parent).is_none_or(|parent| parent.admin_up);
        let mac = Some(interface.mac).filter(|mac| !mac.is_zero());
        Self { mac, mtu: interface.mtu.l3.clamp(*MTU.start(), *MTU.end()), up: interface.admin_up && carried }
    }

    fn change(self) -> HostChange {
        HostChange { mac: self.mac.map(|mac| mac.0), mtu: Some(self.mtu), up: Some(self.up) }
    }
}

/// An address as the host interface has it. Link-local ones are of the whole link there.
fn host_address(address: IpAddr, len: u8) -> HostAddress {
    HostAddress { address, prefix_len: if is_own_link_local(&address) { 64 } else { len } }
}

/// Switches whether interfaces are written to Linux; on: as they are now.
///
/// # Errors
/// The plugin is off.
pub fn set_sync(router: &mut Router, on: bool) -> Result<(), OpError> {
    router.state_mut::<Lcp>()?.sync = on;
    if on {
        let all: Vec<IfIndex> = router.state::<Lcp>()?.pairs().map(|pair| pair.phy).collect();
        all.into_iter().for_each(|phy| write(router, phy));
    }
    Ok(())
}

/// Switches whether sub-interfaces of paired interfaces get pairs; on: those that are there, too.
///
/// # Errors
/// The plugin is off.
pub fn set_auto_sub(router: &mut Router, on: bool) -> Result<(), OpError> {
    router.state_mut::<Lcp>()?.auto_sub = on;
    if !on {
        auto::stop(router);
    }
    let all: Vec<IfIndex> = router.state::<Lcp>()?.pairs().map(|pair| pair.phy).collect();
    all.into_iter().for_each(|phy| pair_subs(router, phy));
    Ok(())
}

/// Gives a new pair's mirror the state of its interface.
pub(super) fn mirror(router: &mut Router, phy: IfIndex) {
    set_carrier(router, phy);
    let Ok(known) = router.state::<Lcp>() else { return };
    if known.sync {
        write(router, phy);
    } else {
        give_link_local(router, phy);
    }
    pair_subs(router, phy);
}

/// Linux makes the link-local address of a TAP from its MAC address, which is the interface's. A TUN device gets it from us.
fn give_link_local(router: &mut Router, phy: IfIndex) {
    if !pair(router, phy).is_some_and(|pair| pair.tun) {
        return;
    }
    let Some(interface) = router.interfaces.get(phy) else { return };
    let own: Vec<_> = interface.addresses.iter().copied().filter(|(address, _)| is_own_link_local(address)).collect();
    for (address, len) in own {
        set_address(router, phy, host_address(address, len), true);
    }
}

fn is_own_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()))
}

fn pair(router: &Router, phy: IfIndex) -> Option<Pair> {
    router.state::<Lcp>().ok()?.pair(phy).cloned()
}

fn warn(pair: &Pair, what: &str, error: &dyn std::fmt::Display) {
    tracing::warn!(target: "linux-cp", "{what} of host interface {}: {error}", pair.host_name);
}

/// The host sees a carrier while its interface can send.
fn set_carrier(router: &mut Router, phy: IfIndex) {
    let Some(pair) = pair(router, phy) else { return };
    let Some(interface) = router.interfaces.get(phy) else { return };
    let carried = router.interfaces.get(interface.parent).is_some_and(|parent| parent.admin_up && parent.link.up);
    let up = interface.admin_up && carried;
    if let Err(error) = router.set_interface_up(pair.host, up) {
        warn(&pair, "carrier", &error);
    }
}

/// Writes all that there is to write of an interface.
fn write(router: &mut Router, phy: IfIndex) {
    let Some(interface) = router.interfaces.get(phy) else { return };
    let (wanted, addresses) = (Wanted::of(router, interface), interface.addresses.clone());
    set_host(router, phy, wanted.change());
    for (address, len) in addresses {
        set_address(router, phy, host_address(address, len), true);
    }
}

fn set_host(router: &mut Router, phy: IfIndex, change: HostChange) {
    let Some(pair) = pair(router, phy) else { return };
    // A TUN device has no MAC address.
    let change = HostChange { mac: change.mac.filter(|_| !pair.tun), ..change };
    if let Some(Err(error)) = with_tap(router, pair.host, |tap| tap.set_host(change)) {
        warn(&pair, "state", &error);
    }
    // Frames that the host takes may be of another size now.
    if let Err(error) = router.refresh_device(pair.host) {
        warn(&pair, "device", &error);
    }
}

fn set_address(router: &mut Router, phy: IfIndex, address: HostAddress, add: bool) {
    let Some(pair) = pair(router, phy) else { return };
    if let Some(Err(error)) = with_tap(router, pair.host, |tap| tap.set_host_address(address, add)) {
        warn(&pair, "address", &error);
    }
}

/// Has sub-interfaces of an interface get the pairs that they do not have yet.
fn pair_subs(router: &mut Router, parent: IfIndex) {
    if !router.state::<Lcp>().is_ok_and(|known| known.auto_sub && known.pair(parent).is_some()) {
        return;
    }
    let subs: Vec<IfIndex> = router.interfaces.subs(parent).collect();
    subs.into_iter().for_each(|sub| auto::want(router, sub));
}

/// What a listener does with an event of an interface that has a pair, or may get one.
pub(super) fn on_event(router: &mut Router, event: &IfEvent) {
    let Ok(known) = router.state::<Lcp>() else { return };
    let (sync, auto) = (known.sync && !router.host_interfaces().is_host_change(), known.auto_sub);
    let has = |index: &IfIndex| known.pair(*index).is_some();
    let is_tun = |index: &IfIndex| known.pair(*index).is_some_and(|pair| pair.tun);
    match *event {
        IfEvent::Created(index) if auto => {
            let parent = router.interfaces.get(index).filter(|i| matches!(i.kind, Kind::Sub(_))).map(|i| i.parent);
            if parent.is_some_and(|parent| has(&parent)) {
                auto::want(router, index);
            }
        }
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) => {
            let all: Vec<IfIndex> = std::iter::once(index).chain(router.interfaces.subs(index)).filter(has).collect();
            let admin = matches!(event, IfEvent::Admin(..));
            for index in all {
                set_carrier(router, index);
                if admin && sync {
                    write(router, index);
                }
            }
        }
        IfEvent::Mtu(index) if sync && has(&index) => {
            let Some(interface) = router.interfaces.get(index) else { return };
            let mtu = Wanted::of(router, interface).mtu;
            set_host(router, index, HostChange { mtu: Some(mtu), ..HostChange::default() });
        }
        IfEvent::Mac(index) if has(&index) && !router.host_interfaces().is_host_change() => {
            let Some(mac) = router.interfaces.get(index).map(|i| i.mac.0) else { return };
            set_host(router, index, HostChange { mac: Some(mac), ..HostChange::default() });
        }
        IfEvent::Address(index, address, len, add) if has(&index) => {
            if sync || is_tun(&index) && is_own_link_local(&address) {
                set_address(router, index, host_address(address, len), add);
            }
            if address.is_ipv4() {
                nodes::follow_addresses(router, index);
            }
        }
        IfEvent::Device(host) => renew(router, host),
        _ => {}
    }
}

/// The host interface was deleted and made anew: it has another number.
fn renew(router: &mut Router, host: IfIndex) {
    let Some(mut pair) = router.state::<Lcp>().ok().and_then(|known| known.pair_of_host(host)).cloned() else { return };
    let number = with_tap(router, host, |tap| tap.device().map(|device| device.index));
    let Some(number) = number.flatten().filter(|number| *number != pair.host_ifindex) else { return };
    pair.host_ifindex = number;
    if let Ok(known) = router.state_mut::<Lcp>() {
        known.pairs.insert(pair.phy.0, pair.clone());
    }
    if let Err(error) = note_host(router, &pair) {
        warn(&pair, "number", &error);
    }
}
