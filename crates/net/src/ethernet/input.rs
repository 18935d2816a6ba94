//! `ethernet-input`: for whom is the frame, and what is in it?

use quiver_graph::{LoopConfig, Node, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::ethernet::{EtherType, EthernetHeader};

use crate::data::{IfTable, if_flags};

next_nodes! {
    /// Where frames go.
    pub enum Next {
        Ip4 = "ip4-input",
        Ip6 = "ip6-input",
        Arp = "arp-input",
        L2 = "l2-input",
        Vlan = "ethernet-vlan",
    }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        OtherMac = "l3 mac mismatch",
        UnknownType = "unknown ethernet type",
        Llc = "unsupported llc/snap frame",
        Short = "ethernet frame too short",
        Down = "interface is down",
    }
}

/// The node.
pub struct EthernetInput {
    pub(super) interfaces: IfTable,
}

/// What is read of a frame.
#[derive(Clone, Copy)]
pub struct In {
    dst: u64,
    ether_type: u16,
    mac: u64,
    if_flags: u16,
    long_enough: bool,
    drop_base: u32,
}

/// What follows from it.
#[derive(Clone, Copy)]
pub struct Out {
    next: Verdict,
    aux: u32,
    pull: bool,
    multicast: bool,
}

/// Verdict on what is behind the link header, and whether it is IP or ARP.
#[inline(always)]
pub(super) fn by_type(ether_type: u16) -> (Verdict, bool) {
    const IP4: u16 = EtherType::IPV4.0;
    const IP6: u16 = EtherType::IPV6.0;
    const ARP: u16 = EtherType::ARP.0;
    let next = Verdict::select(ether_type == IP6, Next::Ip6.into(), Next::Arp.into());
    let next = Verdict::select(ether_type == IP4, Next::Ip4.into(), next);
    (next, (ether_type == IP4) | (ether_type == IP6) | (ether_type == ARP))
}

/// Whether a tag follows.
#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    (ether_type == EtherType::VLAN.0) | (ether_type == EtherType::QINQ.0) | (ether_type == EtherType::QINQ_OLD.0)
}

impl Node for EthernetInput {
    type Next = Next;
    type Drop = Drop;
    type In = In;
    type Out = Out;
    const LOOP: LoopConfig = LoopConfig::FIRST_TOUCH;

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In {
        let header: [u8; 16] = packet.head();
        let word = u64::from_be_bytes([header[0], header[1], header[2], header[3], header[4], header[5], header[6], header[7]]);
        let link = self.interfaces.link(packet.rx_if());
        In {
            dst: word >> 16,
            ether_type: u16::from_be_bytes([header[12], header[13]]),
            mac: link & 0xffff_ffff_ffff,
            if_flags: (link >> 48) as u16,
            long_enough: packet.len() >= size_of::<EthernetHeader>(),
            drop_base: packet.drop_code(Drop::OtherMac),
        }
    }

    #[inline(always)]
    fn compute(&self, x: In) -> Out {
        let multicast = (x.dst >> 40) & 1 != 0;
        let mine = (x.dst == x.mac) | multicast | (x.if_flags & if_flags::PROMISCUOUS != 0);
        let (by_type, known) = by_type(x.ether_type);
        let l2 = x.if_flags & if_flags::L2 != 0;
        let tagged = is_tag(x.ether_type) & (x.if_flags & if_flags::TAGGED != 0);
        let untagged = !is_tag(x.ether_type) & (x.if_flags & if_flags::UNTAGGED != 0);
        let vlan = tagged | untagged;
        let up = x.if_flags & if_flags::UP != 0;
        let ok = up & x.long_enough & (vlan | l2 | (mine & known));
        let next = Verdict::select(l2, Next::L2.into(), by_type);
        let next = Verdict::select(vlan, Next::Vlan.into(), next);
        let reason = if !up {
            Drop::Down
        } else if !x.long_enough {
            Drop::Short
        } else if !mine {
            Drop::OtherMac
        } else if x.ether_type < EtherType::FIRST_TYPE.0 {
            Drop::Llc
        } else {
            Drop::UnknownType
        };
        Out {
            next: Verdict::select(ok, next, Verdict::DROP),
            aux: if ok { 0 } else { x.drop_base + reason as u32 },
            pull: ok & !vlan & !l2,
            multicast,
        }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, _: In, out: Out) -> Verdict {
        packet.set_aux(out.aux);
        packet.pull(if out.pull { size_of::<EthernetHeader>() } else { 0 });
        packet.mark(if out.multicast { flags::LINK_MULTICAST } else { 0 });
        out.next
    }
}
