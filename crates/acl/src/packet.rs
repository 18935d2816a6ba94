//! What access lists see of a packet. Any bytes are read without a panic; what cannot be read gives nothing.

use quiver_tables::hash::Noted;
use quiver_wire::Header;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Ipv6Header, upper_layer};

/// Stands in a field of ports where a packet has none: no port is as high.
pub const NO_PORT: u32 = 0x1_0000;
/// Fields of IPv4: addresses, protocol, two ports.
pub const FOUR: usize = 5;
/// Fields of IPv6, whose addresses are four words each.
pub const SIX: usize = 11;

/// How a packet belongs to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// By addresses, protocol and ports.
    Ports,
    /// As a query of ICMP or its answer, by this identifier.
    Query {
        /// Identifier.
        identifier: u16,
        /// It is a query, and not the answer to one.
        asks: bool,
    },
    /// As an ICMP error about the packet whose header begins at this offset: it goes against the session's packets.
    Error(usize),
    /// Not at all: other ICMP messages, and what has no ports because it is cut off.
    None,
    /// A fragment that is not the first one of its datagram: its ports are elsewhere.
    Later,
}

/// What is seen of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<const D: usize> {
    /// Source, destination, protocol, and ports or type and code of ICMP; as rules have them.
    pub fields: [u32; D],
    /// TCP flags (RFC 9293, 3.1); 0 where there are none.
    pub tcp_flags: u8,
    /// How it belongs to a session.
    pub flow: Flow,
}

impl<const D: usize> Seen<D> {
    /// Words of an address.
    const WORDS: usize = (D - 3) / 2;

    /// Words of source and destination.
    #[inline(always)]
    pub fn addresses(&self) -> (&[u32], &[u32]) {
        self.fields[..2 * Self::WORDS].split_at(Self::WORDS)
    }

    /// Protocol.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.fields[D - 3] as u8
    }

    /// The two ports as they stand in a session's key.
    #[inline(always)]
    fn ports(&self) -> (u16, u16) {
        match self.flow {
            Flow::Query { identifier, .. } => (identifier, identifier),
            // Without ports both are 0.
            _ => (self.fields[D - 2] as u16, self.fields[D - 1] as u16),
        }
    }

    /// The part of a session's key behind the addresses, which are the same for both directions of a flow (`tx`: it leaves by the
    /// interface): as a packet has them that comes in.
    #[inline(always)]
    pub fn word(&self, interface: u32, tx: bool) -> u64 {
        let (source, destination) = self.ports();
        let (source, destination) = if tx { (destination, source) } else { (source, destination) };
        // Whose queries they are: an answer goes with those of the other direction.
        let asked_outside = matches!(self.flow, Flow::Query { asks, .. } if asks == tx);
        u64::from(source) << 48
            | u64::from(destination) << 32
            | u64::from(self.protocol()) << 24
            | u64::from(asked_outside) << 23
            | u64::from(interface & 0x7f_ffff)
    }

    /// What follows from the upper layer's bytes.
    #[inline(always)]
    fn upper(&mut self, bytes: &[u8], at: usize, is_icmp: bool, query: fn(u8) -> Option<bool>, error: fn(u8) -> bool) {
        let upper = bytes.get(at..).unwrap_or_default();
        let protocol = self.protocol();
        if is_icmp {
            let &[kind, code, ..] = upper else { return };
            (self.fields[D - 2], self.fields[D - 1]) = (kind.into(), code.into());
            if let (Some(asks), Some(&[high, low])) = (query(kind), upper.get(4..6).and_then(|bytes| bytes.first_chunk())) {
                self.flow = Flow::Query { identifier: u16::from_be_bytes([high, low]), asks };
            } else if error(kind) {
                self.flow = Flow::Error(at + 8);
            }
        } else if has_ports(protocol) {
            let &[a, b, c, d, ..] = upper else { return };
            self.fields[D - 2] = u16::from_be_bytes([a, b]).into();
            self.fields[D - 1] = u16::from_be_bytes([c, d]).into();
            self.flow = Flow::Ports;
            if protocol == IpProtocol::TCP.0 {
                self.tcp_flags = upper.get(13).copied().unwrap_or_default();
            }
        } else {
            self.flow = Flow::Ports;
        }
    }
}

/// Protocols whose headers begin with two ports: TCP, UDP, DCCP (RFC 4340), SCTP (RFC 9260), UDP-Lite (RFC 3828).
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// An address family as access lists see it.
pub trait Family<const D: usize>: Copy + Send + Sync + 'static {
    /// Key of a session.
    type Key: quiver_tables::hash::Key;

    /// Looks at a packet that begins with an IP header. Nothing where that, or the chain of headers behind it, cannot be followed.
    fn look(bytes: &[u8]) -> Option<Seen<D>>;

    /// The session's key.
    fn key(seen: &Seen<D>, interface: u32, tx: bool) -> Self::Key;
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Four;
/// IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Six;

