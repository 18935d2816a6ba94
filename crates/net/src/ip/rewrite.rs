//! `ip4-rewrite` and `ip6-rewrite`: one hop less, a link header in front, and off to the interface.
//!
//! Aux lane on entry: the adjacency; on leaving: the tx interface. A packet that cannot go on as it is leaves this node
//! unchanged, data at its IP header: to `ip4-icmp-error` or `ip6-icmp-error` (aux: [`icmp_aux`]), or to `ip4-frag` or (own
//! packets only) `ip6-frag` (aux: the adjacency), whose fragments come back here with the same adjacency.
//!
//! The link header is right-aligned in the adjacency's record, so that it is written with three stores whatever its length
//! is: what is too much lands in the headroom in front of it.

use quiver_graph::{ArcPoint, Group, IfIndex, LoopConfig, Node, NodeCx, Pkt, Sent, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::U32Be;
use quiver_wire::ipv4::{Ipv4Header, ttl_word_decremented, ttl_word_decremented_raw};
use quiver_wire::ipv6::Ipv6Header;

use super::icmp_aux;
use super::lookup::{RunCounter, all_same};
use crate::fib::records::{AdjHead, AdjTable};

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

    /// Pushes the link header and sends the packet on.
    #[inline(always)]
    fn leave(&mut self, packet: &mut Pkt<'_>, head: AdjHead, rewrite: [u64; 3]) -> Verdict {
        let (index, len) = (packet.aux(), packet.total_len() as u32);
        if !packet.prepend(rewrite, usize::from(head.rewrite_len)) {
            return packet.again().drop(RewriteDrop::NoHeadroom);
        }
        self.count.add(index, len);
        packet.set_aux(head.tx_if.0);
        let next = Verdict::slot(head.next);
        if self.features { self.output.next(head.tx_if, next) } else { next }
    }
}

/// What one hop changes in the headers of a group. A trait, for a function that is certain to be inlined, without `map`: a closure and
/// `map` became calls in some loops.
trait Hop {
    /// What has been read of each packet.
    type Word: Copy;
    /// Writes it anew, with the link header in front.
    fn take<const W: usize>(group: &mut Group<'_, W>, words: [Self::Word; W]);
}

/// Zero where a packet of `len` bytes goes out by an adjacency, as [`AdjHead::unpack`] has it: an Ethernet header, a packet
/// that is not larger than the MTU, a slot.
#[inline(always)]
const fn obstacle(head: u64, len: u32) -> u64 {
    let header = (head ^ 14 << 24) & 0xff << 24;
    header | ((head >> 48).wrapping_sub(len as u64) | (head >> 32 & 0xffff).wrapping_sub(1)) >> 63
}

impl Common {
    /// Sends a group out, if each of its packets goes out as it is by an Ethernet header. `staying` has bits set where a packet
    /// may not go on, whatever its link is; `words` are what one hop changes.
    #[inline(always)]
    fn leave_group<H: Hop, const W: usize>(&mut self, group: &mut Group<'_, W>, staying: u64, words: [H::Word; W]) -> Option<Sent> {
        let staying = staying | u64::from(group.any_has(flags::CHAINED | flags::LOCAL));
        let (adjacencies, aux, lens) = (self.adjacencies.view(), group.aux(), group.lens());
        if all_same(&aux) {
            let head = adjacencies.head(aux[0]);
            let longest = lens.iter().fold(0, |longest, len| longest.max(*len));
            let header = adjacencies.ethernet(aux[0]);
            if staying | obstacle(head, longest) != 0 || !group.prepend_ethernet(|_| header) {
                return None;
            }
            H::take(group, words);
            self.count.add_all(aux[0], &lens);
            let tx = tx_if(head);
            group.set_aux([tx.0; W]);
            return Some(group.send_all(self.out(tx, head)));
        }
        let (mut heads, mut staying) = ([0; W], staying);
        for k in 0..W {
            heads[k] = adjacencies.head(aux[k]);
        }
        for k in 0..W {
            staying |= obstacle(heads[k], lens[k]);
        }
        if staying != 0 || !group.prepend_ethernet(|k| adjacencies.ethernet(aux[k])) {
            return None;
        }
        H::take(group, words);
        self.count.add_each(&aux, &lens);
        let (mut verdicts, mut tx) = ([Verdict::DROP; W], [0; W]);
        for k in 0..W {
            (tx[k], verdicts[k]) = (tx_if(heads[k]).0, self.out(tx_if(heads[k]), heads[k]));
        }
        group.set_aux(tx);
        Some(group.send(verdicts))
    }

