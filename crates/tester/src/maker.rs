//! Makes the frames of a stream: a template copied, varying fields and the signature written into it, checksums adjusted.
//!
//! Sums over a template are kept with all varying bytes as zero. A frame's checksum is that sum plus its own words
//! (RFC 1624 with an old value of 0), so its cost does not depend on the frame's length.

mod engine;
mod head;
mod kernel;
mod ready;
mod replay;

use std::mem::MaybeUninit;

use quiver_wire::MacAddr;
use quiver_wire::checksum::Update;

use engine::Engine;
use head::Head;
pub(crate) use head::{default_v4, default_v6};
use ready::{LINE, Patch, Ready, Template, Width};
pub use replay::SignedFrames;

use crate::profile::{SignatureMode, Size, Stream};
use crate::random::Random;
use crate::signature::{LEN, Signature, Stamp};
use crate::tracker::FIRST;

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
    /// Tags, labels and frames without IP need Ethernet.
    #[error("stream {0} has tags, labels or no IP header, and its port carries IP packets only")]
    NeedsEthernet(String),
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
    varying: Ready,
    /// Its frames are packets of a capture: where signatures and checksums lie is a template's.
    raw: bool,
    /// Frames begin with an Ethernet header.
    ethernet: bool,
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

impl Maker {
    /// Prepares a stream, with sizes of the trial's where it has none of its own.
    ///
    /// # Errors
    /// What is missing or does not fit.
    pub fn new(stream: &Stream, size: Option<&Size>, around: &Surroundings) -> Result<Self, MakeError> {
        let name = || stream.name.clone();
        if let Some(replay) = &stream.pcap {
            return Self::replaying(stream, replay, around);
        }
        let size = stream.size.as_ref().or(size).ok_or_else(|| MakeError::NoSize(name()))?;
        stream.check_size(size).map_err(|error| MakeError::Size { stream: name(), error })?;
        let link = !stream.vlan.is_empty() || !stream.mpls.is_empty();
        if !around.ethernet && (link || (stream.ipv4.is_none() && stream.ipv6.is_none())) {
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
            raw: false,
            ethernet: around.ethernet,
            templates,
            order,
            ip_checksum: patches.iter().any(|p| p.ip).then_some(head.l3 + 10),
            l4: head.l4,
            varying: Ready::new(patches),
        })
    }

    /// The frames that one of `parts` threads makes of the stream, before the first one: what code supplies by turns is divided among
    /// them, frame n of thread p having value p + n × parts.
    #[must_use]
    pub fn of_part(mut self, part: usize, parts: usize) -> Self {
        self.varying.take_part(part as u64, parts as u64);
        self
    }

    /// Bytes of the largest frame, without FCS.
    pub fn largest(&self) -> usize {
        self.templates.last().map_or(0, |t| t.bytes.len())
    }

    /// The largest frame, everything that varies zero.
    pub fn largest_template(&self) -> &[u8] {
        self.templates.last().map_or(&[], |t| &t.bytes)
    }

    /// Writes the next frame, departing at `stamp`, to the start of `area` and returns its length; `None`, and nothing done,
    /// where it does not fit. What follows the frame in its last cache line may be overwritten.
    #[inline(always)]
    pub fn make(&mut self, area: &mut [MaybeUninit<u8>], stamp: &Stamp) -> Option<usize> {
        let which = self.pick();
        let template = &self.templates[which];
        let len = template.bytes.len();
        match (template.line(), area.first_chunk_mut::<LINE>()) {
            // A copy of so many bytes is four moves.
            (Some(line), Some(area)) => {
                let out = area.write_copy_of_slice(line);
                self.finish(which, out, stamp);
            }
            _ => {
                let out = area.get_mut(..len)?.write_copy_of_slice(&template.bytes);
                self.finish(which, out, stamp);
            }
        }
        Some(len)
    }

    /// The next frame, departing at `time`.
    pub fn make_bytes(&mut self, time: u64) -> Vec<u8> {
        let which = self.pick();
        let mut out = self.templates[which].bytes.to_vec();
        self.finish(which, &mut out, &Stamp::new(time));
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
    fn finish(&mut self, which: usize, out: &mut [u8], stamp: &Stamp) {
        if self.raw {
            return self.finish_packet(which, out, stamp);
        }
        let template = &self.templates[which];
        let (ip, l4) = self.varying.write(out);
        if let Some(at) = self.ip_checksum {
            put(out, at, template.ip.add_u16(ip).checksum().to_be_bytes());
        }
        let mut l4 = template.l4.add_u16(l4);
        if self.signed {
            let signature = Signature::written(self.tag, self.id, self.sequence, stamp);
            signature.put(out, template.signature);
            if let Some(place) = self.l4 {
                l4 = l4.add_u16(turned(signature.sum, template.signature - place.start));
            }
        }
        if let Some(place) = self.l4.filter(|_| self.signed || !self.varying.is_empty()) {
            let field = if place.udp { l4.udp_checksum() } else { l4.checksum() };
            put(out, place.checksum, field.to_be_bytes());
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Gives a frame of this maker's that has had to wait another departure time.
    pub fn restamp(&self, frame: &mut [u8], time: u64) {
        if self.raw {
            return self.restamp_packet(frame, time);
        }
        let Some(at) = frame.len().checked_sub(LEN).filter(|_| self.signed) else { return };
        let crate::signature::Reading::Valid(old) = Signature::read(frame) else { return };
        let [before, after] = [old.time, time].map(|time| Signature::written(old.tag, old.stream, old.sequence, &Stamp::new(time)));
        after.put(frame, at);
        if let Some(place) = self.l4 {
            let Some(field) = frame.get(place.checksum..place.checksum + 2).and_then(|b| b.try_into().ok()) else { return };
            let [before, after] = [before.sum, after.sum].map(|sum| turned(sum, at - place.start));
            let update = Update::new(u16::from_be_bytes(field)).u16(before, after);
            let new = if place.udp { update.finish_udp() } else { update.finish() };
            put(frame, place.checksum, new.to_be_bytes());
        }
    }
}

/// The sum of bytes that begin `distance` bytes into what is summed.
#[inline(always)]
fn turned(sum: u16, distance: usize) -> u16 {
    if distance.is_multiple_of(2) { sum } else { sum.swap_bytes() }
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    // Offsets are those of the headers that every template has.
    if let Some(place) = out.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests;
