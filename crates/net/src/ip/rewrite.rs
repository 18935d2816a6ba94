//! `ip4-rewrite` and `ip6-rewrite`: one hop less, a link header in front, and off to the interface.
//!
//! Aux lane on entry: the adjacency; on leaving: the tx interface. A packet that cannot go on as it is leaves this node
//! unchanged, data at its IP header: to `ip4-icmp-error` or `ip6-icmp-error` (aux: [`icmp_aux`]), or to `ip4-frag` or (own
//! packets only) `ip6-frag` (aux: the adjacency), whose fragments come back here with the same adjacency.
//!
//! The link header is right-aligned in the adjacency's record, so that it is written with three stores whatever its length
//! is: what is too much lands in the headroom in front of it.

use quiver_graph::{ArcPoint, IfIndex, Node, NodeCx, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::U32Be;
use quiver_wire::ipv4::{Ipv4Header, ttl_word_decremented};

use super::icmp_aux;
use super::lookup::RunCounter;
use crate::fib::records::{AdjHead, AdjTable, REWRITE_MAX};

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
    pub enum RewriteDrop { NoAdjacency = "no such adjacency", NoHeadroom = "no room for the link header" }
}

/// What both rewrite nodes have.
pub(super) struct Common {
    pub adjacencies: AdjTable,
    pub output: ArcPoint,
    pub count: RunCounter,
    features: bool,
}

impl Common {
    pub fn new(adjacencies: AdjTable, output: ArcPoint, count: RunCounter) -> Self {
        Self { adjacencies, output, count, features: false }
    }

    #[inline(always)]
    fn begin(&mut self) {
        self.features = self.output.is_active();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> Link {
        Link { head: self.adjacencies.head(packet.aux()), len: packet.total_len() as u32, context: packet.context() }
    }

    /// Pushes the link header and sends the packet on, `None` where there is no room for the header. The record is read here
    /// again and not carried from the load: it is in L1, and 32 bytes for each packet of a group would go through the stack.
    #[inline(always)]
    fn push(&mut self, packet: &mut Pkt<'_>) -> Option<Verdict> {
        let (index, len) = (packet.aux(), packet.total_len() as u32);
        let (head, rewrite) = self.adjacencies.link(index);
        let head = AdjHead::unpack(head);
        if !packet.push(REWRITE_MAX) {
            return None;
        }
        packet.set_head(rewrite);
        packet.pull(REWRITE_MAX - usize::from(head.rewrite_len).min(REWRITE_MAX));
        self.count.add(index, len);
        packet.set_aux(head.tx_if.0);
        let next = Verdict::slot(head.next);
        Some(if self.features { self.output.next(head.tx_if, next) } else { next })
    }
}

/// What is read of the adjacency, and of the packet in either family.
#[derive(Clone, Copy)]
pub(super) struct Link {
    head: u64,
    len: u32,
    context: u32,
}

impl Link {
    #[inline(always)]
    fn tx_if(self) -> IfIndex {
        AdjHead::unpack(self.head).tx_if
    }

    /// 1 for this router's own packets, else 0.
    #[inline(always)]
    fn local(self) -> u32 {
        (self.context / flags::LOCAL) & 1
    }

    /// 1 where the packet is longer than the link takes, or the adjacency leads nowhere, else 0. Arithmetic on words of 32
    /// bits, as in the input nodes.
    #[inline(always)]
    fn refuses(self) -> u32 {
        let mtu = (self.head >> 48) as u32;
        let next = (self.head >> 32) as u32 & 0xffff;
        (mtu.wrapping_sub(self.len) | next.wrapping_sub(1)) >> 31
    }
}

/// `ip4-rewrite`.
pub(super) struct Ip4Rewrite(pub Common);

/// Time to live, protocol and checksum: what one hop changes.
const TTL_WORD: usize = 8;

/// What is read of an IPv4 packet.
#[derive(Clone, Copy)]
pub(super) struct In4 {
    link: Link,
    ttl: u32,
}

/// What follows from it.
#[derive(Clone, Copy)]
pub(super) struct Out {
    /// Not 0 where the packet cannot go on as it is.
    stays: u32,
    /// The word with the time to live or the hop limit, after this hop.
    ttl: u32,
}

impl Node for Ip4Rewrite {
    type Next = Next4;
    type Drop = RewriteDrop;
    type In = In4;
    type Out = Out;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In4 {
        In4 { link: self.0.load(packet), ttl: packet.head_at::<U32Be, TTL_WORD>().get() }
    }

