//! `ip4-input` and `ip6-input`: is this a packet that a router may take (RFC 1812, 5.2.2 and 5.3.7; RFC 8200, 3)?
//!
//! One expression says whether a packet is plain and right; all others (options, errors) are looked at again, to find out
//! what it is about them. TTL and hop limit are not looked at here: a packet for the router itself is welcome whatever they
//! are (RFC 1812, 4.2.2.9).

use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{ArcPoint, IfIndex, Node, NodeCx, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::ipv4::{self, IpProtocol, Ipv4Error, Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::{self, Ipv6Header};
use quiver_wire::{Header as _, U32Be};

use crate::data::{IfTable, if_flags};

next_nodes! {
    /// Where IPv4 packets go.
    pub enum Next4 { Lookup = "ip4-lookup", Multicast = "ip4-mfib-forward-lookup" }
}
next_nodes! {
    /// Where IPv6 packets go.
    pub enum Next6 { Lookup = "ip6-lookup", Multicast = "ip6-mfib-forward-lookup" }
}

drop_reasons! {
    /// Why IPv4 packets are dropped.
    pub enum Drop4 {
        TooShort = "ip4 length < 20 bytes",
        BadLength = "ip4 length > l2 length",
        BadChecksum = "bad ip4 checksum",
        BadVersion = "ip4 version != 4",
        BadHeader = "ip4 header length",
        BadOptions = "malformed ip4 options",
        SourceRoute = "ip4 source route option",
        FragmentOffsetOne = "ip4 fragment offset == 1",
        Source = "ip4 source address cannot be one",
        Destination = "ip4 destination address cannot be one",
        LinkBroadcast = "ip4 unicast in a link broadcast",
        NotEnabled = "ip4 not enabled on the interface",
    }
}

drop_reasons! {
    /// Why IPv6 packets are dropped.
    pub enum Drop6 {
        TooShort = "ip6 length < 40 bytes",
        BadLength = "ip6 length > l2 length",
        BadVersion = "ip6 version != 6",
        Source = "ip6 source address cannot be one",
        Destination = "ip6 destination address cannot be one",
        LinkMulticast = "ip6 unicast in a link multicast",
        NotEnabled = "ip6 not enabled on the interface",
    }
}

/// What both input nodes have.
pub(super) struct Common {
    pub interfaces: IfTable,
    pub unicast: ArcPoint,
    pub multicast: ArcPoint,
    pub counter: Arc<SimpleCounters>,
    pub thread: usize,
    /// Whether any interface has a feature, asked once a vector.
    features: bool,
    run: (u32, u64),
}

impl Common {
    pub fn new(interfaces: IfTable, unicast: ArcPoint, multicast: ArcPoint, counter: Arc<SimpleCounters>, thread: usize) -> Self {
        Self { interfaces, unicast, multicast, counter, thread, features: false, run: (0, 0) }
    }

    #[inline(always)]
    fn begin(&mut self) {
        self.features = self.unicast.is_active() | self.multicast.is_active();
    }

    /// Counts packets of an interface, one addition a run.
    #[inline(always)]
    fn count(&mut self, interface: IfIndex) {
        if interface.0 != self.run.0 {
            self.flush();
            self.run.0 = interface.0;
        }
        self.run.1 += 1;
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.counter.add(self.thread, self.run.0, self.run.1);
        self.run.1 = 0;
    }

    #[inline(always)]
    fn next(&self, interface: IfIndex, multicast: bool, next: Verdict) -> Verdict {
        if !self.features {
            return next;
        }
        let arc = if multicast { &self.multicast } else { &self.unicast };
        arc.next(interface, next)
    }
}

/// `ip4-input`.
pub(super) struct Ip4Input(pub Common);

/// What is read of an IPv4 packet: its header as five words in host order, and what the link says of it.
#[derive(Clone, Copy)]
pub(super) struct In4 {
    /// Version and header length, type of service, total length.
    first: u32,
    /// Identification, flags and fragment offset.
    fragment: u32,
    /// Time to live, protocol, checksum.
    ttl: u32,
    src: u32,
    dst: u32,
    available: u32,
    context: u32,
    if_flags: u32,
}

/// What follows: length, whether it is multicast, and whether it must be looked at again. One word, so that little goes from
/// stage to stage.
#[derive(Clone, Copy)]
pub(super) struct Out(u32);

impl Out {
    const LENGTH: u32 = (1 << 17) - 1;
    const MULTICAST: u32 = 1 << 17;
    const LOOK_AGAIN: u32 = 1 << 31;

    #[inline(always)]
    fn new(length: u32, multicast: u32, doubts: u32) -> Self {
        Self(length | multicast << 17 | (is_zero(doubts) ^ 1) << 31)
    }

    #[inline(always)]
    fn length(self) -> usize {
        (self.0 & Self::LENGTH) as usize
    }

    #[inline(always)]
    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// 1 for 0, else 0. The checks below are arithmetic on words of 32 bits throughout: the compiler then does those of a group
/// of packets side by side, which comparisons of mixed widths prevent (measured: four times the instructions).
#[inline(always)]
fn is_zero(x: u32) -> u32 {
    (x.wrapping_sub(1) & !x) >> 31
}

/// 1 where `a` is less than `b`, else 0, for values below 2^31.
#[inline(always)]
fn less(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) >> 31
}

impl In4 {
    /// Not zero unless the packet is plain and right: no options, lengths that agree, a right checksum, no fragment that
    /// would overwrite TCP's flags (RFC 1858), addresses of hosts or groups. What has doubts is looked at again.
    #[inline(always)]
    fn verdict(self) -> Out {
        let length = self.first & 0xffff;
        let words = [self.first, self.fragment, self.ttl, self.src, self.dst];
        let sum = words.iter().fold(0, |sum, w| sum + (w & 0xffff) + (w >> 16));
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let tiny_tcp = (self.fragment & 0x1fff ^ 1) | (self.ttl >> 16 & 0xff ^ IpProtocol::TCP.0 as u32);
        let (src, dst) = (self.src >> 24, self.dst >> 24);
        let multicast = is_zero(dst >> 4 ^ 0xe);
        let enabled = (self.if_flags / u32::from(if_flags::IP4)) & 1;
        let doubts = (self.first >> 24 ^ 0x45)
            | less(length, 20)
            | less(self.available, length)
            | (sum ^ 0xffff)
            | is_zero(tiny_tcp)
            | is_zero(src)
            | is_zero(src ^ 127)
            | less(223, src)
            | is_zero(dst)
            | is_zero(dst ^ 127)
            | less(239, dst)
            | ((self.context / flags::LINK_MULTICAST) & (multicast ^ 1) & 1)
            | (enabled ^ 1);
        Out::new(length, multicast, doubts)
    }
}

/// Whether the addresses are ones that this router may take from a link: sources, destinations, and the way they came.
fn addresses4(src: u32, dst: u32, context: u32) -> (bool, bool, bool) {
    let unicast = dst < 0xe000_0000;
    // 0.0.0.0 may ask for an address (DHCP) or report a group (IGMP), but not send to a host.
    let source = !ipv4::is_martian_src(src) | ((src == 0) & !unicast);
    let destination = !ipv4::is_martian_dst(dst) | (dst == u32::MAX);
    let link = !(unicast & (context & flags::LINK_MULTICAST != 0));
    (source, destination, link)
}

impl Node for Ip4Input {
    type Next = Next4;
    type Drop = Drop4;
    type In = In4;
    type Out = Out;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In4 {
        let [first, fragment, ttl, src, dst] = packet.head::<[U32Be; 5]>();
        In4 {
            first: first.get(),
            fragment: fragment.get(),
            ttl: ttl.get(),
            src: src.get(),
            dst: dst.get(),
            available: packet.total_len() as u32,
            context: packet.context(),
            if_flags: self.0.interfaces.flags(packet.rx_if()).into(),
        }
    }

    #[inline(always)]
    fn compute(&self, x: In4) -> Out {
        x.verdict()
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, _: In4, out: Out) -> Verdict {
        self.0.count(packet.rx_if());
        if out.has(Out::LOOK_AGAIN) {
            let (available, flags) = (packet.total_len() as u32, self.0.interfaces.flags(packet.rx_if()));
            if let Some(reason) = why4(packet.bytes(), available, packet.context(), flags) {
                return packet.drop(reason);
            }
        }
        packet.trim(out.length());
        let multicast = out.has(Out::MULTICAST);
        let next = Verdict::select(multicast, Next4::Multicast.into(), Next4::Lookup.into());
        self.0.next(packet.rx_if(), multicast, next)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

/// What is wrong with a packet that is not plain; options alone are not. The arguments are values and not what the node
/// has in its hands, so that these stay in registers.
#[cold]
fn why4(bytes: &[u8], available: u32, context: u32, if_flags: u16) -> Option<Drop4> {
    let header = match Ipv4Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            let header = Ipv4Header::read(bytes);
            // Only the first buffer was looked at.
            match (error, header) {
                (Ipv4Error::Truncated, Some(header)) if u32::from(header.total_len.get()) <= available => header,
                (Ipv4Error::TooShort | Ipv4Error::BadTotalLength, _) => return Some(Drop4::TooShort),
                (Ipv4Error::BadChecksum, _) => return Some(Drop4::BadChecksum),
                (Ipv4Error::BadVersion, _) => return Some(Drop4::BadVersion),
                (Ipv4Error::BadHeaderLength, _) => return Some(Drop4::BadHeader),
                (Ipv4Error::Truncated, _) => return Some(Drop4::BadLength),
            }
        }
    };
    if header.is_tiny_tcp_fragment() {
        return Some(Drop4::FragmentOffsetOne);
    }
    let (source, destination, link) = addresses4(header.src.get(), header.dst.get(), context);
    if !source {
        return Some(Drop4::Source);
    }
    if !destination {
        return Some(Drop4::Destination);
    }
    if !link {
        return Some(Drop4::LinkBroadcast);
    }
    if if_flags & if_flags::IP4 == 0 {
        return Some(Drop4::NotEnabled);
    }
    let options = bytes.get(size_of::<Ipv4Header>()..header.header_len()).unwrap_or_default();
    Ipv4Options::new(options).find_map(|option| match option {
        Ok(option) => is_source_route(&option).then_some(Drop4::SourceRoute),
        Err(_) => Some(Drop4::BadOptions),
    })
}

/// Source routes are not followed (RFC 7126, 4.3 and 4.4); other options pass unchanged.
fn is_source_route(option: &Ipv4Option<'_>) -> bool {
    [Ipv4Option::LOOSE_SOURCE_ROUTE, Ipv4Option::STRICT_SOURCE_ROUTE].contains(&option.kind)
}

/// `ip6-input`.
pub(super) struct Ip6Input(pub Common);

/// What is read of an IPv6 packet, in host order; of addresses the first words.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    /// Version, class, flow label.
    first: u32,
    /// Payload length, next header, hop limit.
    second: u32,
    src: u32,
    dst: u32,
    available: u32,
    context: u32,
    if_flags: u32,
}

impl In6 {
    /// As for IPv4: version, length, addresses of hosts or groups. Addresses that begin with 32 zeros are looked at again:
    /// the unspecified one and loopback are among them.
    #[inline(always)]
    fn verdict(self) -> Out {
        let length = (self.second >> 16) + size_of::<Ipv6Header>() as u32;
        let multicast = is_zero(self.dst >> 24 ^ 0xff);
        let enabled = (self.if_flags / u32::from(if_flags::IP6)) & 1;
        let doubts = (self.first >> 28 ^ 6)
            | less(self.available, length)
            | is_zero(self.src >> 24 ^ 0xff)
            | is_zero(self.src)
            | is_zero(self.dst)
            // Groups of interface or reserved scope.
            | (multicast & less(self.dst >> 16 & 0xf, 2))
            | ((self.context / flags::LINK_MULTICAST) & (multicast ^ 1) & 1)
            | (enabled ^ 1);
        Out::new(length, multicast, doubts)
    }
}

impl Node for Ip6Input {
    type Next = Next6;
    type Drop = Drop6;
    type In = In6;
    type Out = Out;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In6 {
        let [first, second, src] = packet.head::<[U32Be; 3]>();
        In6 {
            first: first.get(),
            second: second.get(),
            src: src.get(),
            dst: packet.head_at::<U32Be, 24>().get(),
            available: packet.total_len() as u32,
            context: packet.context(),
            if_flags: self.0.interfaces.flags(packet.rx_if()).into(),
        }
    }

    #[inline(always)]
    fn compute(&self, x: In6) -> Out {
        x.verdict()
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, _: In6, out: Out) -> Verdict {
        self.0.count(packet.rx_if());
        if out.has(Out::LOOK_AGAIN) {
            let (available, flags) = (packet.total_len() as u32, self.0.interfaces.flags(packet.rx_if()));
            if let Some(reason) = why6(packet.bytes(), available, packet.context(), flags) {
                return packet.drop(reason);
            }
        }
        packet.trim(out.length());
        let multicast = out.has(Out::MULTICAST);
        let next = Verdict::select(multicast, Next6::Multicast.into(), Next6::Lookup.into());
        self.0.next(packet.rx_if(), multicast, next)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

/// What is wrong with a packet that has doubts, if anything is.
#[cold]
fn why6(bytes: &[u8], available: u32, context: u32, if_flags: u16) -> Option<Drop6> {
    let Some(header) = Ipv6Header::read(bytes) else { return Some(Drop6::TooShort) };
    let (src, dst) = (header.src.get(), header.dst.get());
    let multicast = ipv6::address::is_multicast(dst);
    // The unspecified address asks whether an address is free (duplicate address detection), which goes to groups.
    let source = !ipv6::address::is_martian_src(src) || (src == 0 && multicast);
    if header.version() != 6 {
        Some(Drop6::BadVersion)
    } else if !header.is_valid(available as usize) {
        Some(Drop6::BadLength)
    } else if !source {
        Some(Drop6::Source)
    } else if ipv6::address::is_martian_dst(dst) {
        Some(Drop6::Destination)
    } else if !multicast && context & flags::LINK_MULTICAST != 0 {
        Some(Drop6::LinkMulticast)
    } else if if_flags & if_flags::IP6 == 0 {
        Some(Drop6::NotEnabled)
    } else {
        None
    }
}
