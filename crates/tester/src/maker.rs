//! Makes the frames of a stream: a template copied, varying fields and the signature written into it, checksums adjusted.
//!
//! Sums over a template are kept with all varying bytes as zero. A frame's checksum is that sum plus its own words
//! (RFC 1624 with an old value of 0), so its cost does not depend on the frame's length.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_wire::checksum::{self, Sum};
use quiver_wire::ethernet::EtherType;
use quiver_wire::icmp4::Icmp4Header;
use quiver_wire::icmp6::Icmp6Header;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::tcp::TcpFlags;
use quiver_wire::vlan::Tci;
use quiver_wire::{MacAddr, build};

use crate::profile::{Field, L4, Side, SignatureMode, Size, Stream, Value};
use crate::random::Random;
use crate::signature::{LEN, Signature};
use crate::tracker::FIRST;

/// Bytes of a frame check sequence.
const FCS: usize = 4;
/// Local experimental EtherType (IEEE 802), for streams without IP.
const EXPERIMENTAL: EtherType = EtherType(0x88b5);

/// What a stream does not say itself.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Address of the port that sends.
    pub src: MacAddr,
    /// Address of the next hop, where it is known.
    pub dst: Option<MacAddr>,
    /// Whether the port carries Ethernet frames rather than IP packets.
    pub ethernet: bool,
    /// Number on the wire.
    pub id: u16,
    /// The trial.
    pub tag: u8,
    /// Seed where the stream has none.
    pub seed: u64,
}

/// Why a stream cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MakeError {
    /// Nobody says where to.
    #[error(
        "stream {0} has no destination: give its port `gateway=ADDRESS' or `dst-mac=ADDRESS', or the stream `ethernet: {{ dst: … }}'"
    )]
    NoDestination(String),
    /// It has no size of its own, and the trial none either.
    #[error("stream {0} has no size: give it one, or the trial --size")]
    NoSize(String),
    /// The trial's size is too small.
    #[error("stream {stream}: {error}")]
    Size {
        /// The stream.
        stream: String,
        /// What would do.
        error: String,
    },
    /// Tags and frames without IP need Ethernet.
    #[error("stream {0} has tags or no IP header, and its port carries IP packets only")]
    NeedsEthernet(String),
}

/// How a field gets its next value.
#[derive(Clone, Debug)]
enum Engine {
    Count { value: u128, first: u128, last: u128, step: u128 },
    Down { value: u128, first: u128, last: u128, step: u128 },
    List { values: Vec<u128>, at: usize },
    Random { random: Random, first: u128, span: u128 },
}

impl Engine {
    fn of<T: Value>(field: &Field<T>, seed: u64) -> Option<Self> {
        Some(match field {
            Field::Fixed(_) => return None,
            Field::List(values) => Self::List { values: values.iter().map(|v| v.number()).collect(), at: 0 },
            Field::Increment { first, last, step } => {
                Self::Count { value: first.number(), first: first.number(), last: last.number(), step: *step }
            }
            Field::Decrement { first, last, step } => {
                Self::Down { value: first.number(), first: first.number(), last: last.number(), step: *step }
            }
            Field::Random { first, last, seed: own } => Self::Random {
                random: Random::new(own.unwrap_or(seed)),
                first: first.number(),
                // Wraps to 0 for all of 128 bits.
                span: (last.number() - first.number()).wrapping_add(1),
            },
        })
    }

    #[inline(always)]
    fn next(&mut self) -> u128 {
        match self {
            Self::Count { value, first, last, step } => {
                let now = *value;
                *value = if *last - now >= *step { now + *step } else { *first };
                now
            }
            Self::Down { value, first, last, step } => {
                let now = *value;
                *value = if now - *last >= *step { now - *step } else { *first };
                now
            }
            Self::List { values, at } => {
                let now = values[*at];
                *at = if *at + 1 == values.len() { 0 } else { *at + 1 };
                now
            }
            Self::Random { random, first, span } => match u64::try_from(*span) {
                Ok(span) if span > 0 => *first + u128::from(random.below(span)),
                _ => {
                    let wide = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                    if *span == 0 { wide } else { *first + wide % *span }
                }
            },
        }
    }
}

