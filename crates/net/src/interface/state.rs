//! Changing interfaces: state, addresses of the link, sizes.

use quiver_graph::{DeviceInput, IfIndex};
use quiver_wire::MacAddr;

use super::{IfEvent, Interface, InterfaceError, Kind, Mtu};
use crate::Router;
use crate::data::if_flags;

/// Largest layer-3 packet that can be configured, bytes: lengths in lanes and records are 16 bits wide.
const MTU_MAX: u32 = 65_535;

impl Router {
    fn interface_mut(&mut self, index: IfIndex) -> Result<&mut Interface, InterfaceError> {
        self.interfaces.get_mut(index).ok_or(InterfaceError::UnknownIndex(index.0))
    }

    /// Sets or clears flags of the interface's record.
    pub fn set_flags(&mut self, index: IfIndex, flags: u16, on: bool) {
        self.records.update(index, |r| r.flags = if on { r.flags | flags } else { r.flags & !flags });
    }

    /// Administratively up or down. Down: nothing is received, and what is sent is dropped and counted.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_interface_up(&mut self, index: IfIndex, up: bool) -> Result<(), InterfaceError> {
        let interface = self.interface_mut(index)?;
        if interface.admin_up == up {
            return Ok(());
        }
        if interface.kind == Kind::Local && up {
            return Err(InterfaceError::NotPossible("local0 cannot be brought up".into()));
        }
        interface.admin_up = up;
        if let Err(error) = self.update_address_routes(index) {
            // There is no room for all: none of them stays.
            let interface = self.interface_mut(index)?;
            interface.admin_up = !up;
            let name = interface.name.clone();
            let _ = self.update_address_routes(index);
            return Err(InterfaceError::NotPossible(format!("the routes of {name}'s addresses: {error}")));
        }
        let interface = self.interface_mut(index)?;
        let device = match interface.device.as_mut() {
            Some(device) => {
                // A device that refuses stays as it is; its link tells.
                let _ = device.port.set_up(up);
                Some((device.input, device.threads()))
            }
            None => None,
        };
        self.set_flags(index, Self::up_flag(true), up);
        if let Some(state) = self.states.get(&index) {
            state.set_up(up);
        }
        if let Some((input, threads)) = device {
            for thread in threads {
                self.graph.input::<DeviceInput, _>(input, thread, move |node| node.set_up(index, up));
            }
        }
        self.tell(&IfEvent::Admin(index, up));
        Ok(())
    }

    /// Notes that a device's link came or went.
    pub fn set_link(&mut self, index: IfIndex, link: quiver_graph::Link) {
        let Some(interface) = self.interfaces.get_mut(index) else { return };
        let changed = interface.link.up != link.up;
        interface.link = link;
        if changed {
            self.tell(&IfEvent::Link(index, link.up));
        }
    }

    /// Looks at an interface's device again after something has changed there: its link, its size, whether it is there at
    /// all. A device that was away and is back is taken up again.
    ///
    /// # Errors
    /// No such interface, or the device is there but cannot be opened.
    pub fn refresh_device(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        let interface = self.interface_mut(index)?;
        let (name, old_max, mtu) = (interface.name.clone(), interface.max_frame, interface.mtu);
        let Some(device) = interface.device.as_mut() else { return Ok(()) };
        let state = device.port.refresh().map_err(|e| InterfaceError::Device { name, error: e.to_string() })?;
        let (input, threads) = (device.input, device.threads());
        if state.reopened {
            for thread in threads {
                self.graph.input::<DeviceInput, _>(input, thread, move |node| node.renew(index));
            }
        }
        if state.present && state.max_frame as u32 != old_max {
            let interface = self.interface_mut(index)?;
            interface.max_frame = state.max_frame as u32;
            let header = interface.link_header_len();
            let most = interface.max_frame.saturating_sub(header);
            // An MTU that followed the device follows it again; one that the user has set smaller stays.
            let followed = mtu.l3 + header == old_max;
            if followed || mtu.l3 > most {
                self.set_mtu(index, Mtu { l3: most.min(MTU_MAX), ..mtu })?;
            }
        }
        if state.reopened {
            self.tell(&IfEvent::Device(index));
        }
        self.set_link(index, state.link);
        Ok(())
    }

    /// Another MAC address.
    ///
    /// # Errors
    /// No such interface, or an address that no interface can have.
    pub fn set_mac(&mut self, index: IfIndex, mac: MacAddr) -> Result<(), InterfaceError> {
        if !mac.is_unicast() || mac.is_zero() {
            return Err(InterfaceError::NotPossible(format!("{mac} is not a unicast MAC address")));
        }
        let interface = self.interface_mut(index)?;
        if interface.kind == Kind::Local {
            return Err(InterfaceError::NotPossible("local0 has no MAC address".into()));
        }
        if !interface.has_link_layer() {
            return Err(InterfaceError::NotPossible(format!("{} carries IP packets, without MAC addresses", interface.name)));
        }
        let parent = interface.parent;
        let all: Vec<IfIndex> = std::iter::once(parent).chain(self.interfaces.subs(parent)).collect();
        // A sub-interface shares the address of its parent.
        for index in all {
            self.interface_mut(index)?.mac = mac;
            self.records.update(index, |r| r.mac = mac);
            self.tell(&IfEvent::Mac(index));
        }
        Ok(())
    }

    /// Other sizes.
    ///
    /// # Errors
    /// No such interface, or sizes that the device or the protocol do not allow.
    pub fn set_mtu(&mut self, index: IfIndex, mtu: Mtu) -> Result<(), InterfaceError> {
        let interface = self.interface_mut(index)?;
        let most = interface.max_frame.saturating_sub(interface.link_header_len()).min(MTU_MAX);
        for (what, value, least) in
            [("mtu", mtu.l3, 64), ("ip4 mtu", mtu.ip4, 68), ("ip6 mtu", mtu.ip6, 1280), ("mpls mtu", mtu.mpls, 64)]
        {
            let unset = value == 0 && what != "mtu";
            if !unset && !(least..=most).contains(&value) {
                return Err(InterfaceError::Range { what, value: value.into(), expected: format!("{least} to {most}") });
            }
        }
        interface.mtu = mtu;
        let (mtu4, mtu6) = (interface.mtu4() as u16, interface.mtu6() as u16);
        self.records.update(index, |r| (r.mtu4, r.mtu6) = (mtu4, mtu6));
        self.tell(&IfEvent::Mtu(index));
        Ok(())
    }

    /// Accept frames to any MAC address.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_promiscuous(&mut self, index: IfIndex, on: bool) -> Result<(), InterfaceError> {
        self.interface_mut(index)?.promiscuous = on;
        self.set_flags(index, if_flags::PROMISCUOUS, on);
        self.tell(&IfEvent::Promiscuous(index));
        Ok(())
    }

    /// Another name; nodes keep theirs.
    ///
    /// # Errors
    /// No such interface, or the name is taken.
    pub fn rename(&mut self, index: IfIndex, name: &str) -> Result<(), InterfaceError> {
        if self.interfaces.by_name(name).is_some_and(|i| i.index != index) {
            return Err(InterfaceError::Exists(name.into()));
        }
        let before = self.interfaces.name(index);
        self.interfaces.rename(index, name)?;
        self.graph.interfaces().rename(self.graph.stats(), index.0, &before, name);
        Ok(())
    }
}
