//! A second station on an interface: a MAC address beside the interface's own, with addresses of its own. A protocol that moves
//! addresses between routers (VRRP) speaks for it in ARP and ND while it has them.

use std::net::IpAddr;

use quiver_graph::{IfIndex, Pkt, flags};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;

use super::View;
use super::view::{Own4, Own6};
use crate::Router;
use crate::nd::AddressState;

/// A station: its frames have its MAC address as source, and the tags of its interface.
#[derive(Clone, Debug)]
pub struct Station(View);

impl Station {
    /// Its MAC address.
    pub fn mac(&self) -> MacAddr {
        self.0.mac
    }

    /// The interface that it is on.
    pub fn interface(&self) -> IfIndex {
        self.0.interface
    }

    /// A whole frame from it.
    pub fn frame(&self, dst: MacAddr, ether_type: EtherType, content: &[u8]) -> Vec<u8> {
        self.0.frame(dst, ether_type, content)
    }

    /// Tells the link that an address of the station is here, as a frame: a gratuitous ARP request, or an unsolicited neighbor
    /// advertisement to all nodes. None of an address that it does not have.
    pub fn announcement(&self, address: IpAddr) -> Option<Vec<u8>> {
        match address {
            IpAddr::V4(a) => self.0.owns4(a.to_bits()).then(|| crate::arp::announcement(&self.0, a.to_bits())),
            IpAddr::V6(a) => crate::nd::announcement(&self.0, a.to_bits()),
        }
    }

    /// Turns an ARP request for one of its addresses into the answer, as `neighbor-output` takes it. `false`: it is none, or may
    /// not be answered, and is as it was.
    pub fn answer_arp(&self, packet: &mut Pkt<'_>) -> bool {
        crate::arp::answer_for(&self.0, packet)
    }

    /// Turns a neighbor solicitation for one of its addresses into the answer, as `neighbor-output` takes it. The message begins
    /// `offset` bytes behind the beginning of the packet's data, its IPv6 header. `false`: it is none, or may not be answered.
    pub fn answer_solicitation(&self, packet: &mut Pkt<'_>, offset: usize) -> bool {
        crate::nd::answer_for(&self.0, packet, offset)
    }

    /// Gives a whole frame what `neighbor-output` needs to send it.
    pub fn address(&self, packet: &mut Pkt<'_>) {
        packet.set_aux(self.0.interface.0);
        packet.mark(flags::LOCAL);
    }
}

impl Router {
    /// A station on an interface, beside the interface itself. It knows the interface's prefixes and tags as they are now.
    pub fn station(&self, interface: IfIndex, mac: MacAddr, addresses: &[IpAddr]) -> Option<Station> {
        let mut view = self.neighbor_view(interface)?;
        if view.mac.is_zero() {
            return None;
        }
        view.mac = mac;
        for address in addresses {
            match address {
                IpAddr::V4(a) if !view.owns4(a.to_bits()) => view.v4.push(Own4 { address: a.to_bits(), len: 32 }),
                IpAddr::V6(a) if view.owns6(a.to_bits()).is_none() => {
                    view.v6.push(Own6 { address: a.to_bits(), len: 128, state: AddressState::Preferred });
                }
                _ => {}
            }
        }
        Some(Station(view))
    }

    /// Whether packets can leave on an interface: it and the interface that carries it are up, with a link.
    pub fn is_running(&self, interface: IfIndex) -> bool {
        super::is_running(self, interface)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;
    use quiver_wire::MacAddr;

    #[test]
    fn a_station_announces_its_own_addresses_with_its_own_mac() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        let mac = MacAddr([0, 0, 0x5e, 0, 1, 7]);
        let addresses = ["10.0.0.100", "2001:db8::100"].map(|text| text.parse().unwrap());
        let station = h.router.station(x, mac, &addresses).unwrap();
        let arp = station.announcement(addresses[0]).unwrap();
        assert_eq!(
            (&arp[..6], &arp[6..12], &arp[22..28], &arp[28..32]),
            (&[0xff; 6][..], &mac.0[..], &mac.0[..], &[10, 0, 0, 100][..])
        );
        let nd = station.announcement(addresses[1]).unwrap();
        // Sender, target and the option with the MAC address.
        assert_eq!((&nd[6..12], nd[54], &nd[nd.len() - 6..]), (&mac.0[..], 136, &mac.0[..]));
        assert_eq!(station.announcement("10.0.0.2".parse().unwrap()), None);
    }
}
