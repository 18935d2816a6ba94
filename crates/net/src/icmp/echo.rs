//! `ip4-icmp-echo-request` and `ip6-icmp-echo-request`: the request becomes its reply, in the same buffers.

use std::marker::PhantomData;

use quiver_graph::{NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons};

use super::error::send_as_own;
use super::family::{IcmpFamily, NoEcho};
use crate::local::address::SourceTable;

drop_reasons! {
    /// Why requests are not answered, and how many were.
    pub enum Drop {
        /// The router answered a ping.
        Sent = "echo replies sent" (info),
        /// A ping to a group or to all is not answered.
        Group = "echo request to multicast or broadcast",
        /// A ping that prescribes its path (source route) is not answered.
        Options = "echo request with source route",
        /// The interface has no address from which the answer could come.
        NoSource = "no address to reply from",
    }
}

/// The node. The offset of the ICMP header is in the aux lane.
#[derive(Clone)]
pub(super) struct Echo<F> {
    pub sources: SourceTable,
    /// Identification of the last reply (IPv4).
    pub id: u16,
    pub family: PhantomData<F>,
}

const TO_LOOKUP: Verdict = Verdict::slot(1);

impl<F: IcmpFamily> Node for Echo<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        self.id = self.id.wrapping_add(1);
        let offset = packet.aux() as usize;
        let reason = match F::reply(&mut packet, offset, &self.sources, self.id) {
            Ok(()) => {
                cx.count(Drop::Sent, 1);
                send_as_own(&mut packet);
                return TO_LOOKUP;
            }
            Err(NoEcho::Group) => Drop::Group,
            Err(NoEcho::Options) => Drop::Options,
            Err(NoEcho::NoSource) => Drop::NoSource,
        };
        packet.drop(reason)
    }
}
