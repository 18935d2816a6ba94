//! `ip4-input` and `ip6-input`: is this a packet that a router may take (RFC 1812, 5.2.2 and 5.3.7; RFC 8200, 3)?
//!
//! The fast path is one expression, which says that a packet is of the common case and right; all others (options, errors) take
//! the slow path, which classifies them. TTL and hop limit are not looked at here: a packet for the router itself is welcome
//! whatever they are (RFC 1812, 4.2.2.9).

use std::sync::Arc;

use quiver_graph::stats::{SimpleCounters, SimpleRows};
use quiver_graph::{
    ArcPoint, Batch, DropReasons, FastPath, IfIndex, NextNodes, Node, NodeCx, Pkt, Sent, Shared, Verdict, drop_reasons, flags,
    next_nodes,
};
use quiver_wire::Header as _;
use quiver_wire::ipv4::{self, Ipv4Error, Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::{self, Ipv6Header};

use super::{Family, V4, V6};
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
        /// The packet is shorter than an IPv4 header.
        TooShort = "ip4 length < 20 bytes",
        /// The header says that the packet is longer than what arrived.
        BadLength = "ip4 length > l2 length",
        /// The checksum of the header is wrong: the packet was damaged on its way.
        ///
        /// Causes: a damaged cable, transceiver or network card on the way; a sender that leaves checksums to a device that does
        /// not fill them in (virtual machines, veth).
        /// Check: `show hardware-interfaces` for receive errors; on Linux' side of a TAP or veth, `ethtool -K IF tx off`.
        /// See: `show hardware-interfaces`, `/if/rx-error`.
        BadChecksum = "bad ip4 checksum",
        /// The EtherType says IPv4, the version field does not.
        BadVersion = "ip4 version != 4",
        /// The header's length is less than 20 bytes or more than the packet.
        BadHeader = "ip4 header length",
        /// The options of the header do not add up.
        BadOptions = "malformed ip4 options",
        /// The sender prescribes the path (source route), which is refused.
        ///
        /// Causes: a diagnostic tool or an attack.
        /// Check: nothing; source routes are refused on purpose. A capture shows the sender.
        /// See: `pcap trace drop`.
        SourceRoute = "ip4 source route option",
        /// A TCP fragment at such an offset that it would overwrite part of the first fragment's TCP header.
        FragmentOffsetOne = "ip4 fragment offset == 1",
        /// The source address is a group, a broadcast or a loopback address.
        ///
        /// Causes: a misconfigured or forged sender.
        /// Check: find the sender by its MAC address in a capture of drops.
        /// See: `pcap trace drop`.
        Source = "ip4 source address cannot be one",
        /// The destination address is one that no packet on a link may have, such as 127.0.0.1 or 0.0.0.0.
        Destination = "ip4 destination address cannot be one",
        /// A packet for one host came in a frame for all.
        LinkBroadcast = "ip4 unicast in a link broadcast",
        /// The interface has no IPv4 address.
        ///
        /// Causes: the interface has no address; the address is on the parent and the packets come in on a sub-interface, or the
        /// other way round.
        /// Check: `show interface address`, then `set interface ip address IF ADDRESS/LENGTH`, or `set interface unnumbered`.
        /// See: `show interface address`, `set interface ip address`.
        NotEnabled = "ip4 not enabled on the interface",
    }
}

drop_reasons! {
    /// Why IPv6 packets are dropped.
    pub enum Drop6 {
        /// The packet is shorter than an IPv6 header.
        TooShort = "ip6 length < 40 bytes",
        /// The header says that the packet is longer than what arrived.
        BadLength = "ip6 length > l2 length",
        /// The EtherType says IPv6, the version field does not.
        BadVersion = "ip6 version != 6",
        /// The source address is a group or the loopback address.
        Source = "ip6 source address cannot be one",
        /// The destination address is one that no packet on a link may have, such as ::1 or ::.
        Destination = "ip6 destination address cannot be one",
        /// A packet for one host came in a frame for a group.
        LinkMulticast = "ip6 unicast in a link multicast",
        /// The interface has no IPv6 address and IPv6 is not enabled on it.
        ///
        /// Causes: the interface has no IPv6 address, and IPv6 was not enabled on it; hosts on the link send router solicitations
        /// and neighbor discovery by themselves.
        /// Check: `show ip6 interface`, then `enable ip6 interface IF` or `set interface ip address IF ADDRESS/LENGTH`.
        /// See: `show ip6 interface`, `set interface ip address`.
        NotEnabled = "ip6 not enabled on the interface",
    }
}

