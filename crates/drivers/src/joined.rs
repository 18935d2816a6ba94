//! Segments of one TCP connection that follow one another in a vector, sent as one super-frame with a virtio header: the kernel takes it as
//! what a network card's receive offload (GRO) would have made.

use quiver_graph::TxBatch;
use quiver_wire::coalesce::{Run, SuperFrame, same_stream};
use zerocopy::IntoBytes;

use crate::ethernet::FrameLimit;
use crate::virtio_net::VnetHeader;

/// A super-frame that is being put together: runs of bytes that lie in packet buffers.
pub(crate) struct Joined {
    header: VnetHeader,
    head: Option<SuperFrame>,
    /// The payloads, behind two places for header and head.
    parts: Vec<libc::iovec>,
}

// SAFETY: the runs of bytes are written and read within one call of a queue; between calls nobody looks at them.
unsafe impl Send for Joined {}

/// A packet in one buffer.
struct Part {
    start: *const u8,
    len: usize,
    /// Its checksum is still to be computed.
    is_trusted: bool,
}

/// `None`: it lies in several buffers, or is too large.
fn run_of(batch: &mut TxBatch<'_, '_>, i: usize, limit: FrameLimit) -> Option<Part> {
    let packet = batch.packet(i);
    let bytes = packet.bytes();
    let whole = packet.total_len() == bytes.len() && !limit.refuses(bytes.len(), bytes);
    whole.then(|| Part { start: bytes.as_ptr(), len: bytes.len(), is_trusted: packet.unfinished_checksum().is_some() })
}

/// A run of bytes as system calls name it.
pub(crate) fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Whether packets `i` and `i + 1` may be segments of one connection: a quick look, which nothing else passes.
#[inline]
pub(crate) fn may_join(batch: &mut TxBatch<'_, '_>, i: usize) -> bool {
    if i + 1 >= batch.len() {
        return false;
    }
    let first = batch.packet(i);
    let first = (first.bytes().as_ptr(), first.bytes().len());
    let second = batch.packet(i + 1);
    // SAFETY: the packet's buffer is the batch's, and nothing writes to it meanwhile.
    same_stream(unsafe { std::slice::from_raw_parts(first.0, first.1) }, second.bytes())
}

impl Joined {
    pub(crate) fn new() -> Self {
        Self { header: VnetHeader::default(), head: None, parts: Vec::new() }
    }

    /// The super-frame that begins with packet `from`: how many packets it has. `None`: it begins none. What joins segments reads Ethernet
    /// headers.
    pub(crate) fn join(&mut self, batch: &mut TxBatch<'_, '_>, from: usize, limit: FrameLimit) -> Option<usize> {
        if !may_join(batch, from) {
            return None;
        }
        // SAFETY: the packets' buffers are the batch's until it is sent, and nothing writes to them meanwhile.
        let bytes = |part: &Part| unsafe { std::slice::from_raw_parts(part.start, part.len) };
        let first = run_of(batch, from, limit)?;
        let mut run = Run::begin(bytes(&first), first.is_trusted)?;
        self.parts.clear();
        self.parts.resize(2, part(&[]));
        let header_len = run.header_len();
        self.parts.push(part(&bytes(&first)[header_len..]));
        for i in from + 1..batch.len() {
            let Some(next) = run_of(batch, i, limit).filter(|next| run.join(bytes(next), next.is_trusted)) else { break };
            self.parts.push(part(&bytes(&next)[header_len..]));
        }
        if run.segments() < 2 {
            return None;
        }
        let head = run.finish()?;
        let SuperFrame { gso_type, gso_size, csum_start, csum_offset, .. } = head;
        let hdr_len = head.headers().len() as u16;
        self.header = VnetHeader { flags: VnetHeader::NEEDS_CSUM, gso_type, hdr_len, gso_size, csum_start, csum_offset };
        self.head = Some(head);
        Some(run.segments())
    }

    /// What [`Joined::join`] has found, with its virtio header, for the call that sends it.
    pub(crate) fn parts(&mut self) -> &mut [libc::iovec] {
        if let ([header, head, ..], Some(frame)) = (&mut self.parts[..], &self.head) {
            (*header, *head) = (part(self.header.as_bytes()), part(frame.headers()));
        }
        &mut self.parts
    }
}
