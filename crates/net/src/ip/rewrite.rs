//! `ip4-rewrite` and `ip6-rewrite`: one hop less, a link header in front, and off to the interface.
//!
//! Aux lane on entry: the adjacency; on leaving: the tx interface. A packet that cannot go on as it is leaves this node
//! unchanged, data at its IP header: to `ip4-icmp-error` or `ip6-icmp-error` (aux: [`icmp_aux`]), or to `ip4-frag` or (own
//! packets only) `ip6-frag` (aux: the adjacency), whose fragments come back here with the same adjacency.
//!
//! The link header is right-aligned in the adjacency's record, so that it is written with three stores whatever its length
//! is: what is too much lands in the headroom in front of it.

use quiver_graph::{
    ArcPoint, Batch, FastPath, IfIndex, NextNodes, Node, NodeCx, Pkt, Sent, Shared, Verdict, drop_reasons, flags, next_nodes,
};
use quiver_wire::U32Be;
use quiver_wire::ipv4::{Ipv4Header, ttl_word_decremented, ttl_word_decremented_raw};

use super::lookup::all_same;
use super::{Family, V4, V6, icmp_aux};
use crate::fib::records::{AdjHead, AdjTable};
use crate::run_counter::RunCounter;

next_nodes! {
    /// Where IPv4 packets go that do not leave; output nodes have slots of their own.
    pub enum Next4 { IcmpError = "ip4-icmp-error", Fragment = "ip4-frag" }
}
next_nodes! {
    /// Where IPv6 packets go that do not leave.
    pub enum Next6 { IcmpError = "ip6-icmp-error", Fragment = "ip6-frag" }
}

drop_reasons! {
    /// Why packets are dropped.
    pub enum RewriteDrop {
        /// The neighbor to which the route leads was removed meanwhile.
        ///
        /// Causes: a neighbor timed out or was removed, or its interface was deleted, while packets to it were on their way.
        /// Check: a few are normal after such a change. If the count keeps rising: `show ip neighbors` and `show adj`.
        /// See: `show ip neighbors`, `show adj`.
        NoAdjacency = "no such adjacency",
        /// There is no room in front of the packet for the header of the link.
        NoHeadroom = "no room for the link header",
    }
}

/// What differs between the families here.
pub trait RewriteFamily: Family {
    /// Where packets go that do not leave.
    type RewriteNext: NextNodes;
    /// To the node that answers a packet, and to the one that cuts it.
    const ICMP_ERROR: Self::RewriteNext;
    /// See [`RewriteFamily::ICMP_ERROR`].
    const FRAGMENT: Self::RewriteNext;
    /// What one hop changes in a header.
    type Hop: Copy;