    /// The node behind an adjacency, or the first feature of its interface.
    #[inline(always)]
    fn out(&self, tx: IfIndex, head: u64) -> Verdict {
        let next = Verdict::slot((head >> 32) as u16);
        if self.features { self.output.next(tx, next) } else { next }
    }
}

/// The interface of an adjacency's first word.
#[inline(always)]
const fn tx_if(head: u64) -> IfIndex {
    IfIndex(head as u32 & 0xff_ffff)
}

/// Whether a packet fits a link that leads somewhere.
#[inline(always)]
fn fits(head: &AdjHead, packet: &Pkt<'_>) -> bool {
    (packet.total_len() <= usize::from(head.mtu)) & (head.next != 0)
}

/// `ip4-rewrite`.
pub(super) struct Ip4Rewrite(pub Common);

/// Bytes of the link header that groups get.
const ETHERNET: usize = 14;

/// Time to live, protocol and checksum: what one hop changes.
const TTL_WORD: usize = 8;

struct Hop4;

impl Hop for Hop4 {
    type Word = u32;
    #[inline(always)]
    fn take<const W: usize>(group: &mut Group<'_, W>, mut words: [u32; W]) {
        for word in &mut words {
            *word = ttl_word_decremented_raw(*word);
        }
        group.set_heads::<u32, { ETHERNET + TTL_WORD }>(words);
    }
}

impl Node for Ip4Rewrite {
    type Next = Next4;
    type Drop = RewriteDrop;
    type In = u32;
    type Out = ();
    const LOOP: LoopConfig = LoopConfig::GROUPS;
    const GROUPS: bool = true;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> u32 {
        packet.head_at::<U32Be, TTL_WORD>().get()
    }

    #[inline(always)]
    fn compute(&self, _: u32) {}

