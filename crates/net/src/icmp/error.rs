//! `ip4-icmp-error` and `ip6-icmp-error`: turn a packet into the ICMP error about it.

use std::marker::PhantomData;

use quiver_graph::{NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons, flags};

use super::family::IcmpFamily;
use super::limit::Bucket;
use crate::ip::icmp_of_aux;
use crate::local::address::SourceTable;

/// What is counted where the limit keeps an error back.
pub(super) const RATE_LIMITED: &str = "error message rate limited";

drop_reasons! {
    /// Why no error is sent, and which ones were.
    pub enum Drop {
        /// A sender was told that the destination cannot be reached.
        UnreachableSent = "destination unreachable response sent" (info),
        /// A sender was told that its packet is larger than the MTU.
        TooBigSent = "packet too big response sent" (info),
        /// A sender was told that its packet's TTL or hop limit has run out.
        ///
        /// Causes: a traceroute through the router, or a routing loop: two routers send the packet to each other until its TTL or
        /// hop limit has run out.
        /// Check: `traceroute` from the source; the addresses that repeat are the loop. Compare `show ip fib ADDRESS` on these
        /// routers.
        /// See: `show ip fib ADDRESS`, `set ip icmp-rate-limit`.
        TimeExceededSent = "hop limit exceeded response sent" (info),
        /// A sender was told that a header cannot be handled.
        ProblemSent = "parameter problem response sent" (info),
        /// More errors were due than the limit allows (`set ip icmp-rate-limit`).
        ///
        /// Causes: a scan, a routing loop, or many packets without a route.
        /// Check: look for what else is counted: the errors are about these packets. Raise the limit with `set ip icmp-rate-limit`
        /// only if hosts miss them.
        /// See: `show errors`, `set ip icmp-rate-limit`.
        RateLimited = "error message rate limited",
        /// The packet is an ICMP error itself; no error is sent about one.
        AboutError = "no error about an error message",
        /// The packet is a later fragment; errors are sent about first ones only.
        Fragment = "no error about a later fragment",
        /// The packet was for a group or for all; no error is sent about those.
        Group = "no error about a multicast or broadcast",
        /// The packet's source address is no host's, so there is nobody to tell.
        Source = "no error to a source that is no host's",
        /// The packet's header is damaged, so its source cannot be trusted.
        Malformed = "no error about a malformed header",
        /// The interface has no address from which the error could come.
        ///
        /// Causes: the interface that the packet came from has no address.
        /// Check: `show interface address`; give it an address or make it unnumbered.
        /// See: `show interface address`, `set interface unnumbered`.
        NoSource = "no address to send an error from",
        /// There is no room in the packet for the headers of an error.
        NoRoom = "no room for the headers of an error",
    }
}

/// The node.
#[derive(Clone)]
pub(super) struct IcmpError<F> {
    pub sources: SourceTable,
    pub bucket: Bucket,
    /// Identification of the next error (IPv4).
    pub id: u16,
    pub family: PhantomData<F>,
}

const TO_LOOKUP: Verdict = Verdict::slot(1);

impl<F: IcmpFamily> Node for IcmpError<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        // Identifications of one worker do not meet those of another for long.
        self.id = (thread as u16).wrapping_mul(4099);
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        match self.error(cx, &mut packet) {
            Ok(sent) => {
                cx.count(sent, 1);
                TO_LOOKUP
            }
            Err(reason) => packet.drop(reason),
        }
    }
}

impl<F: IcmpFamily> IcmpError<F> {
    /// Turns a packet into the error about it.
    fn error(&mut self, cx: &mut NodeCx<'_>, packet: &mut Pkt<'_>) -> Result<Drop, Drop> {
        let now = cx.now();
        let (kind, code, data) = icmp_of_aux(packet.aux());
        if let Some(reason) = F::forbidden(packet, kind, code) {
            return Err(reason);
        }
        let source = F::error_source(packet, &self.sources);
        if source == F::Addr::default() {
            return Err(Drop::NoSource);
        }
        if packet.span().offset() < F::ERROR_HEADERS {
            return Err(Drop::NoRoom);
        }
        if !self.bucket.allow(now) {
            return Err(Drop::RateLimited);
        }
        let (dst, tos) = (F::addresses(packet).0, F::tos(packet));
        let len = F::length(packet).unwrap_or(usize::MAX).min(F::ERROR_LEN - F::ERROR_HEADERS);
        cx.cut_view(packet, len);
        packet.push(F::ERROR_HEADERS);
        // What is quoted may be unfinished; what is sent is not.
        packet.clear_unfinished_checksum();
        self.id = self.id.wrapping_add(1);
        F::write_error(packet, source, dst, tos, (kind, code, data), self.id);
        send_as_own(packet);
        Ok(F::sent(kind))
    }
}

/// Marks a packet as made by this router; it is looked up in the table of the interface that it answers.
pub(super) fn send_as_own(packet: &mut Pkt<'_>) {
    packet.unmark(flags::LINK_MULTICAST);
    packet.mark(flags::LOCAL);
    if packet.table().is_some() {
        packet.set_table(u32::MAX);
    }
}
