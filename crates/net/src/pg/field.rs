//! Fields that vary from packet to packet.

/// How a field varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Each packet one more, from the end back to the start.
    Increment,
    /// Each packet at random, all values equally likely.
    Random,
}

/// A field of a template: big-endian, `width` bytes from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the packet.
    pub offset: usize,
    /// 1 to 16 bytes.
    pub width: usize,
    /// Smallest value.
    pub low: u128,
    /// Largest value, not below `low`.
    pub high: u128,
    /// How it varies.
    pub vary: Vary,
}

/// Seeded generator (xorshift64*): repeatable, fast, good enough to spread packets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A value of `0..=most`. The bias is below 2^-32 for fields of up to 32 bits.
    #[inline]
    pub(crate) fn up_to(&mut self, most: u128) -> u128 {
        if most < u128::from(u64::MAX) {
            // The high half of a product: a division of 128 bits takes ten times as long.
            return (u128::from(self.next()) * (most + 1)) >> 64;
        }
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        if most == u128::MAX { wide } else { wide % (most + 1) }
    }
}

/// A field with its next value.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    field: Field,
    next: u128,
}

impl Running {
    pub(crate) const fn new(field: Field) -> Self {
        Self { field, next: field.low }
    }

    pub(crate) const fn field(&self) -> Field {
        self.field
    }

    /// The next value.
    #[inline]
    pub(crate) fn value(&mut self, random: &mut Random) -> u128 {
        let Field { low, high, vary, .. } = self.field;
        match vary {
            Vary::Increment => {
                let value = self.next;
                self.next = if value >= high { low } else { value + 1 };
                value
            }
            Vary::Random => low + random.up_to(high - low),
        }
    }

    /// Writes the next value into a packet.
    pub(crate) fn write(&mut self, packet: &mut [u8], random: &mut Random) {
        let (Field { offset, width, .. }, value) = (self.field, self.value(random));
        if let Some(to) = packet.get_mut(offset..offset + width) {
            to.copy_from_slice(&value.to_be_bytes()[16 - width..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_wrap_and_random_values_stay_in_range() {
        let field = Field { offset: 1, width: 2, low: 0xfffe, high: 0xffff, vary: Vary::Increment };
        let mut running = Running::new(field);
        let mut random = Random::new(1);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut packet = [0; 4];
            running.write(&mut packet, &mut random);
            seen.push(packet);
        }
        assert_eq!(seen, [[0, 0xff, 0xfe, 0], [0, 0xff, 0xff, 0], [0, 0xff, 0xfe, 0], [0, 0xff, 0xff, 0]]);
        let mut running = Running::new(Field { low: 10, high: 13, vary: Vary::Random, ..field });
        let mut hits = [0; 4];
        for _ in 0..4000 {
            let mut packet = [0; 4];
            running.write(&mut packet, &mut random);
            hits[usize::from(u16::from_be_bytes([packet[1], packet[2]])) - 10] += 1;
        }
        assert!(hits.iter().all(|h| (800..1200).contains(h)), "{hits:?}");
    }

    #[test]
    fn a_field_past_the_end_of_a_short_packet_is_left_out() {
        let mut running = Running::new(Field { offset: 3, width: 2, low: 1, high: 2, vary: Vary::Increment });
        let mut packet = [0xa5; 4];
        running.write(&mut packet, &mut Random::new(1));
        assert_eq!(packet, [0xa5; 4]);
    }
}
