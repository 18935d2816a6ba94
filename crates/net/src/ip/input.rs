//! `ip4-input` and `ip6-input`: is this a packet that a router may take (RFC 1812, 5.2.2 and 5.3.7; RFC 8200, 3)?
//!
//! One expression says whether a packet is plain and right; all others (options, errors) are looked at again, to find out
//! what it is about them. TTL and hop limit are not looked at here: a packet for the router itself is welcome whatever they
//! are (RFC 1812, 4.2.2.9).

use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{ArcPoint, IfIndex, Node, NodeCx, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::ipv4::{Ipv4Error, Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::{ipv4, ipv6};

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

/// What is read of an IPv4 packet.
#[derive(Clone, Copy)]
pub(super) struct In4 {
    header: Ipv4Header,
    available: u32,
    context: u32,
    if_flags: u16,
}

/// What follows from it.
#[derive(Clone, Copy)]
pub(super) struct Out {
    ok: bool,
    multicast: bool,
}

/// Whether the addresses are ones that this router may take from a link: sources, destinations, and the way they came.
#[inline(always)]
fn addresses4(header: &Ipv4Header, context: u32) -> (bool, bool, bool) {
    let (src, dst) = (header.src.get(), header.dst.get());
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
        In4 {
            header: packet.head(),
            available: packet.total_len() as u32,
            context: packet.context(),
            if_flags: self.0.interfaces.get(packet.rx_if()).flags,
        }
    }

    #[inline(always)]
    fn compute(&self, x: In4) -> Out {
        let (source, destination, link) = addresses4(&x.header, x.context);
        let enabled = x.if_flags & if_flags::IP4 != 0;
        let plain = x.header.is_plain_and_valid(x.available as usize) & !x.header.is_tiny_tcp_fragment();
        Out { ok: plain & source & destination & link & enabled, multicast: x.header.dst.get() >> 28 == 0xe }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In4, out: Out) -> Verdict {
        self.0.count(packet.rx_if());
        if !out.ok
            && let Err(reason) = why4(&packet, &x)
        {
            return packet.drop(reason);
        }
        packet.trim(usize::from(x.header.total_len.get()));
        let next = Verdict::select(out.multicast, Next4::Multicast.into(), Next4::Lookup.into());
        self.0.next(packet.rx_if(), out.multicast, next)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

/// What is wrong with a packet that is not plain; options alone are not.
#[cold]
fn why4(packet: &Pkt<'_>, x: &In4) -> Result<(), Drop4> {
    let header = match Ipv4Header::parse(packet.bytes()) {
        Ok(header) => header,
        // Only the first buffer was looked at.
        Err(Ipv4Error::Truncated) if u32::from(x.header.total_len.get()) <= x.available => x.header,
        Err(error) => {
            return Err(match error {
                Ipv4Error::TooShort | Ipv4Error::BadTotalLength => Drop4::TooShort,
                Ipv4Error::BadChecksum => Drop4::BadChecksum,
                Ipv4Error::BadVersion => Drop4::BadVersion,
                Ipv4Error::BadHeaderLength => Drop4::BadHeader,
                Ipv4Error::Truncated => Drop4::BadLength,
            });
        }
    };
    if header.is_tiny_tcp_fragment() {
        return Err(Drop4::FragmentOffsetOne);
    }
    let (source, destination, link) = addresses4(&header, x.context);
    if !source {
        return Err(Drop4::Source);
    }
    if !destination {
        return Err(Drop4::Destination);
    }
    if !link {
        return Err(Drop4::LinkBroadcast);
    }
    if x.if_flags & if_flags::IP4 == 0 {
        return Err(Drop4::NotEnabled);
    }
    if header.has_options() {
        let options = packet.bytes().get(size_of::<Ipv4Header>()..header.header_len()).unwrap_or_default();
        for option in Ipv4Options::new(options) {
            match option {
                Ok(option) if is_source_route(&option) => return Err(Drop4::SourceRoute),
                Ok(_) => {}
                Err(_) => return Err(Drop4::BadOptions),
            }
        }
    }
    Ok(())
}

/// Source routes are not followed (RFC 7126, 4.3 and 4.4); other options pass unchanged.
fn is_source_route(option: &Ipv4Option<'_>) -> bool {
    [Ipv4Option::LOOSE_SOURCE_ROUTE, Ipv4Option::STRICT_SOURCE_ROUTE].contains(&option.kind)
}

/// `ip6-input`.
pub(super) struct Ip6Input(pub Common);

/// What is read of an IPv6 packet.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    header: Ipv6Header,
    available: u32,
    context: u32,
    if_flags: u16,
}

#[inline(always)]
fn addresses6(header: &Ipv6Header, context: u32) -> (bool, bool, bool) {
    let (src, dst) = (header.src.get(), header.dst.get());
    let multicast = ipv6::address::is_multicast(dst);
    // The unspecified address asks whether an address is free (duplicate address detection), which goes to groups.
    let source = !ipv6::address::is_martian_src(src) | ((src == 0) & multicast);
    let destination = !ipv6::address::is_martian_dst(dst);
    let link = multicast | (context & flags::LINK_MULTICAST == 0);
    (source, destination, link)
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
        In6 {
            header: packet.head(),
            available: packet.total_len() as u32,
            context: packet.context(),
            if_flags: self.0.interfaces.get(packet.rx_if()).flags,
        }
    }

    #[inline(always)]
    fn compute(&self, x: In6) -> Out {
        let (source, destination, link) = addresses6(&x.header, x.context);
        let enabled = x.if_flags & if_flags::IP6 != 0;
        let ok = x.header.is_valid(x.available as usize) & source & destination & link & enabled;
        Out { ok, multicast: ipv6::address::is_multicast(x.header.dst.get()) }
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In6, out: Out) -> Verdict {
        self.0.count(packet.rx_if());
        if !out.ok {
            let reason = why6(&x);
            return packet.drop(reason);
        }
        packet.trim(usize::from(x.header.payload_len.get()) + size_of::<Ipv6Header>());
        let next = Verdict::select(out.multicast, Next6::Multicast.into(), Next6::Lookup.into());
        self.0.next(packet.rx_if(), out.multicast, next)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

#[cold]
fn why6(x: &In6) -> Drop6 {
    let (source, destination, link) = addresses6(&x.header, x.context);
    if (x.available as usize) < size_of::<Ipv6Header>() {
        Drop6::TooShort
    } else if x.header.version() != 6 {
        Drop6::BadVersion
    } else if !x.header.is_valid(x.available as usize) {
        Drop6::BadLength
    } else if !source {
        Drop6::Source
    } else if !destination {
        Drop6::Destination
    } else if !link {
        Drop6::LinkMulticast
    } else {
        Drop6::NotEnabled
    }
}
