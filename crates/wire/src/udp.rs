//! UDP (RFC 768).

use crate::U16Be;
use crate::header::wire_header;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdpHeader {
    /// Source port
    pub src_port: U16Be,
    /// Destination port
    pub dst_port: U16Be,
    /// Length of header and data
    pub length: U16Be,
    /// Checksum over pseudo-header, header and data; 0 in IPv4 when there is none
    pub checksum: U16Be,
}
wire_header!(UdpHeader = 8);

impl UdpHeader {
    /// A header for `payload_len` bytes of data, with the checksum yet to be filled in.
    #[inline(always)]
    pub const fn new(src_port: u16, dst_port: u16, payload_len: u16) -> Self {
        Self {
            src_port: U16Be::new(src_port),
            dst_port: U16Be::new(dst_port),
            length: U16Be::new(payload_len.wrapping_add(8)),
            checksum: U16Be::ZERO,
        }
    }

    /// Length of the data, where the length field is possible within `available` bytes of IP payload.
    #[inline(always)]
    pub const fn payload_len(&self, available: usize) -> Option<usize> {
        let length = self.length.get() as usize;
        if length < 8 || length > available { None } else { Some(length - 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    #[test]
    fn fields_lie_in_wire_order() {
        let header = UdpHeader::new(0x0102, 0x0304, 0x0500);
        assert_eq!(header.as_bytes(), [1, 2, 3, 4, 5, 8, 0, 0]);
        assert_eq!(UdpHeader::read(&[1, 2, 3, 4, 5, 8, 0, 0]), Some(header));
    }

    #[test]
    fn a_length_outside_header_and_packet_is_impossible() {
        let header = |length| UdpHeader { length: U16Be::new(length), ..UdpHeader::default() };
        assert_eq!(header(7).payload_len(100), None);
        assert_eq!(header(8).payload_len(100), Some(0));
        assert_eq!(header(100).payload_len(100), Some(92));
        assert_eq!(header(101).payload_len(100), None);
    }
}
