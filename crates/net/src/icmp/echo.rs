//! `ip4-icmp-echo-request` and `ip6-icmp-echo-request`: the request becomes its reply, in the same buffers.

use std::marker::PhantomData;

use quiver_graph::{Frame, NoNext, NodeCx, VectorNode, Verdict, drop_reasons};

use super::error::send_as_own;
use super::family::{IcmpFamily, NoEcho};
use crate::local::address::SourceTable;

drop_reasons! {
    /// Why requests are not answered, and how many were.
    pub enum Drop {
        Sent = "echo replies sent" (info),
        Group = "echo request to multicast or broadcast",
        Options = "echo request with source route",
        NoSource = "no address to reply from",
    }
}

/// The node. The offset of the ICMP header is in the aux lane.
pub(super) struct Echo<F> {
    pub sources: SourceTable,
    /// Identification of the last reply (IPv4).
    pub id: u16,
    pub family: PhantomData<F>,
}

const TO_LOOKUP: Verdict = Verdict::slot(1);

impl<F: IcmpFamily> VectorNode for Echo<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let mut sent = 0;
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            self.id = self.id.wrapping_add(1);
            let offset = packet.aux() as usize;
            let verdict = match F::reply(&mut packet, offset, &self.sources, self.id) {
                Ok(()) => {
                    sent += 1;
                    send_as_own(&mut packet);
                    TO_LOOKUP
                }
                Err(NoEcho::Group) => packet.drop(Drop::Group),
                Err(NoEcho::Options) => packet.drop(Drop::Options),
                Err(NoEcho::NoSource) => packet.drop(Drop::NoSource),
            };
            cx.decide(i, verdict);
        }
        cx.count(Drop::Sent, sent);
    }
}
