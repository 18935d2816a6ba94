//! A stream for the engine in the kernel: the same frames, as long as they are of the kinds that it can make.

use quiver_drivers::xdp_engine::idle_stream;
use quiver_drivers::xdp_engine::layout::{FIELDS, Field, HEAD, Kind, ORDER, Stream, Template};

use super::engine::Engine;
use super::ready::{Patch, Width};
use super::{Maker, Order};

impl Maker {
    /// The stream and its templates, which are numbered from `base`; in one line why the kernel cannot make its frames. Only before
    /// the first frame was made.
    ///
    /// # Errors
    /// See above.
    pub fn for_kernel(&self, base: usize) -> Result<(Stream, Vec<Template>), String> {
        if self.raw {
            return Err("packets of a capture".to_owned());
        }
        let Order::Turns { order, .. } = &self.order else { return Err("random sizes".to_owned()) };
        if order.len() > ORDER {
            return Err(format!("sizes that repeat after {} frames (up to {ORDER} can be)", order.len()));
        }
        let patches: Vec<_> = self.varying.patches().collect();
        if patches.len() > FIELDS {
            return Err(format!("{} varying fields (up to {FIELDS} can be)", patches.len()));
        }
        let mut templates = Vec::new();
        for template in &self.templates {
            let bytes = &template.bytes;
            let l4 = self.l4.map_or(0, |l4| l4.start);
            if !self.signed && bytes.len() < 80 && l4 + 20 > 60 {
                return Err("headers of more than 60 bytes in frames of less than 84 without signature".to_owned());
            }
            let mut head = [0; HEAD];
            let n = bytes.len().min(HEAD);
            head[..n].copy_from_slice(&bytes[..n]);
            let odd = self.l4.map_or(0, |l4| (template.signature - l4.start) % 2) as u32;
            let (ip, l4) = (template.ip.folded().into(), template.l4.folded().into());
            templates.push(Template { len: bytes.len() as u32, ip, l4, odd, head });
        }
        let mut stream = Stream {
            number: self.id.into(),
            sequence: self.sequence,
            fields: patches.len() as u32,
            turns: order.len() as u32,
            ip_at: self.ip_checksum.unwrap_or(0) as u32,
            signed: self.signed.into(),
            ..idle_stream()
        };
        if let Some(place) = self.l4.filter(|_| self.signed || !patches.is_empty()) {
            (stream.l4_at, stream.l4_udp) = (place.checksum as u32, place.udp.into());
        }
        for (to, from) in stream.order.iter_mut().zip(order) {
            *to = (base + usize::from(*from)) as u8;
        }
        for (to, patch) in stream.field.iter_mut().zip(patches) {
            *to = field(patch, &mut templates)?;
        }
        Ok((stream, templates))
    }
}

/// A field for the kernel: at most its last 32 bits vary; what stands above them is written into the templates.
fn field(patch: &Patch, templates: &mut [Template]) -> Result<Field, String> {
    let (kind, least, most) = match &patch.engine {
        Engine::List { .. } | Engine::Pick { .. } => return Err("fields with lists of values".to_owned()),
        Engine::Zipf { .. } => return Err("fields drawn by Zipf's law".to_owned()),
        Engine::Supplied { .. } => return Err("four-tuples of a state table".to_owned()),
        Engine::Count { every, .. } | Engine::Down { every, .. } if *every > 1 => {
            return Err("fields with each value several times".to_owned());
        }
        Engine::Count { first, last, .. } => (Kind::Count, *first, *last),
        Engine::Down { first, last, .. } => (Kind::Down, *last, *first),
        Engine::Random { step, .. } if *step != 1 => return Err("fields drawn in steps".to_owned()),
        Engine::Random { first, span, .. } if (1..=1 << 32).contains(span) => (Kind::Random, *first, *first + (*span - 1)),
        Engine::Random { .. } => return Err("fields drawn from more than 2^32 values".to_owned()),
    };
    if least >> 32 != most >> 32 {
        return Err("fields that vary in more than their last 32 bits".to_owned());
    }
    let (before, shift, keep) = match patch.width {
        Width::Two => (0, 16, 0xffff | u32::from(patch.fixed) << 16),
        Width::Four => (0, 0, 0),
        Width::Six => (2, 0, 0),
        Width::Sixteen => (12, 0, 0),
    };
    for template in templates.iter_mut() {
        let above = (least >> 32).to_be_bytes();
        template.head[patch.at..patch.at + before].copy_from_slice(&above[16 - before..]);
        if let Width::Two = patch.width {
            template.head[patch.at..patch.at + 2].copy_from_slice(&patch.fixed.to_be_bytes());
        }
        let words: u32 = above.as_chunks::<2>().0.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum();
        template.ip += if patch.ip { words } else { 0 };
        template.l4 += if patch.l4 { words } else { 0 };
    }
    let mask = |on: bool| if on { u32::MAX } else { 0 };
    let mut field = Field {
        at: (patch.at + before) as u32,
        kind: kind as u32,
        keep,
        shift,
        in_ip: mask(patch.ip),
        in_l4: mask(patch.l4),
        ..Field::default()
    };
    match &patch.engine {
        Engine::Count { value, first, last, step, .. } | Engine::Down { value, first, last, step, .. } => {
            let Ok(step) = u32::try_from(*step) else { return Err("steps of more than 32 bits".to_owned()) };
            (field.value, field.first, field.last, field.step) = (*value as u32, *first as u32, *last as u32, step);
        }
        Engine::Random { random, first, span, .. } => {
            (field.first, field.random, field.span) = (*first as u32, random.state(), *span as u64);
        }
        Engine::List { .. } | Engine::Pick { .. } | Engine::Zipf { .. } | Engine::Supplied { .. } => {}
    }
    Ok(field)
}