/// What differs between the families in these checks.
pub trait InputFamily: Family {
    /// Where packets go.
    type InputNext: NextNodes;
    /// Why packets are dropped.
    type InputDrop: DropReasons;
    /// To the lookup, and where multicast goes.
    const NEXT: [Self::InputNext; 2];
    /// The flag of interfaces that take this family.
    const ENABLED: u16;

    /// Lengths of the packets of a batch, and zero where all are of the common case and right.
    fn lengths<const W: usize>(batch: &Batch<'_, W>) -> ([u32; W], u64);

    /// Length of a packet and whether it is multicast, or what is wrong with it.
    ///
    /// # Errors
    /// The reason.
    fn check(packet: &Pkt<'_, Shared>, if_flags: u16) -> Result<(usize, bool), Self::InputDrop>;
}

/// The node.
#[derive(Clone)]
pub struct Input<F> {
    interfaces: IfTable,
    unicast: ArcPoint,
    multicast: ArcPoint,
    counter: SimpleRows<1>,
    /// Whether any interface has a feature, asked once a vector.
    features: bool,
    /// The interface of a run of packets.
    run: u32,
    /// Its flags, asked once a run.
    if_flags: u16,
    /// Packets of the run so far.
    packets: u64,
    family: std::marker::PhantomData<F>,
}

impl<F: InputFamily> Input<F> {
    pub(super) fn new(interfaces: IfTable, [unicast, multicast]: [ArcPoint; 2], counter: &Arc<SimpleCounters>) -> Self {
        let family = std::marker::PhantomData;
        Self {
            interfaces,
            unicast,
            multicast,
            counter: SimpleRows::new([counter], 0),
            features: false,
            run: u32::MAX,
            if_flags: 0,
            packets: 0,
            family,
        }
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
            self.counter.add(self.run, [self.packets]);
        }
        (self.run, self.packets) = (u32::MAX, 0);
    }

    /// Counts a batch of packets of interfaces that take this protocol, and says whether it is one.
    #[inline(always)]
    fn count<const W: usize>(&mut self, batch: &Batch<'_, W>) -> bool {
        // Only the whole rule looks behind the first segment, and at the destination of what came as link-layer multicast.
        const SLOW: u32 = flags::CHAINED | flags::LINK_MULTICAST;
        let interface = batch.first_rx_if();
        self.turn_to(interface);
        if !batch.all_from(interface, SLOW) {
            return batch.interfaces(SLOW).is_some_and(|interfaces| self.count_several(&interfaces));
        }
        if self.if_flags & F::ENABLED == 0 {
            return false;
        }
        self.packets += W as u64;
        true
    }

    /// The same where interfaces are several; not where one may have a feature, which is for each packet to say.
    #[inline(always)]
    fn count_several(&mut self, interfaces: &[IfIndex]) -> bool {
        let records = self.interfaces.view();
        let flags = interfaces.iter().fold(u16::MAX, |flags, interface| flags & (records.link(*interface) >> 48) as u16);
        if self.features || flags & F::ENABLED == 0 {
            return false;
        }
        for interface in interfaces {
            self.counter.add(interface.0, [1]);
        }
        true
    }

    /// The node behind, or the first feature of the interface.
    #[inline(always)]
    fn next(&self, interface: IfIndex, multicast: bool) -> Verdict {
        let next = F::NEXT[usize::from(multicast)].into();
        if !self.features {
            return next;
        }
        let arc = if multicast { &self.multicast } else { &self.unicast };
        arc.next(interface, next)
    }

    /// The rules, for any packet.
    #[inline(never)]
    fn slow(&self, mut packet: Pkt<'_, Shared>) -> Verdict {
        let interface = packet.rx_if();
        match F::check(&packet, self.if_flags) {
            Ok((length, multicast)) => {
                packet.trim(length);
                self.next(interface, multicast)
            }
            Err(reason) => packet.drop(reason),
        }
    }
}

impl<F: InputFamily> Node<Shared> for Input<F> {
    type Next = F::InputNext;
    type Drop = F::InputDrop;

