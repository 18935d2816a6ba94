//! Unfinished checksums, as virtio devices, TAP and AF_PACKET hand them over.

use super::Sum;
use crate::U16Be;
use crate::header::Header;

/// Why an unfinished checksum could not be completed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum OffloadError {
    /// `csum_start` lies past the end of the frame
    StartPastEnd,
    /// The field at `csum_start + csum_offset` does not lie within the frame
    FieldPastEnd,
}

/// Completes an unfinished checksum (virtio 1.2, 5.1.6.2): the field at `csum_start + csum_offset` holds the sum over
/// the pseudo-header; the checksum over everything from `csum_start` takes its place. As Linux does, 0 is written as
/// 0xffff, which UDP demands and which means the same elsewhere.
///
/// `frame` must end where the L4 datagram ends, or be followed by zeros only.
pub fn complete(frame: &mut [u8], csum_start: u16, csum_offset: u16) -> Result<(), OffloadError> {
    let covered = frame.get_mut(usize::from(csum_start)..).ok_or(OffloadError::StartPastEnd)?;
    let field = Sum::of(covered).udp_checksum();
    U16Be::new(field).write_at(covered, usize::from(csum_offset)).ok_or(OffloadError::FieldPastEnd)
}
