//! What a program that sends and we share: structures of `bpf/values.h`, sizes checked at compile time.

/// Streams of a thread that sends.
pub const STREAMS: usize = 16;
/// Directions that a thread may send in, each with an account of its departure errors.
pub const DIRECTIONS: usize = 2;
/// Varying fields of a stream: two addresses of each layer, of IPv6 in two halves, two tags and two ports.
pub const FIELDS: usize = 10;
/// Bytes that are written anew for each frame: all headers lie in them.
pub const HEAD: usize = 128;
/// Bytes of a frame behind them, at most.
pub const BODY: usize = 3280;
/// Bits of a fraction of a nanosecond in departure times.
pub const FRACTION: u32 = 24;
/// Rows of lists that lie together.
pub(super) const ROWS: usize = 128;
/// Departure times that lie together.
pub const DUES: usize = 512;

/// How a field gets its next value; `Wide`: from values of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Upwards, then again from the first.
    Count = 0,
    /// Downwards, then again from the first.
    Down,
    /// Drawn evenly.
    Random,
    /// From a list, by turns.
    List,
    /// From a list, drawn.
    Pick,
    /// From prefixes, popular ones more often.
    Zipf,
    /// See [`Kind::Count`].
    CountWide,
    /// See [`Kind::Down`].
    DownWide,
    /// See [`Kind::Random`].
    RandomWide,
    /// From as many values as a power of two, whose mask stands in place of the last value.
    RandomMasked,
}

/// How a stream's departures follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Spread {
    /// Evenly.
    Even = 0,
    /// As fast as it goes, in what streams with a rate leave.
    Unpaced,
    /// In bursts.
    Bursts,
    /// At times that are written while frames are sent.
    Fed,
}

/// A varying field, or a half of it: bytes that are written at once.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Field {
    /// Where it lies in the frame.
    pub at: u32,
    /// 2, 4, 6 or 8.
    pub bytes: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// Of values of 128 bits: 1 for the upper half.
    pub high: u32,
    /// All ones where the IPv4 header's checksum covers it, else 0.
    pub in_ip: u32,
    /// The same for the checksum of layer 4.
    pub in_l4: u32,
    /// Of lists: the first row.
    pub rows: u32,
    /// Bits beside the field in its bytes.
    pub fixed: u32,
    /// Frames that have a value before the next one comes, where values are counted.
    pub every: u64,
    /// How many values, rows or prefixes there are.
    pub span: u64,
    /// The first value, of values drawn the least one: lower and upper half.
    pub first: [u64; 2],
    /// The last value, where they are counted.
    pub last: [u64; 2],
    /// From one to the next.
    pub step: [u64; 2],
}
const _: () = assert!(size_of::<Field>() == 96);

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

/// A stream.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stream {
    /// Frames to send.
    pub total: u64,
    /// Time between two departures, ns with [`FRACTION`] bits; of streams without a rate the weight of a turn.
    pub gap: u64,
    /// Time between the beginnings of two bursts.
    pub period: u64,
    /// Frames of a burst.
    pub burst: u64,
    /// A [`Spread`].
    pub spread: u32,
    /// Number on the wire.
    pub number: u32,
    /// Fields in use.
    pub fields: u32,
    /// Frames have signatures.
    pub signed: u32,
    /// Its first template.
    pub templates: u32,
    /// Templates that are drawn from; 0: they take turns.
    pub choices: u32,
    /// Where the order of the turns begins.
    pub order: u32,
    /// Turns after which they repeat themselves.
    pub turns: u32,
    /// Where the IPv4 header's checksum is to be written; 0: it stays as it is.
    pub ip_at: u32,
    /// The same for that of layer 4.
    pub l4_at: u32,
    /// Its value 0 is written as 0xffff.
    pub l4_udp: u32,
    /// Index of the device that its frames leave by; 0 for the engine's.
    pub device: u32,
    /// Where the written departure times begin, in units of [`DUES`].
    pub feed: u32,
    /// How many of those units there are, a power of two, less one.
    pub feed_mask: u32,
    /// Which account its departure errors go to, below [`DIRECTIONS`].
    pub errors: u32,
    /// Unused.
    pub padding: u32,
    /// Varying fields.
    pub field: [Field; FIELDS],
}
const _: () = assert!(size_of::<Stream>() == 96 + 96 * FIELDS);

