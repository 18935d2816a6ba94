//! `ip4-udp-lookup` and `ip6-udp-lookup`: which node listens on the port?

use std::marker::PhantomData;

use quiver_graph::{Frame, NoNext, NodeCx, VectorNode, Verdict, drop_reasons, flags};
use quiver_wire::Header;
use quiver_wire::udp::UdpHeader;

use super::header::LocalFamily;
use super::table::SlotTable;
use crate::ip::{FamilyId, icmp_aux};

drop_reasons! {
    /// Why UDP datagrams are dropped.
    pub enum Drop {
        NoListener = "No listener for dst port",
        PortUnreachable = "port unreachable asked for" (info),
    }
}

/// Slot of `ip4-icmp-error`.
const TO_ICMP_ERROR: Verdict = Verdict::slot(1);

/// The node. Datagrams come in whole and checked, the offset of the UDP header in the aux lane; it stays there.
pub(super) struct UdpLookup<F> {
    pub ports: SlotTable,
    pub family: PhantomData<F>,
}

impl<F: LocalFamily> VectorNode for UdpLookup<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let mut unreachable = 0;
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let udp = UdpHeader::read_at(packet.bytes(), packet.aux() as usize);
            let slot = udp.map_or(0, |udp| self.ports.get(udp.dst_port.get()));
            let verdict = if slot != 0 {
                Verdict::slot(slot)
            } else if F::is_group(F::addresses(&packet).1) || packet.has(flags::LINK_MULTICAST) {
                packet.drop(Drop::NoListener)
            } else {
                unreachable += 1;
                packet.set_aux(match F::ID {
                    FamilyId::V4 => icmp_aux(3, quiver_wire::icmp4::unreachable::PORT, 0),
                    FamilyId::V6 => icmp_aux(1, quiver_wire::icmp6::unreachable::PORT, 0),
                });
                TO_ICMP_ERROR
            };
            cx.decide(i, verdict);
        }
        cx.count(Drop::PortUnreachable, unreachable);
    }
}
