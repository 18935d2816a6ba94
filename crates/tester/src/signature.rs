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
    const fn check(&self) -> u16 {
        let low = (self.tag as u64) << 48 | (self.stream as u64) << 32 | self.sequence as u64;
        let mixed = (self.time ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_add(low).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 48) as u16
    }

    /// The bytes.
    #[inline(always)]
    pub const fn to_bytes(&self) -> [u8; LEN] {
        let head = (MAGIC as u64) << 56
            | (self.tag as u64) << 48
            | (self.check() as u64) << 32
            | (self.stream as u64) << 16
            | (self.sequence >> 16) as u64;
        let (head, low, time) = (head.to_be_bytes(), (self.sequence as u16).to_be_bytes(), self.time.to_be_bytes());
        let mut bytes = [0; LEN];
        let mut i = 0;
        while i < 8 {
            bytes[i] = head[i];
            bytes[10 + i] = time[i];
            i += 1;
        }
        bytes[8] = low[0];
        bytes[9] = low[1];
        bytes
    }

    /// Reads the tail of a frame, of which the last [`LEN`] bytes count.
    #[inline(always)]
    pub fn read(frame: &[u8]) -> Reading {
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
        if signature.check() == u16::from_be_bytes([c, d]) { Reading::Valid(signature) } else { Reading::Damaged(b) }
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
    fn a_frame_too_short_has_none() {
        assert_eq!(Signature::read(&[0xa9; LEN - 1]), Reading::None);
        assert_eq!(Signature::read(&[]), Reading::None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tag: u8, stream: u16, sequence: u32, time: u64, before in 0_usize..70) {
            let signature = Signature { tag, stream, sequence, time };
            let mut frame = vec![0xa9; before];
            frame.extend(signature.to_bytes());
            prop_assert_eq!(Signature::read(&frame), Reading::Valid(signature));
        }
    }
}