/// What a thread is to send; does not change.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Setup {
    /// Streams in use.
    pub streams: u32,
    /// The trial.
    pub tag: u32,
    /// Bytes of a frame that its length does not count: the FCS.
    pub overhead: u32,
    /// Frames beyond the first one that share a reading of the clock.
    pub share: u32,
    /// Frames differ behind [`HEAD`], so that is written anew too.
    pub bodies: u32,
    /// Unused.
    pub padding: u32,
    /// The streams.
    pub stream: [Stream; STREAMS],
}
const _: () = assert!(size_of::<Setup>() == 24 + size_of::<Stream>() * STREAMS);

/// How far a field is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Place {
    /// The next value, where they are counted, or the next row: lower and upper half.
    pub value: [u64; 2],
    /// Frames that will still have it.
    pub left: u64,
    /// State of the generator.
    pub random: u64,
}
const _: () = assert!(size_of::<Place>() == 32);

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Progress {
    /// Next departure, from the start of the trial, ns with [`FRACTION`] bits.
    pub next: u64,
    /// Frames sent.
    pub done: u64,
    /// Bytes sent, with the overhead.
    pub bytes: u64,
    /// When the burst has begun.
    pub begin: u64,
    /// Frames of it that were sent.
    pub in_burst: u64,
    /// State of the generator that draws sizes.
    pub sizes: u64,
    /// Number of the next frame.
    pub sequence: u32,
    /// The next turn.
    pub turn: u32,
    /// Its fields.
    pub field: [Place; FIELDS],
}
const _: () = assert!(size_of::<Progress>() == 56 + 32 * FIELDS);

/// How far a thread is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct State {
    /// Frames that could not be made.
    pub refused: u64,
    /// The last reading of the clock.
    pub now: u64,
    /// Frames that may still share it.
    pub share: u32,
    /// Nothing more will be sent.
    pub over: u32,
    /// The streams.
    pub stream: [Progress; STREAMS],
}
const _: () = assert!(size_of::<State>() == 24 + size_of::<Progress>() * STREAMS);

/// What is said while frames are sent.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Control {
    /// When to begin, ns of CLOCK_MONOTONIC.
    pub(super) start: u64,
    /// When to send nothing more.
    pub(super) end: u64,
    /// Departure times written, of each stream.
    pub(super) fed: [u64; STREAMS],
}

/// A value of a list, or a prefix.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Row {
    /// The value: lower and upper half.
    pub value: [u64; 2],
    /// Part of the column, of 2^32, that is its own prefix's.
    pub own: u32,
    /// Whose the rest is.
    pub other: u32,
    /// Bits of its addresses that are the host's.
    pub host: u32,
    /// Unused.
    pub padding: u32,
}
const _: () = assert!(size_of::<Row>() == 32);

/// Rows that lie together.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Rows(pub(super) [Row; ROWS]);

/// What a frame has behind [`HEAD`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Body(pub(super) [u8; BODY]);

/// Departure times that lie together, ns from the start of the trial.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Dues(pub(super) [u64; DUES]);

// SAFETY: plain integers without padding between them (sizes above), of which any bits are a value.
unsafe impl aya::Pod for Template {}
// SAFETY: as above.
unsafe impl aya::Pod for Setup {}
// SAFETY: as above.
unsafe impl aya::Pod for State {}
// SAFETY: as above.
unsafe impl aya::Pod for Control {}
// SAFETY: as above.
unsafe impl aya::Pod for Rows {}
// SAFETY: as above; bytes only.
unsafe impl aya::Pod for Body {}
// SAFETY: as above.
unsafe impl aya::Pod for Dues {}
