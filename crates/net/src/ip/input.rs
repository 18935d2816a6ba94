//! `ip4-input` and `ip6-input`: is this a packet that a router may take (RFC 1812, 5.2.2 and 5.3.7; RFC 8200, 3)?
//!
//! One expression says whether a packet is plain and right; all others (options, errors) are looked at again, to find out
//! what it is about them. TTL and hop limit are not looked at here: a packet for the router itself is welcome whatever they
//! are (RFC 1812, 4.2.2.9).

use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{ArcPoint, Group, IfIndex, LoopConfig, Node, NodeCx, Pkt, Sent, Verdict, drop_reasons, flags, next_nodes};
use quiver_wire::Header as _;
use quiver_wire::ipv4::{self, Ipv4Error, Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::{self, Ipv6Header};

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
    /// The interface of a run of packets.
    run: u32,
    /// Its flags, asked once a run.
    if_flags: u16,
    /// Packets of the run so far.
    packets: u64,
}

impl Common {
    pub fn new(interfaces: IfTable, unicast: ArcPoint, multicast: ArcPoint, counter: Arc<SimpleCounters>, thread: usize) -> Self {
        Self { interfaces, unicast, multicast, counter, thread, features: false, run: u32::MAX, if_flags: 0, packets: 0 }
    }

    #[inline(always)]
    fn begin(&mut self) {
        self.features = self.unicast.is_active() | self.multicast.is_active();
    }

    /// Counts a packet of an interface, one addition a run, and says whether the interface takes this protocol.
    #[inline(always)]
    fn count(&mut self, interface: IfIndex, protocol: u16) -> bool {
        self.turn_to(interface);
        self.packets += 1;
        self.if_flags & protocol != 0
    }

    /// Begins another run where the interface is another one.
    #[inline(always)]
    fn turn_to(&mut self, interface: IfIndex) {
        if interface.0 != self.run {
            if self.packets != 0 {
                self.flush();
            }
            self.run = interface.0;
            self.if_flags = self.interfaces.flags(interface);
        }
    }

    /// Ends a run, and with a vector what is known of its interface.
    #[inline(never)]
    fn flush(&mut self) {
        if self.packets != 0 {
            self.counter.add(self.thread, self.run, self.packets);
        }
        (self.run, self.packets) = (u32::MAX, 0);
    }

    /// Counts a group of plain packets of interfaces that take this protocol, and says whether it is one.
    #[inline(always)]
    fn count_group<const W: usize>(&mut self, group: &Group<'_, W>, protocol: u16) -> bool {
        let interface = group.first_rx_if();
        self.turn_to(interface);
        if !group.all_plain_from(interface.0) {
            return group.plain_interfaces().is_some_and(|interfaces| self.count_several(&interfaces, protocol));
        }
        if self.if_flags & protocol == 0 {
            return false;
        }
        self.packets += W as u64;
        true
    }

