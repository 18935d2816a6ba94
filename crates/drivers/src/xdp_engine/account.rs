//! What the program that receives and we share: structures of `bpf/receive.c`, sizes checked at compile time.

/// Flows that a port accounts for.
pub const FLOWS: usize = 64;
/// Numbers that an account remembers, in words of 64.
pub const WORDS: usize = 1024;
/// Cells of a histogram: to three significant digits up to 2^36 ns.
pub const CELLS: usize = 27 * 1024;

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