impl Family<FOUR> for Four {
    type Key = Noted<u128>;

    #[inline(always)]
    fn look(bytes: &[u8]) -> Option<Seen<FOUR>> {
        let header = Ipv4Header::read(bytes).filter(|header| (0x45..=0x4f).contains(&header.version_ihl))?;
        let protocol = header.protocol.0;
        let fields = [header.src.get(), header.dst.get(), protocol.into(), NO_PORT, NO_PORT];
        let mut seen = Seen { fields, tcp_flags: 0, flow: Flow::None };
        if header.fragment.get() & 0x1fff != 0 {
            seen.flow = Flow::Later;
            return Some(seen);
        }
        // Echo, timestamp, information, mask (RFC 792, RFC 950).
        let query = |kind| match kind {
            8 | 13 | 15 | 17 => Some(true),
            0 | 14 | 16 | 18 => Some(false),
            _ => None,
        };
        seen.upper(bytes, header.header_len(), protocol == 1, query, |kind| matches!(kind, 3 | 11 | 12));
        Some(seen)
    }

    #[inline(always)]
    fn key(seen: &Seen<FOUR>, interface: u32, tx: bool) -> Noted<u128> {
        let [source, destination, ..] = seen.fields;
        let (inner, outer) = if tx { (destination, source) } else { (source, destination) };
        Noted(u128::from(inner) << 96 | u128::from(outer) << 64 | u128::from(seen.word(interface, tx)))
    }
}

impl Family<SIX> for Six {
    type Key = Noted<[u8; 40]>;

    #[inline(always)]
    fn look(bytes: &[u8]) -> Option<Seen<SIX>> {
        let header = Ipv6Header::read(bytes).filter(|_| bytes[0] >> 4 == 6)?;
        let mut fields = [NO_PORT; SIX];
        for (to, word) in fields.iter_mut().zip(words(header.src.get()).into_iter().chain(words(header.dst.get()))) {
            *to = word;
        }
        let (protocol, at, later) = if is_extension(header.next_header.0) {
            let upper = upper_layer(&header, bytes).ok()?;
            let later = upper.fragment.is_some_and(|fragment| fragment.offset != 0);
            (upper.protocol.0, usize::from(upper.offset), later)
        } else {
            (header.next_header.0, Ipv6Header::LEN, false)
        };
        fields[SIX - 3] = protocol.into();
        let mut seen = Seen { fields, tcp_flags: 0, flow: if later { Flow::Later } else { Flow::None } };
        if !later {
            // Echo, node information (RFC 4443, RFC 4620).
            let query = |kind| match kind {
                128 | 139 => Some(true),
                129 | 140 => Some(false),
                _ => None,
            };
            seen.upper(bytes, at, protocol == 58, query, |kind| matches!(kind, 1..=4));
        }
        Some(seen)
    }

    #[inline(always)]
    fn key(seen: &Seen<SIX>, interface: u32, tx: bool) -> Noted<[u8; 40]> {
        let (source, destination) = seen.addresses();
        let (inner, outer) = if tx { (destination, source) } else { (source, destination) };
        let mut key = [0; 40];
        for (to, word) in key.as_chunks_mut::<4>().0.iter_mut().zip(inner.iter().chain(outer)) {
            *to = word.to_ne_bytes();
        }
        key[32..].copy_from_slice(&seen.word(interface, tx).to_ne_bytes());
        Noted(key)
    }
}

/// An IPv6 address as words.
pub fn words(address: u128) -> [u32; 4] {
    [(address >> 96) as u32, (address >> 64) as u32, (address >> 32) as u32, address as u32]
}

/// Headers between IPv6's and the upper layer's.
const fn is_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | 44 | 51 | 60)
}

/// The session that an ICMP error belongs to, by the packet that it quotes.
#[inline(never)]
pub fn quoted<F: Family<D>, const D: usize>(bytes: &[u8], at: usize, interface: u32, tx: bool) -> Option<F::Key> {
    let seen = F::look(bytes.get(at..)?)?;
    matches!(seen.flow, Flow::Ports | Flow::Query { .. }).then(|| F::key(&seen, interface, !tx))
}

/// EtherType and the offset of what follows it.
pub fn ether_type(frame: &[u8]) -> Option<(usize, u16)> {
    const TAGS_MAX: usize = 4;
    quiver_wire::ethernet::skip_tags(frame, TAGS_MAX).map(|(at, kind)| (at, kind.0))
}
