//! What all header views share: reading from and writing to bytes by value.

use crate::{MacAddr, U16Be, U32Be, U64Be, U128Be};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A fixed-size protocol header that is copied in and out of packet memory by value.
///
/// Implemented by the header structs of this crate; their size is asserted at compile time.
pub trait Header: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {
    /// Length on the wire, in bytes.
    const LEN: usize = size_of::<Self>();

    /// The header at the start of `bytes`, or `None` if they are too few.
    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        match Self::read_from_prefix(bytes) {
            Ok((header, _)) => Some(header),
            Err(_) => None,
        }
    }

    /// The header at `offset`, or `None` if it would reach past the end.
    #[inline(always)]
    fn read_at(bytes: &[u8], offset: usize) -> Option<Self> {
        Self::read(bytes.get(offset..)?)
    }

    /// Writes the header to the start of `bytes`; `None`, and nothing written, if they are too few.
    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) -> Option<()> {
        self.write_to_prefix(bytes).ok()
    }

    /// Writes the header at `offset`; `None`, and nothing written, if it would reach past the end.
    #[inline(always)]
    fn write_at(&self, bytes: &mut [u8], offset: usize) -> Option<()> {
        self.write(bytes.get_mut(offset..)?)
    }
}

/// Implements [`Header`] and asserts the size that the protocol fixes.
macro_rules! wire_header {
    ($($name:ty = $len:expr),+ $(,)?) => { $(
        const _: () = assert!(size_of::<$name>() == $len);
        const _: () = assert!(align_of::<$name>() == 1);
        impl $crate::Header for $name {}
    )+ };
}
pub(crate) use wire_header;

wire_header!(U16Be = 2, U32Be = 4, U64Be = 8, U128Be = 16, MacAddr = 6);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpHeader;

    #[test]
    fn a_header_is_read_only_where_all_its_bytes_are() {
        let bytes = [0xa5; 9];
        assert!(UdpHeader::read(&bytes[..7]).is_none());
        assert!(UdpHeader::read(&bytes[..8]).is_some());
        assert!(UdpHeader::read_at(&bytes, 1).is_some());
        assert!(UdpHeader::read_at(&bytes, 2).is_none());
        assert!(UdpHeader::read_at(&bytes, 10).is_none());
        assert!(UdpHeader::read_at(&bytes, usize::MAX).is_none());
    }

    #[test]
    fn a_refused_write_leaves_the_bytes_alone() {
        let header = UdpHeader::default();
        let mut bytes = [0xa5; 9];
        assert!(header.write_at(&mut bytes, 2).is_none());
        assert_eq!(bytes, [0xa5; 9]);
        assert!(header.write_at(&mut bytes, 1).is_some());
        assert_eq!(bytes, [0xa5, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
