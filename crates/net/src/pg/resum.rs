//! Checksums of packets that differ in a few fields only: summed once without these, then completed by their bytes.

use quiver_wire::Header;
use quiver_wire::checksum::{Sum, field_offset};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

use super::field::{Field, Random, Running};
use super::stream::Template;

/// A field, and what its bytes count in.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    offset: usize,
    width: usize,
    /// In the checksum of IPv4.
    ip: bool,
    /// In that of layer 4, by its pseudo-header or by itself.
    l4: bool,
    /// They begin with the second byte of a 16-bit word.
    odd: bool,
}

/// Where a checksum stands, and the sum of all that does not vary.
#[derive(Clone, Copy, Debug)]
struct Base {
    at: usize,
    sum: Sum,
}

/// How a stream's packets get their checksums once the first one is made. It needs a size that stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resum {
    parts: Vec<Part>,
    ip: Option<Base>,
    l4: Option<Base>,
    udp: bool,
}

impl Resum {
    /// For packets like `packet`, which is whole. `None` where a field takes part in how a packet is put together, as a length or a
    /// protocol does, or where fields overlap.
    pub(crate) fn new(template: &Template, fields: &[Field], packet: &[u8]) -> Option<Self> {
        let mut zeroed = packet.to_vec();
        for (n, field) in fields.iter().enumerate() {
            if fields[..n].iter().any(|f| overlap(f, field)) {
                return None;
            }
            zeroed.get_mut(field.offset..field.offset + field.width)?.fill(0);
        }
        let Some((at, ipv6)) = template.ip else {
            return Some(Self { parts: fields.iter().map(Part::bare).collect(), ..Self::default() });
        };
        let layout = Layout::of(packet, at, ipv6)?;
        let parts = fields.iter().map(|f| layout.part(f, template.keep_length)).collect::<Option<_>>()?;
        let mut made = Self { parts, udp: layout.protocol == IpProtocol::UDP, ..Self::default() };
        if template.keep_checksums {
            return Some(made);
        }
        if let Some(checksum) = layout.ip_checksum() {
            zeroed[checksum..checksum + 2].fill(0);
            made.ip = Some(Base { at: checksum, sum: Sum::of(&zeroed[at..layout.l4]) });
        }
        if let Some(checksum) = layout.l4_checksum(packet.len()) {
            zeroed[checksum..checksum + 2].fill(0);
            let sum = layout.pseudo(&zeroed)?.add_bytes(&zeroed[layout.l4..]);
            made.l4 = Some(Base { at: checksum, sum: even(sum, packet.len() - layout.l4) });
        }
        Some(made)
    }

    /// Writes the next values of the fields that it was made for into a packet, and puts its checksums right.
    pub(crate) fn write(&self, fields: &mut [Running], random: &mut Random, packet: &mut [u8]) {
        let (mut ip, mut l4) = (self.ip.map_or(Sum::new(), |b| b.sum), self.l4.map_or(Sum::new(), |b| b.sum));
        for (part, field) in self.parts.iter().zip(fields) {
            let value = field.value(random);
            let Some(place) = packet.get_mut(part.offset..part.offset + part.width) else { continue };
            // Addresses and ports at their usual places: no bytes are read again that were just written.
            match (place, part.odd) {
                ([a, b, c, d], false) => {
                    [*a, *b, *c, *d] = (value as u32).to_be_bytes();
                    part.count(&mut ip, &mut l4, |sum| sum.add_u32(value as u32));
                }
                ([a, b], false) => {
                    [*a, *b] = (value as u16).to_be_bytes();
                    part.count(&mut ip, &mut l4, |sum| sum.add_u16(value as u16));
                }
                (place, _) => {
                    place.copy_from_slice(&value.to_be_bytes()[16 - part.width..]);
                    part.count(&mut ip, &mut l4, |sum| part.add(sum, place));
                }
            }
        }
        for (base, field) in [(self.ip, ip.checksum()), (self.l4, if self.udp { l4.udp_checksum() } else { l4.checksum() })] {
            if let Some(to) = base.and_then(|b| packet.get_mut(b.at..b.at + 2)) {
                to.copy_from_slice(&field.to_be_bytes());
            }
        }
    }
}

