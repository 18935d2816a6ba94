//! The signature in the tail of every test frame: which stream, which frame, when it left.
//!
//! ```text
//!   0       1     2       4        6          10                    18
//!   ├ magic ┼ tag ┼ check ┼ stream ┼ sequence ┼ departure, ns ──────┤   big endian; the last 18 bytes of the IP packet
//! ```
//!
//! *tag* differs from trial to trial, so that a frame of an earlier one is known as such. *check* is 16 bits of a hash over all
//! other fields: a frame that is not ours passes for one of ours once in 2^32, a damaged one for a good one once in 2^16.

/// Bytes of a signature.
pub const LEN: usize = 18;

/// First byte.
const MAGIC: u8 = 0xa9;

/// Where the frames of a trial's streams, from a number to another one, are told from others: two places, in bytes from a frame's
/// end, with the two bytes of the one and the least and the largest two of the other.
pub(crate) const fn tail(tag: u8, (first, last): (u16, u16)) -> ((u32, u16), (u32, u16, u16)) {
    ((LEN as u32, (MAGIC as u16) << 8 | tag as u16), (LEN as u32 - 4, first, last))
}

/// A departure time, with what only it decides of a signature: worked out once for the frames of a batch, which share it.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    time: u64,
    /// Its part of the check.
    mixed: u64,
    /// The sum of its words.
    sum: u32,
}

impl Stamp {
    /// For a time, ns.
    #[inline(always)]
    pub const fn new(time: u64) -> Self {
        let mixed = (time ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self { time, mixed: mixed ^ (mixed >> 32), sum: words(time) }
    }

    /// ns.
    #[inline(always)]
    pub const fn time(&self) -> u64 {
        self.time
    }
}

/// The sum of the four 16-bit words.
#[inline(always)]
const fn words(value: u64) -> u32 {
    let halves = (value >> 32) + (value & 0xffff_ffff);
    // At most 33 bits: the words of both halves, and the carry.
    (halves >> 16) as u32 + (halves & 0xffff) as u32
}

/// A signature as it is written: 8, 2 and 8 bytes, and the ones'-complement sum over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    head: u64,
    low: u16,
    time: u64,
    /// Host order, for a place an even number of bytes into what is summed.
    pub(crate) sum: u16,
}

impl Written {
    /// Writes it to `at`; nothing where there is no room.
    #[inline(always)]
    pub(crate) fn put(&self, out: &mut [u8], at: usize) {
        if let Some(place) = out.get_mut(at..at + LEN).and_then(|p| p.first_chunk_mut::<LEN>()) {
            *place = self.bytes();
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.head.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.low.to_be_bytes());
        bytes[10..].copy_from_slice(&self.time.to_be_bytes());
        bytes
    }
}

/// What a signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Trial.
    pub tag: u8,
    /// Stream.
    pub stream: u16,
    /// Number of the frame in its stream; it wraps.
    pub sequence: u32,
    /// Departure, ns of the tester's clock.
    pub time: u64,
}

/// What the tail of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A whole signature.
    Valid(Signature),
    /// It begins like one, but is damaged. The tag as read.
    Damaged(u8),
    /// No signature.
    None,
}

impl Signature {
    /// The hash over the other fields.
    #[inline(always)]
    const fn check(tag: u8, stream: u16, sequence: u32, stamp: &Stamp) -> u16 {
        let low = (tag as u64) << 48 | (stream as u64) << 32 | sequence as u64;
        let mixed = stamp.mixed.wrapping_add(low).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 48) as u16
    }

    /// The signature of a frame that departs at `stamp`.
    #[inline(always)]
    pub(crate) const fn written(tag: u8, stream: u16, sequence: u32, stamp: &Stamp) -> Written {
        let head = (MAGIC as u64) << 56
            | (tag as u64) << 48
            | (Self::check(tag, stream, sequence, stamp) as u64) << 32
            | (stream as u64) << 16
            | (sequence >> 16) as u64;
        let sum = words(head) + (sequence & 0xffff) + stamp.sum;
        let sum = (sum >> 16) + (sum & 0xffff);
        Written { head, low: sequence as u16, time: stamp.time, sum: (sum + (sum >> 16)) as u16 }
    }

    /// The bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        Self::written(self.tag, self.stream, self.sequence, &Stamp::new(self.time)).bytes()
    }

    /// Reads the tail of a frame, of which the last [`LEN`] bytes count.
    pub fn read(frame: &[u8]) -> Reading {
        Self::read_next(frame, &mut Stamp::new(0))
    }

    /// The same for a frame of many: `stamp` is that of the last one, and becomes that of this one.
    #[inline(always)]
    pub fn read_next(frame: &[u8], stamp: &mut Stamp) -> Reading {
        let Some(bytes) = frame.last_chunk::<LEN>() else { return Reading::None };
        let [a, b, c, d, e, f, g, h, i, j, time @ ..] = *bytes;
        if a != MAGIC {
            return Reading::None;
        }
        let signature = Self {
            tag: b,
            stream: u16::from_be_bytes([e, f]),
            sequence: u32::from_be_bytes([g, h, i, j]),
            time: u64::from_be_bytes(time),
        };
        if signature.time != stamp.time {
            *stamp = Stamp::new(signature.time);
        }
        let check = Self::check(signature.tag, signature.stream, signature.sequence, stamp);
        if check == u16::from_be_bytes([c, d]) { Reading::Valid(signature) } else { Reading::Damaged(b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: Signature = Signature { tag: 7, stream: 0x1234, sequence: 0xdead_beef, time: 0x0102_0304_0506_0708 };

    #[test]
    fn the_bytes_are_where_the_drawing_shows_them() {
        let bytes = EXAMPLE.to_bytes();
        assert_eq!(bytes[..2], [0xa9, 7]);
        assert_eq!(bytes[4..], [0x12, 0x34, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn every_flip_of_one_bit_of_the_example_is_seen() {
        let bytes = EXAMPLE.to_bytes();
        for bit in 0..LEN * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Signature::read(&damaged), Reading::Valid(_)), "bit {bit}");
        }
    }

    #[test]
    fn the_places_that_tell_frames_apart_are_those_of_the_picture() {
        let bytes = EXAMPLE.to_bytes();
        let ((far, word), (near, first, last)) = tail(EXAMPLE.tag, (EXAMPLE.stream, 9));
        let at = |from_end: u32| u16::from_be_bytes(*bytes[LEN - from_end as usize..].first_chunk().unwrap());
        assert_eq!((at(far), at(near), last), (word, first, 9));
    }

    #[test]
    fn a_frame_too_short_has_none() {
        assert_eq!(Signature::read(&[0xa9; LEN - 1]), Reading::None);
        assert_eq!(Signature::read(&[]), Reading::None);
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_bytes(tag: u8, stream: u16, sequence: u32, time: u64) {
            let written = Signature::written(tag, stream, sequence, &Stamp::new(time));
            prop_assert_eq!(written.sum, quiver_wire::checksum::Sum::of(&written.bytes()).folded());
        }

        #[test]
        fn what_is_written_is_read(tag: u8, stream: u16, sequence: u32, time: u64, before in 0_usize..70) {
            let signature = Signature { tag, stream, sequence, time };
            let mut frame = vec![0xa9; before];
            frame.extend(signature.to_bytes());
            prop_assert_eq!(Signature::read(&frame), Reading::Valid(signature));
        }
    }
}