/// A varying field and where it lies.
#[derive(Clone, Debug)]
struct Patch {
    at: usize,
    width: Width,
    /// Sums that cover it.
    ip: bool,
    l4: bool,
    /// Bits beside the field in its bytes.
    fixed: u16,
    engine: Engine,
}

#[derive(Clone, Copy, Debug)]
enum Width {
    Two,
    Four,
    Six,
    Sixteen,
}

/// A frame of one size, everything that varies zero.
#[derive(Clone, Debug)]
struct Template {
    bytes: Box<[u8]>,
    ip: Sum,
    l4: Sum,
    signature: usize,
}

#[derive(Clone, Debug)]
enum Order {
    /// Templates by turns.
    Turns { order: Vec<u16>, at: usize },
    /// Any of them.
    Random(Random),
}

/// Makes a stream's frames one after the other.
#[derive(Clone, Debug)]
pub struct Maker {
    id: u16,
    tag: u8,
    sequence: u32,
    signed: bool,
    templates: Vec<Template>,
    order: Order,
    patches: Vec<Patch>,
    /// Where the IPv4 checksum lies, where addresses vary.
    ip_checksum: Option<usize>,
    l4: Option<L4Place>,
}

/// Where the layer-4 checksum lies.
#[derive(Clone, Copy, Debug)]
struct L4Place {
    start: usize,
    checksum: usize,
    udp: bool,
}

/// RFC 2544, section C.2.2: 198.18.0.0/15, one half for each side.
fn default_v4(side: Side) -> Ipv4Addr {
    match side {
        Side::Left => Ipv4Addr::new(198, 18, 0, 2),
        Side::Right => Ipv4Addr::new(198, 19, 0, 2),
    }
}

/// RFC 5180, section 8: 2001:2::/48, one half for each side.
fn default_v6(side: Side) -> Ipv6Addr {
    match side {
        Side::Left => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2),
        Side::Right => Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 2),
    }
}

impl Maker {
    /// Prepares a stream, with sizes of the trial's where it has none of its own.
    ///
    /// # Errors
    /// What is missing or does not fit.
    pub fn new(stream: &Stream, size: Option<&Size>, around: &Surroundings) -> Result<Self, MakeError> {
        let name = || stream.name.clone();
        let size = stream.size.as_ref().or(size).ok_or_else(|| MakeError::NoSize(name()))?;
        stream.check_size(size).map_err(|error| MakeError::Size { stream: name(), error })?;
        if !around.ethernet && (!stream.vlan.is_empty() || (stream.ipv4.is_none() && stream.ipv6.is_none())) {
            return Err(MakeError::NeedsEthernet(name()));
        }
        let mut seeds = Random::new(stream.seed.unwrap_or(around.seed));
        let mut patches = Vec::new();
        let head = Head::new(stream, around, &mut seeds, &mut patches)?;
        let signed = stream.signature == SignatureMode::Full;
        let templates: Vec<_> = size.all().into_iter().map(|n| head.template(stream, n, signed, &patches)).collect();
        let all = size.all();
        let order = match size {
            Size::Random { seed, .. } => Order::Random(Random::new(seed.unwrap_or_else(|| seeds.next_u64()))),
            _ => {
                let place = |s: &u16| all.binary_search(s).unwrap_or(0) as u16;
                Order::Turns { order: size.order().iter().map(place).collect(), at: 0 }
            }
        };
        Ok(Self {
            id: around.id,
            tag: around.tag,
            sequence: FIRST,
            signed,
            templates,
            order,
            ip_checksum: patches.iter().any(|p| p.ip).then_some(head.l3 + 10),
            l4: head.l4,
            patches,
        })
    }

    /// Bytes of the largest frame, without FCS.
    pub fn largest(&self) -> usize {
        self.templates.last().map_or(0, |t| t.bytes.len())
    }

