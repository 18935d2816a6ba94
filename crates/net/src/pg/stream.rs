//! What a stream sends: a template with fields that vary, or recorded packets.

use quiver_wire::Header;
use quiver_wire::checksum::{Sum, checksum, fill_l4};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

use super::Vary;
use super::field::{Field, Random, Running};

/// Sizes of a stream's packets, bytes without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Smallest.
    pub low: usize,
    /// Largest.
    pub high: usize,
    /// How sizes vary between the two.
    pub vary: Vary,
}

/// Header lines put into bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Headers and payload as described.
    pub bytes: Vec<u8>,
    /// Fields that vary.
    pub fields: Vec<Field>,
    /// Where the IP header starts, and whether it is IPv6.
    pub ip: Option<(usize, bool)>,
    /// Lengths and checksums that the description fixed are left as they are.
    pub keep_length: bool,
    /// See `keep_length`.
    pub keep_checksums: bool,
}

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Made from a template.
    Made(Template),
    /// Recorded, sent in order, again and again.
    Recorded(Vec<Vec<u8>>),
}

/// A stream as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Unique name.
    pub name: String,
    /// Packets to send; `None`: without end.
    pub limit: Option<u64>,
    /// Packets a second; `None`: as fast as the graph takes them.
    pub rate: Option<f64>,
    /// Sizes; `None`: as made or recorded.
    pub sizes: Option<Sizes>,
    /// Worker, counted from 0.
    pub worker: usize,
    /// Largest vector, or the graph's.
    pub max_frame: Option<usize>,
    /// Seed of random fields and sizes.
    pub seed: u64,
    /// Packets.
    pub source: Source,
}

impl Template {
    /// Puts lengths and checksums right for a packet of `packet.len()` bytes.
    fn fix_up(&self, packet: &mut [u8]) {
        let Some((at, ipv6)) = self.ip else { return };
        let Some(datagram) = packet.get_mut(at..) else { return };
        if ipv6 { self.fix_ipv6(datagram) } else { self.fix_ipv4(datagram) }
    }

    fn fix_ipv4(&self, datagram: &mut [u8]) {
        let Some(mut ip) = Ipv4Header::read(datagram) else { return };
        let header_len = usize::from(datagram[0] & 0xf) * 4;
        if !self.keep_length {
            ip.total_len = (datagram.len().min(65_535) as u16).into();
        }
        let protocol = ip.protocol;
        let _ = ip.write_at(datagram, 0);
        if let Some(l4) = datagram.get_mut(header_len..) {
            let none = Sum::of(&[]);
            let pseudo = none.add_pseudo_v4(ip.src.get(), ip.dst.get(), protocol, l4.len() as u16);
            self.fix_l4(protocol, if protocol == IpProtocol::ICMP { none } else { pseudo }, l4);
        }
        if !self.keep_checksums && header_len >= 20 && header_len <= datagram.len() {
            datagram[10..12].fill(0);
            let sum = checksum(&datagram[..header_len]);
            datagram[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn fix_ipv6(&self, datagram: &mut [u8]) {
        let Some(mut ip) = Ipv6Header::read(datagram) else { return };
        if !self.keep_length {
            ip.payload_len = (datagram.len().saturating_sub(40).min(65_535) as u16).into();
        }
        let protocol = ip.next_header;
        let _ = ip.write_at(datagram, 0);
        if let Some(l4) = datagram.get_mut(40..) {
            let pseudo = Sum::of(&[]).add_pseudo_v6(ip.src.get(), ip.dst.get(), protocol, l4.len() as u32);
            self.fix_l4(protocol, pseudo, l4);
        }
    }

    fn fix_l4(&self, protocol: IpProtocol, pseudo: Sum, l4: &mut [u8]) {
        if protocol == IpProtocol::UDP && !self.keep_length && l4.len() >= 8 {
            let len = (l4.len().min(65_535) as u16).to_be_bytes();
            l4[4..6].copy_from_slice(&len);
        }
        if !self.keep_checksums {
            let _ = fill_l4(protocol, pseudo, l4);
        }
    }
}

/// A stream at work: makes one packet after the other into a scratch buffer.
pub(crate) struct Maker {
    source: Source,
    fields: Vec<Running>,
    sizes: Option<Sizes>,
    random: Random,
    size: Running,
    at: usize,
    /// Nothing varies: the packet in `scratch` is right as it is.
    ready: bool,
    scratch: Vec<u8>,
}

impl Maker {
    pub(crate) fn new(spec: &StreamSpec) -> Self {
        let fields = match &spec.source {
            Source::Made(template) => template.fields.iter().copied().map(Running::new).collect(),
            Source::Recorded(_) => Vec::new(),
        };
        let sizes = spec.sizes.unwrap_or(Sizes { low: 0, high: 0, vary: Vary::Increment });
        let size = Field { offset: 0, width: 16, low: sizes.low as u128, high: sizes.high as u128, vary: sizes.vary };
        Self {
            source: spec.source.clone(),
            fields,
            sizes: spec.sizes,
            random: Random::new(spec.seed),
            size: Running::new(size),
            at: 0,
            ready: false,
            scratch: Vec::new(),
        }
    }

    /// The next packet.
    pub(crate) fn next(&mut self) -> &[u8] {
        match &self.source {
            Source::Recorded(packets) => {
                let packet = packets.get(self.at).map_or(&[][..], Vec::as_slice);
                self.at = if self.at + 1 >= packets.len() { 0 } else { self.at + 1 };
                packet
            }
            Source::Made(template) => {
                if !self.ready {
                    self.scratch.clear();
                    self.scratch.extend_from_slice(&template.bytes);
                    if self.sizes.is_some() {
                        let mut wide = [0; 16];
                        self.size.write(&mut wide, &mut self.random);
                        // Padding counts up, so that captures show at once where bytes went missing.
                        let size = (u128::from_be_bytes(wide) as usize).max(template.ip.map_or(0, |(at, _)| at + 20));
                        let from = self.scratch.len();
                        self.scratch.resize(size, 0);
                        for (i, byte) in self.scratch.iter_mut().enumerate().skip(from) {
                            *byte = (i - from) as u8;
                        }
                    }
                    for field in &mut self.fields {
                        field.write(&mut self.scratch, &mut self.random);
                    }
                    template.fix_up(&mut self.scratch);
                    self.ready = self.fields.is_empty() && self.sizes.is_none_or(|s| s.low == s.high);
                }
                &self.scratch
            }
        }
    }
}