    #[inline(always)]
    fn compute(&self, x: In4) -> Out {
        let local = x.link.local();
        let last_hop = (x.ttl >> 24).wrapping_sub(2) >> 31 & (local ^ 1);
        let ttl = if local != 0 { x.ttl } else { ttl_word_decremented(x.ttl) };
        Out { stays: x.link.refuses() | last_hop, ttl }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, _: In4, out: Out) -> Verdict {
        if out.stays != 0 {
            let ttl = packet.head_at::<U32Be, TTL_WORD>().get();
            let dont_fragment = packet.head::<Ipv4Header>().dont_fragment();
            let stay = stay4(self.0.adjacencies.head(packet.aux()), packet.context(), ttl, dont_fragment);
            return stay.settle(packet);
        }
        packet.set_head_at::<U32Be, TTL_WORD>(U32Be::new(out.ttl));
        self.0.push(&mut packet).unwrap_or_else(|| packet.drop(RewriteDrop::NoHeadroom))
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// What becomes of a packet that cannot go on as it is.
enum Stay {
    /// It is dropped.
    Drop,
    /// On to this node, with this aux lane where there is one.
    Next(Verdict, Option<u32>),
}

impl Stay {
    fn settle(self, mut packet: Pkt<'_>) -> Verdict {
        match self {
            Self::Drop => packet.drop(RewriteDrop::NoAdjacency),
            Self::Next(verdict, aux) => {
                if let Some(aux) = aux {
                    packet.set_aux(aux);
                }
                verdict
            }
        }
    }
}

/// Of an IPv4 packet. The arguments are values and not what the node has in its hands, so that these stay in registers.
#[cold]
fn stay4(head: u64, context: u32, ttl: u32, dont_fragment: bool) -> Stay {
    let head = AdjHead::unpack(head);
    if head.next == 0 {
        Stay::Drop
    } else if ttl < 2 << 24 && context & flags::LOCAL == 0 {
        Stay::Next(Next4::IcmpError.into(), Some(icmp_aux(11, 0, 0)))
    } else if dont_fragment {
        Stay::Next(Next4::IcmpError.into(), Some(icmp_aux(3, 4, head.mtu)))
    } else {
        Stay::Next(Next4::Fragment.into(), None)
    }
}

/// `ip6-rewrite`.
pub(super) struct Ip6Rewrite(pub Common);

/// Hop limit: the last byte of this word.
const HOP_WORD: usize = 4;

/// What is read of an IPv6 packet.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    link: Link,
    /// Payload length, next header, hop limit.
    hop: u32,
    /// 1 for a packet of a host of one link to another link, else 0.
    out_of_scope: u32,
}

impl Node for Ip6Rewrite {
    type Next = Next6;
    type Drop = RewriteDrop;
    type In = In6;
    type Out = Out;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In6 {
        let link = self.0.load(packet);
        // The first ten bits of the source: fe80::/10.
        let link_local = (packet.head_at::<U32Be, 8>().get() >> 22) ^ (0xfe80 >> 6);
        let other_link = packet.rx_if() != link.tx_if();
        In6 { link, hop: packet.head_at::<U32Be, HOP_WORD>().get(), out_of_scope: u32::from((link_local == 0) & other_link) }
    }

    #[inline(always)]
    fn compute(&self, x: In6) -> Out {
        let not_local = x.link.local() ^ 1;
        let last_hop = (x.hop & 0xff).wrapping_sub(2) >> 31;
        Out { stays: x.link.refuses() | ((last_hop | x.out_of_scope) & not_local), ttl: x.hop.wrapping_sub(not_local) }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In6, out: Out) -> Verdict {
        if out.stays != 0 {
            let stay = stay6(self.0.adjacencies.head(packet.aux()), packet.context(), x.hop as u8, x.out_of_scope != 0);
            return stay.settle(packet);
        }
        packet.set_head_at::<U32Be, HOP_WORD>(U32Be::new(out.ttl));
        self.0.push(&mut packet).unwrap_or_else(|| packet.drop(RewriteDrop::NoHeadroom))
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// Of an IPv6 packet: hop limit exceeded, beyond the scope of its source (RFC 4443, 3.1, code 2), or too big.
#[cold]
fn stay6(head: u64, context: u32, hop_limit: u8, out_of_scope: bool) -> Stay {
    let head = AdjHead::unpack(head);
    let local = context & flags::LOCAL != 0;
    let error = |aux| Stay::Next(Next6::IcmpError.into(), Some(aux));
    if head.next == 0 {
        Stay::Drop
    } else if hop_limit < 2 && !local {
        error(icmp_aux(3, 0, 0))
    } else if out_of_scope && !local {
        error(icmp_aux(1, 2, 0))
    } else if local {
        // Only its source may fragment an IPv6 packet (RFC 8200, 4.5), and that is this router.
        Stay::Next(Next6::Fragment.into(), None)
    } else {
        error(icmp_aux(2, 0, head.mtu))
    }
}