    /// The same where interfaces are several; not where one may have a feature, which is for each packet to say.
    #[inline(always)]
    fn count_several(&mut self, interfaces: &[IfIndex], protocol: u16) -> bool {
        let flags = interfaces.iter().fold(u16::MAX, |flags, interface| flags & self.interfaces.flags(*interface));
        if self.features || flags & protocol == 0 {
            return false;
        }
        for interface in interfaces {
            self.counter.add(self.thread, interface.0, 1);
        }
        true
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

/// What is read of an IPv4 packet: its header as it stands in memory.
#[derive(Clone, Copy)]
pub(super) struct In4 {
    /// Version and header length, type of service, total length, identification, flags and fragment offset.
    first: u64,
    /// Time to live, protocol, checksum, source.
    second: u64,
    dst: u32,
}

impl In4 {
    /// Total length.
    #[inline(always)]
    fn length(self) -> u32 {
        ((self.first >> 8) & 0xff00 | (self.first >> 24) & 0xff) as u32
    }

    /// Zero where there is nothing to be looked at again: no options, no later fragment, addresses of hosts, lengths that agree.
    /// Without a branch, so that the headers of several packets are checked at once.
    #[inline(always)]
    fn oddity(self, available: u32) -> u64 {
        let length = self.length();
        (self.first ^ 0x45) & (0xff | u64::from(0x1fff_u16.to_be()) << 48)
            | u64::from(length.wrapping_sub(size_of::<Ipv4Header>() as u32) | available.wrapping_sub(length)) >> 31
            | not_of_a_host(self.second >> 32 & 0xff)
            | not_of_a_host(u64::from(self.dst) & 0xff)
            | checksum_error(self.first, self.second, self.dst.into())
    }
}

/// Zero for the first byte of a host's IPv4 address: not of this network (0), loopback, groups or class E.
#[inline(always)]
const fn not_of_a_host(byte: u64) -> u64 {
    (byte.wrapping_sub(1) | (byte ^ 127).wrapping_sub(1) | 223_u64.wrapping_sub(byte)) >> 63
}

/// Zero where the words of an IPv4 header without options have the right checksum (RFC 1071); in steps that several headers
/// can take at once.
#[inline(always)]
const fn checksum_error(first: u64, second: u64, dst: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let sum = (first & LOW) + (first >> 32) + (second & LOW) + (second >> 32) + dst;
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) ^ 0xffff
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
    type Out = ();
    const LOOP: LoopConfig = LoopConfig::GROUPS;
    const GROUPS: bool = true;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.begin();
    }

    #[inline(always)]
    fn load(&self, packet: &Pkt<'_>) -> In4 {
        In4 { first: packet.head(), second: packet.head_at::<_, 8>(), dst: packet.head_at::<_, 16>() }
    }

    #[inline(always)]
    fn compute(&self, _: In4) {}

