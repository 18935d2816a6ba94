//! What the programs and we share: structures of `bpf/engine.c`, sizes checked at compile time.

/// Streams of a port, and flows that it accounts for.
pub const STREAMS: usize = 16;
/// Templates of all streams of a port.
pub const TEMPLATES: usize = 32;
/// Varying fields of a stream.
pub const FIELDS: usize = 8;
/// Turns after which the templates of a stream repeat themselves, at most.
pub const ORDER: usize = 64;
/// Bytes that are written anew for each frame: all headers lie in them.
pub const HEAD: usize = 128;
/// Bits of a fraction of a nanosecond in departure times.
pub const FRACTION: u32 = 24;
/// Numbers that an account remembers, in words of 64.
pub const WORDS: usize = 1024;
/// Cells of a histogram: to three significant digits up to 2^36 ns.
pub const CELLS: usize = 27 * 1024;

/// How a field gets its next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Upwards, then again from the first.
    Count = 0,
    /// Downwards, then again from the first.
    Down = 1,
    /// Drawn from SplitMix64.
    Random = 2,
}

/// A varying field: bits of a word of four bytes, big endian.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Field {
    /// Where the word lies in the frame; at most [`HEAD`] - 4.
    pub at: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// Bits of the word that are no part of the field.
    pub keep: u32,
    /// Bits right of the field.
    pub shift: u32,
    /// All ones where the IPv4 header's checksum covers it, else 0.
    pub in_ip: u32,
    /// The same for the checksum of layer 4.
    pub in_l4: u32,
    /// The next value, where they are counted.
    pub value: u32,
    /// The first value; of values drawn the least one.
    pub first: u32,
    /// The last value, where they are counted.
    pub last: u32,
    /// From one to the next, where they are counted.
    pub step: u32,
    /// State of the generator.
    pub random: u64,
    /// How many values there are to draw from, at most 2^32.
    pub span: u64,
}
const _: () = assert!(size_of::<Field>() == 56);

/// A frame of one size, everything that varies zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Template {
    /// Bytes without FCS.
    pub len: u32,
    /// Sum for the IPv4 header's checksum, host order.
    pub ip: u32,
    /// Sum for the checksum of layer 4.
    pub l4: u32,
    /// The signature begins an odd number of bytes into what layer 4 sums.
    pub odd: u32,
    /// Its first bytes.
    pub head: [u8; HEAD],
}
const _: () = assert!(size_of::<Template>() == 144);

/// A stream, and how far it is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stream {
    /// Time between two departures, ns with [`FRACTION`] bits; of streams without a rate the weight of a turn.
    pub gap: u64,
    /// Next departure, from the start of the trial.
    pub next: u64,
    /// Frames sent.
    pub done: u64,
    /// Frames to send.
    pub total: u64,
    /// Bytes sent, with the lane's overhead.
    pub bytes: u64,
    /// Departure errors of all frames, ns.
    pub error_sum: u64,
    /// The largest one.
    pub error_max: u64,
    /// Number on the wire.
    pub number: u32,
    /// Number of the next frame.
    pub sequence: u32,
    /// Fields in use.
    pub fields: u32,
    /// Turns in use.
    pub turns: u32,
    /// The next turn.
    pub turn: u32,
    /// Where the IPv4 header's checksum is to be written; 0: it stays as it is.
    pub ip_at: u32,
    /// The same for that of layer 4.
    pub l4_at: u32,
    /// Its value 0 is written as 0xffff.
    pub l4_udp: u32,
    /// Frames have signatures.
    pub signed: u32,
    /// Unused.
    pub padding: u32,
    /// Templates by turns.
    pub order: [u8; ORDER],
    /// Varying fields.
    pub field: [Field; FIELDS],
}
const _: () = assert!(size_of::<Stream>() == 608);

/// A trial's part of a port that sends.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Lane {
    /// When to begin, ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// When to send nothing more.
    pub end: u64,
    /// Frames that could not be made.
    pub refused: u64,
    /// Streams in use.
    pub streams: u32,
    /// Index of the device.
    pub device: u32,
    /// The trial.
    pub tag: u32,
    /// Departures have their times; 0: as many as can be.
    pub paced: u32,
    /// Nothing more will be sent.
    pub over: u32,
    /// Bytes of a frame that its length does not count: the FCS.
    pub overhead: u32,
}
const _: () = assert!(size_of::<Lane>() == 48);

/// What a port awaits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Inbox {
    pub(super) on: u32,
    pub(super) tag: u32,
    pub(super) base: u32,
    pub(super) flows: u32,
    pub(super) core: u32,
    pub(super) padding: u32,
    pub(super) elsewhere: u64,
}
const _: () = assert!(size_of::<Inbox>() == 32);

/// The account of a flow.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FlowState {
    /// Next number expected, unwrapped, from 0.
    pub next: u64,
    /// Numbers below this one exist.
    pub end: u64,
    /// Different frames that arrived.
    pub received: u64,
    /// Further copies of them.
    pub duplicated: u64,
    /// Of those received: behind a later one.
    pub reordered: u64,
    /// Behind the window.
    pub late: u64,
    /// With numbers that were never sent.
    pub impossible: u64,
    /// Smallest latency, ns.
    pub min: u64,
    /// Largest one.
    pub max: u64,
    /// Of all frames received.
    pub sum: u64,
    /// That of the last one.
    pub last: u64,
    /// Sixteen times the jitter (RFC 3550, A.8).
    pub jitter16: u64,
    /// The window.
    pub seen: [u64; WORDS],
}
const _: () = assert!(size_of::<FlowState>() == 96 + 8 * WORDS);

/// Counts by cell.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Histogram {
    pub(super) cells: [u64; CELLS],
}

// SAFETY: plain integers without padding between them (sizes above), of which any bits are a value.
unsafe impl aya::Pod for Template {}
// SAFETY: as above.
unsafe impl aya::Pod for Stream {}
// SAFETY: as above.
unsafe impl aya::Pod for Lane {}
// SAFETY: as above.
unsafe impl aya::Pod for Inbox {}
// SAFETY: as above.
unsafe impl aya::Pod for FlowState {}
// SAFETY: as above.
unsafe impl aya::Pod for Histogram {}

/// The least value that a cell counts, ns.
pub(super) fn value_of(cell: usize) -> u64 {
    // Cells of 1 ns up to 2048, then 1024 for each doubling, numbered on from the upper half of those before.
    match cell / 1024 {
        0 | 1 => cell as u64,
        doublings => ((cell % 1024 + 1024) as u64) << (doublings - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_one_another() {
        assert_eq!([0, 1, 1023, 1024, 2047].map(value_of), [0, 1, 1023, 1024, 2047]);
        assert_eq!([2048, 2049, 3071, 3072].map(value_of), [2048, 2050, 4094, 4096]);
        assert_eq!(value_of(CELLS - 1), (1 << 36) - (1 << 25));
    }
}
