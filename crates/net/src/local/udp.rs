//! `ip4-udp-lookup` and `ip6-udp-lookup`: which node listens on the port?

use std::marker::PhantomData;

use quiver_graph::{NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons, flags};
use quiver_wire::Header;
use quiver_wire::udp::UdpHeader;

use super::header::LocalFamily;
use super::table::SlotTable;
use crate::ip::{FamilyId, icmp_aux};
use crate::punt::tables::{L4, PuntTables};

drop_reasons! {
    /// Why UDP datagrams are dropped.
    pub enum Drop {
        /// Nothing in the router takes datagrams for this port.
        ///
        /// Causes: a client of a service that the router does not have (DNS, SNMP, NTP), or that a daemon in Linux has without a
        /// mirrored interface.
        /// Check: `show udp ports` lists what the router takes. For daemons in Linux: `lcp create`.
        /// See: `show udp ports`, `show lcp`.
        NoListener = "No listener for dst port" as "no_listener",
        /// A datagram for such a port gets an ICMP error.
        PortUnreachable = "port unreachable asked for" (info),
    }
}

/// Slot of `ip4-icmp-error`.
const TO_ICMP_ERROR: Verdict = Verdict::slot(1);
/// Slot of the first node of [`Punted`](crate::punt::tables::Punted).
const PUNT: u16 = 2;

/// The node. Datagrams come in whole and checked, the offset of the UDP header in the aux lane; it stays there.
#[derive(Clone)]
pub(super) struct UdpLookup<F> {
    pub ports: SlotTable,
    pub punts: PuntTables,
    pub family: PhantomData<F>,
}

impl<F: LocalFamily> Node for UdpLookup<F> {
    type Next = NoNext;
    type Drop = Drop;

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let udp = UdpHeader::read_at(packet.bytes(), packet.aux() as usize);
        let slot = udp.map_or(0, |udp| self.ports.get(udp.dst_port.get()));
        if slot != 0 {
            return Verdict::slot(slot);
        }
        if let Some(punt) = udp.and_then(|udp| self.punts.port(L4::Udp, udp.dst_port.get()).verdict(PUNT)) {
            return punt;
        }
        if F::is_group(F::addresses(&packet).1) || packet.has(flags::LINK_MULTICAST) {
            return packet.drop(Drop::NoListener);
        }
        cx.count(Drop::PortUnreachable, 1);
        packet.set_aux(match F::ID {
            FamilyId::V4 => icmp_aux(3, quiver_wire::icmp4::unreachable::PORT, 0),
            FamilyId::V6 => icmp_aux(1, quiver_wire::icmp6::unreachable::PORT, 0),
        });
        TO_ICMP_ERROR
    }
}