impl Part {
    /// A field that is in no checksum.
    const fn bare(field: &Field) -> Self {
        Self { offset: field.offset, width: field.width, ip: false, l4: false, odd: false }
    }

    /// Adds it to the sums that it is in.
    #[inline]
    fn count(&self, ip: &mut Sum, l4: &mut Sum, add: impl Fn(Sum) -> Sum) {
        if self.ip {
            *ip = add(*ip);
        }
        if self.l4 {
            *l4 = add(*l4);
        }
    }

    /// Adds its bytes at their place in a word; the sum is one of whole words before and after.
    #[inline]
    fn add(&self, sum: Sum, bytes: &[u8]) -> Sum {
        let sum = if self.odd { sum.add_bytes(&[0]) } else { sum };
        even(sum.add_bytes(bytes), usize::from(self.odd) + self.width)
    }
}

/// A sum of whole words again, after `len` bytes.
#[inline]
fn even(sum: Sum, len: usize) -> Sum {
    if len % 2 == 1 { sum.add_bytes(&[0]) } else { sum }
}

const fn overlap(a: &Field, b: &Field) -> bool {
    a.offset < b.offset + b.width && b.offset < a.offset + a.width
}

/// Where headers begin.
#[derive(Clone, Copy)]
struct Layout {
    ip: usize,
    ipv6: bool,
    l4: usize,
    protocol: IpProtocol,
}

impl Layout {
    fn of(packet: &[u8], ip: usize, ipv6: bool) -> Option<Self> {
        let datagram = packet.get(ip..)?;
        let (len, protocol) = if ipv6 {
            (40, Ipv6Header::read(datagram)?.next_header)
        } else {
            (usize::from(datagram.first()? & 0xf) * 4, Ipv4Header::read(datagram)?.protocol)
        };
        (len >= 20 && len <= datagram.len()).then_some(Self { ip, ipv6, l4: ip + len, protocol })
    }

    const fn ip_checksum(&self) -> Option<usize> {
        if self.ipv6 { None } else { Some(self.ip + 10) }
    }

    fn l4_checksum(&self, len: usize) -> Option<usize> {
        field_offset(self.protocol).map(|at| self.l4 + at).filter(|at| at + 2 <= len)
    }

    /// ICMP over IPv4 has no pseudo-header.
    fn has_pseudo(&self) -> bool {
        self.ipv6 || self.protocol != IpProtocol::ICMP
    }

    fn pseudo(&self, packet: &[u8]) -> Option<Sum> {
        let (datagram, len) = (packet.get(self.ip..)?, packet.len() - self.l4);
        Some(if self.ipv6 {
            let ip = Ipv6Header::read(datagram)?;
            Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), self.protocol, len as u32)
        } else if self.has_pseudo() {
            let ip = Ipv4Header::read(datagram)?;
            Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), self.protocol, len as u16)
        } else {
            Sum::new()
        })
    }

    /// What a field counts in; `None` where it says how the packet is put together.
    fn part(&self, field: &Field, keep_length: bool) -> Option<Part> {
        let (from, to) = (field.offset, field.offset + field.width);
        if to <= self.ip {
            return Some(Part::bare(field));
        }
        let odd = from.checked_sub(self.ip)? % 2 == 1;
        let part = Part { offset: from, width: field.width, ip: false, l4: false, odd };
        if to <= self.l4 {
            // Of IPv4: type of service, identification, time to live, addresses and options. Of IPv6: flow label, hop limit, addresses.
            let (plain, addresses): (&[(usize, usize)], _) =
                if self.ipv6 { (&[(1, 4), (7, 8)], (8, 40)) } else { (&[(1, 2), (4, 6), (8, 9), (20, 60)], (12, 20)) };
            let within = |&(low, high): &(usize, usize)| from >= self.ip + low && to <= self.ip + high;
            let address = within(&addresses);
            return (address || plain.iter().any(within)).then_some(Part {
                ip: !self.ipv6,
                l4: address && self.has_pseudo(),
                ..part
            });
        }
        let apart = |at: usize| to <= at || from >= at + 2;
        let length = self.protocol == IpProtocol::UDP && !keep_length;
        let whole =
            from >= self.l4 && field_offset(self.protocol).is_none_or(|at| apart(self.l4 + at)) && (!length || apart(self.l4 + 4));
        whole.then_some(Part { l4: true, ..part })
    }
}
