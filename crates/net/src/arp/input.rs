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
        /// The message ends before its fields do.
        Short = "ARP message too short",
        /// The message is about another kind of hardware address than Ethernet's.
        NotEthernet = "L2 type not ethernet" as "l2_type_not_ethernet",
        /// The message is about another protocol than IPv4.
        NotIp4 = "L3 type not IP4" as "l3_type_not_ip4",
        /// The sender's hardware address is a group address or zero, which no host has.
        BadSender = "ARP sender hw addr is no unicast address",
        /// The operation is neither a request nor a reply.
        Operation = "ARP opcode not request or reply" as "opcode_not_request",
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
