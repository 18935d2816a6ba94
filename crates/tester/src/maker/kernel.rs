//! A stream for the engine in the kernel: the same frames, from the same values, lists and generators.

use quiver_drivers::xdp_engine::Departures;
use quiver_drivers::xdp_engine::layout::{FIELDS, Field, HEAD, Kind, Place, Row, STREAMS, Template};

use super::engine::Engine;
use super::ready::{Patch, Width};
use super::{Maker, Order};

/// Lower and upper half.
fn halves(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

impl Maker {
    /// Adds the stream to what a thread in the kernel is to send, all but its departures; in one line why it cannot make its
    /// frames. Only before the first frame was made.
    ///
    /// # Errors
    /// See above.
    pub fn for_kernel(&self, all: &mut Departures) -> Result<(), String> {
        let number = all.setup.streams as usize;
        if self.raw {
            return Err("packets of a capture".to_owned());
        }
        let (Some(stream), Some(progress)) = (all.setup.stream.get_mut(number), all.state.stream.get_mut(number)) else {
            return Err(format!("more than {STREAMS} streams"));
        };
        let mut templates: Vec<_> = self
            .templates
            .iter()
            .map(|template| {
                let bytes = &template.bytes;
                let mut head = [0; HEAD];
                let n = bytes.len().min(HEAD);
                head[..n].copy_from_slice(&bytes[..n]);
                let odd = self.l4.map_or(0, |l4| template.signature.abs_diff(l4.start) % 2) as u32;
                let (ip, l4) = (template.ip.folded().into(), template.l4.folded().into());
                Template { len: bytes.len() as u32, ip, l4, odd, head }
            })
            .collect();
        (stream.number, stream.signed) = (self.id.into(), self.signed.into());
        (stream.templates, progress.sequence) = (all.templates.len() as u32, self.sequence);
        match &self.order {
            Order::Turns { order, .. } => {
                (stream.order, stream.turns) = (all.orders.len() as u32, order.len() as u32);
                all.orders.extend(order.iter().map(|place| u32::from(*place)));
            }
            Order::Random(random) => (stream.choices, progress.sizes) = (templates.len() as u32, random.state()),
        }
        stream.ip_at = self.ip_checksum.unwrap_or(0) as u32;
        if let Some(place) = self.l4.filter(|_| self.signed || !self.varying.is_empty()) {
            if place.checksum + 2 > HEAD {
                return Err(format!("a checksum behind the first {HEAD} bytes of a frame"));
            }
            (stream.l4_at, stream.l4_udp) = (place.checksum as u32, place.udp.into());
        }
        let mut parts = Vec::new();
        for patch in self.varying.patches() {
            parts.extend(fields(patch, &mut templates, &mut all.rows)?);
        }
        if parts.len() > FIELDS {
            return Err(format!("{} varying fields (up to {FIELDS} can be)", parts.len()));
        }
        stream.fields = parts.len() as u32;
        for (at, (field, place)) in parts.into_iter().enumerate() {
            (stream.field[at], progress.field[at]) = (field, place);
        }
        all.templates.extend(templates);
        all.setup.streams += 1;
        let largest = self.largest_template();
        all.bodies.push(largest.get(HEAD..).unwrap_or_default().to_vec());
        if largest.len() > all.frame.len() {
            all.frame = largest.to_vec();
        }
        // Frames of one size in a page have always the same behind their first bytes.
        all.setup.bodies = (all.templates.iter().filter(|t| t.len as usize > HEAD).count() > 1).into();
        Ok(())
    }
}

/// The upper half of a field's values, where it is always the same.
fn upper(engine: &Engine) -> Option<u64> {
    let same = |a: u128, b: u128| (a >> 64 == b >> 64).then_some((a >> 64) as u64);
    match engine {
        Engine::Count { first, last, .. } | Engine::Down { first, last, .. } => same(*first, *last),
        Engine::Random { span: 0, .. } | Engine::Supplied { .. } => None,
        Engine::Random { first, span, step, .. } => same(*first, *first + (*span - 1) * *step),
        Engine::List { values, .. } | Engine::Pick { values, .. } => {
            values.iter().all(|v| v >> 64 == values[0] >> 64).then_some((values[0] >> 64) as u64)
        }
        Engine::Zipf { popular, .. } => {
            let (first, _) = popular.prefix(0);
            (0..popular.count())
                .all(|n| popular.host_bits(n) <= 64 && same(popular.prefix(n).0, first).is_some())
                .then_some((first >> 64) as u64)
        }
    }
}

/// A field for the kernel, and where it begins; of an IPv6 address a field for each half that varies. What does not is written into
/// the templates.
fn fields(patch: &Patch, templates: &mut [Template], rows: &mut Vec<Row>) -> Result<Vec<(Field, Place)>, String> {
    if patch.at + patch.width.bytes() > HEAD {
        return Err(format!("a varying field behind the first {HEAD} bytes of a frame"));
    }
    let upper = upper(&patch.engine);
    let (field, place) = values(&patch.engine, upper.is_some(), rows)?;
    let mask = |on: bool| if on { u32::MAX } else { 0 };
    let bytes = patch.width.bytes().min(8) as u32;
    let (in_ip, in_l4) = (mask(patch.ip), mask(patch.l4));
    let mut low = Field { at: patch.at as u32, bytes, in_ip, in_l4, fixed: patch.fixed.into(), ..field };
    if !matches!(patch.width, Width::Sixteen) {
        return Ok(vec![(low, place)]);
    }
    let high = Field { high: 1, ..low };
    low.at += 8;
    let Some(upper) = upper else { return Ok(vec![(high, place), (low, place)]) };
    for template in templates.iter_mut() {
        template.head[patch.at..patch.at + 8].copy_from_slice(&upper.to_be_bytes());
        let words: u32 = upper.to_be_bytes().as_chunks::<2>().0.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum();
        template.ip += words & in_ip;
        template.l4 += words & in_l4;
    }
    Ok(vec![(low, place)])
}

/// What a field's values are, and where they begin. `narrow`: only their lower halves vary.
fn values(engine: &Engine, narrow: bool, rows: &mut Vec<Row>) -> Result<(Field, Place), String> {
    let row = |value: u128| Row { value: halves(value), ..Row::default() };
    let mut field = Field { rows: rows.len() as u32, ..Field::default() };
    let mut place = Place::default();
    let kind = match engine {
        Engine::Count { value, first, last, step, every, left } | Engine::Down { value, first, last, step, every, left } => {
            (field.first, field.last, field.step, field.every) = (halves(*first), halves(*last), halves(*step), *every);
            (place.value, place.left) = (halves(*value), *left);
            match (matches!(engine, Engine::Count { .. }), narrow && *step >> 64 == 0) {
                (true, true) => Kind::Count,
                (true, false) => Kind::CountWide,
                (false, true) => Kind::Down,
                (false, false) => Kind::DownWide,
            }
        }
        Engine::Random { random, first, span, step } => {
            (field.first, field.step, place.random) = (halves(*first), halves(*step), random.state());
            field.span = *span as u64;
            match u64::try_from(*span) {
                Ok(1..) if narrow && *step >> 64 == 0 => Kind::Random,
                Ok(1..) => Kind::RandomWide,
                _ if *step == 1 && (*span == 0 || span.is_power_of_two()) => {
                    field.last = halves(span.wrapping_sub(1));
                    Kind::RandomMasked
                }
                _ => return Err("fields drawn from 2^64 values or more whose number is no power of two".to_owned()),
            }
        }
        Engine::List { values, at } => {
            (field.span, place.value) = (values.len() as u64, [*at as u64, 0]);
            rows.extend(values.iter().map(|v| row(*v)));
            Kind::List
        }
        Engine::Pick { values, random } => {
            (field.span, place.random) = (values.len() as u64, random.state());
            rows.extend(values.iter().map(|v| row(*v)));
            Kind::Pick
        }
        Engine::Zipf { popular, table, random } => {
            (field.span, place.random) = (popular.count() as u64, random.state());
            rows.extend(table.columns().iter().enumerate().map(|(rank, (own, other))| {
                let host = popular.host_bits(rank).into();
                Row { own: *own, other: *other, host, ..row(popular.prefix(rank).0) }
            }));
            Kind::Zipf
        }
        Engine::Supplied { .. } => return Err("four-tuples of a state table".to_owned()),
    };
    field.kind = kind as u32;
    Ok((field, place))
}