    #[inline(always)]
    fn group<const W: usize>(&mut self, group: &mut Group<'_, W>) -> Option<Sent> {
        let first: [u64; W] = group.heads::<_, 0>();
        let second: [u64; W] = group.heads::<_, 8>();
        let dst: [u32; W] = group.heads::<_, 16>();
        let lens = group.lens();
        let mut lengths = [0; W];
        let mut odd = 0;
        for k in 0..W {
            let x = In4 { first: first[k], second: second[k], dst: dst[k] };
            lengths[k] = x.length();
            odd |= x.oddity(lens[k]);
        }
        if odd != 0 || !self.0.count_group(group, if_flags::IP4) {
            return None;
        }
        group.cut(lengths);
        Some(group.send_all(self.0.next(IfIndex(self.0.run), false, Next4::Lookup.into())))
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In4, (): ()) -> Verdict {
        let interface = packet.rx_if();
        let enabled = self.0.count(interface, if_flags::IP4);
        let simple = packet.context() & (flags::CHAINED | flags::LINK_MULTICAST) == 0;
        if enabled & simple & (x.oddity(packet.len() as u32) == 0) {
            packet.cut(x.length() as usize);
            return self.0.next(interface, false, Next4::Lookup.into());
        }
        let flags = self.0.interfaces.flags(interface);
        match look_again4(&mut packet.again(), flags) {
            Ok(multicast) => {
                let next = if multicast { Next4::Multicast } else { Next4::Lookup };
                self.0.next(interface, multicast, next.into())
            }
            Err(verdict) => verdict,
        }
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

/// The rules, for a packet that is not plain: whether it goes to a group, or that it is dropped.
#[inline(never)]
fn look_again4(packet: &mut Pkt<'_>, if_flags: u16) -> Result<bool, Verdict> {
    if let Some(reason) = why4(packet.bytes(), packet.total_len() as u32, packet.context(), if_flags) {
        return Err(packet.drop(reason));
    }
    let header: Ipv4Header = packet.head();
    packet.trim(usize::from(header.total_len.get()));
    Ok(header.dst.get() >> 28 == 0xe)
}

/// What is wrong with a packet; options alone are not.
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

/// What is read of an IPv6 packet, as it stands in memory; of addresses the first words.
#[derive(Clone, Copy)]
pub(super) struct In6 {
    /// Version, class, flow label, payload length, next header, hop limit.
    first: u64,
    src: u32,
    dst: u32,
}

impl In6 {
    /// Length of the whole packet.
    #[inline(always)]
    fn length(self) -> usize {
        usize::from(((self.first >> 32) as u16).swap_bytes()) + size_of::<Ipv6Header>()
    }

    /// Whether there is nothing to be looked at again. Groups are, and addresses that begin with 32 zeros: the unspecified
    /// one and loopback are among them.
    #[inline(always)]
    fn is_plain(self, available: usize) -> bool {
        (self.first as u8 >> 4 == 6)
            & (self.length() <= available)
            & (self.src as u8 != 0xff)
            & (self.src != 0)
            & (self.dst as u8 != 0xff)
            & (self.dst != 0)
    }
}

impl Node for Ip6Input {
    type Next = Next6;
    type Drop = Drop6;
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
        In6 { first: packet.head(), src: packet.head_at::<_, 8>(), dst: packet.head_at::<_, 24>() }
    }

    #[inline(always)]
    fn compute(&self, _: In6) {}

    #[inline(always)]
    fn group<const W: usize>(&mut self, group: &mut Group<'_, W>) -> Option<Sent> {
        let first: [u64; W] = group.heads::<_, 0>();
        let src: [u32; W] = group.heads::<_, 8>();
        let dst: [u32; W] = group.heads::<_, 24>();
        let lens = group.lens();
        let mut lengths = [0; W];
        let mut odd = false;
        for k in 0..W {
            let length = ((first[k] >> 24) & 0xff00 | (first[k] >> 40) & 0xff) as u32 + size_of::<Ipv6Header>() as u32;
            lengths[k] = length;
            odd |= (first[k] & 0xf0 != 0x60) | (length > lens[k]);
            odd |= (src[k] & 0xff == 0xff) | (src[k] == 0) | (dst[k] & 0xff == 0xff) | (dst[k] == 0);
        }
        if odd || !self.0.count_group(group, if_flags::IP6) {
            return None;
        }
        group.cut(lengths);
        Some(group.send_all(self.0.next(IfIndex(self.0.run), false, Next6::Lookup.into())))
    }

    #[inline(always)]
    fn store(&mut self, mut packet: Pkt<'_>, x: In6, (): ()) -> Verdict {
        let interface = packet.rx_if();
        let enabled = self.0.count(interface, if_flags::IP6);
        let simple = packet.context() & (flags::CHAINED | flags::LINK_MULTICAST) == 0;
        if enabled & simple & x.is_plain(packet.len()) {
            packet.cut(x.length());
            return self.0.next(interface, false, Next6::Lookup.into());
        }
        let flags = self.0.interfaces.flags(interface);
        match look_again6(&mut packet.again(), flags) {
            Ok(multicast) => {
                let next = if multicast { Next6::Multicast } else { Next6::Lookup };
                self.0.next(interface, multicast, next.into())
            }
            Err(verdict) => verdict,
        }
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.0.flush();
    }
}

/// The rules, for a packet that is not plain: whether it goes to a group, or that it is dropped.
#[inline(never)]
fn look_again6(packet: &mut Pkt<'_>, if_flags: u16) -> Result<bool, Verdict> {
    if let Some(reason) = why6(packet.bytes(), packet.total_len() as u32, packet.context(), if_flags) {
        return Err(packet.drop(reason));
    }
    let header: Ipv6Header = packet.head();
    packet.trim(usize::from(header.payload_len.get()) + size_of::<Ipv6Header>());
    Ok(ipv6::address::is_multicast(header.dst.get()))
}

/// What is wrong with a packet, if anything is.
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
