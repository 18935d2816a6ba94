//! What follows from a change: which members work, the link, the MAC address and the size of a bond.

use quiver_graph::{IfIndex, Link};
use quiver_net::interface::Mtu;
use quiver_net::{IfEvent, Interface, Router};

use crate::control::{self, Bond, Bonds, ETHERNET, MAX_FRAME, Member};
use crate::machines;
use crate::ops::Mode;

/// What happens to interfaces, as far as it concerns bonds and members.
pub(crate) fn on_interface(router: &mut Router, event: &IfEvent) {
    let Ok(state) = router.state::<Bonds>() else { return };
    match *event {
        IfEvent::Deleted(index) => control::forget(router, index),
        IfEvent::Admin(index, _) if state.get(index).is_some() => update(router, index),
        IfEvent::Mac(index) if state.get(index).is_some() => {
            let members: Vec<IfIndex> = state.get(index).iter().flat_map(|b| &b.members).map(|m| m.interface).collect();
            members.into_iter().for_each(|member| give_mac(router, index, member));
            machines::set_system(router, index);
        }
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) => {
            if let Some(bond) = state.of_member(index) {
                update(router, bond);
            }
        }
        IfEvent::Mac(index) => {
            if let Some(bond) = state.of_member(index) {
                keep_mac(router, bond, index);
            }
        }
        IfEvent::Mtu(index) | IfEvent::Device(index) => {
            if let Some(bond) = state.of_member(index) {
                resize(router, bond);
            }
        }
        _ => {}
    }
}

/// Whether packets can leave by an interface.
fn is_ready(interface: &Interface) -> bool {
    interface.admin_up && interface.link.up
}

/// The member that an active-backup bond uses: the one with the largest weight; among these the one that it uses already; then the
/// first one made.
fn preferred<'a>(bond: &Bond, ready: impl Iterator<Item = &'a Member>) -> Option<&'a Member> {
    ready.max_by_key(|member| (member.weight, bond.active == Some(member.interface), std::cmp::Reverse(member.interface)))
}

/// Finds out which members work, and what that says of the bond.
pub(crate) fn update(router: &mut Router, index: IfIndex) {
    let Some(bond) = router.state::<Bonds>().ok().and_then(|state| state.get(index)) else { return };
    let Some(interface) = router.interfaces.get(index) else { return };
    let (admin_up, was_up, name) = (interface.admin_up, interface.link.up, interface.name.clone());
    let of = |member: &&Member| router.interfaces.get(member.interface);
    let ready = || bond.members.iter().filter(|member| of(member).is_some_and(is_ready));
    let bits = |members: &mut dyn Iterator<Item = &Member>| members.fold(0_u32, |bits, member| bits | 1 << member.place);
    let (before, active) = (bond.active, preferred(bond, ready()).filter(|_| bond.mode == Mode::ActiveBackup));
    let up = bits(&mut ready());
    let sending = match bond.mode {
        Mode::ActiveBackup => active.map_or(0, |member| 1 << member.place),
        // Its machines decide.
        Mode::Lacp => {
            bond.masks.set_ready(up);
            bond.masks.sending()
        }
        _ => up,
    };
    let speaks = bond.mode == Mode::Lacp;
    let receiving = if bond.mode == Mode::ActiveBackup { sending } else { u32::MAX };
    let speed: u64 = ready().filter(|m| sending >> m.place & 1 != 0).filter_map(|m| of(&m)?.link.speed).sum();
    let active = active.map(|member| member.interface);
    if !speaks {
        bond.masks.set(sending, receiving);
    }
    let names: Vec<String> = bond.working().map(|member| router.interfaces.name(member.interface)).collect();
    if let Some(bond) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(index)) {
        bond.active = active;
        if std::mem::replace(&mut bond.noted, sending) != sending {
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            tracing::info!(target: "bond", interface = %name, "{name}: active members: {names}");
        }
    }
    if speaks {
        machines::set_ready(router, index, up);
    }
    // As in VPP: the link is up when somebody could use it.
    let up = admin_up && sending != 0;
    router.set_link(index, Link { up, speed: Some(speed).filter(|speed| *speed > 0) });
    // A link that comes up announces by itself.
    if up && was_up && before != active {
        router.announce_addresses(index);
    }
}

/// The bond has the MAC address of its first member, unless the user has chosen one.
pub(crate) fn take_mac(router: &mut Router, index: IfIndex) {
    let Some(bond) = router.state::<Bonds>().ok().and_then(|state| state.get(index)) else { return };
    let wanted = bond.members.first().map_or(bond.first_mac, |member| member.own_mac);
    let fixed = bond.fixed_mac;
    let Some(interface) = router.interfaces.get_mut(index) else { return };
    let chosen = interface.mac != interface.origin.mac;
    if fixed || chosen || interface.mac == wanted {
        return;
    }
    // What the configuration says of it holds against this one.
    interface.origin.mac = wanted;
    let _ = router.set_mac(index, wanted);
}

/// A member has the MAC address of its bond.
pub(crate) fn give_mac(router: &mut Router, index: IfIndex, member: IfIndex) {
    let Some(mac) = router.interfaces.get(index).map(|bond| bond.mac) else { return };
    let own = router.state::<Bonds>().ok().and_then(|state| Some(state.get(index)?.member(member)?.own_mac));
    let Some(interface) = router.interfaces.get_mut(member) else { return };
    interface.origin.mac = mac;
    interface.member_mac = own;
    if interface.mac != mac {
        let _ = router.set_mac(member, mac);
    }
}

/// Somebody has given a member another MAC address: it has it when it leaves the bond.
fn keep_mac(router: &mut Router, index: IfIndex, member: IfIndex) {
    let mac_of = |index| router.interfaces.get(index).map(|interface| interface.mac);
    let (Some(of_bond), Some(own)) = (mac_of(index), mac_of(member)) else { return };
    if own == of_bond {
        return;
    }
    if let Some(member) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(index)?.member_mut(member)) {
        member.own_mac = own;
    }
    take_mac(router, index);
    give_mac(router, index, member);
}

/// A bond takes frames that all of its members take.
pub(crate) fn resize(router: &mut Router, index: IfIndex) {
    let Some(bond) = router.state::<Bonds>().ok().and_then(|state| state.get(index)) else { return };
    let of = |member: &Member| router.interfaces.get(member.interface).map(|interface| interface.max_frame);
    let max_frame = bond.members.iter().filter_map(of).min().unwrap_or(MAX_FRAME);
    let all: Vec<IfIndex> = std::iter::once(index).chain(router.interfaces.subs(index)).collect();
    for index in all {
        let Some(interface) = router.interfaces.get_mut(index) else { continue };
        let (before, mtu) = (std::mem::replace(&mut interface.max_frame, max_frame), interface.mtu);
        let most = max_frame.saturating_sub(ETHERNET);
        let size = |bytes: u32| bytes.min(most);
        // One that followed the device follows it again.
        let l3 = if mtu.l3 + ETHERNET == before { most } else { size(mtu.l3) };
        let wanted = Mtu { l3, ip4: size(mtu.ip4), ip6: size(mtu.ip6), mpls: size(mtu.mpls) };
        if wanted != mtu
            && let Err(error) = router.set_mtu(index, wanted)
        {
            tracing::warn!(target: "bond", "{}: {error}", router.interfaces.name(index));
        }
    }
}
