//! MAC addresses that an interface accepts beside its own, each with a switch that any thread may turn while packets flow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use crate::Router;

/// All of them. Only frames that are not for the interface's own address are looked for here.
#[derive(Clone, Debug, Default)]
pub(crate) struct MoreMacs(HashMap<(IfIndex, MacAddr), Arc<AtomicBool>>);

impl MoreMacs {
    /// Whether an interface accepts frames to an address now.
    pub fn accepts(&self, interface: IfIndex, mac: MacAddr) -> bool {
        self.0.get(&(interface, mac)).is_some_and(|on| on.load(Ordering::Relaxed))
    }

    /// Those that an interface accepts now.
    pub fn of(&self, interface: IfIndex) -> impl Iterator<Item = MacAddr> {
        self.0.iter().filter(move |((i, _), on)| *i == interface && on.load(Ordering::Relaxed)).map(|((_, mac), _)| *mac)
    }
}

impl Router {
    /// Has an interface accept frames to a MAC address beside its own while `on` is set.
    pub fn accept_mac(&mut self, interface: IfIndex, mac: MacAddr, on: Arc<AtomicBool>) {
        let mut all = MoreMacs::clone(&self.more_macs.get());
        all.0.insert((interface, mac), on);
        self.more_macs.publish(all);
    }

    /// The contrary of [`accept_mac`](Self::accept_mac).
    pub fn refuse_mac(&mut self, interface: IfIndex, mac: MacAddr) {
        let mut all = MoreMacs::clone(&self.more_macs.get());
        if all.0.remove(&(interface, mac)).is_some() {
            self.more_macs.publish(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::interface::{SubMatch, VlanId};
    use crate::testing::{Harness, host_mac, router_mac};
    use quiver_wire::MacAddr;
    use quiver_wire::build::Packet;

    const MAC: MacAddr = MacAddr([0, 0, 0x5e, 0, 1, 9]);

    #[test]
    fn frames_to_another_mac_are_accepted_while_its_switch_is_on() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        let tagged = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(5), inner: None, exact: true };
        let sub = h.router.create_sub_interface(x, 5, tagged).unwrap();
        h.router.set_interface_up(sub, true).unwrap();
        h.router.add_address(sub, "10.0.5.1".parse().unwrap(), 24).unwrap();
        let frame = |mac| Packet::ethernet(host_mac(0), mac).ipv4([10, 0, 0, 9], [10, 0, 0, 1]).echo_request(1, 1).build();
        let in_vlan = Packet::ethernet(host_mac(0), MAC).vlan(5).ipv4([10, 0, 5, 9], [10, 0, 5, 1]).echo_request(1, 1).build();
        let on = Arc::new(AtomicBool::new(true));
        h.router.accept_mac(x, MAC, on.clone());
        h.router.accept_mac(sub, MAC, on.clone());
        // Each is answered, or rather: its sender is asked for.
        let taken = |h: &mut Harness, frame: &[u8]| {
            let before = h.count("ip4-icmp-echo-request", "echo replies sent");
            h.exchange(x, frame);
            h.count("ip4-icmp-echo-request", "echo replies sent") - before
        };
        assert_eq!([taken(&mut h, &frame(router_mac(0))), taken(&mut h, &frame(MAC)), taken(&mut h, &in_vlan)], [1, 1, 1]);
        on.store(false, Ordering::Relaxed);
        assert_eq!([taken(&mut h, &frame(router_mac(0))), taken(&mut h, &frame(MAC)), taken(&mut h, &in_vlan)], [1, 0, 0]);
        assert_eq!(h.count("ethernet-input", "l3 mac mismatch") + h.count("ethernet-vlan", "l3 mac mismatch"), 2);
        on.store(true, Ordering::Relaxed);
        h.router.refuse_mac(x, MAC);
        assert_eq!([taken(&mut h, &frame(MAC)), taken(&mut h, &in_vlan)], [0, 1]);
    }
}
