//! `ip4-icmp-input` and `ip6-icmp-input`: check a message and hand it to who takes its type.

use std::marker::PhantomData;

use quiver_graph::{Frame, NoNext, NodeCx, Pkt, VectorNode, Verdict, drop_reasons};
use quiver_wire::Header;
use quiver_wire::icmp4::Icmp4Header;

use super::family::IcmpFamily;
use crate::local::header::checksum_ok;
use crate::local::table::SlotTable;

drop_reasons! {
    /// Why messages are dropped.
    pub enum Drop {
        UnknownType = "unknown type",
        Code = "invalid code for type",
        HopLimit = "hop_limit != 255",
        Length = "payload length too small for type",
        Checksum = "bad icmp checksum",
    }
}

/// The node. The offset of the ICMP header is in the aux lane and stays there.
pub(super) struct IcmpInput<F> {
    pub types: SlotTable,
    pub family: PhantomData<F>,
}

impl<F: IcmpFamily> VectorNode for IcmpInput<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let verdict = match self.check(&packet) {
                Ok(verdict) => verdict,
                Err(reason) => packet.drop(reason),
            };
            cx.decide(i, verdict);
        }
    }
}

impl<F: IcmpFamily> IcmpInput<F> {
    #[inline(always)]
    fn check(&self, packet: &Pkt<'_>) -> Result<Verdict, Drop> {
        let offset = packet.aux() as usize;
        // Both families' headers have the same form.
        let header = packet.bytes().get(offset..).and_then(Icmp4Header::read).ok_or(Drop::Length)?;
        if !checksum_ok::<F>(packet, F::ICMP, offset) {
            return Err(Drop::Checksum);
        }
        F::check_message(packet, header.icmp_type.0, header.code)?;
        match self.types.get(header.icmp_type.0.into()) {
            0 => Err(Drop::UnknownType),
            slot => Ok(Verdict::slot(slot)),
        }
    }
}