    /// What one hop changes in the packets of a batch, and zero where all of them may go on, whatever their link is.
    fn hops<const W: usize>(batch: &Batch<'_, W>) -> ([Self::Hop; W], u64);

    /// Takes a hop, with the Ethernet header in front already.
    fn take_hops<const W: usize>(batch: &mut Batch<'_, W>, hops: [Self::Hop; W]);

    /// Takes a hop, with no link header in front.
    fn take_hops_bare<const W: usize>(batch: &mut Batch<'_, W>, hops: [Self::Hop; W]);

    /// Whether a packet may not go on to an interface, whatever its length is.
    fn stays(packet: &Pkt<'_, Shared>, tx: IfIndex) -> bool;

    /// Takes a hop.
    fn take_hop(packet: &mut Pkt<'_, Shared>);

    /// The ICMP error that a packet is answered with, as [`icmp_aux`] has it; none where it is to be cut.
    fn error(packet: &Pkt<'_, Shared>, head: AdjHead) -> Option<u32>;
}

/// The node.
#[derive(Clone)]
pub struct Rewrite<F> {
    adjacencies: AdjTable,
    output: ArcPoint,
    count: RunCounter,
    features: bool,
    family: std::marker::PhantomData<F>,
}

/// Zero where a packet of `len` bytes goes out by an adjacency, as [`AdjHead::unpack`] has it, whatever the link header is: a packet that is
/// not larger than the MTU, a slot.
#[inline(always)]
const fn obstacle(head: u64, len: u32) -> u64 {
    ((head >> 48).wrapping_sub(len as u64) | (head >> 32 & 0xffff).wrapping_sub(1)) >> 63
}

/// Zero where the link header is that of Ethernet without tags.
#[inline(always)]
const fn other_header(head: u64) -> u64 {
    (head ^ 14 << 24) & 0xff << 24
}

/// Bytes of the link header, by an adjacency's first word.
#[inline(always)]
const fn rewrite_len(head: u64) -> u32 {
    (head >> 24) as u32 & 0xff
}

/// The interface of an adjacency's first word.
#[inline(always)]
const fn tx_if(head: u64) -> IfIndex {
    IfIndex(head as u32 & 0xff_ffff)
}

impl<F: RewriteFamily> Rewrite<F> {
    pub(super) fn new(adjacencies: AdjTable, output: ArcPoint, count: RunCounter) -> Self {
        Self { adjacencies, output, count, features: false, family: std::marker::PhantomData }
    }

    /// Sends a batch out by one adjacency whose link header is another than that of Ethernet without tags: on from where [`FastPath::batch`]
    /// gives up, so that the common case does not pay for it.
    #[inline(always)]
    fn tagged_same<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let (hops, staying) = F::hops(batch);
        let staying = staying | u64::from(batch.any_has(flags::CHAINED | flags::LOCAL));
        let (index, lens) = (batch.aux()[0], batch.lens());
        let longest = lens.iter().fold(0, |longest, len| longest.max(*len));
        let (head, header) = self.adjacencies.link(index);
        if staying | obstacle(head, longest) != 0 || !batch.all_have_room(HEADER_ROOM) {
            return None;
        }
        F::take_hops_bare(batch, hops);
        let len = rewrite_len(head);
        if !batch.prepend_same(header, len) {
            batch.prepend(|_| (header, len));
        }
        self.count.add_all(index, &lens);
        let tx = tx_if(head);
        batch.set_aux([tx.0; W]);
        Some(batch.send_all(self.out(tx, (head >> 32) as u16)))
    }

    /// The same by several adjacencies, of which some or all have such a header.
    #[inline(always)]
    fn tagged<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let (hops, staying) = F::hops(batch);
        let mut staying = staying | u64::from(batch.any_has(flags::CHAINED | flags::LOCAL));
        let (aux, lens) = (batch.aux(), batch.lens());
        let (adjacencies, mut heads) = (self.adjacencies.view(), [0; W]);
        for k in 0..W {
            heads[k] = adjacencies.head(aux[k]);
            staying |= obstacle(heads[k], lens[k]);
        }
        if staying != 0 || !batch.all_have_room(HEADER_ROOM) {
            return None;
        }
        F::take_hops_bare(batch, hops);
        batch.prepend(|k| (adjacencies.header(aux[k]), rewrite_len(heads[k])));
        Some(self.leave(batch, &aux, &heads, &lens))
    }

    /// Counts packets that have their headers, and sends each by its adjacency.
    #[inline(always)]
    fn leave<const W: usize>(&mut self, batch: &mut Batch<'_, W>, aux: &[u32; W], heads: &[u64; W], lens: &[u32; W]) -> Sent {
        self.count.add_each(aux, lens);
        let (mut verdicts, mut tx) = ([Verdict::DROP; W], [0; W]);
        for k in 0..W {
            (tx[k], verdicts[k]) = (tx_if(heads[k]).0, self.out(tx_if(heads[k]), (heads[k] >> 32) as u16));
        }
        batch.set_aux(tx);
        batch.send(verdicts)
    }

    /// The node behind an adjacency, or the first feature of its interface.
    #[inline(always)]
    fn out(&self, tx: IfIndex, slot: u16) -> Verdict {
        let next = Verdict::slot(slot);
        if self.features { self.output.next(tx, next) } else { next }
    }
}

impl<F: RewriteFamily> Node<Shared> for Rewrite<F> {
    type Next = F::RewriteNext;
    type Drop = RewriteDrop;

    fn start(&mut self, thread: usize) {
        self.count.start(thread);
    }

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.features = self.output.is_active();
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let (index, len) = (packet.aux(), packet.total_len());
        let (word, rewrite) = self.adjacencies.link(index);
        let head = AdjHead::unpack(word);
        let fits = (len <= usize::from(head.mtu)) & (head.next != 0);
        let forwarded = !packet.has(flags::LOCAL);
        if !(fits & (!F::stays(&packet, head.tx_if) | !forwarded)) {
            return stay::<F>(packet, head);
        }
        if forwarded {
            F::take_hop(&mut packet);
        }
        if !packet.prepend(rewrite, usize::from(head.rewrite_len)) {
            return packet.again().drop(RewriteDrop::NoHeadroom);
        }
        self.count.add(index, len as u32);
        packet.set_aux(head.tx_if.0);
        self.out(head.tx_if, head.next)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.count.flush();
    }
}

impl<F: RewriteFamily> FastPath<Shared> for Rewrite<F> {
    /// Sends a batch out, if each of its packets goes out as it is.
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let (hops, staying) = F::hops(batch);
        let mut staying = staying | u64::from(batch.any_has(flags::CHAINED | flags::LOCAL));
        let (adjacencies, aux, lens) = (self.adjacencies.view(), batch.aux(), batch.lens());
        if all_same(&aux) {
            let head = adjacencies.head(aux[0]);
            let longest = lens.iter().fold(0, |longest, len| longest.max(*len));
            let header = adjacencies.ethernet(aux[0]);
            let other = other_header(head);
            if staying | obstacle(head, longest) | other != 0 || !batch.prepend_ethernet(|_| header) {
                return if other == 0 { None } else { self.tagged_same(batch) };
            }
            F::take_hops(batch, hops);
            self.count.add_all(aux[0], &lens);
            let tx = tx_if(head);
            batch.set_aux([tx.0; W]);
            return Some(batch.send_all(self.out(tx, (head >> 32) as u16)));
        }
        let (mut heads, mut other) = ([0; W], 0);
        for k in 0..W {
            heads[k] = adjacencies.head(aux[k]);
        }
        for k in 0..W {
            staying |= obstacle(heads[k], lens[k]);
            other |= other_header(heads[k]);
        }
        if staying | other != 0 || !batch.prepend_ethernet(|k| adjacencies.ethernet(aux[k])) {
            return if other == 0 { None } else { self.tagged(batch) };
        }
        F::take_hops(batch, hops);
        Some(self.leave(batch, &aux, &heads, &lens))
    }
}

/// A packet that cannot go on as it is.
#[cold]
#[inline(never)]
fn stay<F: RewriteFamily>(mut packet: Pkt<'_, Shared>, head: AdjHead) -> Verdict {
    if head.next == 0 {
        return packet.drop(RewriteDrop::NoAdjacency);
    }
    match F::error(&packet, head) {
        Some(aux) => {
            packet.set_aux(aux);
            F::ICMP_ERROR.into()
        }
        None => F::FRAGMENT.into(),
    }
}

/// Bytes of the link header that most batches get.
const ETHERNET: usize = 14;
/// Headroom for any link header of an adjacency, bytes.
const HEADER_ROOM: u32 = 24;

/// IPv4: time to live, protocol and checksum.
const TTL_WORD: usize = 8;
/// IPv6.
const HOP_LIMIT: usize = 7;

/// By loops: `map` of arrays is not inlined (measured).
#[inline(always)]
fn taken4<const W: usize>(mut words: [u32; W]) -> [u32; W] {
    for word in &mut words {
        *word = ttl_word_decremented_raw(*word);
    }
    words
}

#[inline(always)]
fn taken6<const W: usize>(mut limits: [u8; W]) -> [u8; W] {
    for limit in &mut limits {
        *limit = limit.wrapping_sub(1);
    }
    limits
}

impl RewriteFamily for V4 {
    type RewriteNext = Next4;
    const ICMP_ERROR: Next4 = Next4::IcmpError;
    const FRAGMENT: Next4 = Next4::Fragment;
    type Hop = u32;

    #[inline(always)]
    fn hops<const W: usize>(batch: &Batch<'_, W>) -> ([u32; W], u64) {
        let words: [u32; W] = batch.heads::<_, TTL_WORD>();
        let expired = words.iter().fold(0, |expired, word| expired | (u32::from_le(*word) & 0xff).wrapping_sub(2)) >> 31;
        (words, expired.into())
    }

    #[inline(always)]
    fn take_hops<const W: usize>(batch: &mut Batch<'_, W>, words: [u32; W]) {
        batch.set_heads::<u32, { ETHERNET + TTL_WORD }>(taken4(words));
    }

    #[inline(always)]
    fn take_hops_bare<const W: usize>(batch: &mut Batch<'_, W>, words: [u32; W]) {
        batch.set_heads::<u32, TTL_WORD>(taken4(words));
    }

    #[inline(always)]
    fn stays(packet: &Pkt<'_, Shared>, _: IfIndex) -> bool {
        packet.head_at::<u8, TTL_WORD>() < 2
    }

    #[inline(always)]
    fn take_hop(packet: &mut Pkt<'_, Shared>) {
        let word: U32Be = packet.head_at::<_, TTL_WORD>();
        packet.set_head_at::<U32Be, TTL_WORD>(U32Be::new(ttl_word_decremented(word.get())));
    }

    fn error(packet: &Pkt<'_, Shared>, head: AdjHead) -> Option<u32> {
        let header: Ipv4Header = packet.head();
        if header.ttl < 2 && !packet.has(flags::LOCAL) {
            Some(icmp_aux(11, 0, 0))
        } else {
            header.dont_fragment().then(|| icmp_aux(3, 4, head.mtu))
        }
    }
}

/// Whether the source of an IPv6 packet is known on one link only: fe80::/10.
#[inline(always)]
fn is_link_local(source: u16) -> bool {
    source & 0xffc0_u16.to_be() == 0xfe80_u16.to_be()
}

/// Whether a packet would leave the scope of its source.
#[inline(always)]
fn out_of_scope(packet: &Pkt<'_, Shared>, tx: IfIndex) -> bool {
    is_link_local(packet.head_at::<_, 8>()) & (packet.rx_if() != tx)
}

impl RewriteFamily for V6 {
    type RewriteNext = Next6;
    const ICMP_ERROR: Next6 = Next6::IcmpError;
    const FRAGMENT: Next6 = Next6::Fragment;
    type Hop = u8;

    #[inline(always)]
    fn hops<const W: usize>(batch: &Batch<'_, W>) -> ([u8; W], u64) {
        let limits: [u8; W] = batch.heads::<_, HOP_LIMIT>();
        let sources: [u16; W] = batch.heads::<_, 8>();
        let mut staying = 0;
        for k in 0..W {
            staying |= u64::from(limits[k]).wrapping_sub(2) >> 63;
            // What is known on one link only is looked at by itself.
            staying |= u64::from(is_link_local(sources[k]));
        }
        (limits, staying)
    }

    #[inline(always)]
    fn take_hops<const W: usize>(batch: &mut Batch<'_, W>, limits: [u8; W]) {
        batch.set_heads::<u8, { ETHERNET + HOP_LIMIT }>(taken6(limits));
    }

    #[inline(always)]
    fn take_hops_bare<const W: usize>(batch: &mut Batch<'_, W>, limits: [u8; W]) {
        batch.set_heads::<u8, HOP_LIMIT>(taken6(limits));
    }

    #[inline(always)]
    fn stays(packet: &Pkt<'_, Shared>, tx: IfIndex) -> bool {
        (packet.head_at::<u8, HOP_LIMIT>() < 2) | out_of_scope(packet, tx)
    }

    #[inline(always)]
    fn take_hop(packet: &mut Pkt<'_, Shared>) {
        let limit: u8 = packet.head_at::<_, HOP_LIMIT>();
        packet.set_head_at::<u8, HOP_LIMIT>(limit - 1);
    }

    /// Hop limit exceeded, beyond the scope of its source (RFC 4443, 3.1, code 2), or too big. Only its source may fragment an IPv6
    /// packet (RFC 8200, 4.5), and where that is this router it does.
    fn error(packet: &Pkt<'_, Shared>, head: AdjHead) -> Option<u32> {
        if packet.has(flags::LOCAL) {
            None
        } else if packet.head_at::<u8, HOP_LIMIT>() < 2 {
            Some(icmp_aux(3, 0, 0))
        } else if out_of_scope(packet, head.tx_if) {
            Some(icmp_aux(1, 2, 0))
        } else {
            Some(icmp_aux(2, 0, head.mtu))
        }
    }
}
