//! The metadata line: what a packet needs rarely.

/// No further buffer in a chain.
pub const NO_BUFFER: u32 = u32::MAX;
/// The packet is not traced.
pub const NO_TRACE: u32 = u32::MAX;

/// 64 bytes beside each buffer, in private memory. Nobody initialises the line on receive; a flag of the packet's context
/// lane says whether it is valid ([`Meta::EMPTY`] is written when that flag is first set). Continuation buffers of a chain
/// always have a valid line: it alone says where their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Meta {
    /// Next buffer of the chain, or [`NO_BUFFER`].
    pub next: u32,
    /// Bytes in the buffers after this one.
    pub rest_len: u32,
    /// Data offset (high 16 bits) and length (low 16 bits) of a continuation buffer.
    pub segment: u32,
    /// Handle of the packet's trace record, or [`NO_TRACE`].
    pub trace: u32,
    /// FIB index that lookups must use instead of the rx interface's, or `u32::MAX`.
    pub table: u32,
    /// Flow hash, where one was computed.
    pub flow_hash: u32,
    /// Where an unfinished checksum starts, bytes from the start of the buffer's headroom.
    pub checksum_start: u16,
    /// Where an unfinished checksum is stored, bytes after `checksum_start`.
    pub checksum_offset: u16,
    /// Free for the features of a plugin between two of its own nodes.
    pub scratch: [u32; 9],
}

impl Meta {
    /// A line that says nothing.
    pub const EMPTY: Self = Self {
        next: NO_BUFFER,
        rest_len: 0,
        segment: 0,
        trace: NO_TRACE,
        table: u32::MAX,
        flow_hash: 0,
        checksum_start: 0,
        checksum_offset: 0,
        scratch: [0; 9],
    };
}

const _: () = assert!(size_of::<Meta>() == 64);