    fn start(&mut self, thread: usize) {
        self.counter = self.counter.of_thread(thread);
    }

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.features = self.unicast.is_active() | self.multicast.is_active();
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
        self.turn_to(packet.rx_if());
        self.packets += 1;
        self.slow(packet)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.flush();
    }
}

impl<F: InputFamily> FastPath<Shared> for Input<F> {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let (lengths, obstacles) = F::lengths(batch);
        if obstacles != 0 || !self.count(batch) {
            return None;
        }
        batch.cut(lengths);
        Some(batch.send_all(self.next(IfIndex(self.run), false)))
    }
}

impl InputFamily for V4 {
    type InputNext = Next4;
    type InputDrop = Drop4;
    const NEXT: [Next4; 2] = [Next4::Lookup, Next4::Multicast];
    const ENABLED: u16 = if_flags::IP4;

    /// No options, no later fragment, addresses of hosts, lengths that agree. Without a branch, so that the headers of several
    /// packets are checked at once.
    #[inline(always)]
    fn lengths<const W: usize>(batch: &Batch<'_, W>) -> ([u32; W], u64) {
        // Version and header length, type of service, total length, identification, flags and fragment offset.
        let first: [u64; W] = batch.heads::<_, 0>();
        // Time to live, protocol, checksum, source.
        let second: [u64; W] = batch.heads::<_, 8>();
        let dst: [u32; W] = batch.heads::<_, 16>();
        let lens = batch.lens();
        let mut lengths = [0; W];
        let mut obstacles = 0;
        for k in 0..W {
            let (first, second, dst) = (first[k], second[k], u64::from(dst[k]));
            let length = ((first >> 8) & 0xff00 | (first >> 24) & 0xff) as u32;
            lengths[k] = length;
            obstacles |= (first ^ 0x45) & (0xff | u64::from(0x1fff_u16.to_be()) << 48)
                | u64::from(length.wrapping_sub(size_of::<Ipv4Header>() as u32) | lens[k].wrapping_sub(length)) >> 31
                | not_of_a_host(second >> 32 & 0xff)
                | not_of_a_host(dst & 0xff)
                | checksum_error(first, second, dst);
        }
        (lengths, obstacles)
    }

    fn check(packet: &Pkt<'_, Shared>, if_flags: u16) -> Result<(usize, bool), Drop4> {
        // A copy, which holds still while it is checked.
        let mut head = [0; ipv4::MAX_HEADER_LEN];
        let len = packet.len().min(head.len());
        packet.copy_out(0, &mut head[..len]);
        let header = check4(&head[..len], packet.total_len() as u32, packet.context(), if_flags)?;
        Ok((header.total_len.get().into(), header.dst.get() >> 28 == 0xe))
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

/// The header of a packet that is right, or what is wrong with it; options alone are not. `bytes`: the first of the packet, with all of
/// the header if the first segment has it.
fn check4(bytes: &[u8], available: u32, context: u32, if_flags: u16) -> Result<Ipv4Header, Drop4> {
    let header = match Ipv4Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            let header = Ipv4Header::read(bytes);
            // Only the first buffer was looked at.
            match (error, header) {
                (Ipv4Error::Truncated, Some(header)) if u32::from(header.total_len.get()) <= available => header,
                (Ipv4Error::TooShort | Ipv4Error::BadTotalLength, _) => return Err(Drop4::TooShort),
                (Ipv4Error::BadChecksum, _) => return Err(Drop4::BadChecksum),
                (Ipv4Error::BadVersion, _) => return Err(Drop4::BadVersion),
                (Ipv4Error::BadHeaderLength, _) => return Err(Drop4::BadHeader),
                (Ipv4Error::Truncated, _) => return Err(Drop4::BadLength),
            }
        }
    };
    if header.is_tiny_tcp_fragment() {
        return Err(Drop4::FragmentOffsetOne);
    }
    let (source, destination, link) = addresses4(header.src.get(), header.dst.get(), context);
    if !source {
        return Err(Drop4::Source);
    }
    if !destination {
        return Err(Drop4::Destination);
    }
    if !link {
        return Err(Drop4::LinkBroadcast);
    }
    if if_flags & if_flags::IP4 == 0 {
        return Err(Drop4::NotEnabled);
    }
    let options = bytes.get(size_of::<Ipv4Header>()..header.header_len()).unwrap_or_default();
    let refused = Ipv4Options::new(options).find_map(|option| match option {
        Ok(option) => is_source_route(&option).then_some(Drop4::SourceRoute),
        Err(_) => Some(Drop4::BadOptions),
    });
    refused.map_or(Ok(header), Err)
}

