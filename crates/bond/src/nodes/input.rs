//! `bond-input`: what a member receives goes on as the bond's.

use std::sync::Arc;

use quiver_graph::{ArcPoint, IfIndex, InterfaceCounters, Node, NodeCx, Pkt, Shared, Snapshot, Verdict, drop_reasons, next_nodes};

use quiver_wire::U16Be;
use quiver_wire::ethernet::EtherType;

use crate::members::{Member, Members};

next_nodes! {
    /// Where packets go.
    pub enum Next { Ethernet = "ethernet-input", Lacp = "lacp-input" }
}

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// A member that must not receive now did: the standby of an active-backup bond, or one whose partner has not agreed yet.
        ///
        /// Causes: a switch sends to the standby link: broadcasts are normal there; other frames say that the switch has no bond
        /// on these ports.
        /// Check: `show bond details`; check the configuration of the switch.
        /// See: `show bond details`, `show lacp`.
        Standby = "received by a member that is not active",
        /// A frame for the link itself, such as LLDP or a pause frame, stayed with the member.
        Link = "frames of one link, left to the member" (info),
    }
}

/// Frames to 01:80:c2:00:00:01 up to …:0f are never forwarded by a bridge (IEEE 802.1Q, 8.6.3): they speak of one link. BPDUs, to …:00, are the bond's: a
/// spanning tree knows the bond as one port.
const LINK: u64 = 0x0180_c200_0000;

/// Whether the first 8 bytes of a frame say that it is for the link itself.
#[inline(always)]
pub(super) fn is_of_link(first: u64) -> bool {
    let dst = u64::from_be(first) >> 16;
    dst & !0xf == LINK && dst != LINK
}

/// Packets of one member that follow one another.
#[derive(Clone, Default)]
struct Run {
    member: Option<(IfIndex, Member)>,
    packets: u64,
    bytes: u64,
}

/// The node.
#[derive(Clone)]
pub struct Input {
    members: Snapshot<Members>,
    arc: ArcPoint,
    counters: Arc<InterfaceCounters>,
    run: Run,
}

impl Input {
    pub(super) fn new(members: Snapshot<Members>, arc: ArcPoint, counters: Arc<InterfaceCounters>) -> Self {
        Self { members, arc, counters, run: Run::default() }
    }

    /// Counts a run for its bond, and begins that of another member.
    fn turn_to(&mut self, thread: usize, interface: Option<IfIndex>) {
        if let Some((_, member)) = &self.run.member
            && self.run.packets > 0
        {
            self.counters.rx.add(thread, member.bond.0, self.run.packets, self.run.bytes);
        }
        let member = |interface: IfIndex| Some((interface, self.members.get().get(&interface)?.clone()));
        self.run = Run { member: interface.and_then(member), packets: 0, bytes: 0 };
    }
}

impl Node<Shared> for Input {
    type Next = Next;
    type Drop = Event;
    /// Devices leave headers where no node has met them yet.
    const PREFETCH: u8 = 8;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        if self.members.refresh() {
            self.run = Run::default();
        }
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let interface = packet.rx_if();
        if self.run.member.as_ref().is_none_or(|(of, _)| *of != interface) {
            self.turn_to(cx.thread(), Some(interface));
        }
        // It may have left its bond a moment ago.
        let Some((_, member)) = &self.run.member else { return self.arc.next(interface, Next::Ethernet.into()) };
        if is_of_link(packet.head()) {
            if member.lacp.is_some() && packet.head_at::<U16Be, 12>() == EtherType::SLOW_PROTOCOLS.to_be() {
                return Next::Lacp.into();
            }
            cx.count(Event::Link, 1);
            return self.arc.next(interface, Next::Ethernet.into());
        }
        if !member.masks.receives(member.place) {
            return packet.drop(Event::Standby);
        }
        packet.set_rx_if(member.bond);
        self.run.packets += 1;
        self.run.bytes += packet.total_len() as u64;
        Next::Ethernet.into()
    }

    #[inline(always)]
    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.turn_to(cx.thread(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_link_are_told_apart_by_their_address() {
        let first = |dst: [u8; 6]| u64::from_ne_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], 2, 0xfe]);
        for last in 0..=255 {
            assert_eq!(is_of_link(first([1, 0x80, 0xc2, 0, 0, last])), (1..16).contains(&last), "{last}");
        }
        assert!(!is_of_link(first([0xff; 6])));
        assert!(!is_of_link(first([1, 0x80, 0xc2, 0, 1, 2])));
        assert!(!is_of_link(first([2, 0xfe, 0, 0, 0, 2])));
    }
}
