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
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ipv6::address::is_link_local;

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
        let words = self.adjacencies.words(packet.aux());
        let mut rewrite = [0; REWRITE_MAX];
        rewrite[..8].copy_from_slice(&words[1].to_ne_bytes());
        rewrite[8..16].copy_from_slice(&words[2].to_ne_bytes());
        rewrite[16..].copy_from_slice(&words[3].to_ne_bytes());
        Link { head: AdjHead::unpack(words[0]), rewrite, len: packet.total_len() as u32, local: packet.has(flags::LOCAL) }
    }

    /// Pushes the link header and sends the packet on; `false` where there is no room for it.
    #[inline(always)]
    fn push(packet: &mut Pkt<'_>, link: &Link) -> bool {
        // The header window must stay inside the packet's own buffer: see the module's text.
        packet.push(REWRITE_MAX) && {
            packet.set_head(link.rewrite);
            true
        }
    }

    #[inline(always)]
    fn leave(&mut self, packet: &mut Pkt<'_>, link: &Link) -> Verdict {
        packet.pull(REWRITE_MAX - usize::from(link.head.rewrite_len));
        self.count.add(packet.aux(), link.len);
        packet.set_aux(link.head.tx_if.0);
        let next = Verdict::slot(link.head.next);
        if self.features { self.output.next(link.head.tx_if, next) } else { next }
    }
}

/// What is read of the adjacency, and of the packet in either family.
#[derive(Clone, Copy)]
pub(super) struct Link {
    head: AdjHead,
    rewrite: [u8; REWRITE_MAX],
    len: u32,
    local: bool,
}

impl Link {
    #[inline(always)]
    fn fits(&self) -> bool {
        (self.len <= u32::from(self.head.mtu)) & (self.head.next != 0)
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
pub(super) struct Out4 {
    ok: bool,
    ttl: u32,
}

impl Node for Ip4Rewrite {
    type Next = Next4;
    type Drop = RewriteDrop;
    type In = In4;
    type Out = Out4;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In4 {
        In4 { link: self.0.load(packet), ttl: packet.head_at::<U32Be, TTL_WORD>().get() }
    }

    #[inline(always)]
    fn compute(&self, x: In4) -> Out4 {
        let alive = (x.ttl >= 2 << 24) | x.link.local;
        Out4 { ok: alive & x.link.fits(), ttl: if x.link.local { x.ttl } else { ttl_word_decremented(x.ttl) } }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In4, out: Out4) -> Verdict {
        if !out.ok {
            return stay4(&mut packet, &x);
        }
        if !Common::push(&mut packet, &x.link) {
            return packet.drop(RewriteDrop::NoHeadroom);
        }
        packet.set_head_at::<U32Be, { REWRITE_MAX + TTL_WORD }>(U32Be::new(out.ttl));
        self.0.leave(&mut packet, &x.link)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// What becomes of an IPv4 packet that cannot go on as it is.
#[cold]
fn stay4(packet: &mut Pkt<'_>, x: &In4) -> Verdict {
    let link = &x.link;
    if link.head.next == 0 {
        return packet.drop(RewriteDrop::NoAdjacency);
    }
    if x.ttl < 2 << 24 && !link.local {
        packet.set_aux(icmp_aux(11, 0, 0));
        return Next4::IcmpError.into();
    }
    if packet.head::<Ipv4Header>().dont_fragment() {
        packet.set_aux(icmp_aux(3, 4, link.head.mtu));
        return Next4::IcmpError.into();
    }
    Next4::Fragment.into()
}

/// `ip6-rewrite`.
pub(super) struct Ip6Rewrite(pub Common);

/// Hop limit.
const HOP_LIMIT: usize = 7;

/// What is read of an IPv6 packet.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    link: Link,
    hop_limit: u8,
    /// Sent by a host of one link to another link.
    out_of_scope: bool,
}

/// What follows from it.
#[derive(Clone, Copy)]
pub(super) struct Out6 {
    ok: bool,
    hop_limit: u8,
}

impl Node for Ip6Rewrite {
    type Next = Next6;
    type Drop = RewriteDrop;
    type In = In6;
    type Out = Out6;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In6 {
        let header: Ipv6Header = packet.head();
        let link = self.0.load(packet);
        let rx_if: IfIndex = packet.rx_if();
        let out_of_scope = is_link_local(header.src.get()) & (rx_if != link.head.tx_if);
        In6 { link, hop_limit: header.hop_limit, out_of_scope }
    }

    #[inline(always)]
    fn compute(&self, x: In6) -> Out6 {
        let alive = ((x.hop_limit >= 2) & !x.out_of_scope) | x.link.local;
        Out6 { ok: alive & x.link.fits(), hop_limit: x.hop_limit.wrapping_sub(u8::from(!x.link.local)) }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In6, out: Out6) -> Verdict {
        if !out.ok {
            return stay6(&mut packet, &x);
        }
        if !Common::push(&mut packet, &x.link) {
            return packet.drop(RewriteDrop::NoHeadroom);
        }
        packet.set_head_at::<u8, { REWRITE_MAX + HOP_LIMIT }>(out.hop_limit);
        self.0.leave(&mut packet, &x.link)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// What becomes of an IPv6 packet that cannot go on: hop limit exceeded, beyond the scope of its source (RFC 4443, 3.1,
/// code 2), or too big.
#[cold]
fn stay6(packet: &mut Pkt<'_>, x: &In6) -> Verdict {
    let link = &x.link;
    let aux = if link.head.next == 0 {
        return packet.drop(RewriteDrop::NoAdjacency);
    } else if x.hop_limit < 2 && !link.local {
        icmp_aux(3, 0, 0)
    } else if x.out_of_scope && !link.local {
        icmp_aux(1, 2, 0)
    } else if link.local {
        // Only its source may fragment an IPv6 packet (RFC 8200, 4.5), and that is this router.
        return Next6::Fragment.into();
    } else {
        icmp_aux(2, 0, link.head.mtu)
    };
    packet.set_aux(aux);
    Next6::IcmpError.into()
}
