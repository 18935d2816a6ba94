//! `ip4-icmp-input` and `ip6-icmp-input`: check a message and hand it to who takes its type.

use std::marker::PhantomData;

use quiver_graph::{NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons};
use quiver_wire::Header;
use quiver_wire::icmp4::Icmp4Header;

use super::family::IcmpFamily;
use crate::local::header::checksum_ok;
use crate::local::table::SlotTable;

drop_reasons! {
    /// Why messages are dropped.
    pub enum Drop {
        /// The router does not handle ICMP messages of this type.
        UnknownType = "unknown type",
        /// The ICMP code is not the one of this type.
        Code = "invalid code for type",
        /// The hop limit of a message of neighbor discovery is not 255.
        HopLimit = "hop_limit != 255",
        /// The message is shorter than its type demands.
        Length = "payload length too small for type",
        /// The checksum of the message is wrong.
        ///
        /// Causes: a damaged packet, or a sender that leaves checksums to a device that does not fill them in (virtual machines,
        /// veth).
        /// Check: on Linux' side of a TAP or veth, `ethtool -K IF tx off`; else `show hardware-interfaces` for receive errors.
        /// See: `show hardware-interfaces`.
        Checksum = "bad icmp checksum",
    }
}

/// The node. The offset of the ICMP header is in the aux lane and stays there.
#[derive(Clone)]
pub(super) struct IcmpInput<F> {
    pub types: SlotTable,
    pub family: PhantomData<F>,
}

impl<F: IcmpFamily> Node for IcmpInput<F> {
    type Next = NoNext;
    type Drop = Drop;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        self.check(&packet).unwrap_or_else(|reason| packet.drop(reason))
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