/// Source routes are not followed (RFC 7126, 4.3 and 4.4); other options pass unchanged.
fn is_source_route(option: &Ipv4Option<'_>) -> bool {
    [Ipv4Option::LOOSE_SOURCE_ROUTE, Ipv4Option::STRICT_SOURCE_ROUTE].contains(&option.kind)
}

impl InputFamily for V6 {
    type InputNext = Next6;
    type InputDrop = Drop6;
    const NEXT: [Next6; 2] = [Next6::Lookup, Next6::Multicast];
    const ENABLED: u16 = if_flags::IP6;

    /// Multicast takes the slow path, and addresses that begin with 32 zeros: the unspecified one and loopback are among them.
    #[inline(always)]
    fn lengths<const W: usize>(batch: &Batch<'_, W>) -> ([u32; W], u64) {
        // Version, class, flow label, payload length, next header, hop limit; of addresses the first words.
        let first: [u64; W] = batch.heads::<_, 0>();
        let src: [u32; W] = batch.heads::<_, 8>();
        let dst: [u32; W] = batch.heads::<_, 24>();
        let lens = batch.lens();
        let mut lengths = [0; W];
        let mut odd = false;
        for k in 0..W {
            let length = ((first[k] >> 24) & 0xff00 | (first[k] >> 40) & 0xff) as u32 + size_of::<Ipv6Header>() as u32;
            lengths[k] = length;
            odd |= (first[k] & 0xf0 != 0x60) | (length > lens[k]);
            odd |= (src[k] & 0xff == 0xff) | (src[k] == 0) | (dst[k] & 0xff == 0xff) | (dst[k] == 0);
        }
        (lengths, odd.into())
    }

    fn check(packet: &Pkt<'_, Shared>, if_flags: u16) -> Result<(usize, bool), Drop6> {
        let header = packet.read_at(0).ok_or(Drop6::TooShort)?;
        check6(&header, packet.total_len() as u32, packet.context(), if_flags)?;
        let length = usize::from(header.payload_len.get()) + size_of::<Ipv6Header>();
        Ok((length, ipv6::address::is_multicast(header.dst.get())))
    }
}

/// What is wrong with a header.
fn check6(header: &Ipv6Header, available: u32, context: u32, if_flags: u16) -> Result<(), Drop6> {
    let (src, dst) = (header.src.get(), header.dst.get());
    let multicast = ipv6::address::is_multicast(dst);
    // The unspecified address asks whether an address is free (duplicate address detection), which goes to groups.
    let source = !ipv6::address::is_martian_src(src) || (src == 0 && multicast);
    if header.version() != 6 {
        Err(Drop6::BadVersion)
    } else if !header.is_valid(available as usize) {
        Err(Drop6::BadLength)
    } else if !source {
        Err(Drop6::Source)
    } else if ipv6::address::is_martian_dst(dst) {
        Err(Drop6::Destination)
    } else if !multicast && context & flags::LINK_MULTICAST != 0 {
        Err(Drop6::LinkMulticast)
    } else if if_flags & if_flags::IP6 == 0 {
        Err(Drop6::NotEnabled)
    } else {
        Ok(())
    }
}
