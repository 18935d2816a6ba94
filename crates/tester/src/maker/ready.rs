//! What varies in frames, worked out for a block of them at a time: what kind of field it is is decided once for a block, and the
//! loops over a block's values are short ones that a compiler can widen. Frames then take their values from tables.

use quiver_wire::checksum::Sum;

use super::{Engine, put};
use crate::room::Room;

/// Frames of a block: a batch of the sender's.
const BLOCK: usize = 64;

/// A varying field and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) at: usize,
    pub(super) width: Width,
    /// Sums that cover it.
    pub(super) ip: bool,
    pub(super) l4: bool,
    /// Bits beside the field in its bytes.
    pub(super) fixed: u16,
    pub(super) engine: Engine,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Two,
    Four,
    Six,
    Sixteen,
}

impl Width {
    /// In bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Six => 6,
            Self::Sixteen => 16,
        }
    }
}

/// A field's values for a block; of wide ones the upper half stands apart.
#[derive(Clone, Debug)]
struct Values {
    patch: Patch,
    low: Box<[u64; BLOCK]>,
    high: Box<[u64]>,
}

/// The varying fields of a stream.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    fields: Vec<Values>,
    /// Sums of what varies, for the IPv4 header's checksum and for that of layer 4, host order.
    ip: Box<[u16; BLOCK]>,
    l4: Box<[u16; BLOCK]>,
    /// The next frame's place in the block.
    at: usize,
}

impl Ready {
    pub(super) fn new(patches: Vec<Patch>) -> Self {
        let values = |patch: Patch| {
            let high = if matches!(patch.width, Width::Sixteen) { vec![0; BLOCK] } else { Vec::new() };
            Values { patch, low: Box::new([0; BLOCK]), high: high.into_boxed_slice() }
        };
        let fields = patches.into_iter().map(values).collect();
        Self { fields, ip: Box::new([0; BLOCK]), l4: Box::new([0; BLOCK]), at: BLOCK }
    }

    /// The fields.
    pub(super) fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.fields.iter().map(|f| &f.patch)
    }

    /// See [`Engine::take_part`].
    pub(super) fn take_part(&mut self, part: u64, parts: u64) {
        self.fields.iter_mut().for_each(|f| f.patch.engine.take_part(part, parts));
    }

    /// Whether nothing varies.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Writes the next frame's values, and returns the sums over them for the checksums of IPv4 and of layer 4.
    #[inline(always)]
    pub(super) fn write(&mut self, out: &mut [u8]) -> (u16, u16) {
        if self.fields.is_empty() {
            return (0, 0);
        }
        if self.at >= BLOCK {
            self.refill();
        }
        let k = self.at % BLOCK;
        self.at += 1;
        for Values { patch, low, high } in &self.fields {
            let value = low[k];
            match patch.width {
                Width::Two => put(out, patch.at, (value as u16).to_be_bytes()),
                Width::Four => put(out, patch.at, (value as u32).to_be_bytes()),
                Width::Six => {
                    let [_, _, mac @ ..] = value.to_be_bytes();
                    put(out, patch.at, mac);
                }
                Width::Sixteen => {
                    put(out, patch.at, high.get(k).map_or([0; 8], |high| high.to_be_bytes()));
                    put(out, patch.at + 8, value.to_be_bytes());
                }
            }
        }
        (self.ip[k], self.l4[k])
    }

    /// Works out the next block.
    #[inline(never)]
    fn refill(&mut self) {
        let (mut ip, mut l4) = ([0_u64; BLOCK], [0_u64; BLOCK]);
        for Values { patch, low, high } in &mut self.fields {
            patch.engine.fill(&mut low[..], high);
            let fixed = u64::from(patch.fixed);
            if fixed != 0 {
                low.iter_mut().for_each(|value| *value |= fixed);
            }
            // Halves of 32 bits: of them, no number of fields carries out of 64 bits.
            for (on, sums) in [(patch.ip, &mut ip), (patch.l4, &mut l4)] {
                if on {
                    sums.iter_mut().zip(low.iter()).for_each(|(sum, value)| *sum += (value >> 32) + (value & 0xffff_ffff));
                    sums.iter_mut().zip(high.iter()).for_each(|(sum, value)| *sum += (value >> 32) + (value & 0xffff_ffff));
                }
            }
        }
        for (folded, sums) in [(&mut self.ip, &ip), (&mut self.l4, &l4)] {
            for (folded, sum) in folded.iter_mut().zip(sums) {
                let sum = (sum >> 32) + (sum & 0xffff_ffff);
                let sum = (sum >> 16) + (sum & 0xffff);
                let sum = (sum >> 16) + (sum & 0xffff);
                *folded = ((sum >> 16) + sum) as u16;
            }
        }
        self.at = 0;
    }
}

/// A frame of one size, everything that varies zero.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) bytes: Box<[u8]>,
    /// The bytes again, of a frame that a cache line holds, with what fills the line.
    line: Option<Box<[u8; LINE]>>,
    pub(super) ip: Sum,
    pub(super) l4: Sum,
    pub(super) signature: usize,
    /// Where signature and checksum lie in a packet of a capture that has one.
    pub(super) room: Option<Room>,
}

/// Bytes of a cache line, copied without asking how many of them are the frame's.
pub(super) const LINE: usize = 64;

impl Template {
    pub(super) fn new(bytes: Vec<u8>, ip: Sum, l4: Sum, signature: usize) -> Self {
        let line = (bytes.len() <= LINE).then(|| {
            let mut line = Box::new([0; LINE]);
            line[..bytes.len()].copy_from_slice(&bytes);
            line
        });
        Self { bytes: bytes.into_boxed_slice(), line, ip, l4, signature, room: None }
    }

    /// A packet of a capture; with room for a signature, that and the checksum zero.
    pub(super) fn of_packet(mut bytes: Vec<u8>, room: Option<Room>) -> Self {
        let l4 = room.map_or(Sum::new(), |room| room.clear(&mut bytes));
        Self { room, ..Self::new(bytes, Sum::new(), l4, room.map_or(0, |room| room.at)) }
    }

    /// As a line, where it is that short.
    #[inline(always)]
    pub(super) fn line(&self) -> Option<&[u8; LINE]> {
        self.line.as_deref()
    }
}