    #[inline(always)]
    fn group<const W: usize>(&mut self, group: &mut Group<'_, W>) -> Option<Sent> {
        let words: [u32; W] = group.heads::<_, TTL_WORD>();
        let staying = words.iter().fold(0, |staying, word| staying | (u32::from_le(*word) & 0xff).wrapping_sub(2)) >> 31;
        self.0.leave_group::<Hop4, W>(group, staying.into(), words)
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, ttl: u32, (): ()) -> Verdict {
        let (word, rewrite) = self.0.adjacencies.link(packet.aux());
        let head = AdjHead::unpack(word);
        let forwarded = !packet.has(flags::LOCAL);
        if !(fits(&head, &packet) & ((ttl >= 2 << 24) | !forwarded)) {
            return stay4(&mut packet.again(), head);
        }
        if forwarded {
            packet.set_head_at::<U32Be, TTL_WORD>(U32Be::new(ttl_word_decremented(ttl)));
        }
        self.0.leave(&mut packet, head, rewrite)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// An IPv4 packet that cannot go on as it is.
#[cold]
#[inline(never)]
fn stay4(packet: &mut Pkt<'_>, head: AdjHead) -> Verdict {
    let header: Ipv4Header = packet.head();
    let aux = if head.next == 0 {
        return packet.drop(RewriteDrop::NoAdjacency);
    } else if header.ttl < 2 && !packet.has(flags::LOCAL) {
        icmp_aux(11, 0, 0)
    } else if header.dont_fragment() {
        icmp_aux(3, 4, head.mtu)
    } else {
        return Next4::Fragment.into();
    };
    packet.set_aux(aux);
    Next4::IcmpError.into()
}

/// `ip6-rewrite`.
pub(super) struct Ip6Rewrite(pub Common);

/// Hop limit.
const HOP_LIMIT: usize = 7;

/// What is read of an IPv6 packet.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    hop_limit: u8,
    /// Whether its source is known on one link only: fe80::/10.
    link_local: bool,
}

struct Hop6;

impl Hop for Hop6 {
    type Word = u8;
    #[inline(always)]
    fn take<const W: usize>(group: &mut Group<'_, W>, mut limits: [u8; W]) {
        for limit in &mut limits {
            *limit = limit.wrapping_sub(1);
        }
        group.set_heads::<u8, { ETHERNET + HOP_LIMIT }>(limits);
    }
}

impl Node for Ip6Rewrite {
    type Next = Next6;
    type Drop = RewriteDrop;
    type In = In6;
    type Out = ();
    const LOOP: LoopConfig = LoopConfig::GROUPS;
    const GROUPS: bool = true;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In6 {
        let src: u16 = packet.head_at::<_, 8>();
        In6 { hop_limit: packet.head_at::<_, HOP_LIMIT>(), link_local: src & 0xffc0_u16.to_be() == 0xfe80_u16.to_be() }
    }

    #[inline(always)]
    fn compute(&self, _: In6) {}

    #[inline(always)]
    fn group<const W: usize>(&mut self, group: &mut Group<'_, W>) -> Option<Sent> {
        let limits: [u8; W] = group.heads::<_, HOP_LIMIT>();
        let sources: [u16; W] = group.heads::<_, 8>();
        let mut staying = 0;
        for k in 0..W {
            staying |= u64::from(limits[k]).wrapping_sub(2) >> 63;
            // What is known on one link only is looked at by itself.
            staying |= u64::from(sources[k] & 0xffc0_u16.to_be() == 0xfe80_u16.to_be());
        }
        self.0.leave_group::<Hop6, W>(group, staying, limits)
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In6, (): ()) -> Verdict {
        let (word, rewrite) = self.0.adjacencies.link(packet.aux());
        let head = AdjHead::unpack(word);
        let forwarded = !packet.has(flags::LOCAL);
        let out_of_scope = x.link_local & (packet.rx_if() != head.tx_if);
        if !(fits(&head, &packet) & (((x.hop_limit >= 2) & !out_of_scope) | !forwarded)) {
            return stay6(&mut packet.again(), head, out_of_scope);
        }
        if forwarded {
            packet.set_head_at::<u8, HOP_LIMIT>(x.hop_limit - 1);
        }
        self.0.leave(&mut packet, head, rewrite)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.count.flush();
    }
}

/// An IPv6 packet that cannot go on: hop limit exceeded, beyond the scope of its source (RFC 4443, 3.1, code 2), or too big.
#[cold]
#[inline(never)]
fn stay6(packet: &mut Pkt<'_>, head: AdjHead, out_of_scope: bool) -> Verdict {
    let header: Ipv6Header = packet.head();
    let local = packet.has(flags::LOCAL);
    let aux = if head.next == 0 {
        return packet.drop(RewriteDrop::NoAdjacency);
    } else if header.hop_limit < 2 && !local {
        icmp_aux(3, 0, 0)
    } else if out_of_scope && !local {
        icmp_aux(1, 2, 0)
    } else if local {
        // Only its source may fragment an IPv6 packet (RFC 8200, 4.5), and that is this router.
        return Next6::Fragment.into();
    } else {
        icmp_aux(2, 0, head.mtu)
    };
    packet.set_aux(aux);
    Next6::IcmpError.into()
}
