//! The VXLAN header (RFC 7348, section 5): flags, 24 reserved bits, VNI, 8 reserved bits.

/// Bytes of the header.
pub const LEN: usize = 8;
/// The port that IANA has assigned.
pub const PORT: u16 = 4789;
/// Largest VXLAN network identifier.
pub const VNI_MAX: u32 = (1 << 24) - 1;
/// The VNI is valid; all other flags are reserved.
const VALID: u8 = 0x08;

/// The header of a VNI.
pub const fn emit(vni: u32) -> [u8; LEN] {
    let [_, a, b, c] = vni.to_be_bytes();
    [VALID, 0, 0, 0, a, b, c, 0]
}

/// The VNI; `None` where the header says that there is none. Reserved fields are ignored (RFC 7348, section 5).
pub const fn parse(header: [u8; LEN]) -> Option<u32> {
    let [flags, _, _, _, a, b, c, _] = header;
    if flags & VALID == 0 { None } else { Some(u32::from_be_bytes([0, a, b, c])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vni_survives_and_reserved_bits_do_not_matter() {
        for vni in [0, 1, 0x12_3456, VNI_MAX] {
            assert_eq!(parse(emit(vni)), Some(vni));
        }
        assert_eq!(emit(0x12_3456), [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(parse([0xff, 1, 2, 3, 0, 0, 7, 0xff]), Some(7));
        assert_eq!(parse([0xf7, 0, 0, 0, 0, 0, 7, 0]), None);
    }
}