    /// Writes the next frame, departing at `time`, to the start of `area` and returns its length; `None`, and nothing done,
    /// where it does not fit.
    #[inline(always)]
    pub fn make(&mut self, area: &mut [MaybeUninit<u8>], time: u64) -> Option<usize> {
        let which = self.pick();
        let template = &self.templates[which].bytes;
        let len = template.len();
        let out = area.get_mut(..len)?.write_copy_of_slice(template);
        self.finish(which, out, time);
        Some(len)
    }

    /// The next frame, departing at `time`.
    pub fn make_bytes(&mut self, time: u64) -> Vec<u8> {
        let which = self.pick();
        let mut out = self.templates[which].bytes.to_vec();
        self.finish(which, &mut out, time);
        out
    }

    /// Which template is next.
    #[inline(always)]
    fn pick(&mut self) -> usize {
        match &mut self.order {
            Order::Turns { order, at } => {
                let now = order[*at];
                *at = if *at + 1 == order.len() { 0 } else { *at + 1 };
                usize::from(now)
            }
            Order::Random(random) => random.below(self.templates.len() as u64) as usize,
        }
    }

    /// Writes what varies into a copy of a template.
    #[inline(always)]
    fn finish(&mut self, which: usize, out: &mut [u8], time: u64) {
        let template = &self.templates[which];
        let (mut ip, mut l4) = (template.ip, template.l4);
        for patch in &mut self.patches {
            let value = patch.engine.next();
            match patch.width {
                Width::Two => {
                    let word = value as u16 | patch.fixed;
                    put(out, patch.at, word.to_be_bytes());
                    if patch.l4 {
                        l4 = l4.add_u16(word);
                    }
                }
                Width::Four => {
                    let word = value as u32;
                    put(out, patch.at, word.to_be_bytes());
                    ip = ip.add_u32(word);
                    if patch.l4 {
                        l4 = l4.add_u32(word);
                    }
                }
                Width::Six => {
                    let [_, _, mac @ ..] = (value as u64).to_be_bytes();
                    put(out, patch.at, mac);
                }
                Width::Sixteen => {
                    put(out, patch.at, value.to_be_bytes());
                    if patch.l4 {
                        l4 = l4.add_u128(value);
                    }
                }
            }
        }
        if let Some(at) = self.ip_checksum {
            put(out, at, ip.checksum().to_be_bytes());
        }
        if self.signed {
            let signature = Signature { tag: self.tag, stream: self.id, sequence: self.sequence, time }.to_bytes();
            put(out, template.signature, signature);
            if let Some(place) = self.l4 {
                l4 = l4.add_u16(sum_at(&signature, template.signature - place.start));
            }
        }
        if let Some(place) = self.l4.filter(|_| self.signed || !self.patches.is_empty()) {
            let field = if place.udp { l4.udp_checksum() } else { l4.checksum() };
            put(out, place.checksum, field.to_be_bytes());
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Gives a frame of this maker's that has had to wait another departure time.
    pub fn restamp(&self, frame: &mut [u8], time: u64) {
        let Some(at) = frame.len().checked_sub(LEN).filter(|_| self.signed) else { return };
        let crate::signature::Reading::Valid(old) = Signature::read(frame) else { return };
        let (before, after) = (old.to_bytes(), Signature { time, ..old }.to_bytes());
        put(frame, at, after);
        if let Some(place) = self.l4 {
            let Some(field) = frame.get(place.checksum..place.checksum + 2).and_then(|b| b.try_into().ok()) else { return };
            let sums = (sum_at(&before, at - place.start), sum_at(&after, at - place.start));
            let update = checksum::Update::new(u16::from_be_bytes(field)).u16(sums.0, sums.1);
            let new = if place.udp { update.finish_udp() } else { update.finish() };
            put(frame, place.checksum, new.to_be_bytes());
        }
    }
}

/// The sum of a signature that begins `distance` bytes into what is summed.
#[inline(always)]
fn sum_at(signature: &[u8; LEN], distance: usize) -> u16 {
    let sum = Sum::of(signature).folded();
    if distance.is_multiple_of(2) { sum } else { sum.swap_bytes() }
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    // Offsets are those of the headers that every template has.
    if let Some(place) = out.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

/// Headers of a stream, before there is a size.
struct Head {
    packet: build::Packet,
    /// Start of the IP header.
    l3: usize,
    l4: Option<L4Place>,
    headers: usize,
    ethernet: bool,
}

impl Head {
    fn new(stream: &Stream, around: &Surroundings, seeds: &mut Random, patches: &mut Vec<Patch>) -> Result<Self, MakeError> {
        let mut seed = || seeds.next_u64();
        let mut add = |at, width, ip, l4, fixed, engine: Option<Engine>| {
            patches.extend(engine.map(|engine| Patch { at, width, ip, l4, fixed, engine }));
        };
        let mut packet = build::Packet::new();
        let mut at = 0;
        let mac = |field: &Option<Field<MacAddr>>, other: Option<MacAddr>| field.clone().or(other.map(Field::Fixed));
        if around.ethernet {
            let src = mac(&stream.ethernet.src, Some(around.src)).unwrap_or(Field::Fixed(around.src));
            let dst = mac(&stream.ethernet.dst, around.dst).ok_or_else(|| MakeError::NoDestination(stream.name.clone()))?;
            packet = build::Packet::ethernet(src.first(), dst.first());
            add(0, Width::Six, false, false, 0, Engine::of(&dst, seed()));
            add(6, Width::Six, false, false, 0, Engine::of(&src, seed()));
            at = 14;
            for (i, tag) in stream.vlan.iter().enumerate() {
                let tpid = if tag.service { EtherType(0x88a8) } else { EtherType::VLAN };
                packet = packet.tag(tpid, Tci::new(tag.priority, false, tag.id.first()));
                let fixed = Tci::new(tag.priority, false, 0).0;
                add(14 + 4 * i, Width::Two, false, false, fixed, Engine::of(&tag.id, seed()));
                at += 4;
            }
        }
        let l3 = at;
        // A checksum of layer 4 covers the addresses; without one, IPv6 has none at all.
        let has_l4 = matches!(stream.l4(), L4::Udp | L4::Tcp);
        if let Some(ip) = &stream.ipv4 {
            let src = ip.src.clone().unwrap_or(Field::Fixed(default_v4(stream.from)));
            let dst = ip.dst.clone().unwrap_or(Field::Fixed(default_v4(stream.from.other())));
            packet = packet.ipv4(src.first(), dst.first()).ttl(ip.ttl).tos(ip.dscp << 2);
            add(l3 + 12, Width::Four, true, has_l4, 0, Engine::of(&src, seed()));
            add(l3 + 16, Width::Four, true, has_l4, 0, Engine::of(&dst, seed()));
            at += 20;
        } else if let Some(ip) = &stream.ipv6 {
            let src = ip.src.clone().unwrap_or(Field::Fixed(default_v6(stream.from)));
            let dst = ip.dst.clone().unwrap_or(Field::Fixed(default_v6(stream.from.other())));
            packet = packet.ipv6(src.first(), dst.first()).ttl(ip.ttl).tos(ip.dscp << 2);
            let covered = stream.l4() != L4::None;
            add(l3 + 8, Width::Sixteen, false, covered, 0, Engine::of(&src, seed()));
            add(l3 + 24, Width::Sixteen, false, covered, 0, Engine::of(&dst, seed()));
            at += 40;
        } else {
            packet = packet.next(EXPERIMENTAL.0);
        }
        let start = at;
        let mut ports = |ports: &crate::profile::Ports| {
            // RFC 4814, section 4.5.
            let src = ports.src.clone().unwrap_or(Field::Random { first: 1024, last: 65_535, seed: None });
            let dst = ports.dst.clone().unwrap_or(Field::Random { first: 1, last: 49_151, seed: None });
            add(start, Width::Two, false, true, 0, Engine::of(&src, seed()));
            add(start + 2, Width::Two, false, true, 0, Engine::of(&dst, seed()));
            (src.first(), dst.first())
        };
        let mut l4 = None;
        match (&stream.udp, &stream.tcp, &stream.icmp) {
            (Some(udp), _, _) => {
                let (src, dst) = ports(udp);
                packet = packet.udp(src, dst);
                l4 = Some(L4Place { start, checksum: start + 6, udp: true });
                at += 8;
            }
            (_, Some(tcp), _) => {
                let (src, dst) = ports(tcp);
                packet = packet.tcp(src, dst, TcpFlags::ACK);
                l4 = Some(L4Place { start, checksum: start + 16, udp: false });
                at += 20;
            }
            (_, _, Some(echo)) => {
                packet = if stream.ipv4.is_some() {
                    packet.icmp4(Icmp4Header::echo_request(echo.id, 0))
                } else {
                    packet.icmp6(Icmp6Header::echo_request(echo.id, 0))
                };
                l4 = Some(L4Place { start, checksum: start + 2, udp: false });
                at += 8;
            }
            _ => {}
        }
        Ok(Self { packet, l3, l4, headers: at, ethernet: around.ethernet })
    }

    /// The frame of `size` bytes with FCS.
    fn template(&self, stream: &Stream, size: u16, signed: bool, patches: &[Patch]) -> Template {
        let len = usize::from(size) - FCS - if self.ethernet { 0 } else { 14 };
        let payload: Vec<u8> = (0..len.saturating_sub(self.headers)).map(|i| i as u8).collect();
        let mut bytes = self.packet.clone().payload(&payload).build();
        let signature = bytes.len() - LEN.min(bytes.len());
        let zero = |bytes: &mut [u8], at: usize, n: usize| {
            if let Some(place) = bytes.get_mut(at..at + n) {
                place.fill(0);
            }
        };
        for patch in patches {
            let n = match patch.width {
                Width::Two => 2,
                Width::Four => 4,
                Width::Six => 6,
                Width::Sixteen => 16,
            };
            zero(&mut bytes, patch.at, n);
        }
        if signed {
            zero(&mut bytes, signature, LEN);
        }
        let mut ip = Sum::new();
        if stream.ipv4.is_some() && patches.iter().any(|p| p.ip) {
            zero(&mut bytes, self.l3 + 10, 2);
            ip = Sum::of(&bytes[self.l3..self.l3 + 20]);
        }
        let mut l4 = Sum::new();
        if let Some(place) = self.l4 {
            // Only what varies is written later; what does not vary keeps the checksum that the builder has given it.
            if signed || !patches.is_empty() {
                zero(&mut bytes, place.checksum, 2);
            }
            let protocol = match stream.l4() {
                L4::Udp => IpProtocol::UDP,
                L4::Tcp => IpProtocol::TCP,
                _ if stream.ipv6.is_some() => IpProtocol::ICMPV6,
                _ => IpProtocol::ICMP,
            };
            let covered = &bytes[place.start..];
            let pseudo = |from: usize, n: usize| Sum::of(&bytes[self.l3 + from..self.l3 + from + n]).folded();
            if stream.ipv6.is_some() {
                l4 = l4.add_u16(pseudo(8, 32)).add_u16(covered.len() as u16).add_u16(u16::from(protocol.0));
            } else if protocol != IpProtocol::ICMP {
                l4 = l4.add_u16(pseudo(12, 8)).add_u16(covered.len() as u16).add_u16(u16::from(protocol.0));
            }
            // Folded first, so that whole words can be added behind an odd number of bytes.
            l4 = l4.add_u16(Sum::of(covered).folded());
        }
        Template { bytes: bytes.into_boxed_slice(), ip, l4, signature }
    }
}

#[cfg(test)]
#[path = "maker_tests.rs"]
mod tests;
