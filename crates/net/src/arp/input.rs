//! `arp-input`: is it a message of ARP for IPv4 over Ethernet at all?

use quiver_graph::{ArcPoint, Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_wire::arp::{ArpError, ArpHeader, ArpOperation};

next_nodes! {
    /// Where well-formed messages go.
    pub enum Next { Reply = "arp-reply" }
}

drop_reasons! {
    /// What is wrong with others.
    pub enum Drop {
        Short = "ARP message too short",
        NotEthernet = "L2 type not ethernet",
        NotIp4 = "L3 type not IP4",
        BadSender = "ARP sender hw addr is no unicast address",
        Operation = "ARP opcode not request or reply",
    }
}

/// The node.
#[derive(Clone)]
pub(super) struct ArpInput {
    pub arc: ArcPoint,
}

impl Node for ArpInput {
    type Next = Next;
    type Drop = Drop;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let reason = match ArpHeader::parse(packet.bytes()) {
            Ok(message) if matches!(message.operation(), ArpOperation::REQUEST | ArpOperation::REPLY) => {
                return self.arc.next(packet.rx_if(), Next::Reply.into());
            }
            Ok(_) => Drop::Operation,
            Err(ArpError::TooShort) => Drop::Short,
            Err(ArpError::NotEthernet) => Drop::NotEthernet,
            Err(ArpError::NotIpv4) => Drop::NotIp4,
            Err(ArpError::BadSenderMac) => Drop::BadSender,
        };
        packet.drop(reason)
    }
}
